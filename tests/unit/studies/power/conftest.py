"""A study on a virtual GPU, small enough to be made once for all tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from clockwatt.studies.power.measure import measure_study
from support.power_study import campaign


@pytest.fixture(scope="session")
def study_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a study that was made."""
    folder = tmp_path_factory.mktemp("power") / "a30"
    measure_study(campaign(), "a30", folder)
    return folder
