"""Ticks are found from the times at which they were seen, whatever was missed and however late it was seen."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clockwatt.gpu.sensing.ticks import tick_period_s, tick_times_s


def seen_ticks(
    period_s: float, missed: float, late: float, seed: int, count: int = 70
) -> tuple[np.ndarray, np.ndarray]:
    """Even ticks, some of them missed, and when they were seen: late by up to a share of the period."""
    rng = np.random.default_rng(seed)
    ticks_s = 1e5 * rng.random() + period_s * np.arange(count)
    ticks_s = ticks_s[rng.random(count) >= missed]
    return ticks_s, ticks_s + period_s * rng.uniform(0, late, len(ticks_s))


@given(period_s=st.floats(0.005, 0.2), missed=st.floats(0, 0.3), late=st.floats(0, 0.3), seed=st.integers(0, 2**32 - 1))
def test_the_period_is_known_better_than_one_distance_between_readings(period_s, missed, late, seed):
    _, seen_s = seen_ticks(period_s, missed, late, seed)
    assert tick_period_s(seen_s) == pytest.approx(period_s, rel=0.02 * late + 1e-6)


@given(period_s=st.floats(0.005, 0.2), missed=st.floats(0, 0.3), late=st.floats(0, 0.3), seed=st.integers(0, 2**32 - 1))
def test_ticks_are_never_worse_than_what_was_seen(period_s, missed, late, seed):
    ticks_s, seen_s = seen_ticks(period_s, missed, late, seed)
    delay_s = tick_times_s(seen_s) - ticks_s
    assert np.ptp(delay_s) <= late * period_s + 1e-6
    assert abs(np.mean(delay_s)) <= late * period_s + 1e-6


@pytest.mark.parametrize("late", [0.05, 0.3])
def test_ticks_are_found_but_for_a_delay_that_all_share(late):
    spreads = []
    for seed in range(100):
        ticks_s, seen_s = seen_ticks(0.1, 0.1, late, seed)
        spreads.append(np.ptp(tick_times_s(seen_s) - ticks_s) / (0.1 * late))
    assert np.median(spreads) < 0.15


def test_stamps_most_of_which_are_right_give_the_ticks_themselves():
    ticks_s = 0.02 * np.arange(350)
    late_s = np.where(np.arange(350) % 4 == 0, np.linspace(0.002, 0.016, 350), 0.0)
    assert tick_times_s(ticks_s + late_s) == pytest.approx(ticks_s, abs=1e-4)


def test_a_sensor_that_does_not_tick_evenly_keeps_its_times():
    seen_s = np.cumsum(np.random.default_rng(3).exponential(0.1, 70))
    assert np.array_equal(tick_times_s(seen_s), seen_s)


def test_two_ticks_are_as_they_were_seen():
    assert list(tick_times_s([1.0, 1.25])) == [1.0, 1.25]
    assert tick_period_s([1.0, 1.25]) == 0.25
