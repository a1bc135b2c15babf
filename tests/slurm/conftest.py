from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from attacks import Outcome, outcomes_of
from clocks_node import HELPER, ClocksNode, clocks_node, run
from harness import SlurmCluster

CLUSTERS = pytest.StashKey[list[SlurmCluster]]()


def cluster(session: pytest.Session, accounting: bool) -> Iterator[SlurmCluster]:
    root = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))  # not pytest's: a socket's path is short
    root.chmod(0o755)
    with SlurmCluster(root, accounting=accounting) as started:
        session.stash.setdefault(CLUSTERS, []).append(started)
        yield started
    shutil.rmtree(root)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Add to a failure what the clusters say of themselves: their nodes, their jobs, the end of their logs."""
    report = yield
    if report.failed:
        report.sections += [(str(one.root), one.told()) for one in item.session.stash.get(CLUSTERS, [])]
    return report


# one of each for all files: starting Slurm with its database takes longer than most tests
@pytest.fixture(scope="session")
def accounting_cluster(request: pytest.FixtureRequest) -> Iterator[SlurmCluster]:
    yield from cluster(request.session, accounting=True)


@pytest.fixture(scope="session")
def plain_cluster(request: pytest.FixtureRequest) -> Iterator[SlurmCluster]:
    yield from cluster(request.session, accounting=False)


@pytest.fixture(scope="session")
def _clocks_node() -> Iterator[ClocksNode]:
    with clocks_node() as started:
        yield started


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, _clocks_node: ClocksNode) -> dict[str, Outcome]:
    """What came of the ATTACKS of a module."""
    return outcomes_of(_clocks_node, request.module.ATTACKS)


@pytest.fixture
def node(_clocks_node: ClocksNode) -> Iterator[ClocksNode]:
    """A node with the helper installed and nothing set; whatever a test leaves is cleared away."""
    _clocks_node.reset_cards()
    _clocks_node.configure()
    yield _clocks_node
    _clocks_node.cancel_all()
    _clocks_node.reset_cards()
    run([HELPER, "restore", "all"])
    if "drain" in _clocks_node.node_state():  # where a test has failed
        _clocks_node.resume()
