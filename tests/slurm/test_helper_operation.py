"""What an administrator does, and what goes wrong on a node: no job fails by it, and no node is drained."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from attacks import REFUSED_BY_SUDO
from clocks_node import CONFIGURATION, HELPER, LEASES, REPOSITORY, RESTORED, kill, lease_of, run, wait_for

pytestmark = pytest.mark.slurm

RESTORE = Path("/etc/clockwatt/slurm-restore")
INSTALL = str(REPOSITORY / "privileged" / "install.sh")
LOCK0 = "sudo -n $HELPER lock $GPU0 900 >/dev/null"
BOTH = "--gres=gpu:a30:1,gpu:rtx2080ti:1"


def orphan(node, index=0):
    """Kill the keeper of a GPU, so that the node has to put it back."""
    kill(lease_of(node.uuids[index])["keeper"][0])


def assert_jobs_run(node):
    """A job of another user runs on the other GPU, and the node takes the next one."""
    assert node.run("cw_bob", "true", gpu=1).returncode == 0
    assert "drain" not in node.node_state()


SLIPS = {
    "a value": ("sm_clock_mhz = 210-1440", "sm_clock_mhz = 210..1440"),
    "a key in a wrong section": ("[gpu]\n", "[gpu]\nlibrary = /usr/lib/libnvidia-ml.so.1\n"),
    "a library": ("libnvidia-ml.so.1", "libnvidia-ml.so.999"),
}


@pytest.mark.parametrize("slip", SLIPS)
def test_a_slip_in_the_configuration_drains_no_node_and_keeps_no_gpu_set(node, slip):
    with node.holding("cw_alice", LOCK0):
        orphan(node)
        node.configure(CONFIGURATION.read_text().replace(*SLIPS[slip]))
        assert_jobs_run(node)
        assert node.settings(0)[0] == 900
    node.wait_restored()
    assert "drain" not in node.node_state()


def broken_helper(path):
    path.write_text("#!/bin/sh\nexit 1\n")


@pytest.mark.parametrize("spoil", [Path.unlink, broken_helper], ids=["removed", "broken"])
def test_a_helper_that_is_removed_or_broken_drains_no_node(node, spoil):
    helper = Path(HELPER)
    kept = helper.with_name("clockwatt-clocks.kept")
    with node.holding("cw_alice", LOCK0):
        shutil.copy2(helper, kept)
        try:
            spoil(helper)
            assert_jobs_run(node)
        finally:
            kept.replace(helper)
    node.wait_restored()
    assert "drain" not in node.node_state()


def test_one_lost_gpu_keeps_no_other_one_locked(node):
    locks = "for gpu in $GPU0 $GPU1; do sudo -n $HELPER lock $gpu 900 >/dev/null; done"
    job = node.start("cw_alice", f"{locks}; echo held; sleep 600", BOTH, gpu=None)
    assert job.stdout.readline() == "held\n"
    for index in range(2):
        orphan(node, index)
    node.cards[0].lost = 1
    said = run([HELPER, "restore", "all"])
    assert said.returncode == 6, said.stdout
    assert re.search(r"put back: \['GPU-1.*not put back: {'GPU-0", said.stdout)
    assert node.settings(1) == RESTORED
    node.cancel_all()
    job.communicate(timeout=300)
    wait_for(lambda: "drain" in node.node_state())  # the next job would get a GPU that is not as it expects it
    node.resume()
    assert_jobs_run(node)  # but nobody else's prolog or epilog fails by it
    node.cards[0].lost = 0
    assert_jobs_run(node)
    assert node.is_restored(0)


def test_an_upgrade_keeps_leases_even_those_of_an_earlier_version(node):
    with node.holding("cw_alice", LOCK0):
        path = LEASES / f"{node.uuids[0]}.lease"
        before = json.loads(path.read_text())
        path.write_text(json.dumps({key: before[key] for key in before if key not in ("library", "site_sm_clock_mhz")}))
        assert run([INSTALL]).returncode == 0
        assert node.settings(0)[0] == 900
        assert json.loads(node.run_beside("cw_alice", "sudo -n $HELPER status").stdout)["leases"]
        said = node.run_beside("cw_alice", "sudo -n $HELPER reset $GPU0")
        assert '"reset": true' in said.stdout, said.stdout
    assert node.settings(0) == RESTORED
    assert node.keepers() == []


def test_installing_says_what_is_wrong_with_the_configuration_that_is_there(node):
    node.configure("[site]\nslurm_dir = /etc/slurm\n")
    done = run([INSTALL])
    assert done.returncode == 0
    assert "slurm_dir = /etc/slurm is not understood" in done.stderr


def test_once_disabled_nobody_can_set_anything_but_everybody_put_back(node):
    with node.holding("cw_alice", LOCK0):
        assert run([INSTALL, "--disable"]).returncode == 0
        try:
            assert node.run("cw_bob", "sudo -n $HELPER lock $GPU1 900", gpu=1).returncode == REFUSED_BY_SUDO
            assert node.settings(0)[0] == 900
            assert '"reset": true' in node.run_beside("cw_alice", "sudo -n $HELPER reset $GPU0").stdout
        finally:
            assert run([INSTALL]).returncode == 0
    assert node.run("cw_bob", "sudo -n $HELPER lock $GPU1 900", gpu=1).returncode == 0


def test_removing_it_waits_for_jobs_that_hold_gpus_and_breaks_none(node):
    try:
        with node.holding("cw_alice", LOCK0):
            done = run([INSTALL, "--uninstall"])
            assert done.returncode == 1
            assert "jobs hold GPUs" in done.stderr
            assert node.settings(0)[0] == 900
            assert '"reset": true' in node.run_beside("cw_alice", "sudo -n $HELPER reset $GPU0").stdout
            done = run([INSTALL, "--uninstall"])
            assert done.returncode == 0, done.stderr
        assert not Path(HELPER).exists()
        assert not LEASES.exists()
        assert_jobs_run(node)  # whose prolog and epilog are named in slurm.conf still
    finally:
        assert run([INSTALL]).returncode == 0
    assert node.run("cw_bob", "sudo -n $HELPER lock $GPU1 900", gpu=1).returncode == 0


def test_removing_it_now_puts_gpus_back(node):
    try:
        with node.holding("cw_alice", LOCK0):
            assert run([INSTALL, "--uninstall", "--now"]).returncode == 0
            assert node.settings(0) == RESTORED
            assert node.keepers() == []
        assert "drain" not in node.node_state()
    finally:
        assert run([INSTALL]).returncode == 0


def test_after_a_reboot_the_boot_unit_finds_nothing_and_touches_nothing(node):
    """What lay in /run is gone, and so are locks: the driver has come up with its own clocks."""
    shutil.rmtree(LEASES)
    unit = (REPOSITORY / "privileged/clockwatt-restore.service").read_text()
    (command,) = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    done = subprocess.run(command.split(), cwd="/", env={}, capture_output=True, text=True, check=False)
    assert json.loads(done.stdout) == {"ok": True, "restored": [], "failed": {}}
    assert [card.settings_made for card in node.cards] == [0, 0]
    assert LEASES.stat().st_mode & 0o777 == 0o700
    shutil.rmtree(LEASES)
    assert run(["env", "SLURM_JOB_ID=1", str(RESTORE)]).returncode == 0  # a prolog before any unit
    assert node.run("cw_alice", "sudo -n $HELPER lock $GPU0 900").returncode == 0
