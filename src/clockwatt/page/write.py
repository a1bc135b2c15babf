"""`results/explore.html`: one file with all that it needs, which opens without a network."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import Any

from clockwatt.config import CampaignConfig
from clockwatt.errors import DataFileError
from clockwatt.io import files
from clockwatt.page.content import page_content

ASSETS = Path(__file__).with_name("assets")
SCRIPTS = (
    "data.js", "words.js", "choice.js", "theme.js", "answer.js", "tradeoff.js", "curves.js", "table.js", "networks.js",
    "joules.js", "trust.js", "method.js", "main.js",
)  # fmt: skip
"""Scripts in their order in the page, within one function."""

TITLES = {
    "power": "Training under power limits and clocks",
    "workloads": "Eleven programs, recorded by all sensors",
    "thermal": "Forecasts of temperature",
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


def write_page(
    config: CampaignConfig,
    dataset_dir: Path,
    predictors_dir: Path,
    validation_dir: Path,
    output: Path,
    study_figures: Sequence[Path] = (),
    measurements_dir: Path | None = None,
) -> None:
    """Write the page.

    Parameters
    ----------
    config
        Its name and first predictor.
    dataset_dir, predictors_dir, validation_dir
        What the stages before wrote.
    output
        File to write.
    study_figures
        Pictures that studies drew.
    measurements_dir
        The shards' files, for readings of the sensors; None if there are none.

    Raises
    ------
    DataFileError
        If a result is missing or damaged.
    OutputError
        If the page cannot be written.
    """
    content = page_content(config, dataset_dir, predictors_dir, validation_dir, measurements_dir)
    files.write_text(page_html(content, studies_section(study_figures)), output)


def page_html(content: Any, studies: str = "") -> str:
    """Return the page of a `content.page_content`, with the section of a `studies_section`."""
    from bokeh.resources import Resources

    from clockwatt.page.plots import plots

    script = "\n".join(_asset(name) for name in SCRIPTS)
    library = "\n".join(Resources(mode="inline", components=["bokeh"], minified=True, log_level="error").js_raw)
    return Template(_asset("page.html")).substitute(
        campaign=html.escape(content["campaign"]),
        version=html.escape(content["version"]),
        studies=studies,
        to_studies='<a href="#studies">Studies</a>' if studies else "",
        style=_asset("page.css"),
        library=library,
        content=_in_script(_json(content)),
        plots=_in_script(_json(plots())),
        script=f'(function () {{\n"use strict";\n{script}\n}})();',
    )


def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


def _json(content: Any) -> str:
    return json.dumps(content, separators=(",", ":"), allow_nan=False, ensure_ascii=False)


def _in_script(text: str) -> str:
    """Return the text that cannot end the `script` element that it stands in."""
    return text.replace("</", "<\\/").replace("<!--", "<\\!--")


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
