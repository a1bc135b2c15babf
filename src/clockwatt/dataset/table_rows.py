"""Rows of a table of others as measurements, and the operations that they are of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from clockwatt.config import Pass
from clockwatt.dataset import table as cells
from clockwatt.dataset.table import CellError, Problems, Table
from clockwatt.errors import DataFileError
from clockwatt.io.progress import progress
from clockwatt.operations.printed_modules import NoReaderError, UnknownModuleError, operation_of
from clockwatt.operations.spec.operation import Operation, OperationSpecError
from clockwatt.schema import costs, records
from clockwatt.schema.execution import ExecutionSettings
from clockwatt.schema.records import MeasurementRow, OperationRow

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
            raise DataFileError(f"{self._table.path}: no row is left: none of its modules can be read ({names}).")
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
            return operation_row(Operation.from_json(said), "compute", named)
        if shape is None:
            raise CellError("is not there, and a printed module has no shape. Name it by --column input_shape=THEIRS.")
        return operation_row(operation_of(said, cells.shape(shape), pass_), "compute", named)
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
