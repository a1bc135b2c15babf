import numpy as np
import pytest

from clockwatt.predict.grouped import (
    CONFORMAL,
    STUDENT_T,
    WORST_GROUP,
    grouped_interval,
    left_out_inside,
    worst_group_interval,
)


def groups_of(count, rows, rng, freedom=3):
    """Residuals whose error is mostly that of their group, and the groups."""
    shared = np.repeat(rng.standard_t(freedom, count), rows)
    return 0.05 * shared + 0.005 * rng.standard_normal(count * rows), np.repeat(np.arange(count).astype(object), rows)


@pytest.mark.parametrize(("count", "method"), [(9, CONFORMAL), (15, CONFORMAL), (30, CONFORMAL), (3, STUDENT_T)])
def test_a_new_group_lies_inside_as_often_as_promised(count, method):
    rng = np.random.default_rng(1)
    inside = []
    for _ in range(1500):
        residuals, groups = groups_of(count + 1, 4, rng, freedom=3 if method == CONFORMAL else 1000)
        interval = grouped_interval(residuals[4:], groups[4:])
        inside.append(abs(residuals[0]) <= np.log(interval.upper))
        assert interval.method == method
        assert interval.groups == count
    assert 0.88 <= np.mean(inside) <= (0.99 if method == STUDENT_T else 0.94)


def test_rows_of_one_group_count_once():
    """As independent rows, the many small errors of one group would hide the large ones of others."""
    residuals = np.array([0.01] * 91 + [0.2] * 9)
    groups = np.array(["many"] * 91 + list("abcdefghi"), dtype=object)
    assert grouped_interval(residuals, groups).upper == pytest.approx(np.exp(0.2))
    assert np.quantile(residuals, 0.9) == pytest.approx(0.01)


@pytest.mark.parametrize("count", range(1, 9))
def test_too_few_groups_give_a_wider_interval_than_any_error_seen(count):
    residuals, groups = groups_of(count, 1, np.random.default_rng(count))
    interval = grouped_interval(residuals, groups)
    assert interval.method == STUDENT_T
    assert np.log(interval.upper) >= np.abs(residuals).max() * (1 - 1e-12)
    assert interval.lower == pytest.approx(1 / interval.upper)


def test_a_group_is_judged_by_the_others():
    residuals = np.array([0.01, 0.01, 0.01, 0.5])
    groups = np.array(["a", "b", "c", "d"], dtype=object)
    assert left_out_inside(residuals, groups).tolist() == [1, 1, 1, 0]
    assert np.isnan(left_out_inside(residuals[:1], groups[:1])).all()


@pytest.mark.parametrize("count", [2, 3, 8])
def test_a_new_group_is_held_unless_it_is_worse_than_all(count):
    """At least 90 % of its rows lie inside in all but 1 of n + 1 cases, however unlike the groups are."""
    rng, held = np.random.default_rng(2), []
    for _ in range(1200):
        residuals, groups = groups_of(count + 1, 40, rng)
        interval = worst_group_interval(residuals[40:], groups[40:])
        held.append(np.mean(np.abs(residuals[:40]) <= np.log(interval.upper) + 1e-12) >= 0.9)
        assert (interval.method, interval.groups) == (WORST_GROUP, count)
    assert count / (count + 1) - 0.04 <= np.mean(held) <= count / (count + 1) + 0.06


def test_many_groups_of_many_rows_give_the_conformal_interval():
    residuals, groups = groups_of(12, 30, np.random.default_rng(3))
    assert worst_group_interval(residuals, groups) == grouped_interval(residuals, groups)
    inside = left_out_inside(residuals, groups, worst_group_interval)
    assert set(inside) <= {0.0, 1.0}
