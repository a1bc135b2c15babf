import numpy as np
import pandas as pd
import pytest

from clockwatt.dataset.card_host_effects import card_factors, host_factors, host_spreads, session_drifts

HOUR_US = 3_600_000_000


def anchor(uuid, subject="a", time=1.0, power=100.0, session="s", started=0, host=1e-5):
    return {
        "kind": "anchor", "subject_id": subject, "pass": "inference", "execution": "tf32", "gpu_uuid": uuid,
        "session_id": session, "started_us": started, "time_device_s": time, "power_w": power,
        "time_host_s": host,
    }  # fmt: skip


def test_one_card_has_factor_one():
    factors = card_factors(pd.DataFrame([anchor("x"), anchor("x", time=1.5)]))
    assert factors.loc["x"].to_dict() == {"anchor_time_factor": 1.0, "anchor_power_factor": 1.0}


def test_factor_is_relative_to_the_median_card():
    rows = [anchor(uuid, subject, time * base, power) for subject, base in (("a", 1.0), ("b", 20.0))
            for uuid, time, power in (("x", 1.0, 100.0), ("y", 1.1, 90.0), ("z", 0.95, 110.0))]  # fmt: skip
    factors = card_factors(pd.DataFrame(rows))
    assert factors["anchor_time_factor"].to_dict() == pytest.approx({"x": 1.0, "y": 1.1, "z": 0.95})
    assert factors["anchor_power_factor"].to_dict() == pytest.approx({"x": 1.0, "y": 0.9, "z": 1.1})


def test_one_odd_anchor_does_not_make_a_card_odd():
    rows = [anchor(uuid, subject) for subject in "abc" for uuid in "xyz"]
    rows[0]["time_device_s"] = 5.0
    assert card_factors(pd.DataFrame(rows))["anchor_time_factor"].to_dict() == {"x": 1.0, "y": 1.0, "z": 1.0}


def test_drift_is_last_over_first_and_per_hour():
    rows = [anchor("x", subject, time, started=started) for subject in "abc"
            for time, started in ((1.0, 0), (9.0, HOUR_US // 4), (1.03, HOUR_US // 2))]  # fmt: skip
    drifts = session_drifts(pd.DataFrame(rows))
    assert drifts.loc["s", "session_time_change"] == pytest.approx(0.03)
    assert drifts.loc["s", "drift_time_per_hour"] == pytest.approx(0.06)
    assert drifts.loc["s", "session_power_change"] == 0


def test_anchors_measured_once_tell_no_drift():
    assert session_drifts(pd.DataFrame([anchor("x")])).empty


def test_no_anchors_no_factors():
    none = pd.DataFrame([anchor("x")]).iloc[:0]
    assert card_factors(none).empty
    assert session_drifts(none).empty
    assert host_factors(none).empty
    assert host_spreads(none).empty


def test_one_session_has_host_factor_one():
    factors = host_factors(pd.DataFrame([anchor("x"), anchor("x", host=3e-5), anchor("x", "b", host=9e-5)]))
    assert factors.to_dict() == {"s": 1.0}


def test_host_factor_is_relative_to_the_median_session_whatever_the_card():
    rows = [anchor("x", subject, session=session, host=host * base) for subject, base in (("a", 1e-5), ("b", 4e-5))
            for session, host in (("night", 0.9), ("noon", 1.0), ("busy", 1.5))]  # fmt: skip
    rows[0]["gpu_uuid"] = "y"
    assert host_factors(pd.DataFrame(rows)).to_dict() == pytest.approx({"night": 0.9, "noon": 1.0, "busy": 1.5})


def test_one_odd_anchor_does_not_make_a_host_odd():
    rows = [anchor("x", subject, session=session) for subject in "abc" for session in ("1", "2", "3")]
    rows[0]["time_host_s"] = 1.0
    assert host_factors(pd.DataFrame(rows)).to_dict() == {"1": 1.0, "2": 1.0, "3": 1.0}


def test_anchors_are_compared_with_themselves_alone():
    rows = [anchor("x", session="1"), anchor("x", session="2", host=1.2e-5)]
    without_tf32 = [row | {"execution": "fp32", "time_host_s": 10 * row["time_host_s"]} for row in rows]
    others = [anchor("x", "b", session="1", host=5e-5), anchor("x", "b", session="2", host=6e-5)]
    factors = host_factors(pd.DataFrame([*rows, *without_tf32, *others]))
    assert factors.to_dict() == pytest.approx({"1": 1 / 1.1, "2": 1.2 / 1.1})


def test_a_host_whose_anchors_were_not_timed_has_no_factor():
    rows = [anchor("x", session="1"), anchor("x", session="2"), anchor("x", session="failed", host=None)]
    assert host_factors(pd.DataFrame(rows)).to_dict() == {"1": 1.0, "2": 1.0}


def host_times(**sessions):
    """Anchors of different size, each measured once in each session at these multiples of their usual host time."""
    sizes = {name: 1e-5 * 3**number for number, name in enumerate("abcde")}
    return pd.DataFrame([
        anchor("x", subject, session=session, host=size * factor)
        for session, factors in sessions.items() for (subject, size), factor in zip(sizes.items(), factors, strict=True)
    ])  # fmt: skip


def test_a_host_that_is_always_as_slow_is_steady():
    spreads = host_spreads(host_times(night=[0.8] * 5, noon=[1.0] * 5, busy=[1.7] * 5))
    assert spreads.to_dict() == pytest.approx({"night": 0.0, "noon": 0.0, "busy": 0.0})


def test_a_host_whose_speed_varies_does_so_in_its_session_alone():
    varying = 1.3 * np.exp([-0.3, -0.1, 0.0, 0.1, 0.3])
    spreads = host_spreads(host_times(first=[1.0] * 5, second=[1.0] * 5, shared=varying))
    assert spreads.to_dict() == pytest.approx({"first": 0.0, "second": 0.0, "shared": 1.4826 * 0.1})


def test_the_spread_of_a_host_is_the_standard_deviation_of_its_times():
    deviation = 0.17
    factors = np.exp(deviation * np.random.default_rng(0).standard_normal((2000, 2)))
    rows = [anchor("x", subject, host=size * factor) for pair in factors
            for subject, size, factor in zip("ab", (1e-5, 7e-5), pair, strict=True)]  # fmt: skip
    assert host_spreads(pd.DataFrame(rows))["s"] == pytest.approx(deviation, rel=0.05)


def test_an_anchor_held_up_by_chance_does_not_make_a_host_unsteady():
    spreads = host_spreads(host_times(first=[1.0] * 5, second=[1.0] * 5, held_up=[1.0, 1.0, 50.0, 1.0, 1.0]))
    assert spreads.to_dict() == pytest.approx({"first": 0.0, "second": 0.0, "held_up": 0.0})


def test_one_anchor_tells_no_spread_and_one_that_was_not_timed_tells_nothing():
    rows = [anchor("x", session="1"), anchor("x", session="2", host=3e-5), anchor("x", session="failed", host=None)]
    spreads = host_spreads(pd.DataFrame(rows))
    assert spreads[["1", "2"]].to_dict() == {"1": 0.0, "2": 0.0}
    assert np.isnan(spreads["failed"])
