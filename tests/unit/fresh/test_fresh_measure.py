"""Measuring the fresh set: what is written, and that it goes on where it stopped."""

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd

from support import ready_clockwatt

HERE = Path(__file__).parent
ROOT = HERE.parents[2]


def measure(nvml, output, *options):
    command = [sys.executable, "-m", "standin_measure", "--output", str(output), "--window", "0.3", *options]
    served = ready_clockwatt.environment()
    path = os.pathsep.join([served["PYTHONPATH"], *map(str, (ROOT / "src", ROOT, ROOT / "tests", HERE))])
    environment = nvml.environment(**served | {"PYTHONPATH": path})
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1200)


def test_every_pass_has_a_row_and_the_next_run_goes_on(nvml, tmp_path):
    nvml.install("NVIDIA H200", "NVIDIA H200")
    ran = measure(nvml, tmp_path / "rows", "--day", "1", "--count", "2", "--part", "2/2")
    assert ran.returncode == 0, ran.stderr
    rows = pd.concat(map(pd.read_parquet, (tmp_path / "rows").glob("*.parquet")))
    networks = rows[rows["kind"] == "network"]
    assert len(networks) == 2
    assert (rows["kind"] == "anchor").sum() == 2
    assert networks["time_device_s"].notna().all()
    assert networks["energy_j"].notna().all()
    assert (networks["device_method"] == "queued").all()
    assert not rows["gpu_uuid"].str.startswith("GPU").any()
    again = measure(nvml, tmp_path / "rows", "--day", "1", "--count", "1", "--part", "2/2")
    assert "1 passes to measure, 2 measured" in again.stdout
    both = pd.concat(map(pd.read_parquet, (tmp_path / "rows").glob("*.parquet")))
    networks = both[both["kind"] == "network"]
    assert len(networks) == 3
    assert not networks.duplicated(["subject_id", "pass", "execution"]).any()


def test_no_time_measures_anchors_alone(nvml, tmp_path):
    nvml.install("NVIDIA H200")
    ran = measure(nvml, tmp_path / "rows", "--day", "2", "--seconds", "1")
    assert ran.returncode == 0, ran.stderr
    rows = pd.concat(map(pd.read_parquet, (tmp_path / "rows").glob("*.parquet")))
    assert set(rows["kind"]) == {"anchor"}
