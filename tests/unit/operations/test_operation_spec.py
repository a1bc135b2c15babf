import json
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clockwatt.operations.spec.operation import DTYPE_BYTES, Operation, OperationSpecError, OutputSpec, TensorSpec

CONVOLUTION = (
    '{"args":[{"tensor":0},{"tensor":1},null,{"tuple":[2,2]},{"tuple":[3,3]},{"tuple":[1,1]},1],'
    '"fn":"torch.nn.functional.conv2d","grad_out":[[802816,12544,112,1]],"kwargs":{},'
    '"out":[{"dtype":"float32","grad":true,"shape":[32,64,112,112],"stride":[802816,12544,112,1]}],'
    '"tensors":[{"dtype":"float32","shape":[32,3,224,224],"stride":[150528,50176,224,1]},'
    '{"dtype":"float32","grad":true,"parameter":true,"shape":[64,3,7,7],"stride":[147,49,7,1]}]}'
)

shapes = st.lists(st.integers(0, 8), max_size=5)
words = st.text(st.characters(codec="utf-8"), max_size=8)
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**60), 2**60), st.floats(allow_nan=False, allow_infinity=False), words
)


@st.composite
def tensor_specs(draw):
    shape = tuple(draw(shapes))
    stride = tuple(draw(st.integers(0, 1000)) for _ in shape)
    storage = draw(st.none() | st.integers(0, 3))
    return TensorSpec(
        shape,
        draw(st.sampled_from(sorted(DTYPE_BYTES))),
        stride,
        grad=draw(st.booleans()),
        parameter=draw(st.booleans()),
        positive=draw(st.booleans()),
        below=draw(st.none() | st.integers(1, 10**6)),
        storage=storage,
        offset=0 if storage is None else draw(st.integers(0, 100)),
    )


def arguments(tensors):
    leaves = st.one_of(
        scalars,
        st.just({"ellipsis": True}),
        st.just({"device": "@"}),
        st.sampled_from(["inf", "-inf", "nan"]).map(lambda name: {"float": name}),
        st.sampled_from(sorted(DTYPE_BYTES)).map(lambda name: {"dtype": name}),
        st.sampled_from(["channels_last", "contiguous_format"]).map(lambda name: {"memory_format": name}),
        *([st.integers(0, tensors - 1).map(lambda index: {"tensor": index})] if tensors else []),
    )
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.lists(inner, max_size=3).map(lambda entries: {"tuple": entries}),
            st.lists(inner, min_size=3, max_size=3).map(lambda entries: {"slice": entries}),
            st.dictionaries(words, inner, max_size=3).map(lambda entries: {"dict": entries}),
        ),
        max_leaves=6,
    )


@st.composite
def operations(draw):
    tensors = tuple(draw(st.lists(tensor_specs(), max_size=3)))
    out = tuple(
        OutputSpec(spec.shape, spec.dtype, spec.stride, grad=draw(st.booleans()))
        for spec in draw(st.lists(tensor_specs(), max_size=2))
    )
    return Operation(
        draw(st.sampled_from(["torch.add", "torch.nn.functional.conv2d", "torch.Tensor.__getitem__"])),
        tuple(draw(st.lists(arguments(len(tensors)), max_size=3))),
        draw(st.dictionaries(words, arguments(len(tensors)), max_size=2)),
        tensors,
        out,
        draw(st.sampled_from([(), tuple(spec.stride for spec in out)])),
        (0,) if tensors and out and draw(st.booleans()) else (),
        no_grad=draw(st.booleans()),
    )


@given(operations())
def test_json_gives_the_operation_back(operation):
    text = operation.to_json()
    read = Operation.from_json(text)
    assert read == operation
    assert read.to_json() == text
    assert read.operation_id == operation.operation_id


@given(operations(), st.data())
def test_damaged_json_is_refused_or_means_itself(operation, data):
    text = operation.to_json()
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 8)))
    damaged = (
        text[:start] + data.draw(st.text(st.sampled_from('{}[]",:0123456789-.eatrufl N'), max_size=6)) + text[end:]
    )
    try:
        read = Operation.from_json(damaged)
    except OperationSpecError:
        return
    assert Operation.from_json(read.to_json()) == read


json_values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=4), max_leaves=20
)


@given(
    json_values | st.dictionaries(st.sampled_from(["fn", "args", "kwargs", "tensors", "out", "grad_out"]), json_values)
)
def test_any_other_json_is_refused(content):
    with pytest.raises(OperationSpecError):
        Operation.from_json(json.dumps(content))


@given(st.text(max_size=40))
def test_any_text_is_refused(text):
    with pytest.raises(OperationSpecError):
        Operation.from_json(text)


def test_example_is_canonical():
    operation = Operation.from_json(CONVOLUTION)
    assert operation.to_json() == CONVOLUTION
    assert operation.operation_id == "20f74a327a52d55f"
    assert operation.operation_class == "conv2d"
    assert operation.dtype == "float32"
    assert operation.has_backward


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fn": "os.system"}, "fn: 'os.system' is no name of a PyTorch function"),
        ({"fn": "torch"}, "fn: 'torch' is no name"),
        ({"module": "evil"}, "spec: unknown key 'module'"),
        ({"args": [{"tensor": 2}]}, "args[0].tensor: 2 is no index into 2 tensors"),
        ({"args": [{"tensor": True}]}, "args[0].tensor: True is no number"),
        ({"args": [{"pickle": "gASV"}]}, "args[0]: 'pickle' is no kind of argument"),
        ({"args": [{"device": "cuda:0"}]}, "args[0].device: 'cuda:0' is none of @"),
        ({"args": [{"dtype": "object"}]}, "args[0].dtype: 'object' is none of"),
        ({"args": [{"slice": [0, 1]}]}, "args[0].slice: start, stop and step are needed"),
        ({"kwargs": {"p": {"a": 1, "b": 2}}}, "kwargs.p:"),
        (
            {"tensors": [{"shape": [2], "dtype": "float32", "stride": [1], "grad": False}]},
            "tensors[0].grad: False is not",
        ),
        ({"tensors": [{"shape": [2, 3], "dtype": "float32", "stride": [1]}]}, "tensors[0]: 2 sizes but 1 strides"),
        ({"tensors": [{"shape": [-1], "dtype": "float32", "stride": [1]}]}, "tensors[0].shape: -1 is no number"),
        ({"tensors": [{"shape": [2**40, 2**40], "dtype": "int8", "stride": [1, 1]}]}, "larger than any memory"),
        ({"tensors": [{"shape": [2], "dtype": "float32", "stride": [1], "storage": 0}]}, "belong together"),
        ({"grad_out": [[1], [1]]}, "grad_out: has 2 entries for 1 outputs"),
        ({"grad_out": [None]}, "grad_out: holds no gradient"),
        ({"mutates": [7]}, "mutates: 7 is no index"),
        ({"no_grad": 1}, "spec.no_grad: 1 is not true"),
    ],
)
def test_what_is_wrong_is_named(change, message):
    content = json.loads(CONVOLUTION) | change
    with pytest.raises(OperationSpecError) as refused:
        Operation.from_json(json.dumps(content))
    assert message in str(refused.value)


@pytest.mark.parametrize("text", ['{"fn":1,"fn":2}', '{"fn":NaN}', "[" * 100_000, "9" * 5000, '"\\ud800"'])
def test_json_that_is_none_is_refused(text):
    with pytest.raises(OperationSpecError):
        Operation.from_json(text)


@pytest.mark.parametrize(
    ("function", "name"),
    [
        ("torch.nn.functional.relu_", "relu"),
        ("torch.Tensor.__iadd__", "add"),
        ("torch.Tensor.__getitem__", "getitem"),
        ("torch.Tensor.__rsub__", "rsub"),
        ("torch.Tensor.T.__get__", "T"),
    ],
)
def test_class_is_what_the_function_does(function, name):
    assert Operation(function).operation_class == name


def test_elements_counts_an_expanded_dimension_once():
    assert TensorSpec((8, 3, 4), "float16", (0, 4, 1)).bytes == 24
    assert TensorSpec((0, 3), "float32", (3, 1)).bytes == 0
    assert TensorSpec((2, 3), "float32", (10, 2)).extent == 15


def test_reading_specs_needs_no_torch():
    code = "import sys, clockwatt.operations.spec.operation; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def convolution(function, given, weight, **changes):
    tensors = TensorSpec.dense(given), TensorSpec.dense(weight, parameter=True)
    out = OutputSpec.from_dict(TensorSpec.dense((1,)).to_dict(), "out")
    values = {"args": ({"tensor": 0}, {"tensor": 1}), "kwargs": {}, "tensors": tensors, "out": (out,)}
    return Operation(function, **(values | changes))


@pytest.mark.parametrize(
    ("function", "given", "weight", "grouped"),
    [
        ("torch.nn.functional.conv2d", (2, 8, 9, 9), (16, 4, 3, 3), True),
        ("torch.nn.functional.conv2d", (2, 8, 9, 9), (16, 2, 1, 1), True),
        ("torch.nn.functional.conv2d", (2, 8, 9, 9), (16, 8, 3, 3), False),
        ("torch.nn.functional.conv2d", (2, 8, 9, 9), (8, 1, 3, 3), False),
        ("torch.nn.functional.conv2d", (2, 1, 9, 9), (8, 1, 3, 3), False),
        ("torch.nn.functional.conv2d", (8, 9, 9), (16, 4, 3, 3), True),
        ("torch.nn.functional.conv2d", (8, 9, 9), (16, 8, 3, 3), False),
        ("torch.nn.functional.conv1d", (2, 8, 9), (16, 4, 3), True),
        ("torch.nn.functional.conv1d", (2, 8, 9), (16, 8, 3), False),
        ("torch.nn.functional.conv3d", (2, 8, 5, 5, 5), (16, 4, 3, 3, 3), True),
        ("torch.nn.functional.conv3d", (2, 8, 5, 5, 5), (16, 8, 3, 3, 3), False),
        ("torch.conv2d", (2, 8, 9, 9), (16, 4, 3, 3), True),
        ("torch.nn.functional.conv_transpose2d", (2, 8, 9, 9), (8, 4, 3, 3), False),
        ("torch.matmul", (2, 8, 9, 9), (2, 4, 9, 3), False),
        ("torch.nn.functional.conv2d", (), (), False),
    ],
)
def test_a_grouped_convolution_has_several_groups_of_several_channels(function, given, weight, grouped):
    assert convolution(function, given, weight).is_grouped_convolution is grouped


def test_the_weight_of_a_grouped_convolution_is_its_second_argument_wherever_it_stands():
    shapes = TensorSpec.dense((16, 4, 3, 3)), TensorSpec.dense((16,)), TensorSpec.dense((2, 8, 9, 9))
    args = ({"tensor": 2}, {"tensor": 0}, {"tensor": 1}, 1, 0, 1, 2)
    assert convolution("torch.nn.functional.conv2d", (), (), tensors=shapes, args=args).is_grouped_convolution


def test_the_weight_of_a_grouped_convolution_may_be_given_by_name():
    spec = convolution("torch.nn.functional.conv2d", (2, 8, 9, 9), (16, 4, 3, 3), args=({"tensor": 0},))
    assert not spec.is_grouped_convolution
    assert replace(spec, kwargs={"weight": {"tensor": 1}, "groups": 2}).is_grouped_convolution


@pytest.mark.parametrize("args", [(), ({"tensor": 0},), (1, 2)])
def test_a_convolution_that_lacks_a_tensor_is_not_grouped(args):
    spec = convolution("torch.nn.functional.conv2d", (2, 8, 9, 9), (16, 4, 3, 3), args=args)
    assert not spec.is_grouped_convolution


@given(operations())
def test_of_any_operation_it_can_be_asked_whether_it_is_a_grouped_convolution(operation):
    assert operation.is_grouped_convolution in (False, True)
