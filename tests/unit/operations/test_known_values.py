"""Values that follow from constants are known while a network is traced; those of data are not."""

import sys

import pytest
import torch
from torch import nn

from clockwatt.config import NetworkConfig, TrainingConfig
from clockwatt.operations.build.build import build
from clockwatt.operations.known_values import KnownValues
from clockwatt.operations.rows import operation_row
from clockwatt.operations.trace.trace import trace_network
from clockwatt.operations.trace.tracer import UntraceableError


class Forward(nn.Module):
    def __init__(self, forward):
        super().__init__()
        self._forward = forward
        self.part = nn.Linear(8, 8)
        self.register_buffer("mask", torch.tensor([True, False, True, False]))
        self.register_buffer("count", torch.tensor([1, 2, 3, 4]))
        self.count.mul_(2)
        self.head = nn.Parameter(torch.zeros(8, 3))

    def forward(self, x):
        return self._forward(self, x)


@pytest.fixture
def traced(monkeypatch):
    def trace(forward, pass_="inference", **settings):
        monkeypatch.setattr(sys.modules[__name__], "offered", lambda: Forward(forward), raising=False)
        network = NetworkConfig(name=f"{__name__}:offered", input=[4, 8], **settings)
        return trace_network(network, pass_, TrainingConfig())

    return trace


def shape(trace):
    return trace.calls[-1].operation.out[0].shape


def where_ones(m, x):
    return x[torch.ones(4, dtype=torch.bool, device=x.device).nonzero()[:, 0][:3]]


def looping(m, x):
    for number in torch.arange(3, device=x.device):
        x = x[number:]
    return x * 1


def overwritten(m, x):
    mask = torch.zeros(4, 4, device=x.device)
    mask[1:].fill_(1)
    mask[:, 0] = 1
    return x * 1 if mask.sum() == 13 else x[:1] * 2


def taken_back(m, x):
    kept = x.new_ones(4)
    kept.view(2, 2)[0].zero_()  # a view of it
    return x[: int(kept.sum())] * 1


READ = {
    "a branch on a range": (lambda m, x: x[:1] * 1 if torch.arange(4, device=x.device).sum() == 6 else x * 1, (1, 8)),
    "all": (lambda m, x: x[:1] * 1 if torch.ones_like(x).all() else x * 1, (1, 8)),
    "item": (lambda m, x: x[: torch.tensor(2, device=x.device).item()] * 1, (2, 8)),
    "tolist": (lambda m, x: torch.cat(x.split(torch.tensor([1, 3], device=x.device).tolist())), (4, 8)),
    "int": (lambda m, x: x[: int(m.mask.sum())] * 1, (2, 8)),
    "index": (lambda m, x: x[m.mask.sum() :] * 1, (2, 8)),
    "contains": (lambda m, x: x[:1] * 1 if 8 in m.count else x * 1, (1, 8)),
    "equal": (lambda m, x: x[:1] * 1 if torch.equal(m.mask, m.mask) else x * 1, (1, 8)),
    "a mask as subscript": (lambda m, x: x[m.mask] * 1, (2, 8)),
    "a number as subscript": (lambda m, x: x[m.count[0]] * 1, (8,)),
    "masked_select": (lambda m, x: x.masked_select(m.mask[:, None]) * 1, (16,)),
    "nonzero": (where_ones, (3, 8)),
    "where": (lambda m, x: x[torch.where(m.mask)[0]], (2, 8)),
    "repeat_interleave": (lambda m, x: x.repeat_interleave(m.count, 0) * 1, (20, 8)),
    "bincount": (lambda m, x: m.count.bincount(minlength=6) * 1, (9,)),
    "one_hot": (lambda m, x: nn.functional.one_hot(m.count), (4, 9)),
    "unique": (lambda m, x: m.mask.unique() * 1, (2,)),
    "to the CPU": (lambda m, x: x[: m.count.cpu()[0].item()] * 1, (2, 8)),
    "NumPy": (lambda m, x: x[: m.count.cpu().numpy()[0]] * 1, (2, 8)),
    "iterated": (looping, (1, 8)),
    "overwritten": (overwritten, (4, 8)),
    "a view overwritten": (taken_back, (2, 8)),
}


@pytest.mark.parametrize("what", READ)
def test_what_follows_from_constants_is_read_as_on_a_gpu(traced, what):
    forward, expected = READ[what]
    trace = traced(forward)
    assert shape(trace) == expected
    assert trace.assumed_branches == []
    assert shape(trace) == tuple(Forward(forward)(torch.randn(4, 8)).shape)


def changed_by_data(m, x):
    mask = torch.zeros(4, device=x.device)
    view = mask[:]
    view += x[:, 0]
    return x if mask.sum() > 0 else x * 1


@pytest.mark.parametrize(
    "forward",
    [
        changed_by_data,
        lambda m, x: x if torch.rand(4, device=x.device).sum() > 0 else x * 1,
        lambda m, x: x if m.count.float().uniform_().sum() > 0 else x * 1,
        lambda m, x: x if (m.mask * x[:, 0]).sum() > 0 else x * 1,
        lambda m, x: x if m.head.sum() > 0 else x * 1,
    ],
)
def test_what_depends_on_data_chance_or_weights_is_refused(traced, forward):
    with pytest.raises(UntraceableError, match="decides a branch"):
        traced(forward)


def test_a_change_of_a_tensor_that_is_gone_makes_no_other_unknown():
    values, data = KnownValues(), torch.empty(3, device="meta")
    for _ in range(100):
        changed = torch.empty(3, device="meta").add_(data)
        values.follow(torch.Tensor.add_, (changed, data), {}, changed, [changed])
        del changed
        ones = torch.ones(3, device="meta")
        values.keep(ones, torch.ones(3))
        assert values.of(ones) is not None


def test_a_large_tensor_is_not_kept(traced):
    with pytest.raises(UntraceableError, match="decides a branch"):
        traced(lambda m, x: x if torch.ones(3000, 3000, device=x.device).all() else x * 1)


def test_numbers_are_assumed_to_be_finite_and_the_answer_says_so(traced):
    trace = traced(lambda m, x: x[:1] * 1 if torch.isnan(x).any() or x.isinf().any() else x[:3] * 1)
    assert shape(trace) == (3, 8)
    assert trace.assumed_branches == [": values are finite"]


def test_counts_of_unknown_values_are_as_many_as_they_are_asked_for(traced):
    trace = traced(lambda m, x: torch.bincount(x.long().flatten(), minlength=6) * 1)
    assert shape(trace) == (6,)
    assert trace.assumed_branches == [": values counted are below 6"]
    assert traced(lambda m, x: x.long().flatten().bincount(x.flatten(), 6) * 1).calls[-1].operation.dtype == "float32"
    with pytest.raises(UntraceableError, match=r"bincount has no implementation without data"):
        traced(lambda m, x: torch.bincount(x.long().flatten()) * 1)


def routed(m, x):
    chosen = torch.topk(m.part(x) @ m.head, 2).indices
    given = torch.zeros_like(x)
    for expert in range(3):
        token, _ = torch.where(chosen == expert)
        given.index_add_(0, token, m.part(x[token]))
    return given


def first_choice(m, x):
    chosen = (m.part(x) @ m.head).argmax(dim=-1)
    return torch.cat([m.part(x[chosen == expert]) for expert in range(3)])


@pytest.mark.parametrize("pass_", ["inference", "training"])
def test_tokens_are_spread_evenly_over_experts_and_the_answer_says_so(traced, pass_):
    trace = traced(routed, pass_)
    taken = [call.operation.out[0].shape for call in trace.calls if call.operation.operation_class == "getitem"]
    assert taken == [(3, 8), (3, 8), (2, 8)]  # 4 tokens, 2 of 3 experts each
    assert trace.assumed_branches == [": tokens spread evenly over 3 experts"]
    sizes = [call.operation.out[0].shape[0] for call in traced(first_choice, pass_).calls
             if call.operation.operation_class == "getitem"]  # fmt: skip
    assert sizes == [2, 1, 1]


def test_an_operation_that_selects_is_built_to_select_as_many(traced):
    trace = traced(lambda m, x: x[m.mask].sum() + torch.where(m.mask)[0])
    for call in trace.calls:
        row = operation_row(call.operation, call.kind, "inference")
        assert row.bytes_written > 0 or row.kind == "view"
        given = build(call.operation, "cpu", pass_="inference").forward()
        first = given[0] if isinstance(given, tuple) else given
        assert tuple(first.shape) == call.operation.out[0].shape


def test_groups_of_a_grouped_product_are_of_equal_size(traced):
    def forward(m, x):
        ends = torch.tensor([1, 2, 4], device=x.device, dtype=torch.int32)
        return nn.functional.grouped_mm(m.part(x).bfloat16(), m.part.weight.bfloat16().expand(3, 8, 8), offs=ends)

    trace = traced(forward, "training")
    product = next(call.operation for call in trace.calls if call.operation.operation_class == "grouped_mm")
    built = build(product, "cpu", pass_="inference")
    assert built.tensors[2].tolist() == [1, 2, 4]
    assert operation_row(product, "compute", "inference").flops == 2 * 4 * 8 * 8
    assert operation_row(product, "compute", "training").flops == 3 * 2 * 4 * 8 * 8
    assert trace.assumed_branches == [": tokens spread evenly over 3 experts"]
