import numpy as np
import pandas as pd
import pytest

from clockwatt.predict.composition.networks import Catalogue
from clockwatt.predict.composition.pipeline import Composition
from clockwatt.predict.evaluation.errors import NORMAL_90, Interval, interval_score
from clockwatt.predict.evaluation.pass_errors import (
    ADDED,
    CARD_TIME,
    DEVICE,
    DYNAMIC,
    ERROR_OF,
    HOST,
    Added,
    PassErrors,
    _correlation,
    _scale,
    added_errors,
    estimate_pass_errors,
    in_mode,
    mode_errors,
)
from clockwatt.predict.models.predictors import TARGETS
from clockwatt.schema.costs import BY_CORRECTED
from clockwatt.schema.execution import EAGER, MODES
from clockwatt.schema.records import INFERENCE

HALF = Interval(float(np.exp(-2.0)), float(np.exp(2.0)))


def composition(device_s, host_s, energy_j=None):
    return Composition(
        time_s=max(device_s, host_s), latency_s=None, device_s=device_s, host_s=host_s,
        energy_dynamic_j=None if energy_j is None else energy_j / 2, energy_j=energy_j,
        power_w=None if energy_j is None else energy_j / max(device_s, host_s),
        plain_time_s=None, plain_energy_j=None, calls=1, calls_without_cost=0,
    )  # fmt: skip


def test_independent_errors_average_out_and_shared_ones_do_not():
    added = Added.of(np.full(100, 1e-3), np.full(100, 0.2))
    assert added.independent == pytest.approx(0.02)
    assert added.together == pytest.approx(0.2)
    assert added.error(0.0) == pytest.approx(0.02)
    assert added.error(1.0) == pytest.approx(0.2)
    assert Added.of(np.zeros(3), np.ones(3)) == Added(0.0, 0.0)


def test_what_paces_a_pass_sets_its_interval():
    sure, unsure = Added(0.01, 0.01), Added(0.3, 0.3)
    errors = PassErrors(
        0.5, composition_device=0.0, composition_host=0.0, composition_energy=0.0, device=HALF, host=HALF
    )
    device_bound = errors.ends(composition(1.0, 0.1), {DEVICE: sure, HOST: unsure})
    half = 2 * np.hypot(0.01, CARD_TIME)
    assert device_bound["time_s"] == pytest.approx((np.exp(-half), np.exp(half)))
    host_bound = errors.ends(composition(0.1, 1.0), {DEVICE: sure, HOST: unsure})
    assert host_bound["time_s"] == pytest.approx((np.exp(-0.6), np.exp(0.6)))
    assert "energy_j" not in host_bound
    low, high = errors.ends(composition(1.0, 0.1, 10.0), {DEVICE: sure, HOST: unsure, DYNAMIC: unsure})["energy_j"]
    assert 1 / np.exp(0.6) < low / 10 < 1 < high / 10 < np.exp(0.6)


@pytest.mark.parametrize("correlation", [0.1, 0.6])
def test_the_correlation_of_errors_is_found_again(correlation):
    rng = np.random.default_rng(1)
    seen = []
    for _ in range(4000):
        shares, errors = np.full(25, 1 / 25), rng.uniform(0.05, 0.3, 25)
        drawn = np.sqrt(correlation) * rng.standard_normal() + np.sqrt(1 - correlation) * rng.standard_normal(25)
        seen.append((float(np.sum(shares * errors * drawn)), Added.of(shares, errors)))
    assert _correlation(seen) == pytest.approx(correlation, abs=0.05)


@pytest.mark.parametrize(("seconds", "wider"), [(2e-6, (1.8, 2.2)), (2e-4, (1.0, 1.01))])
def test_what_lies_between_short_kernels_is_less_sure_than_between_long_ones(seconds, wider):
    factors = np.broadcast_to([np.exp(-0.02), np.exp(0.02)], (2, len(TARGETS), 2))
    errors = PassErrors(correlation=0.1, composition_device=0.02)
    mean, calls = np.full((2, len(TARGETS)), seconds), np.array([30.0, 10.0])
    without = errors.device_half_width(added_errors(mean, factors, calls))
    added = added_errors(mean, factors, calls, gap_s=1e-7)
    assert added[DEVICE].gaps == pytest.approx(1e-7 / seconds)
    assert added[HOST].gaps == 0.0
    assert wider[0] < errors.device_half_width(added) / without < wider[1]


def test_errors_of_host_bound_passes_do_not_widen_device_time():
    number = np.arange(40)
    capped, host_bound = number < 8, number % 2 == 0
    rows = pd.DataFrame({"network": number.astype(str), "network_id": "net", "point": "default", "execution": "tf32"})
    rows = rows.assign(device_s=1.0, host_s=np.where(host_bound, 2.0, 0.5), energy_j=10.0, energy_dynamic_j=5.0)
    longer = np.where(capped, 1.2, 1.0)
    rows["time_s"] = longer * np.where(host_bound, 2.0, 1.0)
    rows["measured_time_s"] = np.where(host_bound, 1.5, 1.02) * rows["time_s"]
    rows["measured_device_s"] = np.where(number < 36, 1.02 * longer, np.nan)
    rows["measured_energy_j"] = 10.0
    columns = [*ADDED, *ERROR_OF.values(), *(BY_CORRECTED[target].predicted for target in ADDED)]
    text = {"network": "other", "point": "default", "execution": "tf32", "pass": INFERENCE, "operation_id": "conv"}
    operations = pd.DataFrame([text | dict.fromkeys(columns, 1.0) | {"unseen": False, "learnt": True}])
    catalogue = Catalogue({}, {("net", INFERENCE): operations[["operation_id"]]}, pd.DataFrame())
    catalogue._settings["inference", "tf32", frozenset({"tf32"})] = pd.Series({"conv": "tf32"})
    errors, report = estimate_pass_errors(rows, rows, operations, catalogue)
    assert errors.composition_device == pytest.approx(np.log(1.02) / NORMAL_90)
    assert errors.composition_host == pytest.approx(np.log(1.5) / NORMAL_90)
    assert (errors.device.groups, errors.host.groups) == (36, 20)
    assert report["device_s"]["median_half_width"] < 0.06 < 0.4 < report["host_s"]["median_half_width"]


@pytest.mark.parametrize("true", [0.3, 0.6])
def test_the_scale_of_errors_of_operations_is_found_again(true):
    rng = np.random.default_rng(2)
    count = 20_000
    of_operations, rest = rng.uniform(0.1, 0.4, count), 0.03
    errors = np.hypot(true * of_operations, rest)
    whole = np.exp(errors * rng.standard_normal(count))
    parts = [(one, rest) for one in of_operations]
    names = np.arange(count).astype(str).astype(object)
    assert _scale(whole, np.ones(count), parts, names) == pytest.approx(true, abs=0.02)
    # a few networks that err little prove little, and those that err much do not make operations err more
    few = slice(10)
    assert true < _scale(np.ones(10), np.ones(10), parts[few], names[few]) == pytest.approx(0.8, abs=0.01)
    assert _scale(whole**5, np.ones(count), parts, names) == 1.0
    assert _scale(np.full(2, np.nan), np.ones(2), parts[:2], names[:2]) == 1.0


def test_scales_narrow_what_comes_from_operations_alone():
    wide = {DEVICE: Added(0.3, 0.3), HOST: Added(0.2, 0.2), DYNAMIC: Added(0.4, 0.4)}
    sure = {DEVICE: Added(0.0, 0.0), HOST: Added(0.2, 0.2), DYNAMIC: Added(0.0, 0.0)}
    plain, scaled = PassErrors(), PassErrors(scale_device=0.5, scale_energy=0.25)
    expected = composition(1.0, 0.1, 10.0)
    assert scaled.device_error(sure) == plain.device_error(sure)
    assert scaled.device_error(wide) == pytest.approx(np.hypot(0.15, scaled.device_error(sure)))
    of_operations, _ = plain.energy_parts(expected, wide)
    assert of_operations == pytest.approx(0.2)  # half of it is idle
    of_device = 0.5 * plain.device_error(wide), 0.5 * scaled.device_error(wide)
    squares = plain.energy_error(expected, wide) ** 2 - scaled.energy_error(expected, wide) ** 2
    assert squares == pytest.approx(0.2**2 - 0.05**2 + of_device[0] ** 2 - of_device[1] ** 2)
    assert scaled.dynamic_half_width(wide) < plain.dynamic_half_width(wide)
    assert scaled.host_error(wide) == plain.host_error(wide)


def test_the_interval_score_rewards_narrow_intervals_that_hold():
    residuals = np.zeros(4)
    narrow, wide = (interval_score(residuals, np.full(4, -half), np.full(4, half)) for half in (0.1, 0.5))
    assert (narrow, wide) == pytest.approx((0.2, 1.0))
    missed = interval_score(residuals + 1.0, np.full(4, -0.1), np.full(4, 0.1))
    assert missed == pytest.approx(0.2 + 20 * 0.9)


def test_the_width_of_device_time_is_that_of_the_interval_that_is_stated():
    mean = np.ones((2, len(TARGETS)))
    factors = np.broadcast_to([np.exp(-0.3), np.exp(0.3)], (2, len(TARGETS), 2))
    added = added_errors(mean, factors, np.array([3.0, 1.0]))
    errors = PassErrors(correlation=0.1, composition_device=0.02, device=HALF)
    low, high = errors.ends(composition(4.0, 1.0), added)["device_s"]
    assert errors.device_half_width(added) == pytest.approx((high - low) / 2 / 4.0)
    assert DYNAMIC not in added_errors(mean, factors, np.ones(2), energy=False)
    unknown = np.array(factors)
    unknown[0, TARGETS.index(DEVICE)] = np.nan
    assert DEVICE not in added_errors(mean, unknown, np.ones(2))
    assert DEVICE in added_errors(mean, unknown, np.array([0.0, 1.0]))  # what is never called does not matter


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != EAGER])
def test_the_error_of_a_mode_adds_to_both_halves_of_an_interval(mode):
    expected, before = (
        composition(2.0, 1.0, 4.0),
        {"device_s": (1.6, 2.2), "energy_j": (3.0, 5.0), "host_s": (0.9, 1.1)},
    )
    found = in_mode(before, expected, mode)
    assert found["host_s"] == before["host_s"]
    for name in ("device_s", "energy_j"):
        value, error = getattr(expected, name), mode_errors()[mode][name]
        assert found[name][0] < before[name][0] < before[name][1] < found[name][1]
        halves = np.abs(np.log(np.array([before[name], found[name]]) / value))
        assert halves[1] == pytest.approx(np.sqrt(halves[0] ** 2 + error**2))
    assert in_mode(before, expected, EAGER) == before


def test_a_pass_without_device_work_keeps_its_interval():
    assert in_mode({"device_s": (0.0, 0.0)}, composition(0.0, 1.0), MODES[-1]) == {"device_s": (0.0, 0.0)}
