"""Write measurements by others as a part of a dataset, for `clockwatt import`.

A folder as a campaign's results or the shipped reference data have it: `config.yaml`, `catalogue/`, `measurements/`,
and the `dataset/` that is joined from them. What a table does not have is null.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

import clockwatt
from clockwatt import config
from clockwatt.config import CampaignConfig, OperatingPoint
from clockwatt.dataset import table as cells
from clockwatt.dataset.build import join_sources
from clockwatt.dataset.reference import Source
from clockwatt.dataset.table import Table
from clockwatt.dataset.table_rows import RowReader
from clockwatt.errors import ConfigError, OutputError
from clockwatt.gpu.specs import VIRTUAL_PREFIX, find_spec
from clockwatt.io import files
from clockwatt.schema import layout, records
from clockwatt.schema.execution import FP32
from clockwatt.schema.records import MeasurementRow, OperationRow

CONFIG_FILE = "config.yaml"
DATASET = Path("dataset")
SETTINGS_ID = "imported"


@dataclass(frozen=True)
class Request:
    """Options of an import.

    Attributes
    ----------
    path
        The table.
    gpu
        Label of the GPU that it was measured on.
    device
        The GPU's NVML name or model.
    point
        Operating point that was asked of it.
    columns, constants
        See `Table.read`.
    skip_unknown
        Leave out rows of modules that cannot be read, instead of refusing the table.
    """

    path: Path
    gpu: str
    device: str
    point: OperatingPoint = field(default_factory=OperatingPoint)
    columns: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, str] = field(default_factory=dict)
    skip_unknown: bool = False


@dataclass(frozen=True)
class Imported:
    """Result of an import.

    Attributes
    ----------
    rows
        Measurements.
    operations
        Different operations, counted once per pass.
    skipped
        Module to the number of its rows that were left out.
    columns_left
        Columns of the table that were not taken.
    without
        Quantity to the number of rows that lack it.
    learnable
        Rows that `clockwatt fit` can learn from.
    back_to_back
        Those of them that have back-to-back times alone: in their pass none has device and host time.
    """

    rows: int
    operations: int
    skipped: Mapping[str, int]
    columns_left: tuple[str, ...]
    without: Mapping[str, int]
    learnable: int
    back_to_back: int


def import_table(request: Request, output_dir: Path) -> Imported:
    """Make a table of measurements by others a dataset, and what a campaign takes in by `reference`.

    Parameters
    ----------
    request
        The table and what it is of.
    output_dir
        A new or empty folder; nothing is left in it if anything is wrong.

    Raises
    ------
    DataFileError
        If the table cannot be read; the message names every row and column that is wrong.
    ConfigError
        If the label or the operating point is none.
    UnknownGpuError
        If no specifications of the GPU are shipped.
    OutputError
        If the folder is not empty or cannot be written.
    """
    _check_new(output_dir)
    if request.device.strip().lower().startswith(VIRTUAL_PREFIX):
        raise ConfigError(f"--device {request.device}: is virtual. What is imported was measured on a real GPU.")
    table = Table.read(request.path, request.columns, request.constants)
    gpu_name = find_spec(request.device).nvml_name
    _campaign(request, gpu_name, {FP32}, {records.INFERENCE}, energy=True)  # a wrong label before rows are read
    reader = RowReader(table, _common(request, gpu_name), skip_unknown=request.skip_unknown)
    measurements = reader.read()
    campaign = _campaign(
        request,
        gpu_name,
        {row.execution for row in measurements},
        {row.pass_ for row in measurements},
        energy=any(records.ENERGY in (row.quantities or ()) for row in measurements),
    )
    with files.folder_written_aside(output_dir) as folder:
        _write(folder, campaign, request, measurements, list(reader.operations.values()))
    return Imported(
        len(measurements),
        len(reader.operations),
        dict(sorted(reader.skipped.items())),
        tuple(table.left),
        {
            time.column: missing
            for time in cells.TIMES
            if (missing := sum(getattr(row, time.column) is None for row in measurements))
        },
        *_learnable(measurements),
    )


def _learnable(measurements: list[MeasurementRow]) -> tuple[int, int]:
    """Return the number of rows usable for training, and of those with back-to-back time alone."""
    apart = Counter(row.pass_ for row in measurements if row.time_device_s and row.time_host_s is not None)
    eager = [row for row in measurements if row.time_eager_s and row.time_device_s is None and row.time_host_s is None]
    alone = Counter(row.pass_ for row in eager if row.pass_ not in apart)
    return apart.total() + alone.total(), alone.total()


def _common(request: Request, gpu_name: str) -> MeasurementRow:
    """Return the values that all measurements of a table share."""
    content = hashlib.sha256(request.path.read_bytes()).hexdigest()
    return MeasurementRow(
        kind=records.OPERATION, subject_id="", pass_="", execution=FP32, dtype="",
        gpu=request.gpu, point=str(request.point), session_id=f"import-{content[:16]}", shard="1/1",
        settings_id=SETTINGS_ID, clockwatt_version=clockwatt.__version__, gpu_name=gpu_name,
        requested_sm_clock_mhz=request.point.sm_clock_mhz,
        requested_memory_clock_mhz=request.point.memory_clock_mhz,
        requested_power_limit_w=request.point.power_limit_w,
    )  # fmt: skip


def _check_new(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise OutputError(f"{folder}: is not an empty folder. Name another with --output-dir, or remove it first.")


def _campaign(
    request: Request, gpu_name: str, execution: set[str], passes: set[str], *, energy: bool
) -> CampaignConfig:
    point = request.point
    asked = {
        "clocks_mhz": point.sm_clock_mhz,
        "memory_clocks_mhz": point.memory_clock_mhz,
        "power_limits_w": point.power_limit_w,
    }
    return config.parse(
        {
            "campaign": request.gpu,
            "imported_from": request.path.name,
            "gpus": {request.gpu: {"device": gpu_name, "precision": sorted(execution), **asked}},
            "passes": [name for name in config.PASSES if name in passes],
            "quantities": [records.TIME, *([records.ENERGY] if energy else [])],
        },
        source="--gpu",
    )


def _write(
    folder: Path,
    campaign: CampaignConfig,
    request: Request,
    measurements: list[MeasurementRow],
    operations: list[OperationRow],
) -> None:
    def write(table: pa.Table, path: Path) -> None:
        files.write_table(table, folder / path)

    files.write_text(config.dump(campaign), folder / CONFIG_FILE)
    write(records.table_of(operations, records.OPERATION_SCHEMA), layout.CATALOGUE / layout.OPERATIONS_FILE)
    write(records.CALL_SCHEMA.empty_table(), layout.CATALOGUE / layout.CALLS_FILE)
    write(records.NETWORK_SCHEMA.empty_table(), layout.CATALOGUE / layout.NETWORKS_FILE)
    here = (request.gpu, request.point)
    for path, rows in (
        (layout.operations_file(*here, 1), records.table_of(measurements, records.MEASUREMENT_SCHEMA)),
        (layout.networks_file(*here, 1), records.MEASUREMENT_SCHEMA.empty_table()),
        (layout.calibration_file(*here), records.CALIBRATION_SCHEMA.empty_table()),
    ):
        write(rows, layout.MEASUREMENTS / path)
    source = Source(campaign, folder / layout.MEASUREMENTS, folder / layout.CATALOGUE)
    join_sources(campaign.campaign, [source], folder / DATASET)
