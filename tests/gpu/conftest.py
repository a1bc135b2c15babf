"""These tests run where there is a GPU, read it and leave its settings alone."""

from pathlib import Path

import pytest

from clockwatt.gpu.interface import GpuError, InstalledGpu
from clockwatt.gpu.registry import installed_gpus


def _found() -> list[InstalledGpu]:
    try:
        return installed_gpus()
    except GpuError:
        return []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mine = [item for item in items if Path(__file__).parent in item.path.parents]
    if mine and not _found():
        for item in mine:
            item.add_marker(pytest.mark.skip(reason="there is no NVIDIA GPU here"))


@pytest.fixture(scope="session")
def gpu_name() -> str:
    return _found()[0].name
