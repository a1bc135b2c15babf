"""The estimators on synthetic sensors whose truth is known."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clockwatt.gpu.sensing.sensors import AVERAGE, COUNTER, INSTANT, RING, SensorTraits
from clockwatt.measure.statistics import Estimate
from clockwatt.measure.steps import energy
from clockwatt.measure.steps.energy import PowerReadings, Series, Window

START_NS, END_NS = 10_000_000_000, 11_200_000_000
WINDOW = Window(START_NS, START_NS, END_NS)
NOTHING = Series(np.array([], dtype=np.int64), np.array([]))


def sensed(
    power_w: float, *, update_ms: float, read_ms: float, phase: float, noise: float, seed: int, missing: float = 0.0
) -> PowerReadings:
    """Readings of a card under constant power: sensors that update every `update_ms`, read every `read_ms`."""
    rng = np.random.default_rng(seed)
    times = np.arange(START_NS - 2e9, END_NS + 1e8, read_ms * 1e6)
    times = times[rng.random(times.size) >= missing]
    update = np.floor((times / 1e6 - phase * update_ms) / update_ms).astype(int)
    update_time_s = (update * update_ms + phase * update_ms) / 1e3
    by_update = power_w * (1 + noise * rng.standard_normal(update.max() - update.min() + 1))
    value = by_update[update - update.min()]
    ring_ns = np.arange(START_NS - 2e9, END_NS, 20e6)
    ring = power_w * (1 + noise * rng.standard_normal(ring_ns.size))
    stamps = times.astype(np.int64)
    return PowerReadings(
        instant=Series(stamps, value),
        average=Series(stamps, np.full(stamps.size, power_w)),
        counter=Series(stamps, np.round(power_w * update_time_s, 3)),
        samples=Series(ring_ns.astype(np.int64), ring),
    )


@given(
    power_w=st.floats(20, 700), update_ms=st.sampled_from([10.0, 20.0, 100.0]),
    read_ms=st.sampled_from([10.0, 97.0, 100.0, 103.0]), phase=st.floats(0, 1), noise=st.floats(0.001, 0.02),
    seed=st.integers(0, 2**32 - 1), missing=st.sampled_from([0.0, 0.1]), calibrated=st.booleans(),
)  # fmt: skip
@settings(max_examples=200, deadline=None)
def test_each_estimate_lies_within_its_stated_error(power_w: float, calibrated: bool, **sensor: float) -> None:
    known = {COUNTER: SensorTraits(sensor["update_ms"] / 1e3, None)} if calibrated else {}
    estimates = energy.estimate_all(sensed(power_w, **sensor), WINDOW, known)  # type: ignore[arg-type]
    assert {"samples", "instant", "trapezoid"} <= set(estimates)
    for name, estimate in estimates.items():
        # five standard errors and the rounding of the counter: a wrong estimator is off by far more, chance hardly ever
        allowed = 5 * max(estimate.standard_error, sensor["noise"] * power_w / np.sqrt(estimate.samples)) + 0.01
        assert abs(estimate.value - power_w) <= allowed, (name, estimate)


def test_the_stated_errors_are_not_too_wide() -> None:
    misses = [
        abs(estimate.value - 300) / estimate.standard_error
        for seed in range(200)
        for name, estimate in energy.estimate_all(
            sensed(300, update_ms=20, read_ms=100, phase=0.3, noise=0.01, seed=seed), WINDOW, {}
        ).items()
        if name in ("samples", "instant")
    ]
    assert 0.85 <= np.mean(np.array(misses) <= 1.96) <= 0.99


def test_a_failed_reading_is_not_zero() -> None:
    rows = [energy.TelemetryRow(session_id="s", lane="fast", time_us=t, monotonic_ns=t * 1000, power_instant_w=p)
            for t, p in ((1, 100.0), (2, None), (3, 102.0))]  # fmt: skip
    readings = energy.power_readings(rows)
    assert readings.instant.value.tolist() == [100.0, 102.0]
    assert readings.counter.value.size == 0


def test_the_average_is_not_used_before_its_window_has_filled() -> None:
    readings = sensed(200, update_ms=100, read_ms=100, phase=0, noise=0.01, seed=0)
    assert energy.average_power(readings, Window(START_NS, START_NS, START_NS + 900_000_000), {}) is None
    assert energy.average_power(readings, Window(START_NS, START_NS, START_NS + 1_150_000_000), {}) is not None


@given(
    slow_from_ns=st.integers(0, 400_000_000), window_s=st.sampled_from([0.02, 0.1, 0.5, 1.0]), late=st.floats(100, 400)
)
def test_readings_that_reach_back_to_before_the_steady_load_are_left_out(
    slow_from_ns: int, window_s: float, late: float
) -> None:
    """A sensor that still averages over another load, as it does after a start."""
    times = np.arange(START_NS, END_NS, 10_000_000)
    share = np.minimum((times - START_NS) / (window_s * 1e9), 1)
    seen = Series(times, 50 + (late - 50) * share)
    traits = {name: SensorTraits(0.01, window_s) for name in (AVERAGE, INSTANT, RING)}
    window = Window(START_NS, START_NS + slow_from_ns, END_NS)
    for name, estimate in energy.estimate_all(PowerReadings(seen, seen, NOTHING, seen), window, traits).items():
        assert estimate.value == pytest.approx(late, rel=1e-9), name


@given(
    name=st.sampled_from([AVERAGE, INSTANT, COUNTER, RING]), period_s=st.sampled_from([0.02, 0.1]),
    window_s=st.sampled_from([0.02, 0.1, 1.0]), phase=st.floats(0, 1), late=st.floats(0, 1), share=st.floats(0.3, 2.0),
)  # fmt: skip
def test_the_shortest_window_is_enough_for_its_sensor_and_hardly_more_than_needed(
    name: str, period_s: float, window_s: float, phase: float, late: float, share: float
) -> None:
    known = {name: SensorTraits(period_s, window_s)}
    read_s = period_s if name == RING else 0.1
    needed_s = energy.shortest_window_s(known, read_every_s=0.0 if name == RING else read_s)[name]
    reads_s = (late + np.arange(200)) * read_s
    ticks = np.floor(reads_s / period_s + phase)
    seen = Series(START_NS + np.round(reads_s * 1e9).astype(np.int64), 100 + 30 * ticks + (name != COUNTER) * ticks % 2)
    fields = {"power_average": "average", "power_instant": "instant", "energy_counter": "counter"}
    readings = replace(PowerReadings(*4 * [NOTHING]), **{fields.get(name, "samples"): seen})
    window = Window(START_NS, START_NS, START_NS + round(share * needed_s * 1e9))
    told = energy.estimate_all(readings, window, known)
    if share > 1.001:
        assert told
    if share * needed_s < (0 if name == COUNTER else window_s):
        assert not told


@pytest.mark.parametrize("period_s", [0.02, 0.05, 0.1, 0.13])
def test_the_shortest_window_of_a_counter_holds_two_ticks_wherever_it_starts(period_s: float) -> None:
    known = {COUNTER: SensorTraits(period_s, None)}
    needed_ns = round(energy.shortest_window_s(known, read_every_s=0.1)[COUNTER] * 1e9)
    reads_ns = START_NS + np.arange(20) * 100_000_000
    for late_ns in range(1_000_000, 100_000_000, 7_000_000):  # from the start of the window to the first reading
        for phase in np.linspace(0, 0.99, 12):
            counted = Series(reads_ns, 30.0 * np.floor((reads_ns - START_NS) / 1e9 / period_s + phase))
            started_ns = START_NS + 100_000_000 - late_ns
            window = Window(started_ns, started_ns, started_ns + needed_ns)
            assert energy.counter_power(PowerReadings(NOTHING, NOTHING, counted, NOTHING), window, known) is not None


def test_with_its_period_known_the_counter_is_exact_where_readings_keep_step_with_it() -> None:
    readings = sensed(300, update_ms=100, read_ms=100, phase=0.4, noise=0.001, seed=0)
    alone = energy.counter_power(readings, WINDOW, {})
    calibrated = energy.counter_power(readings, WINDOW, {COUNTER: SensorTraits(0.1, 0.1)})
    assert alone is not None
    assert calibrated is not None
    assert calibrated.value == pytest.approx(300, rel=1e-3)
    assert calibrated.standard_error < 0.05 * alone.standard_error


def test_a_counter_that_went_backwards_is_not_used() -> None:
    readings = sensed(300, update_ms=100, read_ms=100, phase=0.4, noise=0.001, seed=0)
    middle = readings.counter.time_ns > (START_NS + END_NS) / 2
    wrapped = Series(readings.counter.time_ns, readings.counter.value - 2000 * middle)
    again = PowerReadings(readings.instant, readings.average, wrapped, readings.samples)
    assert energy.counter_wrapped(again, WINDOW)
    assert not energy.counter_wrapped(readings, WINDOW)
    assert "counter" not in energy.estimate_all(again, WINDOW, {})


def test_what_estimators_differ_by_beyond_their_errors_is_an_error_too() -> None:
    agreeing = {"counter": Estimate(300, 1, 9), "samples": Estimate(300.5, 1, 50)}
    differing = {"counter": Estimate(300, 0.1, 9), "samples": Estimate(306, 0.1, 50)}
    assert energy.between_estimators(agreeing) == 0
    assert energy.between_estimators(differing) == pytest.approx(6 / np.sqrt(2), rel=0.01)
    assert energy.between_estimators({"counter": Estimate(300, 1, 9)}) == 0


def test_the_quickest_sensor_shows_changes() -> None:
    readings = sensed(300, update_ms=100, read_ms=100, phase=0.4, noise=0.01, seed=0)
    assert energy.quickest(readings, {})[0] is readings.samples
    known = {INSTANT: SensorTraits(0.1, 0.1), AVERAGE: SensorTraits(0.1, None), RING: SensorTraits(0.02, 2.0)}
    assert energy.quickest(readings, known)[1] == known[INSTANT]  # an average of unknown length is a long one
    slow_ring = {RING: SensorTraits(0.02, 1.0), INSTANT: SensorTraits(0.1, 0.025)}
    assert energy.quickest(readings, slow_ring)[1] == slow_ring[INSTANT]


def test_the_counter_needs_two_ticks() -> None:
    still = Series(np.arange(START_NS, END_NS, 10**8), np.full(12, 5.0))
    assert energy.counter_power(PowerReadings(NOTHING, NOTHING, still, NOTHING), WINDOW, {}) is None


def test_no_readings_give_no_estimates() -> None:
    assert energy.estimate_all(PowerReadings(NOTHING, NOTHING, NOTHING, NOTHING), WINDOW, {}) == {}
    assert energy.choose({}) is None
    assert energy.thesis_power(PowerReadings(NOTHING, NOTHING, NOTHING, NOTHING), WINDOW) is None


def test_the_smallest_error_is_chosen() -> None:
    estimates = {"counter": Estimate(100, 4, 10), "samples": Estimate(101, 0.2, 60)}
    assert energy.choose(estimates) == ("samples", Estimate(101, 0.2, 60))


@pytest.mark.parametrize(
    ("other", "flagged"),
    [(Estimate(104, 0.1, 9), True), (Estimate(102, 0.1, 9), False), (Estimate(104, 3, 9), False)],
)
def test_disagreement_is_flagged_beyond_three_percent_and_the_errors(other: Estimate, flagged: bool) -> None:
    assert energy.disagree({"instant": Estimate(100, 0.1, 9), "counter": other}) is flagged


def test_the_thesis_leaves_out_what_is_beyond_three_sigma() -> None:
    times = np.arange(START_NS, START_NS + 100 * 10**7, 10**7)
    value = np.full(100, 50.0)
    value[::2] += 0.5
    value[50] = 500.0
    estimate = energy.thesis_power(PowerReadings(NOTHING, Series(times, value), NOTHING, NOTHING), WINDOW)
    assert estimate is not None
    assert estimate.samples == 99
    assert estimate.value == pytest.approx(50.25, abs=0.01)
    assert estimate.standard_error == pytest.approx(0.25, rel=0.02)  # deviation of the readings, not of their mean
