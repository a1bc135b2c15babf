"""Attacks by cgroups v1: below a job's step the job's user makes folders, freezes what is in them, moves processes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from attacks import NOT_PERMITTED
from clocks_node import HELPER, RESTORED, kill, run, wait_for
from harness import CGROUPS

pytestmark = pytest.mark.slurm

STEP = "$(grep :%s: /proc/self/cgroup | cut -d: -f3)"
FREEZER = "freezer=/sys/fs/cgroup/freezer" + STEP % "freezer"
DEVICES = "devices=/sys/fs/cgroup/devices" + STEP % "devices"
BELOW = f"{FREEZER}/below; mkdir $freezer; "


def within(folder, script):
    """Run a Bash script in a folder of the freezer or of another controller, which is removed afterwards."""
    return f"(echo $BASHPID >{folder}/cgroup.procs || exit 99; {script}); code=$?; rmdir {folder}; exit $code"


def end_below(node):
    """End what is below a step, which Slurm neither sees nor kills, and waits for for a minute."""
    for folder in (CGROUPS / "freezer").glob(f"slurm_{node.cluster.node}/uid_*/job_*/step_*/*/"):
        (folder / "freezer.state").write_text("THAWED")
        for pid in (folder / "cgroup.procs").read_text().split():
            kill(int(pid))
        wait_for(lambda folder=folder: not (folder / "cgroup.procs").read_text())
        folder.rmdir()


@pytest.fixture(autouse=True)
def tidy(node) -> Iterator[None]:
    yield
    end_below(node)


def test_a_call_from_a_folder_below_the_step_is_refused(node):
    done = node.run("cw_alice", BELOW + within("$freezer", "sudo -n $HELPER lock $GPU0 900; exit $?"))
    assert done.returncode == NOT_PERMITTED, done.stdout + done.stderr
    assert node.cards[0].settings_made == 0


@pytest.mark.parametrize("controller", ["devices", "memory", "cpuset"])
def test_a_call_from_a_folder_of_another_controller_below_the_step_is_refused(node, controller):
    """There its user limits what root's process may use, and has it wait for memory without end."""
    folder = f"/sys/fs/cgroup/{controller}{STEP % controller}"
    copy = "for file in cpus mems; do cat $folder/../cpuset.$file >$folder/cpuset.$file; done 2>/dev/null; "
    for name in ("below", "task_9"):
        make = f"folder={folder}/{name}; mkdir $folder; {copy}"
        done = node.run("cw_alice", make + within("$folder", "sudo -n $HELPER lock $GPU0 900; exit $?"))
        assert done.returncode == NOT_PERMITTED, (name, done.stdout + done.stderr)
    assert node.cards[0].settings_made == 0


def test_calls_that_were_frozen_do_not_set_the_gpu_of_the_next_job(node):
    """They wait for the lock with their proofs behind them, outlive their job frozen, and go on in another user's."""
    node.cards[0].setting_us = 400_000
    calls = "for _ in {1..6}; do sudo -n $HELPER lock $GPU0 225 & done; wait"
    caller = f"(echo $BASHPID >$freezer/cgroup.procs; sudo -n $HELPER lock $GPU0 900; echo held; {calls}) 2>&1 | cat"
    job = node.start("cw_alice", f"{BELOW} {caller}")
    first = job.stdout.readline()
    while job.stdout.readline() != "held\n":
        pass
    wait_for(lambda: node.cards[0].settings_made > 1 or '"ok": false' in first)
    number = node.cluster.command("squeue", "-h", "-o", "%i").stdout.strip()
    (folder,) = (CGROUPS / "freezer").glob(f"slurm_*/uid_*/job_{number}/step_0/below")
    (folder / "freezer.state").write_text("FROZEN")
    node.cancel_all()
    if "drain" in node.node_state():
        node.resume()
    with node.holding("cw_bob", "true"):
        node.reset_cards()
        (folder / "freezer.state").write_text("THAWED")
        wait_for(lambda: not (folder / "cgroup.procs").read_text())
        assert (node.settings(0), node.cards[0].settings_made) == (RESTORED, 0)
    job.communicate(timeout=300)


def test_a_holder_that_leaves_the_step_loses_its_lease(node):
    """Slurm does not kill it at the end of its job: without prolog and epilog the GPU would stay as it is."""
    leave = "echo $$ >$freezer/cgroup.procs"
    with node.holding("cw_alice", f"{BELOW} sudo -n $HELPER lock $GPU0 900 >/dev/null; {leave}"):
        node.wait_restored()
        wait_for(lambda: node.keepers() == [])
        end_below(node)


def test_a_holder_whose_first_thread_has_ended_and_the_others_are_frozen_loses_its_lease(node):
    thread = f"""
import ctypes, os, subprocess, threading, time
def stay():
    open(os.environ["freezer"] + "/tasks", "w").write(str(threading.get_native_id()))
    time.sleep(600)
threading.Thread(target=stay).start()
print(subprocess.run(["sudo", "-n", "{HELPER}", "lock", os.environ["GPU0"], "900"]).returncode, flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""
    job = node.start("cw_alice", f"{BELOW} export freezer; exec /usr/bin/python3 -c '{thread}'")
    wait_for(lambda: node.cards[0].settings_made > 0)
    node.wait_restored()
    assert job.poll() is None
    end_below(node)
    node.cancel_all()
    job.communicate(timeout=300)


def test_a_process_from_outside_of_any_job_that_is_moved_into_folders_of_one_is_refused(node):
    folders = f"{BELOW} {DEVICES}/below; mkdir $devices"
    with node.holding("cw_alice", folders):
        freezer, devices = ((CGROUPS / name).glob("slurm_*/uid_*/job_*/**/below") for name in ("freezer", "devices"))
        enter = "".join(f"echo $$ >{path}/cgroup.procs || exit 99; " for path in (*freezer, *devices))
        done = run(node.as_user("cw_alice", "bash", "-c", f"{enter} sudo -n $HELPER lock $GPU0 900; exit $?"))
        assert done.returncode == NOT_PERMITTED, done.stdout + done.stderr
    assert node.cards[0].settings_made == 0


@pytest.mark.parametrize("words", [["--pid", "--mount-proc"], ["--cgroup"]])
def test_a_call_from_another_namespace_is_refused(node, words):
    """Pids and paths mean other processes and jobs there, and killing the first process there kills the keeper."""
    with node.holding("cw_alice", "true"):
        job = node.cluster.command("squeue", "-h", "-o", "%i").stdout.strip()
        folders = CGROUPS.glob(f"*/slurm_{node.cluster.node}/uid_*/job_{job}/step_0")
        enter = "".join(f"echo $$ >{path}/cgroup.procs; echo $$ >{path}/task_0/cgroup.procs; " for path in folders)
        call = " ".join(node.as_user("cw_alice", "bash", "-c", f"'sudo -n {HELPER} lock {node.uuids[0]} 900; exit $?'"))
        done = run(["bash", "-c", f"exec 2>/dev/null; {enter} unshare --fork {' '.join(words)} {call}"])
        assert done.returncode == NOT_PERMITTED, done.stdout + done.stderr
        assert "namespace" in done.stdout
    assert node.cards[0].settings_made == 0
