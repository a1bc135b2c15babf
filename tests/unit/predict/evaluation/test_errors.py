import numpy as np
import pytest

from clockwatt.predict.evaluation.errors import (
    ANY_CLASS,
    CONFORMAL,
    STUDENT_T,
    Interval,
    class_intervals,
    conformal_interval,
    grouped_interval,
    left_out_inside,
    metrics,
)


def classes_left_out(residuals, classes, groups, fold):
    """Whether rows lie in the intervals that the other folds give their classes."""
    return left_out_inside(
        residuals, fold, lambda rows: class_intervals(residuals[rows], classes[rows], groups[rows]), classes
    )


def groups_left_out(residuals, groups):
    """Whether rows lie in the interval that the other groups give."""
    return left_out_inside(residuals, groups, lambda rows: {ANY_CLASS: grouped_interval(residuals[rows], groups[rows])})


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
    assert groups_left_out(residuals, groups).tolist() == [1, 1, 1, 0]
    assert np.isnan(groups_left_out(residuals[:1], groups[:1])).all()


def test_interval_contains_new_residuals_as_often_as_it_says():
    rng = np.random.default_rng(0)
    inside = []
    for _ in range(400):
        interval = conformal_interval(rng.standard_normal(99))
        fresh = np.exp(rng.standard_normal(50))
        inside.append(np.mean((fresh >= interval.lower) & (fresh <= interval.upper)))
    assert np.mean(inside) == pytest.approx(0.9, abs=0.01)


def test_interval_of_few_residuals_is_their_range():
    interval = conformal_interval(np.log([0.8, 1.0, 1.3]))
    assert (interval.lower, interval.upper) == pytest.approx((0.8, 1.3))


def test_coverage_is_judged_on_folds_that_did_not_make_the_interval():
    residuals = np.concatenate([np.linspace(-0.1, 0.1, 50), np.linspace(-5, 5, 50)])
    classes = np.array(["conv2d"] * 100, dtype=object)
    groups = np.arange(100).astype(object)
    assert classes_left_out(residuals, classes, groups, np.repeat([0, 1], 50)).mean() == pytest.approx(0.5, abs=0.03)
    assert np.isnan(classes_left_out(residuals, classes, groups, np.zeros(100, dtype=np.int64))).all()


def test_a_class_with_enough_groups_has_an_interval_of_its_own():
    rng = np.random.default_rng(0)
    residuals = np.concatenate([0.01 * rng.standard_normal(200), rng.standard_normal(200), [0.0]])
    classes = np.array(["relu"] * 200 + ["conv2d"] * 200 + ["roll"], dtype=object)
    groups = np.arange(401).astype(object)
    found = class_intervals(residuals, classes, groups)
    assert set(found) == {ANY_CLASS, "relu", "conv2d"}
    assert found["relu"].upper < found["conv2d"].upper
    assert found[ANY_CLASS].lower == found[ANY_CLASS].upper == 1, "the one row of the other classes"
    assert set(class_intervals(residuals, classes, groups // 10)) == {ANY_CLASS}
    inside = classes_left_out(residuals, classes, groups, rng.integers(0, 10, 401))
    for name in ("relu", "conv2d"):
        assert inside[classes == name].mean() == pytest.approx(0.9, abs=0.04)


def test_a_row_that_errs_twice_as_much_has_factors_that_reach_twice_as_far():
    interval = conformal_interval(np.log([0.8, 1.0, 1.25]), groups=3)
    assert interval == Interval(pytest.approx(0.8), pytest.approx(1.25), CONFORMAL, 3)
    assert interval.factors() == pytest.approx((0.8, 1.25))
    lower, upper = interval.factors(np.array([1.0, 2.0]))
    assert (lower.tolist(), upper.tolist()) == (pytest.approx([0.8, 0.64]), pytest.approx([1.25, 1.5625]))


def test_metrics():
    values = metrics(np.array([1.0, 2.0, 4.0, np.nan, 0.0]), np.array([1.1, 1.8, 4.0, 1.0, 1.0]))
    assert values["rows"] == 3
    assert values["mape"] == pytest.approx(0.2 / 3)
    assert values["median_ape"] == pytest.approx(0.1)
    assert values["bias"] == pytest.approx(0.0, abs=1e-12)
    assert values["r2"] == pytest.approx(1 - 0.05 / 4.6667, rel=1e-3)
    assert metrics(np.array([]), np.array([]))["mape"] is None
