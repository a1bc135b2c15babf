"""What cgroup v2 makes different of the helper: run by `tests/slurm/test_helper_v2.py` in a virtual machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from attacks import NOT_PERMITTED
from clocks_node import kill, lease_of, run, wait_for
from slurm_files import CGROUPS

LOCK = "sudo -n $HELPER lock $GPU0 900"
TASK = "task=/sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup); "
BELOW = "mkdir $task/below; trap 'code=$?; rmdir $task/below; exit $code' EXIT;"
DENIED = 1


def step(node) -> Path:
    """The folder of the running job's step; of jobs before, a folder may be left that a user made."""
    (job,) = node.cluster.command("squeue", "-h", "-o", "%i").stdout.split()
    (folder,) = CGROUPS.glob(f"system.slice/*/job_{job}/step_0")
    return folder


@pytest.fixture
def task(node) -> Iterator[Path]:
    """The folder of a running job's task, with a folder `below` that root made."""
    with node.holding("cw_alice", "true"):
        folder = step(node) / "user" / "task_0"
        (folder / "below").mkdir()
        yield folder
        for pid in (folder / "below" / "cgroup.procs").read_text().split():
            kill(int(pid))
        wait_for(lambda: not (folder / "below" / "cgroup.procs").read_text())
        (folder / "below").rmdir()


def from_outside(node, folder: Path, before: str = "") -> CompletedProcess[str]:
    """What comes of alice's call from a process that root moves from outside of any job into a folder."""
    enter = f"echo $$ >{folder}/cgroup.procs || exit 99"
    call = " ".join(node.as_user("cw_alice", "bash", "-c", f"'{LOCK}; exit $?'"))
    return run(["bash", "-c", f"{enter}; {before} {call}"])


def test_a_job_sets_its_gpu_and_its_end_puts_it_back(node):
    with node.holding("cw_alice", f"{LOCK} >/dev/null"):
        assert node.settings(0)[0] == 900
        assert len(node.keepers()) == 1
    node.wait_restored()
    wait_for(lambda: node.keepers() == [])


def test_a_gpu_that_the_job_does_not_hold_is_refused(node):
    assert node.run("cw_alice", "sudo -n $HELPER lock $GPU1 900").returncode == NOT_PERMITTED
    assert node.cards[1].settings_made == 0


@pytest.mark.parametrize(
    "attack",
    [
        f"{BELOW} echo $BASHPID >$task/below/cgroup.procs",
        f"{BELOW} echo 1 >$task/below/cgroup.freeze; echo $BASHPID >$task/below/cgroup.procs",
        f"{BELOW} unshare --user --map-root-user --cgroup sh -c 'echo $$ >$0/cgroup.procs' $task/below",
        f"{BELOW} echo threaded >$task/below/cgroup.type; echo $BASHPID >$task/below/cgroup.threads",
        "echo +pids >$task/cgroup.subtree_control",
        "mkdir ${task%/user/task_0}/below",
        "echo $BASHPID >${task%/user/*}/cgroup.procs",
        "echo 1 >$task/cgroup.freeze",
        "echo 1 >${task%/user/task_0}/cgroup.freeze",
        "chmod 666 $task/cgroup.procs",
    ],
)
def test_a_user_freezes_nothing_and_moves_into_no_folder_of_the_job(node, attack):
    """Slurm 22.05 gives the task's folder to the job's user, who can make folders there, and not its cgroup.procs."""
    done = node.run("cw_alice", f"{TASK}{attack}")
    assert done.returncode == DENIED, done.stdout + done.stderr


def test_a_call_from_below_the_task_is_refused(node, task):
    assert from_outside(node, task / "below").returncode == NOT_PERMITTED
    assert node.cards[0].settings_made == 0
    assert from_outside(node, task).returncode == 0  # root has made it a process of the job
    node.wait_restored()


def test_a_call_from_the_step_outside_of_its_task_is_refused(node):
    with node.holding("cw_alice", "true"):
        assert from_outside(node, step(node) / "slurm").returncode == NOT_PERMITTED
    assert node.cards[0].settings_made == 0


@pytest.mark.parametrize("words", ["--pid --mount-proc", "--cgroup"])
def test_a_call_from_another_namespace_is_refused(node, task, words):
    done = from_outside(node, task, f"unshare --fork {words}")
    assert (done.returncode, "namespace" in done.stdout) == (NOT_PERMITTED, True), done.stdout + done.stderr
    assert node.cards[0].settings_made == 0


def test_a_holder_that_leaves_the_step_loses_its_lease(node):
    with node.holding("cw_alice", f"{LOCK} >/dev/null"):
        holder, _ = lease_of(node.uuids[0])["holder"]
        (CGROUPS / "cgroup.procs").write_text(str(holder))
        node.wait_restored()
        kill(holder)
