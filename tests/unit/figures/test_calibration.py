"""What the figures of a calibration show is what it says, of the right operating point."""

import numpy as np
import pandas as pd
import pytest

from clockwatt.figures import calibration, load
from clockwatt.figures.gpus import Gpu, Gpus
from clockwatt.measure.reference_operations import anchors
from clockwatt.schema.quantities import CalibrationQuantity

GPUS = Gpus([Gpu("a30", virtual=True), Gpu("v100", virtual=True)])


def test_each_gpu_is_shown_at_its_highest_clock(made):
    rows = load.calibrated(made.dataset, CalibrationQuantity.POWER_TRANSIENT)
    assert set(zip(rows["gpu"], rows["point"], strict=True)) == {("a30", "sm1440"), ("v100", "sm900")}


def test_times_are_relative_to_the_longest_run_and_stand_at_its_duration(made):
    data = calibration.durations(load.calibrated(made.dataset, CalibrationQuantity.TIME_AGAINST_ITERATIONS))
    assert data["operation"].nunique() == len(anchors())
    for _, curve in data.groupby(["gpu", "operation"]):
        assert list(curve["calls"]) == [1, 10, 100, 1000]
        assert list(curve["relative"]) == pytest.approx([6e-5 / 5.001e-5, 5.1e-5 / 5.001e-5, 5.01e-5 / 5.001e-5, 1])
        assert list(curve["duration_s"]) == pytest.approx([6e-5, 5.1e-4, 5.01e-3, 5.001e-2])


def test_the_rule_of_the_thesis_can_be_read_off(made):
    data = calibration.durations(load.calibrated(made.dataset, CalibrationQuantity.TIME_AGAINST_ITERATIONS))
    figure = calibration.draw_durations(data, GPUS)
    for axes in figure.axes[len(figure.axes) // 2 :]:
        assert any(np.allclose(line.get_xdata(), 0.1) for line in axes.lines)
        assert axes.get_xlim()[1] > 0.1


def test_power_is_drawn_from_idle_to_load_a_line_per_run_and_sensor(made):
    rows = load.calibrated(made.dataset, CalibrationQuantity.POWER_TRANSIENT)
    axes = calibration.draw_transient(rows[rows["gpu"] == "a30"], GPUS).axes[0]
    runs = [line.get_xydata() for line in axes.lines if len(line.get_xydata()) > 2]
    assert len(runs) == 4
    for run in runs:
        assert np.array_equal(run[:, 1] > 200, run[:, 0] > 0)
    assert axes.get_ylim()[0] == 0
    assert axes.get_xlim()[0] < 0


def test_runs_without_a_rest_have_a_panel_of_their_own(made):
    rows = load.calibrated(made.dataset, CalibrationQuantity.POWER_TRANSIENT)
    rows = rows[rows["gpu"] == "a30"]
    unrested = rows.assign(subject=rows["subject"].str.replace("run", "unrested"), value=240.0)
    rested, without = calibration.draw_transient(pd.concat([rows, unrested]), GPUS).axes
    assert without.get_ylabel() == "board power, without a rest"
    lines = [line.get_ydata() for line in without.lines if len(line.get_ydata()) > 2]
    assert len(lines) == 4
    assert all((values == 240).all() for values in lines)
    assert sum(len(line.get_xdata()) > 2 for line in rested.lines) == 4
    other = rows.assign(gpu="v100")
    words = [
        [text.get_text() for text in axes.texts]
        for axes in calibration.draw_transient(pd.concat([rows, unrested, other]), GPUS).axes
    ]
    assert ["not recorded" in each for each in words] == [False, False, False, True]


def test_operations_are_named_by_function_and_shape_and_unknown_ones_by_id():
    names = calibration.operation_names(["unknown", anchors()[2].operation_id])
    assert names == {anchors()[2].operation_id: "softmax 4096×4096", "unknown": "unknown"}


def test_the_shortest_run_is_the_first_from_which_all_lie_near_the_line():
    calls = pd.Series([2.0, 4, 8, 16, 32, 64, 128, 256, 512, 1024])
    noise = 1e-7 * np.array([1, -1, 1, -1, 1, -1, 1, -1, 1, -1])
    duration_s = 1e-5 * calls + noise
    assert (calibration.thesis_line(calls, duration_s)["shortest_s"] == duration_s[0]).all()
    duration_s[0] += 1e-4
    line = calibration.thesis_line(calls, duration_s)
    assert (line["shortest_s"] == duration_s[1]).all()
    # the first run is not fitted, so it does not bend the line
    assert line["line_s"].to_numpy() == pytest.approx(1e-5 * calls.to_numpy(), abs=2e-7)
    assert line["line_deviation_s"].to_numpy() == pytest.approx(1.1e-7, rel=0.3)
    assert calibration.thesis_line(calls[:2], duration_s[:2]).isna().all(axis=None)


def test_the_line_and_the_ring_of_the_shortest_run_are_drawn(made):
    data = calibration.durations(load.calibrated(made.dataset, CalibrationQuantity.TIME_AGAINST_ITERATIONS))
    (panel, *_) = calibration.draw_durations(data, GPUS).axes
    own = data[data["gpu"] == "a30"]
    rings = [line for line in panel.lines if line.get_markersize() == 8]
    assert [ring.get_ydata().tolist() for ring in rings] == [
        [runs["shortest_s"].iloc[0]] for _, runs in own.groupby("operation", sort=False)
    ]
    assert panel.get_xscale() == panel.get_yscale() == "log"
