"""Gradient accumulation, clipping and loss: what a training pass does, and what it is called."""

import collections

import pytest

import clockwatt
from clockwatt.config import NetworkConfig, TrainingConfig
from clockwatt.errors import ClockwattError
from clockwatt.figures.style import network_and_input
from clockwatt.operations import optimizers
from clockwatt.operations.networks import build_network
from clockwatt.operations.trace.trace import trace_network

NETWORK = NetworkConfig(name="resnet18", input=[2, 3, 64, 64], precision="tf32")


def trace(**training):
    return trace_network(NETWORK, "training", TrainingConfig(**training))


def classes(traced, phase):
    return collections.Counter(call.operation.operation_class for call in traced.calls if call.phase == phase)


def test_accumulation_repeats_forward_and_backward_and_adds_gradients():
    once, thrice = trace(), trace(accumulate=3)
    assert classes(thrice, "forward") == {name: 3 * count for name, count in classes(once, "forward").items()}
    assert classes(thrice, "loss")["cross_entropy"] == 3
    parameters = 62
    assert classes(thrice, "accumulation")["add"] == 3 * classes(once, "accumulation")["add"] + 2 * parameters
    assert classes(thrice, "optimizer") == classes(once, "optimizer") == {"SGD": 1}
    assert thrice.module_calls == 3 * once.module_calls
    assert thrice.backward_nodes == 3 * (once.backward_nodes + 1)  # with the division of the loss


def test_clipping_takes_the_norm_of_all_gradients_and_multiplies_them():
    traced = trace(clip_norm=1.0)
    assert [call.operation.operation_class for call in traced.calls[-3:]] == ["vector_norm", "mul", "SGD"]
    assert traced.calls[-2].operation.tensors[0].elements == traced.parameters
    assert any("clipped" in text for text in traced.assumed_branches)


@pytest.mark.parametrize(
    ("loss", "called"), [("mse", "mse_loss"), ("mean", "mean"), ("cross_entropy", "cross_entropy")]
)
def test_a_loss_is_what_was_named(loss, called):
    assert classes(trace(loss=loss), "loss")[called] == 1


def test_default_settings_change_no_identity():
    assert optimizers.described(TrainingConfig()) == '{"lr":0.1,"momentum":0.9,"optimizer":"sgd","weight_decay":0.0}'
    assert TrainingConfig(accumulate=1, loss="auto").differences(TrainingConfig()) == ""


@pytest.mark.parametrize(
    ("settings", "end"),
    [
        ({"optimizer": "adamw-fused", "accumulate": 4}, "-adamw-fused-accumulate4"),
        ({"clip_norm": 0.5, "loss": "mse"}, "-clip0.5-mse"),
    ],
)
def test_other_settings_are_part_of_the_name(settings, end):
    assert TrainingConfig(**settings).differences(TrainingConfig()) == end
    name, dtype = network_and_input(f"resnet18-2x3x64x64-float32{end}")
    assert (name, dtype) == (f"resnet18 2×3×64×64{end.replace('-', ' ', 1)}", "float32")


@pytest.mark.parametrize("precision", ["tf32", "bf16-mixed"])
def test_a_pass_is_measured_so(precision):
    network = NETWORK.model_copy(update={"precision": [precision]})
    training = TrainingConfig(accumulate=2, clip_norm=1.0, loss="mse")
    built = build_network(network, "cpu", pass_="training", training=training)
    built.call()
    gradients = [parameter.grad for parameter in built.module.parameters()]
    assert sum(float(gradient.norm()) ** 2 for gradient in gradients) <= 1.01


def test_an_answer_is_for_the_settings_that_are_asked():
    question = {"gpu": "h200", "training": True, "precision": "tf32"}
    once, four = (clockwatt.predict("resnet50", **question, **more) for more in ({}, {"accumulate": 4, "clip_norm": 1}))
    assert four.network_id == f"{once.network_id}-accumulate4-clip1"
    assert (four.items, four.measured) == (4 * once.items, None)
    assert 3.5 < four.time_s / once.time_s < 4.5
    assert four.phases["forward"] / once.phases["forward"] == pytest.approx(4, rel=0.05)
    with pytest.raises(ClockwattError, match=r"accumulate.* is for training"):
        clockwatt.predict("resnet50", gpu="h200", accumulate=4)
