"""Networks with weights and images laid out channels last."""

import pytest
import torch

import clockwatt
from clockwatt.config import NetworkConfig, TrainingConfig
from clockwatt.operations.networks import build_network
from clockwatt.operations.trace.trace import trace_network


def network(name, *shape, precision="tf32+channels_last"):
    return NetworkConfig(name=name, input=list(shape), precision=precision)


def layout(shape, stride):
    """Strides of the dimensions that have more than one entry; those of the others mean nothing."""
    return [step for size, step in zip(shape, stride, strict=True) if size > 1]


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small"])
def test_layouts_are_those_of_a_real_pass(name):
    of_network = network(name, 2, 3, 64, 64)
    built = build_network(of_network, "cpu", pass_="inference", training=TrainingConfig())
    real, traced = {}, {}

    def note(module, _given, output):
        real[paths[module]] = layout(output.shape, output.stride())

    paths = {module: path for path, module in built.module.named_modules() if not list(module.children())}
    for module in paths:
        module.register_forward_hook(note)
    with torch.no_grad():
        built.call()
    for call in trace_network(of_network, "inference", TrainingConfig()).calls:
        made = call.operation.out[-1]
        traced[call.module_path] = layout(made.shape, made.stride)
    both = real.keys() & traced.keys()
    assert len(both) > 20
    assert {path: traced[path] for path in both} == {path: real[path] for path in both}


def test_gradients_arrive_channels_last():
    training = trace_network(network("resnet18", 2, 3, 64, 64), "training", TrainingConfig())
    convolutions = [call.operation for call in training.calls if call.operation.operation_class == "conv2d"]
    assert len(convolutions) == 20
    for one in convolutions:
        assert all(tensor.stride[1] == 1 for tensor in (*one.tensors, *one.out))
        assert one.grad_out[0][1] == 1


def test_an_answer_names_the_layout_and_differs_from_the_contiguous_one():
    question = {"gpu": "h200", "training": True}
    last, contiguous = (
        clockwatt.predict("resnet50", (64, 3, 224, 224), precision=one, **question)
        for one in ("tf32+channels_last", "tf32")
    )
    assert last.execution.words == "TF32, channels_last"
    assert last.network_id == "resnet50-64x3x224x224-float32+channels_last"
    assert last.time_s < contiguous.time_s


@pytest.mark.parametrize("mode", ["+channels_last", "+compile"])
def test_each_weight_is_laid_out_by_its_own_rank(mode):
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 64, 3), torch.nn.Unflatten(1, (1, 64)), torch.nn.Conv3d(1, 1, 3), torch.nn.Flatten()
    )
    assert clockwatt.predict(net, (8, 3, 32, 32), gpu="h200", precision="tf32" + mode).time_s > 0
