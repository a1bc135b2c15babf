"""Answers for several GPUs: the same on the command line and in Python, and what is refused."""

import json
import re
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from clockwatt.cli.main import app
from clockwatt.cli.parallel_text import print_parallel, print_parallel_recommendation
from clockwatt.errors import ClockwattError, RequestError
from clockwatt.predict.api import load
from clockwatt.predict.memory import most_at_once
from clockwatt.predict.parallel.answer import lacks_memory_of_rank
from clockwatt.predict.parallel.schedules import split, step_of
from clockwatt.predict.request import Request
from clockwatt.schema.records import MemoryRow
from support.scaled_host import ScaledHost

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


def test_a_shared_parameter_is_no_buffer(predictors):
    single = predictors.predict("support.small_networks:Shared", (4, 16), gpu="h100", training=True)
    step = step_of(single, None, 100.0)
    assert sorted(step.gradients) == [4 * 16, 4 * 16, 4 * 16 * 16]
    assert step.buffers == (4 * 3,)
    assert step.shared == (("first", "second", 4 * 16 * 16),)
    assert [stage.gradient_bytes for stage in split(step, 2, ["second"])] == [4 * 16 * 17, 4 * 16 * 17]


def test_command_line_and_python_agree(ddp):
    arguments = "predict resnet18 --input 32,3,224,224 --gpu h100 --pass training --gpus-per-node 2 --strategy ddp"
    ran = CliRunner().invoke(app, [*arguments.split(), "--links", "h100-nvlink", "--json"])
    assert ran.exit_code == 0, ran.output
    assert json.loads(ran.stdout)["time_s"] == ddp.time_s


def test_an_answer_is_a_line_and_a_frame(ddp, choice):
    line = (
        r"<ParallelAnswer resnet18-\S*, training, tf32-conv, h100 at default, ddp on 2 GPUs: time_s=.*, speed_up=\S*>"
    )
    assert re.fullmatch(line, repr(ddp))
    (row,) = ddp.to_frame().to_dict("records")
    assert (row["gpu"], row["pass"], row["memory_bytes"]) == ("h100", "training", ddp.memory_bytes[0])
    assert row["power_w"] == pytest.approx(ddp.energy_j / ddp.time_s)
    frame = choice.to_frame()
    assert list(frame["items_per_s"]) == [one.items / one.time_s for one in choice.candidates]
    same = frame[(frame["gpus"] == 2) & (frame["strategy"] == "ddp")].iloc[0]
    shared = ["network_id", "execution", "point", "time_s", "power_w", "memory_bytes", "items_per_joule"]
    assert same[shared].to_dict() == pytest.approx({name: row[name] for name in shared})
    assert repr(choice).startswith("<ParallelRecommendation of least time, best of 7: resnet18-32x3x224x224-float32, ")
    assert "h100, 4 GPUs with ddp at default: speed_up=" in repr(choice)


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


def test_more_nodes_are_less_efficient_and_shard_more(predictors):
    asked = {**TWO, "gpus_per_node": 8, "strategy": "fsdp"}
    few, many = (
        predictors.predict("resnet18", (32, 3, 224, 224), nodes=nodes, node_links="50GB/s,5us", **asked)
        for nodes in (2, 128)
    )
    assert (few.gpus, few.nodes, many.gpus, len(many.energies_j)) == (16, 2, 1024, 1024)
    assert many.device_s > few.device_s
    assert many.communication_s > few.communication_s
    assert many.memory_bytes[0] < few.memory_bytes[0]
    arguments = "predict resnet18 --input 32,3,224,224 --gpu h100 --pass training --gpus-per-node 8 --strategy fsdp"
    ran = CliRunner().invoke(
        app, [*arguments.split(), "--links", "h100-nvlink", "--nodes", "128", "--node-links", "50GB/s,5us"]
    )
    assert "fsdp on 1024 GPUs of 128 nodes" in ran.stdout
    assert ran.stdout.count(" MiB") == 1  # one row for all ranks


def test_only_single_questions_are_about_several_gpus(predictors):
    asked = {name: value for name, value in TWO.items() if name != "gpu"} | {"strategy": "ddp"}
    for ask, more in ((predictors.recommend, {}), (predictors.show, {}), (predictors.predict, {"batch": [1, 2]})):
        with pytest.raises(RequestError, match=r"is for predict only|gpus_per_node is for"):
            ask("resnet18", (32, 3, 224, 224), **asked, **more)
    with pytest.raises(RequestError, match="nodes is for predict only; recommend takes node_counts"):
        predictors.recommend("resnet18", (32, 3, 224, 224), nodes=2)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"strategy": "ddp"}, "strategy is for several GPUs: give gpus_per_node too"),
        ({"gpus_per_node": 2, "strategy": "ddp"}, "gpus_per_node 2: give links too"),
        ({"gpus_per_node": 2, "strategy": "ddp", "links": "x"}, "give training=True too"),
        ({"nodes": 2}, "nodes is for several GPUs"),
        ({"gpus_per_node": 8, "nodes": 2, "strategy": "ddp", "links": "x"}, "nodes and node_links: give both"),
        (
            {"gpus_per_node": 8, "nodes": 2, "node_links": "1GB/s,1us", "strategy": "pipeline", "links": "x"},
            "nodes is for strategy ddp or fsdp",
        ),
        ({"counts": (2,)}, "counts: give links too"),
        ({"counts": (1,), "links": "x", "pass_": "training"}, "counts 1: give 2 to"),
        ({"strategies": ("ddp",)}, "strategies is for several GPUs"),
        ({"node_counts": (2,)}, "node_counts is for several GPUs"),
        ({"counts": (8,), "node_counts": (2,), "links": "x"}, "node_counts and node_links: give both"),
        ({"counts": (8,), "node_links": "1GB/s,1us", "links": "x"}, "node_counts and node_links: give both"),
        ({"counts": (8,), "node_counts": (1,), "links": "x"}, "node_counts 1: give 2 to"),
        (
            {"counts": (8,), "node_counts": (2,), "node_links": "1GB/s,1us", "strategies": ("pipeline",), "links": "x"},
            "node_counts is for strategy ddp or fsdp",
        ),
        ({"counts": (2,), "strategies": ("tensor",)}, "strategies tensor: choose ddp, fsdp or pipeline"),
        ({"counts": (2,), "gpus_per_node": 2, "pass_": "training"}, "give one or the other"),
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
    assert ddp.single.host.factor == 1.0
    monkeypatch.setattr(type(predictors), "profile", lambda *_: ScaledHost("slow", 2.0))
    slow = predictors.predict("resnet18", (32, 3, 224, 224), strategy="ddp", host="slow", **TWO)
    assert slow.host_s == pytest.approx(2 * ddp.host_s, rel=0.01)
    fsdp = predictors.predict("resnet18", (32, 3, 224, 224), strategy="fsdp", host="slow", **TWO)
    monkeypatch.undo()
    usual = predictors.predict("resnet18", (32, 3, 224, 224), strategy="fsdp", **TWO)
    assert fsdp.host_s == pytest.approx(2 * usual.host_s, rel=0.01)


@pytest.fixture(scope="module")
def choice(predictors):
    asked = {"gpus": "h100", "training": True, "counts": [2, 4], "links": "h100-nvlink", "objective": "time"}
    return predictors.recommend("resnet18", (32, 3, 224, 224), **asked)


def test_recommended_numbers_of_gpus_are_those_of_predict(choice, ddp):
    assert len(choice.candidates) == 1 + 2 * 3
    same = next(one for one in choice.candidates if (one.gpus, one.strategy) == (2, "ddp"))
    assert (same.time_s, same.energy_j, same.speed_up) == pytest.approx((ddp.time_s, ddp.energy_j, ddp.speed_up))
    assert same.energy_ratio == pytest.approx(ddp.energy_j / 2 / ddp.single.energy_j)
    costs = [one.time_s / one.items for one in choice.candidates]
    assert costs == sorted(costs)
    assert choice.best.gpus == 4


def test_limits_hold_for_all_gpus_together(predictors, choice):
    asked = {"gpus": "h100", "training": True, "counts": [2, 4], "links": "h100-nvlink", "objective": "time"}
    cap_w = 1.01 * next(one.power_w for one in choice.candidates if one.gpus == 1)
    within = predictors.recommend("resnet18", (32, 3, 224, 224), power_cap_w=cap_w, **asked)
    assert within.allowed < len(within.candidates)
    assert all(one.power_w <= cap_w for one in within.candidates[: within.allowed])
    with pytest.raises(ClockwattError, match=r"limits: the least mean power is \d+ W, on one GPU at default. Raise"):
        predictors.recommend("resnet18", (32, 3, 224, 224), power_cap_w=1, **asked)
    fast = rf"among fast enough candidates, the least mean power is {choice.best.power_w:.0f} W, on 4 GPUs with ddp at"
    with pytest.raises(ClockwattError, match=fast):
        predictors.recommend("resnet18", (32, 3, 224, 224), power_cap_w=cap_w, max_slowdown=0.1, **asked)


def test_several_nodes_are_considered_as_predict_answers_for_them(predictors):
    asked = {"gpus": "h100", "training": True, "counts": [2], "links": "h100-nvlink", "objective": "time"}
    nodes = {"node_counts": [4, 2], "node_links": "50GB/s,5us"}
    found = predictors.recommend("resnet18", (32, 3, 224, 224), **asked, **nodes)
    assert {(one.nodes, one.gpus, one.strategy) for one in found.candidates} == {
        (1, 1, None), (1, 2, "ddp"), (1, 2, "fsdp"), (1, 2, "pipeline"),
        (2, 4, "ddp"), (2, 4, "fsdp"), (4, 8, "ddp"), (4, 8, "fsdp"),
    }  # fmt: skip
    one = next(one for one in found.candidates if (one.nodes, one.strategy) == (4, "ddp"))
    alone = predictors.predict(
        "resnet18", (32, 3, 224, 224), strategy="ddp", nodes=4, node_links=nodes["node_links"], **TWO
    )
    assert (one.time_s, one.energy_j, one.memory_bytes) == (alone.time_s, alone.energy_j, max(alone.memory_bytes))
    with pytest.raises(RequestError, match="node_links fast: give bandwidth"):
        predictors.recommend("resnet18", (32, 3, 224, 224), **asked, **nodes | {"node_links": "fast"})


def test_what_does_not_fit_or_cannot_be_split_is_left_out_with_its_reason(predictors):
    asked = {"gpus": "h100", "training": True, "links": "h100-nvlink"}
    nodes = {"node_counts": [2], "node_links": "50GB/s,5us", "strategies": ["ddp", "pipeline"]}
    large = predictors.recommend("resnet18", (4096, 3, 224, 224), counts=[2, 4], **asked, **nodes)
    assert {(one.gpus, one.strategy) for one in large.candidates} == {(2, "pipeline"), (4, "pipeline")}
    assert not any("Does not fit" in warning for warning in large.warnings)
    lacking = {reason.split(":")[0] for reason in large.left_out if "Does not fit" in reason}
    assert {"one GPU at default", "4 GPUs with ddp at default", "4 GPUs of 2 nodes with ddp at default"} < lacking
    asked.pop("gpus")  # the GPU of the links is meant
    odd = predictors.recommend("resnet18", (33, 3, 224, 224), counts=[2], strategies=["pipeline"], **asked)
    assert odd.single.gpu == "h100"
    assert [one.gpus for one in odd.candidates] == [1]
    assert "the batch of 33 is not a multiple of it" in odd.left_out[0]


def test_what_does_not_fit_is_a_rank_and_not_one_gpu(predictors, capsys):
    four = {**TWO, "gpus_per_node": 4}
    splits, whole = (
        predictors.predict("resnet18", (4096, 3, 224, 224), strategy=name, **four) for name in ("pipeline", "ddp")
    )
    assert not any("Does not fit" in warning for warning in splits.warnings)
    assert whole.warnings[0].startswith(f"Does not fit: a rank needs {whole.memory_bytes[0] / 2**30:.1f} GiB")
    print_parallel(splits)
    assert re.search(r"One GPU: .* J\. Does not fit: the pass needs", capsys.readouterr().out)


def test_ddp_never_fits_where_one_gpu_does_not(ddp):
    single = replace(ddp.single, memory=replace(ddp.single.memory, fits=False))
    assert lacks_memory_of_rank(replace(ddp, single=single)).startswith("Does not fit: a rank needs")
    assert lacks_memory_of_rank(replace(ddp, single=single, strategy="fsdp")) is None
    assert lacks_memory_of_rank(ddp) is None


def test_a_narrow_terminal_cuts_no_names_and_numbers(ddp, choice, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    stages = ("conv1", ".".join(["a_module_with_a_long_name"] * 4))
    print_parallel(replace(ddp, strategy="pipeline", stages=stages))
    assert f" {stages[1]}\n" in capsys.readouterr().out
    wide = tuple(replace(one, point=f"sm{1980 - place}_pl350", speed_up=61059.74, energy_ratio=1032.82) for place, one
                 in enumerate(choice.candidates))  # fmt: skip
    print_parallel_recommendation(replace(choice, best=wide[0], candidates=wide))
    assert re.search(r"sm1980_pl350 .* 61059\.74 +1032\.82 +\d+ MiB\n", capsys.readouterr().out)


def test_the_command_line_recommends_in_words(choice):
    arguments = (
        "recommend resnet18 --input 32,3,224,224 --gpu h100 --pass training --objective time --links h100-nvlink"
    )
    ran = CliRunner().invoke(app, [*arguments.split(), "--gpus-per-node", "2", "--gpus-per-node", "4"])
    assert ran.exit_code == 0, ran.output
    assert f"Best: 4 GPUs, {choice.best.strategy}: {choice.best.speed_up:.2f} times as fast as one GPU" in ran.output
    refused = CliRunner().invoke(app, arguments.split())
    assert "--links is for several GPUs: give --gpus-per-node too" in str(refused.exception or refused.output)


def test_a_pipeline_without_parts_holds_more_than_one_of_many_parts(predictors):
    whole, parts = (
        predictors.predict("resnet18", (32, 3, 224, 224), strategy="pipeline", microbatches=number, **TWO)
        for number in (1, 8)
    )
    assert whole.memory_bytes[0] > 1.5 * parts.memory_bytes[0]
    gpipe = predictors.predict(
        "resnet18", (32, 3, 224, 224), strategy="pipeline", microbatches=8, schedule="gpipe", **TWO
    )
    assert gpipe.memory_bytes[0] > 1.5 * parts.memory_bytes[0]


def test_most_at_once_counts_shares_of_allocations():
    rows = [(0, 8, "activations", "a"), (1, 4, "temporary", "a"), (2, 2, "activations", "b"), (0, None, "", "")]
    rows += [(3, 7, "activations", "a"), (4, 1, "activations", "b")]
    events = [MemoryRow(number, size, kind, path, None) for number, size, kind, path in rows]
    assert most_at_once(events, lambda event: event.kind == "activations") == 10
    assert most_at_once(events, lambda event: event.module_path == "b") == 3
    assert most_at_once(events, lambda _: 1, freed_at_once="temporary") == 12
    assert most_at_once(events, lambda event: 0.5 if event.kind == "activations" else 1) == 9
