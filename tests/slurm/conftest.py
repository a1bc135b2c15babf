from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import SlurmCluster


def cluster(accounting: bool) -> Iterator[SlurmCluster]:
    root = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))  # not pytest's: a socket's path is short
    root.chmod(0o755)
    with SlurmCluster(root, accounting=accounting) as started:
        yield started
    shutil.rmtree(root)


@pytest.fixture(scope="module")
def accounting_cluster() -> Iterator[SlurmCluster]:
    yield from cluster(accounting=True)


@pytest.fixture(scope="module")
def plain_cluster() -> Iterator[SlurmCluster]:
    yield from cluster(accounting=False)
