import pytest

from clockwatt.operations.printed_modules import operation_of
from clockwatt.operations.spec.operation import Operation, OutputSpec, TensorSpec
from clockwatt.predict.features import MatrixProduct, channels, describe, matrix_product
from support import synthetic


def test_shapes_and_attributes_are_numbers():
    numbers = describe(synthetic.operation_of("conv2d", [8, 16, 32, 32], 24, 3))
    sizes = [2 ** numbers[name] - 1 for name in ("input_1", "output_1", "kernel_size")]
    assert sizes == pytest.approx([16, 24, 3])
    assert numbers["padding"] == 1
    assert numbers["groups"] == 1  # log2 of 1 + 1
    assert 2 ** numbers["second_3"] - 1 == pytest.approx(3)
    assert numbers["log_elements_out"] == pytest.approx(17.585, abs=1e-3)
    assert numbers["channel_alignment"] == 4  # 2⁴ divides 16


def test_what_an_operation_does_not_have_is_zero():
    numbers = describe(synthetic.operation_of("relu", [8, 16, 32, 32]))
    assert numbers["padding"] == numbers["kernel_size"] == numbers["second_0"] == numbers["log_rows"] == 0


def test_every_operation_has_the_same_features():
    names = {
        tuple(describe(synthetic.operation_of(name, shape, 8)))
        for name, shape in (("conv2d", [1, 3, 8, 8]), ("add", [2, 2]), ("linear", [2, 5]), ("flatten", [2, 3, 4]))
    }
    assert len(names) == 1


def test_operation_without_tensors_is_described():
    assert describe(Operation("torch.arange", (5,)))["tensors"] == 0


def test_stride_of_a_pool_is_its_window():
    pool = synthetic.operation_of("relu", [8, 16, 32, 32])
    pool = Operation("torch.nn.functional.max_pool2d", ({"tensor": 0}, {"tuple": [3, 3]}), {}, pool.tensors, pool.out)
    assert describe(pool)["stride"] == 2  # log2 of 3 + 1


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    [("conv2d", [8, 16, 32, 32], (16, 24)), ("linear", [8, 50, 7], (7, 24)), ("relu", [8, 5, 2, 2], (5, 5))],
)
def test_channels_lie_where_the_operation_works(name, shape, expected):
    operation = synthetic.operation_of(name, shape, 24)
    if name == "linear":
        operation = operation_of("Linear(in_features=7, out_features=24, bias=True)", shape, "inference")
    assert channels(operation) == expected


@pytest.mark.parametrize(
    ("printed", "shape", "expected"),
    [
        ("Conv2d(16, 24, kernel_size=(3, 3), padding=(1, 1))", [8, 16, 32, 32], MatrixProduct(8 * 32 * 32, 24, 144)),
        ("Conv2d(16, 16, kernel_size=(3, 3), groups=16)", [8, 16, 5, 5], MatrixProduct(72, 1, 9, 16)),
        ("Linear(in_features=7, out_features=24, bias=True)", [8, 50, 7], MatrixProduct(400, 24, 7)),
        ("ReLU()", [8, 50, 7], None),
    ],
)
def test_convolutions_and_linear_layers_are_matrix_products(printed, shape, expected):
    assert matrix_product(operation_of(printed, shape, "inference")) == expected


def test_products_of_batches_and_attention():
    tensors = (TensorSpec.dense([4, 5, 6]), TensorSpec.dense([4, 6, 7]))
    out = (OutputSpec((4, 5, 7), "float32", (35, 7, 1)),)
    assert matrix_product(Operation("torch.bmm", (), {}, tensors, out)) == MatrixProduct(5, 7, 6, 4)
    tensors = (TensorSpec.dense([2, 3, 50, 64]), TensorSpec.dense([2, 3, 60, 64]))
    attention = Operation("torch.nn.functional.scaled_dot_product_attention", (), {}, tensors, out)
    assert matrix_product(attention) == MatrixProduct(50, 60, 64, 6)
