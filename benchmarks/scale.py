"""How long aggregation takes and how much memory it needs, from 10⁵ to 10⁸ rows of telemetry.

    python benchmarks/scale.py [--telemetry 1e5 1e6 1e7 1e8] [--folder DIR [--write]]    # with --write the stores alone

For each size a finished campaign's store is written: one measurement for every hundred rows of telemetry, operating
points of 100,000 measurements, shards of 25,000. Then all of it is assembled as the workflow does once everything is
measured: each shard by `clockwatt measure`, in a process of its own as a job is, as many at once as there are cores,
then the dataset by `clockwatt dataset`. Seconds are of the wall and of the processor; memory is that of the largest
process.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import yaml

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY / "tests"))

from clockwatt import config  # noqa: E402  # of the checkout
from clockwatt.config import CampaignConfig  # noqa: E402
from clockwatt.io import files  # noqa: E402
from clockwatt.measure import tasks  # noqa: E402
from clockwatt.measure.reference_operations import anchors  # noqa: E402
from clockwatt.measure.store import Store  # noqa: E402
from clockwatt.measure.tasks import Shard  # noqa: E402
from clockwatt.schema import layout, records  # noqa: E402
from clockwatt.schema.execution import TF32  # noqa: E402
from clockwatt.schema.records import MEASUREMENT_VERSION, MeasurementRow, OperationRow  # noqa: E402
from clockwatt.telemetry.sampling import FAST  # noqa: E402
from support.synthetic import operation_of, row_of_operation  # noqa: E402  # from the tests

ROWS_EACH = 100
"""Rows of telemetry for each measurement."""
POINT, SHARD = 100_000, 25_000
_SETTINGS_EACH = 4  # both passes, with and without TF32
_START_US = 1_760_000_000_000_000
_LASTS_US = 2_000_000
_ALONE_US = 1_900_000


def write_campaign(folder: Path, measurements: int) -> CampaignConfig:
    """Catalogue, store and calibrations of a campaign in which everything is measured."""
    points = max(1, measurements // POINT)
    per_point = measurements // points
    content = {
        "campaign": "scale",
        "gpus": {"a30": {"device": "virtual:a30", "clocks_mhz": [1440 - 15 * n for n in range(points)]}},
        "networks": [{"name": "resnet18", "input": [1, 3, 64, 64]}],
        "shards": max(1, per_point // SHARD),
    }
    content["gpus"]["a30"]["tf32"] = [True, False]
    (folder / "config.yaml").write_text(yaml.safe_dump(content))
    campaign = config.load(folder / "config.yaml")
    _write_catalogue(folder / "catalogue", per_point // _SETTINGS_EACH)
    for point in campaign.gpus["a30"].points:
        store = Store(folder / "store", campaign, "a30", point)
        for number in range(1, campaign.shards + 1):
            shard = Shard(number, campaign.shards, networks=False)
            wanted = tasks.subjects(campaign, campaign.gpus["a30"], shard, folder / "catalogue")
            session = f"{point}-{number}"
            _write_rows(store, wanted, session, str(point), f"{number}/{campaign.shards}")
            _write_telemetry(store, len(wanted), session)
        calibration = records.table_of([], records.CALIBRATION_SCHEMA)
        files.write_table(calibration, folder / "measurements" / layout.calibration_file("a30", point))
    return campaign


def _write_catalogue(folder: Path, operations: int) -> None:
    rows: list[OperationRow] = []
    for pass_ in (records.INFERENCE, records.TRAINING):
        like = row_of_operation(operation_of("relu", [8, 64, 28, 28], training=pass_ == records.TRAINING), pass_)
        table = records.table_of([like], records.OPERATION_SCHEMA)
        rows += [table.take(pa.array(np.zeros(operations, np.int64)))]
    ids = pa.array([f"{number:016x}" for number in range(operations)] * 2)
    table = pa.concat_tables(rows)
    table = table.set_column(table.schema.get_field_index("operation_id"), "operation_id", ids)
    files.write_table(table.cast(records.OPERATION_SCHEMA), folder / layout.OPERATIONS_FILE)
    files.write_table(records.table_of([], records.CALL_SCHEMA), folder / layout.CALLS_FILE)
    files.write_table(records.table_of([], records.NETWORK_SCHEMA), folder / layout.NETWORKS_FILE)


def _write_rows(store: Store, wanted: list[tasks.Subject], session: str, point: str, shard: str) -> None:
    """One row for each of them, and the anchors at both ends, in one segment."""
    like = MeasurementRow(
        kind=records.OPERATION, subject_id="", pass_="", gpu="a30", point=point, execution=TF32, dtype="float32",
        session_id=session, shard=shard, measurement_version=MEASUREMENT_VERSION, settings_id=store.settings_id,
        virtual=True, gpu_name="NVIDIA A30 (virtual)", gpu_uuid="GPU-1", host="node", cpu_model="a processor",
        requested_sm_clock_mhz=1440, sm_clock_median_mhz=1440.0, throttle_reasons=["gpu_idle"],
        quantities=[records.TIME, records.ENERGY], temperature_start_c=50.0, temperature_end_c=51.0,
        time_host_s=1e-5, time_host_standard_error_s=1e-8, time_device_s=2e-5, time_device_standard_error_s=1e-8,
        time_eager_s=2e-5, time_eager_standard_error_s=1e-8, power_w=100.0, power_standard_error_w=0.5,
        power_idle_w=30.0, power_idle_standard_error_w=0.1, energy_j=2e-3, energy_standard_error_j=1e-5,
        energy_dynamic_j=1.4e-3, energy_dynamic_standard_error_j=1e-5, duration_s=2.0, window_s=1.0, iterations=1000,
    )  # fmt: skip
    anchor_ids = [row.operation_id for row in anchors()] * 2
    count = len(wanted) + len(anchor_ids)
    table = records.table_of([like], records.MEASUREMENT_SCHEMA).take(pa.array(np.zeros(count, np.int64)))
    half = len(anchor_ids) // 2
    kinds = [records.ANCHOR] * half + [records.OPERATION] * len(wanted) + [records.ANCHOR] * half
    starts = _START_US + _LASTS_US * np.arange(count)
    noise = np.random.default_rng(0).normal(1, 0.01, count)
    changed = {
        "kind": kinds,
        "subject_id": [*anchor_ids[:half], *(one.subject_id for one in wanted), *anchor_ids[half:]],
        "pass": [records.INFERENCE] * half + [one.pass_ for one in wanted] + [records.INFERENCE] * half,
        "execution": [TF32] * half + [one.execution for one in wanted] + [TF32] * half,
        "position": np.arange(count),
        "started_us": starts,
        "ended_us": starts + _ALONE_US,
        "time_device_s": 2e-5 * noise,
        "time_host_s": 1e-5 * noise,
        "power_w": 100 * noise,
    }
    for name, values in changed.items():
        field = records.MEASUREMENT_SCHEMA.field(name)
        table = table.set_column(table.schema.get_field_index(name), field, pa.array(values, field.type))
    files.write_table(table, store.rows_folder / f"{session}.parquet")


def _write_telemetry(store: Store, measurements: int, session: str) -> None:
    count = (measurements + 2 * len(anchors())) * ROWS_EACH
    table = _readings(count)
    sessions = pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), [session]).cast(pa.string())
    field = records.TELEMETRY_SCHEMA.field("session_id")
    table = table.set_column(table.schema.get_field_index("session_id"), field, sessions)
    files.write_table(table.cast(records.TELEMETRY_SCHEMA), store.telemetry_folder / f"{session}.parquet")


@functools.lru_cache(maxsize=2)
def _readings(count: int) -> pa.Table:
    """Telemetry of a session, alike for all but its name."""
    times = _START_US + _LASTS_US // ROWS_EACH * np.arange(count)
    given = {
        "session_id": pa.nulls(count, pa.string()),
        "lane": pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), [FAST]).cast(pa.string()),
        "time_us": times,
        "monotonic_ns": times * 1000,
        "power_average_w": np.round(np.random.default_rng(0).normal(100, 5, count), 3),
        "energy_counter_j": 1e-4 * np.arange(count),
        "sm_clock_mhz": np.full(count, 1440),
    }
    columns = {
        field.name: pa.array(given[field.name], field.type) if field.name in given else pa.nulls(count, field.type)
        for field in records.TELEMETRY_SCHEMA
    }
    return pa.table(columns)


def run(folder: Path, campaign: CampaignConfig) -> tuple[float, float]:
    """Assemble all shards and the dataset; returns processor seconds and the largest process in GiB."""
    common = ["--config", "config.yaml", "--catalogue-dir", "catalogue"]
    commands = [
        ["measure", *common, "--gpu", "a30", "--point", str(point), "--store-dir", "store",
         "--shard", f"{number}/{campaign.shards}",
         "--output", str(Path("measurements") / layout.operations_file("a30", point, number))]
        for point in campaign.gpus["a30"].points
        for number in range(1, campaign.shards + 1)
    ]  # fmt: skip
    commands += [
        ["measure", *common, "--networks", "--gpu", "a30", "--point", str(point), "--store-dir", "store",
         "--output", str(Path("measurements") / layout.networks_file("a30", point, 1))]
        for point in campaign.gpus["a30"].points
    ]  # fmt: skip
    commands.append(["dataset", *common, "--measurements-dir", "measurements", "--output-dir", "dataset"])
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        used = list(pool.map(lambda command: _run(folder, command), commands[:-1]))
    print(f"  shards: at most {max(use.largest_gib for use in used):.2f} GiB", flush=True)
    used.append(_run(folder, commands[-1]))
    print(f"  dataset: {used[-1].cpu_s:.1f} s of processor, {used[-1].largest_gib:.2f} GiB", flush=True)
    return sum(use.cpu_s for use in used), max(use.largest_gib for use in used)


@dataclass(frozen=True)
class Used:
    """What a process took."""

    cpu_s: float
    largest_gib: float


def _run(folder: Path, command: list[str]) -> Used:
    process = subprocess.Popen(
        [sys.executable, "-m", "clockwatt", *command], cwd=folder, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    assert status == 0, said
    return Used(used.ru_utime + used.ru_stime, used.ru_maxrss / 2**20)


def _in_a_process(function: Callable[..., Any], *arguments: Any) -> None:
    """Call a function in a process of its own: the largest memory of a process counts for those that it starts."""
    process = multiprocessing.get_context("spawn").Process(target=function, args=arguments)
    process.start()
    process.join()
    assert process.exitcode == 0


def main() -> None:
    """Write, assemble, tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--telemetry", type=float, nargs="+", default=[1e5, 1e6, 1e7, 1e8], help="rows")
    parser.add_argument("--folder", type=Path, help="where the stores are written (some GB), and kept")
    parser.add_argument("--write", action="store_true", help="write the stores, and assemble nothing yet")
    given = parser.parse_args()
    for rows in map(int, given.telemetry):
        measurements = rows // ROWS_EACH
        with contextlib.ExitStack() as undo:
            if given.folder is None:
                folder = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="scale-")))
            else:
                folder = given.folder / f"{rows:.0e}"
                folder.mkdir(parents=True, exist_ok=True)
            if not (folder / "config.yaml").exists():
                _in_a_process(write_campaign, folder, measurements)
            campaign = config.load(folder / "config.yaml")
            if given.write:
                continue
            began = time.monotonic()
            cpu_s, largest_gib = run(folder, campaign)
            seconds = time.monotonic() - began
            quality = json.loads((folder / "dataset" / "quality.json").read_text())
            assert quality["by_status"] == {"ok": quality["rows"]}
            assert quality["by_kind"]["operation"] == measurements
        print(
            f"{rows:.0e} rows of telemetry, {measurements} measurements: {seconds:.1f} s, {cpu_s:.1f} s of processor, "
            f"at most {largest_gib:.2f} GiB",
            flush=True,
        )


if __name__ == "__main__":
    main()
