"""The largest batch, sequence or number of layers that fits a GPU."""

import functools
import json
import re
import sys

import pytest
import torch
from torch import nn

import clockwatt
from clockwatt.cli.app import app
from clockwatt.cli.fit_memory import measured
from clockwatt.cli.printing import memory_words
from clockwatt.errors import ClockwattError, RequestError
from clockwatt.operations.trace import memory as memory_trace
from clockwatt.predict.fit_memory import Largest, fit_memory, search
from clockwatt.predict.request import Request
from clockwatt.predict.tracing import with_batch

STACK = f"{__name__}:stack_{{layers}}"


def __getattr__(name):
    """A stack of as many layers as the name says, or a network that is the same whatever it says."""
    if name.startswith("stack_") and name[6:].isdigit():
        return lambda: stack(int(name[6:]))
    if name.startswith("small_"):
        return lambda: nn.Linear(8, 8)
    raise AttributeError(name)


def stack(layers):
    with torch.device("meta"):
        return nn.Sequential(*(nn.Linear(8192, 8192, bias=False) for _ in range(layers)))


@pytest.fixture(scope="module")
def predictors():
    return clockwatt.load()


@pytest.mark.parametrize("largest", [0, 1, 2, 7, 100, 255])
@pytest.mark.parametrize("guess", [1, 5, 300])
def test_the_search_finds_the_largest_whatever_it_begins_with(largest, guess):
    assert search(lambda size: size <= largest, guess) == (largest, largest + 1)


def test_a_large_size_is_found_to_one_part_in_256():
    found, refused = search(lambda size: size <= 100_000)
    assert 100_000 * (1 - 1 / 256) <= found <= 100_000 < refused <= 100_000 * (1 + 1 / 256)


def test_the_largest_batch_fits_and_twice_as_much_does_not(predictors):
    request = Request.of(network="alexnet", inputs=("1,3,224,224",), gpus=("a30",), pass_="training")
    found, sized = fit_memory(predictors, request, "batch")
    assert found.memory.fits
    assert 0 < found.safe_size <= found.size
    assert 0.5 * found.memory.gpu_bytes < found.memory.allocated_bytes < found.memory.gpu_bytes
    assert sized(found.size).first_input.shape == [found.size, 3, 224, 224]
    assert (found.optimizer, found.refusal) == ("sgd", None)
    assert found.size < found.refused <= found.size + max(1, found.size // 256)
    shared, _ = fit_memory(predictors, request, "batch", other_bytes=12 * 2**30)
    assert 0.3 * found.size < shared.size < 0.7 * found.size
    with pytest.raises(ClockwattError, match=r"A30 has 0\.0 GiB for it"):
        fit_memory(predictors, request, "batch", other_bytes=100 * 2**30)


def test_python_and_the_command_give_one_answer(predictors, capsys):
    asked = {"gpu": "a30", "training": True, "precision": "bf16-mixed", "optimizer": "adamw"}
    found = predictors.fit_memory(f"{__name__}:stack_2", (1, 8, 8192), dimension="sequence", **asked)
    options = ["--precision", "bf16-mixed", "--optimizer", "adamw", "--sequence", "--json"]
    arguments = [f"{__name__}:stack_2", "--input", "1,8,8192", "--gpu", "a30", "--pass", "training", *options]
    with pytest.raises(SystemExit):
        app(["fit-memory", *arguments], prog_name="clockwatt")
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(found.to_dict()))
    module = predictors.fit_memory(stack(2), torch.zeros(1, 8, 8192), dimension="sequence", **asked)
    assert module == found
    assert repr(found) == f"<Largest sequence: size={found.size}, safe_size={found.safe_size}, predicted>"


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"dimension": "layers"}, "network is a module, which names no number of layers"),
        ({"dimension": "depth"}, "dimension 'depth': choose batch, sequence or layers"),
        ({"other_bytes": 0.5}, "other_bytes 0.5: give a whole number of bytes"),
        ({"point": "sm900"}, "point is not of fit_memory"),
        ({"gpu": None}, "gpu: give one GPU"),
        ({"gpus": ["a30"]}, "gpus: fit_memory takes one gpu"),
    ],
)
def test_what_fit_memory_cannot_take_is_refused(predictors, asked, message):
    with pytest.raises(RequestError, match=message):
        predictors.fit_memory(nn.Linear(8, 8), (1, 8), **{"gpu": "a30"} | asked)


def test_few_sizes_are_compiled(predictors, monkeypatch):
    recorded = []
    record = memory_trace.record_memory

    def counted(network, *given):
        recorded.append(network.execution[0])
        return record(network, *given)

    monkeypatch.setattr(memory_trace, "record_memory", counted)
    request = Request.of(
        network=f"{__name__}:stack_2", inputs=("1,8192",), gpus=("a30",), precision="tf32+compile", pass_="training"
    )
    found, _ = fit_memory(predictors, request, "batch")
    assert found.memory.fits
    assert recorded.count("tf32+compile") <= 4


@pytest.mark.parametrize("precision", ["tf32", "tf32+compile"])
def test_a_sequence_ends_where_the_table_of_positions_does(predictors, precision):
    name = f"{__name__}:Positions"
    request = Request.of(network=name, inputs=("1024,8,64",), gpus=("a30",), precision=precision)
    found, _ = fit_memory(predictors, request, "sequence")
    assert (found.size, found.refused) == (100, 101)
    assert "reads index 100 of a dimension of size 100" in found.refusal


def test_a_sequence_ends_where_a_buffer_does(predictors):
    found = predictors.fit_memory(Buffered(), (1024, 8, 64), gpu="a30", dimension="sequence")
    assert (found.size, found.refused) == (100, 101)
    assert found.refusal.startswith("with sequence 101, network Buffered: ")


def test_a_network_that_takes_no_other_length_is_refused_with_the_length(predictors):
    request = Request.of(network="alexnet", inputs=("1,3,224,224",), gpus=("a30",))
    with pytest.raises(ClockwattError, match="is no sequence"):
        fit_memory(predictors, request, "sequence")
    request = Request.of(network=f"{__name__}:small_1", inputs=("1,8",), gpus=("a30",))
    with pytest.raises(ClockwattError, match=r"^with sequence 2, network .*linear fails"):
        fit_memory(predictors, request, "sequence")


def test_the_command_names_the_optimizer_and_the_size_that_does_not_fit(capsys):
    arguments = [STACK, "--input", "8,8192", "--gpu", "a30", "--pass", "training", "--layers"]
    found = {}
    for optimizer in ("none", "adamw"):
        with pytest.raises(SystemExit):
            app(["fit-memory", *arguments, "--optimizer", optimizer], prog_name="clockwatt")
        size, refused, state = re.search(
            rf"fit: (\d+) predicted.*size tried: layers = (\d+): does not fit\.\nOptimizer: {optimizer}, with (.*) of",
            capsys.readouterr().out,
            re.DOTALL,
        ).groups()
        assert int(refused) == int(size) + 1
        found[optimizer] = int(size), state
    assert found["adamw"][0] < found["none"][0]
    assert found["none"][1] == "0 B"
    assert found["adamw"][1].endswith("GiB")


def test_more_than_millions_fit_and_what_does_not_grow_is_refused(predictors):
    request = Request.of(network=f"{__name__}:small_1", inputs=("1,8",), gpus=("a30",))
    assert fit_memory(predictors, request, "batch")[0].size > 2**25
    with pytest.raises(ClockwattError, match="does not depend on the layers"):
        fit_memory(predictors, request.model_copy(update={"network": f"{__name__}:small_{{layers}}"}), "layers")


def test_without_a_precision_memory_is_that_of_pytorchs_default(predictors):
    def found(**more):
        request = Request.of(network="alexnet", inputs=("1,3,224,224",), gpus=("a30",), **more)
        return fit_memory(predictors, request, "batch")[0]

    assert found() == found(precision="tf32-conv") != found(precision="fp32")


def test_layers_take_what_their_weights_do(predictors):
    request = Request.of(network=STACK, inputs=("8,8192",), gpus=("a30",))
    found, _ = fit_memory(predictors, request, "layers")
    of_layer = 4 * 8192**2
    assert found.size == pytest.approx((found.memory.gpu_bytes - found.used_bytes) / of_layer, rel=0.03)


def test_memory_of_other_processes_is_told_and_counts_in_the_verdict(predictors):
    request = Request.of(network=STACK, inputs=("8,8192",), gpus=("a30",))
    alone, shared = (fit_memory(predictors, request, "layers", other_bytes=used)[0] for used in (0, 20 * 2**30))
    assert " of 24 GiB: probably fits" in memory_words(alone.memory)
    assert " reserved; 3.5 GiB of 24 GiB are free: fits." in memory_words(shared.memory)


def test_a_network_without_a_number_of_layers_is_one_message(predictors):
    with pytest.raises(RequestError, match="names no number of layers") as error:
        fit_memory(predictors, Request.of(network="alexnet", gpus=("a30",)), "layers")
    assert "Write layers, in braces, in the place" in error.value.as_options()


def test_layers_of_a_configuration_are_changed(predictors, tmp_path):
    path = tmp_path / "gpt2.json"
    path.write_text(json.dumps({"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 2, "vocab_size": 100}))
    _, sized = fit_memory(
        predictors, Request.of(network=f"hf:{path}", inputs=("1,8",), gpus=("a30",), input_below=100), "sequence"
    )
    assert sized(5).first_input.shape == [1, 5]


def test_what_does_not_fit_at_all_is_one_message(predictors):
    request = Request.of(network=STACK.replace("{layers}", "100"), inputs=("8,8192",), gpus=("a30",))
    with pytest.raises(ClockwattError, match="batch 1 needs"):
        fit_memory(predictors, request, "batch")


class Positions(nn.Module):
    """Takes sequences of up to 100 positions."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(100, 64)

    def forward(self, x):
        return x + self.table(torch.arange(x.shape[1], device=x.device))


class Buffered(nn.Module):
    """Takes sequences of up to 100 positions, as BERT does by its types of tokens."""

    def __init__(self):
        super().__init__()
        self.register_buffer("positions", torch.zeros(1, 100, 64))

    def forward(self, x):
        return x + self.positions[:, : x.shape[1]]


class Small(nn.Module):
    """Memory for a batch of 20."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        if len(x) > 20 and not x.is_meta:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return self.layer(x)


def test_a_network_that_takes_no_batch_of_1_has_a_largest_batch():
    network = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 8))
    sizes = [clockwatt.fit_memory(one, (4, 8), gpu="a30", training=True).size for one in (network, network[::2])]
    assert 1 < sizes[0] < sizes[1]


def test_bisection_handles_memory_that_ends(predictors, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "offered", Small, raising=False)
    network = predictors.network(Request.of(network=f"{__name__}:offered", inputs=("1,4",), gpus=("a30",)))
    predicted = Largest("batch", 64, 60, None, 0, 65)
    found = measured(predicted, functools.partial(with_batch, network), "training", predictors.tracer.training, "cpu")
    assert (found.size, found.refused, found.source) == (20, 21, "measured")
