"""Tables of columns, flags and calibrated quantities, made from where they are declared.

`python -m clockwatt.schema.reference` in the checkout rewrites them in `docs/reference/results-folder.md`.
"""

from __future__ import annotations

import ast
import inspect
import io
import tokenize
from collections.abc import Iterable, Sequence
from pathlib import Path

from clockwatt.schema.flags import Flag
from clockwatt.schema.quantities import CalibrationQuantity
from clockwatt.schema.records import (
    CalibrationRow,
    CallRow,
    MeasurementRow,
    NetworkRow,
    OperationRow,
    TelemetryRow,
    column_name,
)
from clockwatt.schema.tables import DERIVED_COLUMNS

BEGIN = "<!-- made by `python -m clockwatt.schema.reference`; change src/clockwatt/schema instead -->"
END = "<!-- end of what was made -->"


def reference() -> str:
    """Return the tables in Markdown."""
    columns = _table(
        ("column", "meaning"),
        ((f"`{column.name}`", _sentence(column.meaning)) for column in DERIVED_COLUMNS),
    )
    flags = _table(
        ("flag", "meaning", "raised by", "used to train"),
        ((f"`{flag}`", _sentence(flag.meaning), flag.raised_by, flag.learnt_from) for flag in Flag),
    )
    quantities = _table(
        ("quantity", "meaning", "subject"),
        (
            (f"`{quantity}`", _sentence(quantity.meaning), quantity.subject or "none")
            for quantity in CalibrationQuantity
        ),
    )
    rows = [line for title, row_type in ROW_TYPES.items() for line in ("", f"## {title}", "", *_columns_of(row_type))]
    return "\n".join(
        [
            *("## Columns that the dataset adds", "", *columns, ""),
            *("## Flags", "", *flags, ""),
            *("## Quantities of the calibration", "", *quantities),
            *rows,
        ]
    )


ROW_TYPES = {
    "Columns of a measurement": MeasurementRow,
    "Columns of catalogue/operations.parquet": OperationRow,
    "Columns of catalogue/calls.parquet": CallRow,
    "Columns of catalogue/networks.parquet": NetworkRow,
    "Columns of telemetry": TelemetryRow,
    "Columns of a calibration": CalibrationRow,
}
"""Title of a table to the kind of rows whose columns it lists."""


def _columns_of(row_type: type) -> list[str]:
    """Return the table of a row's columns; the comment behind a field is its meaning."""
    source = inspect.getsource(row_type)
    comments = {
        token.start[0]: token.string.removeprefix("#").strip().replace("|", "\\|")
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    (declared,) = ast.parse(source).body
    assert isinstance(declared, ast.ClassDef)
    rows = []
    for entry in declared.body:
        if isinstance(entry, ast.AnnAssign) and isinstance(entry.target, ast.Name):
            lines = range(entry.lineno, (entry.end_lineno or entry.lineno) + 1)
            meaning = next((comments[line] for line in lines if line in comments), "")
            if not meaning and "_standard_error" in entry.target.id:
                meaning = f"standard error of `{entry.target.id.replace('_standard_error', '')}`"
            rows.append(
                (f"`{column_name(entry.target.id)}`", ast.unparse(entry.annotation).replace("|", "or"), meaning)
            )
    return _table(("column", "type", "meaning"), rows)


def write_made(page: Path, begin: str, end: str, made: str) -> None:
    """Replace the text between two marks of `page` by `made`; ValueError if a mark is missing."""
    before, _, rest = page.read_text(encoding="utf-8").partition(begin)
    _, mark, after = rest.partition(end)
    if not mark:
        raise ValueError(f"{page} has no lines {begin!r} and {end!r}")
    page.write_text(f"{before}{begin}\n\n{made}\n{end}{after}", encoding="utf-8")


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


def _sentence(meaning: str) -> str:
    return meaning.replace("|", "\\|") + "."


def main(readme: Path = Path("docs/reference/results-folder.md")) -> None:
    """Write the tables into `readme`."""
    write_made(readme, BEGIN, END, reference())


if __name__ == "__main__":
    main()
