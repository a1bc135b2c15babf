"""Calls that share a backward pass, and parameters as networks have them."""

import pytest

torch = pytest.importorskip("torch")

from clockwatt.operations.build.build import build  # noqa: E402
from clockwatt.operations.build.shared_backward import SharedBackward  # noqa: E402
from clockwatt.operations.spec.operation import Operation  # noqa: E402
from clockwatt.operations.spec.tensor_spec import TensorSpec  # noqa: E402


def linear(pass_: str) -> Operation:
    grad = pass_ == "training"
    tensors = (
        TensorSpec((5, 3, 4), "float32", (4, 20, 1), grad=grad),
        TensorSpec((6, 4), "float32", (4, 1), parameter=True, grad=grad),
    )
    return Operation(
        "torch.nn.functional.linear",
        args=({"tensor": 0}, {"tensor": 1}),
        tensors=tensors,
        out=(TensorSpec((5, 3, 6), "float32", (18, 6, 1)),),
        grad_out=((18, 6, 1),) if grad else (),
    )


def test_calls_that_share_a_backward_pass_give_each_the_gradients_of_a_call_alone():
    built = build(linear("training"), "cpu", pass_="training")
    of_input, of_weight = built.call()
    shared = SharedBackward(built, 3)
    arrived = []
    for activation in shared.activations:
        activation.register_hook(arrived.append)
    for passes in (1, 2):
        shared()
        assert len(shared.parameters) == 3
        for parameter in shared.parameters:
            torch.testing.assert_close(parameter.grad, of_weight)
        assert len(arrived) == 3 * passes
        for gradient in arrived:
            torch.testing.assert_close(gradient, of_input)


def test_calls_that_share_a_backward_pass_use_the_same_memory():
    built = build(linear("training"), "cpu", pass_="training")
    shared = SharedBackward(built, 2)
    assert {tensor.data_ptr() for tensor in shared.activations} == {built.tensors[0].data_ptr()}
    assert {tensor.data_ptr() for tensor in shared.parameters} == {built.tensors[1].data_ptr()}


def test_only_gradients_of_parameters_are_kept_as_in_a_network():
    shared = SharedBackward(build(linear("training"), "cpu", pass_="training"), 3)
    kept = "torch::autograd::AccumulateGrad"
    assert kernels(shared, kept) == [kept] * (3 + 1)  # one for all activations


def test_parameters_require_gradients_in_inference_too_and_inputs_do_not():
    with torch.inference_mode():
        built = build(linear("inference"), "cpu", pass_="inference")
        result = built.call()
    assert [tensor.requires_grad for tensor in built.tensors] == [False, True]
    assert [tensor.is_inference() for tensor in built.tensors] == [True, False]
    assert not result.requires_grad


def test_a_strided_matrix_product_takes_the_path_that_it_takes_in_a_network():
    weight = torch.nn.Parameter(torch.ones(6, 4))
    with torch.inference_mode():
        built = build(linear("inference"), "cpu", pass_="inference")
        strided = torch.ones(3, 5, 4).transpose(0, 1)
        assert kernels(built.call) == kernels(lambda: torch.nn.functional.linear(strided, weight))
        assert kernels(built.call) != kernels(lambda: torch.nn.functional.linear(strided, weight.detach().clone()))


def kernels(call, *names: str) -> list[str]:
    wanted = names or ("aten::mm", "aten::bmm")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        call()
    return [event.name for event in profile.events() if event.name in wanted]
