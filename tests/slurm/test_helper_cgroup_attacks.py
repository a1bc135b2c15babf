"""Attacks on the helper by folders of cgroups, threads, namespaces and options of sudo, beside another user's job."""

from __future__ import annotations

import pytest
from attacks import NOT_PERMITTED, REFUSED_BY_SUDO, USAGE, Attack, check_refused

pytestmark = pytest.mark.slurm

DENIED = 1
STEP = "step=/sys/fs/cgroup/freezer$(grep :freezer: /proc/self/cgroup | cut -d: -f3); "
DEVICES = "devices=/sys/fs/cgroup/devices$(grep :devices: /proc/self/cgroup | cut -d: -f3); "
OTHER = "other=$(ls -d /sys/fs/cgroup/freezer/slurm_*/uid_$(id -u cw_bob)/job_*/step_0); test -d $other || exit 9; "
OTHERS_JOB = f"{OTHER} job=${{other%/step_0}}; job=${{job##*_}}; "
LOCK0, LOCK1 = "sudo -n $HELPER lock $GPU0 900", "sudo -n $HELPER lock $GPU1 900"


def below(name: str, call: str = LOCK0) -> str:
    """Script that makes a folder below its step, runs a call there, and removes it."""
    enter = "echo $BASHPID >$step/$top/cgroup.procs" if "/" not in name else f"echo $BASHPID >$step/{name}/cgroup.procs"
    remove = f"(cd $step; rmdir -p {name})"
    return f"{STEP} top={name}; mkdir -p $step/{name}; ({enter} || exit 9; {call}); code=$?; {remove}; exit $code"


THREAD = """
import os, subprocess, sys, threading
step, place, call = sys.argv[1:]
os.mkdir(step + "/thread")
def move():
    with open(step + "/thread/tasks", "w") as tasks:
        tasks.write(str(threading.get_native_id()))
def run():
    global code
    if place == "caller":
        move()
    code = subprocess.run(["sh", "-c", call + "; exit $?"] if place == "caller" else call.split()).returncode
if place == "main":
    move()
thread = threading.Thread(target=run)
thread.start()
thread.join()
os._exit(code)
"""


def threaded(place: str) -> str:
    """Script in which one thread of a process is below the step: the first, or the one that calls."""
    call = f"/usr/bin/python3 -c '{THREAD}' $step {place} \"sudo -n $HELPER lock $GPU0 900\""
    return f"{STEP} {call}; code=$?; rmdir $step/thread; exit $code"


ATTACKS = [
    Attack("a folder with the name of a step", below("step_0"), NOT_PERMITTED),
    Attack("a path like a job's below the step", below("slurm/uid_$UID/job_1/step_0"), NOT_PERMITTED),
    Attack("the other's GPU from below", below("below", LOCK1), NOT_PERMITTED),
    Attack("putting the other's GPU back from below", below("below", "sudo -n $HELPER reset $GPU1"), NOT_PERMITTED),
    Attack("a line break in a folder's name", f"{STEP} mkdir \"$step/x\"$'\\n6:freezer:/slurm'", DENIED),
    Attack("moving into the other's step", f"{OTHER} echo $BASHPID >$other/cgroup.procs", DENIED),
    Attack("a folder in the other's step", f"{OTHER} mkdir $other/below", DENIED),
    Attack("freezing the other's step", f"{OTHER} echo FROZEN >$other/freezer.state", DENIED),
    Attack("freezing its own step", f"{STEP} echo FROZEN >$step/freezer.state", DENIED),
    Attack("opening its own step to others", f"{STEP} chmod 666 $step/cgroup.procs", DENIED),
    Attack("renaming its step", f"{STEP} mv $step ${{step%_0}}_9", DENIED),
    Attack("another task's folder", f"{DEVICES} mv $devices ${{devices%_0}}_7; {LOCK1}", NOT_PERMITTED),
    Attack("more devices", f"{DEVICES} mkdir $devices/x; echo 'c *:* rwm' >$devices/x/devices.allow; code=$?; "
           "rmdir $devices/x; exit $code", DENIED),
    Attack("a program for the end of a folder", "echo /bin/sh >/sys/fs/cgroup/freezer/release_agent", DENIED),
    Attack("the calling thread below", threaded("caller"), NOT_PERMITTED),
    Attack("the first thread below", threaded("main"), NOT_PERMITTED),
    Attack("a namespace of pids", f"unshare --user --map-root-user --pid --fork {LOCK1}", REFUSED_BY_SUDO),
    Attack("a step in the other's job", f"{OTHERS_JOB} srun --quiet --overlap --jobid=$job true", DENIED),
    Attack("giving the other's job another time", f"{OTHERS_JOB} scontrol update JobId=$job TimeLimit=1", DENIED),
    Attack("sudo's user -1", "sudo -n -u#-1 $HELPER lock $GPU1 900", REFUSED_BY_SUDO),
    Attack("sudo on another host", "sudo -n -h elsewhere $HELPER lock $GPU1 900", REFUSED_BY_SUDO),
    Attack("sudo's timeout", "sudo -n -T 1 $HELPER lock $GPU1 900", REFUSED_BY_SUDO),
    Attack("SUDO_UID removed by env", "sudo -n env -u SUDO_UID $HELPER restore all", REFUSED_BY_SUDO),
    Attack("a path through proc", "sudo -n /proc/self/root$HELPER lock $GPU1 900", NOT_PERMITTED),
    Attack("a UUID with a wide digit", "sudo -n $HELPER lock ${GPU1/0/０} 900", USAGE),
    Attack("a name like a lock's", "ln -s /etc/passwd /run/clockwatt/$GPU1.lock", DENIED),
]  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_an_attack_is_refused_and_changes_nothing(outcomes, attack):
    check_refused(outcomes, attack)
