import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clockwatt.config import OperatingPoint
from clockwatt.predict.models.clock_law import (
    LEARNT_CLOCKS,
    ClockLaw,
    CostLaw,
    evaluate_law,
    fit_law,
    learnt_points,
    neighbours,
    power_terms,
    time_terms,
)
from clockwatt.predict.models.predictors import TARGETS

CLOCKS = np.array([600.0, 900.0, 1200.0, 1440.0])
COEFFICIENTS = st.one_of(st.just(0.0), st.floats(1e-3, 1e3))


@given(a=st.floats(1e-3, 1e3), b=COEFFICIENTS)
def test_time_law_is_found_again(a, b):
    truth = np.array([[a, b]])
    values = evaluate_law(truth, time_terms(CLOCKS))
    found = evaluate_law(fit_law(time_terms(CLOCKS), values), time_terms(np.array([750.0])))
    np.testing.assert_allclose(found, evaluate_law(truth, time_terms(np.array([750.0]))), rtol=1e-6)


@given(p0=st.floats(1, 100), c1=st.floats(0, 0.2), c4=st.floats(0, 1e-10))
def test_power_law_is_found_again(p0, c1, c4):
    truth = np.array([[p0, c1, c4]])
    values = evaluate_law(truth, power_terms(CLOCKS))
    found = evaluate_law(fit_law(power_terms(CLOCKS), values), power_terms(np.array([1000.0])))
    np.testing.assert_allclose(found, evaluate_law(truth, power_terms(np.array([1000.0]))), rtol=1e-5)


@given(st.lists(st.floats(0.1, 10), min_size=4, max_size=4))
def test_coefficients_are_never_negative(values):
    for terms in (time_terms(CLOCKS), power_terms(CLOCKS)):
        assert (fit_law(terms, np.array([values])) >= 0).all()


def test_time_that_rises_with_the_clock_is_taken_as_constant():
    laws = fit_law(time_terms(CLOCKS), np.array([[1.0, 1.1, 1.2, 1.3]]))
    assert laws[0, 0] == 0
    assert 1.0 < laws[0, 1] < 1.3


def test_too_few_clocks_are_refused():
    with pytest.raises(ValueError, match="3 coefficients"):
        fit_law(power_terms(CLOCKS[:2]), np.ones((1, 2)))


@given(st.lists(st.floats(0.1, 10), min_size=4, max_size=4))
def test_measured_clocks_come_back_as_measured(values):
    for terms in (time_terms, power_terms):
        law = ClockLaw.fit(terms, CLOCKS, np.array([values]))
        for clock, value in zip(CLOCKS, values, strict=True):
            assert law.at(clock)[0] == pytest.approx(value)


def test_what_the_law_misses_is_carried_over_between_clocks():
    # a memory that slows below 1000 MHz: no a/f + b falls that steeply
    values = np.array([[3.2, 3.0, 1.05, 1.0]])
    law = ClockLaw.fit(time_terms, CLOCKS, values)
    plain = evaluate_law(law.coefficients, time_terms(np.array([750.0])))[0, 0]
    assert abs(plain - 3.1) > 0.5
    assert law.at(750.0)[0] == pytest.approx(3.1, abs=0.35)
    assert law.at(400.0)[0] == pytest.approx(
        evaluate_law(law.coefficients, time_terms(np.array([400.0])))[0, 0] * np.exp(law.log_residuals[0, 0])
    )


def test_costs_between_clocks_follow_the_laws():
    def at(clock):
        time, dynamic = 1 / clock + 1e-4, 2e-11 * clock**4
        values = {"time_device_corrected_s": time, "time_host_corrected_s": 1e-5, "time_eager_corrected_s": time}
        values |= {"energy_dynamic_corrected_j": dynamic * time, "power_corrected_w": 30 + dynamic}
        return pd.DataFrame(values, index=["x"])[list(TARGETS)]

    found = CostLaw({clock: at(clock) for clock in CLOCKS}).at(1000.0)
    np.testing.assert_allclose(found.to_numpy(float), at(1000.0).to_numpy(float), rtol=1e-6)


def test_neighbours_differ_in_the_clock_alone():
    measured = ["default", "sm900", "sm1200", "sm1200-pl150", "pl150"]
    assert neighbours(OperatingPoint(1000), measured) == ["sm900", "sm1200"]
    assert neighbours(OperatingPoint(1000, None, 150), measured) == ["sm1200-pl150"]


def test_of_many_clocks_some_are_learnt_from_and_the_ends_are_among_them():
    few = [f"sm{clock}" for clock in range(600, 600 + 100 * LEARNT_CLOCKS, 100)]
    assert learnt_points([*few, "default"]) == [*few, "default"]
    many = [f"sm{clock}" for clock in range(600, 1600, 25)]
    learnt = learnt_points(["default", *many, "sm900-pl150"])
    assert {"default", "sm900-pl150", many[0], many[-1]} <= set(learnt)
    assert len(learnt) == 2 + LEARNT_CLOCKS
