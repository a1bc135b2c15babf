"""The helper under cgroup v2, in a virtual machine: what v2 makes different, and what an administrator meets."""

from __future__ import annotations

import sys

import pytest
from v2 import machine

pytestmark = pytest.mark.slurm

TESTS = (
    "v2/in_machine.py",
    "test_helper_frozen.py",
    "test_helper_sudo.py::test_a_pam_session_that_moves_sudo_out_of_its_cgroups_is_not_opened",
    "test_helper_check.py::test_a_controller_that_knows_other_groups_is_named",
    "test_helper_kernel_attacks.py",
)


@pytest.mark.skipif(bool(machine.lacking()), reason=machine.lacking())
def test_the_helper_under_cgroup_v2():
    files = " ".join(f"tests/slurm/{name}" for name in TESTS)
    code, said = machine.run(f"{sys.executable} -m pytest --slurm -q -n 0 -p no:cacheprovider {files}")
    assert code == 0, said[-20_000:]
