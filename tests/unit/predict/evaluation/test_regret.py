"""Regrets of choosing an operating point, on numbers that can be told by hand."""

import math

import pandas as pd
import pytest

from clockwatt.predict.evaluation.errors import regrets


def compositions(*rows):
    """Of (network, point, measured time, measured energy, predicted time, predicted energy)."""
    names = ["network_id", "point", "measured_time_s", "measured_energy_j", "time_s", "energy_j"]
    return pd.DataFrame(rows, columns=names).assign(**{"pass": "inference", "execution": "tf32"})


MEASURED = (
    ("a", "sm900", 2.0, 3.0, 2.1, 3.0),
    ("a", "sm1400", 1.0, 4.0, 1.1, 2.9),
    ("b", "sm900", 3.0, 3.0, 1.0, 3.1),
    ("b", "sm1400", 1.0, 3.3, 1.1, 3.2),
)


def test_a_choice_costs_what_was_measured_there_over_the_least():
    by_objective = {found.objective: found for found in regrets(compositions(*MEASURED))}
    assert set(by_objective) == {"time", "energy", "edp"}
    time, energy = by_objective["time"], by_objective["energy"]
    assert time.at_points.columns[time.predicted].tolist() == ["sm1400", "sm900"]
    assert time.of(time.predicted).tolist() == pytest.approx([0.0, 2.0])
    assert time.at_points.columns[time.fixed] == "sm1400"
    assert energy.of(energy.predicted).tolist() == pytest.approx([1 / 3, 0.0])
    assert energy.at_points.columns[energy.fixed] == "sm900"


def test_networks_that_lack_a_point_do_not_count():
    found = {one.objective: one for one in regrets(compositions(*MEASURED[:3]))}
    assert found["time"].at_points.index.tolist() == ["a"]
    assert list(regrets(compositions(*MEASURED[1:3]))) == []


def test_a_point_at_which_an_objective_was_not_measured_at_all_takes_no_network_with_it():
    timed = [(name, "sm1100", 0.5, math.nan, 0.4, 1.0) for name in "ab"]
    found = {one.objective: one for one in regrets(compositions(*MEASURED, *timed))}
    assert found["time"].at_points.columns.tolist() == ["sm1100", "sm1400", "sm900"]
    assert found["energy"].at_points.columns.tolist() == ["sm1400", "sm900"]
    assert found["energy"].of(found["energy"].predicted).tolist() == pytest.approx([1 / 3, 0.0])
