"""Energy of calls that the power limit slows, told from the clock that they ran at."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clockwatt.dataset.unthrottled import COLUMNS, ERROR_BELOW, FEWEST, UnthrottledEnergy, telling
from clockwatt.schema.flags import Flag
from clockwatt.schema.records import INFERENCE, TRAINING

TOP_MHZ = 2000.0
MEASURED_J, MEASURED_ERROR_J = "energy_dynamic_j", "energy_dynamic_standard_error_j"
VALUE, ERROR = "energy_j", "standard_error_j"


def law(relative):
    """Energy with pauses over that without: more the lower the limit brings the clock."""
    return 1 + 2 * (1 - relative)


def row(relative=1.0, ratio=None, energy_j=2.0, top_mhz=TOP_MHZ, **changes):
    """A call at a share of the highest clock; measured with pauses too where a ratio is given."""
    paced_j = None if ratio is None else ratio * energy_j
    return {
        "subject_id": f"operation at {relative}", "pass": INFERENCE, "point": "default", "flags": [Flag.POWER_CAPPED],
        "sm_clock_median_mhz": relative * top_mhz,
        "energy_dynamic_j": energy_j, "energy_dynamic_standard_error_j": 0.01 * energy_j,
        "energy_dynamic_unthrottled_j": paced_j,
        "energy_dynamic_unthrottled_standard_error_j": None if paced_j is None else 0.02 * abs(paced_j), **changes,
    }  # fmt: skip


def both_ways(relative, **changes):
    """Calls at these clocks measured with pauses and without, as the law has it."""
    return [row(one, law(one), energy_j=1.0 + number, **changes) for number, one in enumerate(relative)]


LOWERED = [0.70, 0.74, 0.78, 0.82, 0.86, 0.90, 0.94, 0.98]
assert len(LOWERED) == FEWEST


def told(rows, believed=True):
    parts = [rows.iloc[:3], rows.iloc[3:]]  # as they come in batches
    believed = pd.Series(believed, index=rows.index)
    return UnthrottledEnergy.learn([telling(part, believed[part.index]) for part in parts]).of(rows[COLUMNS])


def last(*rows):
    """What is said of the last row."""
    return told(pd.DataFrame(list(rows))).iloc[-1]


def as_measured(found, given=None):
    given = given or row()
    return (found[VALUE], found[ERROR]) == (given[MEASURED_J], given[MEASURED_ERROR_J])


def test_energy_with_pauses_is_what_counts():
    found = last(row(0.8, ratio=1.5))
    assert (found[VALUE], found[ERROR]) == pytest.approx((3.0, 0.06))


def test_energy_with_pauses_counts_of_calls_that_the_limit_does_not_slow_too():
    assert last(row(1.0, ratio=1.5, flags=None))[VALUE] == pytest.approx(3.0)


def test_without_pauses_the_energy_is_told_by_the_clock():
    for relative in LOWERED:
        found = last(row(), *both_ways(LOWERED), row(relative, energy_j=5.0))
        assert found[VALUE] == pytest.approx(5.0 * law(relative))
        assert found[ERROR] == pytest.approx(0.01 * found[VALUE]), "calls that keep to the law leave no doubt in it"


def test_between_two_clocks_the_energy_lies_between_what_is_told_by_both():
    found = last(row(), *both_ways(LOWERED), row(0.80))
    assert 2.0 * law(0.82) < found[VALUE] < 2.0 * law(0.78)


@pytest.mark.parametrize(("relative", "nearest"), [(0.3, 0.70), (0.989, 0.98)])
def test_beyond_the_clocks_measured_both_ways_the_nearest_tells(relative, nearest):
    found = last(row(), *both_ways(LOWERED), row(relative))
    assert found[VALUE] == pytest.approx(2.0 * law(nearest))


@pytest.mark.parametrize(
    "given",
    [row(0.8, flags=[]), row(0.8, flags=None), row(0.996), row(1.0), row(sm_clock_median_mhz=None)],
    ids=["no limit acted", "no flags", "clock hardly lowered", "full clock", "clock not known"],
)
def test_energy_of_calls_that_the_limit_did_not_slow_stays_as_measured(given):
    assert as_measured(last(row(), *both_ways(LOWERED), given), given)


@pytest.mark.parametrize("energy_j", [0.0, -2.0, None])
def test_energy_that_is_not_above_zero_stays_as_measured(energy_j):
    found = last(row(), *both_ways(LOWERED), row(0.8, **{MEASURED_J: energy_j}))[VALUE]
    assert np.isnan(found) if energy_j is None else found == energy_j


def test_too_few_calls_measured_both_ways_tell_nothing():
    at_full_clock = [row(1.0, ratio=1.0) for _ in range(FEWEST)]
    assert as_measured(last(*at_full_clock, *both_ways(LOWERED[1:]), row(0.8)))
    assert not as_measured(last(*at_full_clock, *both_ways(LOWERED), row(0.8)))


def test_repetitions_of_too_few_operations_tell_nothing():
    assert as_measured(last(row(), *both_ways(LOWERED[1:]), *both_ways(LOWERED[1:]), row(0.8)))


def test_what_is_not_believed_tells_nothing_but_may_be_told():
    rows = pd.DataFrame([row(), *both_ways(LOWERED), row(0.9, ratio=9.0), row(1.5), row(0.82)])
    found = told(rows, [True] * (len(LOWERED) + 1) + [False] * 3).iloc[-1]
    assert found[VALUE] == pytest.approx(2.0 * law(0.82))
    assert told(rows)[VALUE].iloc[-1] != pytest.approx(2.0 * law(0.82)), "a higher clock and a ratio beyond the law"


@pytest.mark.parametrize("changes", [{"pass": TRAINING}, {"point": "pl300"}])
def test_calls_tell_of_their_own_pass_and_operating_point_alone(changes):
    told_by = [row(**changes), *both_ways(LOWERED, **changes)]
    assert as_measured(last(row(), *told_by, row(0.8)))
    assert not as_measured(last(row(), *told_by, row(0.8, **changes)), row(0.8, **changes))


def test_each_operating_point_has_a_highest_clock_of_its_own():
    low = {"point": "sm1000", "top_mhz": 1000.0}
    rows = [row(), *both_ways(LOWERED), row(**low), *both_ways(LOWERED, **low)]
    assert last(*rows, row(0.82, **low))[VALUE] == pytest.approx(2.0 * law(0.82))
    assert as_measured(last(*rows, row(1.0, **low))), "1000 MHz are all that was asked for"


def test_the_highest_clock_of_a_point_is_that_of_all_its_passes():
    training = {"pass": TRAINING}
    found = last(row(), *both_ways(LOWERED, **training), row(0.98, **training))
    assert found[VALUE] == pytest.approx(2.0 * law(0.98))


@pytest.mark.parametrize(
    ("paced_j", "error_j"),
    [(9.0, ERROR_BELOW * 9.0 * 1.01), (9.0, None), (-1.0, 0.01), (0.0, 0.0)],
    ids=["vague", "of unknown error", "below idling", "as idling"],
)
def test_energy_with_pauses_that_is_not_believed_is_told_by_the_clock_and_tells_nothing(paced_j, error_j):
    paced = {"energy_dynamic_unthrottled_j": paced_j, "energy_dynamic_unthrottled_standard_error_j": error_j}
    assert last(row(), *both_ways(LOWERED), row(0.82, **paced))[VALUE] == pytest.approx(2.0 * law(0.82))
    assert as_measured(last(row(), *both_ways(LOWERED[1:]), row(0.7, **paced), row(0.8)))


def test_calls_that_scatter_about_the_law_leave_doubt_in_what_it_tells():
    scatter = 0.06
    rows = [one | {"energy_dynamic_unthrottled_j": one["energy_dynamic_unthrottled_j"] * np.exp(sign * scatter)}
            for one in both_ways(LOWERED) for sign in (-1, 1)]  # fmt: skip
    found = last(row(), *rows, row(0.82))
    assert found[VALUE] == pytest.approx(2.0 * law(0.82), rel=0.02)
    assert found[ERROR] / found[VALUE] == pytest.approx(np.hypot(0.01, scatter), rel=0.1)


def test_rows_keep_their_index():
    rows = pd.DataFrame([row(), *both_ways(LOWERED), row(0.82)], index=range(100, 0, -10))
    found = told(rows)
    assert found.index.tolist() == rows.index.tolist()
    assert found.loc[10, VALUE] == pytest.approx(2.0 * law(0.82))


def test_no_rows_are_no_trouble():
    assert told(pd.DataFrame([row()]).iloc[:0]).empty


@given(
    st.lists(
        st.tuples(st.floats(0.3, 0.98), st.floats(0.8, 2.0)), min_size=FEWEST, max_size=20, unique_by=lambda one: one[0]
    )
)
def test_whatever_was_measured_less_is_told_at_a_higher_clock_and_nothing_beyond_what_was_seen(drawn):
    asked = [row(relative) for relative in np.linspace(0.2, 0.98, 30)]
    given_rows = [row(), *(row(relative, ratio) for relative, ratio in drawn)]
    ratios = told(pd.DataFrame([*given_rows, *asked]))[VALUE].to_numpy()[-len(asked) :] / 2.0
    assert (np.diff(ratios) <= 1e-9).all()
    seen = [ratio for _, ratio in drawn]
    assert min(seen) * (1 - 1e-9) <= ratios.min() <= ratios.max() <= max(seen) * (1 + 1e-9)
