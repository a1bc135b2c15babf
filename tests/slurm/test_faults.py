"""A campaign that is disturbed gives what an undisturbed one gives; `benchmarks/faults.py` makes many more faults."""

from __future__ import annotations

import random
import shutil
import tempfile
from pathlib import Path

import pytest
from fault_run import disturb

pytestmark = pytest.mark.slurm

CAMPAIGN = {
    "gpus": {
        "a30": {
            "device": "virtual:a30", "clocks_mhz": [900], "tf32": False,
            "slurm": {"gres": "gpu:a30:1", "cpus_per_task": 1, "mem_mb": 1200, "runtime": 10},
        },
    },
    "passes": ["inference"],
    "telemetry": {"segment_s": 0.6},
}  # fmt: skip
FAULTS = ("edit", "kill_worker", "flip")


def test_a_disturbed_campaign_ends_with_the_dataset_of_an_undisturbed_one(accounting_cluster):
    root = Path(tempfile.mkdtemp(prefix="faults-", dir="/tmp"))  # not pytest's: the daemons look into it
    root.chmod(0o755)
    (outcome,) = disturb(root, accounting_cluster, CAMPAIGN, [FAULTS], random.Random(0), 0.5, traced=True)
    assert outcome.made.total() == len(FAULTS)
    shutil.rmtree(root)
