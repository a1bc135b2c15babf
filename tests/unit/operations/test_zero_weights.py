"""Networks whose constructors begin with weights of zeros are measured as after the first step of training."""

import sys

import pytest
import torch

from clockwatt.config import NetworkConfig, TrainingConfig
from clockwatt.operations.networks import build_network

ZERO_HEAD = """
import torch
from torch import nn


def build():
    body, head = nn.Linear(6, 16), nn.Linear(16, 4)
    nn.init.constant_(body.weight, 0.5)
    nn.init.zeros_(body.bias)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    return nn.Sequential(body, nn.Tanh(), head)


def partly():
    layer = nn.Linear(6, 4)
    nn.init.zeros_(layer.weight)
    with torch.no_grad():
        layer.weight[0, 0] = 1.0
    return layer
"""


@pytest.fixture
def network(tmp_path, monkeypatch):
    """A network of the module above, by the name of its constructor."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    module = f"zero_head_{tmp_path.name}"
    (tmp_path / f"{module}.py").write_text(ZERO_HEAD)

    def built(pass_, attribute="build", **settings):
        config = NetworkConfig(name=f"{module}:{attribute}", input=[8, 6], **settings)
        return build_network(config, "cpu", pass_=pass_, training=TrainingConfig())

    yield built
    sys.modules.pop(module, None)


@pytest.mark.parametrize("pass_", ["inference", "training"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_head_of_zeros_gets_small_random_weights(network, pass_, dtype):
    head = network(pass_, dtype=dtype).module[2]
    assert head.weight.all()
    assert 0.005 < head.weight.float().std() < 0.04
    assert head.weight.dtype == getattr(torch, dtype)
    assert head.weight.requires_grad


def test_gradients_reach_the_layers_before_a_head_of_zeros(network):
    built = network("training")
    built.call()
    body, head = built.module[0], built.module[2]
    assert head.weight.grad.any()
    assert body.weight.grad.any()
    assert body.bias.grad.any()


def test_a_network_says_something_other_than_zero(network):
    with torch.inference_mode():
        assert network("inference").call().all()


def test_biases_of_zeros_and_weights_that_are_not_all_zero_stay(network):
    built = network("inference").module
    assert not built[0].bias.any()
    assert not built[2].bias.any()
    assert (built[0].weight == 0.5).all()
    partly = network("inference", "partly").module.weight
    assert partly.count_nonzero() == 1
