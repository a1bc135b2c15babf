from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slurm", action="store_true", help="run the tests that start a real Slurm (as root)")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slurm: starts a real Slurm; runs with --slurm")
    config.addinivalue_line("markers", "undisturbed: needs a core of its own, so not beside other tests")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave tests of Slurm out unless they are asked for; asked for, they fail where Slurm cannot start."""
    if config.getoption("--slurm"):
        return
    left_out = [item for item in items if item.get_closest_marker("slurm")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
