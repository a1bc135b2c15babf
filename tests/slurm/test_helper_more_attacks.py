"""More attacks on the helper: on its words, on sudo, on its leases and keepers, and on its haste."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from attacks import KEEPER, NOT_PERMITTED, REFUSED_BY_SUDO, USAGE, Attack, check_refused
from clocks_node import HELPER, LEASES, RESTORED, lease_of, run, wait_for

pytestmark = pytest.mark.slurm

DENIED = 1
ATTACKS = [
    Attack("another user than root", "sudo -n -u cw_bob $HELPER lock $GPU1 900", REFUSED_BY_SUDO),
    Attack("another group", "sudo -n -g root $HELPER lock $GPU1 900", REFUSED_BY_SUDO),
    Attack("another root folder", "sudo -n -R /tmp $HELPER lock $GPU1 900", REFUSED_BY_SUDO),
    Attack("another working folder", "sudo -n -D /tmp $HELPER lock $GPU1 900", REFUSED_BY_SUDO),
    Attack("descriptors left open for it", "sudo -n -C 9 $HELPER lock $GPU1 900", REFUSED_BY_SUDO),
    Attack("in the background", "sudo -n -b $HELPER lock $GPU1 900; sleep 0.5", 0),
    Attack("a path that leads to it", "sudo -n /usr/local/lib/../sbin/clockwatt-clocks lock $GPU1 900", NOT_PERMITTED),
    Attack(  # sudo takes it for the file that it leads to, and runs that by the path that is in sudoers
        "a link to it",
        "cd $(mktemp -d); ln -s $HELPER clockwatt-clocks; sudo -n $PWD/clockwatt-clocks lock $GPU1 900",
        NOT_PERMITTED,
    ),
    Attack("its interpreter", "sudo -n /usr/bin/python3 -IS $HELPER lock $GPU1 900", REFUSED_BY_SUDO),
    Attack("root's verb behind a verb", "sudo -n $HELPER lock restore all", USAGE),
    Attack("a UUID in capitals", "sudo -n $HELPER lock ${GPU1^^} 900", USAGE),
    Attack("numbers in other spellings", "for n in 0900 +900 9e2 900.0 0x384 ' 900' $'900\\n'; do "
           "sudo -n $HELPER lock $GPU1 \"$n\" || code=$?; test $code = 2 || exit 9; done; exit $code", USAGE),
    Attack("a very long word", "sudo -n $HELPER lock $GPU1 $(printf '9%.0s' {1..100000})", USAGE),
    Attack("a folder that is gone", "cd $(mktemp -d); rmdir $PWD; sudo -n $HELPER lock $GPU1 900", NOT_PERMITTED),
    Attack("signals ignored", "trap '' INT QUIT TERM ALRM CHLD PIPE; sudo -n $HELPER lock $GPU1 900", NOT_PERMITTED),
    Attack(
        "a Slurm of its own",
        "cd $(mktemp -d); echo 'echo NodeName=x' >scontrol; chmod 755 scontrol; echo ClusterName=x >slurm.conf; "
        "PATH=$PWD:$PATH SLURM_CONF=$PWD/slurm.conf sudo -n $HELPER lock $GPU1 900",
        NOT_PERMITTED,
    ),
    Attack("the other's lease by the lock's file", f"flock -n {LEASES}/$GPU1.lock true && exit 0; exit 1", DENIED),
    Attack("killing the other's keeper", f"{KEEPER} kill -9 $keeper", DENIED),
    Attack("tracing the other's keeper", f"{KEEPER} head -c1 /proc/$keeper/mem; cat /proc/$keeper/environ", DENIED),
    Attack("speaking to the other's keeper", f"{KEEPER} echo written >/proc/$keeper/fd/0", DENIED),
    Attack("the keeper's start by hand", "$HELPER keep $GPU1 3", NOT_PERMITTED),
]  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_an_attack_is_refused_and_changes_nothing(outcomes, attack):
    check_refused(outcomes, attack)


def test_variables_that_a_site_lets_sudo_keep(node):
    """`Defaults env_keep += LD_LIBRARY_PATH` for other commands would have root load a library of the caller's."""
    sudoers = Path("/etc/sudoers.d/aa_site")
    sudoers.write_text('Defaults env_keep += "LD_PRELOAD LD_LIBRARY_PATH STANDIN_NVML_STATE PYTHONPATH SLURM_CONF"\n')
    sudoers.chmod(0o440)
    library = "cd $(mktemp -d); printf 'int nvmlInit_v2(){return 0;}' | gcc -xc -shared -o libnvidia-ml.so.1 -; "
    spoil = "export LD_PRELOAD=$PWD/libnvidia-ml.so.1 STANDIN_NVML_STATE=/dev/full SLURM_CONF=/dev/null; "
    try:
        done = node.run("cw_alice", f"{library}{spoil} sudo -n $HELPER lock $GPU0 900")
        assert done.returncode == 0, done.stdout + done.stderr
        assert node.run("cw_alice", f"{library}{spoil} sudo -n $HELPER lock $GPU1 900").returncode == NOT_PERMITTED
    finally:
        sudoers.unlink()


def test_a_link_that_is_turned_to_another_file_while_sudo_runs(node):
    """What root runs is the installed file, by its own path: not what the link has led to since."""
    script = """
        cd $(mktemp -d); printf '#!/bin/sh\\nid -u >%s/owned' "$PWD" >own; chmod 755 own; chmod 777 .
        (while sleep 0.002; do ln -sfn $PWD/own clockwatt-clocks; sleep 0.002; ln -sfn $HELPER clockwatt-clocks; done) &
        for i in {1..20}; do sudo -n $PWD/clockwatt-clocks status; done 2>&1 | grep -o '"uid": [0-9]*' | sort | uniq -c
        kill %1; test ! -e owned
    """
    done = node.run("cw_alice", script)
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"uid": ' in done.stdout  # the file was the helper at times, or nothing was tried


def test_another_job_of_the_same_user(node):
    """A user's own job may change no GPU of that user's other job."""
    with node.holding("cw_alice", "sudo -n $HELPER lock $GPU1 600 >/dev/null", gpu=1):
        for verb in ("lock $GPU1 900", "reset $GPU1"):
            assert node.run("cw_alice", f"sudo -n $HELPER {verb}").returncode == NOT_PERMITTED
        assert node.settings(1)[0] == 600


def test_many_calls_at_once(node):
    """One of them gets the GPU; none waits for ever, and there is one keeper to one lease."""
    until_all_have = "touch $all/$0; while test $(ls $all | wc -l) -lt 12; do sleep 0.2; done"
    each = f"sudo -n $HELPER lock $GPU0 900; echo code $?; {until_all_have}"
    many = f"export all=$(mktemp -d); for i in {{1..12}}; do bash -c '{each}' $i & done; wait"
    job = node.start("cw_alice", many, "--overcommit")
    wait_for(lambda: node.settings(0)[0] == 900)
    assert len(node.keepers()) == 1
    said, _ = job.communicate(timeout=300)
    codes = re.findall(r"code (\d+)", said)
    assert len(codes) == 12
    assert codes.count("0") == 1, codes
    assert set(codes) == {"0", "5"}, codes
    node.wait_restored()
    wait_for(lambda: node.keepers() == [])


def test_an_alarm_that_was_set_before(node):
    """A timer outlives exec: it would end sudo or the helper in the middle of a setting."""
    node.cards[0].setting_us = 200_000
    words = repr(["sudo", "-n", HELPER, "lock", node.uuids[0], "900"])
    call = f"import os, signal; signal.setitimer(signal.ITIMER_REAL, %s); os.execvp('sudo', {words})"
    scripts = [f'python3 -c "{call % (0.02 * n)}"' for n in range(1, 12)]
    node.run("cw_alice", "; ".join(scripts))
    node.wait_restored()
    wait_for(lambda: node.keepers() == [])


def test_a_storm_of_signals(node):
    """Slurm sends any signal to root's processes in a job as well; none cuts a setting from its keeper."""
    node.cards[0].setting_us = 50_000
    loop = "while true; do sudo -n $HELPER lock $GPU0 900; sudo -n $HELPER reset $GPU0; done"
    job = node.start("cw_alice", f"trap '' USR1 USR2 ALRM HUP INT QUIT; {loop} >/dev/null 2>&1")
    wait_for(lambda: node.cards[0].settings_made > 0)
    for _ in range(4):
        for name in ("USR1", "USR2", "ALRM", "HUP", "INT", "QUIT"):
            node.cluster.command("scancel", "--user=cw_alice", f"--signal={name}")
            time.sleep(0.05)
    node.cancel_all()
    job.communicate(timeout=300)
    node.wait_restored()
    wait_for(lambda: node.keepers() == [])
    assert "drain" not in node.node_state()


def test_a_job_that_is_put_back_into_the_queue(node):
    """The same number of a job, begun anew: what its first run has set does not stay."""
    script = node.cluster.root / "requeued.sh"
    script.write_text(f"#!/bin/bash\nsudo -n {HELPER} lock {node.uuids[0]} 900\nsleep 600\n")
    script.chmod(0o755)
    options = ("--parsable", "--requeue", "--mem=300", "--gres=gpu:a30:1", "--chdir=/tmp", "--output=/dev/null")
    job = run(node.as_user("cw_alice", "sbatch", *options, str(script))).stdout.strip()
    wait_for(lambda: node.settings(0)[0] == 900)
    first = lease_of(node.uuids[0])
    node.cluster.command("scontrol", "requeuehold", job)
    node.wait_restored()
    assert node.run("cw_bob", "sudo -n $HELPER lock $GPU0 600").returncode == 0
    assert str(first["job"]) == job
    node.cancel_all()
    assert node.settings(0) == RESTORED
