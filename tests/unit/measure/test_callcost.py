"""What calls, modules and passes cost beyond single operations, with a device that is made up."""

import functools

import pytest
import torch
from torch import nn

from clockwatt.config import NetworkConfig, TrainingConfig
from clockwatt.measure.calibrate import call_costs as module
from clockwatt.measure.calibrate.call_costs import CallTimer, call_costs
from clockwatt.operations.catalogue import trace_rows
from clockwatt.schema.quantities import CalibrationQuantity
from clockwatt.schema.records import FORWARD, LOSS

CPU = torch.device("cpu")
CALL_S = 2e-6
"""Of every operation on the device."""
MODULE_S, ADDED_S = 3e-6, 1.5e-6
"""What the made-up host takes for a module, and for a forward call beyond that call alone."""
PASSES = ("inference", "training")


def shallow():
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))


def deep():
    return nn.Sequential(*(nn.Sequential(nn.Sequential(nn.Linear(4, 4)), nn.Tanh()) for _ in range(4)))


class Wide(nn.Module):
    def forward(self, x):
        for _ in range(12):
            x = torch.mul(x, 1.5)
        return x.flatten(1)


def wide():
    return nn.Sequential(nn.Linear(4, 4), Wide())


def networks(*names):
    return [NetworkConfig(name=f"{__name__}:{name}", input=[2, 4]) for name in names]


@pytest.fixture(autouse=True, scope="module")
def _small():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "NETWORKS", networks("shallow", "deep", "wide"))
        # how exactly the host is timed does not matter here
        patch.setattr(module, "_REPEATS", 4)
        patch.setattr(module, "_WARM", 1)
        # tiny tensors on several threads wait for busy cores
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        yield
        torch.set_num_threads(threads)


class Device:
    """Times passes: each takes its calls, and beyond them what a host takes, and on the device what `gaps_s` says."""

    def __init__(self, *gaps_s, call_s=1e-6, unknown=()):
        self.gaps_s, self.call_s, self.unknown, self.asked = list(gaps_s), call_s, unknown, []
        self.times = iter(times_of_all())

    def timer(self):
        return CallTimer(host_s=self.host_s, device_s=self.device_s, pass_s=self.pass_s)

    def host_s(self, operation, pass_):
        return None if operation.operation_class in self.unknown else self.call_s

    def device_s(self, operation, pass_):
        self.asked.append((operation.operation_class, pass_))
        return None if operation.operation_class in self.unknown else CALL_S

    def pass_s(self, issue):
        issue()
        gap_s, (host_s, device_calls) = self.gaps_s.pop(0), next(self.times)
        return None if gap_s is None else (host_s, device_calls * (CALL_S + gap_s))


@functools.cache
def times_of_all():
    """`times` of every network in both passes."""
    return [times(network, pass_) for pass_ in PASSES for network in module.NETWORKS]


def times(network, pass_):
    """Host time of a pass in s, and its calls with device work."""
    traced = trace_rows(network, pass_, TrainingConfig())
    works = {row.operation_id for row in traced.operations if row.device_work}
    forward = sum(call.phase in (FORWARD, LOSS) for call in traced.calls)
    host_s = 1e-6 * len(traced.calls) + MODULE_S * traced.network.module_calls + ADDED_S * forward
    return host_s, sum(call.operation_id in works for call in traced.calls)


@pytest.fixture(scope="module")
def device():
    """Adds 0.1, 0.3 and 0.5 us to the calls of the three networks in inference, 0.5, 0.9 and 1 us in training."""
    return Device(1e-7, 3e-7, 5e-7, 5e-7, 9e-7, 1e-6)


@pytest.fixture(scope="module")
def costs(device):
    return call_costs(CPU, device.timer())


def test_every_quantity_of_both_passes_comes_out(costs):
    of_a_pass = (
        CalibrationQuantity.HOST_PER_CALL,
        CalibrationQuantity.HOST_PER_MODULE,
        CalibrationQuantity.HOST_ADDED_PER_CALL,
        CalibrationQuantity.DEVICE_ADDED_PER_CALL,
    )
    assert set(costs) == {
        *((quantity, pass_) for quantity in of_a_pass for pass_ in PASSES),
        (CalibrationQuantity.HOST_PER_BACKWARD_CALL, None),
    }  # fmt: skip
    assert all(estimate is not None for estimate in costs.values())
    assert all(costs[CalibrationQuantity.HOST_PER_CALL, pass_].value > 0 for pass_ in PASSES)


def test_host_costs_of_modules_and_calls_are_found_apart(costs):
    assert costs[CalibrationQuantity.HOST_PER_MODULE, "inference"].value == pytest.approx(MODULE_S)
    assert costs[CalibrationQuantity.HOST_ADDED_PER_CALL, "inference"].value == pytest.approx(ADDED_S)
    assert costs[CalibrationQuantity.HOST_PER_MODULE, "inference"].samples == 3


def test_the_device_cost_is_the_mean_over_networks_of_what_passes_take_beyond_their_calls(costs, device):
    assert costs[CalibrationQuantity.DEVICE_ADDED_PER_CALL, "inference"].value == pytest.approx(3e-7)
    assert costs[CalibrationQuantity.DEVICE_ADDED_PER_CALL, "training"].value == pytest.approx(8e-7)
    assert device.gaps_s == [], "every network was run in both passes"


def test_what_gives_the_device_nothing_to_do_is_not_timed_on_it(costs, device):
    asked = {name for name, _ in device.asked}
    assert {"linear", "relu", "mul"} <= asked
    assert "flatten" not in asked


def test_networks_that_cannot_be_timed_are_passed_over():
    costs = call_costs(CPU, Device(1e-7, None, None, None, 9e-7, 1e-6).timer())
    assert costs[CalibrationQuantity.DEVICE_ADDED_PER_CALL, "inference"] is None, "one network alone tells no error"
    assert costs[CalibrationQuantity.DEVICE_ADDED_PER_CALL, "training"].value == pytest.approx(9.5e-7)
    assert costs[CalibrationQuantity.HOST_PER_MODULE, "training"] is None, "two costs of two networks"
    unknown = call_costs(CPU, Device(*[1e-7] * 6, unknown={"linear"}).timer())
    for pass_ in PASSES:
        assert unknown[CalibrationQuantity.DEVICE_ADDED_PER_CALL, pass_] is None
        assert unknown[CalibrationQuantity.HOST_PER_MODULE, pass_] is None
        assert unknown[CalibrationQuantity.HOST_ADDED_PER_CALL, pass_] is None
        assert unknown[CalibrationQuantity.HOST_PER_CALL, pass_] is not None


def test_calls_that_take_all_of_a_pass_leave_nothing_for_modules():
    costs = call_costs(CPU, Device(*[0.0] * 6, call_s=1.0).timer())
    for pass_ in PASSES:
        assert (
            costs[CalibrationQuantity.HOST_PER_MODULE, pass_].value
            == costs[CalibrationQuantity.HOST_ADDED_PER_CALL, pass_].value
            == 0
        )
