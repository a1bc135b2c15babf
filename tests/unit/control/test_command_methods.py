"""A site's own script, and the helper's answers, as the methods of a campaign use them."""

import json
import os
import signal
import stat
import subprocess
import sys
import time

import pytest

from clockwatt.config import ControlConfig, OperatingPoint, parse
from clockwatt.control import command as command_method
from clockwatt.control import helper
from clockwatt.control.methods import ControlError, ReleaseError
from clockwatt.control.points import operating_point
from clockwatt.control.slurm import gpu_freq_warning, lacks_nvml, step_command, step_environment
from clockwatt.errors import ConfigError
from clockwatt.gpu.interface import NoPermissionError, NotSupportedError
from clockwatt.gpu.virtual.card import VirtualGpu

POINT = OperatingPoint(sm_clock_mhz=900)

HOLDER = """
import sys, time
from clockwatt.config import ControlConfig, OperatingPoint
from clockwatt.control.points import operating_point
from clockwatt.gpu.virtual.card import VirtualGpu

control = ControlConfig(method="command", set_command=sys.argv[1])
with operating_point(VirtualGpu("a30", seed=0), OperatingPoint(sm_clock_mhz=900), control):
    print("held", flush=True)
    time.sleep(600)
"""


def script(path, body):
    path.write_text(f"#!/bin/bash\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def log(tmp_path):
    return tmp_path / "log"


@pytest.fixture
def site_script(tmp_path, log):
    """Writes down how it is called; with `hold` it runs until it is told to end, and writes down how."""
    return script(
        tmp_path / "set clocks.sh",
        f"""
        log={log}
        if [ "$1" = hold ]; then
            for number in TERM INT HUP; do trap "echo $number >>$log; exit 0" $number; done
        fi
        echo "$@" >>$log
        echo ready
        [ "$1" = hold ] || exit 0
        while true; do sleep 0.05; done
        """,
    )


def wait_for(happens):
    deadline = time.monotonic() + 120
    while not happens():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def says(log, *lines):
    return log.exists() and log.read_text().splitlines() == [*lines]


def test_set_and_reset(site_script, log):
    gpu = VirtualGpu("a30", seed=0)
    control = ControlConfig(
        method="command",
        set_command=f"'{site_script}' -d {{uuid}} -c {{sm_clock_mhz}}MHz",
        reset_command=f"'{site_script}' -d {{uuid}} -r",
    )
    with operating_point(gpu, POINT, control):
        assert log.read_text() == f"-d {gpu.identity.uuid} -c 900MHz\n"
    assert log.read_text().splitlines()[1:] == [f"-d {gpu.identity.uuid} -r"]


def test_held_until_released(site_script, log):
    control = ControlConfig(method="command", set_command=f"'{site_script}' hold {{sm_clock_mhz}}")
    with operating_point(VirtualGpu("a30", seed=0), POINT, control):
        wait_for(lambda: says(log, "hold 900"))
    assert says(log, "hold 900", "TERM")


@pytest.mark.skipif(os.geteuid() != 0, reason="to hold it as another user takes root")
def test_held_by_a_process_that_may_not_be_signalled_ends_by_its_terminal(site_script, log):
    """As below sudo: who calls may not send a signal, but its terminal may."""
    code = f"""
import os
from clockwatt.control.lock_process import HeldCommand
held = HeldCommand([{str(site_script)!r}, "hold"], os.environ)
held.wait_until_held(120, "ready")
os.setresuid(65534, 65534, 0)
held.stop()
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
    assert log.read_text().splitlines()[:2] == ["hold", "INT"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_held_command_ends_with_its_holder(site_script, log, number):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, f"'{site_script}' hold {{sm_clock_mhz}}"], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout.readline() == "held\n"
    wait_for(lambda: says(log, "hold 900"))
    holder.send_signal(number)
    holder.wait()
    wait_for(lambda: says(log, "hold 900", "HUP"))


def test_a_held_command_that_ends_at_once_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(command_method, "_HELD_AFTER_S", 120)  # at once on a busy machine too
    failing = script(tmp_path / "failing", "echo 'no such clock'; exit 3")
    control = ControlConfig(method="command", set_command=f"{failing} {{sm_clock_mhz}}")
    entering = operating_point(VirtualGpu("a30", seed=0), POINT, control)
    with pytest.raises(ControlError, match=r"failing 900.*no such clock.*ended at once"), entering:
        pytest.fail("entered")


def test_a_script_that_fails_is_quoted_and_what_it_set_is_reset(tmp_path, log):
    failing = script(tmp_path / "failing", "echo 'no such clock' >&2; exit 3")
    control = ControlConfig(
        method="command", set_command=f"{failing} {{sm_clock_mhz}}", reset_command=f"/bin/sh -c 'echo reset >>{log}'"
    )
    entering = operating_point(VirtualGpu("a30", seed=0), POINT, control)
    with pytest.raises(ControlError, match="ended with 3: no such clock"), entering:
        pytest.fail("entered")
    assert log.read_text() == "reset\n"


def test_a_reset_that_fails_is_loud():
    control = ControlConfig(method="command", set_command="true {sm_clock_mhz}", reset_command="false")
    entering = operating_point(VirtualGpu("a30", seed=0), POINT, control)
    with pytest.raises(ReleaseError, match="THE GPU IS NOT AS IT WAS"), entering:
        pass


def test_a_command_that_is_not_there_is_named():
    control = ControlConfig(method="command", set_command="/opt/nowhere {sm_clock_mhz}", reset_command="true")
    entering = operating_point(VirtualGpu("a30", seed=0), POINT, control)
    with pytest.raises(ControlError, match="/opt/nowhere 900` cannot be run"), entering:
        pytest.fail("entered")


@pytest.mark.parametrize(
    ("gpu", "message"),
    [
        ({"control": {"method": "command"}}, "method: command and set_command belong together"),
        ({"control": {"set_command": "x {sm_clock_mhz}"}}, "method: command and set_command belong together"),
        ({"control": {"method": "command", "set_command": "x {clock}"}}, "{clock} that is not known"),
        ({"control": {"method": "command", "set_command": "x {sm_clock_mhz"}}, "cannot be split into words"),
        ({"control": {"method": "command", "set_command": "x"}}, "cannot set sm_clock_mhz, but sm900 asks it"),
        ({"control": {"method": "slurm"}, "power_limits_w": 120}, "method slurm .* cannot set power_limit_w"),
        ({"control": {"method": "helper"}, "device": "virtual:a30"}, "is for real GPUs"),
    ],
)
def test_what_a_campaign_may_not_say_of_control(gpu, message):
    content = {
        "campaign": "c",
        "gpus": {"a30": {"device": "NVIDIA A30", "clocks_mhz": [900]} | gpu},
        "networks": [{"name": "resnet18", "input": [1, 3, 64, 64]}],
    }
    with pytest.raises(ConfigError, match=message):
        parse(content)


@pytest.fixture
def sudo(tmp_path, monkeypatch):
    """Answers as the helper would, or as sudo would without it."""

    def answers(code, *said):
        script(tmp_path / "sudo", f"cat <<'END'\n{chr(10).join(said)}\nEND\nexit {code}")
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    return answers


@pytest.mark.parametrize(
    ("code", "error"), [(3, NoPermissionError), (4, NotSupportedError), (5, ControlError), (8, ControlError)]
)
def test_what_the_helper_refuses_is_told_with_its_reason(sudo, code, error):
    sudo(code, json.dumps({"ok": False, "error": "the reason"}))
    entering = operating_point(VirtualGpu("a30", seed=0), POINT, ControlConfig(method="helper"))
    with pytest.raises(error, match="the reason"), entering:
        pytest.fail("entered")


def test_while_slurms_controller_is_away_the_helper_is_asked_again(tmp_path, monkeypatch):
    answers = [json.dumps({"ok": False, "error": "Slurm does not answer"}), json.dumps({"ok": True})]
    count = tmp_path / "count"
    script(tmp_path / "sudo", f"echo >>{count}; test $(wc -l <{count}) -ge 3 && {{ echo '{answers[1]}'; exit 0; }}\n"
           f"echo '{answers[0]}'; exit 9")  # fmt: skip
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    paused_s = []
    monkeypatch.setattr(helper.time, "sleep", paused_s.append)
    with operating_point(VirtualGpu("a30", seed=0), POINT, ControlConfig(method="helper")):
        assert paused_s == [2, 5]
    count.write_text("")
    monkeypatch.setattr(helper, "_ASK_AGAIN_AFTER_S", ())
    entering = operating_point(VirtualGpu("a30", seed=0), POINT, ControlConfig(method="helper"))
    with pytest.raises(ControlError, match="Slurm does not answer"), entering:
        pytest.fail("entered")


def test_where_the_helper_is_not_installed_sudo_is_quoted(sudo):
    sudo(1, "a password is required")
    entering = operating_point(VirtualGpu("a30", seed=0), POINT, ControlConfig(method="helper"))
    with pytest.raises(ControlError, match="not installed here, or you may not use it"), entering:
        pytest.fail("entered")


def test_slurm_holds_a_step_of_its_own_beside_the_one_that_measures():
    environ = {
        "SLURM_JOB_ID": "7",
        "SLURMD_NODENAME": "gpu01",
        "SLURM_CPU_BIND": "quiet",
        "SLURM_CONF": "/s",
        "HOME": "/",
    }
    command = step_command(OperatingPoint(sm_clock_mhz=900, memory_clock_mhz=1215), environ)
    assert command[:4] == ["srun", "--overlap", "--jobid", "7"]
    assert "--gpu-freq=900,memory=1215" in command
    assert "--nodelist=gpu01" in command
    assert step_environment(environ) == {"SLURM_JOB_ID": "7", "SLURM_CONF": "/s", "HOME": "/"}


@pytest.mark.parametrize(
    ("value", "plugin", "warns"),
    [
        ("low", "gpu_nvml.so", True),
        ("high,memory=high", "gpu_nvml.so", True),
        ("900,memory=1215", "gpu_generic.so", False),  # a Slurm that can set no clocks
        ("(null)", "gpu_nvml.so", False),
        (None, "gpu_nvml.so", False),
    ],
)
def test_a_slurm_that_sets_clocks_of_every_step_is_warned_of(tmp_path, value, plugin, warns):
    (tmp_path / plugin).touch()
    line = "" if value is None else f"GpuFreqDef              = {value}\n"
    shown = f"GresTypes               = gpu\n{line}PluginDir               = /nowhere:{tmp_path}\nPrivateData = none\n"
    assert lacks_nvml(shown) == (plugin != "gpu_nvml.so")
    warning = gpu_freq_warning(shown)
    assert (warning is not None) == warns
    if warning is not None:
        assert f"GpuFreqDef={value}" in warning


def test_slurm_needs_a_job(monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    entering = operating_point(VirtualGpu("a30", seed=0), POINT, ControlConfig(method="slurm"))
    with pytest.raises(ControlError, match="works inside a Slurm job"), entering:
        pytest.fail("entered")
