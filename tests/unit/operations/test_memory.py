"""What a pass allocates and frees on the meta device is what it would on a GPU."""

import itertools
import json
import sys

import pytest
import torch
from torch import nn

from clockwatt.config import NetworkConfig, TrainingConfig
from clockwatt.operations.trace.memory import record_memory
from clockwatt.schema.records import (
    ACTIVATIONS,
    GRADIENTS,
    INPUTS,
    OPTIMIZER_STATE,
    PARAMETERS,
    TEMPORARY,
    WORKSPACE,
)

FLOAT = 4


@pytest.fixture
def recorded(monkeypatch):
    def record(module, shape, pass_="inference", precision="tf32-conv", **training):
        monkeypatch.setattr(sys.modules[__name__], "offered", lambda: module, raising=False)
        network = NetworkConfig(name=f"{__name__}:offered", input=shape, precision=precision)
        return record_memory(network, pass_, TrainingConfig(**training))

    return record


def alive(events, kind, row=None):
    """Bytes of a kind that are allocated after a row."""
    rows = events if row is None else events[: row + 1]
    sizes = {event.number: event.bytes for event in rows if event.bytes is not None and event.kind == kind}
    for event in rows:
        if event.bytes is None:
            sizes.pop(event.number, None)
    return sum(sizes.values())


def peak(events, kind):
    return max(alive(events, kind, row) for row in range(len(events)))


def layers(*widths):
    return nn.Sequential(*(nn.Linear(a, b, bias=False) for a, b in itertools.pairwise(widths)))


def test_inference_keeps_one_layers_output_while_the_next_runs(recorded):
    events = recorded(layers(8, 64, 32, 16), [4, 8])
    assert peak(events, PARAMETERS) == FLOAT * (8 * 64 + 64 * 32 + 32 * 16)
    assert peak(events, INPUTS) == FLOAT * 4 * 8
    assert peak(events, ACTIVATIONS) == FLOAT * 4 * (64 + 32)
    assert alive(events, ACTIVATIONS) == 0


@pytest.mark.parametrize("optimizer", ["adamw", "adamw-fused"])
def test_training_keeps_what_the_backward_pass_needs_and_frees_it(recorded, optimizer):
    module = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 16))
    events = recorded(module, [4, 8], "training", optimizer=optimizer)
    parameters = peak(events, PARAMETERS)
    assert parameters == FLOAT * sum(one.numel() for one in module.parameters())
    assert peak(events, GRADIENTS) == parameters
    # of a parameter two states; its step counter is on the CPU
    assert peak(events, OPTIMIZER_STATE) == 2 * parameters
    # ReLU's output is kept once for two layers, a linear's own output for none
    outputs = FLOAT * 4 * (64 + 64 + 16)
    assert outputs <= peak(events, ACTIVATIONS) <= outputs + FLOAT * 4 * (64 + 16 + 16) + 64
    assert alive(events, ACTIVATIONS) == 0


@pytest.mark.parametrize("batches", [1, 2, 3])
def test_gradients_stay_alive_while_further_batches_accumulate(recorded, batches):
    module = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 16))
    events = recorded(module, [4, 8], "training", accumulate=batches)
    forward = [row for row, event in enumerate(events) if event.kind == ACTIVATIONS and event.bytes is not None]
    kept = max(alive(events, GRADIENTS, row) for row in forward)
    assert (kept > 0) == (batches > 1)
    assert kept in (0, peak(events, PARAMETERS))


def test_autocast_casts_the_logarithms_of_a_cross_entropy(recorded):
    classes, rows = 1000, 64
    events = recorded(layers(1, classes), [rows, 1], "training", precision="bf16-mixed")
    scores_and_logarithms, gradient_and_its_cast = (classes * rows * size for size in (2 + 2 + 4, 4 + 2))
    assert scores_and_logarithms <= peak(events, ACTIVATIONS) <= scores_and_logarithms + 4 * FLOAT * classes
    assert gradient_and_its_cast <= peak(events, TEMPORARY) <= gradient_and_its_cast + 4 * FLOAT * classes


def test_autocast_keeps_no_cast_weights_in_inference(recorded):
    events = recorded(layers(64, 64, 64, 64), [1, 64], precision="bf16-mixed")
    assert peak(events, ACTIVATIONS) < 2 * 2 * 64 * 64


class Layers(nn.ModuleList):
    reentrant = None

    def forward(self, x):
        for layer in self:
            if self.reentrant is None:
                x = layer(x)
            else:
                x = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=self.reentrant)
        return x


@pytest.mark.parametrize(("precision", "reentrant"), [("tf32", False), ("bf16-mixed", False), ("bf16-mixed", True)])
def test_checkpoints_keep_less_and_compute_again_under_autocast(recorded, precision, reentrant):
    def most():
        events = recorded(network, [8, 64, 32], "training", precision)
        rows = range(0, len(events), 50)
        return max(sum(alive(events, kind, row) for kind in (ACTIVATIONS, TEMPORARY)) for row in rows)

    first = nn.Linear(32, 32)  # a reentrant checkpoint needs an input with gradients
    network = nn.Sequential(first, Layers(nn.TransformerEncoderLayer(32, 2, 64, batch_first=True) for _ in range(4)))
    whole = most()
    network[1].reentrant = reentrant
    assert most() < 0.5 * whole


def test_adafactor_keeps_rows_and_columns(recorded):
    events = recorded(layers(64, 32), [4, 64], "training", optimizer="adafactor")
    assert FLOAT * (64 + 32) <= alive(events, OPTIMIZER_STATE) <= FLOAT * (64 + 32 + 1)


def test_dropout_keeps_a_byte_an_element(recorded):
    def kept(*between):
        module = nn.Sequential(nn.Linear(8, 1024), *between, nn.Linear(1024, 8))
        events = recorded(module, [64, 8], "training")
        backward = next(row for row, event in enumerate(events) if event.kind == TEMPORARY)
        return alive(events, ACTIVATIONS, backward)

    assert kept(nn.Dropout(0.5)) - kept() == 64 * 1024  # its output is kept in place of its input


def test_modules_that_allocate_are_named(recorded):
    events = recorded(layers(8, 64, 32), [4, 8])
    of_first = [event.bytes for event in events if event.module_path == "0" and event.kind == ACTIVATIONS]
    assert FLOAT * 4 * 64 in of_first


@pytest.mark.parametrize("precision", ["tf32-conv", "bf16-mixed"])
def test_convolutions_describe_their_workspaces(recorded, precision):
    module = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 1))
    events = recorded(module, [2, 3, 16, 16], "training", precision)
    calls = [json.loads(event.call) for event in events if event.kind == WORKSPACE and event.call]
    assert len(calls) == 2 * 4
    first = calls[0]
    assert (first["x"], first["weight"], first["y"]) == ([2, 3, 16, 16], [8, 3, 3, 3], [2, 8, 8, 8])
    assert (first["stride"], first["gradients"], first["channels_last"]) == ([2, 2], None, False)
    # an input needs no gradient
    assert [call["gradients"] for call in calls[2:4]] == [[True, True, True], [False, True, True]]


class Last(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.LSTM(8, 16, batch_first=True)

    def forward(self, x):
        return self.layer(x)[0].mean()


def test_a_recurrent_layers_reserve_lives_until_its_backward_pass(recorded):
    events = recorded(Last(), [2, 5, 8], "training")
    reserves = [event.number for event in events if event.call and json.loads(event.call).get("reserve")]
    assert len(reserves) == 2  # of two passes
    assert all(any(event.bytes is None and event.number == one for event in events) for one in reserves)


def test_a_recurrent_layer_allocates_its_reserve_while_it_holds_its_workspace(recorded):
    events = recorded(Last(), [2, 5, 8], "training")
    rows = [row for row, event in enumerate(events) if event.call and json.loads(event.call).get("reserve")]
    for row in rows:
        assert events[row - 1].kind == WORKSPACE
        assert events[row - 1].bytes is not None
        assert (events[row + 1].number, events[row + 1].bytes) == (row - 1, None)


def test_a_recurrent_layer_keeps_its_output_for_the_backward_pass(recorded):
    events = recorded(Last(), [2, 5, 8], "training")
    output = next(event.number for event in events if event.bytes == 4 * 2 * 5 * 16)
    freed = [(event.number, event.bytes) for event in events].index((output, None))
    workspaces = [row for row, event in enumerate(events) if event.call and '"lstm"' in event.call]
    assert workspaces[2] < freed < workspaces[3]  # after that of the first backward pass


def test_known_values_do_not_keep_tensors(recorded):
    class Ranges(nn.Module):
        def forward(self, x):
            for _ in range(8):
                x = x + torch.arange(1024, device=x.device).sum() * 0
            return x

    events = recorded(nn.Sequential(nn.Linear(4, 4), Ranges()), [2, 4])
    assert peak(events, ACTIVATIONS) < 3 * 8 * 1024
