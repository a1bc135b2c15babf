from __future__ import annotations

import signal

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slurm", action="store_true", help="run the tests that start a real Slurm (as root)")


def pytest_configure(config: pytest.Config) -> None:
    # under nohup, or in the background of a script, they are ignored, and by every process that a test starts
    for number, handler in ((signal.SIGHUP, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, handler)
    config.addinivalue_line("markers", "slurm: starts a real Slurm; runs with --slurm")
    config.addinivalue_line("markers", "undisturbed: needs a core of its own, so not beside other tests")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave tests of Slurm out unless they are asked for; asked for, they fail where Slurm cannot start.

    Those of the workflow, whose files take longest, come first: of files that are dealt out to processes, short ones
    are to be left for the end.
    """
    items.sort(key=lambda item: "workflow" not in item.path.relative_to(config.rootpath / "tests").parts[:1])
    if config.getoption("--slurm"):
        return
    left_out = [item for item in items if item.get_closest_marker("slurm")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
