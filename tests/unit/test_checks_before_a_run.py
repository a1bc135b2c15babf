"""What the Snakefile and `clockwatt plan` refuse before anything is submitted, and a job before it waits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clockwatt import config
from clockwatt.config import CampaignConfig
from clockwatt.control.points import check_campaign
from clockwatt.errors import ClockwattError, ConfigError, DamagedFileError
from clockwatt.workflow.missing_inputs import check_awaited
from clockwatt.workflow.network_names import check_names
from clockwatt.workflow.study_data import check_study_data


def campaign(**changes: Any) -> CampaignConfig:
    base = {
        "campaign": "test", "gpus": {"a30": {"device": "virtual:a30"}},
        "networks": [{"name": "resnet18", "input": [1, 3, 64, 64]}],
    }  # fmt: skip
    return config.parse(base | changes)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nets/mine.py:Net", r"no file nets/mine\.py here"),
        ("torch.nx:Linear", r"no module 'torch\.nx' here or installed"),
        ("hf:bert.json", r"no file bert\.json here"),
    ],
)
def test_a_network_that_is_not_there(name: str, message: str) -> None:
    networks = [{"name": one, "input": [1, 3, 64, 64]} for one in ("resnet18", name)]
    with pytest.raises(ConfigError, match=rf"c\.yaml: networks\[1\]\.name: '{name}': {message}"):
        check_names(campaign(networks=networks), "c.yaml")


def test_a_gpu_that_nobody_knows() -> None:
    with pytest.raises(ClockwattError, match=r"gpus\.a30\.device: .*'a31': no specifications of this GPU"):
        check_campaign(campaign(gpus={"a30": {"device": "virtual:a31"}}))


def test_a_folder_of_data_that_is_not_there(tmp_path: Path) -> None:
    study = {"workloads": {"workloads": ["fft", "classifier"], "data": {"classifier": "nowhere"}}}
    with pytest.raises(ConfigError, match=r"c\.yaml: studies\.workloads\.data\.classifier: nowhere is no folder here"):
        check_study_data(campaign(studies=study, results_dir=str(tmp_path)), "c.yaml")


def test_an_input_that_is_set_aside_is_found_in_a_list_of_files(tmp_path: Path) -> None:
    calibration, listed = tmp_path / "calibration.parquet", tmp_path / "inputs"
    Path(f"{calibration}.damaged").touch()
    listed.write_text(f"{tmp_path}\n{calibration}\n")
    with pytest.raises(DamagedFileError, match=rf"{calibration}: was damaged and is renamed"):
        check_awaited(["--wait-for-files-file", str(listed)])
