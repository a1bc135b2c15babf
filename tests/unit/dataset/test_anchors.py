import pandas as pd
import pytest

from clockwatt.dataset.anchors import card_factors, session_drifts

HOUR_US = 3_600_000_000


def anchor(uuid, subject="a", time=1.0, power=100.0, session="s", started=0):
    return {
        "kind": "anchor", "subject_id": subject, "pass": "inference", "tf32": True, "gpu_uuid": uuid,
        "session_id": session, "started_us": started, "time_device_s": time, "power_w": power,
    }  # fmt: skip


def test_one_card_has_factor_one():
    factors = card_factors(pd.DataFrame([anchor("x"), anchor("x", time=1.5)]))
    assert factors.loc["x"].to_dict() == {"time": 1.0, "power": 1.0}


def test_factor_is_relative_to_the_median_card():
    rows = [anchor(uuid, subject, time * base, power) for subject, base in (("a", 1.0), ("b", 20.0))
            for uuid, time, power in (("x", 1.0, 100.0), ("y", 1.1, 90.0), ("z", 0.95, 110.0))]  # fmt: skip
    factors = card_factors(pd.DataFrame(rows))
    assert factors["time"].to_dict() == pytest.approx({"x": 1.0, "y": 1.1, "z": 0.95})
    assert factors["power"].to_dict() == pytest.approx({"x": 1.0, "y": 0.9, "z": 1.1})


def test_one_odd_anchor_does_not_make_a_card_odd():
    rows = [anchor(uuid, subject) for subject in "abc" for uuid in "xyz"]
    rows[0]["time_device_s"] = 5.0
    assert card_factors(pd.DataFrame(rows))["time"].to_dict() == {"x": 1.0, "y": 1.0, "z": 1.0}


def test_drift_is_last_over_first_and_per_hour():
    rows = [anchor("x", subject, time, started=started) for subject in "abc"
            for time, started in ((1.0, 0), (9.0, HOUR_US // 4), (1.03, HOUR_US // 2))]  # fmt: skip
    drifts = session_drifts(pd.DataFrame(rows))
    assert drifts.loc["s", "time"] == pytest.approx(0.03)
    assert drifts.loc["s", "time_per_hour"] == pytest.approx(0.06)
    assert drifts.loc["s", "power"] == 0


def test_anchors_measured_once_tell_no_drift():
    assert session_drifts(pd.DataFrame([anchor("x")])).empty


def test_no_anchors_no_factors():
    none = pd.DataFrame([anchor("x")]).iloc[:0]
    assert card_factors(none).empty
    assert session_drifts(none).empty
