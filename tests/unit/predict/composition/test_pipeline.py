from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clockwatt.predict.composition.pipeline import (
    COMPILED_TRAINING_CALLS,
    COMPILED_TRAINING_GAP_S,
    HostOverheads,
    Overheads,
    PassOverheads,
    compose,
    pipeline_ends,
)
from clockwatt.schema.records import ACCUMULATION, FORWARD, INFERENCE, OPTIMIZER, TRAINING, NetworkRow

TIMES = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=20)


def network(pass_=INFERENCE, modules=0, nodes=0):
    return NetworkRow(
        network_id="n", network="n", input_shape=[1], dtype="float32", pass_=pass_, calls=1, module_calls=modules,
        backward_nodes=nodes, parameters=0, parameter_bytes=0, optimizer=None,
    )  # fmt: skip


def costs(*rows):
    """Rows of (device, host) time; each call draws 10 W above idle on the device."""
    device, host = np.array(rows, dtype=float).T
    eager = np.maximum(device, host)
    return pd.DataFrame(
        {"time_device_corrected_s": device, "time_host_corrected_s": host,
         "time_eager_corrected_s": eager, "energy_dynamic_corrected_j": 10 * device,
         "energy_corrected_j": 10 * device + 30 * eager},
        index=[str(number) for number in range(len(rows))],
    )  # fmt: skip


def calls(*ids, phase=FORWARD):
    return pd.DataFrame({"operation_id": list(ids), "phase": phase})


@given(TIMES)
def test_device_waits_for_the_host_and_for_itself(times):
    host, device = np.array(times).T
    issued = np.cumsum(host)
    end, expected = 0.0, []
    for at, takes in zip(issued, device, strict=True):
        end = max(end, at) + takes
        expected.append(end)
    np.testing.assert_allclose(pipeline_ends(issued, device), expected, rtol=1e-9, atol=1e-12)


@given(TIMES)
def test_passes_back_to_back_tend_to_the_slower_of_host_and_device(times):
    host, device = np.array(times).T
    passes = 400
    ends = pipeline_ends(np.cumsum(np.tile(host, passes)), np.tile(device, passes))
    composed = compose(
        calls(*map(str, range(len(times)))), network(), costs(*zip(device, host, strict=True)), Overheads()
    )
    assert ends[-1] / passes == pytest.approx(composed.time_s, rel=0.05, abs=1e-6)
    assert composed.time_s <= composed.latency_s * (1 + 1e-9)


def test_energy_is_dynamic_energy_and_idle_power_over_the_time():
    composed = compose(calls("0", "0", "1"), network(), costs((2.0, 1.0), (0.0, 0.5)), Overheads(power_idle_w=30.0))
    assert composed.time_s == composed.device_s == 4.0
    assert composed.energy_j == pytest.approx(40 + 30 * 4)
    assert composed.power_w == pytest.approx(40)


def test_modules_and_the_mix_of_calls_cost_host_time_in_their_pass_alone():
    point = Overheads(
        PassOverheads(HostOverheads(module_s=0.1, forward_call_s=0.01)), PassOverheads(HostOverheads(module_s=9.0))
    )
    composed = compose(calls("0", "0"), network(modules=3), costs((0.5, 1.0)), point)
    assert composed.host_s == pytest.approx(2 * 1.0 + 3 * 0.1 + 2 * 0.01)
    assert composed.time_s == composed.host_s


def test_a_network_starts_one_backward_pass():
    point = Overheads(training=PassOverheads(HostOverheads(backward_start_s=0.4)))
    sequence = pd.concat([calls("0", "0", "1"), calls("0", phase=OPTIMIZER)])
    composed = compose(sequence, network(TRAINING), costs((0.5, 1.0), (0.0, 0.1)), point)
    assert composed.host_s == pytest.approx(3 * 1.0 + 0.1 + 0.4)
    assert composed.latency_s is None
    inference = compose(sequence, network(), costs((0.5, 1.0), (0.0, 0.1)), point)
    assert inference.host_s == pytest.approx(3 * 1.0 + 0.1)


def test_plain_sum_leaves_gradient_accumulation_out_and_the_pipeline_does_not():
    sequence = pd.concat([calls("0"), calls("1", phase=ACCUMULATION), calls("2", phase=OPTIMIZER)])
    composed = compose(sequence, network(TRAINING), costs((1.0, 0.5), (2.0, 0.5), (4.0, 0.5)), Overheads())
    assert composed.plain_time_s == 5.0
    assert composed.device_s == 7.0


def test_a_call_without_cost_is_counted():
    composed = compose(calls("0", "unknown"), network(), costs((1.0, 0.5)), Overheads())
    assert composed.calls_without_cost == 1
    assert not composed.complete
    assert composed.energy_j is None


def test_all_calls_are_counted_where_no_operation_has_a_cost():
    composed = compose(calls("unknown", "unknown"), network(), costs((1.0, 0.5)).iloc[:0], Overheads())
    assert composed.calls_without_cost == 2
    assert composed.energy_j is None


def test_networks_draw_less_dynamic_power_than_their_operations_alone():
    given = calls("0", "0", "1"), network(), costs((2.0, 1.0), (0.0, 0.5))
    alone = compose(*given, Overheads(power_idle_w=30.0))
    composed = compose(*given, Overheads(PassOverheads(dynamic_factor=0.9), power_idle_w=30.0))
    assert composed.energy_dynamic_j == pytest.approx(0.9 * alone.energy_dynamic_j)
    assert composed.time_s == alone.time_s


def test_passing_from_call_to_call_takes_time_at_the_mean_power():
    given = calls("0", "0", "1"), network(), costs((2.0, 1.0), (0.0, 0.5))
    without = compose(*given, Overheads(power_idle_w=30.0))
    composed = compose(*given, Overheads(PassOverheads(gap_s=0.5), power_idle_w=30.0))
    assert composed.device_s == without.device_s + 2 * 0.5
    assert composed.power_w == pytest.approx(without.power_w)


@pytest.mark.parametrize(
    ("pass_", "mode", "gaps"),
    [(INFERENCE, "+compile", 0), (TRAINING, "", 0), (TRAINING, "+compile", 2), (TRAINING, "+cuda_graph", 0)],
)
def test_calls_of_compiled_training_alone_take_a_further_gap(pass_, mode, gaps):
    given = costs((2.0, 1.0), (0.0, 0.5))
    executed = replace(network(pass_), dtype="tf32" + mode)
    composed = compose(calls("0", "0", "1"), executed, given, Overheads(power_idle_w=30.0))
    of_graph = 2 * 1e-6 if "graph" in mode else 0.0
    assert composed.device_s == pytest.approx(4.0 + gaps * COMPILED_TRAINING_GAP_S - of_graph, rel=1e-9)


@pytest.mark.parametrize(
    ("pass_", "mode", "more"), [(TRAINING, "+compile", 1), (TRAINING, "", 0), (INFERENCE, "+compile", 0)]
)
def test_compiled_training_issues_more_than_its_calls(pass_, mode, more):
    known = PassOverheads(HostOverheads(call_s=1e-5))
    executed = replace(network(pass_), dtype="tf32" + mode, batch_norms=3)
    composed = compose(calls("0", "1"), executed, costs((2.0, 1.0), (0.0, 0.5)), Overheads(training=known))
    once, each = COMPILED_TRAINING_CALLS
    assert composed.host_s == pytest.approx(1.5 + more * 1e-5 * (once + 3 * each))
