"""What a predictor that leaves a network out has seen of it."""

from dataclasses import replace
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clockwatt.dataset.build import build_dataset
from clockwatt.predict.composition.networks import Catalogue, whole_networks
from clockwatt.predict.evaluation import leave_out
from clockwatt.predict.evaluation.leave_out import FOLDS_AT_MOST, LEFT_OUT_SCHEMA, grouped_folds, leave_networks_out
from clockwatt.predict.models.predictors import TARGETS, RooflinePredictor
from clockwatt.predict.models.training_data import read_samples, training_data, with_unmeasured
from clockwatt.schema.costs import COSTS
from support import synthetic


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    made = synthetic.write_campaign(tmp_path_factory.mktemp("campaign"), synthetic.campaign(clocks=[900]))
    build_dataset(made.config, made.measurements, made.catalogue, made.dataset)
    return made


class Recorder(RooflinePredictor):
    """Remembers what it was fitted on."""

    fitted_on: ClassVar[list[list[float]]] = []

    def fit(self, X, y):  # noqa: N803
        Recorder.fitted_on.append(y["time_device_corrected_s"].tolist())
        return super().fit(X, y)


def test_operations_of_one_network_alone_are_never_learnt_from(made):
    Recorder.fitted_on.clear()
    catalogue = Catalogue.read(made.catalogue)
    problem = training_data(read_samples(made.dataset, "a30"), "inference")
    called = catalogue.called("inference")
    names = catalogue.names(whole_networks(made.dataset, "a30")[0], "inference")
    assert names == ["net16", "net24", "net32"]
    rows = leave_networks_out(lambda: Recorder(trees=3), problem, called, names, seed=0)
    times = problem.cells.assign(time=problem.targets["time_device_corrected_s"]).set_index("operation_id")["time"]
    assert len(Recorder.fitted_on) == 3
    left_out = set()
    for fitted in Recorder.fitted_on:
        missing = set(times.index[~times.isin(fitted)])
        (name,) = [one for one in names if missing == called[one] & set(times.index) - others(called, one)]
        left_out.add(name)
        own = rows[rows["network"] == name]
        assert set(own.loc[own["unseen"], "operation_id"]) == missing
        assert set(own["operation_id"]) == called[name] & set(times.index), "shared operations are predicted too"
    assert left_out == set(names)
    assert rows[[cost.predicted for cost in COSTS]].notna().all(axis=None)


def test_of_many_networks_several_are_left_out_at_a_time(made, monkeypatch):
    Recorder.fitted_on.clear()
    monkeypatch.setattr(leave_out, "FOLDS_AT_MOST", 2)
    called = Catalogue.read(made.catalogue).called("inference")
    problem = training_data(read_samples(made.dataset, "a30"), "inference")
    rows = leave_networks_out(lambda: Recorder(trees=3), problem, called, list(called), seed=0)
    assert len(Recorder.fitted_on) == 2
    assert set(rows["network"]) == set(called)
    times = problem.cells.assign(time=problem.targets["time_device_corrected_s"]).set_index("operation_id")["time"]
    missing = [frozenset(times.index[~times.isin(fitted)]) for fitted in Recorder.fitted_on]
    for name in called:
        own = called[name] & set(times.index) - others(called, name)
        assert any(own <= of_fold for of_fold in missing)


class Counter:
    """Says the same of everything; remembers how many rows it was fitted on."""

    fitted_on: ClassVar[list[int]] = []

    def fit(self, X, y):  # noqa: N803
        Counter.fitted_on.append(len(y))
        return self

    def predict_with_spread(self, X):  # noqa: N803
        ones = pd.DataFrame(1.0, index=X.index, columns=list(TARGETS))
        return ones, 0 * ones


def dealt(made, monkeypatch, called, folds, seed=0):
    """What of made-up networks was unseen, left out in so many folds; rows missing in each fold, and their order."""
    monkeypatch.setattr(leave_out, "FOLDS_AT_MOST", folds)
    Counter.fitted_on.clear()
    problem = training_data(read_samples(made.dataset, "a30"), "inference")
    operations = sorted(problem.cells.loc[problem.learnt, "operation_id"].unique())
    named = {name: frozenset(operations[number] for number in numbers) for name, numbers in called.items()}
    rows = leave_networks_out(Counter, problem, named, list(named), seed=seed)
    rows = rows[rows["learnt"]]
    unseen = {name: {operations.index(one) for one in own.loc[own["unseen"], "operation_id"]}
              for name, own in rows.groupby("network")}  # fmt: skip
    missing = sorted(int(problem.learnt.sum()) - fitted for fitted in Counter.fitted_on)
    return unseen, missing, rows["network"].unique().tolist()


@pytest.mark.parametrize("seed", range(8))
def test_networks_that_share_operations_are_not_left_out_together(made, monkeypatch, seed):
    called = {"a": {0, 1, 2}, "b": {3, 4, 5}, "c": {6, 7, 8}, "like a": {0, 1}, "like b": {3, 4}, "like c": {6, 7}}
    unseen, missing, _ = dealt(made, monkeypatch, called, folds=2, seed=seed)
    assert unseen == {"a": {2}, "b": {5}, "c": {8}, "like a": set(), "like b": set(), "like c": set()}
    assert sum(missing) == 3


@pytest.mark.parametrize(("networks", "sizes"), [(2, [1, 1]), (3, [1, 1, 1]), (4, [1, 1, 2]), (8, [2, 3, 3])])
@pytest.mark.parametrize("shared", [False, True])
def test_folds_are_as_even_as_can_be_and_none_is_empty(made, monkeypatch, networks, sizes, shared):
    called = {f"net{number}": {number} | ({20} if shared else set()) for number in range(networks)}
    unseen, missing, _ = dealt(made, monkeypatch, called, folds=3)
    assert missing == sizes
    assert unseen == {f"net{number}": {number} for number in range(networks)}


@pytest.mark.parametrize("seed", range(4))
def test_no_fold_is_larger_for_the_networks_that_share_nothing_with_it(made, monkeypatch, seed):
    called = {"all": {0, 1, 2, 3, 4, 15}} | {f"net{number}": {number, 10 + number} for number in range(5)}
    _, missing, _ = dealt(made, monkeypatch, called, folds=2, seed=seed)
    # three networks in either: of those beside the one that shares with all, what they share is missed as well
    assert missing == [3, 1 + 2 * 2]


def test_the_deal_is_that_of_the_seed(made, monkeypatch):
    called = {f"net{number}": {number, number // 2 + 10, 20} for number in range(9)}
    first, again, other = (dealt(made, monkeypatch, called, folds=4, seed=seed)[2] for seed in (0, 0, 1))
    assert first == again
    assert first != other
    assert set(first) == set(other) == set(called)


def test_no_more_networks_than_folds_are_left_out_one_by_one(made, monkeypatch):
    called = {f"net{number}": {number, 20, 21} for number in range(FOLDS_AT_MOST)}
    assert dealt(made, monkeypatch, called, folds=FOLDS_AT_MOST)[1] == [1] * FOLDS_AT_MOST


def test_what_was_not_measured_is_predicted_but_not_learnt_from(made):
    catalogue = Catalogue.read(made.catalogue)
    whole = whole_networks(made.dataset, "a30")[0]
    samples = read_samples(made.dataset, "a30")
    complete = training_data(samples, "inference")
    gone = sorted(complete.rows["operation_id"].unique())[::3]
    few = replace(samples, rows=samples.rows[~samples.rows["operation_id"].isin(gone)])
    problem = training_data(few, "inference")
    described = catalogue.operations[catalogue.operations["pass"] == "inference"]
    wanted = catalogue.called_by(whole, "inference")
    extended = with_unmeasured(problem, wanted, described)
    added = extended.rows.iloc[len(problem.rows) :]
    assert set(added["operation_id"]) == set(gone) & set(wanted["operation_id"])
    assert not extended.usable[len(problem.rows) :].any()
    assert extended.learnt.sum() == problem.learnt.sum()
    names = catalogue.names(whole, "inference")
    called = catalogue.called("inference")
    rows = leave_networks_out(lambda: RooflinePredictor(trees=3), extended, called, names, seed=0)
    unmeasured = rows[rows["operation_id"].isin(gone)]
    assert len(unmeasured)
    assert unmeasured["predicted_time_device_corrected_s"].notna().all()
    assert unmeasured["time_device_corrected_s"].isna().all()
    assert not unmeasured["learnt"].any()
    assert with_unmeasured(complete, wanted, described) is complete


def others(called, name):
    return frozenset().union(*(ids for other, ids in called.items() if other != name))


def test_one_network_alone_leaves_nothing_to_learn_from(made):
    catalogue = Catalogue.read(made.catalogue)
    problem = training_data(read_samples(made.dataset, "a30"), "inference")
    called = {"all": frozenset().union(*catalogue.called("inference").values())}
    rows = leave_networks_out(lambda: Recorder(trees=3), problem, called, ["all"], seed=0)
    assert rows.empty
    assert isinstance(rows, pd.DataFrame)
    assert set(rows.columns) <= set(LEFT_OUT_SCHEMA.names)


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
