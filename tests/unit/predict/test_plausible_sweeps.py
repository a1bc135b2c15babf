"""Answers of the shipped predictors over batch sizes, precisions, passes and GPUs are smooth and within physics."""

import numpy as np
import pandas as pd
import pytest

from clockwatt.predict.api import load

BATCHES = [1, 2, 8, 32, 256]
TWIN = {"h100": "h200"}
SWEEPS = [
    ("vgg16", "bf16", False), ("resnet18", "tf32", True), ("mobilenet_v3_large", "fp32", False),
    ("vit_b_16", "bf16", True),
]  # fmt: skip
"""Networks, and in which precision they infer or train."""
FALLS = 0.97
"""Least ratio of a cost to that of the next smaller batch."""
SLOWER = 0.7
"""The same of a throughput: a pass that was measured whole may stand between predicted ones."""


@pytest.fixture(scope="module")
def predictors():
    return load()


@pytest.fixture(scope="module", params=SWEEPS, ids=str)
def sweep(request, predictors):
    name, precision, training = request.param
    return predictors.predict(
        name, input=(1, 3, 224, 224), batch=BATCHES, gpus=[*TWIN, *TWIN.values()], precision=precision,
        training=training,
    )  # fmt: skip


def of_gpus(sweep):
    for gpu, rows in sweep.groupby("gpu"):
        yield str(gpu), rows.sort_values("batch")


def test_costs_rise_with_the_batch_and_throughput_does_not_fall(sweep):
    assert sweep["error"].isna().all()
    for gpu, rows in of_gpus(sweep):
        modelled = rows[rows["source"] != "measured"]  # energy that was measured includes the idle power of its host
        for cost, of_cost in (("device_s", rows), ("energy_j", modelled)):
            values = of_cost[cost].to_numpy(float)
            assert (values[1:] / values[:-1]).min() > FALLS, f"{cost} on {gpu}: {values}"
        throughput = rows["items_per_s"].to_numpy(float)
        assert (throughput[1:] / throughput[:-1]).min() > SLOWER, f"{gpu}: {throughput}"


def test_the_host_issues_the_same_calls_in_the_same_time(sweep, predictors):
    for gpu, rows in of_gpus(sweep):
        same = rows[rows["batch"] > 1]  # of size 1, strides and so calls are others
        host_s = same["host_s"].to_numpy(float)
        pooled = all(known.call_times for known in predictors.model(gpu).description.passes.values())
        assert host_s.max() / host_s.min() < (1.001 if pooled else 4.0), f"{gpu}: {host_s}"


def test_no_power_is_above_the_limit(sweep, predictors):
    for gpu, rows in of_gpus(sweep):
        limit_w = predictors.model(gpu).description.overheads("default").power_limit_w
        modelled = rows[rows["source"] != "measured"]
        assert modelled[["power_w", "power_w_high"]].to_numpy(float).max() <= limit_w * (1 + 1e-9)


def test_intervals_hold_their_values(sweep):
    for name in ("time_s", "power_w", "energy_j"):
        low, value, high = (sweep[column].to_numpy(float) for column in (f"{name}_low", name, f"{name}_high"))
        assert ((low <= value) & (value <= high) & np.isfinite(high)).all()


def test_a_pass_takes_no_less_than_its_device(predictors):
    answer = predictors.predict("resnet50", gpu="h100")
    assert answer.source == "composed"
    assert answer.intervals["time_s"][0] >= answer.intervals["device_s"][0]


def test_twins_differ_by_their_bandwidth_at_most(sweep, predictors):
    device = sweep.pivot_table(index="batch", columns="gpu", values="device_s")
    for gpu, twin in TWIN.items():
        ratio = device[gpu] / device[twin]
        assert ratio.between(1 / 1.1, 1.45).all(), pd.DataFrame({"ratio": ratio})
