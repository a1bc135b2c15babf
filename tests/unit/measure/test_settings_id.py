"""What makes two measurements' settings the same: adding a key must not invalidate a store."""

from __future__ import annotations

import pytest

from clockwatt import config
from clockwatt.config.measurement import MeasurementConfig
from clockwatt.config.networks import TrainingConfig
from clockwatt.measure.store import settings_id

CAMPAIGN = {
    "campaign": "test",
    "gpus": {"a30": {"device": "NVIDIA A30"}, "virtual": {"device": "virtual:a30"}},
    "networks": [{"name": "toy", "input": [8, 64]}],
}

IDS = [
    ("a30", {}, "a3003a73c057f265"),
    ("virtual", {}, "52040ebbd7abcce9"),
    ("virtual", {"seed": 1}, "0316f3bd40af69e9"),
    ("a30", {"measurement": {"window_max_s": 2.0}}, "8b5f0598aa2220f2"),
    ("a30", {"measurement": {"working_set": "hot"}}, "24ee38dfd9c54751"),
    ("a30", {"training": {"optimizer": "adamw", "learning_rate": 0.001}}, "e10ff995fc0838d0"),
]
"""Ids of stores that exist: a change here throws their measurements away."""


class LaterMeasurement(MeasurementConfig):
    """With a key that is added after the store was made."""

    pause_s: float = 0.0


class LaterTraining(TrainingConfig):
    """With a key that is added after the store was made."""

    label_smoothing: float = 0.0


def later(blocks, **values):
    """The campaign with both new keys, and these values of them."""
    parsed = config.parse({**CAMPAIGN, **blocks})
    models = {"measurement": LaterMeasurement, "training": LaterTraining}
    given = {name: getattr(parsed, name).model_dump() | values.get(name, {}) for name in models}
    return parsed.model_copy(update={name: model(**given[name]) for name, model in models.items()})


@pytest.mark.parametrize(("gpu", "blocks", "expected"), IDS)
def test_ids_of_existing_stores(gpu, blocks, expected):
    assert settings_id(config.parse({**CAMPAIGN, **blocks}), gpu) == expected


@pytest.mark.parametrize(("gpu", "blocks", "expected"), IDS)
def test_a_new_key_with_its_default_leaves_ids_as_they_are(gpu, blocks, expected):
    assert settings_id(later(blocks), gpu) == expected


@pytest.mark.parametrize("values", [{"measurement": {"pause_s": 0.1}}, {"training": {"label_smoothing": 0.1}}])
def test_a_new_key_with_another_value_gives_another_id(values):
    assert settings_id(later({}, **values), "a30") != settings_id(later({}), "a30")


def test_how_often_something_is_measured_does_not_enter_the_id():
    several = config.parse({**CAMPAIGN, "measurement": {"repetitions": 3, "idle_s": 5.0, "rest_to_c": 40.0}})
    assert settings_id(several, "a30") == settings_id(config.parse(CAMPAIGN), "a30")
