import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clockwatt.predict.crossval import ANY_CLASS, class_intervals, conformal_interval, grouped_folds, held_out_inside
from clockwatt.predict.metrics import metrics


@given(st.lists(st.integers(0, 30), min_size=1, max_size=200), st.integers(2, 15), st.integers(0, 5))
def test_a_group_stays_in_one_fold_and_no_fold_is_empty(groups, folds, seed):
    groups = pd.Series([f"g{group}" for group in groups])
    fold = grouped_folds(groups, folds, seed)
    assert pd.Series(fold).groupby(groups).nunique().max() == 1
    assert set(fold) == set(range(min(folds, groups.nunique())))
    assert (fold == grouped_folds(groups, folds, seed)).all()


def test_folds_are_of_nearly_equal_size():
    groups = pd.Series(np.repeat([f"g{number}" for number in range(60)], np.arange(1, 61)))
    sizes = np.bincount(grouped_folds(groups, 15, 0))
    assert sizes.max() - sizes.min() <= 10


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
    assert held_out_inside(residuals, classes, groups, np.repeat([0, 1], 50)).mean() == pytest.approx(0.5, abs=0.03)
    assert np.isnan(held_out_inside(residuals, classes, groups, np.zeros(100, dtype=np.int64))).all()


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
    inside = held_out_inside(residuals, classes, groups, rng.integers(0, 10, 401))
    for name in ("relu", "conv2d"):
        assert inside[classes == name].mean() == pytest.approx(0.9, abs=0.04)


def test_metrics():
    values = metrics(np.array([1.0, 2.0, 4.0, np.nan, 0.0]), np.array([1.1, 1.8, 4.0, 1.0, 1.0]))
    assert values["rows"] == 3
    assert values["mape"] == pytest.approx(0.2 / 3)
    assert values["median_ape"] == pytest.approx(0.1)
    assert values["bias"] == pytest.approx(0.0, abs=1e-12)
    assert values["r2"] == pytest.approx(1 - 0.05 / 4.6667, rel=1e-3)
    assert metrics(np.array([]), np.array([]))["mape"] is None
