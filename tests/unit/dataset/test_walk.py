"""One operation from the catalogue to what predictors see: no value is renamed or redefined on the way."""

import math

import pandas as pd
import pyarrow.parquet as pq
import pytest

from clockwatt.dataset.build import build_dataset
from clockwatt.io import files
from clockwatt.predict.measured_costs import MeasuredCosts, write_measured
from clockwatt.predict.models.training_data import KEY, read_samples
from clockwatt.schema import costs, layout, records, tables
from clockwatt.schema.execution import TF32
from clockwatt.schema.flags import Flag
from support import synthetic

PATH = layout.operations_file("a30", "sm900", 1)
POINT = "sm900"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A campaign with two cards and hosts, and a training operation of which everything is corrected."""
    settings = synthetic.campaign(clocks=[900], networks=1, passes=["inference", "training"])
    made = synthetic.write_campaign(tmp_path_factory.mktemp("walk"), settings)

    def edit(rows):
        second = [synthetic.again(row, gpu_uuid="GPU-slow", session_id="slow", repetition=1) for row in rows]
        for row in second:
            row.time_host_s *= 1.5
            for name in ("time_device_s", "time_eager_s"):
                setattr(row, name, 1.2 * getattr(row, name))
        for row in (walked(rows), walked(second)):
            row.throttle_reasons = ["sw_power_cap"]
            row.time_host_in_pass_s, row.time_host_in_pass_standard_error_s = 0.5 * row.time_host_s, 1e-7
            row.energy_dynamic_unthrottled_j = 1.25 * row.energy_dynamic_j
            row.energy_dynamic_unthrottled_standard_error_j = 0.01 * row.energy_dynamic_j
        return rows + second

    synthetic.change(made, PATH, edit)
    build_dataset(made.config, made.measurements, made.catalogue, made.dataset)
    return made


def walked(rows):
    """The row of the operation that is followed."""
    return next(row for row in rows if row.kind == records.OPERATION and row.pass_ == "training" and row.power_w)


def of_dataset(made, row):
    table = files.read_table(made.dataset / layout.OPERATIONS_FILE, tables.OPERATIONS_SCHEMA).to_pylist()
    key = ("subject_id", "pass", "point", "gpu", "session_id")
    wanted = (row.subject_id, row.pass_, row.point, row.gpu, row.session_id)
    (found,) = [one for one in table if tuple(one[name] for name in key) == wanted]
    return found


@pytest.fixture(scope="module")
def followed(made):
    """The measurements of the operation, on both cards, as the file of measurements has them."""
    table = files.read_table(made.measurements / PATH, records.MEASUREMENT_SCHEMA).to_pylist()
    rows = [records.row_of(records.MeasurementRow, values) for values in table]
    first = walked(rows)
    return [row for row in rows if (row.subject_id, row.pass_) == (first.subject_id, first.pass_)]


def test_the_dataset_has_every_measured_value_as_it_was_measured(made, followed):
    assert len(followed) == 2
    for row in followed:
        found = of_dataset(made, row)
        for name in records.MEASUREMENT_SCHEMA.names:
            if name != "flags":
                assert found[name] == getattr(row, "pass_" if name == "pass" else name), name
        assert set(row.flags) <= set(found["flags"])
        assert Flag.POWER_CAPPED in found["flags"]


def test_the_dataset_has_what_the_catalogue_says_and_the_spec_stands_there_alone(made, followed):
    catalogue = files.read_table(made.catalogue / "operations.parquet", records.OPERATION_SCHEMA).to_pylist()
    (row, *_) = followed
    (described,) = [one for one in catalogue if (one["operation_id"], one["pass"]) == (row.subject_id, row.pass_)]
    found = of_dataset(made, row)
    for name in tables.joined_columns(records.OPERATION_SCHEMA):
        assert found[tables.dataset_name(name)] == described[name], name
    assert "spec" not in pq.read_schema(made.dataset / layout.OPERATIONS_FILE).names
    operations = read_samples(made.dataset, "a30").operations.set_index(["operation_id", "pass"])
    assert operations.loc[(row.subject_id, row.pass_), "spec"] == described["spec"]


def test_corrected_costs_follow_from_the_columns_beside_them(made, followed):
    for row in followed:
        found = of_dataset(made, row)
        time, power, host = (
            found[name] for name in ("anchor_time_factor", "anchor_power_factor", "anchor_host_factor")
        )
        assert time != 1
        assert host != 1
        assert found["time_device_corrected_s"] == row.time_device_s / time
        assert found["time_eager_corrected_s"] == row.time_eager_s / time
        assert found["time_host_corrected_s"] == row.time_host_in_pass_s / host
        assert found[costs.TIME_HOST_FROM] == costs.MEASURED_IN_PASS
        assert found["power_corrected_w"] == row.power_w / power
        assert found["energy_dynamic_corrected_j"] == row.energy_dynamic_unthrottled_j / (time * power)
        assert found[costs.ENERGY_DYNAMIC_FROM] == costs.MEASURED_UNTHROTTLED
        assert found[costs.EXCLUDED] == ""


def test_predictors_see_and_look_up_the_columns_of_the_dataset_under_their_names(made, followed, tmp_path):
    rows = [of_dataset(made, row) for row in followed]
    samples = read_samples(made.dataset, "a30")
    seen = samples.rows.set_index(KEY).loc[(followed[0].subject_id, "training", POINT, TF32)]
    shared = set(samples.rows.columns) & set(tables.OPERATIONS_SCHEMA.names)
    assert {*costs.CORRECTED, costs.EXCLUDED, costs.ENERGY_CORRECTED, "power_idle_w"} <= shared
    for name in costs.CORRECTED:
        assert seen[name] == pytest.approx(sum(row[name] for row in rows) / 2, rel=1e-12), "median of two"
    write_measured(samples.rows[samples.rows["pass"] == "training"], tmp_path / "measured.parquet")
    kept = MeasuredCosts.read(tmp_path / "measured.parquet")
    found = kept.look_up(pd.Index([followed[0].subject_id]), POINT, execution=TF32)
    assert found.mean[0].tolist() == [seen[name] for name in costs.CORRECTED]


def test_what_is_not_known_is_null(made):
    table = files.read_table(made.dataset / layout.OPERATIONS_FILE, tables.OPERATIONS_SCHEMA).to_pylist()
    views = [row for row in table if not row["device_work"]]
    assert views
    for row in views:
        assert row["power_corrected_w"] is None
        assert row["time_host_corrected_s"] > 0
    assert not any(isinstance(value, float) and math.isnan(value) for row in table for value in row.values())
