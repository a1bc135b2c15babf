"""A campaign that is disturbed gives what an undisturbed one gives; `benchmarks/faults.py` makes many more faults."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from faults import disturb

pytestmark = pytest.mark.slurm


def test_a_disturbed_campaign_ends_with_the_rows_of_an_undisturbed_one(accounting_cluster):
    root = Path(tempfile.mkdtemp(prefix="faults-", dir="/tmp"))  # not pytest's: the daemons look into it
    root.chmod(0o755)
    made = disturb(root, accounting_cluster, faults=8, seed=6, pause_s=2)
    assert made.total() == 8
    shutil.rmtree(root)
