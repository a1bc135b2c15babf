"""Tables of flags, of the dataset's own columns and of calibrated quantities, made from where they are declared.

`python -m clockwatt.schema.reference` in the checkout rewrites them in `results/README.md`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from clockwatt.schema.flags import Flag
from clockwatt.schema.quantities import CalibrationQuantity
from clockwatt.schema.tables import DERIVED_COLUMNS

BEGIN = "<!-- made by `python -m clockwatt.schema.reference`; change src/clockwatt/schema instead -->"
END = "<!-- end of what was made -->"


def reference() -> str:
    """The tables in Markdown."""
    columns = _table(
        ("column", "meaning"),
        ((f"`{column.name}`", _sentence(column.meaning)) for column in DERIVED_COLUMNS),
    )
    flags = _table(
        ("flag", "meaning", "raised by", "learnt from"),
        ((f"`{flag}`", _sentence(flag.meaning), flag.raised_by, flag.learnt_from) for flag in Flag),
    )
    quantities = _table(
        ("quantity", "meaning", "subject"),
        (
            (f"`{quantity}`", _sentence(quantity.meaning), quantity.subject or "none")
            for quantity in CalibrationQuantity
        ),
    )
    return "\n".join(
        [
            *("## What the dataset adds to a measurement", "", *columns, ""),
            *("## Flags", "", *flags, ""),
            *("## Quantities of the calibration", "", *quantities),
        ]
    )


def with_reference(readme: str) -> str:
    """`readme` with the tables between its two marks made anew.

    Raises
    ------
    ValueError
        If a mark is missing.
    """
    return with_made(readme, BEGIN, END, reference())


def with_made(readme: str, begin: str, end: str, made: str) -> str:
    """`readme` with what stands between two marks replaced by `made`.

    Raises
    ------
    ValueError
        If a mark is missing.
    """
    before, _, rest = readme.partition(begin)
    _, mark, after = rest.partition(end)
    if not mark:
        raise ValueError(f"the README has no lines {begin!r} and {end!r}")
    return f"{before}{begin}\n\n{made}\n{end}{after}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


def _sentence(meaning: str) -> str:
    return meaning.replace("|", "\\|") + "."


def main(readme: Path = Path("results/README.md")) -> None:
    """Write the tables into `readme`."""
    readme.write_text(with_reference(readme.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
