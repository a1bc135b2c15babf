from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from support.shared import made_once
from support.workdir import Workdir


@pytest.fixture
def workdir(tmp_path: Path) -> Workdir:
    """An empty folder with the small campaign."""
    created = Workdir(tmp_path)
    created.configure()
    return created


@pytest.fixture(scope="session")
def finished_campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the small campaign ran through to its figures."""

    def run(folder: Path) -> None:
        created = Workdir(folder)
        created.configure()
        created.run()

    return made_once(tmp_path_factory, "finished", run)


@pytest.fixture
def finished(finished_campaign: Path, tmp_path: Path) -> Workdir:
    """A copy of the finished campaign's folder, to change."""
    shutil.copytree(finished_campaign, tmp_path / "campaign", copy_function=shutil.copy2)
    return Workdir(tmp_path / "campaign")
