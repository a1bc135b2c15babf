"""A network at many batch sizes: what is derived from a few traces is what tracing gives."""

import pandas as pd
import pytest
import torch
import torchvision
from torchvision.models.shufflenetv2 import InvertedResidual

from clockwatt.config import TrainingConfig, parse_network
from clockwatt.operations.hugging_face import UNMASKED, library
from clockwatt.operations.transformer_networks import LanguageModel
from clockwatt.predict.tracing import NetworkTracer, trace_sizes, with_batch

SIZES = [1, 2, 3, 5, 8, 9, 12, 16, 17, 24, 31]
NAMES = ["operation_id", "spec", "kind", "flops", "bytes_read", "bytes_written", "parameter_bytes", "device_work"]
GPT2 = {"name": f"{__name__}:two_layers", "input": [2, 16], "input_dtype": "int64", "input_below": 50257}
SMALL = [2, 3, 64, 64]


def two_layers():
    """GPT-2, two layers of it."""
    transformers = library()
    shape = transformers.GPT2Config(n_layer=2, attn_implementation=UNMASKED)
    return LanguageModel(transformers.GPT2LMHeadModel(shape))


def residual():
    """A stage of ResNet-18: sums, batch norms, and ReLUs in place."""
    return torchvision.models.ResNet(torchvision.models.resnet.BasicBlock, [1, 1, 0, 0])


def shuffled():
    """Two blocks of ShuffleNet: chunks, and views whose shapes depend on the batch."""
    blocks = [InvertedResidual(3, 16, stride=2), InvertedResidual(16, 16, stride=1)]
    return torch.nn.Sequential(*blocks, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())


class Halves(torch.nn.Module):
    """Splits its batch, which has whole halves at even sizes only."""

    def forward(self, x):
        return torch.cat([part.relu() for part in x.split((len(x) + 1) // 2)])


class Recurrent(torch.nn.Module):
    """An LSTM and a linear layer on its last state."""

    def __init__(self):
        super().__init__()
        self.lstm, self.head = torch.nn.LSTM(8, 16, batch_first=True), torch.nn.Linear(16, 4)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


class Waits(torch.nn.Module):
    """Takes another way from 16 on."""

    def forward(self, x):
        return x.relu() if len(x) < 16 else x.sigmoid()


def sweep(network, pass_, tmp_path):
    """Which sizes are traced, and of each other one what is derived and what tracing gives."""
    tracer, traced = NetworkTracer(tmp_path / "none", TrainingConfig()), []

    def trace(one):
        traced.append(one.first_input.shape[0])
        return tracer.trace(one, pass_)

    networks = [with_batch(network, size) for size in SIZES]
    given = zip(SIZES, networks, trace_sizes(networks, SIZES, trace), strict=True)
    return traced, [(one, tracer.trace(other, pass_)) for size, other, one in given if size not in traced]


@pytest.mark.parametrize(
    ("content", "pass_"),
    [
        ({"name": f"{__name__}:residual", "input": SMALL}, "training"),
        ({"name": f"{__name__}:shuffled", "input": SMALL}, "inference"),
        (GPT2, "training"),
        ({"name": f"{__name__}:Recurrent", "input": [2, 5, 8]}, "inference"),
    ],
    ids=["resnet", "shufflenet", "gpt2", "lstm"],
)
def test_what_is_derived_is_what_is_traced(content, pass_, tmp_path):
    _, derived = sweep(parse_network(content, "test"), pass_, tmp_path)
    assert derived
    for one, other in derived:
        assert one.network == other.network
        pd.testing.assert_frame_equal(one.calls, other.calls, check_dtype=False)
        pd.testing.assert_frame_equal(
            one.operations[NAMES].reset_index(drop=True), other.operations[NAMES], check_dtype=False
        )
        pd.testing.assert_frame_equal(one.features, other.features)
        assert one.memory == other.memory


@pytest.mark.parametrize("name", ["Halves", "Waits"])
def test_what_depends_on_the_batch_in_another_way_is_traced_at_each_size(name, tmp_path):
    network = parse_network({"name": f"{__name__}:{name}", "input": [2, 16]}, "test")
    traced, _ = sweep(network, "inference", tmp_path)
    assert sorted(traced) == SIZES


def test_many_sizes_of_a_module_are_a_frame(made):
    import clockwatt

    predictors = clockwatt.load(made.predictors, catalogue_dir=made.catalogue, validation_dir=made.validation)
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3), torch.nn.ReLU())
    frame = predictors.predict(module, torch.zeros(2, 3, 32, 32), batch=SIZES, gpus=["a30", "v100"], points=["sm900"])
    assert list(frame["batch"]) == [size for size in SIZES for _ in range(2)]
    assert list(frame["gpu"]) == ["a30", "v100"] * len(SIZES)
    of_a30 = frame[frame["gpu"] == "a30"].set_index("batch")
    one = predictors.predict(module, (9, 3, 32, 32), gpu="a30", point="sm900")
    assert of_a30.loc[9, "time_s"] == pytest.approx(one.time_s, rel=1e-12)
    assert of_a30["device_s"].is_monotonic_increasing
    assert of_a30.loc[9, "memory_allocated_bytes"] == one.memory.allocated_bytes
    assert frame["fits"].all()
