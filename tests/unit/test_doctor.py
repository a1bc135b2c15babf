import os
import stat

import pytest
import yaml

import standin_nvml
from clockwatt import config
from clockwatt.config import ControlConfig
from clockwatt.errors import OutputError
from clockwatt.gpu.interface import InstalledGpu
from clockwatt.workflow import cluster, doctor, propose_config
from clockwatt.workflow.cluster import GpuPartition, JobStatus, parse_gres


@pytest.fixture(autouse=True)
def _alone(tmp_path, monkeypatch):
    """Without what other tests leave: a helper that asks their Slurm, a stand-in in this process. Both take seconds."""
    monkeypatch.setattr(doctor, "installed_gpus", list)
    monkeypatch.setattr("clockwatt.control.helper.ControlConfig", lambda: ControlConfig(helper=str(tmp_path / "none")))


def lines(findings, topic):
    return [(finding.state, finding.text) for finding in findings if finding.topic == topic]


def install_slurm(folder, monkeypatch, **outputs):
    """Put commands into PATH, alone, that print what Slurm's would."""
    for command, output in outputs.items():
        script = folder / command
        script.write_text(f"#!/bin/sh\n/bin/cat <<'END'\n{output}\nEND\n")
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(folder))


def campaign(path, **gpu):
    content = {"campaign": "c", "gpus": {"mine": gpu}, "networks": [{"name": "resnet18", "input": [1, 3, 64, 64]}]}
    path.write_text(yaml.safe_dump(content))
    return path


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("gpu:a30:2(S:0-1),gpu:rtx2080ti:1", [("a30", 2), ("rtx2080ti", 1)]),
        ("gpu:4(S:0,2)", [(None, 4)]),
        ("craynetwork:4,gpu:nvidia_a100:8(IDX:0-7)", [("nvidia_a100", 8)]),
        ("gpu", []),
        ("(null)", []),
        ("", []),
    ],
)
def test_gres_is_read(gres, gpus):
    assert parse_gres(gres) == gpus


@pytest.mark.parametrize(
    ("status", "command"),
    [
        (JobStatus(accounting=True, min_job_age_s=2), "sacct"),
        (JobStatus(accounting=False, min_job_age_s=300), "squeue"),
        (JobStatus(accounting=False, min_job_age_s=2), None),
        (JobStatus(accounting=False, min_job_age_s=None), None),
    ],
)
def test_status_command(status, command):
    assert status.command == command


def test_slurm_is_described(tmp_path, monkeypatch):
    install_slurm(
        tmp_path, monkeypatch,
        sbatch="slurm 23.11.4",
        sinfo="cpu*|8|(null)\nrivulet|32|gpu:A30:2(S:0-1)\nrivulet|2|gpu:A30:2(S:0-1)\nrivulet|64|gpu:RTX2080Ti:8",
        scontrol="AccountingStorageType   = accounting_storage/slurmdbd\nMinJobAge               = 300 sec",
    )  # fmt: skip
    assert lines(doctor.examine(), "Slurm") == [
        ("ok", "slurm 23.11.4"),
        ("ok", "partition rivulet: 2 GPUs per node, gres gpu:A30:1"),
        ("ok", "partition rivulet: 8 GPUs per node, gres gpu:RTX2080Ti:1"),
        ("ok", "accounting is on. Set slurm-status-command: sacct in profiles/slurm/config.yaml"),
    ]


def test_no_slurm(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert lines(doctor.examine(), "Slurm") == [("missing", "Slurm is not installed here (no `sbatch` in PATH).")]


def test_no_gpu(nvml, in_worker):
    nvml.install()
    assert ("missing", "cannot be checked without a GPU") in lines(in_worker(doctor.examine), "clock control")


@pytest.mark.parametrize(
    ("complaint", "reported"),
    [
        ("echo 'sinfo: fatal: no controller'", "sinfo: fatal: no controller"),
        ("echo 'sinfo: fatal: Could not establish a configuration source'", "SLURM_CONF"),
        ("true", "ended with status 1"),
    ],
)
def test_a_slurm_that_fails_is_reported(tmp_path, monkeypatch, complaint, reported):
    broken = tmp_path / "sinfo"
    broken.write_text(f"#!/bin/sh\n{complaint} >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(cluster.SlurmUnavailableError, match=reported):
        cluster.gpu_partitions()


def test_gpus_sensors_and_permission_are_told_without_touching_anything(nvml, in_worker):
    nvml.card(0).missing = standin_nvml.MISSING_INSTANT
    nvml.card(0).persistence = 0
    nvml.card(2).lost = 1
    findings = in_worker(doctor.examine)
    a30 = dict(reversed(entry) for entry in lines(findings, "NVIDIA A30"))
    assert a30[f"{nvml.uuid(0)}, driver 580.1.2, up to CUDA 13.2"] == "ok"
    assert a30["sensor power_instant"] == "missing"
    assert a30["sensor power_samples, new value every 20 ms"] == "ok"
    assert any(text.startswith("sensor energy_counter, new value every ") for text in a30)
    assert any(text.startswith("83 SM clocks from 210 to 1440 MHz") for text in a30)
    assert any("persistence mode is off" in text for text in a30)
    assert ("missing", "1 fell off the bus") in lines(findings, "GPU")
    assert [nvml.card(index).settings_made for index in range(3)] == [0, 0, 0]


def examined_without_variables():
    for name in ("CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES"):  # which other tests may have set in the worker
        os.environ.pop(name, None)
    return doctor.examine()


def test_unlike_gpus_in_unknown_order_are_told(nvml, in_worker):
    nvml.install("NVIDIA H200", "NVIDIA A30")
    ((state, text),) = lines(in_worker(examined_without_variables), "CUDA")
    assert state == "missing"
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in text


@pytest.mark.parametrize(
    ("gpu", "state", "text"),
    [
        ({"device": "virtual:a30", "clocks_mhz": [900, 1440]}, "ok", "supports its 2 operating points"),
        ({"device": "virtual:a30", "clocks_mhz": [901]}, "wrong", "Nearest: 900 and 915 MHz"),
        ({"device": "virtual:a31"}, "wrong", "; did you mean a30?"),
        ({"device": "NVIDIA B300"}, "missing", "is not on this machine"),
    ],
)
def test_a_campaign_is_checked_against_its_gpus(tmp_path, gpu, state, text):
    ((found_state, found_text),) = lines(doctor.examine(campaign(tmp_path / "c.yaml", **gpu)), "gpus.mine")
    assert found_state == state
    assert text in found_text


def test_a_campaign_is_checked_against_a_real_gpu(nvml, in_worker, tmp_path):
    nvml.install("NVIDIA A30")
    path = campaign(tmp_path / "c.yaml", device="nvidia a30", clocks_mhz=[900, 901])
    ((state, text),) = lines(in_worker(doctor.examine, path), "gpus.mine")
    assert state == "wrong"
    assert "NVIDIA A30: SM clock 901 MHz is not supported" in text


def test_exit_code_tells_a_wrong_campaign(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))  # a Slurm of this machine has problems of its own
    assert doctor.run(campaign(tmp_path / "good.yaml", device="virtual:a30"), None) == 0
    assert doctor.run(campaign(tmp_path / "bad.yaml", device="virtual:a30", clocks_mhz=["fast"]), None) == 1
    assert "'fast' is not a number of MHz" in " ".join(capsys.readouterr().out.split())


def block(installed=(), partitions=()):
    return yaml.safe_load(propose_config.proposed_gpus_block(list(installed), list(partitions)))["gpus"]


def test_proposal_from_slurm():
    partitions = [GpuPartition("rivulet", "A30", 2, 16), GpuPartition("rivulet", "nvidia_rtx_2080_ti", 8, 16)]
    assert block(partitions=partitions) == {
        "a30": {
            "device": "NVIDIA A30",
            "clocks_mhz": "default",
            "slurm": {"partition": "rivulet", "gres": "gpu:A30:1"},
        },
        "rtx2080ti": {
            "device": "NVIDIA GeForce RTX 2080 Ti",
            "clocks_mhz": "default",
            "slurm": {"partition": "rivulet", "gres": "gpu:nvidia_rtx_2080_ti:1"},
        },
    }


def test_proposal_asks_for_no_more_cores_than_the_smallest_node_has():
    assert block(partitions=[GpuPartition("gpu", "a30", 1, 2)])["a30"]["slurm"]["cpus_per_task"] == 2


def test_proposal_takes_names_that_nvml_gives_here():
    here = [InstalledGpu("nvidia", "GPU-1", "Tesla V100-SXM2-32GB")]
    assert block(here, [GpuPartition("gpu", "v100", 4, 16)])["v100"]["device"] == "Tesla V100-SXM2-32GB"
    assert block(here, [GpuPartition("gpu", None, 4, 16)])["gpu"]["device"] == "Tesla V100-SXM2-32GB"


def test_proposal_admits_what_it_does_not_know():
    proposed = block(
        partitions=[GpuPartition("p", "b300", 8, 16), GpuPartition("q", "b300", 4, 16), GpuPartition("r", None, 4, 16)]
    )
    assert list(proposed) == ["b300", "b300_2", "r"]
    assert {gpu["device"] for gpu in proposed.values()} == {propose_config.UNKNOWN_DEVICE}


def test_proposal_from_nvml_names_each_model_once():
    here = [
        InstalledGpu("nvidia", f"GPU-{i}", name) for i, name in enumerate(["NVIDIA A30", "NVIDIA H200", "NVIDIA A30"])
    ]
    assert {label: gpu["device"] for label, gpu in block(here).items()} == {"a30": "NVIDIA A30", "h200": "NVIDIA H200"}


def test_proposed_campaign_is_valid_and_overwrites_nothing(tmp_path):
    path = tmp_path / "config.yaml"
    propose_config.write_config(path, propose_config.proposed_gpus_block([], []))
    assert config.load(path).gpus["a30"].virtual_model == "a30"
    assert propose_config.NO_GPU_FOUND in path.read_text()
    with pytest.raises(OutputError, match="exists already"):
        propose_config.write_config(path, "")


@pytest.mark.parametrize("name", ["NVIDIA", "Ünknown Gerät", "A100-SXM4-80GB", "..", "H100 80GB HBM3"])
def test_every_label_is_allowed_in_a_campaign(tmp_path, name):
    path = tmp_path / "config.yaml"
    propose_config.write_config(path, propose_config.proposed_gpus_block([InstalledGpu("nvidia", "GPU-1", name)], []))
    (gpu,) = config.load(path).gpus.values()
    assert gpu.device == name
