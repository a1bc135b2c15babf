"""A network's pass, cut into parts: on the CPU, where parts are told by the operations between two cuts."""

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from clockwatt.measure.bench import split_pass


class Counted(TorchDispatchMode):
    """Counts what PyTorch does, forward and backward."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.calls += 1
        return function(*args, **(kwargs or {}))


class Block(nn.Module):
    """Gives a dictionary, changes in place what a module gave, and adds outside of modules."""

    def __init__(self):
        super().__init__()
        self.linear, self.norm, self.act = nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True)

    def forward(self, x):
        x = x["x"] if isinstance(x, dict) else x
        return {"mask": None, "x": x + self.act(self.norm(self.linear(x)))}


def training_pass(blocks):
    network = nn.Sequential(*(Block() for _ in range(blocks)))
    x = torch.ones(4, 8)

    def call():
        network.zero_grad(set_to_none=True)
        network(x)["x"].sum().backward()

    return network, call


def parts_of(call, cuts):
    """How many operations each part of a pass has."""
    parts = []
    with Counted() as counted, split_pass.cut_at(cuts, lambda: parts.append(counted.calls)):
        call()
        parts.append(counted.calls)
    return [end - begin for begin, end in zip([0, *parts], parts, strict=False)]


@pytest.fixture
def cuts_everywhere():
    network, call = training_pass(6)
    call()
    return network, call, split_pass.find_cuts(call, lambda: None, part_s=0.0)


def test_a_pass_can_be_cut_at_every_module_forward_and_backward(cuts_everywhere):
    network, call, cuts = cuts_everywhere
    assert cuts.modules[split_pass.FORWARD] == set(network.modules())
    assert cuts.modules[split_pass.BACKWARD] >= {
        m for m in network.modules() if not isinstance(m, (Block, nn.Sequential))
    }
    whole = parts_of(call, split_pass.Cuts())
    parts = parts_of(call, cuts)
    assert len(whole) == 1
    assert sum(parts) == whole[0], "nothing is done twice, nothing left out"
    assert max(parts) < whole[0] / 6


def test_cutting_changes_no_gradient_and_leaves_no_hook(cuts_everywhere):
    network, call, cuts = cuts_everywhere
    network.eval()  # batch statistics would move
    call()
    before = [parameter.grad.clone() for parameter in network.parameters()]
    assert len(parts_of(call, cuts)) > 12
    assert all(torch.equal(a, p.grad) for a, p in zip(before, network.parameters(), strict=True))
    assert not any(module._forward_hooks for module in network.modules())
    assert not nn.modules.module._global_forward_hooks


def test_parts_are_as_long_as_asked_for_and_waiting_is_no_part_of_them():
    """On a clock that each operation of PyTorch moves on by a second, so that times are those of no machine."""
    _, call = training_pass(40)
    call()
    waits = []

    def wait():
        waits.append(torch.ones(10_000).sin())

    def cuts_of(part_s):
        with Counted() as counted:
            return split_pass.find_cuts(call, wait, part_s=part_s, now_s=lambda: float(counted.calls))

    (whole,) = parts_of(call, split_pass.Cuts())
    uncut = cuts_of(whole + 1.0)
    assert uncut.modules == {split_pass.FORWARD: set(), split_pass.BACKWARD: set()}
    assert len(waits) > 2 * 40
    assert uncut.longest_s == whole
    short = cuts_of(whole / 8)
    parts = parts_of(call, short)
    assert 2 <= len(parts) <= 8
    assert min(parts[:-1]) >= whole / 8
    assert short.longest_s == max(parts) < whole / 4


def test_an_inference_pass_is_cut_forward_alone():
    network, _ = training_pass(6)
    network.eval()
    with torch.inference_mode():
        cuts = split_pass.find_cuts(lambda: network(torch.ones(4, 8)), lambda: None, part_s=0.0)
    assert cuts.modules[split_pass.BACKWARD] == set()
    assert len(cuts.modules[split_pass.FORWARD]) == 1 + 4 * 6


def test_hooks_go_when_a_pass_fails():
    network = nn.Sequential(nn.Linear(8, 8))
    with pytest.raises(RuntimeError):
        split_pass.find_cuts(lambda: network(torch.ones(4, 9)), lambda: None)
    assert not nn.modules.module._global_forward_hooks
