"""Runs measured by others: read, predicted at limits left out, and drawn."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from clockwatt.errors import DataFileError
from clockwatt.studies.power import runs_by_others, tables
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


def test_a_wrong_table_is_named_with_its_row(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text("gpu,network,time_s,power_w\na,n,1,100\na,n,-1,100\n")
    with pytest.raises(DataFileError, match="row 2: time_s and power_w must be positive"):
        read_runs(path, "a", [])
    path.write_text("gpu,network,time_s,power_w\na,n,1,100\n")
    with pytest.raises(DataFileError, match="no such GPU; there are a"):
        read_runs(path, "b", [])
    path.write_text("gpu,time_s,power_w\na,1,100\n")
    with pytest.raises(DataFileError, match="column network is missing"):
        read_runs(path, "a", [])


def test_a_missing_table_is_one_message(tmp_path):
    with pytest.raises(DataFileError, match=r"no\.csv: no such file\. Give the table's path, or shipped\."):
        read_runs(tmp_path / "no.csv", "v100", [])
