"""Signals against cases computed by hand, and properties that hold for any."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clockwatt import signals

POWERS = st.floats(0, 1000, allow_nan=False)
STEPS = st.floats(0.001, 10)


@st.composite
def traces(draw, least: int = 2):
    """Times in s and powers in W."""
    steps = draw(st.lists(STEPS, min_size=least - 1, max_size=30))
    powers = draw(st.lists(POWERS, min_size=len(steps) + 1, max_size=len(steps) + 1))
    return draw(st.floats(-100, 100)) + np.concatenate([[0.0], np.cumsum(steps)]), np.array(powers)


def test_time_is_relative_to_the_first_reading_without_loss() -> None:
    epoch_us = np.array([1_795_327_268_123_005, 1_795_327_268_123_006, 1_795_327_269_123_005])
    assert signals.relative_time_s(epoch_us, unit_s=1e-6).tolist() == [0.0, 1e-6, 1.0]
    assert signals.relative_time_s([3.0, 5.0], 4.0).tolist() == [-1.0, 1.0]
    assert signals.relative_time_s([]).size == 0


def test_a_cubic_is_resampled_exactly_at_twice_its_rate() -> None:
    time_s = np.arange(6) * 0.5
    made = signals.resample(time_s, time_s**3 - 2 * time_s)
    assert made.index.tolist() == pytest.approx(np.arange(11) * 0.25)
    assert made.to_numpy() == pytest.approx(made.index**3 - 2 * made.index)


def test_missing_readings_and_repeated_times_do_not_count() -> None:
    made = signals.resample([0, 1, 1, 2, 3], [0, 9, 1, np.nan, 3], rate_hz=1)
    assert made.tolist() == pytest.approx([0, 1, 2, 3])


@pytest.mark.parametrize(("time_s", "value"), [([], []), ([1], [2]), ([1, 1], [2, 3])])
def test_fewer_than_two_readings_give_no_grid(time_s, value) -> None:
    assert signals.resample(time_s, value).empty


def test_arrays_that_do_not_belong_together_are_refused() -> None:
    with pytest.raises(ValueError, match="do not belong together"):
        signals.resample([1, 2], [1, 2, 3])
    with pytest.raises(ValueError, match="above 0"):
        signals.resample([1, 2], [1, 2], rate_hz=0)
    with pytest.raises(ValueError, match="ascend"):
        signals.cumulative_energy_j([2, 1], [1, 1])


@given(traces(), st.floats(0.1, 20))
def test_a_grid_is_even_and_stays_within_the_readings(trace, rate_hz) -> None:
    time_s, power_w = trace
    made = signals.resample(time_s, power_w, rate_hz=rate_hz)
    assert np.diff(made.index) == pytest.approx(1 / rate_hz, rel=1e-6)
    assert made.index[0] == time_s[0]
    assert made.index[-1] <= time_s[-1]
    assert time_s[-1] - made.index[-1] <= 1 / rate_hz * (1 + 1e-6)


def test_runs_of_different_length_are_averaged_with_masks() -> None:
    first = pd.Series([10.0, 10.0, 10.0], index=[0.0, 1.0, 2.0])
    second = pd.Series([20.0, 20.0, 20.0, 20.0, 20.0], index=[5.0, 6.0, 7.0, 8.0, 9.0])
    made = signals.average_runs([first, second], rate_hz=1)
    assert made["runs"].tolist() == [2, 2, 2, 1, 1]
    assert made["mean"].tolist() == pytest.approx([15, 15, 15, 20, 20])
    assert made["deviation"].tolist()[:3] == pytest.approx([math.sqrt(50)] * 3)
    assert made["deviation"].isna().tolist() == [False, False, False, True, True]


def test_no_run_gives_no_average_and_the_default_rate_is_twice_the_highest() -> None:
    assert signals.average_runs([]).empty
    assert signals.average_runs([pd.Series([1.0], index=[0.0])]).empty
    slow = pd.Series([1.0, 1.0], index=[0.0, 1.0])
    quick = pd.Series([1.0] * 5, index=np.arange(5) * 0.25)
    assert np.diff(signals.average_runs([slow, quick]).index) == pytest.approx(1 / 8)


def test_energy_by_hand() -> None:
    time_s, power_w = [0.0, 1.0, 3.0], [10.0, 20.0, 40.0]
    assert signals.summed_energy_j(time_s, power_w) == 1 * 20 + 2 * 40
    assert signals.integrated_energy_j(time_s, power_w) == 15 + 60
    assert signals.cumulative_energy_j(time_s, power_w).tolist() == [0, 15, 75]
    # power is 25 W at 1.5 s and 30 W at 2 s
    assert signals.integrated_energy_j(time_s, power_w, 1.5, 2.0) == pytest.approx(0.5 * 27.5)
    assert signals.integrated_energy_j(time_s, power_w, [0, 1], [1, 3]).tolist() == pytest.approx([15, 60])
    # the last power holds for a median distance (1.5 s) more, and no longer
    assert signals.integrated_energy_j(time_s, power_w, 0, 4.5) == pytest.approx(75 + 1.5 * 40)
    assert math.isnan(signals.integrated_energy_j(time_s, power_w, 0, 4.6))
    assert math.isnan(signals.summed_energy_j([1], [5]))
    assert signals.energy_delay_product_j_s([10, 20], [2, 3]).tolist() == [20, 60]


@given(traces())
def test_constant_power_gives_power_times_time_by_every_rule(trace) -> None:
    time_s, _ = trace
    expected = 7.0 * (time_s[-1] - time_s[0])
    constant = np.full(len(time_s), 7.0)
    assert signals.summed_energy_j(time_s, constant) == pytest.approx(expected)
    assert float(signals.integrated_energy_j(time_s, constant)) == pytest.approx(expected)
    assert signals.cumulative_energy_j(time_s, constant)[-1] == pytest.approx(expected)


@given(traces(), st.lists(st.floats(0, 1), min_size=1, max_size=5))
def test_energies_of_parts_add_up_to_that_of_the_whole(trace, shares) -> None:
    time_s, power_w = trace
    cuts = np.sort(time_s[0] + np.array([0, *shares, 1]) * (time_s[-1] - time_s[0]))
    cuts = np.clip(cuts, time_s[0], time_s[-1])
    parts = signals.integrated_energy_j(time_s, power_w, cuts[:-1], cuts[1:])
    assert parts.sum() == pytest.approx(float(signals.integrated_energy_j(time_s, power_w)), rel=1e-9, abs=1e-6)
    assert signals.cumulative_energy_j(time_s, power_w)[-1] == pytest.approx(parts.sum(), rel=1e-9, abs=1e-6)


def test_a_counter_is_read_between_its_ticks() -> None:
    # ticks each 0.1 s by 3 J (30 W), read each 0.04 s
    time_s = np.arange(0, 2, 0.04)
    counter_j = 100 + 3 * np.floor(time_s / 0.1 + 1e-9)
    counted = float(signals.counted_energy_j(time_s, counter_j, 0.5, 1.5))
    assert counted == pytest.approx(30, abs=0.04 * 30)
    assert math.isnan(signals.counted_energy_j(time_s, counter_j, 0.5, 3))
    assert math.isnan(signals.counted_energy_j(time_s, np.full(len(time_s), 5.0), 0.5, 1.5))  # it never ticked
    assert math.isnan(signals.counted_energy_j(time_s, counter_j[::-1], 0.5, 1.5))  # it fell


@given(st.floats(1, 500), st.floats(0.02, 0.1), st.floats(0.5, 3), st.floats(0.5, 3))
def test_counter_and_integration_agree_within_two_ticks(power_w, read_every_s, start_s, length_s) -> None:
    time_s = np.arange(0, 8, read_every_s)
    counter_j = power_w * 0.1 * np.floor(time_s / 0.1)
    counted = float(signals.counted_energy_j(time_s, counter_j, start_s, start_s + length_s))
    assert counted == pytest.approx(power_w * length_s, abs=2 * power_w * (0.1 + read_every_s))


def test_phases_have_their_own_energy_and_short_ones_say_that_it_is_a_share() -> None:
    phases = pd.DataFrame({"name": ["epoch", "epoch", "step"], "start_s": [0.0, 2.0, 2.0], "end_s": [2.0, 4.0, 2.01]})
    time_s = np.arange(0, 5, 0.1)
    power_w = np.where(time_s < 2, 10.0, 30.0)
    told = signals.energy_of_phases(phases, time_s, power_w, time_s, np.cumsum(power_w) * 0.1)
    assert told["energy_j"].tolist() == pytest.approx([20 + 1, 60, 0.3], abs=0.05)
    assert told["time_s"].tolist() == pytest.approx([2, 2, 0.01])
    assert told["power_w"].tolist()[1] == pytest.approx(30)
    assert told["told"].tolist() == [True, True, False]
    assert told["energy_counter_j"].tolist()[:2] == pytest.approx([20, 60], abs=3)


def test_phases_without_any_reading_have_no_energy() -> None:
    told = signals.energy_of_phases(pd.DataFrame({"start_s": [0.0], "end_s": [1.0]}), [], [], [], [])
    assert told[["energy_j", "energy_counter_j", "power_w"]].isna().all(axis=None)
    assert not told["told"].any()


def test_runs_have_mean_and_deviation() -> None:
    told = signals.energy_of_runs(pd.DataFrame({"time_s": [1.0, 3.0], "energy_j": [10.0, 30.0]}))
    assert told.loc["time_s", ["mean", "deviation", "least", "most", "runs"]].tolist() == pytest.approx(
        [2, math.sqrt(2), 1, 3, 2]
    )
    assert told.loc["energy_delay_product_j_s", "mean"] == pytest.approx((10 + 90) / 2)


def test_what_lies_in_a_gap_is_not_made_up() -> None:
    time_s, power_w = [0, 1, 2, 3, 103, 104, 105], [10, 50, 10, 50, 10, 50, 10]
    made = signals.resample(time_s, power_w, rate_hz=1)
    assert made[(made.index > 3) & (made.index < 103)].isna().all()
    assert made[[0.0, 1, 2, 3, 103, 104, 105]].tolist() == pytest.approx(power_w)
    # one reading between two gaps tells its own moment
    alone = signals.resample([0, 1, 2, 50, 100, 101, 102], [1, 1, 1, 7, 1, 1, 1], rate_hz=1)
    assert alone.dropna().index.tolist() == [0, 1, 2, 50, 100, 101, 102]
    assert alone[50.0] == 7
    averaged = signals.average_runs([pd.Series(power_w, index=time_s, dtype=float)] * 2, rate_hz=1)
    assert averaged["runs"].isin([0, 2]).all()
    assert averaged["mean"].isna().tolist() == (averaged["runs"] == 0).tolist()


def test_an_energy_that_has_a_part_in_a_gap_is_not_known() -> None:
    time_s, power_w = [0, 1, 2, 12, 13, 14], [10.0] * 6
    energy = signals.integrated_energy_j
    starts, ends = [0, 0, 1, 2, 3, 11, 12, 12, 0], [2, 3, 2, 2, 4, 12, 13, 14, 14]
    nan = math.nan
    expected = [20, nan, 10, 0, nan, nan, 10, 20, nan]
    assert energy(time_s, power_w, starts, ends, longest_gap_s=5).tolist() == pytest.approx(expected, nan_ok=True)
    assert math.isnan(energy(time_s, power_w, longest_gap_s=5))
    assert float(energy(time_s, power_w)) == pytest.approx(140)


def test_monotone_pieces_stay_between_the_readings() -> None:
    time_s, clock_mhz = np.arange(8) * 1.0, [210, 210, 210, 1440, 1440, 1440, 210, 210]
    swings = signals.resample(time_s, clock_mhz, rate_hz=10)
    stays = signals.resample(time_s, clock_mhz, rate_hz=10, kind="monotone")
    assert swings.max() > 1440.5
    assert (stays.min(), stays.max()) == pytest.approx((210, 1440))
    mean = signals.average_runs([pd.Series(clock_mhz, index=time_s, dtype=float)], rate_hz=10, kind="monotone")
    assert mean["mean"].to_numpy() == pytest.approx(stays.to_numpy())


def test_odd_times_do_not_cost_what_is_known() -> None:
    assert signals.relative_time_s(np.array([5, 7], np.uint64), 6).tolist() == [-1.0, 1.0]
    assert signals.relative_time_s([math.nan, 3, 5])[1:].tolist() == [0.0, 2.0]
    assert signals.measured_rate_hz([0, math.nan, 1, 2]) == 1
    one_moment = pd.Series([1.0, 2.0], index=[3.0, 3.0])
    assert signals.average_runs([one_moment]).empty
    both = signals.average_runs([one_moment, pd.Series([4.0, 4.0], index=[0.0, 1.0])], rate_hz=1)
    assert both["runs"].tolist() == [1, 1]
    with pytest.raises(ValueError, match="finite"):
        signals.resample([1, 2], [1, 2], rate_hz=math.inf)


def test_spans_that_overlap_or_nearly_touch_are_joined() -> None:
    starts, ends = [5.0, 0.0, 1.0, 9.0], [6.0, 4.0, 2.0, 10.0]
    joined = [signals.joined(starts, ends, gap=gap) for gap in (0.0, 1.0, 3.0)]
    assert [list(zip(*each, strict=True)) for each in joined] == [
        [(0, 4), (5, 6), (9, 10)], [(0, 6), (9, 10)], [(0, 10)],
    ]  # fmt: skip
    assert [len(each) for each in signals.joined([], [])] == [0, 0]
