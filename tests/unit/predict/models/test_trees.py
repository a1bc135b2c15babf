import numpy as np
import pytest
import xgboost
from sklearn.ensemble import ExtraTreesRegressor

from clockwatt.predict.models.trees import Trees


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    features, targets = rng.random((120, 4)).astype(np.float32), rng.random((120, 2))
    forest = ExtraTreesRegressor(7, random_state=0).fit(features, targets)
    return forest, Trees.from_forest(forest), features


def test_predicts_what_scikit_learn_predicts(fitted):
    forest, trees, features = fitted
    fresh = np.random.default_rng(1).random((5000, 4)).astype(np.float32)
    for matrix in (features, fresh):
        np.testing.assert_allclose(trees.predict(matrix), forest.predict(matrix), rtol=1e-6)


def test_predicts_what_xgboost_predicts():
    rng = np.random.default_rng(0)
    # few distinct values, so that many fall on a threshold
    features, targets = rng.integers(0, 6, (400, 3)).astype(np.float32), rng.random((400, 2))
    boosters = [
        xgboost.train({"base_score": 0.0, "max_depth": 4}, xgboost.DMatrix(features, column), num_boost_round=9)
        for column in targets.T
    ]
    centre = np.array([3.0, -2.0])
    predicted = Trees.from_boosters(boosters, centre).predict(features)
    expected = np.column_stack([booster.predict(xgboost.DMatrix(features)) for booster in boosters]) + centre
    np.testing.assert_allclose(predicted, expected, atol=1e-5)
    again = Trees.from_arrays(Trees.from_boosters(boosters, centre).arrays(), features=3)
    np.testing.assert_array_equal(again.predict(features), predicted)


def test_a_prediction_does_not_depend_on_what_is_predicted_with_it(fitted):
    _, trees, features = fitted
    together = trees.predict(np.tile(features, (700, 1)))
    for start in (0, 120 * 699):
        np.testing.assert_array_equal(together[start : start + 120], trees.predict(features))
    alone = np.vstack([trees.predict(features[[row]]) for row in range(len(features))])
    np.testing.assert_array_equal(alone, trees.predict(features))


def test_no_rows_no_predictions(fitted):
    assert fitted[1].predict(np.empty((0, 4), np.float32)).shape == (0, 2)
