"""`clockwatt init`: a campaign's folder, whole or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from clockwatt import config
from clockwatt.errors import ClockwattError
from clockwatt.io.resources import workflow_folder
from clockwatt.workflow import campaign_folder
from clockwatt.workflow.snapshot import importable, package_of
from support import ready_snakemake

REPOSITORY = Path(__file__).parents[2]


def listed(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize("there", [True, False])
def test_the_folder_has_what_a_campaign_needs(tmp_path, there):
    target = tmp_path / "new" / "campaign"
    if there:
        target.mkdir(parents=True)
    written = campaign_folder.create(target)
    assert {Path("Snakefile"), Path("config/config.yaml"), Path("config/README.md"), Path("slurm")} <= set(written)
    assert config.load(target / "config" / "config.yaml").gpus
    assert (target / "slurm" / "config.yaml").read_bytes() == (REPOSITORY / "profiles/slurm/config.yaml").read_bytes()
    assert not [name for name in listed(target) if name.startswith(".init")]


def test_what_is_there_is_left_as_it_is(tmp_path):
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "config.yaml").write_text("mine")
    before = listed(tmp_path)
    with pytest.raises(ClockwattError, match="is not a new or empty folder"):
        campaign_folder.create(tmp_path)
    assert listed(tmp_path) == before
    assert (tmp_path / "config" / "config.yaml").read_text() == "mine"


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ClockwattError, match="is not a new or empty folder"):
        campaign_folder.create(tmp_path / "file")
    with pytest.raises(ClockwattError, match="cannot be written"):
        campaign_folder.create(tmp_path / "file" / "campaign")
    assert (tmp_path / "file").read_text() == "mine"


def test_what_fails_half_way_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(campaign_folder, "_COPIED", ("config", "no such folder"))
    with pytest.raises(ClockwattError, match="cannot be written"):
        campaign_folder.create(tmp_path / "campaign")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ClockwattError, match="cannot be written"):
        campaign_folder.create(tmp_path / "empty")
    assert listed(tmp_path) == ["empty"]


def test_snakemake_finds_the_rules_from_there(tmp_path):
    campaign_folder.create(tmp_path / "campaign")
    options = ["--dry-run", "--nocolor", "--profile", "slurm"]
    said = ready_snakemake.run(options, cwd=tmp_path / "campaign", environment=os.environ)
    assert said.returncode == 0, said.stdout
    jobs = {line.split()[0] for line in said.stdout.splitlines() if line.split()}
    assert {"campaign", "measure", "figures"} <= jobs, said.stdout


@pytest.mark.usefixtures("ready")
def test_the_command_says_what_it_wrote(tmp_path):
    command = [sys.executable, "-m", "clockwatt", "init", "campaign"]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    assert "campaign/config/config.yaml" in said.stdout.splitlines()
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert again.returncode == 1
    assert again.stderr.startswith("error: campaign: is not a new or empty folder")


def test_the_sources_of_a_checkout_are_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert workflow_folder() == REPOSITORY
    assert package_of(REPOSITORY) == REPOSITORY / "src" / "clockwatt"
    assert importable(REPOSITORY) == REPOSITORY / "src"
    assert listed(tmp_path) == []


def test_an_installed_package_is_importable_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shipped = tmp_path / "shipped"  # without sources beside it, as in an installed package
    folder = importable(shipped)
    assert [path.name for path in folder.iterdir()] == ["clockwatt"]
    assert (folder / "clockwatt").resolve() == REPOSITORY / "src" / "clockwatt"
    (folder / "clockwatt").unlink()
    (folder / "clockwatt").symlink_to(tmp_path)  # another installation's
    importable(shipped)
    assert (folder / "clockwatt").resolve() == REPOSITORY / "src" / "clockwatt"
