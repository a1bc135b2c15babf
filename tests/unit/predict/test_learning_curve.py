"""Errors over how many operations were learnt from: fewer with more of them, on the same operations always."""

import numpy as np
import pandas as pd
import pytest

from clockwatt.figures import learning, predictions, style
from clockwatt.figures.load import gpus as gpus_of
from clockwatt.gpu.specs import find_spec
from clockwatt.predict.evaluation.leave_out import SHARES, cross_validate, learning_curve
from clockwatt.predict.models.predictors import TARGETS
from clockwatt.predict.models.training_data import TrainingData


class Nearest:
    """Says what the nearest operation took."""

    def fit(self, features, targets):
        self.x, self.targets = features["x"].to_numpy(), targets
        return self

    def predict_with_spread(self, features):
        nearest = np.abs(features["x"].to_numpy()[:, None] - self.x).argmin(axis=1)
        said = self.targets.iloc[nearest].set_index(features.index)
        return said, said * 0


def data(operations, groups=40):
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 10, operations)
    cells = pd.DataFrame(
        {"operation_id": [f"o{i}" for i in range(operations)], "point": "default", "execution": "tf32"}
    )
    targets = pd.DataFrame({name: np.exp(x) for name in TARGETS})
    return TrainingData(
        pass_="inference", spec=find_spec("a30"),
        rows=cells.assign(**targets), usable=np.ones(operations, bool), cells=cells,
        features=pd.DataFrame({"x": x}), targets=targets,
        groups=pd.Series(rng.integers(0, groups, operations)).astype(str), learnt=np.ones(operations, bool),
        domain=None,
    )  # fmt: skip


def curve_of(found, folds=5):
    validation = cross_validate(Nearest, found, folds=folds, seed=0)
    return validation, learning_curve(Nearest, found, validation, seed=0)


def test_more_operations_miss_by_less():
    found = data(2000)
    validation, curve = curve_of(found)
    judged = int((validation.fold == 0).sum())
    for target in TARGETS:
        errors = [step["targets"][target] for step in curve]
        assert [one["rows"] for one in errors] == [judged] * 4
        medians = [one["median_ape"] for one in errors]
        assert medians == sorted(medians, reverse=True)
        assert medians[-1] < medians[0] / 3
    operations = [step["operations"] for step in curve]
    assert operations[:3] == pytest.approx([share * (2000 - judged) for share in SHARES], rel=0.3)
    assert operations[3] == 1600


def test_what_another_gpu_lent_is_learnt_from_and_never_judged():
    found = data(2000)
    lent = found.cells["operation_id"].isin([f"o{i}" for i in range(1000)]).to_numpy(bool)
    object.__setattr__(found, "rows", found.rows[~lent])
    validation, curve = curve_of(found)
    own = int(((validation.fold == 0) & ~lent).sum())
    assert {step["targets"][TARGETS[0]]["rows"] for step in curve} == {own}


@pytest.mark.parametrize(("operations", "groups"), [(300, 40), (2000, 1)])
def test_too_little_to_tell_gives_no_curve(operations, groups):
    assert curve_of(data(operations, groups))[1] == []


def test_the_figure_has_each_error_and_says_when_there_is_none():
    _, curve = curve_of(data(2000))
    passes = {"inference": {"learning_curve": curve}, "training": {"rows": 0}}
    report = {"gpus": {"h200": {"gpu_name": "NVIDIA H200", "virtual": False, "passes": passes}}}
    quantities = (predictions.TIME, predictions.ENERGY)
    shown = learning.curves(report, quantities)
    assert len(shown) == 4 * 2
    with style.styled():
        (axes,) = learning.draw(shown, gpus_of(report), quantities).axes
        assert len(axes.lines) == 2 * 2
        nothing = learning.draw(shown.iloc[:0], gpus_of(report), quantities)
        assert "enough" in "".join(text.get_text() for text in nothing.texts)
