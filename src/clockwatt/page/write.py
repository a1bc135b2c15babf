"""`results/explore.html`: one file with all that it needs, which opens without a network."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

from clockwatt.config import CampaignConfig
from clockwatt.io import files
from clockwatt.page.content import page_content
from clockwatt.page.studies import section_name, study_sections

ASSETS = Path(__file__).with_name("assets")
SCRIPTS = (
    "data.js", "words.js", "choice.js", "theme.js", "answer.js", "tradeoff.js", "curves.js", "table.js", "networks.js",
    "joules.js", "trust.js", "method.js", "main.js",
)  # fmt: skip
"""Scripts in their order in the page, within one function."""


def write_page(
    config: CampaignConfig,
    dataset_dir: Path,
    predictors_dir: Path,
    validation_dir: Path,
    output: Path,
    study_files: Sequence[Path] = (),
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
    study_files
        As `study_sections` takes them.
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
    files.write_text(page_html(content, study_sections(study_files)), output)


def page_html(content: Any, studies: Mapping[str, str] | None = None) -> str:
    """Return the page of a `content.page_content`, with sections as `study_sections` returns them."""
    from bokeh.resources import Resources

    from clockwatt.page.plots import plots

    script = "\n".join(_asset(name) for name in SCRIPTS)
    library = "\n".join(Resources(mode="inline", components=["bokeh"], minified=True, log_level="error").js_raw)
    return Template(_asset("page.html")).substitute(
        campaign=html.escape(content["campaign"]),
        version=html.escape(content["version"]),
        studies="".join((studies or {}).values()),
        to_studies="".join(f'<a href="#{section_name(title)}">{title}</a>' for title in studies or ()),
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
