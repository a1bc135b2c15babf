"""Answers for several GPUs: the same on the command line and in Python, and what is refused."""

import json

import pytest
from typer.testing import CliRunner

from clockwatt.cli.main import app
from clockwatt.errors import RequestError
from clockwatt.predict.api import load
from clockwatt.predict.hosts import ScaledHost
from clockwatt.predict.parallel.links import LinkProfile
from clockwatt.predict.parallel.step import step_of
from clockwatt.predict.request import Request

TWO = {"gpu": "h100", "training": True, "gpus_per_node": 2, "links": "h100-nvlink"}


@pytest.fixture(scope="module")
def predictors():
    return load()


@pytest.fixture(scope="module")
def ddp(predictors):
    return predictors.predict("resnet18", (32, 3, 224, 224), strategy="ddp", **TWO)


def test_ddp_is_faster_than_one_gpu_and_slower_than_twice(ddp):
    assert 1 < ddp.speed_up < 2
    assert ddp.efficiency == pytest.approx(ddp.speed_up / 2)
    assert ddp.items_per_s == pytest.approx(64 / ddp.time_s)
    assert ddp.energy_j == pytest.approx(2 * ddp.energies_j[0])
    assert ddp.energies_j[0] > ddp.single.energy_j
    assert 0 <= ddp.exposed_s < ddp.communication_s
    gradients = 4 * 11_689_512
    assert ddp.memory_bytes == (ddp.single.memory.allocated_bytes + gradients,) * 2


def test_a_step_is_split_without_loss(predictors, ddp):
    forward = predictors.predict("resnet18", (32, 3, 224, 224), gpu="h100")
    step = step_of(ddp.single, forward, 100.0)
    assert step.device_s == pytest.approx(ddp.single.expected.device_s)
    assert sum(step.gradients) == 4 * 11_689_512
    assert sum(unit.forward_s for unit in step.units) == pytest.approx(forward.expected.device_s, rel=0.2)
    assert len(step.buffers) == 3 * 20  # of each batch norm
    assert step.units[0].path == "conv1"
    assert step.units[0].gradients == (4 * 64 * 3 * 49,)


def test_command_line_and_python_agree(ddp):
    arguments = "predict resnet18 --input 32,3,224,224 --gpu h100 --pass training --gpus-per-node 2 --strategy ddp"
    ran = CliRunner().invoke(app, [*arguments.split(), "--links", "h100-nvlink", "--json"])
    assert ran.exit_code == 0, ran.output
    assert json.loads(ran.stdout)["time_s"] == ddp.time_s


def test_fsdp_shards_and_a_pipeline_splits(predictors, ddp):
    fsdp, pipeline = (
        predictors.predict("resnet18", (32, 3, 224, 224), strategy=name, **TWO) for name in ("fsdp", "pipeline")
    )
    assert fsdp.memory_bytes[0] < ddp.memory_bytes[0]
    assert pipeline.stages[0] == "conv1"
    assert len(pipeline.energies_j) == len(pipeline.memory_bytes) == len(pipeline.stages) == 2
    assert pipeline.items == 32
    assert max(pipeline.busy_s) < pipeline.time_s
    assert sum(pipeline.busy_s) > pipeline.single.expected.device_s  # of smaller batches


def test_only_single_questions_are_about_several_gpus(predictors):
    asked = {name: value for name, value in TWO.items() if name != "gpu"} | {"strategy": "ddp"}
    for ask, more in ((predictors.recommend, {}), (predictors.show, {}), (predictors.predict, {"batch": [1, 2]})):
        with pytest.raises(RequestError, match=r"is of predict|gpus_per_node is for one step"):
            ask("resnet18", (32, 3, 224, 224), **asked, **more)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"strategy": "ddp"}, "strategy is for several GPUs: give gpus_per_node too"),
        ({"gpus_per_node": 2, "strategy": "ddp"}, "gpus_per_node 2: give links too"),
        ({"gpus_per_node": 2, "strategy": "ddp", "links": "x"}, "give pass_ training too"),
        ({"gpus_per_node": 2, "strategy": "tensor", "links": "x"}, "strategy tensor: choose ddp, fsdp or pipeline"),
        (
            {"gpus_per_node": 2, "strategy": "ddp", "links": "x", "pass_": "training", "microbatches": 2},
            "microbatches is for strategy pipeline",
        ),
    ],
)
def test_incomplete_requests_are_refused(asked, message):
    with pytest.raises(RequestError, match=message):
        Request.of(network="resnet18", **asked)


def test_a_slower_host_makes_host_bound_steps_longer(predictors, ddp, monkeypatch):
    assert ddp.limited_by == "host-bound"
    assert ddp.single.host.factor == pytest.approx(LinkProfile.read("h100-nvlink").host_factor)
    monkeypatch.setattr(type(predictors), "profile", lambda *_: ScaledHost("slow", 2 * ddp.single.host.factor))
    slow = predictors.predict("resnet18", (32, 3, 224, 224), strategy="ddp", host="slow", **TWO)
    assert slow.host_s == pytest.approx(2 * ddp.host_s, rel=0.01)
    fsdp = predictors.predict("resnet18", (32, 3, 224, 224), strategy="fsdp", host="slow", **TWO)
    monkeypatch.undo()
    usual = predictors.predict("resnet18", (32, 3, 224, 224), strategy="fsdp", **TWO)
    assert fsdp.host_s == pytest.approx(2 * usual.host_s, rel=0.01)
