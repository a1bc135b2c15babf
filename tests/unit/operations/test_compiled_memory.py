"""What a compiled pass allocates: what its kernels write, and what the partitioner saves for the backward pass."""

import sys

import pytest
import torch
from torch import nn

from clockwatt.config import NetworkConfig, TrainingConfig
from clockwatt.operations.networks import NetworkError
from clockwatt.operations.trace.memory import record_memory
from clockwatt.predict.memory import pass_memory
from clockwatt.schema.execution import ExecutionSettings
from clockwatt.schema.records import ACTIVATIONS, OPTIMIZER_STATE, PARAMETERS

ROWS, WIDTH = 4096, 1024
TENSOR = 4 * ROWS * WIDTH


@pytest.fixture
def memory(monkeypatch):
    def predict(module, pass_="inference", mode="+compile", shape=(ROWS, WIDTH), branch="refuse"):
        monkeypatch.setattr(sys.modules[__name__], "offered", lambda: module, raising=False)
        network = NetworkConfig(
            name=f"{__name__}:offered", input=list(shape), precision=f"tf32{mode}", data_dependent_branch=branch
        )
        events = record_memory(network, pass_, TrainingConfig())
        return pass_memory(events, pass_=pass_, execution=ExecutionSettings(f"tf32{mode}"), spec=None)

    return predict


class Chain(nn.Module):
    """Element-wise calls, each of which allocates a tensor where nothing is compiled."""

    def forward(self, x):
        y = torch.sin(x) + torch.cos(x)
        return torch.exp(y) * torch.sqrt(y.abs()) + x


def test_a_kernel_of_element_wise_calls_writes_its_result_alone(memory):
    compiled, eager = memory(Chain()), memory(Chain(), mode="")
    assert compiled.allocated_bytes == 2 * TENSOR  # input and output
    assert eager.allocated_bytes >= 4 * TENSOR


def test_a_process_that_counts_gpus_by_their_driver_gets_the_same(memory, monkeypatch):
    monkeypatch.setenv("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # as Accelerate sets it
    assert memory(Chain()).allocated_bytes == 2 * TENSOR


class Gated(nn.Module):
    """Reads a value of other size twice, which has too many inputs to be computed where it is read."""

    def forward(self, x):
        wide = sum((torch.sin(x.double() + number) for number in range(12)), torch.zeros((), dtype=torch.float64))
        return (wide * torch.sigmoid(wide)).float()


def test_what_one_kernel_computes_for_the_next_alone_is_not_written(memory):
    assert memory(Gated()).allocated_bytes == 2 * TENSOR  # input and output


def test_training_keeps_what_the_partitioner_saves(memory):
    network = nn.Sequential(nn.Linear(WIDTH, WIDTH, bias=False), nn.GELU(), nn.Linear(WIDTH, WIDTH, bias=False))
    compiled, eager = memory(network, "training"), memory(network, "training", mode="")
    assert compiled.parts[PARAMETERS] == eager.parts[PARAMETERS] == 2 * 4 * WIDTH**2
    assert compiled.parts[OPTIMIZER_STATE] == eager.parts[OPTIMIZER_STATE]
    assert TENSOR <= compiled.parts[ACTIVATIONS] <= eager.parts[ACTIVATIONS]
    assert compiled.allocated_bytes <= eager.allocated_bytes


class Branching(nn.Module):
    """A branch on data, where a compiled graph breaks."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        y = self.layer(x)
        return torch.relu(y) if y.sum() > 0 else y


@pytest.mark.parametrize("pass_", ["inference", "training"])
def test_a_graph_that_breaks_takes_the_memory_of_the_eager_pass_with_a_wider_interval(memory, pass_):
    compiled, eager = (memory(Branching(), pass_, mode, branch="true") for mode in ("+compile", ""))
    assert (compiled.eager, eager.eager) == (True, False)
    assert compiled.allocated_bytes == eager.allocated_bytes
    assert compiled.parts == eager.parts
    assert compiled.allocated_low_bytes < eager.allocated_low_bytes


class Buffered(nn.Module):
    """Normalisations, whose buffers and statistics a graph is given and gives."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(8, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2))

    def forward(self, x):
        return self.layers(x).mean((2, 3))


@pytest.mark.parametrize("pass_", ["inference", "training"])
def test_convolutions_with_normalisations_need_less_than_eager(memory, pass_):
    shape = (16, 8, 64, 64)
    compiled, eager = (memory(Buffered(), pass_, mode, shape) for mode in ("+compile", ""))
    of_output = 4 * 16 * 64 * 64 * 64
    assert of_output < compiled.allocated_bytes <= eager.allocated_bytes


def test_pooled_images_lie_channels_last(memory):
    network, shape = (
        nn.Sequential(nn.Conv2d(8, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(64, 64, 3)),
        (4, 8, 32, 32),
    )
    laid_out, contiguous = (memory(network, "training", mode, shape) for mode in ("+channels_last+compile", "+compile"))
    assert laid_out.allocated_bytes == pytest.approx(contiguous.allocated_bytes, rel=0.1)


class Breaking(nn.Module):
    """A value of the data decides, which no graph can hold."""

    def forward(self, x):
        return x * 2 if x.sum().item() > 0 else x


def test_a_pass_that_no_graph_holds_is_refused_by_name(memory):
    with pytest.raises(NetworkError, match="offered"):
        memory(Breaking())


class Routed(nn.Module):
    """Adds up two of eight scores a row, as a router of a mixture of experts chooses them."""

    def forward(self, x):
        values, chosen = torch.topk(x[:, :8], 2, dim=-1)
        return x + values.sum(-1, keepdim=True) * torch.zeros_like(x[:, :8]).scatter(1, chosen, 1.0).sum(
            -1, keepdim=True
        )


def test_a_router_is_compiled(memory):
    assert memory(Routed()).allocated_bytes < 2.1 * TENSOR
