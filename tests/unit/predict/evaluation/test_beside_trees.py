"""What perceptrons are worth is told by operations held out, and intervals become as narrow as that says."""

import numpy as np
import pandas as pd
import pytest

from clockwatt.predict.evaluation.beside_trees import as_wide_as, judge_perceptrons
from clockwatt.predict.evaluation.intervals import ANY_CLASS, Interval
from clockwatt.predict.models import perceptrons, predictors
from clockwatt.predict.models.predictors import TARGETS, RooflinePredictor
from clockwatt.predict.models.training_data import TrainingData

DEVICE = "time_device_corrected_s"


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Small ones, that learn in a second."""
    for name, value in (("WIDTH", 32), ("DEPTH", 3), ("EPOCHS", 40), ("BATCH", 64)):
        monkeypatch.setattr(perceptrons, name, value)
    monkeypatch.setattr(predictors, "LEAST_ROWS", 300)


def data(rows, *, lent=0, seed=0):
    """Products of sizes, of which a forest sees stairs; the last ones lent by another GPU, and nonsense."""
    rng = np.random.default_rng(seed)
    matrix = rng.uniform(-1, 1, (rows, 4))
    features = pd.DataFrame(matrix, columns=[f"log_{name}" for name in "abcd"])
    features["operation_class"], features["roofline_time_s"], features["power_limit_w"] = "conv2d", 1e-4, 300.0
    seconds = 2e-4 * np.exp(matrix[:, 0] * matrix[:, 1] + 0.5 * matrix[:, 2])
    seconds[rows - lent :] *= 50
    cells = pd.DataFrame({"operation_id": [f"{seed}-{number}" for number in range(rows)]})
    return TrainingData(
        rows=cells.iloc[: rows - lent], usable=np.ones(rows - lent, bool), cells=cells, features=features,
        targets=pd.DataFrame(dict.fromkeys(TARGETS, seconds)),
        groups=pd.Series(rng.integers(0, 100, rows)).astype(str), learnt=np.ones(rows, bool), domain=None,
    )  # fmt: skip


def make():
    return RooflinePredictor(trees=4, leaf=20, perceptrons=2)


def test_operations_held_out_tell_how_much_nearer_perceptrons_come():
    found = judge_perceptrons(make, data(700), [data(300, seed=1)], seed=0)
    assert 80 < found.rows < 200
    assert found.median < 0.7 * found.forest_median
    assert found.percentile_90 < 0.8 * found.forest_90th
    assert 0.5 <= found.width < 0.8
    assert judge_perceptrons(make, data(700), [data(300, seed=1)], seed=0) == found
    assert judge_perceptrons(make, data(700), [], seed=1).rows != found.rows


def test_what_another_gpu_lent_is_not_what_they_are_judged_by():
    found = judge_perceptrons(make, data(900, lent=200), [], seed=0)
    assert found.rows < 0.3 * 700


def test_too_few_operations_are_not_judged():
    assert judge_perceptrons(make, data(340), [], seed=0) is None


def test_intervals_narrow_but_for_classes_that_are_left_to_the_forest():
    given = {ANY_CLASS: Interval(0.5, 2.0), "conv2d": Interval(0.25, 3.0), "lstm": Interval(0.2, 5.0)}
    found = as_wide_as(given, 0.5)
    assert found["conv2d"].lower == pytest.approx(0.5)
    assert found[ANY_CLASS].upper == pytest.approx(2**0.5)
    assert found["lstm"] == given["lstm"]
    assert found["gru"] == given[ANY_CLASS]
    assert set(found) == {ANY_CLASS, "conv2d", *predictors.LEFT_TO_TREES}
