import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesRegressor

from clockwatt.io.rounding import to_bits
from clockwatt.predict.models.trees import LEAF, Trees, shortened


@pytest.fixture(scope="module", params=["far apart", "near one another"])
def learnt(request):
    rng = np.random.default_rng(0)
    matrix = rng.uniform(10, 40, (400, 3)).astype(np.float32)
    if request.param == "near one another":
        matrix = np.nextafter(np.float32(20), np.float32(21)) + rng.integers(0, 50, (400, 3)).astype(np.float32) * 2e-6
        matrix = matrix.astype(np.float32)
    forest = ExtraTreesRegressor(5, random_state=0).fit(matrix, rng.random((400, 2)))
    return matrix, Trees.from_forest(forest)


def test_what_was_learnt_from_reaches_the_same_leaves(learnt):
    matrix, trees = learnt
    np.testing.assert_array_equal(shortened(trees, matrix).predict(matrix), trees.predict(matrix))


def test_thresholds_of_values_far_apart_have_ten_bits():
    matrix = np.arange(40, dtype=np.float32)[:, None]
    trees = Trees.from_forest(ExtraTreesRegressor(5, random_state=0).fit(matrix, matrix[:, 0]))
    short = shortened(trees, matrix).threshold
    assert np.mean(short == to_bits(short, 10)) > 0.95  # but for those that lie next to a value
    assert np.any(short != trees.threshold)
    np.testing.assert_allclose(short, trees.threshold, rtol=1e-3)


def test_thresholds_stay_where_rounding_would_send_a_row_elsewhere():
    # two neighbours among the numbers of single precision: all 24 bits are needed
    matrix = np.array([[1.0], [np.nextafter(np.float32(1), np.float32(2))]], dtype=np.float32)
    trees = Trees(
        roots=np.array([0], np.int32), feature=np.array([0, LEAF, LEAF], np.int16),
        threshold=np.array([1, 0, 0], np.float32), right=np.array([2, 0, 1], np.int32),
        value=np.array([[1.0], [2.0]], np.float32),
    )  # fmt: skip
    near = np.array([[1.0009], [1.0010]], dtype=np.float32)
    moved = shortened(Trees(**{**vars(trees), "threshold": np.array([1.00095, 0, 0], np.float32)}), near)
    np.testing.assert_array_equal(shortened(trees, matrix).predict(matrix), [[1.0], [2.0]])
    np.testing.assert_array_equal(moved.predict(near), [[1.0], [2.0]])
