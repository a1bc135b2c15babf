"""A call that is frozen while it has the lock of a GPU holds up no epilog, and is named to the administrator."""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path

import pytest
from clocks_node import HELPER, LEASES, kill, run
from slurm_files import CGROUPS, V2

pytestmark = pytest.mark.slurm


@pytest.fixture
def frozen_call(node):
    """A process of root's that holds the lock of GPU 0 and is frozen."""
    folder = CGROUPS / ("" if V2 else "freezer") / f"frozen-{os.getpid()}"
    state, frozen, thawed = ("cgroup.freeze", "1", "0") if V2 else ("freezer.state", "FROZEN", "THAWED")
    folder.mkdir()
    LEASES.mkdir(mode=0o700, exist_ok=True)
    lock = LEASES / f"{node.uuids[0]}.lock"
    script = f"import fcntl, time; lock = open('{lock}', 'w'); fcntl.flock(lock, 2); print(flush=True); time.sleep(600)"
    with subprocess.Popen(["/usr/bin/python3", "-c", script], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        (folder / "cgroup.procs").write_text(str(process.pid))
        (folder / state).write_text(frozen)
        yield process
        kill(process.pid)
        (folder / state).write_text(thawed)
    folder.rmdir()


def test_the_epilog_puts_the_gpu_of_its_job_back_though_a_frozen_call_has_the_lock(node, frozen_call):
    lease = {"uid": 1, "job": 4711, "holder": [1, 1], "power_limit_mw": 150_000, "keeper": [0, 0], "settings": {}}
    path = LEASES / f"{node.uuids[0]}.lease"
    path.write_text(str(lease).replace("'", '"'))
    node.cards[0].locked_sm_mhz = 900
    start = time.monotonic()
    assert run(["env", "SLURM_JOB_ID=4711", "/etc/clockwatt/slurm-restore"]).returncode == 0
    assert time.monotonic() - start < 15
    assert node.settings(0) == (0, 0, 150_000)
    assert frozen_call.wait(timeout=60) == -9


def test_an_administrator_ends_a_frozen_call_that_has_the_lock_and_check_names_it(node, frozen_call):
    done = run([str(Path(__file__).parents[2] / "privileged/install.sh"), "--check"])
    assert re.search(rf"{node.uuids[0]}: .*process {frozen_call.pid} .*restore all", done.stdout), done.stdout
    refused = node.run("cw_alice", "sudo -n $HELPER lock $GPU0 900")
    assert "restore all" in refused.stdout
    assert run([HELPER, "restore", "all"]).returncode == 0
    assert frozen_call.wait(timeout=60) == -9
    assert node.run("cw_alice", "sudo -n $HELPER lock $GPU0 900").returncode == 0
