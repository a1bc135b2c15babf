"""Operations and accumulations together are a real pass: the same calls below the dispatcher, with the same shapes."""

from collections import Counter

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from clockwatt.config import NetworkConfig, TrainingConfig
from clockwatt.operations.build.build import build
from clockwatt.operations.networks import Loss, construct, example_inputs
from clockwatt.operations.trace.trace import trace_network

CPU = torch.device("cpu")
NO_WORK = ("aten::empty", "aten::new_empty", "aten::_unsafe_view", "aten::lift")


class Kernels(TorchDispatchMode):
    """Counts ATen calls that compute, by name and shapes of what they give."""

    def __init__(self):
        super().__init__()
        self.calls = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if not func.is_view and not func.name().startswith(NO_WORK):
            tensors = result if isinstance(result, tuple | list) else [result]
            shapes = tuple(tuple(tensor.shape) for tensor in tensors if isinstance(tensor, torch.Tensor))
            self.calls[func.name().split("::")[1].split(".")[0].rstrip("_"), shapes] += 1
        return result


def real_pass(network):
    module = construct(network, training=True)
    (x,), _ = example_inputs(network, CPU, 0)
    loss = Loss(network, CPU, 0)
    forward, backward = Kernels(), Kernels()
    with forward:
        outputs = module(x)
    loss.prepare(outputs)
    with forward:
        value = loss(outputs)
        seed = torch.ones_like(value)
    with backward:
        value.backward(seed)
    return forward.calls, backward.calls


def rebuilt_pass(network):
    forward, backward = Counter(), Counter()
    counted = {}
    for call in trace_network(network, "training", TrainingConfig()).calls:
        operation = call.operation
        if operation.is_optimizer:
            continue
        if operation.operation_id not in counted:
            built = build(operation, CPU, pass_="training")
            there, back = Kernels(), Kernels()
            with there:
                outputs = built.forward()
            with back:
                built.backward(outputs)
            counted[operation.operation_id] = there.calls, back.calls
        there, back = counted[operation.operation_id]
        (backward if call.phase == "accumulation" else forward).update(there)
        backward.update(back)
    return forward, backward


@pytest.mark.parametrize(
    ("name", "size"),
    [
        *(("resnet18", 64), ("swin_t", 64), ("mobilenet_v3_small", 64), ("regnet_x_400mf", 64)),
        ("support.small_networks:dense", 32),
    ],
)
def test_operations_and_accumulations_are_the_kernels_of_a_real_pass(name, size):
    network = NetworkConfig(name=name, input=[2, 3, size, size])
    real, rebuilt = real_pass(network), rebuilt_pass(network)
    assert sum(real[1].values()) > 50
    assert rebuilt == real


def test_only_gradients_that_are_copied_into_the_layout_of_their_parameter_are_missing():
    network = NetworkConfig(name="convnext_tiny", input=[2, 3, 64, 64])
    (real_forward, real_backward), (forward, backward) = real_pass(network), rebuilt_pass(network)
    assert forward == real_forward
    assert not backward - real_backward
    assert {(name, len(shapes[0])) for name, shapes in real_backward - backward} == {("copy", 4)}
    assert (real_backward - backward).total() == 3
