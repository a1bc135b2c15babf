import numpy as np
import pytest

from clockwatt.predict.grouped import (
    CONFORMAL,
    STUDENT_T,
    grouped_interval,
    left_out_inside,
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
