"""The wheel in an environment of its own, outside of any checkout: answers, and a campaign's folder.

`tests/slurm/test_accounting.py` runs the campaign there, with and without Slurm.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml

from support.installed import Installed, install
from support.shared import made_once
from support.workdir import SMALL


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(made_once(tmp_path_factory, "installed", install) / "venv")


@pytest.fixture
def campaign(installed: Installed, tmp_path: Path) -> Path:
    """A folder from `clockwatt init` with the small campaign."""
    made = installed.run("clockwatt", "init", "campaign", at=tmp_path)
    assert made.returncode == 0, made.stdout
    (tmp_path / "campaign" / "config" / "config.yaml").write_text(yaml.safe_dump(SMALL))
    return tmp_path / "campaign"


def test_the_package_and_all_that_it_ships_lie_in_the_environment(installed, tmp_path):
    code = tmp_path / "told.py"
    code.write_text(
        "import clockwatt; from clockwatt.io.resources import resource, workflow_folder\n"
        "print(clockwatt.__file__, workflow_folder(), resource('gpus.yaml'), resource('predictors'), sep='\\n')"
    )
    said = installed.run("told", at=tmp_path)
    assert said.returncode == 0, said.stdout
    paths = [Path(line) for line in said.stdout.splitlines()]
    assert all(path.is_relative_to(installed.folder) and path.exists() for path in paths)
    for script in ("status/sacct", "submit/sbatch"):
        assert os.access(paths[1] / "workflow" / "slurm" / script, os.X_OK)


@pytest.mark.parametrize("command", ["predict", "recommend"])
def test_questions_are_answered_right_after_installation(installed, tmp_path, command):
    said = installed.run("clockwatt", command, "resnet50", "--gpu", "h200", "--json", at=tmp_path)
    assert said.returncode == 0, said.stdout
    answer = json.loads(said.stdout)
    best = answer["best"] if command == "recommend" else answer
    assert best["network_id"] == "resnet50-32x3x224x224-float32"
    assert best["predictors"].startswith("shipped with clockwatt")
    low, high = best["intervals"]["time_s"]
    assert 0.003 < low < best["expected"]["time_s"] < high < 0.009  # 5.29 ms were measured


def test_the_slurm_profile_is_found_there(installed, campaign):
    planned = installed.run("snakemake", "--profile", "slurm", "--dry-run", "--nocolor", at=campaign)
    assert planned.returncode == 0, planned.stdout[-3000:]
    assert "measure_networks" in planned.stdout
