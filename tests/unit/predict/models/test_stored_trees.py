import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.ensemble import ExtraTreesRegressor

from clockwatt.predict.models.trees import MalformedTreesError, Trees, shape_of

FEATURES = 4


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    features, targets = rng.random((120, FEATURES)).astype(np.float32), rng.random((120, 2))
    return Trees.from_forest(ExtraTreesRegressor(7, random_state=0).fit(features, targets)), features


def test_arrays_come_back_as_they_were(fitted):
    trees, features = fitted
    again = Trees.from_arrays(trees.arrays(), features=FEATURES)
    for name in ("roots", "feature", "threshold", "right", "value"):
        was, now = getattr(trees, name), getattr(again, name)
        assert now.dtype == was.dtype
        np.testing.assert_array_equal(now, was)
    np.testing.assert_array_equal(again.predict(features), trees.predict(features))


def test_a_forest_of_one_leaf_comes_back():
    constant = ExtraTreesRegressor(3).fit(np.zeros((5, 1)), np.full((5, 2), 7.0))
    again = Trees.from_arrays(Trees.from_forest(constant).arrays(), features=1)
    np.testing.assert_array_equal(again.predict(np.zeros((2, 1), np.float32)), np.full((2, 2), 7.0))


@given(st.integers(0, 10**6), st.integers(1, 5))
def test_which_nodes_are_leaves_tells_the_shape(seed, trees):
    rng = np.random.default_rng(seed)
    leaf, roots, right = [], [], {}

    def grow(depth):
        node = len(leaf)
        leaf.append(bool(depth > 6 or rng.random() < 0.5))
        if not leaf[node]:
            grow(depth + 1)
            right[node] = len(leaf)
            grow(depth + 1)

    for _ in range(trees):
        roots.append(len(leaf))
        grow(0)
    found_roots, children = shape_of(np.array(leaf))
    assert found_roots.tolist() == roots
    assert children.tolist() == [right[node] for node in sorted(right)]


@pytest.mark.parametrize("leaf", [[], [False], [False, True], [True, False], [True, False, True]])
def test_nodes_that_are_no_whole_trees_have_no_shape(leaf):
    with pytest.raises(ValueError, match="not whole"):
        shape_of(np.array(leaf, dtype=bool))


@given(st.data())
def test_tampered_arrays_are_refused_or_terminate(fitted, data):
    trees, features = fitted
    arrays = {name: array.copy() for name, array in trees.arrays().items()}
    name = data.draw(st.sampled_from(["leaf", "feature", "threshold"]))
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, arrays[name].size - 1))
        arrays[name].flat[position] = data.draw(st.integers(0, 255))
    try:
        tampered = Trees.from_arrays(arrays, features=FEATURES)
    except MalformedTreesError:
        return
    assert np.isfinite(tampered.predict(features[:5])).all()


def test_as_many_leaves_in_another_order_are_refused_or_terminate(fitted):
    trees, features = fitted
    arrays, refused = trees.arrays(), 0
    nodes = len(trees.feature)
    for seed in range(50):
        flags = np.random.default_rng(seed).permutation(np.unpackbits(arrays["leaf"], count=nodes))
        try:
            tampered = Trees.from_arrays(arrays | {"leaf": np.packbits(flags)}, features=FEATURES)
        except MalformedTreesError:
            refused += 1
            continue
        assert np.isfinite(tampered.predict(features[:5])).all()
    assert refused


@pytest.mark.parametrize("damage", [
    lambda arrays: arrays.pop("value"),
    lambda arrays: arrays.update(feature=arrays["feature"].astype(np.int64)),
    lambda arrays: arrays.update(feature=arrays["feature"][:, :-1]),
    lambda arrays: arrays.update(feature=arrays["feature"][:1]),
    lambda arrays: arrays.update(feature=arrays["feature"].ravel()),
    lambda arrays: arrays.update(feature=np.full_like(arrays["feature"], 255)),
    lambda arrays: arrays.update(feature=np.full_like(arrays["feature"], 5)),
    lambda arrays: arrays.update(threshold=arrays["threshold"][:3]),
    lambda arrays: arrays.update(value=arrays["value"][:, :, :-1]),
    lambda arrays: arrays.update(value=arrays["value"][:, :3]),
    lambda arrays: arrays.update(leaf=arrays["leaf"][:-1]),
    lambda arrays: arrays.update(leaf=np.append(arrays["leaf"], np.uint8(0))),
    lambda arrays: arrays.update(leaf=np.packbits(np.sort(np.unpackbits(arrays["leaf"])[::-1])[::-1])),
    lambda arrays: arrays.update({name: array[..., :0] for name, array in arrays.items()}),
])  # fmt: skip
def test_malformed_arrays_are_refused(fitted, damage):
    arrays = dict(fitted[0].arrays())
    damage(arrays)
    with pytest.raises(MalformedTreesError):
        Trees.from_arrays(arrays, features=FEATURES)
