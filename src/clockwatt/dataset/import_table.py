"""Write measurements by others as a part of a dataset, for `clockwatt import`.

A folder as a campaign's results or the shipped reference data have it: `config.yaml`, `catalogue/`, `measurements/`,
and the `dataset/` that is joined from them. What a table does not have is null.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

import clockwatt
from clockwatt import config
from clockwatt.config import CampaignConfig, OperatingPoint, Pass
from clockwatt.dataset import table as cells
from clockwatt.dataset.build import join_sources
from clockwatt.dataset.reference import Source
from clockwatt.dataset.table import CellError, Problems, Table
from clockwatt.errors import ConfigError, DataFileError, OutputError
from clockwatt.gpu.specs import VIRTUAL_PREFIX, find_spec
from clockwatt.io import files
from clockwatt.io.progress import progress
from clockwatt.operations.printed_modules import NoReaderError, UnknownModuleError, operation_of
from clockwatt.operations.spec.operation import Operation, OperationSpecError
from clockwatt.schema import costs, layout, records
from clockwatt.schema.execution import FP32, ExecutionSettings
from clockwatt.schema.records import MeasurementRow, OperationRow

CONFIG_FILE = "config.yaml"
DATASET = Path("dataset")
SETTINGS_ID = "imported"
_MOST_POWER_W = 5000.0
_LIKE = 2.0
"""Energy may differ from power × time by up to this factor."""


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
        raise ConfigError(f"--device {request.device}: is virtual. Only measurements of real GPUs can be imported.")
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


_DEVICE = costs.TIME_DEVICE.column

Value = TypeVar("Value")


class OperationError(CellError):
    """The column of operations is wrong, or what is in it does not fit the input."""


@dataclass(frozen=True)
class _Cells:
    """Values of the cells of a row, except the shape, which is read with the operation."""

    operation: str
    pass_: str
    execution: ExecutionSettings
    numbers: Mapping[str, float | None]
    texts: Mapping[str, str]
    flags: list[str]


class RowReader:
    """Reads a table.

    Parameters
    ----------
    table
        The table.
    common
        What all measurements have.
    skip_unknown
        Leave out rows of modules that cannot be read.

    Attributes
    ----------
    operations
        By id and pass, with the settings and quantities that were measured.
    skipped
        Module to the number of its rows that were left out.
    """

    def __init__(self, table: Table, common: MeasurementRow, *, skip_unknown: bool) -> None:
        self._table, self._common, self._skip_unknown = table, common, skip_unknown
        self._problems = Problems(table.path)
        self._known: dict[tuple[str, str, str], OperationRow | CellError | NoReaderError] = {}
        self._repetitions: Counter[tuple[str, str, ExecutionSettings]] = Counter()
        self.operations: dict[tuple[str, str], OperationRow] = {}
        self.skipped: Counter[str] = Counter()

    def read(self) -> list[MeasurementRow]:
        """Return all rows.

        Raises
        ------
        DataFileError
            With all that is wrong, or if no row is left.
        """
        rows = []
        with progress("import", len(self._table.cells)) as advance:
            for number, row in self._table.rows():
                measurement = self._row(number, row)
                if measurement is not None:
                    rows.append(measurement)
                advance(f"row {number}")
        self._problems.check()
        if not rows:
            names = ", ".join(sorted(self.skipped))
            raise DataFileError(f"{self._table.path}: none of its modules can be read ({names}).")
        return rows

    def _row(self, number: int, row: Mapping[str, Any]) -> MeasurementRow | None:
        """Return one row; None where it is wrong, which is noted, or left out."""
        said = self._cells(number, row)
        if said is None:
            return None
        try:
            operation = self._operation(said.operation, row.get(cells.INPUT_SHAPE), said.pass_)
        except NoReaderError as error:
            if self._skip_unknown:
                self.skipped[error.module] += 1
            else:
                self._note(number, cells.OPERATION, f"{error} --skip-unknown leaves such rows out.")
            return None
        except CellError as error:
            self._note(number, cells.OPERATION if isinstance(error, OperationError) else cells.INPUT_SHAPE, str(error))
            return None
        if operation.device_work and said.numbers.get(_DEVICE) == 0:
            self._note(number, _DEVICE, f"0 for {operation.function}, which runs on the device. {cells.UNKNOWN}")
            return None
        return self._measurement(number, operation, said)

    def _cells(self, number: int, row: Mapping[str, Any]) -> _Cells | None:
        """Return the values of the cells; None where any is wrong. Every wrong cell is noted."""
        wrong = []

        def cell(name: str, read: Callable[[Any], Value]) -> Value | None:
            try:
                return read(row[name])
            except CellError as error:
                self._note(number, name, str(error))
                wrong.append(name)
                return None

        operation, pass_ = cell(cells.OPERATION, cells.text), cell(cells.PASS, cells.pass_)
        execution, flags = cell(cells.TF32, cells.tf32), cell(cells.FLAGS, cells.flags) if cells.FLAGS in row else []
        numbers = {
            name: cell(name, lambda value, name=name: cells.number(value, name))  # type: ignore[misc]
            for name in cells.NUMBERS
            if name in row
        }
        if not wrong and all(numbers.get(time.column) is None for time in cells.TIMES):
            (first, *_) = (time.column for time in cells.TIMES if time.column in row)
            self._note(number, first, "no time of this row is known. Fill one in, or take the row out.")
            return None
        if wrong or operation is None or pass_ is None or execution is None or flags is None:
            return None
        texts = {name: str(row[name]) for name in cells.TEXTS if name in row and not cells.is_empty(row[name])}
        return _Cells(operation, pass_, execution, numbers, texts, flags)

    def _note(self, number: int, ours: str, what: str) -> None:
        self._problems.add(number, self._table.column(ours), what)

    def _operation(self, said: str, shape: Any, pass_: str) -> OperationRow:
        """Return the operation, what it costs found once; CellError or NoReaderError likewise."""
        key = (said, str(shape), pass_)
        if key not in self._known:
            try:
                self._known[key] = operation_row_of(said, shape, pass_)
            except (CellError, NoReaderError) as error:
                self._known[key] = error
        known = self._known[key]
        if not isinstance(known, OperationRow):
            raise known
        return self.operations.setdefault((known.operation_id, pass_), known)

    def _measurement(self, number: int, operation: OperationRow, said: _Cells) -> MeasurementRow:
        execution = said.execution.of_operation(operation.operation_class, operation.dtype)
        key = (operation.operation_id, operation.pass_, execution)
        row = replace(
            self._common,
            subject_id=operation.operation_id,
            pass_=operation.pass_,
            execution=execution,
            flags=said.flags,
            dtype=operation.dtype,
            repetition=self._repetitions[key],
            position=number,
            **said.numbers,  # type: ignore[arg-type]
            **said.texts,  # type: ignore[arg-type]
        )
        self._repetitions[key] += 1
        _complete_energy(row)
        if (wrong := _wrong_energy(row)) is not None:
            self._note(number, *wrong)
        row.quantities = [records.TIME, *([records.ENERGY] if row.energy_j is not None else [])]
        operation.measured_execution = sorted({*(operation.measured_execution or ()), execution})
        operation.measured_quantities = sorted({*row.quantities, *(operation.measured_quantities or ())}, reverse=True)
        return row


def operation_row_of(said: str, shape: Any, pass_: str) -> OperationRow:
    """Return an operation's row of the catalogue, from a printed module and the shape of its input, or from a spec.

    Raises
    ------
    NoReaderError
        If the module is of a class that is not known.
    OperationError
        If it is no module or spec, or does not fit the input.
    CellError
        If the shape is none.
    """
    from clockwatt.operations.rows import operation_row  # torch, which nothing else of a dataset needs

    named: Pass = "training" if pass_ == records.TRAINING else "inference"
    try:
        if said.startswith("{"):
            spec = said
        elif shape is None:
            raise CellError("is not there, and a printed module has no shape. Name it by --column input_shape=THEIRS.")
        else:
            spec = operation_of(said, cells.shape(shape), pass_).to_json()
        return operation_row(Operation.from_json(spec), "compute", named)
    except NoReaderError:
        raise
    except UnknownModuleError as error:
        raise OperationError(f"{error} Correct the module or its input_shape.") from None
    except OperationSpecError as error:
        raise OperationError(str(error)) from None


def _complete_energy(row: MeasurementRow) -> None:
    """Compute missing energies from known ones by definition: energy of a call, and that above idle."""
    if row.time_eager_s is None:
        return
    if row.energy_j is None and row.power_w is not None:
        row.energy_j = row.power_w * row.time_eager_s
    elif row.power_w is None and row.energy_j is not None:
        row.power_w = row.energy_j / row.time_eager_s
    if row.energy_j is not None and row.power_idle_w is not None:
        row.energy_dynamic_j = row.energy_j - row.power_idle_w * row.time_eager_s


def _wrong_energy(row: MeasurementRow) -> tuple[str, str] | None:
    """Return the column that is wrong and why, or None; from `_complete_energy`."""
    power, energy, time = row.power_w, row.energy_j, row.time_eager_s
    if power is not None and power > _MOST_POWER_W:
        return costs.POWER.column, f"{power:.4g} W is more than any GPU draws. Convert powers to W and energies to J."
    if power and energy and time and not 1 / _LIKE < energy / (power * time) < _LIKE:
        return costs.ENERGY.column, (
            f"{energy:.4g} J is not power_w × time_eager_s = {power * time:.4g} J. Convert the column to J, or leave "
            "it out."
        )
    return None
