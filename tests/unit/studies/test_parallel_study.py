"""The study of several GPUs: stages of networks, figures of merit of kernels, cases, and messages about its keys."""

import json
import multiprocessing

import pandas as pd
import pytest
import torch

from clockwatt import config
from clockwatt.config import TrainingConfig
from clockwatt.errors import ClockwattError
from clockwatt.measure.links.ranks import run_ranks
from clockwatt.operations.networks import build_network
from clockwatt.studies.parallel import kernels, tables
from clockwatt.studies.parallel.cases import cases_of
from clockwatt.studies.parallel.kernels import Span
from clockwatt.studies.parallel.measure import measure_study
from clockwatt.studies.parallel.stages import Stage, balanced_begins
from clockwatt.studies.parallel.strategies import pipeline_step
from clockwatt.workflow.network_names import check_names

CPU = torch.device("cpu")
NETWORK = {"name": "support.small_networks:deep", "input": [4, 16]}


def campaign(**study):
    gpus = {"a30": {"device": "virtual:a30", "count": 4}, "h100": {"device": "virtual:h100"}}
    content = {"campaign": "test", "gpus": gpus, "networks": [{"name": "resnet18", "input": [1, 3, 64, 64]}]}
    return config.parse(content | {"studies": {"parallel": {"networks": [NETWORK]} | study}})


def built(pass_="training"):
    torch.manual_seed(0)
    network = config.parse_network(NETWORK, source="test")
    return build_network(network, CPU, pass_=pass_, training=TrainingConfig())


@pytest.mark.parametrize("begins", [["5"], ["2", "7"], ["1", "2", "11"]])
def test_stages_together_compute_what_the_network_does(begins):
    whole = built()
    loss = whole.loss()
    loss.backward()
    stages = [built() for _ in range(len(begins) + 1)]
    parts = [Stage(stage, begins, place) for place, stage in enumerate(stages)]
    sent, received = [], []
    for part in parts:
        received.append(sent[-1].detach().requires_grad_() if sent else None)
        sent.append(part(received[-1]))
    assert sent[-1].item() == pytest.approx(loss.item())
    gradient = None
    for output, given in zip(reversed(sent), reversed(received), strict=True):
        output.backward(gradient)
        gradient = None if given is None else given.grad
    gradients = [dict(stage.module.named_parameters()) for stage in stages]
    for name, parameter in whole.module.named_parameters():
        of_stage = [own[name].grad for own in gradients if name in own]
        assert len(of_stage) == 1, f"{name} is in {len(of_stage)} stages"
        torch.testing.assert_close(of_stage[0], parameter.grad)


def test_a_stage_may_begin_with_a_write_into_its_input():
    network = config.parse_network({"name": "vgg11", "input": [1, 3, 32, 32]}, source="test")
    stages = [build_network(network, CPU, pass_="training", training=TrainingConfig()) for _ in range(2)]
    first, last = (Stage(stage, ["features.1"], place) for place, stage in enumerate(stages))  # a ReLU in place
    sent = first()
    given = sent.detach().requires_grad_()
    last(given).backward()
    sent.backward(given.grad)
    assert stages[0].module.get_parameter("features.0.weight").grad.any()


def test_a_stage_receives_what_can_be_sent():
    network = config.parse_network({"name": "support.small_networks:transposed", "input": [4, 16]}, source="test")
    stages = [build_network(network, CPU, pass_="training", training=TrainingConfig()) for _ in range(2)]
    first, last = (Stage(stage, ["2"], place) for place, stage in enumerate(stages))
    assert not first().is_contiguous()
    assert first.sent.is_contiguous()
    assert last.received.is_contiguous()


def two_stages(rank):  # what ranks are called with
    network = config.parse_network({"name": "support.small_networks:tail", "input": [4, 16]}, source="test")
    own = build_network(network, CPU, pass_="training", training=TrainingConfig())
    pipeline_step(own, 2, ["1"])()
    return [name for name, one in own.module.named_parameters() if one.grad is not None and one.grad.any()]


def test_a_stage_may_have_no_parameters(ready):
    assert run_ranks(two_stages, (), count=2) == [["0.weight", "0.bias"], []]


def test_stages_are_balanced_and_need_a_block_each():
    begins = balanced_begins(built(), 3)
    assert len(begins) == 2
    assert 0 < int(begins[0]) < int(begins[1]) < 12
    with pytest.raises(ClockwattError, match="12 blocks cannot be split into 13 stages: leave pipeline out of"):
        balanced_begins(built(), 13)


def test_shares_of_kernels_are_those_of_the_tensorboard_plugin():
    """Values by hand, after `merge_ranges_with_value`: blocks of kernels at once add up, to one block for each SM."""
    spans = [
        Span("a", False, 0.0, 10.0, 0.5, 0.4),
        Span("ncclDevKernel_AllReduce", True, 5.0, 15.0, 0.75, 0.1),
        Span("b", False, 20.0, 40.0, 3.0, 0.9),
    ]
    found = kernels.summary(spans, 1)
    assert found["sm_efficiency"] == pytest.approx((5 * 0.5 + 5 * 1 + 5 * 0.75 + 20 * 1) / 40)
    assert found["occupancy"] == pytest.approx((10 * 0.4 + 10 * 0.1 + 20 * 0.9) / 40)
    assert found["utilisation"] == pytest.approx(35 / 40)
    assert found["overlap"] == pytest.approx(0.5)
    assert found["communication_share"] == pytest.approx(0.25)
    assert (found["kernel_s"], found["busy_s"]) == pytest.approx((30e-6, 35e-6))


def test_a_profile_has_operations_of_the_processor():
    network = built()
    spans, _ = kernels.profile(network.call, 2, CPU)
    assert {"aten::linear", "aten::relu"} <= {span.name for span in spans}
    found = kernels.summary(spans, 2)
    assert 0 < found["utilisation"] <= 1
    assert (found["communication_share"], found["sm_efficiency"]) == (0.0, None)


def test_the_batch_of_a_pipeline_is_that_of_all_gpus():
    cases = cases_of(campaign(counts=[1, 4], batch_per_gpu=8, microbatches=2), "a30", 4)
    batches = {case.strategy: case.network.first_input.shape[0] for case in cases}
    assert batches == {"ddp": 8, "fsdp": 8, "pipeline": 16}
    assert [case.strategy for case in cases_of(campaign(), "a30", 1)] == ["single"]
    other = cases_of(campaign(counts=[1, 4], batch_per_gpu=8, microbatches=2, seconds=9), "a30", 4)
    assert not {case.name for case in cases} & {case.name for case in other}


@pytest.mark.parametrize(
    ("study", "message"),
    [
        ({"counts": [1, 8]}, "parallel.counts: 8 is more than gpus.a30.count, 4: raise that to the GPUs of a node"),
        ({"gpus": ["h100"]}, "parallel.counts: 2 is more than gpus.h100.count, 1"),
        ({"gpus": ["b"]}, "parallel.gpus: no GPU is labelled 'b'; the campaign has a30, h100"),
        ({"strategies": "dpp"}, "'dpp' should be 'ddp', 'fsdp' or 'pipeline'"),
        ({"counts": [2, 2]}, "a value is given twice"),
        ({"batch_per_gpu": 3}, "a batch of 6 on 2 GPUs is no multiple of 4 microbatches"),
        ({"networks": [NETWORK | {"precision": "tf32+compile"}]}, "tf32.compile is not eager"),
    ],
)
def test_keys_that_cannot_be(study, message):
    with pytest.raises(ClockwattError, match=message):
        campaign(**study)


def test_a_network_that_does_not_exist_is_refused_before_anything_runs():
    study = campaign(networks=[{"name": "resnet17", "input": [4, 3, 32, 32]}])
    with pytest.raises(ClockwattError, match=r"c.yaml: studies.parallel.networks\[0\].name: 'resnet17': no network"):
        check_names(study, "c.yaml")


def test_an_epoch_is_stated_beside_what_is_published(tmp_path):
    def rank(blocks_s, energy_j, share):
        known = dict.fromkeys(tables._OF_RANK) | {"virtual": False, "steps": 10, "power_idle_w": 100.0}
        of_kernels = kernels.summary([Span("a", False, 0, 1e6, 1, 1)], 1) | {"communication_share": share}
        energies = {"energy_j": energy_j, "energy_counter_j": energy_j, "energy_integrated_j": None}
        return known | energies | {"blocks_s": blocks_s, "kernels": of_kernels | {"kernel_s": 0.5}, "spans": []}

    case = {
        "network": "vgg16",
        "input": "3x8x8",
        "precision": "tf32",
        "optimizer": "sgd",
        "host": "h",
        "measured_us": 1,
    }
    single = case | {"strategy": "single", "gpus": 1, "items": 64, "ranks": [rank([1.0, 1.0, 1.1], 200.0, 0.0)]}
    both = [rank([1.0, 1.2, 1.0], 220.0, 0.2), rank([1.1, 1.0, 1.3], 240.0, 0.22)]
    ddp = case | {"strategy": "ddp", "gpus": 2, "items": 128, "ranks": both}
    for number, one in enumerate((single, ddp)):
        (tmp_path / f"{number}.json").write_text(json.dumps(one))
    tables.write_tables([tmp_path / "0.json", tmp_path / "1.json"], "h100", tmp_path)
    steps, ranks = (tables.read(tmp_path, name) for name in (tables.STEPS, tables.RANKS))
    assert steps["time_s"].tolist() == pytest.approx([1.0, 1.2])  # each block is as long as its slowest rank
    assert steps["speedup"].tolist() == pytest.approx([1.0, 2 / 1.2])
    assert steps["energy_j"].tolist() == pytest.approx([20.0, 46.0])
    assert steps["waiting_j"].tolist() == pytest.approx([50.0, 100 * 0.5 + 100 * 0.6])
    table = tables.epoch_table(steps, ranks, 8192).set_index("strategy")
    assert table.loc["ddp", "epoch_s"] == pytest.approx(64 * 1.2)
    assert table.loc["ddp", "epoch_j"] == pytest.approx(64 * 46)
    assert table.loc["ddp", "communication_shares"] == "20.0, 22.0"
    assert (table.loc["ddp", "published_speedup"], table.loc["ddp", "published_shares"]) == (1.89, "19.8, 21.5")
    assert pd.isna(table.loc["single", "published_speedup"])


def test_a_rank_that_dies_ends_its_case_and_no_other(ready, tmp_path, capsys):
    dying = {"name": "support.small_networks:Dying", "input": [4, 16]}
    study = {"networks": [dying, NETWORK], "counts": 2, "strategies": "ddp", "seconds": 0.1, "profile_steps": 1}
    message = (
        r"1 of 2 cases failed. The first is Dying-tf32-ddp-2-\w+: rank 1 of 2 died \(signal 9\); the others were ended"
    )
    before = set(multiprocessing.active_children())
    with pytest.raises(ClockwattError, match=message):
        measure_study(campaign(gpus=["a30"], idle_s=0.3, **study), "a30", tmp_path)
    assert set(multiprocessing.active_children()) <= before
    (row,) = tables.read(tmp_path, tables.STEPS).to_dict("records")
    assert (row["network"], row["gpus"], row["items"]) == (NETWORK["name"], 2, 8)
    assert row["energy_j"] > 0
