"""Estimate the cost of a campaign before anything is submitted."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from clockwatt.config import CampaignConfig, GpuConfig, OperatingPoint
from clockwatt.io import files
from clockwatt.io.progress import say
from clockwatt.measure.reference_operations import anchors
from clockwatt.measure.steps.procedure import expected_duration_s
from clockwatt.measure.store import Key, Store
from clockwatt.measure.tasks import shard_number
from clockwatt.operations.catalogue_process import write_catalogue_apart
from clockwatt.schema import layout
from clockwatt.schema.records import ENERGY, NETWORK, NETWORK_SCHEMA, OPERATION, OPERATION_SCHEMA, SETTINGS_KEY

JOB_START_S = 30.0
"""Queueing apart, what a job costs before it measures: Slurm, Snakemake, importing torch, opening the GPU."""
JOB_TARGET_S = 3600.0
"""A shard that takes about an hour wastes little on its start and loses little to a time limit."""
_CALIBRATION_S = 75.0
_ROW_BYTES = 400
_TELEMETRY_ROW_BYTES = 12
_RING_SAMPLES_PER_S = 50
_Asked = tuple[str, tuple[str, str] | None, str, list[str] | None, bool, float]
"""What is measured: id, class and dtype of an operation, pass, settings (None: a GPU's own), whether energy too, and
duration in s."""


@dataclass(frozen=True)
class GpuPlan:
    """Estimated cost of one GPU of a campaign.

    Attributes
    ----------
    jobs, gpu_hours
        What is left to do; nothing once the campaign is finished.
    measurements, files, bytes
        Numbers of measurements, files and bytes of the whole campaign; `finished` of the measurements are in the store.
    """

    label: str
    points: int
    jobs: int
    measurements: int
    finished: int
    gpu_hours: float
    files: int
    bytes: int
    virtual: bool


@dataclass(frozen=True)
class Plan:
    """Estimated cost of a campaign."""

    operations: int
    networks: int
    gpus: list[GpuPlan]
    shards: int
    recommended_shards: int


@contextlib.contextmanager
def catalogue_for(config: CampaignConfig, catalogue_dir: Path) -> Iterator[Path]:
    """The folder of the campaign's catalogue: the one given, or where that is of another campaign one traced now.

    Raises
    ------
    DataFileError
        If the catalogue that is there is damaged.
    NetworkError
        If a network cannot be found, built or traced.
    """
    networks_file = catalogue_dir / layout.NETWORKS_FILE
    if networks_file.exists():
        if _is_of(config, networks_file):
            yield catalogue_dir
            return
        say(f"{catalogue_dir} is not of this campaign's networks: they are traced now, to be counted")
    with tempfile.TemporaryDirectory() as folder:
        write_catalogue_apart(config, Path(folder))
        yield Path(folder)


def _is_of(config: CampaignConfig, networks_file: Path) -> bool:
    """Return whether a catalogue is what tracing the campaign would give."""
    with files.open_parquet(networks_file, NETWORK_SCHEMA) as parquet:
        settings = (parquet.schema_arrow.metadata or {}).get(SETTINGS_KEY)
    if settings is not None:
        return bool(json.loads(settings) == config.catalogue_settings())
    # an older version wrote it: at least the networks are the same
    table = files.read_table(networks_file, NETWORK_SCHEMA, ["network_id", "pass"])
    traced = {(row["network_id"], row["pass"]) for row in table.to_pylist() if row["pass"] in config.passes}
    return traced == {(network.network_id, pass_) for network in config.networks for pass_ in config.passes}


def make_plan(config: CampaignConfig, catalogue_dir: Path, store_dir: Path, measurements_dir: Path) -> Plan:
    """Count a campaign's jobs, GPU-hours, files and bytes; what the store holds costs nothing.

    A job is left where its file is not in `measurements_dir`, or something in it is not in the store.

    Raises
    ------
    DataFileError
        If the catalogue is missing or damaged.
    """
    columns = ["operation_id", "pass", "operation_class", "dtype"]
    columns += ["device_work", "measured_execution", "measured_quantities"]
    operations = [
        (
            row["operation_id"],
            (row["operation_class"], row["dtype"]),
            row["pass"],
            row["measured_execution"],
            energy := _with_energy(config, row["measured_quantities"]),
            expected_duration_s(config.measurement, device_work=row["device_work"], energy=energy),
        )
        for row in files.read_table(catalogue_dir / layout.OPERATIONS_FILE, OPERATION_SCHEMA, columns).to_pylist()
        if row["pass"] in config.passes and row["measured_execution"] != []
    ]
    columns = ["network_id", "pass", "measured_execution", "measured_quantities"]
    networks = [
        (
            row["network_id"],
            None,
            row["pass"],
            row["measured_execution"],
            _with_energy(config, row["measured_quantities"]),
            expected_duration_s(config.measurement, device_work=True),
        )
        for row in files.read_table(catalogue_dir / layout.NETWORKS_FILE, NETWORK_SCHEMA, columns).to_pylist()
        if row["pass"] in config.passes and row["measured_execution"] != []
    ]
    gpus = [
        _gpu_plan(config, label, gpu, operations, networks, store_dir, measurements_dir)
        for label, gpu in config.gpus.items()
    ]
    per_setting_s = sum(seconds for *_, seconds in operations) * config.measurement.repetitions
    per_point_s = max(len(gpu.execution) for gpu in config.gpus.values()) * per_setting_s
    return Plan(len(operations), len(networks), gpus, config.shards, max(1, round(per_point_s / JOB_TARGET_S)))


def _with_energy(config: CampaignConfig, quantities: list[str] | None) -> bool:
    return ENERGY in (config.quantities if quantities is None else quantities)


def show_plan(plan: Plan) -> None:
    """Print a plan as a table, with advice on the number of shards."""
    table = Table(
        box=SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        title=f"{plan.operations} operations and {plan.networks} networks (inference and training count as two)",
    )
    table.add_column("GPU", no_wrap=True)
    for heading in ("points", "measurements", "done", "jobs left", "GPU-hours left", "files", "size"):
        table.add_column(heading, justify="right", no_wrap=" " not in heading)
    for gpu in plan.gpus:
        table.add_row(gpu.label, *map(str, (gpu.points, gpu.measurements, gpu.finished, gpu.jobs)),
                      f"{gpu.gpu_hours:.1f}", str(gpu.files), _size(gpu.bytes))  # fmt: skip
    if len(plan.gpus) > 1:
        total = [
            sum(getattr(gpu, name) for gpu in plan.gpus) for name in ("points", "measurements", "finished", "jobs")
        ]
        table.add_row("all", *map(str, total), f"{sum(gpu.gpu_hours for gpu in plan.gpus):.1f}",
                      str(sum(gpu.files for gpu in plan.gpus)), _size(sum(gpu.bytes for gpu in plan.gpus)),
                      style="bold")  # fmt: skip
    console = Console()
    console.print(table)
    if plan.recommended_shards != plan.shards:
        console.print(
            f"With the key `shards: {plan.recommended_shards}`, a job would take about an hour or less "
            f"(now: {plan.shards})."
        )
    if any(gpu.virtual for gpu in plan.gpus):
        console.print("GPU-hours of virtual GPUs are simulated: the run takes minutes.")


def _gpu_plan(
    config: CampaignConfig,
    label: str,
    gpu: GpuConfig,
    operations: Iterable[_Asked],
    networks: Iterable[_Asked],
    store_dir: Path,
    measurements_dir: Path,
) -> GpuPlan:
    keyed = [
        (Key(kind, subject_id, pass_, execution, repetition), energy, seconds)
        for kind, subjects in ((OPERATION, operations), (NETWORK, networks))
        for subject_id, operation, pass_, wanted, energy, seconds in subjects
        for execution in gpu.execution_of(wanted, operation)
        for repetition in range(config.measurement.repetitions)
    ]
    job_of = {(key.kind, key.subject_id): (key.kind, _shard(config, key)) for key, _, _ in keyed}
    anchors_s = 2 * len(anchors()) * expected_duration_s(config.measurement, device_work=True)
    finished, jobs, left_s = 0, 0, 0.0
    for point in gpu.points:
        done = Store(store_dir, config, label, point).finished()
        left = [
            (key, seconds)
            for key, energy, seconds in keyed
            if key not in done or not done[key].is_enough(energy=energy)
        ]
        finished += len(keyed) - len(left)
        measuring = {_file(label, point, *job) for job in {job_of[key.kind, key.subject_id] for key, _ in left}}
        missing = {path for path in config.point_files(label, point) if not (measurements_dir / path).exists()}
        calibrates = layout.calibration_file(label, point) in missing
        jobs += len(measuring | missing)
        left_s += sum(seconds for _, seconds in left) + len(measuring) * anchors_s
        left_s += len(measuring | missing) * JOB_START_S + calibrates * _CALIBRATION_S
    readings_per_s = 1 / config.telemetry.fast_period_s + 1 / config.telemetry.slow_period_s + _RING_SAMPLES_PER_S
    measurements = len(keyed) * len(gpu.points)
    total_s = len(gpu.points) * sum(seconds for *_, seconds in keyed)
    # every row stands in the store and in the assembled file
    size = 2 * (measurements * _ROW_BYTES + total_s * readings_per_s * _TELEMETRY_ROW_BYTES)
    count = len(gpu.points) * (1 + 2 * 2 * (config.shards + config.network_shards))
    return GpuPlan(
        label,
        len(gpu.points),
        jobs,
        measurements,
        finished,
        left_s / 3600,
        count,
        round(size),
        gpu.virtual_model is not None,
    )


def _shard(config: CampaignConfig, key: Key) -> int:
    return shard_number(key.subject_id, config.network_shards if key.kind == NETWORK else config.shards)


def _file(label: str, point: OperatingPoint, kind: str, shard: int) -> Path:
    """Return the file that a job writes."""
    return (layout.networks_file if kind == NETWORK else layout.operations_file)(label, point, shard)


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
