"""What the figures of a calibration show is what it says, of the right operating point."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from clockwatt.figures import calibration, load
from clockwatt.figures.draw import draw_figures
from clockwatt.io import files
from clockwatt.measure.anchors import anchors
from clockwatt.schema import layout
from clockwatt.schema.quantities import CalibrationQuantity
from clockwatt.schema.records import CALIBRATION_SCHEMA


@pytest.fixture
def axes():
    return Figure().subplots()


def test_each_gpu_is_shown_at_its_highest_clock(made):
    rows = load.calibrated(made.dataset, CalibrationQuantity.POWER_TRANSIENT)
    assert set(zip(rows["gpu"], rows["point"], strict=True)) == {("a30", "sm1440"), ("v100", "sm900")}


def test_times_are_relative_to_those_of_the_most_calls(made, axes):
    rows = load.calibrated(made.dataset, CalibrationQuantity.TIME_AGAINST_ITERATIONS)
    names = calibration.operation_names(list(rows["subject"].unique()))
    calibration.time_against_iterations(axes, rows[rows["gpu"] == "a30"], list(names))
    curves = [container.lines[0].get_xydata() for container in axes.containers]
    assert len(curves) == len(anchors())
    for curve in curves:
        assert list(curve[:, 0]) == [1, 10, 100, 1000]
        assert curve[:, 1] == pytest.approx([6e-5 / 5.001e-5, 5.1e-5 / 5.001e-5, 5.01e-5 / 5.001e-5, 1])


def test_power_is_drawn_from_idle_to_load_a_line_per_run_and_sensor(made, axes):
    rows = load.calibrated(made.dataset, CalibrationQuantity.POWER_TRANSIENT)
    calibration.power_transient(axes, rows[rows["gpu"] == "a30"])
    runs = [line.get_xydata() for line in axes.lines if len(line.get_xydata()) > 2]
    assert len(runs) == 4
    for run in runs:
        assert np.array_equal(run[:, 1] > 200, run[:, 0] > 0)
    assert axes.get_ylim()[0] == 0
    assert axes.get_xlim()[0] < 0


def test_operations_are_named_by_function_and_shape_and_unknown_ones_by_id():
    names = calibration.operation_names(["unknown", anchors()[2].operation_id])
    assert names == {anchors()[2].operation_id: "softmax 4096×4096", "unknown": "unknown"}


def test_a_dataset_without_these_calibrations_has_its_figures_all_the_same(made, tmp_path):
    table = files.read_table(made.dataset / layout.CALIBRATION_FILE, CALIBRATION_SCHEMA)
    for path in made.dataset.iterdir():
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / layout.CALIBRATION_FILE).unlink()
    files.write_table(
        table.filter([value is None for value in table["x"].to_pylist()]), tmp_path / layout.CALIBRATION_FILE
    )
    draw_figures(made.config, tmp_path, made.predictors, made.validation, tmp_path / "figures")
    assert (tmp_path / "figures" / "power_transient.png").stat().st_size > 0
