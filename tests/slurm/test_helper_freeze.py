"""A holder that is stopped, limited or starved holds up nobody, and leaves no process of root's behind."""

from __future__ import annotations

import fcntl
import os
import subprocess
import time
from pathlib import Path

import psutil
import pytest
from attacks import SYSTEM
from clocks_node import HELPER, LEASES, kill, lease_of, run, wait_for

pytestmark = pytest.mark.slurm

RESTORE = "/etc/clockwatt/slurm-restore"


def is_locked(uuid):
    """Whether a call is in the middle of changing a GPU."""
    with (LEASES / f"{uuid}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def any_is_frozen(user):
    """Whether the signal has come, which on a busy machine takes a second: Slurm freezes the job for it."""
    processes = psutil.process_iter(["username", "status"])
    return any(one.info["username"] == user and one.info["status"] == psutil.STATUS_DISK_SLEEP for one in processes)


def stop_in_the_middle(node, uuid):
    """Have Slurm stop and continue all of alice's processes until a call of the helper is stopped with the lock."""
    deadline = time.monotonic() + 300
    while True:
        node.cluster.command("scancel", "--user=cw_alice", "--signal=STOP")
        wait_for(lambda: any_is_frozen("cw_alice"))
        time.sleep(0.3)
        if is_locked(uuid):
            return
        assert time.monotonic() < deadline, "no call was stopped in the middle"
        node.cluster.command("scancel", "--user=cw_alice", "--signal=CONT")
        time.sleep(0.1)


def test_a_stopped_call_holds_up_no_prolog_and_no_other_job(node):
    node.cards[0].setting_us = 300_000
    with node.holding("cw_alice", "(while true; do sudo -n $HELPER lock $GPU0 900; done >/dev/null) & sleep 1"):
        wait_for(lambda: (LEASES / f"{node.uuids[0]}.lock").exists())
        stop_in_the_middle(node, node.uuids[0])
        done = run(node.job("cw_bob", "sudo -n $HELPER lock $GPU1 600", gpu=1), timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        start = time.monotonic()
        assert run(["env", "SLURM_JOB_ID=999999", RESTORE]).returncode == 0
        assert time.monotonic() - start < 5  # it takes 0.1 s, and 5 s more if it waits for a lock of another job's
        assert is_locked(node.uuids[0])
        assert "drain" not in node.node_state()
    node.wait_restored()
    assert "drain" not in node.node_state()


def test_a_restore_of_its_own_job_ends_who_has_the_lock_and_fails_where_that_is_in_vain(node):
    with node.holding("cw_alice", "sudo -n $HELPER lock $GPU0 900 >/dev/null"):
        job = str(lease_of(node.uuids[0])["job"])
        holder = subprocess.Popen(["flock", LEASES / f"{node.uuids[0]}.lock", "sleep", "600"])  # its child has it too
        wait_for(lambda: is_locked(node.uuids[0]))
        (child,) = Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text().split()
        start = time.monotonic()
        done = run(["env", f"SLURM_JOB_ID={job}", RESTORE], timeout=300)
        assert time.monotonic() - start > 19  # its own 5 s, and 15 s in which a keeper might have done it
        assert (done.returncode, holder.wait(timeout=60)) == (1, -9)
        kill(int(child))
        assert run(["env", f"SLURM_JOB_ID={job}", RESTORE]).returncode == 0
        assert node.is_restored(0)


@pytest.mark.parametrize("limit", ["-f 0", "-S -f 0"])
def test_a_limit_leaves_no_keeper_without_a_lease(node, limit):
    """Either the limit is undone, or the system refuses; where root lacks CAP_SYS_RESOURCE a hard limit stays."""
    calls = f'ulimit {limit}; for _ in 1 2 3 4 5; do sudo -n $HELPER lock $GPU0 900; echo "code $?"; done'
    job = node.start("cw_alice", f"{calls}; echo held; sleep 600")
    codes = []
    for line in job.stdout:
        if line.startswith("code "):
            codes.append(int(line.split()[1]))
        if line == "held\n":
            break
    leases = list(LEASES.glob("*.lease"))
    assert set(codes) in ({0}, {SYSTEM})
    assert len(leases) == (codes[0] == 0)
    wait_for(lambda: len(node.keepers()) == len(leases))
    if "-S" in limit:
        assert codes[0] == 0
    node.cancel_all()
    job.communicate(timeout=300)


def test_a_keeper_without_the_word_that_its_lease_is_written_ends(node):
    holder = subprocess.Popen(["sleep", "60"])
    pidfd = os.pidfd_open(holder.pid)
    try:
        keeper = subprocess.Popen(
            [HELPER, "keep", node.uuids[0], str(pidfd)], pass_fds=[pidfd], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, start_new_session=True, env={},
        )  # fmt: skip
        try:
            said, _ = keeper.communicate(timeout=120)
        finally:
            keeper.kill()
            keeper.wait()
        assert said.startswith(b"ready\n")
        assert keeper.returncode == 0
        assert node.cards[0].settings_made == 0
    finally:
        os.close(pidfd)
        holder.kill()
        holder.wait()


def test_a_keeper_inherits_no_priority_and_no_place_of_its_caller(node):
    """Starved by its own holder, it could not put the GPU back in time."""
    spoil = (
        "cd $(mktemp -d); echo 1000 >/proc/self/oom_score_adj; echo 9000000000 >/proc/self/timerslack_ns; "
        "taskset -p 1 $$ >/dev/null; renice -n 19 $$ >/dev/null; ionice -c 3 -p $$; chrt --idle -p 0 $$"
    )
    with node.holding("cw_alice", f"{spoil}; sudo -n $HELPER lock $GPU0 900 >/dev/null"):
        keeper, *_ = lease_of(node.uuids[0])["keeper"]
        proc = Path(f"/proc/{keeper}")
        fields = (proc / "stat").read_text().rpartition(")")[2].split()
        assert int(fields[16]) == 0  # nice
        assert int(fields[38]) == os.SCHED_OTHER
        assert os.sched_getaffinity(keeper) == os.sched_getaffinity(0)
        assert (proc / "oom_score_adj").read_text() == "0\n"
        assert (proc / "timerslack_ns").read_text() == "50000\n"
        assert (proc / "cwd").readlink() == Path("/")
        assert "idle" not in run(["ionice", "-p", str(keeper)]).stdout
        assert len(list((proc / "fd").iterdir())) <= 6


def test_a_reset_that_is_killed_leaves_no_keeper_until_its_caller_ends(node):
    """Killed when it had ended the lease and not yet the keeper, as where memory runs out."""
    with node.holding("cw_alice", "sudo -n $HELPER lock $GPU0 900"):
        assert len(node.keepers()) == 1
        (LEASES / f"{node.uuids[0]}.lease").unlink()
        wait_for(lambda: not node.keepers())
        again = node.run_beside("cw_alice", "sudo -n $HELPER lock $GPU0 600")
        assert again.returncode == 0, again.stdout
    node.wait_restored()
