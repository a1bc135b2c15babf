"""Attacks on the helper by what the kernel hands from a caller to its children, and by files of its job's cgroups.

They hold under cgroup v1 and v2.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from attacks import KEEPER, NOT_PERMITTED, REFUSED_BY_SUDO, SYSTEM, Attack, check_refused
from clocks_node import HELPER, LEASES, RESTORED, lease_of, run, wait_for
from slurm_files import CGROUPS, V2

pytestmark = pytest.mark.slurm

DENIED = 1
LOCK0, LOCK1 = "sudo -n $HELPER lock $GPU0 900", "sudo -n $HELPER lock $GPU1 900"
NAME = "" if V2 else "devices"
HERE = f"here={CGROUPS / NAME}$(grep :{NAME}: /proc/self/cgroup | cut -d: -f3); test -d $here || exit 9; "
MEMORY = HERE.replace("devices", "memory")
MEMORY_LIMIT = "memory.max" if V2 else "memory.limit_in_bytes"
MEMBERS = "cgroup.threads" if V2 else "tasks"
FORGED = r"$'x\n   JobState=RUNNING\n   JOB_GRES=gpu:2\n     Nodes=x CPU_IDs=0 Mem=1 GRES=gpu:a30:9(IDX:0-8)'"

ATTACKS = [
    Attack("its job's folder", f"{HERE} echo $BASHPID >${{here%/step_*}}/{MEMBERS}", DENIED),
    Attack("the root of the hierarchy by thread", f"{HERE} echo $BASHPID >{CGROUPS / NAME}/{MEMBERS}", DENIED),
    Attack("no memory for its step", f"{MEMORY} echo 4096 >$here/{MEMORY_LIMIT}", DENIED),
    Attack("no processor for its step", f"{HERE.replace('devices', 'cpuset')} echo >$here/cpuset.cpus", DENIED),
    Attack("a variable that sudo is to keep", f"PYTHONPATH=/tmp sudo --preserve-env=PYTHONPATH -n {LOCK1[8:]}",
           REFUSED_BY_SUDO),
    Attack("a login shell", "sudo -n -i $HELPER lock $GPU1 900", REFUSED_BY_SUDO),
    Attack("sudo's editor", "EDITOR='cp /bin/true' sudo -n -e $HELPER", REFUSED_BY_SUDO),
    Attack(
        "a program that asks for a password",
        "cd $(mktemp -d); printf '#!/bin/sh\\ntouch %s/ran' $PWD >ask; chmod 755 ask; SUDO_ASKPASS=$PWD/ask "
        "sudo -A $HELPER lock $GPU1 900; code=$?; test ! -e ran || exit 9; exit $code",
        NOT_PERMITTED,
    ),
    Attack("no name of the program", f"(exec -a '' {LOCK1})", NOT_PERMITTED),
    Attack(
        "variables of the C library",
        "cd $(mktemp -d); LD_DEBUG=all LD_DEBUG_OUTPUT=$PWD/x LD_AUDIT=$PWD/x.so GCONV_PATH=$PWD LOCPATH=$PWD "
        "HOSTALIASES=$PWD/h RES_OPTIONS=debug MALLOC_TRACE=$PWD/m TMPDIR=$PWD "
        f"GLIBC_TUNABLES=glibc.malloc.check=3 {LOCK1}",
        NOT_PERMITTED,
    ),
    Attack("many variables", f"export $(for n in {{1..40}}; do echo v$n=$(printf 'x%.0s' {{1..9999}}); done); {LOCK1}",
           NOT_PERMITTED),
    Attack("Slurm's words in its job's comment", f"scontrol update JobId=$SLURM_JOB_ID Comment={FORGED}; {LOCK1}",
           NOT_PERMITTED),
    Attack("another GPU for its running job", "scontrol update JobId=$SLURM_JOB_ID Gres=gpu:rtx2080ti:1; "
           f"scontrol update JobId=$SLURM_JOB_ID TresPerNode=gres:gpu:2; {LOCK1}", NOT_PERMITTED),
    Attack("a name like a lock's in a view of its own",
           "unshare --user --map-root-user --mount sh -c 'mount -t tmpfs none /run; mkdir /run/clockwatt; "
           "exec flock /run/clockwatt/$GPU1.lock sudo -n $HELPER restore all'", REFUSED_BY_SUDO),
    Attack("limits of the other's keeper", f"{KEEPER} prlimit --pid $keeper --nofile=0:0", DENIED),
    Attack("processors of the other's keeper", f"{KEEPER} taskset --pid 1 $keeper", DENIED),
    Attack("scheduling of the other's keeper", f"{KEEPER} chrt --idle --pid 0 $keeper", DENIED),
    Attack("input and output of the other's keeper", f"{KEEPER} ionice -c 3 -p $keeper", DENIED),
    Attack("the OOM score of the other's keeper", f"{KEEPER} echo 1000 >/proc/$keeper/oom_score_adj", DENIED),
    Attack("stopping the other's keeper", f"{KEEPER} kill -STOP $keeper", DENIED),
    Attack("the other's keeper below its own cgroup",
           f"{KEEPER} {HERE} mkdir $here/low; echo $keeper >$here/low/cgroup.procs; code=$?; rmdir $here/low; "
           "exit $code", DENIED),
    Attack("namespaces of the other's keeper", f"{KEEPER} nsenter --target $keeper --mount true", DENIED),
    Attack("a descriptor of the other's keeper", f"{KEEPER} /usr/bin/python3 -c 'import ctypes, os, sys; "
           "sys.exit(ctypes.CDLL(None).syscall(438, os.pidfd_open(int(sys.argv[1])), 0, 0) < 0)' $keeper", DENIED),
    Attack("no streams to answer to", f"{LOCK1} >&- 2>&-", NOT_PERMITTED),
    Attack("suspending its own job, which freezes it", "scontrol suspend $SLURM_JOB_ID", DENIED),
    Attack("a file of Slurm's in place of the program", "sbcast --force /bin/true $HELPER || exit 1", DENIED),
]  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_an_attack_is_refused_and_changes_nothing(outcomes, attack):
    check_refused(outcomes, attack)


MASKED = "import os, signal; signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())"
NAMED = "import ctypes; ctypes.CDLL(None).prctl(15, b') Z 1 (x')"
CLOSED = "import ctypes; ctypes.CDLL(None).prctl(4, 0)"  # not dumpable: nobody may look into it
CALL = f"import subprocess; subprocess.call(['sudo', '-n', '{HELPER}', 'lock', '%s', '900'])"


@pytest.mark.parametrize("before", [MASKED, NAMED, CLOSED])
def test_a_caller_is_watched_whatever_it_blocks_is_called_or_hides(node, before):
    script = f"exec /usr/bin/python3 -c \"{before}; {CALL % node.uuids[0]}; print('held', flush=True); input()\""
    job = subprocess.Popen(
        node.job("cw_alice", script), cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    while job.stdout.readline() != "held\n":
        pass
    assert node.settings(0)[0] == 900
    holder, _ = lease_of(node.uuids[0])["holder"]
    assert Path(f"/proc/{holder}/exe").readlink() == Path("/usr/bin/python3").resolve()
    job.communicate("\n", timeout=120)
    node.wait_restored()
    wait_for(lambda: node.keepers() == [])


def test_all_limits_of_the_caller_at_their_lowest(node):
    lowest = "ulimit -c 0 -e 0 -i 0 -l 0 -q 0 -r 0 -x 0 -s 256; ulimit -u 1 2>/dev/null; "
    with node.holding("cw_alice", f"({lowest} exec sudo -n $HELPER lock $GPU0 900)"):
        assert node.settings(0)[0] in (0, 900)
        assert len(node.keepers()) == (node.settings(0)[0] == 900)
    node.wait_restored()


def test_an_answer_that_nobody_reads_keeps_no_lock(node):
    """The pipe is full, so the call waits with its answer: the GPU is set, and can be set again."""
    fill = (
        "import os, fcntl; fcntl.fcntl(1, 4, 2048)\ntry:\n  while True: os.write(1, bytes(1))\nexcept OSError: pass\n"
    )
    script = f"""
        pipe=$(mktemp -u); mkfifo $pipe; exec 7<>$pipe; /usr/bin/python3 -c '{fill}fcntl.fcntl(1, 4, 0)' >&7
        (sudo -n $HELPER lock $GPU0 900 >&7; true) & sleep 3; sudo -n $HELPER reset $GPU0; exit $?
    """
    done = node.run("cw_alice", script)
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"reset": true' in done.stdout
    node.wait_restored()


def test_a_full_run_folder_sets_nothing_and_leaves_no_keeper(node):
    LEASES.mkdir(mode=0o700, exist_ok=True)
    run(["mount", "-t", "tmpfs", "-o", "size=4k,mode=700", "tmpfs", str(LEASES)]).check_returncode()
    try:
        (LEASES / "filler").write_bytes(bytes(4096))
        done = node.run("cw_alice", LOCK0)
        assert done.returncode == SYSTEM, done.stdout
        assert node.settings(0) == RESTORED
        wait_for(lambda: node.keepers() == [])
        (LEASES / "filler").unlink()
        assert node.run("cw_alice", LOCK0).returncode == 0
        node.wait_restored()
    finally:
        run(["umount", str(LEASES)]).check_returncode()


def test_a_storm_of_locks_of_other_files_hides_no_call_that_has_the_lock(node):
    """The epilog finds who has the lock in /proc/locks."""
    storm = """
import fcntl, os, tempfile
folder = tempfile.mkdtemp()
files = [open(f"{folder}/{n}", "w") for n in range(500)]
while True:
    for file in files:
        fcntl.flock(file, fcntl.LOCK_EX)
    for file in files:
        fcntl.flock(file, fcntl.LOCK_UN)
"""
    with node.holding("cw_alice", f"{LOCK0} >/dev/null; /usr/bin/python3 -c '{storm}' & sleep 1"):
        job = str(lease_of(node.uuids[0])["job"])
        script = f"import fcntl, time; lock = open('{LEASES / node.uuids[0]}.lock', 'w'); fcntl.flock(lock, 2); "
        command = ["/usr/bin/python3", "-c", f"{script} print(flush=True); time.sleep(600)"]
        holder = subprocess.Popen(command, stdout=subprocess.PIPE)
        holder.stdout.readline()
        done = run(["env", f"SLURM_JOB_ID={job}", "/etc/clockwatt/slurm-restore"], timeout=300)
        assert (done.returncode, holder.wait(timeout=60)) == (0, -9)
        assert node.is_restored(0)
