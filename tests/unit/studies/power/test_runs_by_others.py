"""Runs measured by others: read, predicted at limits left out, and drawn."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from clockwatt.cli.main import app
from clockwatt.errors import ClockwattError, DataFileError, OutputError
from clockwatt.io.files import write_table
from clockwatt.studies.power import draw, runs_by_others, tables
from clockwatt.studies.power.limit_curves import choices, on_limit_curve
from clockwatt.studies.power.runs_by_others import SHIPPED, read_runs


def test_a_curve_of_second_degree_in_the_inverse_limit_is_found_again():
    limits = np.array([100.0, 150, 200, 250])
    values = np.exp(1 + 2e2 / limits - 5e3 / limits**2)
    assert on_limit_curve(limits, values, np.array([125.0])) == pytest.approx(np.exp(1 + 1.6 - 0.32))
    assert on_limit_curve(limits[:1], values[:1], np.array([125.0])) == pytest.approx(values[:1])


def test_batch_and_limit_are_chosen_by_the_cost_to_the_target():
    rows = [
        {"batch_size": batch, "power_limit_w": limit, "time_s": time, "power_w": limit, "epochs": epochs}
        for batch, epochs, times in ((8, 10.0, (3, 2, 1.9)), (16, 30.0, (2, 1, 0.9)), (32, np.nan, (1, 0.5, 0.4)))
        for limit, time in zip((100.0, 150.0, 200.0), times, strict=True)
    ]  # fmt: skip
    best = choices(pd.DataFrame(rows).assign(network="net")).set_index("objective")
    assert best.loc["time_s", ["batch_size", "power_limit_w"]].tolist() == [8, 200]
    assert set(best["batch_size"]) == {8}


def test_shipped_runs_become_tables_of_the_study(tmp_path):
    rows = read_runs(Path(SHIPPED), "p100", ["resnet50-b128", "ncf-b4096"])
    runs_by_others.write_runs(rows, tmp_path)
    runs, epochs, _ = tables.read(tmp_path)
    assert set(runs["network"]) == {"resnet50-b128", "ncf-b4096"}
    assert len(runs) == 12
    assert epochs.empty
    assert runs.loc[runs["point"] == "pl150", "asked"].tolist() == [150, 150]
    with pytest.raises(DataFileError, match=r"45 networks .* name at most 6 by --network"):
        runs_by_others.write_runs(read_runs(Path(SHIPPED), "p100", []), tmp_path)


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("a,n,-1,100,100,8,1", "row 2, column time_s: -1 is not above zero"),
        ("a,n,inf,100,100,8,1", "row 2, column time_s: inf is not above zero"),
        ("a,n,1,,100,8,1", "row 2, column power_w: is empty"),
        ("a,,1,100,100,8,1", "row 2, column network: is empty"),
        ("a,n,1,100,150W,8,1", "row 2, column power_limit_w: '150W' is not a number"),
        ("a,n,1,100,0,8,1", "row 2, column power_limit_w: 0 is not above zero"),
        ("a,n,1,100,100,-8,1", "row 2, column batch_size: -8 is not above zero"),
        ("a,n,1,100,100,8,-1", "row 2, column epochs: -1 is not above zero"),
    ],
)
def test_a_wrong_cell_is_named_with_its_row_and_column(tmp_path, row, problem):
    path = tmp_path / "runs.csv"
    path.write_text(f"gpu,network,time_s,power_w,power_limit_w,batch_size,epochs\na,n,90,100,150,8,1\n{row}\n")
    with pytest.raises(DataFileError, match=problem):
        read_runs(path, "a", [])


def test_a_table_without_the_rows_asked_for_says_what_it_has(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text("gpu,network,time_s,power_w\n1,n,1,100\n")
    assert len(read_runs(path, "1", ["n"])) == 1
    for gpu, networks, problem in (
        ("b", [], "no GPU 'b'. Choose 1"),
        ("1", ["n", "m"], "no network 'm' of 1. Choose n"),
    ):
        with pytest.raises(DataFileError, match=problem):
            read_runs(path, gpu, networks)
    path.write_text("gpu,time_s,power_w\na,1,100\n")
    with pytest.raises(DataFileError, match="column network is missing"):
        read_runs(path, "a", [])
    with pytest.raises(DataFileError, match=r"no\.csv: no such file\. Give the table's path"):
        read_runs(tmp_path / "no.csv", "v100", [])


def test_recorded_runs_are_not_overwritten(tmp_path):
    rows = read_runs(Path(SHIPPED), "p100", ["resnet50-b128"])
    runs_by_others.write_runs(rows, tmp_path)
    runs_by_others.write_runs(rows, tmp_path)
    runs, *_ = tables.read(tmp_path)
    recorded = pa.Table.from_pandas(runs.assign(record="runs/1"), schema=tables.RUN_SCHEMA, preserve_index=False)
    write_table(recorded, tmp_path / tables.RUNS)
    with pytest.raises(OutputError, match="contains runs that clockwatt recorded"):
        runs_by_others.write_runs(rows, tmp_path)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--gpu", "v100"], "Name the table with --runs"),
        (["--runs", "shipped", "--gpu", "v100", "--only", "front"], "Leave it out with --runs"),
    ],
)
def test_options_that_would_be_ignored_are_refused(tmp_path, options, problem):
    refused = CliRunner().invoke(app, ["study-power", "--study-dir", str(tmp_path), *options]).exception
    assert isinstance(refused, ClockwattError)
    assert problem in str(refused)


def test_labels_of_fits_stay_in_their_panels(tmp_path):
    networks = [f"ncf-b{2**power}" for power in range(9, 14)]
    runs_by_others.write_runs(read_runs(Path(SHIPPED), "v100", networks), tmp_path)
    figure, _ = draw.DRAWN["optimum_power_limit"](draw.Results(*tables.read(tmp_path)))
    figure.canvas.draw()
    labels = [(axes, label) for axes in figure.axes for label in axes.texts]
    assert any("no optimum" in label.get_text() for _, label in labels)
    for axes, label in labels:
        panel, own = axes.get_window_extent(), label.get_window_extent()
        assert panel.x0 <= own.x0 < own.x1 <= panel.x1, label.get_text()
