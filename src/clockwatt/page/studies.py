"""The part of the page that shows what studies found: their main figures, as they are in the results folder."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from pathlib import Path

from clockwatt.errors import DataFileError

TITLES = {
    "power": "Training under power limits and clocks",
    "workloads": "A dozen programs by all sensors",
    "survey": "Differences between cards",
}
"""Titles of the studies, by the name of their package."""
_SECTION = """<section id="studies">
  <h2>Studies</h2>
  {figures}
</section>
"""
_FIGURE = """<figure class="study"><figcaption>{caption}</figcaption>
  <img alt="{caption}" src="data:image/png;base64,{content}"></figure>"""


def studies_section(figures: Sequence[Path]) -> str:
    """Return the HTML of the section; empty without figures.

    Parameters
    ----------
    figures
        Pictures as studies write them, `…/studies/STUDY/GPU/figures/NAME.png`.

    Raises
    ------
    DataFileError
        If one cannot be read.
    """
    if not figures:
        return ""
    return _SECTION.format(figures="\n  ".join(_figure(path) for path in figures))


def _figure(path: Path) -> str:
    try:
        content = base64.b64encode(path.read_bytes()).decode("ascii")
    except OSError as error:
        raise DataFileError(f"{path}: cannot be read ({error.strerror}). Run the study again.") from error
    study, gpu = path.parts[-4:-2] if len(path.parts) > 3 else ("", path.stem)
    return _FIGURE.format(caption=html.escape(f"{TITLES.get(study, study)}: {gpu}"), content=content)
