import math

import pytest
import torch
from rebuild import mismatches

from clockwatt.config import NetworkConfig, TrainingConfig
from clockwatt.operations.build import values
from clockwatt.operations.build.build import build
from clockwatt.operations.design.block import Block, Input, trace_block
from clockwatt.operations.spec.operation import (
    RECURRENT_CLASSES,
    Operation,
    OperationSpecError,
    OutputSpec,
    TensorSpec,
)
from clockwatt.operations.trace.trace import trace_network

MANY = 2_000

ATTENTION_LAYOUT = "output 0: stride"
"""The CPU's attention lays its output out as its query; tracing follows the GPU's kernel."""


def unique_operations(name, pass_, size=64):
    network = NetworkConfig(name=name, input=[2, 3, size, size])
    calls = trace_network(network, pass_, TrainingConfig()).calls
    return {call.operation.operation_id: call.operation for call in calls}.values()


@pytest.mark.parametrize("pass_", ["inference", "training"])
@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("resnet18", 64),
        ("mobilenet_v3_small", 64),
        ("swin_t", 64),
        ("regnet_x_400mf", 64),
        ("convnext_tiny", 64),
        ("densenet121", 32),
        ("shufflenet_v2_x1_0", 64),
        ("googlenet", 96),
        ("vit_b_32", 224),
    ],
)
def test_a_rebuilt_operation_gives_what_was_recorded(name, size, pass_):
    different = {
        operation.function: found
        for operation in unique_operations(name, pass_, size)
        if not operation.is_optimizer and (found := mismatches(operation, pass_))
    }
    attention = different.pop("torch.nn.functional.scaled_dot_product_attention", [])
    assert not different
    assert all(difference.startswith(ATTENTION_LAYOUT) for difference in attention)
    assert len(attention) == (1 if name == "vit_b_32" else 0)


def test_a_difference_is_told():
    x = TensorSpec.dense((2, 3), grad=True)
    right = OutputSpec((2, 3), "float32", (3, 1), grad=True)
    operation = Operation("torch.relu", ({"tensor": 0},), {}, (x,), (right,), ((3, 1),))
    assert mismatches(operation, "training") == []
    for wrong, told in (
        (OutputSpec((3, 2), "float32", (2, 1), grad=True), "shape (2, 3), not (3, 2)"),
        (OutputSpec((2, 3), "float32", (1, 2), grad=True), "stride (3, 1), not (1, 2)"),
        (OutputSpec((2, 3), "float32", (3, 1)), "requires_grad is True, not False"),
        (OutputSpec((2, 3), "float16", (3, 1), grad=True), "dtype float32, not float16"),
    ):
        different = Operation("torch.relu", ({"tensor": 0},), {}, (x,), (wrong,))
        assert told in mismatches(different, "training")[0]


def test_gradients_are_fresh_and_never_accumulate():
    (operation,) = (op for op in unique_operations("alexnet", "training") if op.out and op.out[0].shape == (2, 1000))
    built = build(operation, "cpu", pass_="training")
    first, second = built.call(), built.call()
    for one, other, spec in zip(first, second, operation.tensors, strict=True):
        assert torch.equal(one, other)
        assert one.data_ptr() != other.data_ptr()
        assert one.shape == spec.shape
    assert all(tensor.grad is None for tensor in built.tensors)


def test_instances_share_activations_but_not_parameters():
    linear = next(op for op in unique_operations("alexnet", "training") if op.operation_class == "linear")
    first = build(linear, "cpu", pass_="training")
    second = build(linear, "cpu", pass_="training", share_inputs_with=first)
    apart = build(linear, "cpu", pass_="training")
    same = [a.data_ptr() == b.data_ptr() for a, b in zip(first.tensors, second.tensors, strict=True)]
    assert same == [not spec.parameter for spec in linear.tensors]
    assert second.gradients is first.gradients
    assert not any(a.data_ptr() == b.data_ptr() for a, b in zip(first.tensors, apart.tensors, strict=True))
    parameters = [tensor for tensor, spec in zip(first.tensors, linear.tensors, strict=True) if spec.parameter]
    assert first.parameter_bytes == sum(tensor.numel() * 4 for tensor in parameters)
    everything = [*first.tensors, *first.gradients]
    assert first.tensor_bytes == sum(tensor.numel() * 4 for tensor in everything)


def test_values_follow_from_the_seed():
    linear = next(op for op in unique_operations("alexnet", "inference") if op.operation_class == "linear")
    one, same, other = (build(linear, "cpu", pass_="inference", seed=seed).tensors[0] for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (torch.nn.LSTM, {}),
        (torch.nn.LSTM, {"proj_size": 32}),
        (torch.nn.GRU, {"bidirectional": True}),
        (torch.nn.RNN, {}),
        (torch.nn.RNN, {"nonlinearity": "relu"}),
        (torch.nn.LSTMCell, {}),
        (torch.nn.GRUCell, {}),
    ],
)
@pytest.mark.parametrize("width", [96, 1024])
def test_weights_of_recurrent_layers_are_as_large_as_pytorch_starts_them(kind, options, width):
    # gates that are saturated let states stand still, which draws less than any network's
    with torch.device("meta"):
        block = Block(kind(width, 256, **options), [Input((40, width), "float32")])
    calls = [call.operation for call in trace_block(block, "recurrent", learns=False)]
    (layer,) = (one for one in calls if one.operation_class.removesuffix("_cell") in RECURRENT_CLASSES)
    built = build(layer, "cpu", pass_="inference")
    theirs = torch.cat([weight.flatten() for weight in kind(width, 256, **options).parameters()])
    weights = [tensor for tensor, spec in zip(built.tensors, layer.tensors, strict=True) if spec.parameter]
    ours = torch.cat([weight.flatten() for weight in weights])
    assert ours.shape == theirs.shape
    assert ours.std().item() == pytest.approx(theirs.std().item(), rel=0.05)
    others = [tensor for tensor, spec in zip(built.tensors, layer.tensors, strict=True) if not spec.parameter]
    assert others[0].std().item() == pytest.approx(1.0, rel=0.05)


FLAGS = (True, 1, 0.0, False, False, False)
"""Of `torch.lstm` after its weights."""
LSTM_CALLS = {
    "states in a list": lambda x, states, weights: torch.lstm(x, list(states), weights, *FLAGS),
    "weights in a tuple": lambda x, states, weights: torch.lstm(x, states, tuple(weights), *FLAGS),
    "by keyword": lambda x, states, weights: torch.lstm(
        input=x, hx=states, params=weights, has_biases=True, num_layers=1, dropout=0.0, train=False,
        bidirectional=False, batch_first=False,
    ),
    "cell": lambda x, states, weights: torch.lstm_cell(x[0], [one[0] for one in states], *weights),
    "cell by keyword": lambda x, states, weights: torch.lstm_cell(
        x[0], hx=[one[0] for one in states], **dict(zip(("w_ih", "w_hh", "b_ih", "b_hh"), weights, strict=True))
    ),
}  # fmt: skip


@pytest.mark.parametrize("call", LSTM_CALLS)
def test_weights_are_told_from_states_however_an_lstm_is_called(call):
    class Called(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = torch.nn.LSTMCell(16, 24)

        def forward(self, x, hidden, state):
            weights = [self.cell.weight_ih, self.cell.weight_hh, self.cell.bias_ih, self.cell.bias_hh]
            return LSTM_CALLS[call](x, (hidden, state), weights)

    with torch.device("meta"):
        block = Block(Called(), [Input((5, 3, 16), "float32"), *[Input((1, 3, 24), "float32")] * 2])
    calls = [call.operation for call in trace_block(block, "called", learns=False)]
    (layer,) = (one for one in calls if one.operation_class.removesuffix("_cell") in RECURRENT_CLASSES)
    found = {spec.shape: values.scale(layer, number) for number, spec in enumerate(layer.tensors)}
    weights = {shape for shape in found if shape[0] == 4 * 24}
    assert len(weights) == 3
    assert found == {shape: pytest.approx(72**-0.5) if shape in weights else 1.0 for shape in found}


def in_place(name, *others, shape=(64,), dtype="float32", grad=False, kwargs=None):
    x = TensorSpec.dense(shape, dtype, grad=grad)
    args = ({"tensor": 0}, *({"tensor": number + 1} for number in range(len(others))))
    out = OutputSpec(shape, dtype, x.stride, grad=grad)
    strides = (x.stride,) if grad else ()
    return Operation(name, args, kwargs or {}, (x, *others), (out,), strides, mutates=(0,))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(
    ("name", "others", "kwargs"),
    [
        ("torch.Tensor.add_", 1, {}),
        ("torch.Tensor.__iadd__", 1, {}),
        ("torch.Tensor.sub_", 1, {"alpha": 3}),
        ("torch.Tensor.mul_", 1, {}),
        ("torch.Tensor.div_", 1, {}),
        ("torch.nn.functional.relu_", 0, {}),
        ("torch.nn.functional.silu", 0, {"inplace": True}),
        ("torch.nn.functional.hardswish", 0, {"inplace": True}),
        ("torch.nn.functional.leaky_relu_", 0, {}),
        ("torch.Tensor.sigmoid_", 0, {}),
        ("torch.Tensor.clamp_", 0, {"min": -1.0}),
    ],
)
def test_in_place_calls_stay_harmless_when_repeated(name, others, kwargs, dtype):
    operation = in_place(name, *(TensorSpec.dense((64,), dtype) for _ in range(others)), dtype=dtype, kwargs=kwargs)
    built = build(operation, "cpu", pass_="inference")
    before = built.forward().clone()
    with torch.inference_mode():
        for _ in range(MANY):
            built.call()
    after = built.tensors[0]
    assert after.isfinite().all()
    assert (after != 0).sum() >= (before != 0).sum()
    assert after.abs().max() <= 2 * before.abs().max()
    assert after.abs().mean() >= 0.5 * before.abs().mean()


@pytest.mark.parametrize("shape", [(64,), (2, 3, 4)])
def test_a_leaf_changed_in_place_has_a_gradient_in_every_call(shape):
    operation = in_place("torch.nn.functional.relu_", shape=shape, grad=True)
    built = build(operation, "cpu", pass_="training")
    mask = built.tensors[0].detach() > 0
    for _ in range(3):
        outputs = built.forward()
        assert outputs.data_ptr() == built.tensors[0].data_ptr()
        (gradient,) = built.backward(outputs)
        assert torch.equal(gradient, built.gradients[0] * mask)


def test_a_tensor_that_is_given_nothing_back_is_followed_by_what_it_changed():
    x, y = TensorSpec.dense((4, 4)), TensorSpec.dense((4,), grad=True)
    operation = Operation(
        "torch.Tensor.__setitem__",
        ({"tensor": 0}, 1, {"tensor": 1}),
        {},
        (x, y),
        (OutputSpec((4, 4), "float32", (4, 1), grad=True),),
        ((4, 1),),
        mutates=(0,),
    )
    assert mismatches(operation, "training") == []
    built = build(operation, "cpu", pass_="training")
    for _ in range(2):
        assert torch.equal(built.call()[0], built.gradients[0][1])


def test_indices_and_probabilities_are_within_bounds():
    indices = TensorSpec((1000,), "int64", (1,), below=7)
    embedding = Operation(
        "torch.nn.functional.embedding", ({"tensor": 0}, {"tensor": 1}), {}, (indices, TensorSpec.dense((7, 4)))
    )
    assert set(build(embedding, "cpu", pass_="inference").tensors[0].unique().tolist()) == set(range(7))
    variance = TensorSpec((1000,), "float32", (1,), positive=True)
    values = build(Operation("torch.rsqrt", ({"tensor": 0},), {}, (variance,)), "cpu", pass_="inference").tensors[0]
    assert 0 < values.min() < values.max() < 1


def test_views_of_one_storage_are_built_as_such():
    halves = tuple(TensorSpec((4, 2), "float32", (4, 1), storage=0, offset=offset) for offset in (2, 0))
    built = build(Operation("torch.add", ({"tensor": 0}, {"tensor": 1}), {}, halves), "cpu", pass_="inference")
    first, second = built.tensors
    assert first.data_ptr() - second.data_ptr() == 2 * 4
    assert first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()
    assert first.untyped_storage().nbytes() == 4 * 4 * 4


def test_an_expanded_tensor_takes_no_more_memory_than_it_has_elements():
    spec = TensorSpec((1000, 8), "float32", (0, 1))
    built = build(Operation("torch.neg", ({"tensor": 0},), {}, (spec,)), "cpu", pass_="inference")
    assert built.tensors[0].untyped_storage().nbytes() == spec.bytes == built.tensor_bytes == 32
    assert built.call().shape == (1000, 8)


@pytest.mark.parametrize(("optimizer", "states"), [("sgd", 1), ("adam", 2), ("adamw", 2)])
def test_a_step_changes_every_parameter_and_stays_finite(optimizer, states):
    training = TrainingConfig(optimizer=optimizer)
    network = NetworkConfig(name="squeezenet1_1", input=[2, 3, 64, 64])
    operation = trace_network(network, "training", training).calls[-1].operation
    built = build(operation, "cpu", pass_="training")
    before = [tensor.detach().clone() for tensor in built.tensors]
    for _ in range(5):
        built.call()
    for old, new in zip(before, built.tensors, strict=True):
        assert not torch.equal(old, new)
        assert new.isfinite().all()
    assert built.parameter_bytes == 4 * sum(math.prod(spec.shape) for spec in operation.tensors)
    assert built.tensor_bytes == (2 + states) * built.parameter_bytes


def test_building_on_meta_allocates_nothing():
    spec = TensorSpec.dense((2**20, 2**20))
    built = build(Operation("torch.neg", ({"tensor": 0},), {}, (spec,)), "meta", pass_="inference")
    assert built.call().is_meta


def test_what_a_call_changes_must_be_an_argument_of_its_own():
    x = TensorSpec.dense((4,))
    operation = Operation("torch.cat", ([{"tensor": 0}],), {}, (x,), (OutputSpec((4,), "float32", (1,)),), mutates=(0,))
    with pytest.raises(OperationSpecError, match="changes tensor 0, which is none of its arguments"):
        build(operation, "cpu", pass_="training")


def test_arguments_reach_the_function():
    x = TensorSpec.dense((2, 3, 4, 4))
    arguments = ({"tensor": 0}, {"dtype": "bfloat16"})
    operation = Operation("torch.Tensor.to", arguments, {"memory_format": {"memory_format": "channels_last"}}, (x,))
    output = build(operation, "cpu", pass_="inference").call()
    assert output.dtype == torch.bfloat16
    assert output.is_contiguous(memory_format=torch.channels_last)
    subscript = {"tuple": [{"ellipsis": True}, {"slice": [None, None, 2]}, None, {"tensor": 1}]}
    index = TensorSpec((5,), "int64", (1,), below=4)
    taken = build(
        Operation("torch.Tensor.__getitem__", ({"tensor": 0}, subscript), {}, (x, index)), "cpu", pass_="inference"
    )
    assert taken.call().shape == torch.zeros(2, 3, 4, 4)[..., ::2, None, torch.zeros(5, dtype=torch.int64)].shape
    infinite = Operation("torch.Tensor.clamp", ({"tensor": 0},), {"max": {"float": "inf"}}, (x,))
    assert build(infinite, "cpu", pass_="inference").call().shape == (2, 3, 4, 4)
