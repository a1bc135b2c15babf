import pytest

from clockwatt.operations.operation import Operation
from clockwatt.predict import shapes
from support import synthetic


def test_shapes_and_attributes_are_pairs():
    numbers = shapes.describe(synthetic.operation_of("conv2d", [8, 16, 32, 32], 24, 3))
    assert (numbers["input_1"], numbers["output_1"], numbers["kernel_size"], numbers["padding"]) == (16, 24, 3, 1)
    assert numbers["groups_applies"] == numbers["second_3_applies"] == 1
    assert numbers["log_elements_out"] == pytest.approx(17.585, abs=1e-3)
    assert numbers["channel_alignment"] == 16


def test_what_does_not_exist_does_not_apply():
    numbers = shapes.describe(synthetic.operation_of("relu", [8, 16, 32, 32]))
    assert numbers["padding"] == numbers["padding_applies"] == numbers["second_0_applies"] == 0


def test_every_operation_has_the_same_features():
    names = {
        tuple(shapes.describe(synthetic.operation_of(name, shape, 8)))
        for name, shape in (("conv2d", [1, 3, 8, 8]), ("add", [2, 2]), ("linear", [2, 5]), ("flatten", [2, 3, 4]))
    }
    assert len(names) == 1


def test_operation_without_tensors_is_described():
    assert shapes.describe(Operation("torch.arange", (5,)))["tensors"] == 0


def test_stride_of_a_pool_is_its_window():
    pool = synthetic.operation_of("relu", [8, 16, 32, 32])
    pool = Operation("torch.nn.functional.max_pool2d", ({"tensor": 0}, {"tuple": [3, 3]}), {}, pool.tensors, pool.out)
    assert shapes.describe(pool)["stride"] == 3
