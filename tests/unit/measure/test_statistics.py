import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clockwatt.measure.statistics import NORMAL_95, Estimate, halves_agree, mean_estimate, median_estimate
from clockwatt.measure.steps.load import LIMITER_PERIOD, MAX_DURATION, PRECISION, PrecisionRule, SteadyRule


def autoregressive(correlation: float, size: int, rng: np.random.Generator) -> np.ndarray:
    noise = rng.standard_normal(size)
    series = np.empty(size)
    series[0] = noise[0]
    for i in range(1, size):
        series[i] = correlation * series[i - 1] + np.sqrt(1 - correlation**2) * noise[i]
    return 100 + series


@pytest.mark.parametrize("correlation", [0.0, 0.4, 0.7])
def test_the_error_of_a_mean_is_honest_for_correlated_samples(correlation: float) -> None:
    rng = np.random.default_rng(1)
    inside = 0
    for _ in range(400):
        estimate = mean_estimate(autoregressive(correlation, 100, rng))
        assert estimate is not None
        inside += abs(estimate.value - 100) <= 1.96 * estimate.standard_error
    assert 0.88 <= inside / 400 <= 0.99


def test_a_median_shrugs_off_interrupts() -> None:
    values = np.full(50, 10e-6)
    values[::2] *= 1.01
    values[7] = 5e-3
    estimate = median_estimate(values)
    assert estimate is not None
    assert estimate.value == pytest.approx(10.05e-6, rel=0.01)
    assert estimate.standard_error < 0.1e-6


@given(st.lists(st.floats(-1e6, 1e6), max_size=1))
def test_one_value_has_no_error(values: list[float]) -> None:
    assert mean_estimate(values) is None
    assert median_estimate(values) is None


@given(st.lists(st.floats(1e-9, 1e6), min_size=2, max_size=50))
def test_estimates_lie_among_their_samples(values: list[float]) -> None:
    for estimate in (mean_estimate(values), median_estimate(values)):
        assert estimate is not None
        assert min(values) * (1 - 1e-9) <= estimate.value <= max(values) * (1 + 1e-9)
        assert estimate.standard_error >= 0
        assert estimate.samples == len(values)


def test_nothing_is_precise_about_zero() -> None:
    assert Estimate(0.0, 0.0, 5).relative_half_width == float("inf")


PRECISE, VAGUE = Estimate(200.0, 0.1, 30), Estimate(200.0, 20.0, 3)


def test_measuring_stops_when_time_and_power_are_precise_but_not_before_the_minimum() -> None:
    rule = PrecisionRule(precision=0.02, min_s=0.8, max_s=1.2)
    steady, noisy = [1.0, 1.001] * 10, [1.0, 2.0] * 10
    assert rule.reason(0.5, steady, PRECISE) is None
    assert rule.reason(0.9, steady, PRECISE) == PRECISION
    assert rule.reason(0.9, steady, VAGUE) is None
    assert rule.reason(0.9, steady, None) is None
    assert rule.reason(0.9, noisy, PRECISE) is None
    assert rule.reason(0.9, [1.0], PRECISE) is None
    assert rule.reason(1.2, noisy, VAGUE) == MAX_DURATION


def test_at_the_power_limit_whole_periods_count_and_the_minimum_still_holds() -> None:
    def reason(rule: PrecisionRule, elapsed_s: float) -> str | None:
        return rule.reason(elapsed_s, [1.0, 1.001] * 10, PRECISE, power_limited=True)

    assert reason(PrecisionRule(0.02, 0.5, 1.0), 0.9) is None
    assert reason(PrecisionRule(0.02, 0.5, 1.0), 1.0) == LIMITER_PERIOD
    assert reason(PrecisionRule(0.02, 4.0, 4.0), 1.5) is None
    assert reason(PrecisionRule(0.02, 4.0, 4.0), 4.0) == LIMITER_PERIOD
    assert reason(PrecisionRule(0.02, 0.1, 0.2), 0.2) == MAX_DURATION


@given(
    level=st.floats(1, 1000),
    noise=st.floats(0.0, 0.02),
    change=st.sampled_from([0.0, 0.001, 0.1, 0.5, -0.2]),
    size=st.integers(8, 200),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_ramp_is_a_trend_and_noise_is_none(level: float, noise: float, change: float, size: int, seed: int) -> None:
    values = level * (1 + change * np.linspace(0, 1, size))
    values *= 1 + noise * np.random.default_rng(seed).standard_normal(size) / np.sqrt(size)
    assert halves_agree(values, 0.02) is (abs(change) < 0.01)


def test_a_load_is_steady_when_time_power_and_clock_are() -> None:
    rule = SteadyRule(min_s=0.3, max_s=2.0)
    still, rising = [100.0, 100.1] * 5, list(np.linspace(100, 120, 10))
    assert rule.steady(still, still, still)
    assert not rule.steady(rising, still, still)
    assert not rule.steady(still, rising, still)
    assert not rule.steady(still, still, rising)
    assert not rule.steady(still, [], still)  # nothing is known of the power


@given(
    correlation=st.sampled_from([0.0, 0.4, 0.8]), samples=st.sampled_from([4, 8, 25, 100]), seed=st.integers(0, 10_000)
)
@settings(max_examples=20, deadline=None)
def test_the_interval_of_a_mean_holds_the_truth_for_few_and_for_correlated_samples(
    correlation: float, samples: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal((400, samples + 50))
    for column in range(1, noise.shape[1]):
        noise[:, column] = correlation * noise[:, column - 1] + np.sqrt(1 - correlation**2) * noise[:, column]
    estimates = [mean_estimate(series) for series in noise[:, 50:]]
    covered = np.mean([abs(e.value) <= NORMAL_95 * e.standard_error for e in estimates if e is not None])
    # the correlation of few samples is not known: 0.6 of four that hang together, but never less than what is allowed
    independent = samples * (1 - correlation) / (1 + correlation)
    assert covered >= (0.88 if independent >= 8 or correlation == 0 else 0.5)
