import sys

import pytest
import torch

from clockwatt.operations.build.build import build
from clockwatt.operations.build.values import positive_argument
from clockwatt.operations.spec import functions
from clockwatt.operations.spec.operation import Operation, OperationSpecError


@pytest.mark.parametrize(
    "name",
    [
        "torch.nn.functional.conv2d",
        "torch.nn.functional.relu_",
        "torch.nn.functional.scaled_dot_product_attention",
        "torch.Tensor.__getitem__",
        "torch.Tensor.unflatten",
        "torch.cat",
        "torch.empty",
        "torch.fft.rfft2",
        "torch.Tensor.T.__get__",
    ],
)
def test_public_functions_are_known_by_name(name):
    assert functions.name_of(functions.resolve(name)) == name


def test_the_first_namespace_names_a_function():
    assert functions.name_of(torch.relu_) == "torch.nn.functional.relu_"
    assert functions.name_of(torch.conv2d) == "torch.nn.functional.conv2d"
    assert functions.resolve("torch.relu_") is torch.relu_


@pytest.mark.parametrize(
    "name",
    [
        "torch.load",
        "torch.save",
        "torch.from_file",
        "torch.hub.load",
        "torch.compile",
        "torch.ops.load_library",
        "torch.os.system",
        "torch.sys.exit",
        "torch.utils.cpp_extension.load",
        "torch.Tensor.backward",
        "torch.Tensor.apply_",
        "torch.Tensor.register_hook",
        "torch.Tensor.__reduce_ex__",
        "torch.Tensor.__setstate__",
        "torch.Tensor.set_",
        "torch.Tensor.numpy",
        "torch.set_default_device",
        "torch.manual_seed",
        "torch.nn.functional.has_torch_function",
        "torch.nn.functional.nonsense",
        "torch.optim.SGD",
    ],
)
def test_what_reaches_beyond_tensors_is_refused(name):
    with pytest.raises(OperationSpecError, match="not one that an operation may call"):
        functions.resolve(name)


def test_a_spec_imports_nothing():
    before = set(sys.modules)
    for name in ("torch.antigravity", "torch.testing._internal.common_utils.run_tests"):
        with pytest.raises(OperationSpecError):
            build(Operation(name), "cpu", pass_="inference")
    assert set(sys.modules) == before


def test_an_optimizer_is_one_of_those_that_can_be_configured():
    with pytest.raises(OperationSpecError, match=r"torch\.optim\.LBFGS is none of"):
        build(Operation("torch.optim.LBFGS", ([],)), "cpu", pass_="training")


UNDEFINED = {"acosh", "arccosh", "gammainc", "gammaincc", "igamma", "igammac", "zeta"}
"""Need values above 1, or two tensors of positive values."""


@pytest.mark.filterwarnings("ignore")
def test_values_are_defined_for_all_functions_of_one_or_two_tensors():
    generator = torch.Generator().manual_seed(0)
    undefined = set()
    for name in functions.names():
        operation_class, function = Operation(name).operation_class, functions.resolve(name)
        for count in (1, 2):
            given = tuple(torch.randn(512, generator=generator) for _ in range(count))
            positive = positive_argument(operation_class, given, {})
            if positive is not None:
                positive.uniform_(0.25, 0.75, generator=generator)
            try:
                out = function(*given)
            except Exception:  # noqa: BLE001  # takes other arguments
                continue
            if isinstance(out, torch.Tensor) and out.layout is torch.strided and out.is_floating_point():
                undefined |= {operation_class} if out.isnan().any() else set()
    assert undefined == UNDEFINED
