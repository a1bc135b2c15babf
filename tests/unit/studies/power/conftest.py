"""A study on a virtual GPU, small enough to be made once for all tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from clockwatt.studies.power.measure import measure_study
from support.power_study import campaign
from support.shared import made_once


@pytest.fixture(scope="session")
def study_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a study that was made; not to be changed."""
    return made_once(tmp_path_factory, "power", lambda folder: measure_study(campaign(), "a30", folder / "a30")) / "a30"
