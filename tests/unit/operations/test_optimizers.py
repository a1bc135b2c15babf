"""One table says what each optimizer keeps and costs, and the optimizers themselves agree."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch

from clockwatt import config
from clockwatt.config import NetworkConfig, TrainingConfig
from clockwatt.errors import ClockwattError, ConfigError
from clockwatt.operations import optimizers
from clockwatt.operations.networks import build_network
from clockwatt.operations.rows import operation_row
from clockwatt.operations.spec.operation import TensorSpec
from clockwatt.operations.trace.trace import trace_network
from clockwatt.schema.optimizers import (
    BY_CLASS,
    NAMES,
    NO_OPTIMIZER,
    NOT_SUPPORTED,
    OPTIMIZERS,
    Optimizer,
    optimizer_name,
    states_of,
)
from clockwatt.schema.records import TRAINING

STEPPING = [name for name in NAMES if name != NO_OPTIMIZER]
SHAPES = [(8, 6), (8,), (4, 3, 5, 5)]
PARAMETERS = [TensorSpec.dense(shape, "float32", grad=True, parameter=True) for shape in SHAPES]


def tensors():
    return [torch.randn(shape, requires_grad=True) for shape in SHAPES]


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("name", STEPPING)
def test_the_state_is_that_of_the_optimizer(name, momentum):
    operation = optimizers.operation_of(TrainingConfig(optimizer=name, momentum=momentum), PARAMETERS)
    parameters = tensors()
    step = optimizers.step(operation, parameters)
    state = step.__self__.state.values()
    kept = sum(
        value.numel() * value.element_size()
        for of_parameter in state
        for value in of_parameter.values()
        if isinstance(value, torch.Tensor) and value.dim()
    )
    assert optimizers.state_bytes(operation) == kept
    assert optimizers.flops(operation) > sum(parameter.numel() for parameter in parameters)


@pytest.mark.parametrize("name", STEPPING)
def test_each_is_a_row_of_a_catalogue(name):
    row = operation_row(optimizers.operation_of(TrainingConfig(optimizer=name), PARAMETERS), "optimizer", "training")
    bytes_ = sum(spec.bytes for spec in PARAMETERS)
    assert row.bytes_read >= 2 * bytes_
    assert row.bytes_written == row.bytes_read - bytes_
    assert row.operation_class.endswith("_fused") == name.endswith("-fused")


def test_every_optimizer_of_torch_is_supported_or_refused_by_name():
    kinds = {
        name
        for name, kind in vars(torch.optim).items()
        if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer) and kind is not torch.optim.Optimizer
    }
    assert kinds == {*BY_CLASS, "LBFGS", "Muon", "SparseAdam"}
    for name, why in NOT_SUPPORTED.items():
        with pytest.raises(ClockwattError, match=f"{name}: {why}. Choose sgd, adam, adamw"):
            optimizer_name(name)


@pytest.mark.parametrize(
    ("text", "name"), [("AdamW", "adamw"), ("RMSprop", "rmsprop"), ("adam-foreach", "adam"), ("SGD-fused", "sgd-fused")]
)
def test_optimizers_go_by_their_class_and_variant(text, name):
    assert optimizer_name(text) == TrainingConfig(optimizer=text).optimizer == name


def test_ids_of_steps_that_were_measured():
    ids = {name: optimizers.operation_of(TrainingConfig(optimizer=name), PARAMETERS).operation_id for name in STEPPING}
    assert {name: ids[name] for name in ("sgd", "adam", "adamw")} == {
        "sgd": "0a9480e5a691ebcb", "adam": "7e74b46969fd176b", "adamw": "2f969790e7520c66",
    }  # fmt: skip
    assert len(set(ids.values())) == len(STEPPING)


def test_without_an_optimizer_a_step_is_forward_and_backward():
    network = NetworkConfig(name="squeezenet1_1", input=[2, 3, 64, 64])
    trained, alone = (
        trace_network(network, TRAINING, TrainingConfig(optimizer=name)).calls for name in ("sgd", NO_OPTIMIZER)
    )
    assert [call.operation for call in alone] == [call.operation for call in trained[:-1]]
    assert trained[-1].operation.is_optimizer
    for settings in ({}, {"accumulate": 2, "clip_norm": 1.0}):
        built = build_network(
            network, "cpu", pass_=TRAINING, training=TrainingConfig(optimizer=NO_OPTIMIZER, **settings)
        )
        before = [parameter.detach().clone() for parameter in built.module.parameters()]
        built.call()
        after = list(built.module.parameters())
        assert all(parameter.grad is not None for parameter in after)
        assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))


def test_states_as_a_catalogue_describes_them():
    for name, momentum, expected in (("sgd", 0.9, 1), ("sgd", 0.0, 0), ("adamw-fused", 0.9, 2), ("rmsprop", 0.9, 1)):
        described = json.loads(optimizers.described(TrainingConfig(optimizer=name, momentum=momentum)))
        assert states_of(described) == expected


@pytest.mark.parametrize(
    ("training", "message"),
    [
        ({"optimizer": "lbfgs"}, "it calls the network again within its step"),
        ({"optimizer": "madgrad"}, "optimizer madgrad: unknown"),
        ({"optimizer": "rmsprop-fused"}, "optimizer rmsprop-fused: unknown"),
        ({"optimizer": "rprop", "weight_decay": 0.1}, "rprop has none"),
    ],
)
def test_wrong_training_steps_are_refused(training, message):
    campaign = {"campaign": "c", "gpus": {"a": {"device": "virtual:a30"}}, "networks": [{"name": "toy", "input": [8]}]}
    with pytest.raises(ConfigError, match=message):
        config.parse({**campaign, "training": training})


def test_an_optimizer_that_refuses_some_parameters_is_an_error(monkeypatch):
    monkeypatch.setitem(OPTIMIZERS, "sgd", Optimizer("Muon", 1, 80))
    monkeypatch.setitem(optimizers._BY_FUNCTION, "torch.optim.Muon", torch.optim.Muon)
    assert optimizers.operation_of(TrainingConfig(optimizer="sgd"), PARAMETERS[:1]).function == "torch.optim.Muon"
    with pytest.raises(ClockwattError, match="sgd cannot train these parameters: Muon only supports 2D parameters"):
        optimizers.operation_of(TrainingConfig(optimizer="sgd"), PARAMETERS)


def test_neither_optimizers_nor_torchvision_import_torch_compile():
    code = """
import sys
from clockwatt.config import NetworkConfig, TrainingConfig
from clockwatt.operations import optimizers
from clockwatt.operations.networks import build_network
from clockwatt.operations.constructors import constructor_of
from clockwatt.operations.spec.operation import TensorSpec
from clockwatt.operations.trace.trace import trace_network
optimizers.operation_of(TrainingConfig(), [TensorSpec.dense((3, 3), "float32", grad=True, parameter=True)])
constructor_of(NetworkConfig(name="lraspp_mobilenet_v3_large", input=[1, 3, 64, 64]))()
print("torch._dynamo" in sys.modules)
from torchvision.ops import roi_align
print(roi_align.__globals__["is_compile_supported"]("cpu"), "torch._dynamo" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "False\nTrue True\n"
