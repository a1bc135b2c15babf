"""What a campaign will cost before anything is submitted."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from clockwatt.config import CampaignConfig, GpuConfig
from clockwatt.io import files
from clockwatt.measure.anchors import anchors
from clockwatt.measure.steps.procedure import expected_duration_s
from clockwatt.measure.store import Key, Store
from clockwatt.schema.records import NETWORK, NETWORK_SCHEMA, OPERATION, OPERATION_SCHEMA

JOB_START_S = 30.0
"""Queueing apart, what a job costs before it measures: Slurm, Snakemake, importing torch, opening the GPU."""
JOB_TARGET_S = 3600.0
"""A shard that takes about an hour wastes little on its start and loses little to a time limit."""
_CALIBRATION_S = 75.0
_ROW_BYTES = 400
_TELEMETRY_ROW_BYTES = 12
_RING_SAMPLES_PER_S = 50
_Asked = tuple[str, str, list[bool] | None, float]
"""What is measured: id, pass, TF32 settings (None for all that a GPU has), and how long it takes in s."""


@dataclass(frozen=True)
class GpuPlan:
    """What one GPU of a campaign will cost."""

    label: str
    points: int
    jobs: int
    measurements: int
    finished: int
    gpu_hours: float
    files: int
    bytes: int


@dataclass(frozen=True)
class Plan:
    """What a campaign will cost."""

    operations: int
    networks: int
    gpus: list[GpuPlan]
    shards: int
    recommended_shards: int


@contextlib.contextmanager
def catalogue_for(config: CampaignConfig, catalogue_dir: Path) -> Iterator[Path]:
    """The folder of a catalogue that holds the campaign's networks: the one given, or a temporary one, traced now.

    Raises
    ------
    DataFileError
        If the catalogue that is there is damaged.
    TraceError
        If a network cannot be traced.
    """
    if (catalogue_dir / "networks.parquet").exists():
        table = files.read_table(catalogue_dir / "networks.parquet", NETWORK_SCHEMA, ["network_id", "pass"])
        traced = {(row["network_id"], row["pass"]) for row in table.to_pylist()}
        if traced >= {(network.network_id, pass_) for network in config.networks for pass_ in config.passes}:
            yield catalogue_dir
            return
    from clockwatt.operations.catalogue import write_catalogue

    with tempfile.TemporaryDirectory() as folder:
        write_catalogue(config, Path(folder))
        yield Path(folder)


def make_plan(config: CampaignConfig, catalogue_dir: Path, store_dir: Path) -> Plan:
    """Count a campaign's jobs, GPU-hours, files and bytes; what the store holds costs nothing.

    Raises
    ------
    DataFileError
        If the catalogue is missing or damaged.
    """
    columns = ["operation_id", "pass", "device_work", "measured_tf32"]
    operations = [
        (
            row["operation_id"],
            row["pass"],
            row["measured_tf32"],
            expected_duration_s(config.measurement, device_work=row["device_work"]),
        )
        for row in files.read_table(catalogue_dir / "operations.parquet", OPERATION_SCHEMA, columns).to_pylist()
        if row["pass"] in config.passes and row["measured_tf32"] != []
    ]
    columns = ["network_id", "pass", "measured_tf32"]
    networks = [
        (
            row["network_id"],
            row["pass"],
            row["measured_tf32"],
            expected_duration_s(config.measurement, device_work=True),
        )
        for row in files.read_table(catalogue_dir / "networks.parquet", NETWORK_SCHEMA, columns).to_pylist()
        if row["pass"] in config.passes and row["measured_tf32"] != []
    ]
    gpus = [_gpu_plan(config, label, gpu, operations, networks, store_dir) for label, gpu in config.gpus.items()]
    per_setting_s = sum(seconds for *_, seconds in operations) * config.measurement.repetitions
    per_point_s = max(len(gpu.tf32) for gpu in config.gpus.values()) * per_setting_s
    return Plan(len(operations), len(networks), gpus, config.shards, max(1, round(per_point_s / JOB_TARGET_S)))


def show_plan(plan: Plan) -> None:
    """Print a plan as a table, with advice on the number of shards."""
    table = Table(title=f"{plan.operations} operations and {plan.networks} networks (each pass counted)")
    table.add_column("GPU")
    for heading in ("points", "jobs", "rows", "finished", "GPU-hours", "files", "size"):
        table.add_column(heading, justify="right")
    for gpu in plan.gpus:
        table.add_row(gpu.label, *map(str, (gpu.points, gpu.jobs, gpu.measurements, gpu.finished)),
                      f"{gpu.gpu_hours:.1f}", str(gpu.files), _size(gpu.bytes))  # fmt: skip
    if len(plan.gpus) > 1:
        total = [
            sum(getattr(gpu, name) for gpu in plan.gpus) for name in ("points", "jobs", "measurements", "finished")
        ]
        table.add_row("all", *map(str, total), f"{sum(gpu.gpu_hours for gpu in plan.gpus):.1f}",
                      str(sum(gpu.files for gpu in plan.gpus)), _size(sum(gpu.bytes for gpu in plan.gpus)),
                      style="bold")  # fmt: skip
    console = Console()
    console.print(table)
    console.print(
        f"shards: {plan.shards}; {plan.recommended_shards} would make jobs of about an hour. "
        "GPU-hours of virtual GPUs are virtual: they take a thousandth of it."
        if plan.shards != plan.recommended_shards
        else f"shards: {plan.shards}, which makes jobs of about an hour or less."
    )


def _gpu_plan(
    config: CampaignConfig,
    label: str,
    gpu: GpuConfig,
    operations: Iterable[_Asked],
    networks: Iterable[_Asked],
    store_dir: Path,
) -> GpuPlan:
    keyed = [
        (Key(kind, subject_id, pass_, tf32, repetition), seconds)
        for kind, subjects in ((OPERATION, operations), (NETWORK, networks))
        for subject_id, pass_, settings, seconds in subjects
        for tf32 in gpu.tf32
        if settings is None or tf32 in settings
        for repetition in range(config.measurement.repetitions)
    ]
    finished, left_s = 0, 0.0
    for point in gpu.points:
        done = Store(store_dir, config, label, point).finished()
        finished += sum(key in done for key, _ in keyed)
        left_s += sum(seconds for key, seconds in keyed if key not in done)
    jobs_per_point = 1 + config.shards + config.network_shards
    jobs = len(gpu.points) * jobs_per_point
    anchors_s = 2 * len(anchors()) * expected_duration_s(config.measurement, device_work=True)
    overhead_s = len(gpu.points) * ((jobs_per_point - 1) * (JOB_START_S + anchors_s) + JOB_START_S + _CALIBRATION_S)
    readings_per_s = 1 / config.telemetry.fast_period_s + 1 / config.telemetry.slow_period_s + _RING_SAMPLES_PER_S
    measurements = len(keyed) * len(gpu.points)
    total_s = len(gpu.points) * sum(seconds for _, seconds in keyed)
    # every row stands in the store and in the assembled file
    size = 2 * (measurements * _ROW_BYTES + total_s * readings_per_s * _TELEMETRY_ROW_BYTES)
    count = len(gpu.points) * (1 + 2 * 2 * (config.shards + config.network_shards))
    return GpuPlan(
        label, len(gpu.points), jobs, measurements, finished, (left_s + overhead_s) / 3600, count, round(size)
    )


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
