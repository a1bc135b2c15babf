"""The index of figures, made from where they are declared.

`python -m clockwatt.figures.reference` in the checkout rewrites it in `docs/reference/figures.md`.
"""

from __future__ import annotations

from pathlib import Path

from clockwatt.figures.names import PER_PASS, QUESTIONS
from clockwatt.schema.reference import write_made

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


def main(page: Path = Path("docs/reference/figures.md")) -> None:
    """Write the index into `page`."""
    write_made(page, BEGIN, END, reference())


if __name__ == "__main__":
    main()
