"""Layers: a pass's answer shared out among its modules."""

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import clockwatt
from clockwatt.cli.layers import print_layers
from clockwatt.errors import ClockwattError
from clockwatt.predict.request import Request


@pytest.fixture(scope="module")
def predictors():
    return clockwatt.load()


def ask(predictors, **given):
    depth = given.pop("depth", None)
    return predictors.ask_layers(
        Request.of(network="alexnet", inputs=("4,3,224,224",), gpus=("h200",), **given), depth=depth
    )


@pytest.mark.parametrize("pass_", ["inference", "training"])
def test_the_sums_are_the_answer(predictors, pass_):
    answer, table = ask(predictors, pass_=pass_)
    assert table["time_s"].sum() == pytest.approx(answer.time_s)
    assert table["energy_j"].sum() == pytest.approx(answer.energy_j)
    assert (table["time_s_low"] <= table["time_s"]).all()
    assert (table["time_s"] <= table["time_s_high"]).all()
    assert (table["energy_j_low"] <= table["energy_j_high"]).all()
    step_s = table["time_s"].get("(optimizer)", 0.0)
    assert (table["forward_s"] + table["backward_s"]).sum() == pytest.approx(answer.time_s - step_s)


def test_back_to_back_times_of_modules_are_as_uncertain_as_those_of_their_calls(predictors):
    answer, table = predictors.ask_layers(Request.of(network="alexnet", inputs=("4,3,224,224",), gpus=("a30",)))
    assert answer.expected.device_s is None
    took = table[table["time_s"] > 0]
    assert (took["time_s_high"] > 1.01 * took["time_s"]).all()


def test_no_module_of_a_host_bound_pass_draws_more_than_the_card_can(predictors):
    request = Request.of(network="resnet18", inputs=("32,3,224,224",), gpus=("h200",), precision="bf16-mixed",
                         pass_="training")  # fmt: skip
    answer, table = predictors.ask_layers(request)
    assert answer.host.paced_by == "host"
    assert table["power_w"].max() < 1.1 * 700


@pytest.mark.parametrize("batch", [1, 32])
def test_a_module_is_no_more_certain_than_its_pass(predictors, batch):
    answer, table = predictors.ask_layers(
        Request.of(network="resnet18", inputs=(f"{batch},3,224,224",), gpus=("h200",))
    )
    for name in ("time_s", "energy_j"):
        low, high = (end / getattr(answer, name) for end in answer.intervals[name])
        known = table[table[name] > 0]
        assert (known[f"{name}_low"] <= 1.001 * low * known[name]).all()
        assert (known[f"{name}_high"] >= 0.999 * high * known[name]).all()


def test_training_has_rows_of_loss_and_step(predictors):
    answer, table = ask(predictors, pass_="training")
    step = table.loc["(optimizer)"]
    assert step["forward_s"] == step["backward_s"] == 0
    assert step["time_s"] > 0
    assert "(loss)" in table.index
    # the first layer needs no gradient of its input
    assert table.loc["features.3", "backward_s"] > table.loc["features.3", "forward_s"]
    of_weight = 4 * 9216 * 4096
    memory = table.loc["classifier.1", "memory_bytes"]
    assert memory >= 3 * of_weight  # with its gradient and momentum
    assert table["memory_bytes"].sum() <= answer.memory.allocated_bytes


def test_flops_are_those_that_pytorch_counts(predictors):
    _, table = ask(predictors)
    import torchvision

    with torch.device("meta"):
        model = torchvision.models.alexnet().eval()
        image = torch.randn(4, 3, 224, 224)
    with FlopCounterMode(model, display=False) as counter, torch.no_grad():
        model(image)
    counted = {path.removeprefix("AlexNet."): sum(of.values()) for path, of in counter.get_flop_counts().items()}
    layers = [path for path in table.index if counted.get(path)]
    assert len(layers) == 8
    for path in layers:
        assert table.loc[path, "flops"] == counted[path]


def test_depth_adds_up_what_lies_below(predictors):
    _, deep = ask(predictors)
    _, flat = ask(predictors, depth=1)
    assert flat.loc["features", "time_s"] == pytest.approx(
        deep.loc[deep.index.str.startswith("features"), "time_s"].sum()
    )
    assert np.isclose(flat["memory_bytes"].sum(), deep["memory_bytes"].sum())


def test_python_gives_the_table_of_a_module(predictors):
    module = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU())
    table = predictors.layers(module, (8, 64), gpu="h200")
    assert list(table.index) == ["0", "1"]
    assert table.loc["0", "memory_bytes"] >= 4 * 64 * 32


def test_a_list_of_operations_has_no_layers(predictors, tmp_path):
    (tmp_path / "listed.jsonl").write_text("")
    with pytest.raises(ClockwattError):
        predictors.ask_layers(Request.of(operations=tmp_path / "listed.jsonl", gpus=("h200",)))


@pytest.mark.parametrize(("columns", "whole"), [(80, False), (160, True)])
def test_the_table_keeps_to_the_width_of_the_terminal(predictors, capsys, monkeypatch, columns, whole):
    monkeypatch.setenv("COLUMNS", str(columns))
    print_layers(ask(predictors, pass_="training")[1])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= columns
    assert ("backward" in lines[0], "Phases" in lines[-1]) == (whole, not whole)
    assert any(line.startswith("sum ") for line in lines)
