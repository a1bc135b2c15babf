"""Read a table of measurements by others cell by cell; errors name file, row and column.

Cells of a CSV file are text, those of a Parquet file have types; both are read alike. An empty cell is a missing value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from clockwatt.errors import DataFileError
from clockwatt.schema import costs
from clockwatt.schema.execution import DEFAULT, ExecutionSettings, of_tf32
from clockwatt.schema.flags import Flag
from clockwatt.schema.records import INFERENCE, TRAINING

OPERATION, INPUT_SHAPE, PASS, TF32, FLAGS = "operation", "input_shape", "pass", "tf32", "flags"
REQUIRED = (OPERATION, PASS, TF32)
"""Columns, or constants, without which it is not known what was measured."""

TIMES = (costs.TIME_DEVICE, costs.TIME_HOST, costs.TIME_EAGER)
_MEASURED = (*TIMES, costs.POWER, costs.ENERGY)
NUMBERS = (
    *(measured.column for measured in _MEASURED),
    *(measured.standard_error for measured in _MEASURED),
    *("power_idle_w", "power_limit_w", "sm_clock_median_mhz"),
)
TEXTS = ("host", "gpu_uuid", "driver_version", "cuda_version", "cudnn_version", "torch_version")
COLUMNS = (OPERATION, INPUT_SHAPE, PASS, TF32, FLAGS, *NUMBERS, *TEXTS)
"""All that is taken; other columns of a table are left."""

UNKNOWN = "What is not known is an empty cell, never 0."

_SHOWN = 10
_LONGEST_CALL_S = 60.0
_EMPTY = ("", "nan", "null", "none", "na", "n/a")
_YES_NO = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


class CellError(ValueError):
    """A cell says something that it may not say; the message has no place yet."""


class Problems:
    """Errors in a table, collected so that all can be corrected at once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._found: list[str] = []

    def add(self, row: int, column: str, what: str) -> None:
        """A problem in a row, counted from 1 below the header."""
        self._found.append(f"row {row}, column {column}: {what}")

    def check(self) -> None:
        """Raise DataFileError with all that was added, if anything was."""
        if len(self._found) == 1:
            raise DataFileError(f"{self._path}, {self._found[0]} Nothing was written.")
        if self._found:
            lines = [*self._found[:_SHOWN]]
            if len(self._found) > _SHOWN:
                lines.append(f"and {len(self._found) - _SHOWN} more")
            listed = "".join(f"\n  {line}" for line in lines)
            raise DataFileError(
                f"{self._path}: {len(self._found)} cells cannot be read; nothing was written. "
                f"Rows are counted from 1 below the header.{listed}"
            )


@dataclass(frozen=True)
class Table:
    """A table under our names of columns.

    Attributes
    ----------
    path
        The path of the file.
    cells
        A column for each of `COLUMNS` that it has, or that is the same for all rows.
    theirs
        Our name of each column to the file's, for messages.
    left
        Columns of the file that are not taken.
    """

    path: Path
    cells: pd.DataFrame
    theirs: Mapping[str, str]
    left: Sequence[str]

    @classmethod
    def read(cls, path: Path, columns: Mapping[str, str], constants: Mapping[str, str]) -> Table:
        """Read a CSV or Parquet file.

        Parameters
        ----------
        path
            Ends in .csv or .parquet.
        columns
            Our name to the file's, where they differ.
        constants
            Our name to what all rows have.

        Raises
        ------
        DataFileError
            If it cannot be read, lacks a column, or a name is none of `COLUMNS`.
        """
        for option, names in (("--column", columns), ("--constant", constants)):
            for name in names:
                if name not in COLUMNS:
                    raise DataFileError(f"{option} {name}: is not a column. Choose {', '.join(COLUMNS)}.")
        file = read_file(path)
        for ours, theirs in columns.items():
            if theirs not in file.columns:
                raise DataFileError(
                    f"{path}: has no column {theirs!r}, which --column {ours}={theirs} names. "
                    f"It has {', '.join(map(repr, file.columns))}."
                )
        twice = sorted(set(columns) & set(constants))
        if twice:
            raise DataFileError(f"--constant {twice[0]}: --column names it too. Leave one of them out.")
        taken = {name: columns.get(name, name) for name in COLUMNS if name not in constants}
        taken = {ours: theirs for ours, theirs in taken.items() if theirs in file.columns}
        for ours, theirs in columns.items():
            if list(taken.values()).count(theirs) > 1:
                raise DataFileError(f"--column {ours}={theirs}: column {theirs!r} is taken twice. Leave one out.")
        cells = pd.DataFrame({ours: file[theirs] for ours, theirs in taken.items()}, index=file.index)
        for name, value in constants.items():
            cells[name] = value
        table = cls(path, cells, taken, [str(name) for name in file.columns if name not in taken.values()])
        table._check_columns()
        return table

    def _check_columns(self) -> None:
        for name in REQUIRED:
            if name not in self.cells:
                example = {OPERATION: "operation=module", PASS: "pass=mode", TF32: "tf32=allow_tf32"}[name]
                constant = "" if name == OPERATION else ", or what all rows have by --constant " + (
                    f"{PASS}=inference" if name == PASS else f"{TF32}=false"
                )  # fmt: skip
                raise DataFileError(
                    f"{self.path}: has no column {name!r}, but {', '.join(map(repr, self.left))}. "
                    f"Name the column that has it by --column {example}{constant}."
                )
        if not any(time.column in self.cells for time in TIMES):
            names = ", ".join(time.column for time in TIMES)
            raise DataFileError(
                f"{self.path}: has no time: none of the columns {names}. Name one by --column "
                f"{costs.TIME_EAGER.column}=THEIRS; times are seconds per call."
            )

    def rows(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the number, from 1, and the cells of each row under the dataset's column names."""
        for number, cells in enumerate(self.cells.to_dict("records"), 1):
            yield number, {str(name): cell for name, cell in cells.items()}

    def column(self, ours: str) -> str:
        """Return the name of a column in the file."""
        return self.theirs.get(ours, ours)


def read_file(path: Path) -> pd.DataFrame:
    """Return a CSV file, its cells as text, or a Parquet file.

    Raises
    ------
    DataFileError
        If it cannot be read, or has no rows.
    """
    readers: dict[str, Callable[[], pd.DataFrame]] = {
        ".csv": lambda: pd.read_csv(path, dtype=str, keep_default_na=False, skipinitialspace=True),
        ".parquet": lambda: pd.read_parquet(path),
    }
    advice = {
        ".csv": "A cell with commas, such as a printed module, stands in double quotes.",
        ".parquet": "Write it again, or save the table as .csv.",
    }
    if path.suffix.lower() not in readers:
        raise DataFileError(f"{path}: is neither .csv nor .parquet. Save the table as one of them.")
    try:
        file = readers[path.suffix.lower()]()
    except FileNotFoundError:
        raise DataFileError(f"{path}: no such file. Give the table's path.") from None
    except (OSError, ValueError) as error:
        said = " ".join(str(error).split())
        raise DataFileError(f"{path}: cannot be read as a table ({said}). {advice[path.suffix.lower()]}") from None
    if path.suffix.lower() == ".csv" and not isinstance(file.index, pd.RangeIndex):
        raise DataFileError(f"{path}: rows have more cells than the header. Name every column in the first line.")
    if file.empty:
        raise DataFileError(f"{path}: has a header and no rows. Nothing was written.")
    return file


def is_empty(cell: Any) -> bool:
    """Return whether a cell is empty."""
    if isinstance(cell, str):
        return cell.strip().lower() in _EMPTY
    return cell is None or cell is pd.NA or (isinstance(cell, float) and math.isnan(cell))


def text(cell: Any) -> str:
    """Return the text of a cell that must not be empty."""
    if is_empty(cell):
        raise CellError("is empty. Fill it in, or remove the row.")
    return str(cell).strip()


def pass_(cell: Any) -> str:
    """Return the pass: `inference` or `training`."""
    said = text(cell).lower()
    if said not in (INFERENCE, TRAINING):
        raise CellError(f"{said!r} is not a pass. Write {INFERENCE} or {TRAINING}.")
    return said


def tf32(cell: Any) -> ExecutionSettings:
    """Return the settings for `true`, `false`, or `conv`: in convolutions and recurrent layers only."""
    said = text(cell).lower()
    if said == "conv":
        return DEFAULT
    if said not in _YES_NO:
        raise CellError(f"{said!r} is neither true nor false nor conv. Write one of them.")
    return of_tf32(_YES_NO[said])


def flags(cell: Any) -> list[str]:
    """Return the quality flags of a row, sorted, from names with spaces between them."""
    said = [] if is_empty(cell) else sorted(set(text(cell).split()))
    for name in said:
        if name not in set(Flag):
            raise CellError(f"{name!r} is no flag. Choose among {', '.join(Flag)}.")
    return said


def shape(cell: Any) -> tuple[int, ...]:
    """Return a shape from `32x3x224x224`, `32,3,224,224`, `[32, 3, 224, 224]`, or a list of a Parquet file."""
    said = " ".join(map(str, cell)) if isinstance(cell, (list, tuple, np.ndarray)) else text(cell)
    bare = re.sub(r"^\s*(torch\.Size)?[\s(\[]*|[\s)\],]*$", "", said)
    sizes = re.split(r"\s*[x×,\s]\s*", bare)
    if not all(re.fullmatch(r"[1-9]\d*", size) for size in sizes):
        raise CellError(f"{said!r} is not a shape. Write it batch first, such as 32x3x224x224.")
    return tuple(int(size) for size in sizes)


def number(cell: Any, name: str, longest_s: float = _LONGEST_CALL_S) -> float | None:
    """Return a quantity above zero, None for an empty cell; times are seconds per call, that of the device may be 0."""
    if is_empty(cell):
        return None
    try:
        value = float(cell)
    except (TypeError, ValueError):
        raise CellError(f"{cell!r} is not a number. Write one with a decimal point, or leave the cell empty.") from None
    may_be_zero = name == costs.TIME_DEVICE.column or "_standard_error_" in name
    if not math.isfinite(value) or value < 0 or (value == 0 and not may_be_zero):
        raise CellError(f"{cell} is not above zero. {UNKNOWN}")
    if name.startswith("time_") and value > longest_s:
        raise CellError(f"{cell} s for one call is too long. Times are in seconds: convert the column.")
    return value
