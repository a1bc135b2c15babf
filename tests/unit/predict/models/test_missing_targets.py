"""Costs that only some rows have: each is learnt from the rows that have it, by forests side by side."""

import numpy as np
import pandas as pd
import pytest

from clockwatt.predict.features import OPERATION_CLASS, POWER_LIMIT, ROOFLINE_TIME
from clockwatt.predict.models import predictors
from clockwatt.predict.models.predictors import RooflinePredictor, XgboostPredictor
from clockwatt.predict.models.trees import Trees

ROWS = 60


@pytest.fixture
def data(monkeypatch):
    monkeypatch.setattr(predictors, "FEWEST_ENERGIES", ROWS)  # what is not known stays so
    rng = np.random.default_rng(0)
    size = rng.uniform(1, 9, ROWS)
    features = pd.DataFrame(
        {"size": size, ROOFLINE_TIME: 1e-6 * size, POWER_LIMIT: 100.0, OPERATION_CLASS: "conv2d"}
    )  # fmt: skip
    time_s = 3e-6 * size
    targets = pd.DataFrame(
        {
            "time_device_corrected_s": time_s,
            "time_host_corrected_s": np.full(ROWS, 1e-5) * (1 + size / 10),
            "energy_dynamic_corrected_j": 50.0 * time_s,
        }
    )
    return features, targets


def test_rows_of_times_alone_teach_time_and_leave_energy_as_it_was(data):
    features, targets = data
    with_energy = np.arange(ROWS) < ROWS // 2
    of_both = RooflinePredictor(trees=20, jobs=1).fit(features[with_energy], targets[with_energy])
    partly = targets.copy()
    partly.loc[~with_energy, "energy_dynamic_corrected_j"] = np.nan
    found = RooflinePredictor(trees=20, jobs=1).fit(features, partly).predict(features)
    assert list(found.columns) == list(targets.columns)
    times = found["time_device_corrected_s"][~with_energy] / targets["time_device_corrected_s"][~with_energy]
    # seen, and trees without bootstrap repeat what they saw, as far as leaves are told
    assert np.abs(times - 1).max() < 5e-4
    energies = found["energy_dynamic_corrected_j"][with_energy]
    np.testing.assert_allclose(energies, targets["energy_dynamic_corrected_j"][with_energy], rtol=5e-4)
    alone = of_both.predict(features)["time_device_corrected_s"][~with_energy]
    assert np.abs(alone / targets["time_device_corrected_s"][~with_energy] - 1).max() > 1e-3


@pytest.mark.parametrize(("made", "shared"), [(RooflinePredictor, True), (XgboostPredictor, False)])
def test_times_of_the_rows_that_have_energy_help_to_choose_its_splits(data, made, shared):
    features, targets = data
    features = features.assign(other=np.random.default_rng(1).uniform(1, 9, ROWS))
    with_energy = np.arange(ROWS) < ROWS // 2
    targets.loc[~with_energy, "energy_dynamic_corrected_j"] = np.nan
    others = targets.copy()
    others.loc[with_energy, "time_device_corrected_s"] = targets["time_device_corrected_s"][with_energy].to_numpy()[
        ::-1
    ]
    energies, with_others = (
        made(trees=5, jobs=1).fit(features, taught).predict(features)["energy_dynamic_corrected_j"][~with_energy]
        for taught in (targets, others)
    )
    assert energies.equals(with_others) != shared
    learnt = targets["energy_dynamic_corrected_j"][with_energy]
    assert energies.between(0.5 * learnt.min(), 2 * learnt.max()).all()


def test_a_cost_that_no_row_has_is_not_learnt(data):
    features, targets = data
    found = RooflinePredictor(trees=5, jobs=1).fit(features, targets.assign(energy_dynamic_corrected_j=np.nan))
    assert list(found.predict(features).columns) == ["time_device_corrected_s", "time_host_corrected_s"]


def test_the_spread_is_that_of_an_outputs_own_trees_where_forests_stand_side_by_side(data):
    from sklearn.ensemble import RandomForestRegressor

    features, targets = data
    matrix = features[["size"]].to_numpy(np.float32)
    learnt = np.log(targets.to_numpy(float))
    forests = [
        RandomForestRegressor(7, random_state=7).fit(matrix, learnt[:, [0, 2]]),
        RandomForestRegressor(13, random_state=13).fit(matrix, learnt[:, 1]),
    ]
    together = Trees.side_by_side(
        [(np.array([0, 2]), Trees.from_forest(forests[0])), (np.array([1]), Trees.from_forest(forests[1]))], 3
    )
    mean, spread = together.mean_and_spread(matrix)
    np.testing.assert_allclose(mean, together.predict(matrix), rtol=1e-6)
    for forest, columns in zip(forests, ([0, 2], [1]), strict=True):
        each = np.stack([tree.predict(matrix).reshape(ROWS, -1) for tree in forest.estimators_])
        np.testing.assert_allclose(mean[:, columns], each.mean(axis=0), rtol=1e-5)
        np.testing.assert_allclose(spread[:, columns], each.std(axis=0), atol=1e-4)
