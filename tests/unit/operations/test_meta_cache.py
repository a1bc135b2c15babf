import pytest
import torch

from clockwatt.operations.trace.meta import MetaLayouts

aten = torch.ops.aten


def empty(*shape, **more):
    return torch.empty(shape, device="meta", **more)


def described(result):
    parts = result if isinstance(result, list | tuple) else [result]
    return [
        (part.shape, part.stride(), part.dtype, part.untyped_storage().nbytes())
        if isinstance(part, torch.Tensor) else part
        for part in parts
    ]  # fmt: skip


CALLS = {
    "broadcast": lambda: aten.add.Tensor(empty(3, 1), empty(1, 4)),
    "int and float": lambda: [aten.mul.Tensor(empty(3, dtype=torch.int64), number) for number in (2, 2.0, True)],
    "transposed": lambda: aten.relu(empty(3, 4).t()),
    "several": lambda: aten.native_layer_norm(empty(2, 4), [4], empty(4), empty(4), 1e-5),
    "none": lambda: aten.native_batch_norm(empty(2, 4, 3), None, None, None, None, True, 0.1, 1e-5),
    "list": lambda: aten._foreach_add.List([empty(2), empty(3)], [empty(2), empty(3)]),
    "channels last": lambda: aten.convolution(
        empty(2, 3, 8, 8).to(memory_format=torch.channels_last), empty(4, 3, 3, 3), None, [1, 1], [1, 1], [1, 1],
        False, [0, 0], 1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_call_gives_the_same_again(call):
    with MetaLayouts():
        first, again = call(), call()
    assert described(first) == described(again)


def test_what_it_gives_is_new_each_time():
    x = empty(3)
    with MetaLayouts():
        outputs = [aten.relu(x) for _ in range(3)]
    assert len({output.untyped_storage()._cdata for output in (x, *outputs)}) == 4


def test_views_share_the_storage_of_what_they_view():
    for _ in range(2):
        x = empty(2, 3)
        with MetaLayouts():
            views = [aten.view(x, [6]), aten._unsafe_view(x, [6]), aten.t(x), aten.detach(x)]
        assert {view.untyped_storage()._cdata for view in views} == {x.untyped_storage()._cdata}


def test_a_call_in_place_gives_its_tensor_and_counts_as_a_change():
    for _ in range(2):
        x = empty(3)
        with MetaLayouts():
            assert x.mul_(2) is x
        assert x._version == 1


def test_a_call_that_changes_a_layout_does_so_again():
    for _ in range(2):
        x = empty(3)
        with MetaLayouts():
            x.resize_(7)
        assert x.shape == (7,)


def test_a_dtype_follows_the_default_one():
    x = empty(3, dtype=torch.int64)
    before = torch.get_default_dtype()
    with MetaLayouts():
        found = []
        try:
            for dtype in (torch.float32, torch.float64):
                torch.set_default_dtype(dtype)
                found.append(aten.div.Tensor(x, x).dtype)
        finally:
            torch.set_default_dtype(before)
    assert found == [torch.float32, torch.float64]


def test_tensors_off_meta_are_computed():
    with MetaLayouts():
        assert [(torch.ones(2) * number).tolist() for number in (2, 3)] == [[2, 2], [3, 3]]
