"""A shard on a real GPU at its default operating point."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from clockwatt import config
from clockwatt.config import OperatingPoint
from clockwatt.gpu.specs import find_spec
from clockwatt.io import files
from clockwatt.measure.session import measure_shard
from clockwatt.measure.tasks import Shard
from clockwatt.operations.catalogue import write_catalogue as write_traced
from clockwatt.schema.layout import telemetry_file
from clockwatt.schema.records import MEASUREMENT_SCHEMA, TELEMETRY_SCHEMA
from support.handmade import operation, write_catalogue

SMALL, LARGE, HUGE = 256, 2**27, 2**40


@pytest.fixture(scope="module")
def measured(gpu_name: str, tmp_path_factory: pytest.TempPathFactory):
    folder: Path = tmp_path_factory.mktemp("gpu")
    relus = [operation(size, pass_=pass_) for pass_ in ("inference", "training") for size in (SMALL, LARGE, HUGE)]
    write_catalogue(folder / "catalogue", relus)
    campaign = config.parse(
        {
            "campaign": "test",
            "gpus": {"here": {"device": gpu_name, "control": {"method": "none"}}},
            "networks": [{"name": "resnet18", "input": [2, 3, 64, 64]}],
        }
    )
    output = folder / "1.parquet"
    measure_shard(
        campaign, label="here", point=OperatingPoint(), shard=Shard(1, 1, networks=False),
        catalogue_dir=folder / "catalogue", store_dir=folder / "store", output=output,
    )  # fmt: skip
    rows = files.read_table(output, MEASUREMENT_SCHEMA).to_pandas()
    return rows.assign(size=rows["subject_id"].map({row.operation_id: row.flops for row in relus})), output


def test_what_does_not_fit_is_a_row_and_the_shard_goes_on(measured) -> None:
    rows, _ = measured
    operations = rows[rows["kind"] == "operation"]
    assert Counter(operations["status"]) == {"ok": 4, "out_of_memory": 2}
    assert (operations.loc[operations["status"] != "ok", "size"] == HUGE).all()
    assert (rows.loc[rows["kind"] == "anchor", "status"] == "ok").all()


def test_a_large_elementwise_operation_runs_at_memory_speed(measured, gpu_name: str) -> None:
    rows, _ = measured
    (large,) = rows[(rows["size"] == LARGE) & (rows["pass"] == "inference")].to_dict("records")
    bytes_per_s = 2 * 4 * LARGE / large["time_device_s"]
    assert 0.5 < bytes_per_s / find_spec(gpu_name).bandwidth_bytes_s < 1.05
    assert large["time_eager_s"] == pytest.approx(large["time_device_s"], rel=0.03)


def test_a_tiny_operation_is_bound_by_the_host(measured) -> None:
    rows, _ = measured
    (tiny,) = rows[(rows["size"] == SMALL) & (rows["pass"] == "inference")].to_dict("records")
    assert tiny["time_device_s"] < tiny["time_host_s"] < 100e-6
    assert tiny["time_eager_s"] == pytest.approx(tiny["time_host_s"], rel=0.5)


def test_a_training_pass_reads_and_writes_more(measured) -> None:
    rows, _ = measured
    large = rows[rows["size"] == LARGE].set_index("pass")["time_device_s"]
    assert 1.8 < large["training"] / large["inference"] < 3.5


def test_power_lies_between_idle_and_limit_and_the_sensors_agree(measured) -> None:
    rows, _ = measured
    ok = rows[(rows["status"] == "ok") & (rows["size"] == LARGE)]
    assert (ok["power_w"] > 1.2 * ok["power_idle_w"]).all()
    assert (ok["power_w"] < 1.05 * ok["power_limit_w"]).all()
    assert not any("sensors_disagree" in flags for flags in ok["flags"])


def test_telemetry_covers_the_rows(measured) -> None:
    rows, output = measured
    telemetry = files.read_table(telemetry_file(output), TELEMETRY_SCHEMA).to_pandas()
    fast = telemetry[telemetry["lane"] == "fast"]
    for row in rows[rows["status"] == "ok"].itertuples():
        inside = fast["time_us"].between(row.started_us, row.ended_us).sum()
        assert inside >= 0.7 * row.duration_s / 0.1
    assert np.isfinite(fast["energy_counter_j"]).all()


@pytest.fixture(scope="module")
def timed_alone(gpu_name: str, tmp_path_factory: pytest.TempPathFactory):
    """Operations and a deep network, time alone."""
    folder: Path = tmp_path_factory.mktemp("time_alone")
    campaign = config.parse(
        {
            "campaign": "test",
            "gpus": {"here": {"device": gpu_name, "control": {"method": "none"}}},
            "networks": [{"name": "densenet121", "input": [4, 3, 64, 64], "sample": 0.3}],
            "quantities": ["time"],
        }
    )
    write_traced(campaign, folder / "catalogue")
    tables = []
    for networks in (False, True):
        measure_shard(
            campaign, label="here", point=OperatingPoint(), shard=Shard(1, 1, networks=networks),
            catalogue_dir=folder / "catalogue", store_dir=folder / "store", output=folder / f"{networks}.parquet",
        )  # fmt: skip
        rows = files.read_table(folder / f"{networks}.parquet", MEASUREMENT_SCHEMA).to_pandas()
        tables.append(rows[rows["kind"] != "anchor"])
    return tables


def test_time_alone_takes_a_fortieth_of_a_second(timed_alone) -> None:
    rows, _ = timed_alone
    assert (rows["status"] == "ok").all()
    assert rows["duration_s"].mean() < 0.04
    assert rows[["time_host_s", "time_device_s"]].notna().all(axis=None)
    assert rows[["power_w", "energy_j"]].isna().all(axis=None)


def test_a_training_pass_too_long_for_the_launch_queue_has_its_device_time(timed_alone) -> None:
    _, rows = timed_alone
    training = rows.set_index("pass").loc["training"]
    assert training["time_device_method"] == "segments"
    assert 0.2 * training["time_eager_s"] < training["time_device_s"] < 1.05 * training["time_eager_s"]
    assert 0.3 * training["time_eager_s"] < training["time_host_s"] < 1.2 * training["time_eager_s"]
