"""Passes that would take more power than the limit allows, and what a network adds to calls on the device."""

import json
from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from clockwatt.predict.composition.pipeline import HostOverheads, Overheads, PassOverheads, compose
from clockwatt.schema.records import FORWARD, INFERENCE, TRAINING, NetworkRow

IDLE_W, LIMIT_W = 50.0, 150.0
ABOVE_W = LIMIT_W - IDLE_W
LIMITED = Overheads(power_idle_w=IDLE_W, power_limit_w=LIMIT_W)
TIME = st.floats(1e-6, 1e-2)
CALL = st.tuples(TIME, TIME, st.floats(1, 5), st.floats(0, 5))
"""Device and host time, what it takes longer back to back, its dynamic power over what the limit allows."""


def composed(calls, point=LIMITED, pass_=INFERENCE, host_s=(), grouped=None):
    """A pass of calls of (device time, time back to back, dynamic energy), on a host that `host_s` slows."""
    device, eager, dynamic = np.array(calls, dtype=float).T
    host = np.array([*host_s, *np.zeros(len(calls) - len(host_s))])
    costs = pd.DataFrame(
        {"time_device_corrected_s": device, "time_host_corrected_s": host,
         "time_eager_corrected_s": eager, "energy_dynamic_corrected_j": dynamic,
         "energy_corrected_j": dynamic + IDLE_W * eager},
        index=[str(number) for number in range(len(calls))],
    )  # fmt: skip
    network = NetworkRow(
        network_id="n", network="n", input_shape=[1], dtype="float32", pass_=pass_, calls=1, module_calls=0,
        backward_nodes=0, parameters=0, parameter_bytes=0, optimizer=None, grouped_convolutions=grouped,
    )  # fmt: skip
    return compose(pd.DataFrame({"operation_id": costs.index, "phase": FORWARD}), network, costs, point)


def any_pass(drawn):
    """What `CALL`s drawn at random say, as `composed` takes it: calls, and their host times."""
    calls = [(device, slower * device, share * ABOVE_W * device) for device, _, slower, share in drawn]
    return calls, [host for _, host, _, _ in drawn]


HEAVY = (1.0, 1.5, 200.0)
"""Meets the limit alone: 200 J in 1 s are twice what it allows, and 150 J in 1.5 s just that."""
LIGHT = (1.0, 1.0, 20.0)


def test_below_the_limit_nothing_changes():
    below = composed([HEAVY, LIGHT, LIGHT])
    assert below.time_s == below.device_s == 3.0
    assert below.energy_dynamic_j == 240.0
    assert below.power_w == pytest.approx(IDLE_W + 80.0)


def test_a_pass_just_at_the_limit_is_not_slowed():
    at = composed([(1.0, 2.0, ABOVE_W)])
    assert at.time_s == 1.0
    assert at.energy_dynamic_j == ABOVE_W


def test_above_the_limit_the_mean_power_equals_it_and_calls_are_slowed_no_more_than_that_takes():
    above = composed([HEAVY, HEAVY, LIGHT])
    assert above.power_w == pytest.approx(LIMIT_W)
    assert above.device_s == 3.0, "what the device needs is said as if the limit did not act"
    assert 3.0 < above.time_s < 1.5 + 1.5 + 1.0
    assert 2 * 150.0 + 20.0 < above.energy_dynamic_j < 420.0


def test_calls_that_alone_meet_the_limit_take_together_what_each_takes_back_to_back():
    calls = [HEAVY, (2.0, 2.5, 300.0), (1.0, 1.2, 130.0)]
    above = composed(calls)
    assert above.time_s == pytest.approx(1.5 + 2.5 + 1.2)
    assert above.energy_dynamic_j == pytest.approx(ABOVE_W * above.time_s)


def test_a_pass_takes_longer_than_its_slowed_calls_where_these_do_not_bring_the_power_down():
    above = composed([(1.0, 1.0, 300.0)], LIMITED, host_s=[0.5])
    assert above.power_w == pytest.approx(LIMIT_W)
    slow_to_the_limit = composed([(1.0, 5.0, 300.0)])
    assert slow_to_the_limit.time_s == pytest.approx(3.0), "a call back to back may be slow for its host alone"
    assert slow_to_the_limit.energy_dynamic_j == pytest.approx(300.0)


def test_a_pass_that_waits_for_its_host_below_the_limit_is_not_slowed():
    waits = composed([HEAVY, HEAVY], host_s=[2.5, 2.5])
    assert waits.time_s == waits.host_s == 5.0
    assert waits.energy_dynamic_j == 400.0


def test_a_pass_that_waits_for_its_host_is_brought_down_to_the_limit_and_not_below():
    at_once = (1.0, 1.0, 200.0)
    waits = composed([at_once, (1.0, 1.0, 50.0)], host_s=[1.2, 1.2])
    assert waits.time_s == pytest.approx(2.4)
    assert waits.power_w == pytest.approx(LIMIT_W)
    assert waits.energy_dynamic_j == pytest.approx(2.4 * ABOVE_W)


@pytest.mark.parametrize(
    "point",
    [Overheads(power_idle_w=IDLE_W), Overheads(power_limit_w=LIMIT_W), Overheads(power_idle_w=200.0,
     power_limit_w=LIMIT_W)],
    ids=["no limit", "no idle power", "limit below idle power"],
)  # fmt: skip
def test_without_a_limit_to_keep_nothing_changes(point):
    free = composed([HEAVY, HEAVY], point)
    assert free.time_s == 2.0
    assert free.energy_dynamic_j == 400.0


@given(st.lists(CALL, min_size=1, max_size=20))
def test_power_stays_within_the_limit_time_grows_and_energy_falls(drawn):
    calls, host_s = any_pass(drawn)
    limited, free = composed(calls, host_s=host_s), composed(calls, Overheads(power_idle_w=IDLE_W), host_s=host_s)
    assert limited.power_w <= LIMIT_W * (1 + 1e-9)
    assert limited.time_s >= max(limited.host_s, limited.device_s)
    assert 0 <= limited.energy_dynamic_j <= free.energy_dynamic_j * (1 + 1e-12)
    assert (limited.device_s, limited.host_s) == (free.device_s, free.host_s)
    if free.power_w <= LIMIT_W:
        assert (limited.time_s, limited.energy_dynamic_j) == (free.time_s, free.energy_dynamic_j)


@given(st.lists(CALL, min_size=1, max_size=20))
def test_a_device_that_never_waits_is_brought_down_to_just_the_limit(drawn):
    calls, _ = any_pass(drawn)
    limited, free = composed(calls), composed(calls, Overheads(power_idle_w=IDLE_W))
    assert limited.power_w == pytest.approx(min(free.power_w, LIMIT_W))


@given(st.lists(st.tuples(TIME, st.floats(1, 5), st.floats(1, 5)), min_size=1, max_size=20))
def test_a_pass_at_the_limit_takes_between_the_sums_of_unslowed_and_of_slowed_times(drawn):
    # slowed, a call needs less energy: no longer than the limit asks for
    calls = [(device, slower * device, slower * less * ABOVE_W * device) for device, slower, less in drawn]
    device_s, eager_s = sum(device for device, _, _ in calls), sum(eager for _, eager, _ in calls)
    above = composed(calls)
    assert device_s * (1 - 1e-9) <= above.time_s <= eager_s * (1 + 1e-9)
    light = [(device, device, 0.0) for device, _, _ in calls]
    assert 2 * device_s * (1 - 1e-9) <= composed(calls + light).time_s <= (device_s + eager_s) * (1 + 1e-9)


@pytest.mark.parametrize(("pass_", "gap_s"), [(INFERENCE, 0.25), (TRAINING, 0.5)])
def test_a_network_adds_device_time_to_calls_with_device_work_alone(pass_, gap_s):
    point = Overheads(PassOverheads(gap_s=0.25), PassOverheads(gap_s=0.5))
    calls = [LIGHT, (0.0, 1.0, 0.0), LIGHT]
    with_gaps = composed(calls, point, pass_)
    assert with_gaps.device_s == with_gaps.time_s == pytest.approx(2.0 + 2 * gap_s)
    assert composed(calls, Overheads(), pass_).device_s == 2.0
    if pass_ == INFERENCE:
        assert with_gaps.latency_s == pytest.approx(2.0 + 2 * gap_s)


@pytest.mark.parametrize(
    ("pass_", "grouped", "gap_s"),
    [(INFERENCE, 2, 0.25), (TRAINING, 2, 0.75), (TRAINING, 0, 0.5), (TRAINING, None, 0.5)],
    ids=["inference", "training", "without grouped convolutions", "from an older catalogue"],
)
def test_networks_with_grouped_convolutions_add_device_time_of_their_own_in_training(pass_, grouped, gap_s):
    point = Overheads(PassOverheads(gap_s=0.25), PassOverheads(gap_s=0.5, grouped_gap_s=0.75))
    calls = [LIGHT, (0.0, 1.0, 0.0), LIGHT]
    assert composed(calls, point, pass_, grouped=grouped).device_s == pytest.approx(2.0 + 2 * gap_s)


def test_device_time_between_calls_lowers_the_power_of_a_pass():
    gaps = Overheads(PassOverheads(gap_s=1.0), power_idle_w=IDLE_W, power_limit_w=LIMIT_W)
    spread = composed([HEAVY], gaps)
    assert spread.time_s == 2.0
    assert spread.power_w == pytest.approx(LIMIT_W)
    assert spread.energy_dynamic_j == 200.0


def test_a_slower_host_pays_more_for_what_the_host_does_alone():
    known = Overheads(
        PassOverheads(HostOverheads(1.0, 2.0, 3.0), 4.0),
        PassOverheads(HostOverheads(5.0, 6.0, 7.0, 8.0), 9.0, 10.0),
        power_idle_w=11.0,
        power_limit_w=12.0,
    )
    assert known.on_host(1.5) == Overheads(
        PassOverheads(HostOverheads(1.5, 3.0, 4.5), 4.0),
        PassOverheads(HostOverheads(7.5, 9.0, 10.5, 12.0), 9.0, 10.0),
        power_idle_w=11.0,
        power_limit_w=12.0,
    )


def test_what_is_not_known_of_a_host_is_not_known_of_a_slower_one():
    assert Overheads(power_idle_w=IDLE_W).on_host(2.0) == Overheads(power_idle_w=IDLE_W)


@pytest.mark.parametrize(("pass_", "expected"), [(INFERENCE, (1.0, 2.0, 3.0)), (TRAINING, (4.0, 5.0, 6.0))])
def test_every_pass_has_costs_of_its_own(pass_, expected):
    known = Overheads(
        PassOverheads(HostOverheads(module_s=1.0, forward_call_s=2.0), 3.0),
        PassOverheads(HostOverheads(module_s=4.0, forward_call_s=5.0), 6.0),
    ).of(pass_)
    assert (known.host.module_s, known.host.forward_call_s, known.gap_of(grouped=False)) == expected
    assert Overheads().of(pass_).gap_of(grouped=False) == 0
    assert composed([LIGHT], Overheads(), pass_, host_s=[0.5]).host_s == 0.5, "what is not known adds nothing"


@pytest.mark.parametrize(("grouped_s", "expected_s"), [(9.0, 9.0), (0.0, 0.0), (-1.0, 0.0), (None, 6.0)])
def test_what_grouped_convolutions_add_is_that_of_training_where_it_is_not_known(grouped_s, expected_s):
    known = Overheads(PassOverheads(gap_s=3.0), PassOverheads(gap_s=6.0, grouped_gap_s=grouped_s))
    assert known.training.gap_of(grouped=True) == expected_s
    assert known.training.gap_of(grouped=False) == 6.0
    assert known.inference.gap_of(grouped=True) == 3.0


def test_overheads_are_stored_as_they_are():
    known = Overheads(
        PassOverheads(HostOverheads(1.0, None, 3.0)), PassOverheads(HostOverheads(5.0), 9.0, 10.0), power_limit_w=12.0
    )
    assert TypeAdapter(Overheads).validate_json(json.dumps(asdict(known))) == known
