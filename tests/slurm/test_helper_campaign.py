"""A campaign over clocks and power limits through the helper, in a real Slurm job, on the stand-in NVML."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from clocks_node import HELPER, REPOSITORY, RESTORED, ClocksNode

from clockwatt import config
from clockwatt.config import OperatingPoint
from clockwatt.schema import layout

pytestmark = pytest.mark.slurm

CLOCKS_MHZ = [210, 600, 900, 1200, 1440]
POWER_LIMITS_W = [100, 130, 165]
CROSS = [*((mhz, 130) for mhz in CLOCKS_MHZ), *((900, watts) for watts in (100, 165))]
"""Every clock at one limit and every limit at one clock: the helper sets each by itself."""
SETTLING_S = 0.3
QUICK = {
    "measurement": {"idle_s": 0.31, "warm_up_min_s": 0, "warm_up_max_s": 0, "window_min_s": 0.15, "window_max_s": 0.2},
    "telemetry": {"fast_period_s": 0.02, "slow_period_s": 0.1, "ring_period_s": 0.1},
}


def measured(
    node: ClocksNode,
    folder: Path,
    gpu: dict[str, Any],
    points: list[OperatingPoint] | None = None,
    *,
    refusal: str | None = None,
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Rows of some points (by default of all), and how long setting them took; none where it ends with a `refusal`.

    The job is root's: the environment that the tests run in may be closed to other users. It still sets nothing itself.
    """
    content = {
        "campaign": "standin",
        "gpus": {"a30": {"device": "NVIDIA A30", "control": {"method": "helper", "settle_timeout_s": 0.6}} | gpu},
        "networks": [{"name": "toy", "input": [8, 64]}],
        "passes": "inference",
    }
    folder.mkdir(exist_ok=True)
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(content | QUICK))
    script = str(REPOSITORY / "tests/support/standin_campaign.py")
    points = points or config.load(path).gpus["a30"].points
    done = node.cluster.command(
        "srun", "--quiet", "-n1", "--mem=2000", "--gres=gpu:a30:1", sys.executable, script, str(path), str(folder),
        *map(str, points), **node.nvml.environ,
    )  # fmt: skip
    if refusal is not None:
        assert done.returncode != 0
        assert refusal in done.stderr
        return [], {}
    assert done.returncode == 0, done.stdout + done.stderr
    rows = []
    for point in points:
        rows += pq.read_table(folder / layout.operations_file("a30", point, 1)).to_pylist()
    return rows, json.loads((folder / "times.json").read_text())


def test_what_was_asked_is_what_ran(node, tmp_path):
    node.cards[0].settle_us = round(SETTLING_S * 1e6)
    grid = {"clocks_mhz": CLOCKS_MHZ, "power_limits_w": POWER_LIMITS_W}
    points = [OperatingPoint(sm_clock_mhz=mhz, power_limit_w=watts) for mhz, watts in CROSS]
    rows, times = measured(node, tmp_path, grid, points)
    seen = {
        (row["requested_sm_clock_mhz"], row["requested_power_limit_w"]): (
            row["sm_clock_min_mhz"], row["sm_clock_max_mhz"], row["power_limit_w"],
        )
        for row in rows
    }  # fmt: skip
    assert seen == {(mhz, watts): (mhz, mhz, watts) for mhz, watts in CROSS}
    assert not any("clock_off_target" in row["flags"] for row in rows)
    assert all(row["slurm_job_id"] is not None for row in rows)
    assert node.settings(0) == RESTORED
    beyond_settling_s = [sum(took.values()) - SETTLING_S for took in times.values()]
    print(f"set, verify and release beyond settling: {min(beyond_settling_s):.2f} to {max(beyond_settling_s):.2f} s")
    assert min(beyond_settling_s) <= 4  # three calls of the helper: less than a second where nothing else runs


def test_a_clock_that_is_silently_refused_gives_flagged_rows(node, tmp_path):
    node.cards[0].ignored_sm_mhz = 900
    rows, _ = measured(node, tmp_path, {"clocks_mhz": [600, 900]})
    flagged = {row["requested_sm_clock_mhz"]: "clock_off_target" in row["flags"] for row in rows}
    assert flagged == {600: False, 900: True}
    assert {row["sm_clock_median_mhz"] for row in rows if row["requested_sm_clock_mhz"] == 900} == {1440}


def test_a_clock_that_the_power_limit_does_not_allow_is_flagged_with_its_reason(node, tmp_path):
    node.cards[0].capped_sm_mhz = 1100
    rows, _ = measured(node, tmp_path, {"clocks_mhz": [1200]})
    assert all("clock_off_target" in row["flags"] and "sw_power_cap" in row["throttle_reasons"] for row in rows)


def test_by_hand_in_a_job(node):
    held = f"timeout 600 {sys.executable} -m clockwatt clocks lock sm900-pl120 --method helper >$said 2>&1"
    is_held = "for _ in {1..3000}; do grep -q 'you press Ctrl-C' $said && break; sleep 0.1; done"
    script = f"said=$(mktemp); {held} & {is_held}; sudo -n $HELPER status; kill -INT $!; wait; cat $said"
    done = node.cluster.command(
        "srun", "--quiet", "-n1", "--mem=2000", "--gres=gpu:a30:1", "bash", "-c", script,
        HELPER=HELPER, COLUMNS="200", **node.nvml.environ,
    )  # fmt: skip
    assert "until you press Ctrl-C" in done.stdout, done.stdout + done.stderr
    assert '"settings": {"sm_clock_mhz": 900, "power_limit_w": 120}' in done.stdout
    node.wait_restored()


def test_doctor_says_what_works_in_a_job(node):
    done = node.cluster.command(
        "srun", "--quiet", "-n1", "--mem=2000", "--gres=gpu:a30:1", sys.executable, "-m", "clockwatt", "doctor",
        COLUMNS="200", **node.nvml.environ,
    )  # fmt: skip
    assert "helper: works for the GPUs of job" in done.stdout, done.stdout + done.stderr
    assert "slurm: Slurm on this node has no gpu_nvml plugin" in done.stdout


def test_slurm_holds_a_step_beside_the_one_that_measures(node, tmp_path):
    """This Slurm is built without NVML, so no clock follows; what is read back has to be what was asked for."""
    gpu = {"clocks_mhz": [900], "control": {"method": "slurm", "settle_timeout_s": 0.6}}
    measured(node, tmp_path / "ignored", gpu, refusal="use another control.method")
    node.cards[0].free_sm_mhz = 900
    rows, times = measured(node, tmp_path / "followed", gpu)
    assert not any("clock_off_target" in row["flags"] for row in rows)
    assert times["sm900"]["set_s"] < 60
