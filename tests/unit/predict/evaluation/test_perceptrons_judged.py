"""What perceptrons are worth is told by operations held out, and intervals become as narrow as that says."""

import numpy as np
import pandas as pd
import pytest

from clockwatt.gpu.specs import find_spec
from clockwatt.predict.evaluation.errors import ANY_CLASS, Interval
from clockwatt.predict.evaluation.leave_out import as_wide_as, judge_perceptrons
from clockwatt.predict.models import neural_ensemble, predictors
from clockwatt.predict.models.predictors import TARGETS, RooflinePredictor
from clockwatt.predict.models.training_data import TrainingData

DEVICE = "time_device_corrected_s"


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Small ones, that learn in a second."""
    for name, value in (("WIDTH", 32), ("DEPTH", 3), ("EPOCHS", 40), ("BATCH", 64)):
        monkeypatch.setattr(neural_ensemble, name, value)
    monkeypatch.setattr(predictors, "LEAST_ROWS", 300)


def data(rows, *, lent=0, seed=0, groups=300):
    """Products of sizes, of which a forest sees stairs; the last ones lent by another GPU, and nonsense."""
    rng = np.random.default_rng(seed)
    matrix = rng.uniform(-1, 1, (rows, 4))
    features = pd.DataFrame(matrix, columns=[f"log_{name}" for name in "abcd"])
    features["operation_class"], features["roofline_time_s"], features["power_limit_w"] = "conv2d", 1e-4, 300.0
    seconds = 2e-4 * np.exp(matrix[:, 0] * matrix[:, 1] + 0.5 * matrix[:, 2])
    seconds[rows - lent :] *= 50
    # what is lent is of an operation of the own, at the other setting
    ids = [f"{seed}-{number % (rows - lent)}" for number in range(rows)]
    cells = pd.DataFrame(
        {"operation_id": ids, "point": "default", "execution": [number < rows - lent for number in range(rows)]}
    )
    return TrainingData(
        pass_="inference", spec=find_spec("a30"),
        rows=cells.iloc[: rows - lent], usable=np.ones(rows - lent, bool), cells=cells, features=features,
        targets=pd.DataFrame(dict.fromkeys(TARGETS, seconds)),
        groups=pd.Series(rng.integers(0, groups, rows)).astype(str), learnt=np.ones(rows, bool), domain=None,
    )  # fmt: skip


def make():
    return RooflinePredictor(trees=4, leaf=20, perceptrons=2)


class Spied(RooflinePredictor):
    """Keeps what it is taught."""

    def fit(self, *given):
        Spied.taught, _, Spied.beside = given
        return super().fit(*given)


def test_operations_held_out_tell_how_much_nearer_perceptrons_come():
    found = judge_perceptrons(make, data(700), data(300, seed=1), seed=0)
    assert found["median"] < 0.7 * found["forest_median"]
    assert found["percentile_90"] < 0.8 * found["forest_percentile_90"]
    assert 0.5 <= found["width"] < 0.8
    assert judge_perceptrons(make, data(700), data(300, seed=1), seed=0) == found


def test_nothing_is_judged_that_was_learnt_lent_or_left_to_the_forest():
    own, other = data(900, lent=200), data(300, seed=1)
    own.features.loc[:99, "operation_class"] = "div"
    found = judge_perceptrons(lambda: Spied(trees=4, leaf=20, perceptrons=2), own, other, seed=0)
    taught, beside = own.groups[Spied.taught.index], other.groups[Spied.beside[0].index]
    held = set(own.groups) - set(taught)
    assert 40 < len(held) < 80
    assert not held & set(beside)
    assert len(Spied.taught) == (~own.groups.isin(held)).sum()
    assert 200 < len(Spied.beside[0]) < 300  # some groups of it alone are held out, too
    assert found["rows"] == own.groups[100:700].isin(held).sum()


def test_few_groups_do_not_make_intervals_narrower():
    many, few = (judge_perceptrons(make, data(700, groups=groups), None, seed=0) for groups in (300, 100))
    assert many["width"] < 1
    assert few["width"] == 1.0  # about twenty are held out


@pytest.mark.parametrize("few", [data(340), data(700, groups=1)])
def test_too_few_operations_are_not_judged(few):
    assert [judge_perceptrons(make, few, None, seed=seed) for seed in range(4)] == [None] * 4


def test_intervals_narrow_but_for_classes_that_are_left_to_the_forest():
    given = {ANY_CLASS: Interval(0.5, 2.0), "conv2d": Interval(0.25, 3.0), "SGD": Interval(0.2, 5.0)}
    found = as_wide_as(given, 0.5)
    assert found["conv2d"].lower == pytest.approx(0.5)
    assert found[ANY_CLASS].upper == pytest.approx(2**0.5)
    assert found["SGD"] == given["SGD"]
    assert found["div"] == given[ANY_CLASS]
    assert set(found) == {ANY_CLASS, "conv2d", *predictors.FOREST_ONLY_CLASSES}
