"""The part of the page with what studies found."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from clockwatt.errors import DataFileError
from clockwatt.page.write import page_html, studies_section


def picture(folder: Path, gpu: str) -> Path:
    path = folder / "results" / "studies" / "power" / gpu / "figures" / "optimum_power_limit.png"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\x89PNG of " + gpu.encode())
    return path


def test_each_figure_stands_in_the_page_with_its_study_and_gpu(tmp_path: Path) -> None:
    section = studies_section([picture(tmp_path, "a30"), picture(tmp_path, "h100")])
    assert section.count("<img") == 2
    assert "Training under power limits and clocks: h100" in section
    assert base64.b64encode(b"\x89PNG of a30").decode() in section
    page = page_html({"campaign": "x", "version": "1"}, section)
    assert section in page
    assert page.count('href="#studies"') == 1


def test_without_studies_the_page_names_none() -> None:
    assert studies_section([]) == ""
    page = page_html({"campaign": "x", "version": "1"})
    assert 'id="studies"' not in page
    assert "#studies" not in page


def test_a_picture_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataFileError, match=r"none\.png: cannot be read"):
        studies_section([tmp_path / "none.png"])
