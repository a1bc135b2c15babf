"""The helper as a program: what it makes of arguments, configuration and leases, without Slurm and without sudo."""

import ast
import contextlib
import fcntl
import importlib.machinery
import importlib.util
import json
import os
import random
import re
import shutil
import signal
import string
import subprocess
import sys
from pathlib import Path

import pytest

import standin_nvml

PRIVILEGED = Path(__file__).parents[3] / "privileged"
HELPER = PRIVILEGED / "clockwatt-clocks"
DOCUMENTED = {0, *range(2, 10)}
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
    monkeypatch.setattr(
        program, "SLURM", [f"{tmp_path}/cgroup/*/{pattern.rpartition('/')[2]}" for pattern in program.SLURM]
    )
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
        ("[site]\nusers = root\n[gpus]\n", "[gpus]"),
        ("[site]\nusers = root\nsm_clock_mhz = 210-1440\n", "[site] sm_clock_mhz = 210-1440 is not understood"),
        ("[site]\nusers = root\n[gpu]\nlibrary = libnvidia-ml.so.1\n", "[gpu] library"),
        ("[site]\n[gpu]\nusers = root\n", "[gpu] users = root is not understood"),
        ("[site]\nusers = root\n[gpu NVIDIA A30]\ndevice = /dev/nvidia{minor}\n", "[gpu NVIDIA A30] device"),
        ("[site]\nusers = root\nscontrol = scontrol\n", "scontrol = scontrol is not understood"),
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
def test_a_clock_of_the_site_that_could_not_be_put_back_is_refused(installed, nvml, capfd):
    path = Path(installed.CONFIGURATION)
    path.write_text(f"{path.read_text()}site_sm_clock_mhz = 1201\n")
    assert installed.main(["lock", nvml.uuid(0), "900"]) == installed.MISCONFIGURED
    assert "does not support its site_sm_clock_mhz" in json.loads(capfd.readouterr().out)["error"]
    assert nvml.card(0).settings_made == 0


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


@needs_root
@pytest.mark.parametrize(
    "cgroup",
    ["freezer/slurm", "freezer/slurm_node01", "system.slice/slurmstepd.scope", "system.slice/n_slurmstepd.scope"],
)
def test_users_named_where_slurm_gives_gpus_to_jobs_may_set_none(installed, nvml, tmp_path, capfd, cgroup):
    (tmp_path / "cgroup" / "user.slice" / "user-1000.slice" / cgroup).mkdir(parents=True)  # a user's own
    (tmp_path / "cgroup" / "system.slice" / "slurmctld.service").mkdir(parents=True)  # gives GPUs of other machines
    assert installed.main(["lock", nvml.uuid(0), "900"]) == 0
    assert installed.main(["reset", nvml.uuid(0)]) == 0
    made = nvml.card(0).settings_made
    (tmp_path / "cgroup" / cgroup).mkdir(parents=True)
    for words in (["lock", nvml.uuid(0), "900"], ["reset", nvml.uuid(0)], ["status"]):
        capfd.readouterr()
        assert installed.main(words) == installed.MISCONFIGURED
        assert "users is for machines without Slurm" in json.loads(capfd.readouterr().out)["error"]
    assert nvml.card(0).settings_made == made


V1 = "5:devices:{0}/task_0\n6:freezer:{0}\n4:memory:/\n0::/\n"
V2 = "0::{0}\n"
SCOPE = "/system.slice/slurmstepd.scope"


@pytest.mark.parametrize(
    ("cgroup", "job"),
    [
        (V1.format("/slurm/uid_1000/job_42/step_0"), (42, "")),
        (V1.format("/slurm_node01/uid_1000/job_42/step_batch"), (42, "node01")),
        (V1.format("/slurm/uid_1000/job_42/step_extern").replace("task_0", "task_special"), (42, "")),
        ("5:devices:/slurm/uid_1000/job_42/step_0\n6:freezer:/slurm/uid_1000/job_42/step_0\n", (42, "")),
        (
            "12:cpuset,devices:/slurm/uid_1000/job_42/step_0\n3:freezer,cpu:/slurm/uid_1000/job_42/step_0\n2:memory:/x\n",
            (42, ""),
        ),
        (
            V1.format("/slurm/uid_1000/job_42/step_0") + "1:name=systemd:/x/slurm_other/uid_1000/job_1/step_0\n",
            (42, ""),
        ),
        (V1.format("/slurm/uid_1000/job_42/step_0") + "1:cpuset:/slurm_other/uid_1000/job_1/step_0\n", (None, "")),
        (V1.format("/slurm/uid_1000/job_42/step_0") + "3:cpuset:/slurm/uid_1000/job_42/step_0/below\n", (None, "")),
        (
            V1.format("/slurm/uid_1000/job_42/step_0/below").replace("/task_0", ""),
            (None, ""),
        ),  # Slurm neither sees it …
        (V1.format("/slurm/uid_1000/job_42/step_0/task_0").replace("/task_0\n", "\n", 1), (None, "")),
        ("5:devices:/slurm/uid_1000/job_42/step_0\n6:freezer:/slurm/uid_1000/job_42/step_0/x\n", (None, "")),
        ("5:devices:/slurm/uid_1000/job_42/step_0/task_0/x\n6:freezer:/slurm/uid_1000/job_42/step_0\n", (None, "")),
        ("5:devices:/slurm/uid_1000/job_42/step_1/task_0\n6:freezer:/slurm/uid_1000/job_42/step_0\n", (None, "")),
        (V1.format("/slurm/uid_1000/job_42"), (None, "")),
        (V1.format("/slurm/uid_1001/job_42/step_0"), (None, "")),  # another user's job
        (V1.format("/slurm/uid_1000/job_42x/step_0"), (None, "")),
        (V1.format("/slurm/uid_1000/job_"), (None, "")),
        (V1.format("/user.slice/slurm/uid_1000/job_42/step_0"), (None, "")),
        (V1.format("/slurm//uid_1000/job_42/step_0"), (None, "")),
        (V1.format("/../slurm/uid_1000/job_42/step_0"), (None, "")),  # above the root of a cgroup namespace
        ("5:devices:/\n4:memory:/slurm/uid_1000/job_42/step_0\n6:freezer:/slurm/uid_1000/job_42/step_0\n", (None, "")),
        ("5:devices:/slurm/uid_1000/job_42/step_0\n6:freezer:/\n", (None, "")),  # Slurm does not track it
        ("5:devices:/slurm/uid_1000/job_42/step_0\n", (None, "")),
        ("5:devices:/slurm/uid_1000/job_42/step_0\n6:freezer:/slurm/uid_1000/job_43/step_0\n", (None, "")),
        (f"5:devices:/\n0::{SCOPE}/job_42/step_0/user/task_0\n", (None, "")),
        (V2.format(f"{SCOPE}/job_42/step_0/user/task_0"), (42, "")),
        (V2.format(f"{SCOPE}/job_42/step_batch/user/task_0"), (42, "")),
        (V2.format(f"{SCOPE}/job_42/step_interactive/user/task_0"), (42, "")),
        (V2.format(f"{SCOPE}/job_42/step_extern/user/task_special"), (42, "")),
        (V2.format("/system.slice/node01_slurmstepd.scope/job_42/step_0/user/task_0"), (42, "node01")),
        (V2.format("/system.slice/rack_1_node_slurmstepd.scope/job_42/step_0/user/task_0"), (42, "rack_1_node")),
        (V2.format(f"{SCOPE}/job_42/step_0/user/task_0/below"), (None, "")),
        (V2.format(f"{SCOPE}/job_42/step_0/user"), (None, "")),
        (V2.format(f"{SCOPE}/job_42/step_0/slurm"), (None, "")),
        (V2.format(f"{SCOPE}/job_42"), (None, "")),
        (V2.format(f"{SCOPE}/job_42x/step_0/user/task_0"), (None, "")),
        (V2.format(f"{SCOPE}/system/job_42/step_0/user/task_0"), (None, "")),
        (V2.format(f"{SCOPE}/job_0x2a/step_0/user/task_0"), (None, "")),
        (V2.format(f"{SCOPE}.d/job_42/step_0/user/task_0"), (None, "")),
        (V2.format("/system.slice/a/b_slurmstepd.scope/job_42/step_0/user/task_0"), (None, "")),
        (V2.format("/system.slice/slurmd.service/job_42/step_0/user/task_0"), (None, "")),
        (V2.format(f"/user.slice/user-1000.slice{SCOPE}/job_42/step_0/user/task_0"), (None, "")),
        (V2.format(f"/..{SCOPE}/job_42/step_0/user/task_0"), (None, "")),
        (V2.format(f"{SCOPE}/job_42/step_0/user/task_0 (deleted)"), (None, "")),
        (V2.format("/"), (None, "")),
        ("", (None, "")),
    ],
)
def test_a_job_is_identified_by_its_cgroups(program, monkeypatch, tmp_path, cgroup, job):
    use_cgroups(program, monkeypatch, tmp_path, cgroup)
    assert program.step_of("self", 1000) == job


def use_cgroups(program, monkeypatch, root, cgroup, owner=0):
    """Folders in place of /sys/fs/cgroup, with a file that says who may move processes there."""
    monkeypatch.setattr(program, "CGROUPS", str(root))
    monkeypatch.setattr(program, "proc", lambda _path: cgroup)
    for line in cgroup.splitlines():
        for name in line.split(":")[1].split(","):
            folder = Path(f"{root}/{name}{line.split(':', 2)[2]}".replace("/..", "/up"))
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "cgroup.procs").touch()
            os.chown(folder / "cgroup.procs", owner, owner)


@needs_root
@pytest.mark.parametrize(
    "cgroup", [V1.format("/slurm/uid_1000/job_42/step_0"), V2.format(f"{SCOPE}/job_42/step_0/user/task_0")]
)
def test_a_cgroup_that_its_user_may_move_processes_to_is_of_no_job(program, monkeypatch, tmp_path, cgroup):
    use_cgroups(program, monkeypatch, tmp_path, cgroup, owner=1000)
    assert program.step_of("self", 1000) == (None, "")


@needs_root
@pytest.mark.parametrize("change", [None, {"holder": [1, 1]}, {"job": 7}])
def test_a_lease_that_is_gone_or_another_after_the_lock_was_had_is_refused(installed, nvml, capfd, monkeypatch, change):
    """What was known of it is not known of the GPU now, which may be another job's."""
    assert installed.main(["lock", nvml.uuid(0), "900"]) == 0
    path = Path(installed.LEASES) / f"{nvml.uuid(0)}.lease"
    lease, made = json.loads(path.read_text()), nvml.card(0).settings_made
    locked = installed.locked

    def meanwhile(*words, **options):
        path.unlink() if change is None else path.write_text(json.dumps({**lease, **change}))
        return locked(*words, **options)

    monkeypatch.setattr(installed, "locked", meanwhile)
    assert installed.main(["lock", nvml.uuid(0), "600"]) == installed.HELD
    assert "has changed hands meanwhile" in json.loads(capfd.readouterr().out.splitlines()[-1])["error"]
    assert nvml.card(0).settings_made == made
    with contextlib.suppress(ProcessLookupError):  # a keeper without its lease ends by itself
        os.kill(lease["keeper"][0], signal.SIGKILL)


@needs_root
def test_a_value_out_of_bounds_is_refused_before_slurm_is_asked(installed, nvml, monkeypatch):
    """Each question is some calls of root's to the controller."""
    monkeypatch.setattr(installed, "identify", lambda: (0, 42, installed.identity(os.getpid()), -1))
    monkeypatch.setattr(installed, "prove_ownership", lambda *_: None)
    monkeypatch.setattr(installed, "ask_slurm", lambda *_: pytest.fail("Slurm was asked"))
    assert installed.main(["lock", nvml.uuid(0), "1500"]) == installed.NOT_SUPPORTED


@needs_root
def test_a_site_names_its_own_memory_clock_and_power_limit(installed, nvml):
    path = Path(installed.CONFIGURATION)
    named = "site_memory_clock_mhz = 1215\nsite_power_limit_w = 150\nsite_sm_clock_mhz = 1200\n"
    path.write_text(f"{path.read_text()}{named}")
    assert installed.main(["lock", nvml.uuid(0), "900"]) == 0
    assert installed.main(["reset", nvml.uuid(0)]) == 0
    card = nvml.card(0)
    assert (card.locked_sm_mhz, card.locked_memory_mhz, card.limit_mw) == (1200, 1215, 150_000)


@needs_root
def test_nine_gpus_whose_locks_are_taken_are_given_up_within_the_time_of_the_epilog(installed, tmp_path, monkeypatch):
    """The wait is for all of them, not for each: 45 s are all that slurm-restore has."""
    monkeypatch.setattr(installed, "LOCKED_WITHIN_S", 0.3)
    monkeypatch.setattr(installed, "ENDED_WITHIN_S", 0.1)
    monkeypatch.setattr(installed.os, "kill", lambda *_: None)
    monkeypatch.setattr(installed, "leave_cgroups", lambda _pid: None)
    waited_s = []
    monkeypatch.setattr(installed.time, "sleep", waited_s.append)
    clock = lambda: sum(waited_s)  # noqa: E731
    monkeypatch.setattr(installed.time, "monotonic", clock)
    folder = Path(installed.LEASES)
    folder.mkdir()
    locks = []
    for number in range(9):
        locks.append((folder / f"GPU-{number}.lock").open("w"))
        fcntl.flock(locks[-1], fcntl.LOCK_EX)
        lease = {"uid": 1, "job": 42, "holder": [1, 1], "power_limit_mw": 0, "keeper": [0, 0], "settings": {}}
        (folder / f"GPU-{number}.lease").write_text(json.dumps(lease))
    with pytest.raises(installed.Refusal, match="not put back"):
        installed.restore("42")
    assert sum(waited_s) < 0.3 + 9 * 0.2
    for lock in locks:
        lock.close()


NODE = """NodeName=node01 Arch=x86_64 CoresPerSocket=1
   ActiveFeatures=(null)
   Gres={gres}
   GresUsed=gpu:a30:1(IDX:0)
   Comment={comment}
"""
JOB = """JobId=42 JobName={name}
   UserId=first last(1000) GroupId=users(100) MCS_label=N/A
   JobState={state} Reason=None Dependency=(null)
   TRES=cpu=1,mem=300M,node=1,billing=1
   JOB_GRES={whole}
{parts}   MinCPUsNode=1 MinMemoryNode=300M MinTmpDiskNode=0
   Command=bash
   Comment={comment}
"""
PART = "     Nodes={} CPU_IDs=0-1 Mem=300 GRES={}\n"
HELD = PART.format("node01", "gpu:a30:1(IDX:0)")
FORGED = "x\n   UserId=a(1000) GroupId=b(1)\n   JobState=RUNNING\n   JOB_GRES=gpu:4\n" + PART.format("node01", "gpu:4")


@pytest.fixture
def proves(program, monkeypatch):
    """Check what the helper says of a job: that it holds the GPU, or why not.

    Of a node with `there` GPUs this process may open `open_`, with Slurm's answers: one, or each by its id.
    """

    def prove(said, node, jobs, *, there=4, open_=1, uid=1000):
        def answer(_site, *words):
            if "hostnames" in words:
                return {"node[01-02]": "node01\nnode02\n", "node[02-03]": "node02\nnode03\n"}.get(words[-1], words[-1])
            return node if "node" in words else jobs.get(words[-1], "") if isinstance(jobs, dict) else jobs

        monkeypatch.setattr(program, "ask_slurm", answer)
        reach = dict.fromkeys(range(there), False) | dict.fromkeys(range(open_), True)
        monkeypatch.setattr(program, "may_open", lambda device: reach.get(int(device.removeprefix("/dev/nvidia"))))
        site = {"node": "node01", "device": "/dev/nvidia{minor}"}
        if said == "holds":
            program.prove_allocation(uid, 42, site)
            return
        with pytest.raises(program.Refusal, match=re.escape(said)) as refused:
            program.prove_allocation(uid, 42, site)
        assert refused.value.args[0] == program.NOT_PERMITTED

    return prove


def node_text(gres="gpu:a30:4", comment=""):
    return NODE.format(gres=gres, comment=comment)


def job_text(parts=HELD, *, state="RUNNING", name="bash", comment="", whole="gpu:1"):
    return JOB.format(parts=parts, state=state, name=name, comment=comment, whole=whole)


def array_text():
    """Of job 42, the second task of array 40: of an array Slurm tells every task that has the number, or began it."""
    first, ours = job_text().split(" ", 1)[1], job_text()
    ours = ours.replace("JobId=42 ", "JobId=42 ArrayJobId=40 ArrayTaskId=2 ")
    return {"42": f"JobId=41 ArrayJobId=40 ArrayTaskId=1 {first}\n{ours}", "40_2": ours}


def het_text():
    ours = job_text().replace("JobId=42 ", "JobId=42 HetJobId=42 HetJobOffset=0 ")
    return {
        "42": ours
        + "\n"
        + ours.replace("JobId=42 HetJobId=42 HetJobOffset=0 ", "JobId=43 HetJobId=42 HetJobOffset=1 "),
        "42+0": ours,
    }


OTHER = job_text().replace("JobId=42", "JobId=43")


@pytest.mark.parametrize(
    ("node", "job", "reach", "said"),
    [
        (node_text(), job_text(), {}, "holds"),
        (node_text("gpu:4(S:0-1)"), job_text(PART.format("node01", "gpu:1(IDX:3)")), {}, "holds"),
        (node_text("gpu:a30:2(S:0),gpu:rtx:2(S:1),tmpdisk:100"), job_text(), {}, "holds"),
        (node_text(), job_text(PART.format("node01", "gpu:a30:2(IDX:0,2)")), {"open_": 1}, "holds"),  # a step of it
        (node_text(), job_text(PART.format("node[01-02]", "gpu:a30:1(IDX:0)")), {}, "holds"),
        (node_text(), job_text(PART.format("node[02-03]", "gpu:2(IDX:0-1)") + HELD), {}, "holds"),
        (node_text(), job_text(PART.format("node01", "gpu:4(IDX:0-3)")), {"open_": 4}, "holds"),  # nothing is refused
        (node_text(), array_text(), {}, "holds"),
        (node_text(), het_text(), {}, "holds"),
        (node_text(), {"42": array_text()["40_2"]}, {}, "not one record"),  # no such task
        (
            node_text(),
            {"42": job_text(name="x\nJobId=42 ArrayJobId=7 ArrayTaskId=1 "), "7_1": OTHER},
            {},
            "not one record",
        ),
        (
            node_text(),
            {"42": job_text(name="x\nJobId=42 HetJobId=7 HetJobOffset=1 "), "7+1": OTHER},
            {},
            "not one record",
        ),
        (node_text(), job_text() + OTHER, {}, "not one record"),
        (node_text(), OTHER + job_text(), {}, "not one record"),
        (node_text(), job_text(name=FORGED + "JobId=999 JobName=y"), {"open_": 4}, "not one record"),  # a record whole
        (node_text(), job_text(name=FORGED + "\nJobId=999 JobName=y", whole="(null)", parts=""), {}, "not one record"),
        (node_text(), job_text(name=FORGED + "    z=\rJobId=999 JobName=y"), {"open_": 4}, "2 lines UserId="),
        (node_text(), job_text(name="x\n   JobState=RUNNING", state="COMPLETING"), {}, "2 lines JobState="),
        (node_text(), job_text("", whole="(null)", name=f"x\n   JOB_GRES=gpu:1\n{HELD}"), {}, "2 lines JOB_GRES="),
        (node_text(), job_text(PART.format("node[02-03]", "gpu:1(IDX:0)")), {}, "holds 0 GPUs of node01"),
        (node_text(), job_text(), {"open_": 4}, "holds 1 GPUs of node01 and may open 4"),  # devices not constrained
        (node_text(), job_text(PART.format("node01", "")), {}, "holds 0 GPUs"),
        (node_text(), job_text("", whole="(null)"), {}, "holds 0 GPUs"),
        (node_text(), job_text(PART.format("node01", "shard:1(0/4,1/4)")), {}, "holds 0 GPUs"),
        (node_text(), job_text(PART.format("node01", "mygpu:1(IDX:0)")), {}, "holds 0 GPUs"),
        (node_text("gpu:a30:4,shard:16"), job_text(), {}, "jobs share GPUs here"),
        (node_text("gpu:a30:4,mps:a30:400"), job_text(), {}, "jobs share GPUs here"),
        (node_text(), job_text(), {"there": 5}, "Slurm knows 4 of 5 GPUs here"),
        (node_text("gpu:8"), job_text(), {}, "Slurm knows 8 of 4 GPUs here"),  # a device named twice
        (node_text("(null)"), job_text(), {}, "Slurm knows 0 of 4 GPUs here"),
        (node_text(), job_text(state="COMPLETING"), {}, "does not run: it is COMPLETING"),
        (node_text(), job_text(state="SUSPENDED"), {}, "does not run"),
        (node_text(), job_text(), {"uid": 1001}, "not of user 1001"),
        (node_text(), job_text(), {"uid": 0}, "not of user 0"),
        (node_text(comment="x\n   Gres=gpu:5"), job_text(), {}, "2 lines Gres="),
        (node_text(), job_text(name=FORGED), {"open_": 2}, "2 lines UserId="),
        (node_text(), job_text(comment=FORGED), {"open_": 2}, "2 lines UserId="),
        (
            node_text(),
            job_text(comment="x\n   JOB_GRES=gpu:9\n" + PART.format("node01", "gpu:9")),
            {},
            "2 lines JOB_GRES=",
        ),
        (node_text(), job_text(name="x\nJobId=42 JobName=" + FORGED), {}, "not one record"),
        (node_text(), job_text(name="x\nJobId=43 JobName=y"), {}, "not one record"),
        (node_text(), job_text(state="PENDING").replace("JobId=42", "JobId=7"), {}, "not one record"),
        (node_text(), "", {}, "not one record"),
    ],
)
def test_who_holds_a_gpu_is_told_by_slurms_answers(proves, node, job, reach, said):
    proves(said, node, job, **reach)


@pytest.mark.parametrize(
    ("script", "within_s", "message"),
    [
        ("exec sleep 60", 0.3, "timed out"),
        ("echo Unable to contact slurm controller >&2; exit 1", 300, "Unable to contact slurm controller"),
        (None, 300, "No such file"),
    ],
)
def test_a_controller_that_does_not_answer_is_told_soon(program, monkeypatch, tmp_path, script, within_s, message):
    scontrol = tmp_path / "scontrol"
    if script is not None:
        scontrol.write_text(f"#!/bin/sh\n{script}\n")
        scontrol.chmod(0o755)
    monkeypatch.setattr(program, "SLURM_ANSWERS_WITHIN_S", within_s)
    with pytest.raises(program.Refusal, match=message) as refused:
        program.ask_slurm({"scontrol": str(scontrol), "slurm_directory": "/etc/slurm"}, "show", "config")
    assert refused.value.args[0] == program.NO_SLURM


def test_a_gpu_that_cannot_be_put_back_is_tried_with_growing_pauses(program, monkeypatch, tmp_path):
    """Of a keeper whose GPU is lost: 17 lines in the log in the first two hours, not one a second."""
    paused_s = []

    def sleep(pause_s):
        paused_s.append(pause_s)
        if len(paused_s) == 17:
            raise InterruptedError

    def lost(*_):
        raise program.Refusal(program.DRIVER, "NVML's error 15")

    holder, holder_ends = os.pipe()
    os.close(holder_ends)  # readable at once, like the pidfd of a dead holder
    words, said = os.pipe()
    os.write(said, b"written")
    monkeypatch.setattr(program, "LEASES", str(tmp_path))
    monkeypatch.setattr(program, "leave_cgroups", lambda _pid: None)
    monkeypatch.setattr(program, "proc", lambda path: "" if path == "self/cgroup" else "x")
    monkeypatch.setattr(program, "identity", lambda _pid: [7, 7])
    monkeypatch.setattr(program, "undo_inherited", lambda: None)
    monkeypatch.setattr(program, "put_back", lost)
    monkeypatch.setattr(program.time, "sleep", sleep)
    monkeypatch.setattr(program.os, "read", lambda _fd, count: os_read(words, count))
    monkeypatch.setattr(program.os, "write", lambda *_: 0)
    lease = {"uid": 1, "job": 1, "holder": [1, 1], "power_limit_mw": 1, "keeper": [7, 7], "settings": {}}
    (tmp_path / "GPU.lease").write_text(json.dumps(lease))
    with pytest.raises(InterruptedError):
        program.keep("GPU", str(holder))
    assert paused_s[:4] == [1, 2, 4, 8]
    assert max(paused_s) == program.LONGEST_PAUSE_S == 600
    for descriptor in (holder, words, said):
        os.close(descriptor)


os_read, os_stat = os.read, os.stat


@needs_root
def test_a_keeper_that_ends_after_it_was_ready_leaves_no_lease_and_nothing_set(
    installed, nvml, capfd, monkeypatch, tmp_path
):
    keeper = tmp_path / "keeper"
    keeper.write_text("#!/bin/sh\necho ready\n")
    keeper.chmod(0o755)
    monkeypatch.setattr(installed, "PYTHON", str(keeper))
    identity = installed.identity

    def after_its_end(pid):
        if pid and Path(f"/proc/{pid}/stat").read_text().split()[3] == str(os.getpid()):
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        return identity(pid)

    monkeypatch.setattr(installed, "identity", after_its_end)
    assert installed.main(["lock", nvml.uuid(0), "900"]) == installed.SYSTEM
    assert "has ended; nothing was set" in json.loads(capfd.readouterr().out)["error"]
    assert list(Path(installed.LEASES).glob("*.lease")) == []
    assert nvml.card(0).settings_made == 0


@needs_root
@pytest.mark.parametrize(("later", "ends"), [(0, True), (1, False)])
def test_only_the_keeper_is_killed_and_no_process_that_has_its_number_since(installed, nvml, monkeypatch, later, ends):
    """A process that started later has taken the number after it was read, and before the pidfd was opened."""
    with subprocess.Popen(["sleep", "600"]) as process:
        now = installed.identity(process.pid)
        keeper = [now[0], now[1] - later]
        pidfd_open, opened = os.pidfd_open, []
        monkeypatch.setattr(installed.os, "pidfd_open", lambda pid: opened.append(pid) or pidfd_open(pid))
        monkeypatch.setattr(installed, "identity", lambda pid: now if opened else keeper)
        lease = {"uid": 0, "job": None, "holder": keeper, "power_limit_mw": 0, "keeper": keeper, "settings": {}}
        path = Path(installed.LEASES) / f"{nvml.uuid(0)}.lease"
        path.parent.mkdir()
        path.write_text(json.dumps(lease))
        installed.put_back(nvml.uuid(0), installed.read_lease(nvml.uuid(0)))
        assert not path.exists()
        if ends:
            assert process.wait(timeout=120) == -signal.SIGKILL
        else:
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(timeout=0.5)
            process.kill()


@needs_root
@pytest.mark.parametrize("pid", [0, 10**14])
def test_where_no_keeper_can_be_killed_the_gpu_is_put_back(installed, nvml, pid):
    path = Path(installed.LEASES) / f"{nvml.uuid(0)}.lease"
    path.parent.mkdir()
    path.write_text("{}")
    installed.put_back(nvml.uuid(0), {**installed.DAMAGED, "keeper": [pid, 0]})
    assert not path.exists()


@needs_root
@pytest.mark.skipif(not all(map(shutil.which, ("setarch", "ionice"))), reason="util-linux is not installed here")
@pytest.mark.parametrize("personality", [[], ["setarch", "linux32"], ["setarch", "--uname-2.6"]])
def test_the_io_class_of_a_caller_is_undone_whatever_machine_it_says_this_is(personality):
    undo = (
        "import os, runpy, subprocess, sys; program = runpy.run_path(sys.argv[1], run_name='program');"
        "program['undo_inherited'](); print(os.uname().machine); subprocess.run([sys.argv[2]], check=True)"
    )
    command = [*personality, "ionice", "-c", "3", sys.executable, "-u", "-c", undo, str(HELPER), shutil.which("ionice")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[0] == os.uname().machine
    assert "idle" not in done.stdout


@needs_root
def test_a_gpu_whose_node_cannot_be_opened_is_nobodys_but_counts_as_one_that_others_may_reach(
    installed, nvml, tmp_path
):
    """Any error but the cgroup's: here a link, which is not followed."""
    site = {"slurm_directory": "/etc/slurm", "device": f"{tmp_path}/card{{minor}}"}
    with installed.Gpu(nvml.uuid(0), str(Path(nvml.environ["LD_LIBRARY_PATH"]) / standin_nvml.LIBRARY)) as gpu:
        card = Path(site["device"].format(minor=gpu.numbers("nvmlDeviceGetMinorNumber")[0]))
        card.touch()
        installed.prove_ownership(0, 42, gpu, site)
        card.rename(tmp_path / "moved")
        card.symlink_to(tmp_path / "moved")
        assert installed.may_open(str(card)) is True
        with pytest.raises(installed.Refusal, match="not in the cgroups of a Slurm job that holds it"):
            installed.prove_ownership(0, 42, gpu, site)
        card.unlink()
        assert installed.may_open(str(card)) is None
        with pytest.raises(installed.Refusal, match="not in the cgroups of a Slurm job that holds it"):
            installed.prove_ownership(0, 42, gpu, site)


def test_a_recycled_pid_is_another_process(program):
    mine = program.identity(os.getpid())
    assert program.identity(os.getpid()) == mine
    assert program.identity(os.getppid()) != [os.getppid(), mine[1] + 1]
    ended = subprocess.Popen(["true"])
    ended.wait()
    assert program.identity(ended.pid) == []


@pytest.mark.parametrize("name", ["PPid: 1", "PPid:\t1\nx", ") S 1 1 1", "x) S 1 (y"])
def test_a_parent_is_told_by_what_the_kernel_writes_whatever_the_process_is_called(program, monkeypatch, name):
    """Of an ancestor that counts as setuid root, so that the search goes on to its parent, which is this process."""
    rename = "import sys; open('/proc/self/comm', 'w').write(sys.argv[1]); print(); sys.stdin.read()"
    command = [sys.executable, "-c", rename, name]
    sudo = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with sudo:
        sudo.stdout.readline()
        assert Path(f"/proc/{sudo.pid}/comm").read_text() == f"{name}\n"
        setuid_root = os.stat_result((0o104755, 0, 0, 1, 0, 0, 0, 0, 0, 0))
        told = {f"/proc/{sudo.pid}/exe": setuid_root}
        monkeypatch.setattr(program.os, "getppid", lambda: sudo.pid)
        monkeypatch.setattr(program.os, "stat", lambda path: told.get(path) or os_stat(path))
        assert program.calling_pid() == os.getpid()
        monkeypatch.undo()
        sudo.stdin.close()


def test_it_can_be_read_in_a_quarter_of_an_hour_and_its_readme_says_how_long_it_is():
    lines = len(HELPER.read_text().splitlines())
    assert lines <= 500
    (said,) = re.findall(r"one file of (\d+) lines", (PRIVILEGED / "README.md").read_text())
    assert int(said) == lines


def test_exit_codes_are_documented_where_it_is_read():
    head = HELPER.read_text().split('"""')[1]
    assert all(re.search(rf"(?m)(?:^|\s){code} [a-zA-Z]", head) for code in {1, *DOCUMENTED})


def test_it_runs_on_python_3_9_and_takes_nothing_but_the_standard_library():
    tree = ast.parse(HELPER.read_text(), feature_version=(3, 9))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in imported} <= sys.stdlib_module_names
    assert HELPER.read_text().startswith("#!/usr/bin/python3 -IS\n")


@pytest.mark.skipif(shutil.which("visudo") is None, reason="sudo is not installed here")
def test_sudo_understands_its_file():
    checked = subprocess.run(
        ["visudo", "--check", "--file", str(PRIVILEGED / "sudoers")], capture_output=True, check=False
    )
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize("script", ["install.sh", "slurm-restore"])
def test_shell_scripts_can_be_read_by_a_plain_shell(script):
    subprocess.run(["sh", "-n", str(PRIVILEGED / script)], check=True)


def moved(script, folder, *changes):
    """A script of the administrator's, with a folder in place of the machine's own."""
    text = (PRIVILEGED / script).read_text()
    for path in ("/usr/local/sbin", "/etc/clockwatt", "/run/clockwatt", "/etc/sudoers.d", "/etc/systemd/system"):
        text = text.replace(path, f"{folder}{path}")
        (folder / path[1:]).mkdir(parents=True, exist_ok=True)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    shutil.copy(PRIVILEGED / "sudoers", folder)
    (folder / script).write_text(text)
    return ["sh", str(folder / script)]


@pytest.mark.parametrize(("ends_after_s", "within_s", "code"), [(0, 60, 0), (1, 60, 0), (60, 1, 1)])
def test_an_epilog_waits_for_a_keeper_that_is_at_it_before_it_drains_the_node(tmp_path, ends_after_s, within_s, code):
    """The restore could not have the GPU, since its keeper had it; the keeper is done a while later, or never."""
    command = moved("slurm-restore", tmp_path, ("keeper_within_s=15", f"keeper_within_s={within_s}"))
    helper = tmp_path / "usr/local/sbin/clockwatt-clocks"
    helper.write_text("#!/bin/sh\nexit 6\n")
    helper.chmod(0o755)
    lease = tmp_path / "run/clockwatt/GPU-0.lease"
    lease.write_text('{"uid": 1, "job": 42, "holder": [1, 1]}')
    with subprocess.Popen(["sh", "-c", f"sleep {ends_after_s}; exec rm {lease}"]) as keeper:
        assert subprocess.run(command, env={**os.environ, "SLURM_JOB_ID": "7"}, check=False).returncode == 0
        done = subprocess.run(command, env={**os.environ, "SLURM_JOB_ID": "42"}, check=False)
        assert (done.returncode, lease.exists()) == (code, bool(code))
        keeper.kill()


@needs_root
def test_root_by_sudo_is_told_how_to_restore(installed, capfd):
    assert installed.main(["restore", "all"]) == installed.NOT_PERMITTED
    assert f"env -u SUDO_UID {installed.PROGRAM} restore all" in json.loads(capfd.readouterr().out)["error"]


@needs_root
@pytest.mark.parametrize(("words", "said"), [([], "jobs hold GPUs"), (["--now"], "could not be put back")])
def test_what_could_not_be_put_back_is_not_removed(tmp_path, words, said):
    command = [*moved("install.sh", tmp_path, ("if booted_by_systemd", "if false")), "--uninstall", *words]
    helper = tmp_path / "usr/local/sbin/clockwatt-clocks"
    helper.write_text("#!/bin/sh\nexit 6\n")
    helper.chmod(0o755)
    lease = tmp_path / "run/clockwatt/GPU-0.lease"
    lease.touch()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert said in done.stderr
    assert lease.exists()
    assert helper.exists()
    lease.unlink()
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    assert not helper.exists()


@needs_root
@pytest.mark.skipif(shutil.which("visudo") is None, reason="sudo is not installed here")
def test_disabling_fails_where_another_rule_lets_users_in(tmp_path):
    command = [*moved("install.sh", tmp_path), "--disable"]
    rules = tmp_path / "etc/sudoers.d"
    for name in ("clockwatt", "clockwatt.conf"):  # sudo reads no name with a dot
        shutil.copy(tmp_path / "sudoers", rules / name)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Disabled: nobody can set anything.")
    other = rules / "site"
    other.write_text(f"%users ALL = NOPASSWD: {tmp_path}/usr/local/sbin/clockwatt-clocks\n")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.rstrip().endswith(f"take it away: {other}")


@needs_root
def test_removing_it_leaves_the_script_even_where_its_folder_was_removed_too_early(tmp_path):
    command = [*moved("install.sh", tmp_path, ("if booted_by_systemd", "if false")), "--uninstall"]
    folder = tmp_path / "etc/clockwatt"
    folder.rmdir()
    subprocess.run(command, capture_output=True, check=True)
    subprocess.run([folder / "slurm-restore"], check=True)
