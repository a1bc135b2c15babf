"""Who warms whom: known coupling is found, and where there is none tests find none more often than they may."""

from dataclasses import replace

import numpy as np
import pytest

from clockwatt.studies.thermal.errors import ThermalError
from clockwatt.studies.thermal.influence import influences, untold
from support.thermal_nodes import made_node


def test_known_coupling_is_found_with_its_interval() -> None:
    coupling = [[0, 0.02, 0], [0, 0, 0.03], [0, 0, 0]]
    table = influences(made_node(coupling, steps=2400, runs=2), permutations=199).set_index(["gpu", "source"])
    assert len(table) == 6
    for (gpu, source), row in table.iterrows():
        expected = coupling[int(gpu[-1])][int(source[-1])]
        assert row["effect"] == pytest.approx(expected, abs=0.003)
        assert row["low"] < row["effect"] < row["high"]
        if expected:
            assert row["p_value"] == pytest.approx(1 / 200)
            assert row["p_adjusted"] < 0.05
            assert row["low"] > 0
        else:
            assert row["p_adjusted"] > 0.05
        assert row["unit"] == "K/W"


def test_without_coupling_no_more_is_found_than_chance_allows() -> None:
    nobody = np.zeros((3, 3))
    tables = [influences(made_node(nobody, steps=1500, seed=seed), permutations=59) for seed in range(12)]
    found = np.concatenate([table["p_value"].to_numpy() for table in tables])
    assert len(found) == 72
    # at 5 % 3.6 of 72 are expected; more than 9 come by in less than 1 % of such draws
    assert (found <= 0.05).sum() <= 9
    held = np.concatenate([((table["low"] <= 0) & (table["high"] >= 0)).to_numpy() for table in tables])
    assert held.mean() > 0.8


def test_what_reaches_a_gpu_at_low_load_alone_is_told() -> None:
    coupling = [[0, 0.04], [0, 0]]
    table = influences(made_node(coupling, steps=3000, runs=2, high_load_factor=0.3), permutations=99)
    row = table.set_index(["gpu", "source"]).loc[("GPU-0", "GPU-1")]
    assert row["effect_low_load"] > 1.5 * row["effect_high_load"]
    assert row["more_low"] > 0
    assert row["p_more"] <= 0.05
    even = influences(made_node(coupling, steps=3000, runs=2), permutations=99)
    row = even.set_index(["gpu", "source"]).loc[("GPU-0", "GPU-1")]
    assert row["more_low"] < 0.004
    assert abs(row["more_at_low_load"]) < 0.006


def test_a_gpu_that_only_idles_is_seen_to_be_warmed() -> None:
    node = made_node([[0, 0.03], [0, 0]], steps=2400, idle=(0,))
    row = influences(node, permutations=99).set_index(["gpu", "source"]).loc[("GPU-0", "GPU-1")]
    assert row["effect"] == pytest.approx(0.03, abs=0.003)
    assert row["p_value"] == pytest.approx(1 / 100)


def test_what_hardly_changes_has_no_effect_that_could_be_told() -> None:
    chance = np.random.default_rng(0)
    node = [
        replace(trace, neighbours_w=trace.neighbours_w + chance.normal(0, 0.2, trace.neighbours_w.shape))
        for trace in made_node([[0, 0], [0.03, 0]], steps=2400, idle=(1,))
    ]
    table = influences(node, permutations=99)
    assert table[["gpu", "source"]].to_numpy().tolist() == [["GPU-1", "GPU-0"]]
    assert untold(node) == ["Effect unknown, because they hardly changed: GPU-1."]
    with pytest.raises(ThermalError, match="no varying source of heat"):
        influences([trace for trace in node if trace.gpu == "GPU-0"], permutations=99)


def test_of_a_temperature_that_never_moves_nothing_is_told_and_why_is_said() -> None:
    warmed, cold = [
        [trace for trace in made_node([[0, 0.03], [0, 0]], steps=2400) if trace.gpu == gpu]
        for gpu in ("GPU-0", "GPU-1")
    ]
    stuck = [replace(trace, temperature_c=np.full(len(trace), 45.0)) for trace in cold]
    table = influences([*warmed, *stuck], permutations=99)
    assert table[["gpu", "source"]].to_numpy().tolist() == [["GPU-0", "GPU-1"]]
    (note,) = untold([*warmed, *stuck])
    assert note.startswith(
        "GPU-1: its temperature was constant (45 °C in all of 2400 s), so its sources of heat are unknown"
    )
    assert not untold([*warmed, *cold])
    with pytest.raises(ThermalError, match=r"GPU-1: .* hardly changed"):
        influences(stuck, permutations=99)


def test_a_socket_that_warms_is_found_by_its_power() -> None:
    table = influences(made_node(np.zeros((2, 2)), steps=2400, socket_k_per_w=0.03), permutations=99)
    sockets = table[table["kind"] == "socket"]
    assert list(sockets["source"]) == ["cpu0_power_w"] * 2
    assert sockets["effect"].to_numpy() == pytest.approx(0.03, abs=0.006)
    assert (sockets["p_value"] <= 0.05).all()


def test_a_gpu_alone_has_nobody_to_warm_it_and_that_is_said() -> None:
    with pytest.raises(ThermalError, match="no second GPU"):
        influences([trace.alone() for trace in made_node(np.zeros((2, 2)), steps=900)])


def test_too_short_a_record_is_refused() -> None:
    short = [
        replace(
            trace, temperature_c=trace.temperature_c[:300], power_w=trace.power_w[:300],
            neighbours_w=trace.neighbours_w[:300], neighbours_c=trace.neighbours_c[:300],
        ) for trace in made_node(np.zeros((2, 2)), steps=900)
    ]  # fmt: skip
    with pytest.raises(ThermalError, match="too few"):
        influences(short)
