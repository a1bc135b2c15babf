"""The part of the page with what studies found."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest

from clockwatt.errors import DataFileError
from clockwatt.page.studies import study_sections
from clockwatt.page.write import page_html


def picture(folder: Path, gpu: str) -> Path:
    path = folder / "results" / "studies" / "power" / gpu / "figures" / "optimum_power_limit.png"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\x89PNG of " + gpu.encode())
    return path


def test_each_figure_stands_in_the_page_with_its_study_and_gpu(tmp_path: Path) -> None:
    sections = study_sections([picture(tmp_path, "a30"), picture(tmp_path, "h100")])
    section = sections["Studies"]
    assert section.count("<img") == 2
    assert "Training under power limits and clocks: h100" in section
    assert base64.b64encode(b"\x89PNG of a30").decode() in section
    page = page_html({"campaign": "x", "version": "1"}, sections)
    assert section in page
    assert page.count('href="#studies"') == 1


def test_without_studies_the_page_names_none() -> None:
    assert study_sections([]) == {}
    page = page_html({"campaign": "x", "version": "1"})
    assert 'id="studies"' not in page
    assert "#studies" not in page


def test_a_picture_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataFileError, match=r"none\.png: cannot be read"):
        study_sections([tmp_path / "none.png"])


def test_training_on_several_gpus_has_a_section_with_a_table(tmp_path: Path) -> None:
    table = tmp_path / "studies" / "parallel" / "h100" / "table.csv"
    table.parent.mkdir(parents=True)
    table.write_text(
        "network,precision,strategy,gpus,images,epoch_s,epoch_j,items_per_j,speedup,efficiency,communication_shares,"
        "overlap,virtual\n"
        "vgg16,tf32,single,1,8192,6.72,4460,1.84,1,1,0.0,,False\n"
        'vgg16,tf32,ddp,2,8192,3.48,4650,1.76,1.93,0.965,"9.4, 9.9",0.98,False\n'
    )
    (section,) = study_sections([table]).items()
    assert section[0] == "Several GPUs"
    assert "An epoch of training: h100" in section[1]
    texts = re.findall(r"<td>(.*?)</td>", section[1])
    assert texts[:10] == ["vgg16, tf32", "single", "1", "6.72 s", "4.46 kJ", "1.84", "1.00", "100 %", "0.0 %", "–"]
    assert texts[16:] == ["1.93", "96 %", "9.4, 9.9 %", "98 %"]
    table.write_text("network\nvgg16\n")
    with pytest.raises(DataFileError, match=r"table\.csv: cannot be read .*Run the study again"):
        study_sections([table])
