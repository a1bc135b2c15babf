"""Energies of operations whose time alone was measured."""

import numpy as np
import pandas as pd
import pytest

from clockwatt.predict.features import OPERATION_CLASS, POWER_LIMIT, ROOFLINE_TIME
from clockwatt.predict.models.predictors import FEWEST_ENERGIES, with_energies

TIME, ENERGY = "time_device_corrected_s", "energy_dynamic_corrected_j"
LIMIT_W = 700.0


@pytest.fixture
def measured():
    """Operations that draw 100 W, and 400 W more the more of the bandwidth they reach."""
    random = np.random.default_rng(0)
    time_s = 10 ** random.uniform(-5, -3, 600)
    share = random.uniform(0.05, 1.0, 600)
    features = pd.DataFrame({
        "log_compute_time": np.log2(1e-9 * np.ones(600)), "log_memory_time": np.log2(share * time_s),
        ROOFLINE_TIME: share * time_s, POWER_LIMIT: LIMIT_W, OPERATION_CLASS: "relu",
    })  # fmt: skip
    return features, pd.DataFrame({TIME: time_s, ENERGY: (100 + 400 * share) * time_s})


def test_power_follows_what_is_reached_of_the_bandwidth(measured):
    features, targets = measured
    asked = targets.copy()
    asked.loc[300:, ENERGY] = np.nan
    filled = with_energies(features, asked, seed=0)
    pd.testing.assert_series_equal(filled.loc[:299, ENERGY], targets.loc[:299, ENERGY])
    off = np.abs(filled.loc[300:, ENERGY] / targets.loc[300:, ENERGY] - 1)
    assert off.median() < 0.03
    assert off.quantile(0.9) < 0.1
    assert asked.loc[300:, ENERGY].isna().all()  # what was given is left as it was


def test_what_has_no_time_gets_no_energy(measured):
    features, targets = measured
    asked = targets.copy()
    asked.loc[300:, :] = np.nan
    assert with_energies(features, asked, seed=0).loc[300:, ENERGY].isna().all()


def test_with_too_few_energies_none_is_told(measured):
    features, targets = measured
    asked = targets.copy()
    asked.loc[FEWEST_ENERGIES - 1 :, ENERGY] = np.nan
    pd.testing.assert_frame_equal(with_energies(features, asked, seed=0), asked)
    pd.testing.assert_frame_equal(with_energies(features, targets[[TIME]], seed=0), targets[[TIME]])
