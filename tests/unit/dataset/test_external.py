import pytest
import torch

from clockwatt.config import NetworkConfig, TrainingConfig
from clockwatt.operations.build.build import build
from clockwatt.operations.catalogue import trace_rows
from clockwatt.operations.cost import cost
from clockwatt.operations.printed_modules import UnknownModuleError, operation_of
from clockwatt.operations.spec.operation import Operation
from support import small_networks

PRINTED = [
    ("Conv2d(3, 64, kernel_size=(7, 7), stride=(2, 2), padding=(3, 3), bias=False)", (2, 3, 32, 32), (2, 64, 16, 16)),
    ("Conv2d(16, 32, kernel_size=(3, 5), stride=(1, 1), groups=16)", (2, 16, 8, 8), (2, 32, 6, 4)),
    ("Linear(in_features=8, out_features=5, bias=True)", (2, 3, 8), (2, 3, 5)),
    ("Linear(in_features=8, out_features=5, bias=False)", (2, 8), (2, 5)),
    ("BatchNorm2d(4, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True)", (2, 4, 3, 3), (2, 4, 3, 3)),
    ("LayerNorm((6,), eps=1e-06, elementwise_affine=True)", (2, 5, 6), (2, 5, 6)),
    (
        "MaxPool2d(kernel_size=3, stride=2, padding=1, dilation=1, ceil_mode=False)",
        (2, 3, 112, 112),
        (2, 3, 56, 56),
    ),
    ("MaxPool2d(kernel_size=3, stride=2, padding=0, dilation=1, ceil_mode=True)", (2, 3, 112, 112), (2, 3, 56, 56)),
    ("AvgPool2d(kernel_size=2, stride=2, padding=0)", (2, 3, 56, 56), (2, 3, 28, 28)),
    ("AdaptiveAvgPool2d(output_size=(6, 6))", (2, 3, 7, 7), (2, 3, 6, 6)),
    ("AdaptiveAvgPool2d(output_size=1)", (2, 3, 7, 7), (2, 3, 1, 1)),
    ("StochasticDepth(p=0.1, mode=row)", (2, 3, 7, 7), (2, 3, 7, 7)),
    ("ReLU()", (2, 3), (2, 3)),
    ("GELU(approximate='none')", (2, 3), (2, 3)),
    ("SiLU()", (2, 3), (2, 3)),
    ("Sigmoid()", (2, 3), (2, 3)),
    ("Dropout(p=0.5, inplace=False)", (2, 3), (2, 3)),
    ("Hardswish()", (2, 3), (2, 3)),
    ("ReLU6(inplace=True)", (2, 3), (2, 3)),
    ("Softmax(dim=-1)", (2, 3), (2, 3)),
]


@pytest.mark.parametrize("pass_", ["inference", "training"])
@pytest.mark.parametrize(("printed", "shape", "out"), PRINTED)
def test_printed_modules_run_and_give_the_shapes_they_promise(printed, shape, out, pass_):
    operation = operation_of(printed, shape, pass_)
    assert Operation.from_json(operation.to_json()) == operation
    with torch.inference_mode(pass_ == "inference"):
        built = build(operation, "cpu", pass_=pass_)
        given = built.forward()
    assert tuple(given.shape) == operation.out[0].shape == out
    assert given.requires_grad == (pass_ == "training")
    if pass_ == "training":
        assert all(
            gradient.shape == tensor.shape
            for gradient, tensor in zip(built.backward(given), built.tensors, strict=False)
            if gradient is not None
        )


def test_identities_do_nothing():
    for p, pass_, works in ((0.1, "inference", False), (0.0, "training", False), (0.1, "training", True)):
        operation = operation_of(f"StochasticDepth(p={p}, mode=row)", (2, 3, 7, 7), pass_)
        assert cost(operation, pass_).device_work == works


@pytest.mark.parametrize("printed", [
    "__import__('os').system('true')",
    "Conv2d",
    "Conv2d(3",
    "Conv2d(3, 64, kernel_size=open('f'))",
    "Transformer(3)",
    "Conv2d(3, 64)",
    "Conv2d(4, 64, kernel_size=(1, 1))",
    "Conv2d(3, 64, kernel_size=(9, 9))",
    "Linear(in_features=9, out_features=2)",
    "BatchNorm2d(4)",
    "LayerNorm((9,))",
    "",
])  # fmt: skip
def test_anything_else_is_refused_by_name(printed):
    with pytest.raises(UnknownModuleError):
        operation_of(printed, (2, 3, 7, 7), "inference")


@pytest.mark.parametrize("pass_", ["inference", "training"])
def test_a_printed_module_is_the_operation_that_a_traced_network_has(pass_) -> None:
    network = NetworkConfig(name="support.small_networks:printed", input=[4, 8, 16, 16])
    traced = {row.operation_id for row in trace_rows(network, pass_, TrainingConfig()).operations}
    x = torch.zeros(4, 8, 16, 16)
    for module in small_networks.printed_modules():
        operation = operation_of(repr(module), x.shape, pass_)
        assert operation.operation_id in traced, operation.to_json()
        x = module(x).detach()


def test_a_printed_network_in_place_is_another_operation() -> None:
    of = [operation_of(text, (4, 8), "inference") for text in ("ReLU()", "ReLU(inplace=True)", "ReLU(True)")]
    assert of[0].operation_id != of[1].operation_id == of[2].operation_id
