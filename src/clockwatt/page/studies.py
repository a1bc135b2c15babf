"""The sections of the page on what studies found: several GPUs, then all others."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from clockwatt.errors import DataFileError

_TITLES = {
    "parallel/table": "An epoch of training",
    "parallel/speedup": "Speed-up",
    "parallel/energy": "Where the energy goes",
    "parallel/timeline": "A step of each GPU",
    "power": "Training under power limits and clocks",
    "workloads": "Eleven programs, recorded by all sensors",
    "thermal": "Forecasts of temperature",
    "survey": "Differences between cards",
    "survey/positions": "Differences between cards, by node and index",
    "survey/temperature": "Clock, temperature and power of each card",
    "survey/programs": "Differences between cards, by what limits a program",
    "survey/placement": "What placement on the better cards saves",
    "survey/interference": "Programs beside each other",
}
"""Titles by study and name of the file, else by study."""
_SEVERAL_GPUS, _OTHERS = "Several GPUs", "Studies"
_SECTION = """<section id="{name}">
  <h2>{title}</h2>
  {figures}
</section>
"""
_FIGURE = """<figure class="study"><figcaption>{caption}</figcaption>
  {content}</figure>"""


def study_sections(files: Sequence[Path]) -> dict[str, str]:
    """Return the HTML of each section by its title; none without files.

    Parameters
    ----------
    files
        Pictures as studies write them, `…/studies/STUDY/GPU/figures/NAME.png`, and tables of an epoch on several GPUs,
        `…/studies/parallel/GPU/table.csv`.

    Raises
    ------
    DataFileError
        If one cannot be read.
    """
    of_titles: dict[str, list[str]] = {_SEVERAL_GPUS: [], _OTHERS: []}
    for path in files:
        study, gpu = _study_and_gpu(path)
        title = _TITLES.get(f"{study}/{path.stem}", _TITLES.get(study, study))
        try:
            content = _table(path) if path.suffix == ".csv" else _picture(path, title)
        except (OSError, ValueError, KeyError) as error:
            raise DataFileError(f"{path}: cannot be read ({error}). Run the study again.") from error
        caption = html.escape(f"{title}: {gpu}")
        of_titles[_SEVERAL_GPUS if study == "parallel" else _OTHERS].append(
            _FIGURE.format(caption=caption, content=content)
        )
    return {
        title: _SECTION.format(name=section_name(title), title=title, figures="\n  ".join(figures))
        for title, figures in of_titles.items()
        if figures
    }


def section_name(title: str) -> str:
    """Return the identifier of a section in the page."""
    return title.lower().replace(" ", "-")


def _study_and_gpu(path: Path) -> tuple[str, str]:
    folders = path.parts[:-1] if path.suffix == ".csv" else path.parts[:-2]
    return (folders[-2], folders[-1]) if len(folders) > 1 else ("", path.stem)


def _picture(path: Path, title: str) -> str:
    content = base64.b64encode(path.read_bytes()).decode("ascii")
    return f'<img alt="{html.escape(title)}" src="data:image/png;base64,{content}">'


def _table(path: Path) -> str:
    """Return the table of an epoch, with a row for each way to train a network."""
    rows = pd.read_csv(path)
    texts = {
        "epoch": (rows["epoch_s"], "{:,.2f} s"),
        "energy": (rows["epoch_j"] / 1000, "{:,.2f} kJ"),
        "items/J": (rows["items_per_j"], "{:.3g}"),
        "speed-up": (rows["speedup"], "{:.2f}"),
        "efficiency": (100 * rows["efficiency"], "{:.0f} %"),
        "communication": (rows["communication_shares"], "{} %"),
        "overlap": (100 * rows["overlap"], "{:.0f} %"),
    }
    shown = pd.DataFrame({
        "network": rows["network"].str.rpartition(":")[2] + ", " + rows["precision"],
        "strategy": rows["strategy"],
        "GPUs": rows["gpus"],
        **{name: values.map(text.format, na_action="ignore") for name, (values, text) in texts.items()},
    }).to_html(index=False, border=0, na_rep="–")  # fmt: skip
    virtual = " Virtual GPUs: these numbers have no meaning." if rows["virtual"].any() else ""
    return (
        f'<p class="quiet">{rows["images"].iloc[0]:,} items an epoch; energy of all GPUs. Speed-up: items per second, '
        "relative to one GPU; efficiency: speed-up over number of GPUs. Communication: its share of the time of all "
        f"kernels of each GPU; overlap: share of it during which a kernel runs.{virtual}</p>\n  "
        f'<div class="scroll" tabindex="0" role="region" aria-label="Training on several GPUs">{shown}</div>'
    )
