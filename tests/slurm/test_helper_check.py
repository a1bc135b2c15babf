"""What `install.sh --check` tells an administrator: nothing on a node that works, and each slip with its fix."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from clocks_node import CONFIGURATION, HELPER, REPOSITORY, run

pytestmark = pytest.mark.slurm

INSTALL = str(REPOSITORY / "privileged" / "install.sh")
RESTORE, SUDOERS = Path("/etc/clockwatt/slurm-restore"), Path("/etc/sudoers.d/clockwatt")


@pytest.fixture
def slips(node) -> Iterator[None]:
    """A node on which a test may spoil what was installed; it is mended on leaving."""
    yield
    for path in (Path(HELPER), RESTORE, SUDOERS):
        path.unlink(missing_ok=True)
    CONFIGURATION.parent.chmod(0o755)
    assert run([INSTALL]).returncode == 0


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_nothing_is_wrong_on_a_node_that_works(node):
    done = run([INSTALL, "--check"])
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Nothing is wrong.")


SLIPS_IN_CLOCKS_INI = {
    "bounds the wrong way round": ("210-1440", "1440-210", "sm_clock_mhz = 1440-210 allows nothing: write 210-1440"),
    "a misspelt key": ("sm_clock_mhz", "sm_clok_mhz", "sm_clok_mhz = 210-1440 is not understood"),
    "a model by half its name": ("[gpu]", "[gpu A30]", "[gpu A30] is of no GPU here, which has NVIDIA A30, NVIDIA Ge"),
    "a library that is not there": ("libnvidia-ml.so.1", "libnvidia.so", "no clock can be set here: "),
    "Slurm's file in place of its folder": ("\nlibrary", "/slurm.conf\nlibrary", "no slurm.conf lies there"),
    "a scontrol that is not there": ("[site]", "[site]\nscontrol = /opt/scontrol", "Slurm does not answer"),
    "a node that Slurm does not know": ("[site]", "[site]\nnode = gpu99", "Slurm knows no node gpu99"),
    "users on a machine with Slurm": ("slurm_directory", "users = cw_alice\n#", "users is for machines without Slurm"),
    "device nodes that are not there": ("/dev/simgpu", "/dev/nvidia", "Slurm knows 2 GPUs of "),
}


@pytest.mark.parametrize("slip", SLIPS_IN_CLOCKS_INI)
def test_a_slip_in_clocks_ini_is_told(node, slip):
    old, new, told = SLIPS_IN_CLOCKS_INI[slip]
    replace(CONFIGURATION, old, new)
    done = run([INSTALL, "--check"])
    assert done.returncode == 1
    (line,) = done.stdout.splitlines()
    assert told in line


SLIPS_IN_FILES = {
    "a script that cannot be run": (lambda: RESTORE.chmod(0o644), f"{RESTORE}: cannot be run: chmod 755"),
    "a program of another version": (
        lambda: replace(Path(HELPER), "import pwd\n", "import pwd  # of old\n"),
        f"{HELPER}: another version",
    ),
    "a program that others may write": (lambda: Path(HELPER).chmod(0o775), f"{HELPER}: can be changed by others"),
    "a folder that others may write": (lambda: RESTORE.parent.chmod(0o777), "/etc/clockwatt: can be changed by others"),
    "no rule for sudo": (SUDOERS.unlink, f"{SUDOERS}: missing"),
    "a script that is missing": (RESTORE.unlink, f"{RESTORE}: missing"),
}


@pytest.mark.parametrize("slip", SLIPS_IN_FILES)
def test_a_file_that_is_not_as_it_should_be_is_told(slips, slip):
    spoil, told = SLIPS_IN_FILES[slip]
    spoil()
    done = run([INSTALL, "--check"])
    assert done.returncode == 1
    assert [told in line for line in done.stdout.splitlines()] == [True]


@pytest.mark.parametrize("kind", ["link", "script that calls it"])
def test_a_folder_of_scripts_that_calls_it_is_right(node, kind):
    """As `Prolog=/etc/slurm/prolog.d/*` has it."""
    folder = node.cluster.root / "prolog.d"
    folder.mkdir(exist_ok=True)
    script = folder / "50-clocks"
    script.unlink(missing_ok=True)
    if kind == "link":
        script.symlink_to(RESTORE)
    else:
        script.write_text(f"#!/bin/sh\nexec {RESTORE}\n")
        script.chmod(0o755)
    with node.slurm_with(("slurm", f"Prolog={RESTORE}\n", f"Prolog={folder}/*\n")):
        done = run([INSTALL, "--check"])
    assert (done.returncode, done.stderr) == (0, ""), done.stdout


OTHER_GROUPS = {
    "a controller without the group": (r"clockwatt:.*\n", "", "do not have the group clockwatt"),
    "a controller where its number is another": (r":\d+:", ":42:", "have group 42, which is shadow here"),
}


@pytest.mark.parametrize("case", OTHER_GROUPS)
def test_a_controller_that_knows_other_groups_is_named(node, case):
    old, new, said = OTHER_GROUPS[case]
    group = node.cluster.root / "group"
    run(["usermod", "--append", "--groups", "clockwatt", "--gid", "nogroup", "cw_alice"]).check_returncode()
    lines = Path("/etc/group").read_text().splitlines(keepends=True)
    mine = next(line for line in lines if line.startswith("clockwatt:"))
    group.write_text("".join(lines).replace(mine, re.sub(old, new, mine)))
    node.cluster.stop_slurmctld()
    try:
        mount = f'mount --bind {group} /etc/group && exec "$@"'
        node.cluster.start_slurmctld(within=["unshare", "--mount", "sh", "-c", mount, "sh"])
        done = run([INSTALL, "--check", "cw_alice"])
        assert done.returncode == 1
        assert said in done.stdout
        with node.holding("cw_alice", "true"):
            assert said in run([INSTALL, "--check"]).stdout
    finally:
        run(["usermod", "--groups", "", "--gid", "clockwatt", "cw_alice"]).check_returncode()
        node.cluster.stop_slurmctld()
        node.cluster.start_slurmctld()
    assert run([INSTALL, "--check", "cw_alice"]).returncode == 0


def test_scripts_that_slurm_does_not_call_are_told(node):
    with node.slurm_with(("slurm", f"Prolog={RESTORE}\n", "")):
        done = run([INSTALL, "--check"])
    assert done.returncode == 1
    assert "slurm.conf: Prolog = (null) does not call /etc/clockwatt/slurm-restore" in done.stdout


def test_disabling_says_that_another_rule_still_lets_users_in(node):
    other = SUDOERS.with_name("site-clocks")
    shutil.copy2(SUDOERS, other)
    try:
        done = run([INSTALL, "--disable"])
        assert done.returncode == 1
        assert str(other) in done.stderr
    finally:
        other.unlink()
    try:
        assert run([INSTALL, "--disable"]).stdout.startswith("Disabled: nobody can set anything.")
        assert "switched off" in run([INSTALL, "--check"]).stdout
    finally:
        assert run([INSTALL]).returncode == 0


def test_removing_it_leaves_the_script_even_where_its_folder_was_removed_too_early(node):
    shutil.rmtree(CONFIGURATION.parent)
    try:
        done = run([INSTALL, "--uninstall"])
        assert (done.returncode, done.stderr) == (0, "")
        assert node.run("cw_bob", "true").returncode == 0
        assert "drain" not in node.node_state()
    finally:
        assert run([INSTALL]).returncode == 0


def test_groups_are_compared_from_a_folder_that_the_user_may_not_enter(node, tmp_path):
    """Slurm then says so on the output of the job, beside the groups."""
    own = tmp_path / "own"
    shutil.copytree(REPOSITORY / "privileged", own)
    own.chmod(0o700)
    done = run(["sh", "-c", 'cd "$0" && ./install.sh --check cw_alice', str(own)])
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
