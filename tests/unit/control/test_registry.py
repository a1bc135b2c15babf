import functools

import pytest

from clockwatt.cli import clocks
from clockwatt.config import ControlConfig
from clockwatt.control.methods import ControlError, Method
from clockwatt.control.registry import NAMES, method_named
from clockwatt.errors import ClockwattError
from clockwatt.gpu.virtual.card import VirtualGpu


@pytest.mark.parametrize("name", NAMES)
def test_each_method_of_a_config_is_one_and_says_whether_it_works_here(name):
    assert issubclass(method_named(name), Method)
    advice = method_named(name).advice()
    assert advice.reason
    assert name != "none" or advice.works


@pytest.mark.parametrize("name", NAMES)
def test_what_resets_nothing_by_hand_says_so(name):
    if not method_named(name).resets_by_hand:
        control = ControlConfig(method=name, set_command="true") if name == "command" else ControlConfig(method=name)
        with pytest.raises(ControlError, match=f"{name} resets nothing by hand"):
            method_named(name)(VirtualGpu("a30", seed=0), control).reset()


@pytest.mark.parametrize(
    ("command", "known"),
    [
        (functools.partial(clocks.clocks_lock, "sm900"), "nvml, helper, slurm"),
        (clocks.clocks_reset, "nvml, helper"),
    ],
)
def test_a_method_that_cannot_be_used_by_hand_is_answered_with_those_that_can(command, known):
    with pytest.raises(ClockwattError, match=f"--method command: choose {known}."):
        command(method="command")
