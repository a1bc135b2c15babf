"""The thermal RC network: known constants are found again, filter and forecast are what physics says."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from virtual_records import write_virtual_record

from clockwatt.gpu.specs import find_spec
from clockwatt.gpu.virtual.model import AMBIENT_C, TEMPERATURE_RISE_AT_DEFAULT_LIMIT_K, THERMAL_TIME_CONSTANT_S
from clockwatt.studies.thermal.errors import ThermalError
from clockwatt.studies.thermal.inputs import Task, decayed
from clockwatt.studies.thermal.models.network import Mode, Network
from clockwatt.studies.thermal.models.network_fit import fit_network, steady_neighbours
from clockwatt.studies.thermal.models.rc import RcNetworks
from clockwatt.studies.thermal.traces import Trace, read_traces
from support import thermal_nodes
from support.thermal_nodes import made_node


def trace_of(power_w: np.ndarray, temperature_c: np.ndarray, **changes: object) -> Trace:
    about = {
        "run": "run-1",
        "workload": "made",
        "host": "made",
        "gpu": "GPU-0",
        "gpu_name": "made GPU",
        "virtual": True,
    }
    fields = about | {"step_s": 1.0, "start_s": 0.0, "neighbours_w": np.zeros((len(power_w), 0))} | changes
    return Trace(temperature_c=temperature_c, power_w=power_w, **fields)


@pytest.mark.parametrize("model", ["a30", "h200"])
def test_constants_of_a_virtual_gpu_are_found_within_5_percent(tmp_path: Path, model: str) -> None:
    record = write_virtual_record(tmp_path / "steps", model=model, pattern="steps", runs=3, duration_s=600)
    network = fit_network(read_traces([record]).traces, intervals=True)
    (mode,) = network.modes
    resistance = TEMPERATURE_RISE_AT_DEFAULT_LIMIT_K / find_spec(model).power_w.default
    assert network.resistance_k_per_w == pytest.approx(resistance, rel=0.05)
    assert mode.time_constant_s == pytest.approx(THERMAL_TIME_CONSTANT_S, rel=0.05)
    assert mode.capacity_j_per_k == pytest.approx(THERMAL_TIME_CONSTANT_S / resistance, rel=0.05)
    assert network.ambient_c == pytest.approx(AMBIENT_C, rel=0.05)
    assert network.rms_k < 0.4  # whole degrees alone leave 0.29
    low, high = network.intervals["resistance_k_per_w"]
    assert low < network.resistance_k_per_w < high
    assert high - low < 0.1 * resistance


def test_coupling_of_a_node_is_found_and_none_where_there_is_none() -> None:
    coupling = [[0, 0.02, 0], [0, 0, 0.03], [0.01, 0, 0]]
    traces = made_node(coupling, steps=2400)
    for own, row in enumerate(coupling):
        network = fit_network([trace for trace in traces if trace.gpu == f"GPU-{own}"])
        assert network.resistance_k_per_w == pytest.approx(thermal_nodes.RESISTANCE_K_PER_W, rel=0.05)
        assert network.ambient_c == pytest.approx(thermal_nodes.AMBIENT_C, abs=1.0)
        for other, expected in enumerate(row):
            if other != own:
                found = network.neighbours_k_per_w.get(f"GPU-{other}", 0.0)
                assert found == pytest.approx(expected, abs=0.002)


def test_a_neighbour_that_idles_leaves_the_constants_alone() -> None:
    chance = np.random.default_rng(0)
    own = [
        replace(trace, neighbours_w=trace.neighbours_w + chance.normal(0, 0.2, trace.neighbours_w.shape))
        for trace in made_node(np.zeros((2, 2)), steps=900, idle=(1,))
        if trace.gpu == "GPU-0"
    ]
    network = fit_network(own, intervals=True)
    assert network.neighbours_k_per_w == {}
    assert network.ambient_c == pytest.approx(thermal_nodes.AMBIENT_C, abs=1)
    low, high = network.intervals["ambient_c"]
    assert high - low < 5
    assert steady_neighbours(own) == ["GPU-1"]
    (note,) = RcNetworks(Task()).fit(own).notes_
    assert "the power of GPU-1 hardly changed" in note


def test_two_modes_are_told_apart() -> None:
    chance = np.random.default_rng(1)
    power = thermal_nodes.load_w(chance, 4000)
    warm = 25 + decayed(0.05 * power, 6.0, 1.0) + decayed(0.1 * power, 90.0, 1.0)
    network = fit_network([trace_of(power, np.round(warm))])
    quick, slow = network.modes
    assert (quick.time_constant_s, slow.time_constant_s) == (pytest.approx(6, rel=0.15), pytest.approx(90, rel=0.1))
    assert (quick.resistance_k_per_w, slow.resistance_k_per_w) == (
        pytest.approx(0.05, rel=0.1), pytest.approx(0.1, rel=0.05)
    )  # fmt: skip


@settings(max_examples=25)
@given(
    resistance=st.floats(0.05, 0.5), tau=st.floats(3, 120), ambient=st.floats(15, 45), seed=st.integers(0, 10**6),
    offset=st.floats(-10, 10),
)  # fmt: skip
def test_any_network_is_found_wherever_a_run_begins(resistance, tau, ambient, seed, offset) -> None:
    power = thermal_nodes.load_w(np.random.default_rng(seed), 2500)
    heat = resistance * power
    warm = ambient + decayed(heat, tau, 1.0, start=float(heat[0]) + offset)
    network = fit_network([trace_of(power, warm)])
    assert network.resistance_k_per_w == pytest.approx(resistance, rel=0.02)
    assert max(network.modes, key=lambda mode: mode.resistance_k_per_w).time_constant_s == pytest.approx(tau, rel=0.02)
    assert network.ambient_c == pytest.approx(ambient, abs=0.5)


NETWORK = Network(
    ambient_c=30.0, modes=(Mode(0.1, 5.0), Mode(0.2, 40.0)), neighbours_k_per_w={"GPU-1": 0.03},
    neighbours_time_constant_s=60.0,
)  # fmt: skip


def simulated(network: Network, power: np.ndarray, neighbour: np.ndarray) -> np.ndarray:
    warm = network.ambient_c + sum(decayed(m.resistance_k_per_w * power, m.time_constant_s, 1.0) for m in network.modes)
    return warm + decayed(network.neighbours_k_per_w["GPU-1"] * neighbour, network.neighbours_time_constant_s, 1.0)


def test_with_the_load_known_the_forecast_is_the_simulation() -> None:
    chance = np.random.default_rng(3)
    power, neighbour = thermal_nodes.load_w(chance, 900), thermal_nodes.load_w(chance, 900)
    warm = simulated(NETWORK, power, neighbour)
    trace = trace_of(power, warm, neighbours=("GPU-1",), neighbours_w=neighbour[:, None])
    origins = np.arange(300, 900, 7)
    found = NETWORK.forecast(trace, origins, (1, 30, 300), known=True)
    for column, ahead in enumerate((1, 30, 300)):
        inside = origins + ahead < 900
        assert np.isnan(found[~inside, column]).all()
        assert found[inside, column] == pytest.approx(warm[origins[inside] + ahead], abs=0.02)


@given(power=st.floats(10, 500), neighbour=st.floats(0, 500))
def test_a_steady_load_stays_as_it_is_and_settles(power: float, neighbour: float) -> None:
    watts, others = np.full(1500, power), np.full(1500, neighbour)
    warm = simulated(NETWORK, watts, others)
    trace = trace_of(watts, warm, neighbours=("GPU-1",), neighbours_w=others[:, None])
    found = NETWORK.forecast(trace, np.array([1499]), (1, 300, 3000), known=False)
    assert found[0] == pytest.approx(NETWORK.settles_at_c(power, {"GPU-1": neighbour}), abs=1e-3)
    assert NETWORK.expected_load_w(trace, 300) == pytest.approx(power)
    state = NETWORK.states(trace)[-1]
    path = NETWORK.path(state, power, {"GPU-1": neighbour}, np.array([0.0, 60.0, math.inf]))
    assert path == pytest.approx(NETWORK.settles_at_c(power, {"GPU-1": neighbour}), abs=1e-3)


def test_a_load_that_never_changes_tells_nothing_and_that_is_said() -> None:
    with pytest.raises(ThermalError, match=r"hardly changed .* works and pauses"):
        fit_network([trace_of(np.full(200, 100.0), np.full(200, 50.0))])


def test_a_gpu_that_cools_with_more_power_is_refused() -> None:
    power = thermal_nodes.load_w(np.random.default_rng(0), 900)
    with pytest.raises(ThermalError, match="does not get warmer"):
        fit_network([trace_of(power, 80 - decayed(0.1 * power, 20.0, 1.0))])


@pytest.mark.parametrize(
    ("key", "value"),
    [("modes", []), ("modes", [{"resistance_k_per_w": -0.1, "time_constant_s": 5}]),
     ("modes", [{"resistance_k_per_w": 0.1, "time_constant_s": 0}]), ("load_weights", {"30": [1.0]})],
)  # fmt: skip
def test_impossible_constants_of_a_file_are_refused(key: str, value: object) -> None:
    assert Network.from_json(NETWORK.to_json()) == NETWORK
    with pytest.raises(ValueError):
        Network.from_json(NETWORK.to_json() | {key: value})


def test_the_load_of_a_forecast_is_the_one_that_it_expects() -> None:
    ahead, others = 60, np.zeros(1060)
    network = replace(NETWORK, load_weights={ahead: (0.0, 0.4, 0.4, 0.2)})
    watts = np.append(np.full(1000, 100.0), np.full(60, 300.0))
    trace = trace_of(watts, simulated(network, watts, others), neighbours=("GPU-1",), neighbours_w=others[:, None])
    expected = network.expected_load_w(trace, ahead)
    assert expected == pytest.approx(0.4 * 300 + 0.4 * 300 + 0.2 * 140)
    path = network.path(network.states(trace)[-1], expected, {"GPU-1": 0.0}, np.array([float(ahead)]))
    assert network.forecast(trace, np.array([1059]), (ahead,), known=False)[0, 0] == pytest.approx(path[0], abs=0.01)
