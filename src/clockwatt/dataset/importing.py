"""Measurements by others as a part of a dataset: what `clockwatt import` writes.

A folder as a campaign's results or the shipped reference data have it: `config.yaml`, `catalogue/`, `measurements/`,
and the `dataset/` that is joined from them. What a table does not tell is null.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

import clockwatt
from clockwatt import config
from clockwatt.config import CampaignConfig, OperatingPoint, Pass
from clockwatt.dataset import table as cells
from clockwatt.dataset.build import join_sources
from clockwatt.dataset.imported import NoReaderError, UnknownModuleError, operation_of
from clockwatt.dataset.reference import Source
from clockwatt.dataset.table import CellError, Problems, Table
from clockwatt.errors import ConfigError, DataFileError, OutputError
from clockwatt.gpu.specs import VIRTUAL_PREFIX, find_spec
from clockwatt.io import files
from clockwatt.io.progress import progress
from clockwatt.operations.spec.operation import Operation, OperationSpecError
from clockwatt.schema import costs, layout, records
from clockwatt.schema.records import MeasurementRow, OperationRow

CONFIG_FILE = "config.yaml"
DATASET = Path("dataset")
SETTINGS_ID = "imported"
_DEVICE = costs.TIME_DEVICE.column
_UNKNOWN = "What is not known is an empty cell, never 0."

Value = TypeVar("Value")


@dataclass(frozen=True)
class Request:
    """What is imported, and as what.

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
    """What came of a table.

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
    """

    rows: int
    operations: int
    skipped: Mapping[str, int]
    columns_left: tuple[str, ...]
    without: Mapping[str, int]
    learnable: int


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
    gpu_name = find_spec(request.device).nvml_name
    _campaign(request, gpu_name, {False}, {records.INFERENCE}, energy=True)  # a wrong label is told at once
    table = Table.read(request.path, request.columns, request.constants)
    reader = _Reader(request, gpu_name)
    measurements = reader.read(table)
    campaign = _campaign(
        request,
        gpu_name,
        {row.tf32 for row in measurements},
        {row.pass_ for row in measurements},
        energy=any(records.ENERGY in (row.quantities or ()) for row in measurements),
    )
    with files.folder_written_aside(output_dir) as folder:
        _write(folder, campaign, request, measurements, list(reader.operations.values()))
    learnt_from = (None not in (row.time_device_s, row.time_host_s) and row.time_device_s for row in measurements)
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
        sum(map(bool, learnt_from)),
    )


def _check_new(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise OutputError(f"{folder}: is not an empty folder. Name another with --output-dir, or remove it first.")


def _campaign(request: Request, gpu_name: str, tf32: set[bool], passes: set[str], *, energy: bool) -> CampaignConfig:
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
            "gpus": {request.gpu: {"device": gpu_name, "tf32": sorted(tf32), **asked}},
            "passes": [name for name in config.PASSES if name in passes],
            "quantities": [records.TIME, *([records.ENERGY] if energy else [])],
        },
        source="--gpu",
    )


class _Reader:
    """Rows of a table as measurements, and the operations that they are of."""

    def __init__(self, request: Request, gpu_name: str) -> None:
        self._request = request
        self._gpu_name = gpu_name
        self._problems = Problems(request.path)
        self._known: dict[tuple[str, str, str], OperationRow | CellError | NoReaderError] = {}
        self._repetitions: Counter[tuple[str, str, bool]] = Counter()
        self.operations: dict[tuple[str, str], OperationRow] = {}
        self.skipped: Counter[str] = Counter()

    def read(self, table: Table) -> list[MeasurementRow]:
        """All rows; DataFileError with all that is wrong."""
        session_id = f"import-{hashlib.sha256(table.path.read_bytes()).hexdigest()[:16]}"
        rows = []
        with progress("import", len(table.cells)) as advance:
            for number, row in table.rows():
                read = self._row(number, row, table)
                if read is not None:
                    read.session_id, read.position = session_id, number
                    rows.append(read)
                advance(f"row {number}")
        self._problems.check()
        if not rows:
            names = ", ".join(sorted(self.skipped))
            raise DataFileError(f"{table.path}: no row is left; none of its modules can be read ({names}).")
        return rows

    def _row(self, number: int, row: Mapping[str, Any], table: Table) -> MeasurementRow | None:
        wrong = False

        def cell(name: str, read: Callable[[Any], Value]) -> Value | None:
            nonlocal wrong
            try:
                return read(row[name])
            except CellError as error:
                self._problems.add(number, table.column(name), str(error))
                wrong = True
                return None

        printed, pass_ = cell(cells.OPERATION, cells.text), cell(cells.PASS, cells.pass_)
        tf32 = cell(cells.TF32, cells.yes_no)
        numbers = {
            name: cell(name, lambda value, name=name: cells.number(value, name))  # type: ignore[misc]
            for name in cells.NUMBERS
            if name in row
        }
        texts = {name: str(row[name]) for name in cells.TEXTS if name in row and not cells.is_empty(row[name])}
        if wrong or printed is None or pass_ is None or tf32 is None:
            return None
        if all(numbers.get(time.column) is None for time in cells.TIMES):
            named = ", ".join(table.column(time.column) for time in cells.TIMES if time.column in row)
            self._problems.add(number, named, "no time is known. Fill one in, or take the row out.")
            return None
        try:
            operation = self._operation(printed, row.get(cells.INPUT_SHAPE), pass_)
        except NoReaderError as error:
            if self._request.skip_unknown:
                self.skipped[error.module] += 1
            else:
                self._problems.add(
                    number, table.column(cells.OPERATION), f"{error} --skip-unknown leaves such rows out."
                )
            return None
        except CellError as error:
            column = cells.OPERATION if isinstance(error, _OperationError) else cells.INPUT_SHAPE
            self._problems.add(number, table.column(column), str(error))
            return None
        if operation.device_work and numbers.get(_DEVICE) == 0:
            self._problems.add(
                number, table.column(_DEVICE), f"0 for {operation.function}, which runs on the device. {_UNKNOWN}"
            )
            return None
        return self._measurement(operation, tf32, numbers, texts)

    def _operation(self, printed: str, shape: Any, pass_: str) -> OperationRow:
        """The operation, its cost found once; CellError or NoReaderError, likewise."""
        key = (printed, str(shape), pass_)
        if key not in self._known:
            try:
                self._known[key] = _operation_row(printed, shape, pass_)
            except (CellError, NoReaderError) as error:
                self._known[key] = error
        known = self._known[key]
        if not isinstance(known, OperationRow):
            raise known
        return self.operations.setdefault((known.operation_id, pass_), known)

    def _measurement(
        self,
        operation: OperationRow,
        tf32: bool,
        numbers: Mapping[str, float | None],
        texts: Mapping[str, str],
    ) -> MeasurementRow:
        request, key = self._request, (operation.operation_id, operation.pass_, tf32)
        repetition, self._repetitions[key] = self._repetitions[key], self._repetitions[key] + 1
        operation.measured_tf32 = sorted({*(operation.measured_tf32 or ()), tf32})
        row = MeasurementRow(
            kind=records.OPERATION, subject_id=operation.operation_id, pass_=operation.pass_, tf32=tf32,
            dtype=operation.dtype, gpu=request.gpu, point=str(request.point), repetition=repetition, shard="1/1",
            settings_id=SETTINGS_ID, clockwatt_version=clockwatt.__version__, gpu_name=self._gpu_name,
            requested_sm_clock_mhz=request.point.sm_clock_mhz,
            requested_memory_clock_mhz=request.point.memory_clock_mhz,
            requested_power_limit_w=request.point.power_limit_w, **numbers, **texts,  # type: ignore[arg-type]
        )  # fmt: skip
        _complete_energy(row)
        row.quantities = [records.TIME, *([records.ENERGY] if row.energy_j is not None else [])]
        operation.measured_quantities = sorted({*row.quantities, *(operation.measured_quantities or ())}, reverse=True)
        return row


class _OperationError(CellError):
    """The column of operations is wrong, or what is in it does not fit the input."""


def _operation_row(printed: str, shape: Any, pass_: str) -> OperationRow:
    from clockwatt.operations.rows import operation_row  # torch, which nothing else of a dataset needs

    try:
        if printed.startswith("{"):
            operation = Operation.from_json(printed)
        elif shape is None:
            raise CellError("is not there, and a printed module has no shape. Name it by --column input_shape=THEIRS.")
        else:
            operation = operation_of(printed, cells.shape(shape), pass_)
        named: Pass = "training" if pass_ == records.TRAINING else "inference"
        return operation_row(operation, "compute", named)
    except NoReaderError:
        raise
    except UnknownModuleError as error:
        raise _OperationError(f"{error} Correct the module or its input_shape.") from None
    except OperationSpecError as error:
        raise _OperationError(str(error)) from None


def _complete_energy(row: MeasurementRow) -> None:
    """What follows from what is known by definition: energy of a call, and that above idling."""
    if row.energy_j is None and row.power_w is not None and row.time_eager_s is not None:
        row.energy_j = row.power_w * row.time_eager_s
    if row.power_w is None and row.energy_j is not None and row.time_eager_s is not None:
        row.power_w = row.energy_j / row.time_eager_s
    if row.energy_j is not None and row.power_idle_w is not None and row.time_eager_s is not None:
        row.energy_dynamic_j = row.energy_j - row.power_idle_w * row.time_eager_s


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
