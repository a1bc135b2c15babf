"""A card told from another one: what is learnt of a made-up pair of cards, and what stays without measurements."""

import numpy as np
import pytest

from clockwatt.predict.models.transfer import PRIOR_SHARE, OtherCard, Transfer

CLASSES = np.array(["conv2d", "relu", "linear", "add"], dtype=object)
FACTORS = {"conv2d": 1.3, "relu": 0.8, "linear": 1.0, "add": 1.1}
SHARE = 0.9


@pytest.fixture
def cards():
    """Operations on two cards that differ by a factor per class and a share of the rooflines' ratio, with 5 % noise."""
    rng = np.random.default_rng(0)
    classes = CLASSES[rng.integers(0, 4, 600)]
    measured_s = 10 ** rng.uniform(-5, -2, 600)
    rooflines_s = measured_s * rng.uniform(0.2, 0.8, 600)
    other = OtherCard(measured_s, rooflines_s)
    own_rooflines_s = rooflines_s * rng.uniform(1.0, 4.0, 600)
    ratio = SHARE * other.log_rooflines(own_rooflines_s) + np.log([FACTORS[name] for name in classes])
    return classes, other, own_rooflines_s, measured_s * np.exp(ratio + 0.05 * rng.standard_normal(600))


def errors(cards, own):
    classes, other, rooflines_s, own_s = cards
    known, rest = np.arange(own), np.arange(300, 600)
    transfer = Transfer().fit(classes[known], other.among(known), rooflines_s[known], own_s[known])
    expected_s, ends_s = transfer.predict(classes[rest], other.among(rest), rooflines_s[rest])
    inside = (ends_s[:, 0] <= own_s[rest]) & (own_s[rest] <= ends_s[:, 1])
    return np.median(np.abs(expected_s / own_s[rest] - 1)), inside.mean()


def test_errors_fall_with_operations_of_its_own(cards) -> None:
    (none, _), (few, _), (many, inside) = (errors(cards, own) for own in (0, 30, 300))
    assert none > few > many
    assert many < 0.06
    assert 0.8 < inside < 0.99


def test_without_measurements_only_the_rooflines_speak(cards) -> None:
    classes, other, rooflines_s, _ = cards
    expected_s, _ = Transfer().predict(classes, other, rooflines_s)
    assert expected_s == pytest.approx(other.times_s * np.exp(PRIOR_SHARE * other.log_rooflines(rooflines_s)))


def test_a_class_with_few_operations_is_drawn_to_the_others() -> None:
    classes = np.array(["conv2d"] * 40 + ["relu"] + ["add"] * 40, dtype=object)
    logs = np.array([0.5] * 40 + [-0.5] + [0.5] * 40) + 0.05 * np.random.default_rng(1).standard_normal(81)
    ones = OtherCard(np.ones(81), np.ones(81))
    transfer = Transfer().fit(classes, ones, np.ones(81), np.exp(logs))
    found, _ = transfer.predict(np.array(["relu"], dtype=object), ones.among(np.arange(1)), np.ones(1))
    assert logs[40] < np.log(found[0]) < 0.5


def test_a_class_never_seen_is_less_certain(cards) -> None:
    classes, other, rooflines_s, own_s = cards
    known = np.arange(300)
    transfer = Transfer().fit(classes[known], other.among(known), rooflines_s[known], own_s[known])

    def deviation(name):
        expected_s, ends_s = transfer.predict(np.array([name], dtype=object), OtherCard(*np.ones((2, 1))), np.ones(1))
        return np.log(ends_s[0, 1] / expected_s[0])

    assert deviation("gelu") > 1.5 * deviation("relu")


def with_features(cards, *, matters):
    """Median errors with features and without, where one of them makes times differ by up to a half, or none does."""
    classes, other, rooflines_s, own_s = cards
    features = np.random.default_rng(1).uniform(0, 1, (len(own_s), 4))
    own_s = own_s * np.where(features[:, 0] > 0.5, 1.5, 1.0) if matters else own_s
    known, rest = np.arange(300), np.arange(300, 600)
    found = []
    for numbers in (features, None):
        parts = [None if numbers is None else numbers[rows] for rows in (known, rest)]
        transfer = Transfer().fit(classes[known], other.among(known), rooflines_s[known], own_s[known], parts[0])
        expected_s, _ = transfer.predict(classes[rest], other.among(rest), rooflines_s[rest], parts[1])
        found.append(np.median(np.abs(expected_s / own_s[rest] - 1)))
    return found


def test_what_classes_and_rooflines_leave_over_is_learnt_from_features(cards) -> None:
    told, without = with_features(cards, matters=True)
    assert told < 0.6 * without


def test_features_that_tell_nothing_do_no_harm(cards) -> None:
    told, without = with_features(cards, matters=False)
    assert told < 1.1 * without
