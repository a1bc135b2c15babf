import dataclasses
import json
import shutil

import numpy as np
import pandas as pd
import pytest

from clockwatt.errors import DataFileError
from clockwatt.io import files
from clockwatt.predict.answerer import predict_network, predict_points
from clockwatt.predict.api import load
from clockwatt.predict.description import NotPredictableError
from clockwatt.predict.evaluation.errors import objective_of
from clockwatt.predict.gpu_predictor import GpuPredictor, load_models
from clockwatt.predict.recommend import Limits, count_as_good, recommend, within_error
from clockwatt.predict.request import Request
from clockwatt.predict.tracing import TracedNetwork
from clockwatt.predict.warning_kinds import WarningKind, is_of
from clockwatt.schema import layout, records
from clockwatt.schema.execution import FP32, TF32
from clockwatt.schema.records import MemoryRow, NetworkRow
from support import synthetic


@pytest.fixture(scope="module")
def models(made):
    return load_models(made.predictors)


def traced(made, pass_="inference"):
    rows = files.read_table(made.catalogue / "networks.parquet", records.NETWORK_SCHEMA).to_pylist()
    network = records.row_of(NetworkRow, [row for row in rows if row["pass"] == pass_][-1])
    calls = files.read_table(made.catalogue / "calls.parquet", records.CALL_SCHEMA).to_pandas()
    calls = calls[(calls["network_id"] == network.network_id) & (calls["pass"] == pass_)]
    operations = files.read_table(made.catalogue / "operations.parquet", records.OPERATION_SCHEMA).to_pandas()
    used = operations["operation_id"].isin(calls["operation_id"]) & (operations["pass"] == pass_)
    return TracedNetwork(network, calls, operations[used])


@pytest.mark.parametrize("pass_", ["inference", "training"])
def test_a_network_is_predicted_with_an_interval_around_what_was_measured(made, models, pass_):
    prediction = predict_network(models["a30"], traced(made, pass_), "sm1200")
    whole = files.read_table(
        made.measurements / "a30/sm1200/networks-1.parquet", records.MEASUREMENT_SCHEMA
    ).to_pylist()
    (measured,) = [row for row in whole if (row["subject_id"], row["pass"]) == (prediction.network_id, pass_)]
    assert prediction.virtual
    assert prediction.measured_point
    assert prediction.expected.time_s == pytest.approx(measured["time_eager_s"], rel=0.08)
    for name, value in (("time_s", "time_eager_s"), ("energy_j", "energy_j"), ("power_w", "power_w")):
        low, high = prediction.intervals[name]
        assert low < measured[value] < high
    assert (
        prediction.expected.host_s > prediction.expected.device_s
    )  # so intervals of device-bound networks do not apply
    assert (prediction.interval_method, prediction.interval_networks) == ("operations", 0)
    assert prediction.to_dict()["pass"] == pass_


def test_a_clock_between_the_measured_ones_lies_between_them(made, models):
    network = traced(made)
    low, between, high = (predict_network(models["a30"], network, point) for point in ("sm900", "sm1050", "sm1200"))
    assert not between.measured_point
    assert low.expected.device_s > between.expected.device_s > high.expected.device_s
    assert low.expected.energy_dynamic_j < between.expected.energy_dynamic_j < high.expected.energy_dynamic_j


def test_points_asked_together_are_answered_as_alone_to_the_bit(made, models):
    points, network = ["sm1200", "sm1050", "sm900", "sm1300", "pl100"], traced(made)
    together = predict_points(models["a30"], network, points)
    assert [one.point for one in together] == points
    assert together == [predict_points(models["a30"], network, [point])[0] for point in points]
    costs = models["a30"].costs(network.operations, "inference", execution=TF32).at(points)
    for point in points:
        alone = models["a30"].predict(network.operations, "inference", point, execution=TF32)
        pd.testing.assert_frame_equal(costs[point].frame(alone.index), alone, check_exact=True)


@pytest.mark.parametrize("objective", ["time", "energy", "edp"])
def test_the_best_candidate_is_recommended_with_its_regret(made, models, objective):
    found = recommend(models, traced(made), objective=objective, validation_dir=made.validation)
    values = [objective_of(objective, one.expected.time_s, one.expected.energy_j) for one in found.candidates]
    assert len(values) == 4
    assert values == sorted(values)
    assert found.best is found.candidates[0]
    if found.best.gpu == "a30":
        assert found.regret["objective"] == objective
        assert found.regret["fixed_mean_regret"] >= 0


@pytest.fixture
def hosts(made, tmp_path):
    """Predictors whose GPUs were measured on these hosts, by GPU."""

    def measured_on(**names):
        shutil.copytree(made.predictors, tmp_path / "predictors", dirs_exist_ok=True)
        for gpu, name in names.items():
            session = {"host": name, "cpu_model": None, "factor": 1.0, "passes": {}}
            path = tmp_path / "predictors" / gpu / layout.HOSTS_SEEN_FILE
            path.write_text(json.dumps({"sessions": [session]}))
        return load(tmp_path / "predictors", catalogue_dir=made.catalogue)

    return measured_on


def of_hosts(answer):
    return [warning for warning in answer.warnings if is_of(warning, WarningKind.DIFFERENT_HOSTS)]


def test_gpus_that_other_hosts_pace_are_compared_with_a_warning(made, models, hosts):
    network, others = traced(made), [gpu for gpu in models if gpu != "a30"]
    same, different = (dict.fromkeys(models, "n1") | {"a30": name} for name in ("n1", "n2"))
    assert of_hosts(recommend(hosts(**same).models, network, objective="time").best) == []
    found = recommend(hosts(**different).models, network, objective="time")
    assert len(of_hosts(found.best)) == 1, "the host paces all networks here"
    fastest = Limits(max_slowdown=0.0)
    alone = recommend(hosts(**different).models, network, objective="time", limits=fastest)
    assert {one.gpu for one in alone.candidates[: alone.allowed]} == {alone.best.gpu}
    assert of_hosts(alone.best) == [], "all others are too slow to be chosen"
    for names, number in ((same, 0), (different, 1)):
        among = hosts(**names)
        answer = among.answer(network, gpu="a30", point="sm900")
        answer = among.compared(answer, Request.of(relative_to=f"{others[0]}@sm900"), network)
        assert len(of_hosts(answer)) == number
    assert of_hosts(hosts(**different).answer(network, gpu="a30", point="sm900")) == []


def test_what_is_too_slow_comes_last(made, models):
    network = traced(made)
    fastest = min(one.expected.time_s for one in recommend(models, network, objective="time").candidates)
    strict = recommend(models, network, objective="energy", limits=Limits(max_slowdown=0.0))
    assert strict.best.expected.time_s == fastest
    assert 1 <= strict.allowed < len(strict.candidates)
    free = recommend(models, network, objective="energy", limits=Limits())
    assert free.allowed == len(free.candidates)
    assert free.best.expected.energy_j <= strict.best.expected.energy_j


def test_a_power_cap_is_kept_to_or_refused(made, models):
    network = traced(made)
    powers = sorted(one.expected.power_w for one in recommend(models, network).candidates)
    capped = recommend(models, network, objective="time", limits=Limits(power_cap_w=powers[1]))
    assert capped.best.expected.power_w <= powers[1]
    assert capped.allowed == 2
    with pytest.raises(NotPredictableError, match=f"least mean power is {powers[0]:.0f} W"):
        recommend(models, network, limits=Limits(power_cap_w=powers[0] / 2))


def test_a_clock_never_measured_counts_like_the_others_and_what_the_card_cannot_do_is_left_out(made, models):
    found = recommend(
        {"a30": models["a30"]}, traced(made), objective="time", points=["sm1050", "sm5000", "pl10", "sm800"]
    )
    times = [one.expected.time_s for one in found.candidates]
    assert times == sorted(times)
    assert {one.point for one in found.candidates} == {"sm900", "sm1050", "sm1200", "sm1440"}
    device_s = {one.point: one.expected.device_s for one in found.candidates}
    assert device_s["sm1200"] < device_s["sm1050"] < device_s["sm900"]
    assert [reason.split(":")[0] for reason in found.left_out] == [
        "a30 cannot run at sm5000", "a30 cannot run at pl10", "a30"
    ]  # fmt: skip
    assert "outside the measured clocks, 900 to 1440 MHz" in found.left_out[-1]


def test_a_choice_says_what_predict_warns_of_and_which_others_are_as_good(made, models):
    network = traced(made)
    found = recommend({"a30": models["a30"]}, network, objective="time", points=["sm1435"], execution=FP32)
    assert found.best.warnings == predict_network(models["a30"], network, found.best.point, execution=FP32).warnings
    assert "Nothing was measured in fp32." in found.best.warnings
    good = {one.point for one in found.candidates[: found.as_good]}
    assert {"sm1435", "sm1440"} <= good
    assert "sm900" not in good


def test_other_settings_are_as_good_where_their_ratio_to_the_best_may_be_one():
    time_s = np.array([1.0, 1.02, 1.3, 1.3, 3.0, 1.02])
    rows = {
        "gpu": np.zeros(6), "measured_point": np.ones(6), "time_s": time_s, "energy_j": time_s,
        "time_low_s": 0.7 * time_s, "time_high_s": 1.4 * time_s,
        "energy_low_j": 0.7 * time_s, "energy_high_j": 1.4 * time_s,
        "ratio_low": np.array([np.nan, np.nan, 0.9, 1.1, 0.9, 1.01]),
    }  # fmt: skip
    assert within_error(rows, 0, "time").tolist() == [True, False, True, False, True, False]


def test_errors_of_time_and_energy_add_up_in_their_product():
    time_s = energy_j = np.array([1.0, 1.2])
    rows = {
        "gpu": np.array(["a30", "v100"]), "measured_point": np.ones(2), "time_s": time_s, "energy_j": energy_j,
        "time_low_s": 0.8 * time_s, "time_high_s": 1.25 * time_s,
        "energy_low_j": 0.85 * energy_j, "energy_high_j": energy_j / 0.85,
    }  # fmt: skip
    assert within_error(rows, 0, "energy").tolist() == [True, True]
    assert within_error(rows, 0, "edp").tolist() == [True, True], "energy alone does not reach from 1.44 to 1"


def test_settings_of_twice_the_time_are_not_as_good_by_their_energy_alone(made, models):
    best = predict_network(models["a30"], traced(made), "sm1440", execution=FP32)
    time_s, energy_j = best.expected.time_s, best.expected.energy_j
    best = dataclasses.replace(best, detail=None, intervals={
        "time_s": (0.99 * time_s, 1.01 * time_s), "energy_j": (0.8 * energy_j, 1.2 * energy_j)
    })  # fmt: skip
    slower = dataclasses.replace(
        best,
        execution=TF32,
        expected=dataclasses.replace(best.expected, time_s=2 * time_s),
        intervals=best.intervals | {"time_s": (1.98 * time_s, 2.02 * time_s)},
    )
    assert count_as_good([best, slower], "energy") == 2
    assert count_as_good([best, slower], "edp") == 1


def test_what_lies_outside_the_measurements_is_said(made, models):
    network = traced(made)
    assert predict_network(models["a30"], network, "sm1050").warnings == ()
    beyond = predict_network(models["a30"], network, "sm500", execution=FP32).warnings
    assert beyond[0] == "sm500 lies outside the measured clocks, 900 to 1440 MHz."
    assert beyond[1] == "Nothing was measured in fp32."
    with pytest.raises(NotPredictableError, match="Measured: sm900, sm1200"):
        predict_network(models["a30"], network, "pl100")
    large = synthetic.row_of_operation(synthetic.operation_of("conv2d", [8, 900, 64, 64], 900, 3), "inference")
    columns = network.operations.columns
    row = {name: getattr(large, {"pass": "pass_"}.get(name, name)) for name in columns}
    operations = pd.concat([network.operations, pd.DataFrame([row])], ignore_index=True)
    once = network.calls.iloc[:1].assign(operation_id=large.operation_id)
    calls = pd.concat([network.calls, once], ignore_index=True)
    asked = dataclasses.replace(network, operations=operations, calls=calls)
    answer = predict_network(models["a30"], asked, "sm900")
    assert answer.warnings[0].startswith("Up to ")
    assert answer.warnings[0].endswith(" come from operations outside the training data (conv2d).")
    assert "conv2d lie outside" in answer.notes[0]
    seldom = dataclasses.replace(network, operations=operations)
    answer = predict_network(models["a30"], seldom, "sm900")
    assert (answer.warnings, len(answer.notes)) == ((), 1)


def test_regret_is_unknown_without_a_validation(made, models, tmp_path):
    assert recommend(models, traced(made)).regret is None
    assert recommend(models, traced(made), validation_dir=tmp_path).regret is None
    (tmp_path / "validation.json").write_text("[]")
    with pytest.raises(DataFileError, match=r"validation\.json"):
        recommend(models, traced(made), validation_dir=tmp_path)


def test_virtual_and_measured_gpus_are_not_compared(made, models):
    real = GpuPredictor(models["v100"].folder, dataclasses.replace(models["v100"].description, virtual=False))
    with pytest.raises(NotPredictableError, match="virtual and measured"):
        recommend({"a30": models["a30"], "v100": real}, traced(made))


def test_a_pass_that_was_not_fitted_is_refused(made, models):
    description = dataclasses.replace(models["a30"].description, passes={})
    with pytest.raises(NotPredictableError, match=r"a30, .*: nothing was fitted for inference"):
        predict_network(GpuPredictor(models["a30"].folder, description), traced(made), "sm900")


def test_folder_without_predictors_is_named(tmp_path):
    with pytest.raises(DataFileError, match=str(tmp_path)):
        load_models(tmp_path)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"gpu": "a30"}'])
def test_damaged_description_is_named(tmp_path, content):
    (tmp_path / "metrics.json").write_text('{"gpus": {"a30": {}}}')
    (tmp_path / "a30").mkdir()
    (tmp_path / "a30" / "description.json").write_text(content)
    with pytest.raises(DataFileError, match=r"description\.json"):
        load_models(tmp_path)


def test_unknown_objective():
    with pytest.raises(ValueError, match="choose time, energy, edp"):
        objective_of("money", 1.0, 1.0)


def test_a_gpu_without_enough_memory_is_never_recommended(made, models):
    def needing(gib):
        rows = [MemoryRow(number=0, bytes=gib * 2**30, kind=records.MEMORY_KINDS[0], module_path="")]
        return dataclasses.replace(traced(made), record_memory=lambda: rows)

    found = recommend(models, needing(20))
    assert {one.gpu for one in found.candidates} == {"a30"}
    assert found.best.memory.fits
    assert found.to_dict()["candidates"][-1]["memory"]["allocated_bytes"] == 20 * 2**30
    assert found.left_out[0].startswith("Does not fit: the pass needs 20.0 GiB; v100 has 16.0 GiB.")
    with pytest.raises(
        NotPredictableError, match=r"no GPU to choose from. Does not fit: the pass needs 90.0 GiB"
    ) as error:
        recommend(models, needing(90))
    assert str(error.value).count("Choose a smaller batch") == 1
    small = needing(1)
    large = dataclasses.replace(small, network=dataclasses.replace(small.network, parameter_bytes=20 * 2**30))
    assert recommend(models, large).left_out == (
        "Does not fit: weights and the largest operation exceed the memory of v100.",
    )
