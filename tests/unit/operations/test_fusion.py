"""Compiled passes: what is fused into kernels, and what stays a call of a library."""

import pytest
import torch

import clockwatt
from clockwatt.config import NetworkConfig, TrainingConfig
from clockwatt.operations.trace.trace import trace_network

IMAGE = 4 * 2 * 8 * 16 * 16
"""Bytes of what each convolution of `Block` gives."""


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(8, 8, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(8)
        self.second = torch.nn.Conv2d(8, 8, 3, padding=1, bias=False)

    def forward(self, x):
        y = self.second(torch.relu(self.norm(self.first(x))))
        return torch.nn.functional.gelu(y + x) * 2


def compiled(pass_, precision="tf32+compile"):
    network = NetworkConfig(name="block", input=[2, 8, 16, 16], precision=precision)
    calls = trace_network(network, pass_, TrainingConfig(), lambda _: Block()).calls
    return [(call.kind, call.operation) for call in calls if call.phase == "forward"]


def moved(operation):
    return sum(tensor.bytes for tensor in (*operation.tensors, *operation.out))


def test_element_wise_calls_between_convolutions_are_one_kernel_and_take_the_bias():
    calls = compiled("inference")
    assert [operation.operation_class if kind == "compute" else kind for kind, operation in calls] == [
        "conv2d", "fused", "conv2d", "fused",
    ]  # fmt: skip
    assert len(calls[0][1].tensors) == 2
    assert [moved(operation) / IMAGE for kind, operation in calls if kind == "fused"] == pytest.approx([2, 3], rel=0.1)


def test_a_batch_normalisation_of_16_bits_takes_longer_than_its_bytes():
    network = NetworkConfig(name="block", input=[2, 8, 16, 16], precision="bf16+compile")
    calls = trace_network(network, "inference", TrainingConfig(), lambda _: Block().bfloat16()).calls
    fused = [moved(call.operation) / (IMAGE / 2) for call in calls if call.kind == "fused"]
    assert fused == pytest.approx([3, 3], rel=0.1)  # in place of 2, in the bytes of 16-bit images


def test_the_backward_pass_has_kernels_and_normalisations_have_reductions():
    kinds = [kind for kind, _ in compiled("training")]
    large = [moved(op) / IMAGE for kind, op in compiled("training") if kind == "fused" and moved(op) > IMAGE / 2]
    assert kinds.count("compute") == 2
    # of the bias; statistics, forward, their gradient and that of the first group; both passes of the second
    assert large == pytest.approx([1, 1, 2, 2, 3, 3, 4], rel=0.15)


@pytest.mark.parametrize("precision", ["tf32", "fp16-mixed"])
def test_optimizer_and_scaler_stay_as_they_are(precision):
    network = NetworkConfig(name="block", input=[2, 8, 16, 16], precision=precision)
    eager, both = (
        trace_network(network.model_copy(update={"precision": [f"{precision}{mode}"]}), "training", TrainingConfig(),
                      lambda _: Block()).calls
        for mode in ("", "+compile")
    )  # fmt: skip
    steps = [[call.operation for call in calls if call.phase == "optimizer"] for calls in (eager, both)]
    assert steps[0] == steps[1] != []


def test_a_large_linear_layer_is_padded_with_its_bias():
    network = NetworkConfig(name="linear", input=[2048, 64], precision="bf16+compile")
    calls = trace_network(network, "inference", TrainingConfig(), lambda _: torch.nn.Linear(64, 1030).bfloat16()).calls
    *fused, linear = calls
    assert [call.kind for call in fused] == ["fused", "fused"]
    assert [tensor.shape for tensor in linear.operation.tensors] == [(2048, 64), (1032, 64), (1032,)]


def test_as_many_bytes_are_moved_as_by_the_kernels_of_torchinductor():
    network = NetworkConfig(name="squeezenet1_1", input=[64, 3, 224, 224], precision="tf32+compile")
    calls = trace_network(network, "inference", TrainingConfig()).calls
    fused = [moved(call.operation) for call in calls if call.kind == "fused"]
    assert sum(fused) == pytest.approx(1.795e9, rel=0.06)  # of its scheduler's nodes, PyTorch 2.11 on an H100


def test_a_graph_is_one_launch_and_compiled_passes_need_less_memory_than_eager_ones():
    question = {"gpu": "h100", "inputs": (64, 3, 224, 224)}
    eager, graph, both = (
        clockwatt.predict("squeezenet1_1", precision=f"tf32{mode}", **question)
        for mode in ("", "+cuda_graph", "+reduce-overhead")
    )
    assert graph.expected.host_s < 20e-6 < both.expected.host_s < eager.expected.host_s
    assert both.time_s < graph.time_s < eager.time_s
    assert both.execution.words == "TF32, reduce-overhead"
    assert graph.memory.allocated_bytes >= eager.memory.allocated_bytes
    assert both.memory.allocated_bytes < eager.memory.allocated_bytes  # fused tensors are not allocated
