"""Nothing stays set: whatever kills a job, the watchdog or the node, GPUs are soon as they were."""

from __future__ import annotations

import random
import re
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

import pytest
from clocks_node import HELPER, LEASES, REPOSITORY, RESTORED, ClocksNode, kill, lease_of, run, wait_for
from kill_runs import WAYS, kill_at_random

pytestmark = pytest.mark.slurm

HOLD_EVERYTHING = (
    "for setting in 'lock-memory 1215' 'lock 900' 'power-limit 120'; do "
    "set -- $setting; sudo -n $HELPER $1 $GPU0 $2 >/dev/null; done"
)
EVERYTHING = (900, 1215, 120_000)


def test_the_power_limit_that_was_before_comes_back(node):
    node.cards[0].limit_mw = 150_000
    with node.holding("cw_alice", HOLD_EVERYTHING):
        assert node.settings(0) == EVERYTHING
    wait_for(lambda: node.settings(0) == (0, 0, 150_000))


def test_a_reset_by_hand_ends_lease_and_keeper(node):
    said = node.run("cw_alice", HOLD_EVERYTHING + "; sudo -n $HELPER reset $GPU0; sudo -n $HELPER reset $GPU0").stdout
    assert '"reset": true' in said
    assert '"reset": false' in said
    assert node.settings(0) == RESTORED


def test_the_site_names_the_clock_that_gpus_go_back_to(node):
    node.configure(
        f"[site]\nslurm_directory = {node.cluster.root}\nlibrary = {node.cluster.root}/nvml/libnvidia-ml.so.1\n"
        f"device = {node.cluster.device_pattern}\n[gpu]\nsm_clock_mhz = none\n"
        "[gpu NVIDIA A30]\nsm_clock_mhz = 210-1440\nsite_sm_clock_mhz = 1200\n"
    )
    assert node.run("cw_alice", "sudo -n $HELPER lock $GPU0 900").returncode == 0
    wait_for(lambda: node.settings(0) == (1200, 0, 165_000))
    assert "allowed here: none" in node.run("cw_bob", "sudo -n $HELPER lock $GPU1 900", gpu=1).stdout


class TimedOut(NamedTuple):
    """A job that will run out of time, and its node, which nothing resets meanwhile."""

    node: ClocksNode
    job: subprocess.Popen[str]


@pytest.fixture(scope="module")
def timed_out(_clocks_node):
    """A job on the other GPU that runs into its time limit while the tests below run."""
    _clocks_node.reset_cards()
    _clocks_node.configure()
    job = _clocks_node.start("cw_bob", "sudo -n $HELPER lock $GPU1 600; sleep 600", "--time=1", gpu=1)
    wait_for(lambda: _clocks_node.settings(1)[0] == 600)
    yield TimedOut(_clocks_node, job)
    job.kill()
    job.communicate()


@pytest.mark.parametrize("seed", range(10))
def test_killed_at_a_random_moment(timed_out, seed):
    kill_at_random(timed_out.node, random.Random(seed), WAYS[seed % len(WAYS)])


def test_a_job_that_ran_out_of_time(timed_out):
    slurm = timed_out.node.cluster
    job = slurm.command("squeue", "-h", "-o", "%i", "--user=cw_bob").stdout.strip()
    slurm.command("scontrol", "update", f"JobId={job}", "EndTime=now")  # the shortest limit is a minute
    said, _ = timed_out.job.communicate(timeout=300)
    assert "TIME LIMIT" in said
    wait_for(lambda: not slurm.command("squeue", "-h").stdout.strip())
    timed_out.node.wait_restored(1)


def test_the_epilog_restores_where_the_keeper_was_killed(node):
    with node.holding("cw_alice", HOLD_EVERYTHING):
        kill(lease_of(node.uuids[0])["keeper"][0])
        time.sleep(0.2)
        assert node.settings(0) == EVERYTHING
    node.wait_restored()


def test_a_keeper_that_was_killed_is_replaced_by_the_next_call(node):
    calls = f"{HOLD_EVERYTHING}; read -r _ <$FIFO; sudo -n $HELPER lock $GPU0 600 >/dev/null"
    fifo = node.cluster.root / "fifo"
    run(["mkfifo", "-m", "666", str(fifo)])
    job = node.start("cw_alice", f"FIFO={fifo}; {calls}; echo held; sleep 600")
    wait_for(lambda: node.settings(0) == EVERYTHING)
    first = lease_of(node.uuids[0])["keeper"]
    kill(first[0])
    fifo.write_text("go\n")
    assert job.stdout.readline() == "held\n"
    assert lease_of(node.uuids[0])["keeper"] != first
    node.cancel_all()
    job.communicate(timeout=300)
    fifo.unlink()


def crash(node):
    """The node dies: slurmd, the job and the keeper are gone without a word, and the GPU stays as it was set."""
    job = node.start("cw_alice", f"{HOLD_EVERYTHING}; echo $$; exec sleep 600")
    pid = int(job.stdout.readline())
    assert node.settings(0) == EVERYTHING
    stepd = int(re.search(r"^PPid:\s*(\d+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)[1])
    node.cluster.stop_slurmd()
    kill(lease_of(node.uuids[0])["keeper"][0])
    kill(stepd)
    kill(pid)
    time.sleep(0.2)
    assert node.settings(0) == EVERYTHING
    return job


def come_back(node, job):
    """The node is there again, and Slurm has found out that its job is not."""
    node.cluster.command("scancel", "--user=cw_alice")
    node.cluster.start_slurmd()
    job.communicate(timeout=300)
    node.cancel_all()


def test_boot_restores_after_the_node_died(node):
    job = crash(node)
    (command,) = re.findall(
        r"^ExecStart=(.*)$", (REPOSITORY / "privileged/clockwatt-restore.service").read_text(), re.MULTILINE
    )
    assert run(command.split()).returncode == 0
    assert node.settings(0) == RESTORED
    come_back(node, job)


def test_prolog_restores_after_the_node_died(node):
    come_back(node, crash(node))
    assert node.run("cw_bob", "true", gpu=1).returncode == 0  # a job on another GPU already
    assert node.settings(0) == RESTORED


def test_the_prolog_leaves_alone_what_another_job_holds(node):
    with node.holding("cw_alice", HOLD_EVERYTHING):
        assert node.run("cw_bob", "true", gpu=1).returncode == 0
        assert node.settings(0) == EVERYTHING


def test_root_puts_right_a_damaged_lease(node):
    with node.holding("cw_alice", HOLD_EVERYTHING):
        kill(lease_of(node.uuids[0])["keeper"][0])
        (LEASES / f"{node.uuids[0]}.lease").write_text('{"uid": "0"')
        assert "damaged" in node.run_beside("cw_alice", "sudo -n $HELPER reset $GPU0").stdout
        assert run([HELPER, "restore", "all"]).returncode == 0
        assert node.settings(0) == RESTORED
