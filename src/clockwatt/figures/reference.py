"""The index of figures, made from where they are declared.

`python -m clockwatt.figures.reference` in the checkout rewrites it in `docs/reference/figures.md`.
"""

from __future__ import annotations

from pathlib import Path

from clockwatt.figures.names import PER_PASS, QUESTIONS
from clockwatt.schema.reference import with_made

BEGIN = "<!-- made by `python -m clockwatt.figures.reference`; change src/clockwatt/figures/names.py instead -->"
END = "<!-- end of what was made -->"


def reference() -> str:
    """Return the index in Markdown."""
    lines = ["| figure | what it answers |", "| --- | --- |"]
    for family, question in QUESTIONS.items():
        names = (
            [f"`{family}_{pass_}`" for pass_ in ("inference", "training")] if family in PER_PASS else [f"`{family}`"]
        )
        lines.append(f"| {', '.join(names)} | {question} |")
    return "\n".join(lines)


def with_reference(page: str) -> str:
    """Return `page` with a new index between its two marks; ValueError if a mark is missing."""
    return with_made(page, BEGIN, END, reference())


def main(page: Path = Path("docs/reference/figures.md")) -> None:
    """Write the index into `page`."""
    page.write_text(with_reference(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
