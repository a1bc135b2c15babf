"""Attacks on the helper by odd callers: orphans, half-dead processes, a full cgroup, a folder with Slurm's words."""

from __future__ import annotations

import pytest
from attacks import MISCONFIGURED, NOT_PERMITTED, REFUSED_BY_SUDO, USAGE, Attack, check_refused
from clocks_node import CONFIGURATION, HELPER, run, wait_for

pytestmark = pytest.mark.slurm

ATTACKS = [
    Attack("sudo by the name of sudoedit", "(exec -a sudoedit sudo -n $HELPER)", REFUSED_BY_SUDO),
    Attack("a shell of root's that runs it", "sudo -n -s $HELPER lock $GPU1 900", REFUSED_BY_SUDO),
    Attack("its groups kept", "sudo -n -P $HELPER lock $GPU1 900", NOT_PERMITTED),
    Attack("a terminal of its own", 'script -qec "sudo -n $HELPER lock $GPU1 900" /dev/null', NOT_PERMITTED),
    Attack("an endless input", "yes | sudo -n $HELPER lock $GPU1 900; exit ${PIPESTATUS[1]}", NOT_PERMITTED),
    Attack("an empty word behind", 'sudo -n $HELPER lock $GPU1 900 ""', USAGE),
    Attack(
        "a program that is gone",
        "cd $(mktemp -d); cp $(command -v bash) gone; ./gone -c 'rm gone; sudo -n $HELPER lock $GPU1 900; exit $?'",
        NOT_PERMITTED,
    ),
    Attack(
        "a program of its own that is setuid",
        "cd $(mktemp -d); cp $(command -v bash) own; chmod 4755 own; "
        "./own -c 'sudo -n $HELPER lock $GPU1 900; exit $?'",
        NOT_PERMITTED,
    ),
]

AS_A_THREAD = f"""
import ctypes, os, subprocess, sys, threading, time
def call():
    while open(f"/proc/{{os.getpid()}}/stat").read().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.01)
    code = subprocess.run(["sudo", "-n", "{HELPER}", "lock", os.environ["GPU0"], "900"]).returncode
    print("code", code, flush=True)
    os._exit(0)
threading.Thread(target=call).start()
ctypes.CDLL(None).pthread_exit(None)
"""
"""A process whose first thread has ended: the kernel calls it a zombie while it runs."""

UNREAPED = f"""
import os, subprocess, time
if os.fork() == 0:
    code = subprocess.run(["sudo", "-n", "{HELPER}", "lock", os.environ["GPU0"], "900"]).returncode
    time.sleep(1)
    os._exit(code)
time.sleep(600)
"""
"""A caller that has ended, and whose parent does not ask."""

HUNGRY = """
import time
taken = []
try:
    while True:
        taken.append(bytearray(b"x" * 2**20))
        if len(taken) > 285:
            time.sleep(30)
except MemoryError:
    time.sleep(30)
"""


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_an_attack_is_refused_and_changes_nothing(outcomes, attack):
    check_refused(outcomes, attack)


def test_a_call_whose_caller_has_gone_sets_nothing(node):
    """Nobody could be watched: the nearest ancestor is init."""
    call = "sleep 1; exec sudo -n $HELPER lock $GPU0 900 >$told 2>&1"
    said = "for _ in {1..600}; do test -s $told && break; sleep 0.1; done; cat $told"
    done = node.run("cw_alice", f"export told=$(mktemp); setsid bash -c '({call}) & exit'; {said}")
    assert '"ok": false' in done.stdout
    assert "no process of this user and job has called sudo" in done.stdout
    assert node.is_restored(0)


def test_a_caller_whose_first_thread_has_ended(node):
    """It may be refused, or be let and put back: it keeps nothing."""
    done = node.run("cw_alice", f"timeout 300 /usr/bin/python3 -c '{AS_A_THREAD}'")
    assert f"code {NOT_PERMITTED}" in done.stdout, done.stdout + done.stderr
    assert node.is_restored(0)


def test_a_caller_that_has_ended_and_is_not_asked_after(node):
    """A zombie holds no GPU: its clock is put back while its job goes on."""
    job = node.start("cw_alice", f"exec /usr/bin/python3 -c '{UNREAPED}'")
    wait_for(lambda: node.cards[0].settings_made > 0)
    node.wait_restored()
    assert job.poll() is None
    node.cancel_all()
    job.communicate(timeout=300)


def test_a_job_that_has_no_memory_left(node):
    """Whatever the kernel kills for want of memory in the job's cgroup: no setting outlives it, and no keeper."""
    call = "for i in {1..8}; do sudo -n $HELPER lock $GPU0 900; sleep 0.3; done"
    done = node.run("cw_alice", f"/usr/bin/python3 -c '{HUNGRY}' & sleep 3; {call}")
    assert "Traceback" not in done.stdout
    node.wait_restored()
    wait_for(lambda: node.keepers() == [])
    assert "drain" not in node.node_state()


@pytest.mark.parametrize("forged", ["JobState=RUNNING", "JOB_GRES=gpu:2\n     Nodes=NODE CPU_IDs=0 Mem=1 GRES=gpu:2"])
def test_a_folder_whose_name_reads_like_slurms_description(node, forged):
    """Slurm prints the folder and the output file of a job as their names are, line breaks included."""
    folder = node.cluster.root / "forged" / f"x\n   {forged.replace('NODE', node.cluster.node)}"
    folder.mkdir(parents=True, exist_ok=True)
    script = node.cluster.root / "forged.sh"
    script.write_text(f"#!/bin/bash\nsudo -n {HELPER} lock {node.uuids[0]} 900\necho code $?\n")
    script.chmod(0o755)
    told = node.cluster.root / "forged.out"
    told.touch(mode=0o666)
    told.chmod(0o666)
    options = ("--mem=300", "--gres=gpu:a30:1", "--wait", f"--chdir={folder}", f"--output={told}")
    run(node.as_user("cw_alice", "sbatch", *options, str(script)))
    assert f"code {NOT_PERMITTED}" in told.read_text()
    assert "by 2 lines" in told.read_text()
    assert node.is_restored(0)


def test_users_that_are_named_on_a_node_of_slurms_may_set_nothing_in_a_job_or_out_of_one(node):
    made = [node.nvml.card(index).settings_made for index in range(2)]
    before = CONFIGURATION.read_text()
    CONFIGURATION.write_text(before.replace("slurm_directory", "users = cw_alice cw_bob\n#"))
    try:
        call = f"sudo -n {HELPER} lock {node.uuids[0]} 900"
        outside = run(node.as_user("cw_alice", "bash", "-c", f"{call}\nexit $?"))
        inside = node.run("cw_bob", call)
    finally:
        CONFIGURATION.write_text(before)
    for done in (outside, inside):
        assert done.returncode == MISCONFIGURED, done.stdout
        assert "users is for machines without Slurm" in done.stdout
    assert [node.nvml.card(index).settings_made for index in range(2)] == made
