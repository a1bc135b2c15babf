"""What is said of jobs that wait: those that fit no node, and those that Slurm holds."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

import pytest

from clockwatt import config
from clockwatt.config import OperatingPoint
from clockwatt.measure.store import Store
from clockwatt.schema.execution import FP32
from clockwatt.schema.records import MEASUREMENT_VERSION, MeasurementRow
from clockwatt.workflow.cluster import Node, QueuedJob
from clockwatt.workflow.job_limits import misfits, stage_misfits
from clockwatt.workflow.status import PointStatus, pace, queue_lines, show_queue

NODES = [
    Node("cpu", True, 2, 8000, ()),
    Node("gpu", False, 64, 256000, (("a30", 4),)),
    Node("gpu", False, 8, 512000, (("v100", 2),)),
]


def campaign(device="virtual:a30", count=1, **slurm):
    gpu, networks = {"device": device, "count": count, "slurm": slurm}, [{"name": "x", "input": [4]}]
    studies = {"parallel": {"networks": networks}} if count > 1 else {}
    return config.parse({"campaign": "c", "gpus": {"a30": gpu}, "networks": networks, "studies": studies})


@pytest.mark.parametrize(
    ("slurm", "said"),
    [
        ({"partition": "gpu", "gres": "gpu:a30:1"}, None),
        ({"partition": "gpu", "gpu": 1, "gpu_model": "V100", "mem_mb": 400000}, None),
        ({"partition": "gpus"}, "gpus.a30.slurm.partition: no partition 'gpus' (there are: cpu, gpu)"),
        ({"partition": "gpu", "gres": "gpu:h100:1"}, "gres: no node has gpu:h100:1 (there are: gpu:a30:4, gpu:v100:2)"),
        ({"partition": "gpu", "gpu": 8}, "gpu: no node has gpu:8"),
        ({"partition": "gpu", "gres": "gpu:a30:1", "cpus_per_task": 128}, "cpus_per_task: 128 cores"),
        ({"partition": "gpu", "gres": "gpu:v100:1", "cpus_per_task": 16}, "no such node has more than 8"),
        ({"partition": "gpu", "cpus_per_task": 64, "mem_mb": 500000}, "no one node has 64 cores and 500000 MB"),
        ({"partition": "gpu", "gpu": 1, "gpu_model": "v100", "count": 2}, None),
        (
            {"partition": "gpu", "gres": "gpu:v100:1", "cpus_per_task": 8, "count": 2},
            "slurm.mem_mb; cpus_per_task: 16 cores, and no such node has more than 8",
        ),
        ({"partition": "gpu", "gres": "gpu:v100:1", "count": 4}, "gres: no node has gpu:v100:4 (there are: gpu:a30:4"),
        ({"cpus_per_task": 2, "mem_mb": 16000}, "mem_mb: 16000 MB, and no such node has more than 8000"),
    ],
)
def test_what_fits_no_node_is_named_with_its_key(slurm, said):
    found = list(misfits(campaign(**slurm), NODES))
    if said is None:
        assert not found
    else:
        (message,) = found
        assert said in message
        assert message.endswith("jobs would wait for ever")


@pytest.mark.parametrize(
    ("profile", "said"),
    [
        ("set-threads:\n  - fit=2\n", []),
        ("set-threads: {fit: 2}\ndefault-resources: {slurm_partition: gpu}\n", []),
        (None, ["stage fit: cpus_per_task: 4 cores, and no such node has more than 2"]),
        ("default-resources: [slurm_partition=gpus]\n", ["partition: no partition 'gpus'"] * 5),
    ],
)
def test_stages_without_a_gpu_that_fit_no_node_are_named(tmp_path, profile, said):
    if profile is not None:
        (tmp_path / "config.yaml").write_text(profile)
    found = list(stage_misfits(NODES, tmp_path / "config.yaml"))
    assert len(found) == len(said)
    for message, expected in zip(found, said, strict=True):
        assert expected in message
        assert "it would wait for ever; see set-threads" in message


def test_jobs_are_told_by_state_and_reason_and_those_of_others_are_left_out(tmp_path):
    folder = str(tmp_path)
    waiting = [QueuedJob("PENDING", "Resources", folder, f"rule_measure_wildcards_a30_sm900_{n}") for n in range(5)]
    others = [
        QueuedJob("PENDING", "Priority", folder, ""),
        QueuedJob("RUNNING", "None", folder, "rule_measure_wildcards_other_sm900_1"),
        QueuedJob("RUNNING", "None", f"{folder}/another", "rule_measure_wildcards_a30_sm900_1"),
    ]
    running = [QueuedJob("RUNNING", "None", f"{folder}/.", "rule_catalogue")]
    assert queue_lines(campaign(), [*others, *waiting, *running], tmp_path) == [
        "5 pending (Resources): measure a30_sm900_0, measure a30_sm900_1, measure a30_sm900_2 and 2 more",
        "1 running: catalogue",
    ]


def test_the_pace_is_that_of_the_last_hour_without_its_pauses(tmp_path: Path):
    real = campaign("NVIDIA A30")
    store = Store(tmp_path, real, "a30", OperatingPoint())
    now_s = time.time()
    # every 2 s, with a pause of half an hour in between
    ends_s = [now_s - 2 * n - (1800 if n >= 100 else 0) for n in range(200)]
    writer = store.writer(0)
    writer.add([row(store, end_s) for end_s in ends_s])
    found = pace(real, [PointStatus("a30", OperatingPoint(), 900, Counter())], tmp_path, now_s)
    assert found is not None
    assert found.rows_per_hour == pytest.approx(199 / (198 * 2 + 300) * 3600)
    assert pace(real, [], tmp_path, now_s + 7200) is None


def row(store, end_s):
    return MeasurementRow(
        kind="operation", subject_id="o", pass_="inference", execution=FP32, dtype="float32", gpu="a30",
        point="default", session_id="s", shard="1/1", settings_id=store.settings_id, ended_us=int(end_s * 1e6),
        measurement_version=MEASUREMENT_VERSION,
    )  # fmt: skip


@pytest.mark.parametrize("installed", [True, False])
def test_status_says_that_an_installed_slurm_does_not_answer(tmp_path, monkeypatch, capsys, installed):
    for name in ("sinfo", "squeue") if installed else ():
        (tmp_path / name).write_text("#!/bin/sh\necho 'Unable to contact slurm controller' >&2\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/bin" if installed else str(tmp_path))
    show_queue(campaign())
    said = capsys.readouterr().out
    assert said.startswith("Jobs in Slurm: unknown. Slurm does not answer") if installed else not said
