"""The predictors that are shipped, held against the shipped measurements, the settings and the code as they are now."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pack_predictors as packing
import pandas as pd
import pytest

import clockwatt
from clockwatt.io.resources import resource
from clockwatt.predict.description import shipped_predictors
from clockwatt.predict.gpu_predictor import load_models
from clockwatt.predict.models.predictors import load_predictor
from clockwatt.schema.execution import TF32

SHIPPED = shipped_predictors()
CAMPAIGN = packing.campaign_of(list(packing.REFERENCES))
TOLERANCE = 1e-6
AGAIN = "run tools/pack_predictors.py again"


@pytest.fixture(scope="module")
def packed() -> dict[str, Any]:
    return json.loads((SHIPPED / packing.PACKED_FILE).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shipped") / "dataset"
    packing.join(CAMPAIGN, folder)
    return folder


def differences(was: Any, now: Any, where: str = "") -> list[str]:
    """Where two documents of JSON differ by more than the tolerance."""
    if isinstance(was, dict) and isinstance(now, dict):
        missing = sorted(was.keys() ^ now.keys())
        shared = [
            difference
            for key in was.keys() & now.keys()
            for difference in differences(was[key], now[key], f"{where}/{key}")
        ]
        return [f"{where}/{key}: in one of them" for key in missing] + shared
    if isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        return [
            line
            for number, pair in enumerate(zip(was, now, strict=True))
            for line in differences(*pair, f"{where}/{number}")
        ]
    if isinstance(was, float) and isinstance(now, float):
        same = math.isclose(was, now, rel_tol=TOLERANCE, abs_tol=1e-12)
    else:
        same = was == now
    return [] if same else [f"{where}: {was} when packed, {now} now"]


def test_they_were_fitted_to_the_measurements_that_are_shipped(packed):
    assert differences(packed["data"], packing.digests(CAMPAIGN)) == [], AGAIN


def test_they_were_fitted_with_the_settings_of_the_script(packed):
    assert differences(packed["settings"], packing.settings(CAMPAIGN)) == [], AGAIN
    forests = [load_predictor(path) for path in SHIPPED.glob("*/*.npz")]
    assert len(forests) == 6
    found = {(forest.get_params()["trees"], forest.get_params()["leaf"]) for forest in forests}
    assert found == {(packing.TREES, packing.LEAF)}, AGAIN


def test_what_is_learnt_from_is_what_they_learnt_from(packed, dataset):
    assert differences(packed["learnt_from"], packing.learnt_from(dataset, list(load_models(SHIPPED)))) == [], AGAIN


def test_they_answer_as_when_they_were_packed(packed):
    assert differences(packed["answers"], packing.answers(SHIPPED)) == [], AGAIN


@pytest.mark.parametrize(("gpu", "pass_"), [("h200", "inference"), ("h200", "training"), ("h100", "inference")])
def test_they_know_what_they_learnt(dataset, gpu, pass_):
    samples, data = packing.learnt_by(dataset, gpu, pass_)
    ids = data.cells.loc[data.learnt & (data.cells["execution"] == TF32).to_numpy(), "operation_id"]
    operations = samples.operations.set_index("operation_id", drop=False)
    of_pass = operations[operations["pass"] == pass_] if "pass" in operations else operations
    asked = of_pass.loc[of_pass.index.intersection(ids)].drop_duplicates("operation_id")
    told = load_models(SHIPPED)[gpu].predict(asked, pass_, "default", execution=TF32, look_up=False)
    rows = data.rows[data.rows["execution"] == TF32].groupby("operation_id")["time_device_corrected_s"].median()
    errors = np.abs(told["time_device_corrected_s"] / rows.reindex(told.index) - 1).dropna()
    assert len(errors) > 50
    assert errors.median() < 0.06  # a leaf has two rows or more: 4.5 % was seen
    assert errors.quantile(0.95) < 0.6


def test_they_are_small_and_nothing_beside_them_is_forgotten():
    files = [path for name in ("predictors", "validation") for path in resource(name).rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= packing.MAX_BYTES
    names = {path.name for path in files if path.parent.name == "h200"}
    assert {"description.json", "model-card.md", "model-card-details.md", "hosts-seen.json"} <= names


def test_packing_forests_loses_nothing(tmp_path):
    before = tmp_path / "before.npz"
    arrays = {"value": np.linspace(0, 1, 1000, dtype=np.float32), "feature": np.arange(1000, dtype=np.int16)}
    np.savez(before, **arrays)
    packing.compress(before, tmp_path / "after.npz")
    assert (tmp_path / "after.npz").stat().st_size < before.stat().st_size
    with np.load(tmp_path / "after.npz") as after:
        assert all(
            np.array_equal(after[name], array) and after[name].dtype == array.dtype for name, array in arrays.items()
        )


def test_packed_tables_have_the_digits_that_are_known_and_are_packed_once(tmp_path):
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({
        "operation_id": [f"{number:x}" for number in range(2000)], "execution": "tf32",
        "time_device_corrected_s": rng.lognormal(-9, 2, 2000), "time_device_relative_error": rng.random(2000),
    })  # fmt: skip
    rows.loc[3, "time_device_corrected_s"] = np.nan
    rows.to_parquet(tmp_path / "before.parquet", compression="zstd")
    packing.compress(tmp_path / "before.parquet", tmp_path / "after.parquet")
    packing.compress(tmp_path / "after.parquet", tmp_path / "again.parquet")
    after = pd.read_parquet(tmp_path / "after.parquet")
    np.testing.assert_allclose(after["time_device_corrected_s"], rows["time_device_corrected_s"], rtol=1e-6)
    np.testing.assert_allclose(after["time_device_relative_error"], rows["time_device_relative_error"], rtol=4e-3)
    assert after["operation_id"].tolist() == rows["operation_id"].tolist()
    assert (tmp_path / "again.parquet").read_bytes() == (tmp_path / "after.parquet").read_bytes()
    assert (tmp_path / "after.parquet").stat().st_size < 0.7 * (tmp_path / "before.parquet").stat().st_size


def test_predictors_that_answer_otherwise_are_not_packed(tmp_path):
    shutil.copytree(SHIPPED, tmp_path / "predictors")
    description = tmp_path / "predictors" / "h200" / "description.json"
    content = json.loads(description.read_text())
    content["points"]["default"]["power_idle_w"] += 1.0
    description.write_text(json.dumps(content))
    with pytest.raises(clockwatt.ClockwattError, match="answers otherwise"):
        packing.check_same(SHIPPED, tmp_path / "predictors")


def test_without_a_campaign_the_shipped_ones_answer():
    predictors = clockwatt.load()
    assert predictors.gpus == ("a30", "h100", "h200", "rtx2080ti")
    answer = predictors.predict("resnet50", gpu="h200")
    assert answer.network_id == "resnet50-32x3x224x224-float32"
    assert answer.measured_calls == answer.expected.calls
    assert answer.predictors == f"shipped with clockwatt {clockwatt.__version__}"
    power_w = predictors.predict("resnet50", gpu="h100").expected.power_w
    assert 300 < power_w < 700  # 453 energies; with 45 of them it told 700 W of everything
    assert predictors.recommend("resnet50", objective="time").best.predictors.startswith("shipped")


def test_a_network_that_was_not_measured_needs_its_input():
    with pytest.raises(clockwatt.ClockwattError, match=r"resnet152: .* such as 32,3,224,224"):
        clockwatt.load().predict("resnet152", gpu="h200")


def test_a_campaign_s_own_predictors_go_before_the_shipped(made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    results = tmp_path / "results"
    for name in ("predictors", "validation"):
        shutil.copytree(made.root / name, results / name)
    shutil.copytree(made.catalogue, results / "dataset" / "catalogue")
    predictors = clockwatt.load()
    assert predictors.gpus == ("a30", "v100", "h100", "h200", "rtx2080ti")
    own = predictors.predict("net24", gpu="a30", point="sm1200")  # with the input that the campaign measured
    assert own.predictors == "results/predictors/a30"
    assert predictors.predict("resnet50", gpu="h200").predictors.startswith("shipped")
    # a GPU that the user may not have is not recommended
    assert {candidate.gpu for candidate in predictors.recommend("net24").candidates} <= set(predictors.models)
    # a label of the campaign's own is the campaign's
    content = json.loads((results / "predictors" / "metrics.json").read_text())
    content["gpus"]["h200"] = content["gpus"]["a30"]
    (results / "predictors" / "metrics.json").write_text(json.dumps(content))
    shutil.copytree(results / "predictors" / "a30", results / "predictors" / "h200")
    assert clockwatt.load().predict("net24", gpu="h200", point="sm1200").predictors == "results/predictors/h200"


def test_a_folder_that_is_named_answers_alone(made):
    predictors = clockwatt.load(made.predictors)
    assert not predictors.shipped
    with pytest.raises(
        clockwatt.ClockwattError, match=r"^gpu h200: no predictors for this GPU; there are predictors for a30\W"
    ):
        predictors.predict("net24", gpu="h200")


def test_another_optimizer_is_another_question(tmp_path, monkeypatch):
    monkeypatch.setenv("CLOCKWATT_CACHE_DIR", str(tmp_path / "cache"))
    predictors = clockwatt.load()

    def asked(**more):
        return predictors.predict("resnet18", gpu="h200", training=True, precision="tf32", **more)

    campaigns, named, other = asked(), asked(optimizer="SGD"), asked(optimizer="AdamW")
    assert campaigns.measured is not None
    assert named.to_dict() == campaigns.to_dict()
    assert (other.measured, other.held_out, other.network_id) == (None, None, f"{campaigns.network_id}-adamw")
    assert other.optimizer["optimizer"] == "adamw"
    assert other.expected.device_s != pytest.approx(campaigns.expected.device_s, rel=1e-3)
    again = clockwatt.load().predict("resnet18", gpu="h200", training=True, precision="tf32", optimizer="adamw")
    assert again.to_dict() == other.to_dict(), "a trace that was kept answers alike"
    swept = predictors.predict("resnet18", gpu="h200", training=True, optimizer="adamw", batch=[32, 64])
    assert set(swept["source"]) == {"predicted"}
    with pytest.raises(clockwatt.ClockwattError, match="optimizer is for training"):
        predictors.predict("resnet18", gpu="h200", optimizer="adamw")
