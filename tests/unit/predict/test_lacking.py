"""Energies of too few operations are not learnt, and all else is as if none had been measured."""

import pytest

from clockwatt.config import TrainingConfig
from clockwatt.dataset.build import build_dataset
from clockwatt.dataset.corrections import NOT_ABOVE_IDLE
from clockwatt.predict.answerer import predict_network
from clockwatt.predict.description import NotPredictableError
from clockwatt.predict.fit import fit
from clockwatt.predict.gpu_predictor import load_models
from clockwatt.predict.models.training_data import ENERGY, held, read_samples
from clockwatt.predict.recommend import recommend
from clockwatt.predict.tracing import NetworkTracer
from clockwatt.schema import layout
from clockwatt.schema.execution import TF32
from support import synthetic

ENERGIES = ("energy_j", "energy_dynamic_j", "power_w")
POINT = "sm900"
GPUS = {"a30": {"device": "virtual:a30", "clocks_mhz": [900]}}


def made_with(root, energies):
    """A campaign of which so many operations have an energy, in each pass, as a dataset."""
    learning = {"predictors": ["roofline"], "folds": 4, "trees": 12}
    settings = synthetic.campaign(networks=3, gpus=GPUS, fit=learning)
    made = synthetic.write_campaign(root, settings)

    def edit(rows):
        left = dict.fromkeys(settings.passes, energies)
        for row in rows:
            if row.power_w is not None:
                left[row.pass_] -= 1
            if left[row.pass_] < 0:
                for name in ENERGIES:
                    setattr(row, name, None)

    synthetic.change_operations(made, layout.operations_file("a30", POINT, 1), edit)
    build_dataset(made.config, made.measurements, made.catalogue, made.dataset)
    return made


def fitted(root, energies):
    made = made_with(root, energies)
    fit(made.config, made.dataset, made.dataset / layout.CATALOGUE, made.predictors)
    return made


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    return fitted(tmp_path_factory.mktemp("few"), 3)


@pytest.fixture(scope="module")
def none(tmp_path_factory):
    return fitted(tmp_path_factory.mktemp("none"), 0)


def asked(made, pass_="inference"):
    network = NetworkTracer(made.catalogue, TrainingConfig()).trace(made.config.networks[-1], pass_)
    return load_models(made.predictors)["a30"], network


@pytest.mark.parametrize("pass_", ["inference", "training"])
def test_answers_are_those_of_data_without_any_energy(few, none, pass_):
    model, network = asked(few, pass_)
    without, _ = asked(none, pass_)
    told, expected = (predict_network(one, network, POINT) for one in (model, without))
    assert told.expected == expected.expected
    assert told.intervals == expected.intervals
    assert told.expected.energy_j is None
    own, theirs = (
        one.predict(network.operations, pass_, POINT, execution=TF32, look_up=False) for one in (model, without)
    )  # fmt: skip
    assert own.equals(theirs)


def test_why_no_energy_is_held_is_told_wherever_one_is_asked_for(few, capsys):
    model, network = asked(few)
    said = "energy: only 3 operations have one, and 32 are needed"
    (warning,) = [one for one in predict_network(model, network, POINT).warnings if "energy" in one]
    assert said in warning
    with pytest.raises(NotPredictableError, match=said):
        recommend({"a30": model}, network, objective="energy")
    assert recommend({"a30": model}, network, objective="time").left_out == ()
    assert "since only 3 operations have one" in (few.predictors / "a30/model-card.md").read_text()
    fit(few.config, few.dataset, few.dataset / layout.CATALOGUE, few.predictors)
    assert "a30: no energy is fitted in inference: only 3 operations have one" in capsys.readouterr().err


def test_energies_that_are_as_many_as_needed_are_learnt_and_looked_up(tmp_path):
    model, network = asked(fitted(tmp_path, 39))
    assert predict_network(model, network, POINT).expected.energy_j > 0
    costs = model.predict(network.operations, "inference", POINT, execution=TF32)
    assert costs["energy_dynamic_corrected_j"].notna().all()
    assert model.description.passes["inference"].lacks == {}


def test_what_energy_alone_kept_from_being_learnt_is_learnt(tmp_path):
    samples = read_samples(made_with(tmp_path, 3).dataset, "a30")
    known = samples.rows["energy_dynamic_corrected_j"].notna() & samples.rows["device_work"].astype(bool)
    first = samples.rows.index[known & (samples.rows["pass"] == "inference")][0]
    samples.rows.loc[first, ["energy_dynamic_corrected_j", "excluded"]] = [-1.0, NOT_ABOVE_IDLE]
    found, _ = held(samples, ["inference", "training"])
    assert found.rows.loc[first, "excluded"] == ""
    assert samples.rows.loc[first, "excluded"] == NOT_ABOVE_IDLE


def test_energies_of_the_gpu_that_lends_count(tmp_path):
    lender = read_samples(made_with(tmp_path / "all", 1000).dataset, "a30")
    own = read_samples(made_with(tmp_path / "few", 3).dataset, "a30")
    alone, lent = (held(own, ["inference"], other)[1] for other in (None, lender))
    assert (list(alone["inference"]), lent) == ([ENERGY], {"inference": {}})
