import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clockwatt.measure.statistics import Estimate, mean_estimate, median_estimate
from clockwatt.measure.stopping import MAX_DURATION, PRECISION, PrecisionRule


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


def test_measuring_stops_when_precise_but_not_before_the_minimum() -> None:
    rule = PrecisionRule(precision=0.02, min_s=0.8, max_s=1.2)
    steady, noisy = [1.0, 1.001] * 10, [1.0, 2.0] * 10
    assert rule.reason(0.5, steady) is None
    assert rule.reason(0.9, steady) == PRECISION
    assert rule.reason(0.9, noisy) is None
    assert rule.reason(0.9, [1.0]) is None
    assert rule.reason(1.2, noisy) == MAX_DURATION
