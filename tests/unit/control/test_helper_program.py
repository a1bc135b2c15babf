"""The helper as a program: what it makes of arguments, configuration and leases, without Slurm and without sudo."""

import ast
import importlib.machinery
import importlib.util
import json
import os
import random
import shutil
import string
import subprocess
import sys
from pathlib import Path

import pytest

import standin_nvml

PRIVILEGED = Path(__file__).parents[3] / "privileged"
HELPER = PRIVILEGED / "clockwatt-clocks"
DOCUMENTED = {0, 2, 3, 4, 5, 6, 7, 8}
CASES = {"arguments": 4000, "configuration": 3000, "lease": 3000}

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="the helper refuses whoever is not root before all else")


@pytest.fixture(scope="module")
def program():
    loader = importlib.machinery.SourceFileLoader("clockwatt_clocks", str(HELPER))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.fixture
def installed(program, nvml, tmp_path, monkeypatch):
    """The program with a configuration and a folder of leases of its own, called by root as through sudo."""
    configuration = tmp_path / "clocks.ini"
    library = Path(nvml.environ["LD_LIBRARY_PATH"]) / standin_nvml.LIBRARY
    configuration.write_text(f"[site]\nlibrary = {library}\nusers = root\n[gpu]\nsm_clock_mhz = 210-1440\n")
    monkeypatch.setattr(program, "CONFIGURATION", str(configuration))
    monkeypatch.setattr(program, "LEASES", str(tmp_path / "leases"))
    monkeypatch.setenv("STANDIN_NVML_STATE", nvml.environ["STANDIN_NVML_STATE"])
    monkeypatch.setenv("SUDO_UID", "0")
    return program


def settings(nvml):
    return [(card.locked_sm_mhz, card.locked_memory_mhz) for card in map(nvml.card, range(3))]


def mutated(rng, text, times=3):
    letters = string.printable + "ÄΩ\0\x1b"
    for _ in range(rng.randint(1, times)):
        place = rng.randrange(len(text) + 1)
        end = min(len(text), place + rng.randint(0, 4))
        text = text[:place] + "".join(rng.choices(letters, k=rng.randint(0, 4))) + text[end:]
    return text


@needs_root
def test_fuzzed_arguments(installed, nvml, capfd):
    rng = random.Random(0)
    verbs = [*installed.VERBS, "", "unlock", "--help"]
    for _ in range(CASES["arguments"]):
        words = [
            rng.choice(verbs),
            nvml.uuid(rng.randrange(3)),
            str(rng.choice([901, 0, -1, 10**30, "1e3", "9.0", "٩"])),
        ]
        rng.shuffle(words) if rng.random() < 0.2 else None
        words = [mutated(rng, word) if rng.random() < 0.3 else word for word in words[: rng.randint(0, 4)]]
        assert installed.main(words) in DOCUMENTED, words
    assert sum(card.settings_made for card in map(nvml.card, range(3))) == 0
    assert_every_answer_is_json(capfd, CASES["arguments"])


@needs_root
def test_fuzzed_configuration(installed, nvml, capfd):
    rng = random.Random(1)
    path = Path(installed.CONFIGURATION)
    good = path.read_text() + "[gpu NVIDIA A30]\nmemory_clock_mhz = 1215-1215\npower_limit_w = none\n"
    for _ in range(CASES["configuration"]):
        path.write_text(mutated(rng, good), encoding="utf-8")
        assert installed.main(["lock", nvml.uuid(0), "901"]) in DOCUMENTED, path.read_text()
    assert nvml.card(0).settings_made == 0
    assert_every_answer_is_json(capfd, CASES["configuration"])


@needs_root
def test_fuzzed_leases(installed, nvml, capfd):
    rng = random.Random(2)
    holder = installed.identity(os.getppid())
    lease = {"uid": 0, "job": None, "holder": holder, "power_limit_mw": 165000, "keeper": [0, 0], "settings": {}}
    path = Path(installed.LEASES) / f"{nvml.uuid(0)}.lease"
    path.parent.mkdir()
    for _ in range(CASES["lease"]):
        path.write_text(mutated(rng, json.dumps(lease)), encoding="utf-8")
        verb = rng.choice([["status"], ["lock", nvml.uuid(0), "901"], ["reset", nvml.uuid(0)]])
        assert installed.main(verb) in DOCUMENTED, path.read_text()
    path.write_text("[" * 4000)
    assert installed.main(["status"]) == installed.MISCONFIGURED
    assert settings(nvml) == [(0, 0)] * 3
    assert_every_answer_is_json(capfd, CASES["lease"] + 1)


def assert_every_answer_is_json(capfd, count):
    lines = capfd.readouterr().out.splitlines()
    assert len(lines) == count
    assert all(isinstance(json.loads(line)["ok"], bool) for line in lines)


@needs_root
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "needs slurm_directory or, without Slurm, users"),
        ("[site]\nusers = root\nslurm_directory = /etc/slurm\n", "needs slurm_directory or, without Slurm, users"),
        ("[site]\nusers = root\n[gpus]\nsm_clock_mhz = 210-1440\n", "[gpus] sm_clock_mhz"),
        ("[site]\nusers = root\n[gpu]\nsm_clock = 210-1440\n", "sm_clock = 210-1440 is not understood"),
        ("[site]\nusers = root\n[gpu]\nsm_clock_mhz = all\n", "sm_clock_mhz = all is not understood"),
        ("[site]\nusers = root\ndevice = /dev/nvidia0\n", "device = /dev/nvidia0 is not understood"),
        ("[site]\nusers = root\nusers = alice\n", "already exists"),
        ("users = root\n", "no section headers"),
    ],
)
def test_a_wrong_configuration_allows_nothing_and_is_named(installed, nvml, capfd, text, message):
    Path(installed.CONFIGURATION).write_text(text)
    assert installed.main(["lock", nvml.uuid(0), "900"]) == installed.MISCONFIGURED
    assert message in json.loads(capfd.readouterr().out)["error"]


@needs_root
@pytest.mark.parametrize("spoil", [lambda path: path.chmod(0o666), lambda path: os.chown(path, 65534, 65534)])
def test_a_configuration_that_others_could_write_is_refused(installed, nvml, capfd, spoil):
    spoil(Path(installed.CONFIGURATION))
    assert installed.main(["lock", nvml.uuid(0), "900"]) == installed.MISCONFIGURED
    assert "must be a small file of root's" in json.loads(capfd.readouterr().out)["error"]


@needs_root
def test_users_without_slurm_are_those_named(installed, nvml, capfd):
    path = Path(installed.CONFIGURATION)
    path.write_text(path.read_text().replace("users = root", "users = daemon bin"))
    assert installed.main(["lock", nvml.uuid(0), "900"]) == installed.NOT_PERMITTED
    assert "user 0 is not named" in json.loads(capfd.readouterr().out)["error"]


@pytest.mark.parametrize(
    ("cgroup", "job"),
    [
        ("5:devices:/slurm/uid_1000/job_42/step_0/task_0\n0::/\n", 42),
        ("5:devices:/slurm_node01/uid_1000/job_42/step_batch\n0::/\n", 42),
        ("12:cpuset,devices:/slurm/uid_1000/job_42\n", 42),
        ("0::/system.slice/slurmstepd.scope/job_42/step_0/user/task_0\n", 42),
        ("0::/system.slice/node01_slurmstepd.scope/job_42/step_extern/user/task_special\n", 42),
        ("5:devices:/slurm/uid_1001/job_42/step_0\n", None),  # another user's job
        ("5:devices:/\n4:memory:/slurm/uid_1000/job_42\n", None),  # not the hierarchy that constrains devices
        ("5:devices:/\n0::/system.slice/slurmstepd.scope/job_42/step_0\n", None),
        ("5:devices:/user.slice/slurm/uid_1000/job_42\n", None),
        ("0::/user.slice/user-1000.slice/system.slice/slurmstepd.scope/job_42/step_0\n", None),
        ("0::/system.slice/slurmstepd.scope/job_42x/step_0\n", None),
        ("0::/\n", None),
    ],
)
def test_jobs_are_told_by_their_cgroup(program, monkeypatch, cgroup, job):
    monkeypatch.setattr(program, "proc", lambda _path: cgroup)
    assert program.job_of("self", 1000) == job


def test_a_recycled_pid_is_another_process(program):
    mine = program.identity(os.getpid())
    assert program.identity(os.getpid()) == mine
    assert program.identity(os.getppid()) != [os.getppid(), mine[1] + 1]
    ended = subprocess.Popen(["true"])
    ended.wait()
    assert program.identity(ended.pid) == []


def test_it_can_be_read_in_ten_minutes():
    assert len(HELPER.read_text().splitlines()) <= 400


def test_it_runs_on_python_3_9_and_takes_nothing_but_the_standard_library():
    tree = ast.parse(HELPER.read_text(), feature_version=(3, 9))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in imported} <= sys.stdlib_module_names
    assert HELPER.read_text().startswith("#!/usr/bin/python3 -I\n")


@pytest.mark.skipif(shutil.which("visudo") is None, reason="sudo is not installed here")
def test_sudo_understands_its_file():
    checked = subprocess.run(
        ["visudo", "--check", "--file", str(PRIVILEGED / "sudoers")], capture_output=True, check=False
    )
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize("script", ["install.sh", "slurm-restore"])
def test_shell_scripts_can_be_read_by_a_plain_shell(script):
    subprocess.run(["sh", "-n", str(PRIVILEGED / script)], check=True)
