"""Settings of a site for sudo and PAM under which the helper works as well."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from clocks_node import CONFIGURATION, REPOSITORY, run

pytestmark = pytest.mark.slurm

PAM, SITE = Path("/etc/pam.d/sudo"), Path("/etc/sudoers.d/aa_site")
LOCK = "sudo -n $HELPER lock $GPU0 900"


@contextlib.contextmanager
def replaced(path, text):
    """Another text of a file of root's, and the one of before on leaving."""
    before = path.read_bytes() if path.exists() else None
    path.write_text(text)
    path.chmod(0o440)
    try:
        yield
    finally:
        path.unlink() if before is None else path.write_bytes(before)


def test_a_pam_session_that_moves_sudo_out_of_its_cgroups_is_not_opened(node):
    """As pam_systemd does, which sudo's stack holds on distributions of the RHEL family."""
    script = node.cluster.root / "session"
    moves = 'for group in /sys/fs/cgroup/*/cgroup.procs; do echo "$PPID" >$group; done'
    script.write_text(f"#!/bin/sh\n[ $PAM_TYPE = open_session ] || exit 0\n{moves} 2>/dev/null\nexit 0\n")
    script.chmod(0o755)
    with replaced(PAM, f"{PAM.read_text()}\nsession required pam_exec.so {script}\n"):
        done = node.run("cw_alice", LOCK)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("setting", ["noexec", "intercept", "use_pty", "log_subcmds"])
def test_settings_of_a_site_for_all_commands(node, setting):
    with replaced(SITE, f"Defaults {setting}\n"):
        done = node.run("cw_alice", LOCK)
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_sudo_that_does_not_know_intercept_gets_the_rule_without_it(node, tmp_path):
    """Of before 1.9.8: here a visudo that finds fault with the word."""
    visudo = tmp_path / "visudo"
    visudo.write_text('#!/bin/sh\nfor file in "$@"; do :; done\n! grep -q !intercept "${file#--file=}"\n')
    visudo.chmod(0o755)
    install = str(REPOSITORY / "privileged" / "install.sh")
    try:
        run(["env", f"PATH={tmp_path}:/usr/sbin:/usr/bin:/sbin:/bin", install]).check_returncode()
        assert "intercept" not in Path("/etc/sudoers.d/clockwatt").read_text().partition("Defaults!")[2]
        assert not (CONFIGURATION.parent / "rule").exists()
        assert run([install, "--check"]).stdout.startswith("Nothing is wrong")
        assert node.run("cw_alice", LOCK).returncode == 0
    finally:
        assert run([install]).returncode == 0
