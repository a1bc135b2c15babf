"""Perceptrons beside the forest: they learn what a forest cannot, say what PyTorch would, and come back from a file."""

import copy
import functools
import sys
import zipfile

import numpy as np
import pandas as pd
import pytest

from clockwatt.errors import DataFileError
from clockwatt.predict.models import neural_ensemble, predictors
from clockwatt.predict.models.neural_ensemble import Perceptrons
from clockwatt.predict.models.predictors import TARGETS, RooflinePredictor, load_predictor, save_predictor

DEVICE, ENERGY, HOST = "time_device_corrected_s", "energy_dynamic_corrected_j", "time_host_corrected_s"


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Small ones, that learn in a second."""
    for name, value in (("WIDTH", 32), ("DEPTH", 3), ("EPOCHS", 40), ("BATCH", 64)):
        monkeypatch.setattr(neural_ensemble, name, value)
    monkeypatch.setattr(predictors, "LEAST_ROWS", 300)


def matrix_and_product(rows, seed=0):
    """What is told is a product of features, of which a forest sees stairs."""
    matrix = np.random.default_rng(seed).uniform(-1, 1, (rows, 4)).astype(np.float32)
    return matrix, (matrix[:, 0] * matrix[:, 1] + 0.5 * matrix[:, 2]).astype(float)


def table(rows, seed=0):
    matrix, learnt = matrix_and_product(rows, seed)
    features = pd.DataFrame(matrix, columns=[f"log_{name}" for name in "abcd"])
    features["operation_class"], features["roofline_time_s"], features["power_limit_w"] = "conv2d", 1e-4, 300.0
    targets = pd.DataFrame(dict.fromkeys(TARGETS, 2e-4 * np.exp(learnt)))
    targets[ENERGY] *= 200.0
    return features, targets


@functools.cache
def fitted():
    return RooflinePredictor(trees=4, leaf=20, perceptrons=2).fit(*table(400))


@pytest.fixture
def predictor():
    """A copy, whose parts may be replaced."""
    return copy.copy(fitted())


def test_a_product_is_learnt_and_told_where_nothing_was_seen():
    learnt = Perceptrons.fit(*matrix_and_product(1000), 2, seed=0, jobs=2)
    matrix, wanted = matrix_and_product(500, seed=1)
    assert np.abs(learnt.predict(matrix) - wanted).mean() < 0.2 * np.abs(wanted - wanted.mean()).mean()


def test_kindred_rows_teach_where_there_are_none_of_the_own():
    """The other pass has what this one lacks, at another level: the mark tells them apart, and is not stored."""
    matrix, wanted = matrix_and_product(600)
    few = matrix[:, 1] < 0  # of the own, one half alone is known
    kindred = matrix_and_product(600, seed=2)[0]
    theirs = kindred[:, 0] * kindred[:, 1] + 0.5 * kindred[:, 2] + 0.7
    asked, told = matrix_and_product(400, seed=1)
    asked, told = asked[asked[:, 1] > 0], told[asked[:, 1] > 0]
    missed = []
    for beside in (None, (kindred, theirs.astype(float))):
        learnt = Perceptrons.fit(matrix[few], wanted[few], 2, seed=0, jobs=2, beside=beside)
        assert learnt.perceptrons_first.shape[2] == matrix.shape[1]
        missed.append(np.abs(learnt.predict(asked) - told).mean())
    assert missed[1] < missed[0] / 2


@pytest.mark.parametrize("kindred", [200, 20_000])
def test_the_mark_is_folded_as_it_was_scaled(kindred, monkeypatch):
    """However rare the own rows are: what is told of them without the mark is what was learnt with it."""
    monkeypatch.setattr(neural_ensemble, "EPOCHS", 1)
    trained, first = [], neural_ensemble._trained
    monkeypatch.setattr(
        neural_ensemble, "_trained", lambda *given: trained.append((given, first(*given))) or trained[-1][1]
    )
    matrix, wanted = matrix_and_product(200)
    learnt = Perceptrons.fit(matrix, wanted, 1, seed=0, jobs=1, beside=matrix_and_product(kindred, seed=1))
    ((rows, *_), (weights, inner, vectors, last)) = trained[0]
    whole = Perceptrons(
        np.zeros(5, np.float32), np.ones(5, np.float32), weights[None].astype(np.float16),
        inner[None].astype(np.float16), vectors[None], last[None],
    )  # fmt: skip
    np.testing.assert_allclose(learnt.predict(matrix), whole.predict(rows.numpy()[:200]), atol=2e-2)


def test_rows_of_the_other_pass_reach_the_perceptrons_and_no_tree():
    (features, targets), (more, theirs) = table(400), table(500, seed=4)
    theirs[DEVICE] *= 3.0
    more.loc[:9, "operation_class"] = "never_seen"
    alone, taught = (
        RooflinePredictor(trees=4, leaf=20, perceptrons=2).fit(features, targets, beside)
        for beside in (None, (more, theirs))
    )
    asked = table(100, seed=5)[0]
    assert not np.allclose(alone.predict(asked)[DEVICE], taught.predict(asked)[DEVICE], rtol=1e-3)
    pd.testing.assert_frame_equal(alone.predict(asked)[[HOST]], taught.predict(asked)[[HOST]])


def test_numpy_says_what_pytorch_would():
    import torch
    from torch import nn

    learnt = Perceptrons.fit(*matrix_and_product(200), 1, seed=3, jobs=1)
    layers = []
    weights = [learnt.perceptrons_first[0], *learnt.perceptrons_inner[0]]
    for weight, (offset, gain, shift) in zip(weights, learnt.perceptrons_vectors[0], strict=True):
        linear, norm = nn.Linear(*reversed(weight.shape)), nn.LayerNorm(len(weight))
        for parameter, values in (
            (linear.weight, weight), (linear.bias, offset), (norm.weight, gain), (norm.bias, shift)
        ):  # fmt: skip
            parameter.data = torch.tensor(values.astype(np.float32))
        layers += [linear, norm, nn.SiLU()]
    matrix, _ = matrix_and_product(50, seed=2)
    rows = (matrix - learnt.perceptrons_centre) / learnt.perceptrons_scale
    with torch.no_grad():
        states = nn.Sequential(*layers)(torch.tensor(rows)).numpy()
    wanted = states @ learnt.perceptrons_last[0, :-1] + learnt.perceptrons_last[0, -1]
    np.testing.assert_allclose(learnt.predict(matrix), wanted, atol=1e-4)


def test_what_is_learnt_depends_on_the_seed_and_not_on_the_threads():
    data = matrix_and_product(200)
    one, two, other = (Perceptrons.fit(*data, 2, seed=seed, jobs=jobs) for seed, jobs in ((1, 1), (1, 2), (2, 2)))
    assert all(np.array_equal(array, two.arrays()[name]) for name, array in one.arrays().items())
    assert not np.array_equal(one.perceptrons_first, other.perceptrons_first)


def test_device_time_is_told_better_with_its_energy_and_nothing_else_moves(predictor):
    forest = RooflinePredictor(trees=4, leaf=20).fit(*table(400))
    features, wanted = table(300, seed=1)
    told, alone = predictor.predict(features), forest.predict(features)
    errors = [np.abs(np.log(one[DEVICE] / wanted[DEVICE])).mean() for one in (told, alone)]
    assert errors[0] < 0.7 * errors[1]
    np.testing.assert_allclose(told[ENERGY] / told[DEVICE], alone[ENERGY] / alone[DEVICE])
    np.testing.assert_array_equal(told[HOST], alone[HOST])
    with_spread, _ = predictor.predict_with_spread(features)
    np.testing.assert_allclose(with_spread[DEVICE], told[DEVICE])


def test_the_two_are_never_far_apart(predictor):
    features, _ = table(50)
    alone = RooflinePredictor(trees=4, leaf=20).fit(*table(400)).predict(features)
    offsets = predictor.perceptrons_.perceptrons_last.copy()
    offsets[:, -1] += 1000
    predictor.perceptrons_ = Perceptrons(**{**predictor.perceptrons_.arrays(), "perceptrons_last": offsets})
    farthest = np.exp(predictors._OF_PERCEPTRONS * predictors._FARTHEST_APART)
    np.testing.assert_allclose(predictor.predict(features)[DEVICE] / alone[DEVICE], farthest)


def test_classes_that_perceptrons_tell_worse_are_left_to_the_forest():
    features, targets = table(400)
    features.loc[:199, "operation_class"] = "SGD"
    forest, both = (RooflinePredictor(trees=4, perceptrons=number).fit(features, targets) for number in (0, 1))
    differ = (forest.predict(features) != both.predict(features))[DEVICE].to_numpy()
    assert not differ[:200].any()
    assert differ[200:].all()


@pytest.mark.parametrize("kind", [predictors.BaselinePredictor, predictors.XgboostPredictor])
def test_what_the_forest_is_compared_with_takes_none(kind):
    features, targets = table(320)
    assert kind(trees=2, perceptrons=1).fit(features, targets).perceptrons_ is None


def test_a_feature_that_is_not_known_is_as_it_mostly_is(predictor):
    features, _ = table(20)
    features.loc[3, "log_a"] = np.nan
    assert np.isfinite(predictor.predict(features)).all(axis=None)


def test_few_operations_are_left_to_the_forest():
    assert RooflinePredictor(trees=2, perceptrons=1).fit(*table(299)).perceptrons_ is None


@pytest.mark.filterwarnings("error")
def test_they_come_back_from_a_file_without_pytorch(predictor, tmp_path, monkeypatch):
    save_predictor(predictor, tmp_path / "one.npz")
    wanted = predictor.predict(table(20)[0])
    monkeypatch.setitem(sys.modules, "torch", None)
    pd.testing.assert_frame_equal(load_predictor(tmp_path / "one.npz").predict(table(20)[0]), wanted)


@pytest.mark.parametrize(
    ("name", "change", "told"),
    [
        ("perceptrons_last", None, "is missing"),
        ("perceptrons_first", lambda array: array.astype(np.float64), "another type"),
        ("perceptrons_inner", lambda array: array[:, :, :-1], "differ in shape"),
        ("perceptrons_centre", lambda array: array[:-1], "differ in shape"),
        ("perceptrons_vectors", lambda array: array * np.nan, "no number"),
        ("perceptrons_scale", lambda array: 0 * array, "no deviation"),
        ("perceptrons_vectors", lambda array: np.full_like(array, 3e38), "nothing learns"),
        ("perceptrons_last", lambda array: array[:, :1], "differ in shape"),
        ("perceptrons_first", lambda array: np.full_like(array, np.inf), "no number"),
        ("value", lambda array: np.full_like(array, 255), "no number"),
    ],
)
def test_arrays_that_are_no_perceptrons_are_refused(predictor, tmp_path, name, change, told):
    path = tmp_path / "one.npz"
    save_predictor(predictor, path)
    with np.load(path) as archive:
        arrays = {key: archive[key] for key in archive.files}
    if change is None:
        del arrays[name]
    else:
        arrays[name] = change(arrays[name])
    np.savez(path, **arrays)
    with pytest.raises(DataFileError, match=told):
        load_predictor(path)


def test_perceptrons_of_a_predictor_that_has_none_are_refused(predictor, tmp_path):
    path, other = tmp_path / "one.npz", tmp_path / "other.npz"
    save_predictor(predictor, path)
    save_predictor(predictors.ForestPredictor(trees=2).fit(*table(50)), other)
    with zipfile.ZipFile(path) as given, zipfile.ZipFile(other, "a") as taken:
        for member in given.namelist():
            if member.startswith("perceptrons"):
                taken.writestr(member, given.read(member))
    with pytest.raises(DataFileError, match="no device time"):
        load_predictor(other)
