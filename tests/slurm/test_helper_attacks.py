"""What a user may try with the helper, each from inside a real job of that user, through real sudo.

In each case another user's job holds GPU 1, locked at 600 MHz. Whatever the attacker does from a job on GPU 0, or from
outside of any, GPU 1 stays as it is and the helper answers with a documented exit code.
"""

from __future__ import annotations

import json
import os
import time

import pytest
from attacks import HELD, NOT_PERMITTED, NOT_SUPPORTED, REFUSED_BY_SUDO, USAGE, Attack, check_refused
from clocks_node import HELPER, LEASES, kill, lease_of, run, wait_for
from harness import CGROUPS

pytestmark = pytest.mark.slurm

ATTACKS = [
    Attack("another job's GPU", "sudo -n $HELPER lock $GPU1 900", NOT_PERMITTED),
    Attack("its memory clock", "sudo -n $HELPER lock-memory $GPU1 1215", NOT_PERMITTED),
    Attack("its power limit", "sudo -n $HELPER power-limit $GPU1 120", NOT_PERMITTED),
    Attack("resetting it", "sudo -n $HELPER reset $GPU1", NOT_PERMITTED),
    Attack("from a job without GPUs", "sudo -n $HELPER lock $GPU1 900", NOT_PERMITTED, gpu=None),
    Attack("an index instead of a UUID", "sudo -n $HELPER lock 1 900", USAGE),
    Attack(
        "CUDA_VISIBLE_DEVICES of the other", "CUDA_VISIBLE_DEVICES=$GPU1 sudo -n $HELPER lock $GPU1 900", NOT_PERMITTED
    ),
    Attack(
        "forged Slurm variables",
        "SLURM_JOB_ID=1 SLURM_JOB_GPUS=1 SLURM_STEP_GPUS=1 GPU_DEVICE_ORDINAL=1 sudo -n $HELPER lock $GPU1 900",
        NOT_PERMITTED,
    ),
    Attack("variables given to sudo", "sudo -n SUDO_UID=0 $HELPER lock $GPU1 900", REFUSED_BY_SUDO),
    Attack("all of its environment kept", "sudo -n -E $HELPER lock $GPU1 900", REFUSED_BY_SUDO),
    Attack("forged SUDO_UID", "SUDO_UID=0 sudo -n $HELPER lock $GPU1 900", NOT_PERMITTED),
    Attack(
        "a library of its own",
        "cd $(mktemp -d); printf 'int nvmlInit_v2(){return 0;}' | gcc -xc -shared -o libnvidia-ml.so.1 - && "
        "LD_PRELOAD=$PWD/libnvidia-ml.so.1 LD_LIBRARY_PATH=$PWD sudo -n $HELPER lock $GPU1 900",
        NOT_PERMITTED,
    ),
    Attack(
        "Python's variables",
        "cd $(mktemp -d); echo 'import os; os._exit(0)' >json.py; "
        "PYTHONPATH=$PWD PYTHONSTARTUP=$PWD/json.py PYTHONINSPECT=1 sudo -n $HELPER lock $GPU1 900",
        NOT_PERMITTED,
    ),
    Attack("another state of the driver", "STANDIN_NVML_STATE=/dev/full sudo -n $HELPER lock $GPU1 900", NOT_PERMITTED),
    Attack("another configuration as argument", "sudo -n $HELPER lock $GPU1 900 /tmp/clocks.ini", USAGE),
    Attack("options", "sudo -n $HELPER lock --gpu=$GPU1 900", USAGE),
    Attack("a path in the UUID", "sudo -n $HELPER lock ../../etc/$GPU1 900", USAGE),
    Attack("a line break behind the UUID", "sudo -n $HELPER lock \"$GPU1\"$'\\n' 900", USAGE),
    Attack("a shell's words", 'sudo -n $HELPER lock "$GPU1;id" "900|id"', USAGE),
    Attack("a negative clock", "sudo -n $HELPER lock $GPU0 -900", USAGE),
    Attack("a huge clock", "sudo -n $HELPER lock $GPU0 99999999999999999999", USAGE),
    Attack("digits of another script", "sudo -n $HELPER lock $GPU0 ٩٠٠", USAGE),
    Attack("a clock that is not supported", "sudo -n $HELPER lock $GPU0 901", NOT_SUPPORTED),
    Attack("a clock beyond the site's bounds", "sudo -n $HELPER lock $GPU0 1500", NOT_SUPPORTED),
    Attack("the administrator's verb", "sudo -n $HELPER restore all", REFUSED_BY_SUDO),
    Attack("the keeper's verb", "sudo -n $HELPER keep $GPU1 3", REFUSED_BY_SUDO),
    Attack("without sudo", "$HELPER lock $GPU1 900", NOT_PERMITTED),
    Attack(
        "the helper edited", "cp $HELPER $(mktemp -d) && sudo -n $_/clockwatt-clocks lock $GPU1 900", REFUSED_BY_SUDO
    ),
    Attack("a lease of its own", "mkdir -p /run/clockwatt; echo '{}' >/run/clockwatt/$GPU1.lease", 1),
    Attack("removing the lease", "rm -f /run/clockwatt/$GPU1.lease", 1),
    Attack(
        "a name like a job's cgroup",
        "mkdir -p /sys/fs/cgroup/devices/slurm/uid_1/job_1 /sys/fs/cgroup/unified/system.slice/slurmstepd.scope/job_1",
        1,
    ),
    Attack("moving out of its cgroup", "echo $$ >/sys/fs/cgroup/devices/cgroup.procs", 1),
    Attack(
        "a user namespace",
        "unshare --user --map-root-user --cgroup sudo -n $HELPER lock $GPU1 900",
        REFUSED_BY_SUDO,
    ),
    Attack("no_new_privs", "setpriv --no-new-privs sudo -n $HELPER lock $GPU1 900", REFUSED_BY_SUDO),
    Attack("a closed stream", "sudo -n $HELPER lock $GPU1 900 >&-", NOT_PERMITTED),
    Attack("a device node of its own", "mknod /tmp/cw_node c 1 7", 1),
]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_an_attack_is_refused_and_changes_nothing(outcomes, attack):
    check_refused(outcomes, attack)


@pytest.mark.parametrize("limit", ["-t 0", "-v 20000", "-f 0", "-n 3", "-u 1", "-s 16"])
def test_limits_of_the_caller_do_not_cut_a_setting_in_half(node, limit):
    """Either nothing is set, or all of it and a lease and a keeper with it."""
    limited = f"(ulimit {limit}; exec sudo -n $HELPER lock $GPU0 900)"  # exec: a shell that may not fork calls nothing
    said = node.run("cw_alice", f"{limited}; code=$?; sleep 0.2; exit $code")
    assert "Traceback (most recent call last)" not in said.stdout
    node.wait_restored()


def test_outside_of_any_job(node):
    done = run(node.as_user("cw_alice", "bash", "-c", "sudo -n $HELPER lock $GPU1 900; exit $?"))
    assert done.returncode == NOT_PERMITTED
    assert "not in the cgroups of a Slurm job" in done.stdout
    assert node.settings(1) == (0, 0, 165_000)


def test_a_user_outside_of_the_group(node):
    done = run(["runuser", "-u", "nobody", "--", "sudo", "-n", HELPER, "status"])
    assert done.returncode == REFUSED_BY_SUDO


def test_a_process_of_another_user_in_the_job(node):
    """Whoever became another user inside of a job holds nothing by it: the cgroup bears the name of the job's user."""
    with node.holding("cw_bob", "true", gpu=1):
        job = next(
            line for line in node.cluster.command("squeue", "-h", "-o", "%i", "--user=cw_bob").stdout.splitlines()
        )
        (tasks,) = node_cgroups(job)
        script = (
            f"echo $$ >{tasks}; runuser -u cw_alice -- bash -c 'sudo -n {HELPER} lock {node.uuids[1]} 900; exit $?'"
        )
        done = run(["bash", "-c", script])
    assert done.returncode == NOT_PERMITTED, done.stdout
    assert node.settings(1) == (0, 0, 165_000)


def node_cgroups(job):
    return [path / "tasks" for path in (CGROUPS / "devices").glob(f"slurm*/uid_*/job_{job}/step_0/task_0")]


def test_a_second_process_of_the_job_cannot_change_what_the_first_holds(node):
    script = """
        sudo -n $HELPER lock $GPU0 900 >/dev/null
        bash -c 'sudo -n $HELPER lock $GPU0 600; echo "== $?"'
    """
    said = node.run("cw_alice", script).stdout
    assert f"== {HELD}" in said
    assert "held by process" in said


def test_the_next_holder_of_a_gpu_is_not_bound_by_a_lease_that_was_left(node):
    """A recycled pid: the lease names a living process, but not the one that held the GPU."""
    with node.holding("cw_alice", "sudo -n $HELPER lock $GPU0 900 >/dev/null"):
        lease = lease_of(node.uuids[0])
        kill(lease["keeper"][0])
        lease["holder"] = [os.getpid(), lease["holder"][1]]
        (LEASES / f"{node.uuids[0]}.lease").write_text(json.dumps(lease))
        said = node.run_beside("cw_alice", "sudo -n $HELPER lock $GPU0 600")
        assert said.returncode == 0, said.stdout + said.stderr
        wait_for(lambda: node.settings(0)[0] == 0)  # whoever asked has ended, and its keeper put the GPU back


def test_shared_and_split_gpus_are_refused(node):
    node.cards[0].mig_enabled = 1
    assert "split by MIG" in node.run("cw_alice", "sudo -n $HELPER lock $GPU0 900").stdout
    node.cards[0].mig_enabled, node.cards[0].process = 0, os.getpid()
    assert "a process of another user" in node.run("cw_alice", "sudo -n $HELPER lock $GPU0 900").stdout
    assert node.settings(0) == (0, 0, 165_000)


def test_status_shows_a_caller_his_own_lease_and_nobody_elses(node):
    with node.holding("cw_alice", "sudo -n $HELPER lock $GPU0 900 >/dev/null"):
        own = json.loads(node.run_beside("cw_alice", "sudo -n $HELPER status").stdout)
        others = json.loads(node.run("cw_bob", "sudo -n $HELPER status", gpu=1).stdout)
        outside = json.loads(run(node.as_user("cw_alice", "bash", "-c", "sudo -n $HELPER status; true")).stdout)
        roots = json.loads(run([HELPER, "status"]).stdout)
    assert own["ok"]
    assert own["leases"][node.uuids[0]]["settings"] == {"sm_clock_mhz": 900}
    assert own["leases"][node.uuids[0]]["job"] == own["job"]
    assert others["job"] not in (None, own["job"])
    assert others["leases"] == outside["leases"] == {}
    assert roots["leases"] == own["leases"]


def test_a_stopped_call_of_one_job_does_not_hold_up_another(node):
    """Slurm lets a user stop all that is in the job, a call of the helper too: it must not hold others' lock then."""
    node.cards[0].setting_us = 200_000
    stopped = node.start("cw_alice", "while true; do sudo -n $HELPER lock $GPU1 900; done >/dev/null")
    time.sleep(0.5)
    node.cluster.command("scancel", "--user=cw_alice", "--signal=STOP")
    done = node.run("cw_bob", "sudo -n $HELPER lock $GPU1 600", gpu=1)  # it waits for a lock for 5 s at most
    assert done.returncode == 0, done.stdout
    node.cancel_all()
    stopped.communicate(timeout=300)


FUZZ = r"""
exec /usr/bin/python3 -c '
import collections, json, os, random, string, subprocess
rng = random.Random(0)
codes = collections.Counter()
for _ in range(100):
    words = [rng.choice(["lock", "lock-memory", "power-limit", "reset", "status"])]
    for good in (os.environ["GPU1"], "901"):
        place = rng.randrange(len(good))
        noise = "".join(rng.choices(string.printable, k=rng.randint(0, 3)))
        words.append(good[:place] + noise + good[place + rng.randint(0, 2):])
    words = words[:1] if words[0] == "status" else words[:rng.randint(2, 3)] + rng.choice([[], [], ["more"]])
    done = subprocess.run(["sudo", "-n", os.environ["HELPER"], *words], capture_output=True, text=True)
    assert "Traceback" not in done.stdout + done.stderr, done
    assert json.loads(done.stdout)["ok"] == (done.returncode == 0), done
    codes[done.returncode] += 1
print(json.dumps(codes))
'
"""


def test_fuzzed_arguments_through_sudo(node):
    said = node.run("cw_alice", FUZZ)
    assert said.returncode == 0, said.stdout + said.stderr
    codes = json.loads(said.stdout)
    assert sum(codes.values()) == 100
    assert set(codes) <= {"0", "2", "3"}, codes  # done (status), wrong arguments, not permitted
    assert [node.cards[index].settings_made for index in range(2)] == [0, 0]
