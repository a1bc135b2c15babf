import filecmp
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pandas as pd
import pytest

from clockwatt.dataset.build import build_dataset
from clockwatt.errors import DataFileError
from clockwatt.io import files, seal
from clockwatt.predict.composition.networks import VALIDATION_SCHEMA
from clockwatt.predict.description import model_card
from clockwatt.predict.evaluation.leave_out import CROSSVAL_SCHEMA, as_wide_as
from clockwatt.predict.fit import fit
from clockwatt.predict.gpu_predictor import GpuPredictor
from clockwatt.predict.models import neural_ensemble, predictors
from clockwatt.predict.models.predictors import MissingLibraryError, load_predictor
from clockwatt.predict.models.training_data import read_samples
from clockwatt.predict.validate import validate
from clockwatt.schema import layout, records
from clockwatt.schema.costs import COSTS
from clockwatt.schema.execution import TF32
from clockwatt.schema.records import MeasurementRow
from support import synthetic

ROOFLINE = {"predictors": ["roofline"], "folds": 4, "trees": 12}


@pytest.fixture(scope="module")
def metrics(made):
    return synthetic.read_json(made.predictors / "metrics.json")["gpus"]


def rebuilt(tmp_path, edit, **changes):
    """A campaign whose first file of operations was changed by `edit`, as a dataset."""
    gpus = {"a30": {"device": "virtual:a30", "clocks_mhz": [900]}}
    made = synthetic.write_campaign(tmp_path, synthetic.campaign(networks=2, gpus=gpus, **changes))
    synthetic.change_operations(made, layout.operations_file("a30", "sm900", 1), edit)
    build_dataset(made.config, made.measurements, made.catalogue, made.dataset)
    return made


def test_roofline_predictor_beats_the_forest_on_held_out_groups(metrics):
    for gpu in metrics.values():
        for of_pass in gpu["passes"].values():
            roofline, forest = (of_pass["predictors"][name]["targets"] for name in ("roofline", "forest"))
            assert roofline["time_device_corrected_s"]["mape"] < forest["time_device_corrected_s"]["mape"] / 2
            assert roofline["time_device_corrected_s"]["mape"] < 0.08
            assert roofline["energy_dynamic_corrected_j"]["mape"] < 0.15


def test_intervals_cover_held_out_groups(metrics):
    for of_pass in metrics["a30"]["passes"].values():
        for interval in of_pass["predictors"]["roofline"]["intervals"].values():
            assert interval["lower"] < 1 < interval["upper"]
            assert 0.8 <= interval["held_out_coverage"] <= 1


def test_operations_without_device_work_are_known_and_not_learnt(made, metrics):
    assert metrics["a30"]["not_learnt_from"] == {"no device work": 18}
    model = GpuPredictor.load(made.predictors / "a30")
    operations = read_samples(made.dataset, "a30").operations
    views = operations[(operations["pass"] == "inference") & ~operations["device_work"].astype(bool)]
    costs = model.predict(views, "inference", "sm900", execution=TF32)
    assert (costs["time_device_corrected_s"] == 0).all()
    assert costs["time_host_corrected_s"].to_numpy() == pytest.approx(synthetic.HOST_S["flatten"], rel=0.05)


def test_no_group_is_in_two_folds(made):
    rows = files.read_table(made.predictors / "crossval.parquet", CROSSVAL_SCHEMA).to_pandas()
    assert set(rows["fold"]) == {0, 1, 2, 3}
    folds = rows.groupby(["gpu", "pass", "operation_id"])["fold"]
    assert (folds.min() == folds.max()).all()
    assert rows["virtual"].all()
    assert rows[[cost.predicted for cost in COSTS]].notna().all(axis=None)


def test_networks_composed_by_the_pipeline_are_right_and_by_the_plain_sum_are_not(made):
    report = synthetic.read_json(made.validation / "validation.json")["gpus"]
    for gpu in report.values():
        assert gpu["incomplete_compositions"] == 0
        for of_pass in gpu["errors"].values():
            assert of_pass["measured"]["time_s"]["mape"] < 0.03
            assert of_pass["measured"]["energy_j"]["mape"] < 0.03
            assert of_pass["predicted"]["time_s"]["mape"] < 0.08
            assert of_pass["measured"]["plain_time_s"]["mape"] > of_pass["measured"]["time_s"]["mape"]
    regret = report["a30"]["regret"]
    assert {entry["objective"] for entry in regret} == {"time", "energy", "edp"}
    assert all(entry["points"] == 3 and entry["mean_regret"] >= 0 for entry in regret)


def test_every_network_stands_in_the_validation(made):
    rows = files.read_table(made.validation / "networks.parquet", VALIDATION_SCHEMA).to_pandas()
    assert len(rows) == 3 * 2 * (3 + 1) * 2  # networks, passes, points, sources
    assert rows["virtual"].all()


def test_the_model_card_is_one_screen_and_says_first_where_not_to_trust_it(made):
    lines = (made.predictors / "a30" / "model-card.md").read_text().splitlines()
    assert len(lines) <= 45
    assert [line for line in lines if line.startswith("#")] == [
        "# Predictors of a30 (virtual A30)",
        "## Known limitations",
        "## Errors",
        "## Data",
    ]
    assert lines[2].startswith("**Virtual")
    card = "\n".join(lines)
    metrics = synthetic.read_json(made.predictors / "metrics.json")["gpus"]["a30"]
    median = metrics["passes"]["inference"]["networks_left_out"]["compositions"]["energy_j"]["median_ape"]
    assert f"| energy of an unseen network | {100 * median:.1f} % / " in card
    assert "SM clocks outside 900 to 1440 MHz" in card
    assert "excluded from training, 18 rows: no device work" in card


def test_the_details_of_the_model_card_have_every_class(made):
    folder = made.predictors / "a30"
    assert "(model-card-details.md)" in (folder / "model-card.md").read_text()
    details = (folder / "model-card-details.md").read_text()
    assert "Virtual" in details
    assert "no device work: 18" in details
    assert "sm900, sm1200, sm1440" in details
    classes = synthetic.read_json(made.predictors / "metrics.json")["gpus"]["a30"]["passes"]["training"]
    for name in classes["predictors"]["roofline"]["classes"]["time_device_corrected_s"]:
        assert f"| {name} |" in details


def test_the_model_card_says_what_was_not_fitted(made):
    report = synthetic.read_json(made.predictors / "metrics.json")["gpus"]["a30"]
    report["passes"]["training"] = {"rows": 0}
    report["passes"]["inference"]["networks_left_out"] = None
    card = model_card(GpuPredictor.load(made.predictors / "a30").description, report, details="d.md")
    assert "Training: there was nothing to learn from" in card
    assert "Inference: no network was held out" in card
    assert "| energy of an unseen network | – |" in card


def test_few_rows_have_no_perceptrons(tmp_path):
    made = rebuilt(tmp_path, lambda operations: None, fit=ROOFLINE | {"mlps": 1})
    fit(made.config, made.dataset, made.catalogue, made.predictors)
    report = synthetic.read_json(made.predictors / "metrics.json")["gpus"]["a30"]["passes"]["training"]
    assert report["predictors"]["roofline"]["perceptrons"] is None
    assert "MLPs" not in (made.predictors / "a30/model-card.md").read_text()
    forests = [load_predictor(path) for path in (made.predictors / "a30").glob("roofline-*.npz")]
    assert [forest.perceptrons_ for forest in forests] == [None, None]


def test_perceptrons_are_fitted_judged_and_told_of(made, tmp_path, monkeypatch):
    for name, value in (("WIDTH", 16), ("DEPTH", 2), ("EPOCHS", 2)):
        monkeypatch.setattr(neural_ensemble, name, value)
    monkeypatch.setattr(predictors, "LEAST_ROWS", 40)
    halved = []
    monkeypatch.setattr(
        "clockwatt.predict.fit.as_wide_as", lambda given, _: halved.append(as_wide_as(given, 0.5)) or halved[-1]
    )
    config = made.config.model_copy(update={"fit": made.config.fit.model_copy(update=ROOFLINE | {"mlps": 1})})
    fit(config, made.dataset, made.catalogue, tmp_path / "predictors")
    told = synthetic.read_json(tmp_path / "predictors/metrics.json")["gpus"]["a30"]["passes"]["training"]
    page = (tmp_path / "predictors/a30/model-card.md").read_text()
    forests = [load_predictor(path) for path in (tmp_path / "predictors/a30").glob("roofline-*.npz")]
    found = told["predictors"]["roofline"]["perceptrons"]
    assert found["rows"] > 0
    described = synthetic.read_json(tmp_path / "predictors/a30/description.json")["passes"]["training"]
    written = described["intervals"]["roofline"]["time_device_corrected_s"]
    assert written in [{name: asdict(interval) for name, interval in each.items()} for each in halved]
    assert all(forest.perceptrons_ is not None for forest in forests)
    assert f"Of {found['rows']:,} held-out operations, the error" in page.replace("\n", " ")


def test_of_many_clocks_some_are_learnt_from_and_all_are_judged(tmp_path):
    clocks = list(range(600, 1500, 105))
    changes = {"networks": 2, "passes": ["inference"], "fit": ROOFLINE}
    made = synthetic.write_campaign(tmp_path, synthetic.campaign(clocks=clocks, **changes))
    build_dataset(made.config, made.measurements, made.catalogue, made.dataset)
    fit(made.config, made.dataset, made.catalogue, made.predictors)
    report = synthetic.read_json(made.predictors / "metrics.json")["gpus"]["a30"]["passes"]["inference"]
    learnt = report["learnt_points"]
    assert learnt[0] == "sm600"
    assert learnt[-1] == "sm1440"
    assert len(learnt) == 6
    rows = files.read_table(made.predictors / "crossval.parquet", CROSSVAL_SCHEMA).to_pandas()
    rows = rows[(rows["gpu"] == "a30") & (rows["predictor"] == "roofline")]
    assert set(rows["point"]) == {f"sm{clock}" for clock in clocks}
    assert report["rows"] == len(rows) == report["learnt_rows"] * len(clocks) // 6
    error = (rows["predicted_time_device_corrected_s"] / rows["time_device_corrected_s"] - 1).abs()
    at_others = ~rows["point"].isin(learnt)
    assert error[at_others].median() < 1.2 * error[~at_others].median()
    model = GpuPredictor.load(made.predictors / "a30")
    operations = read_samples(made.dataset, "a30").operations
    predicted = model.costs(operations, "inference", execution=TF32).at(["sm600", "sm705", "sm810"])
    one = model.predict(operations, "inference", "sm705", execution=TF32)
    pd.testing.assert_frame_equal(one, predicted["sm705"].frame(one.index), check_exact=True)


_ANALYSE = """
import sys
from pathlib import Path
from clockwatt.predict.fit import fit
from clockwatt.predict.validate import validate
from clockwatt.schema.costs import COSTS
from support import synthetic
dataset, catalogue, predictors, validation = map(Path, sys.argv[1:])
fit(synthetic.campaign(), dataset, catalogue, predictors)
validate(synthetic.campaign(), dataset, catalogue, predictors, validation)
"""


def test_same_data_and_seed_give_the_same_bytes_in_a_process_that_hashes_differently(made, tmp_path):
    predictors, validation = tmp_path / "predictors", tmp_path / "validation"
    arguments = [sys.executable, "-c", _ANALYSE, made.dataset, made.catalogue, predictors, validation]
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(synthetic.__file__).parents[1])}
    subprocess.run(list(map(str, arguments)), env=environment, check=True)
    for here, there, files_written in ((made.predictors, predictors, 4 + 2 * 12), (made.validation, validation, 2)):
        written = sorted(str(path.relative_to(there)) for path in there.rglob("*.*"))
        assert len(written) == files_written
        assert filecmp.cmpfiles(here, there, written, shallow=False)[0] == written


def test_exclusions_are_counted_and_their_networks_still_composed(tmp_path):
    def edit(operations):
        operations[0].status = records.OUT_OF_MEMORY
        operations[0].time_device_s = operations[0].time_host_s = None
        operations[1].flags = ["interrupted"]
        operations[2].flags = ["clock_off_target"]
        operations[3].flags, operations[3].throttle_reasons = ["clock_off_target"], ["sw_power_cap"]
        operations[6].time_device_s = None

    made = rebuilt(tmp_path, edit, fit=ROOFLINE)
    fit(made.config, made.dataset, made.catalogue, made.predictors)
    validate(made.config, made.dataset, made.catalogue, made.predictors, made.validation)
    left_out = synthetic.read_json(made.predictors / "metrics.json")["gpus"]["a30"]["not_learnt_from"]
    assert left_out == {
        "device or host time could not be measured": 1,
        "flag clock_off_target": 1,
        "flag interrupted": 1,
        "no device work": 4,
        "status out_of_memory": 1,
    }
    rows = files.read_table(made.validation / "networks.parquet", VALIDATION_SCHEMA).to_pandas()
    assert (rows.loc[rows["source"] == "predicted", "calls_without_cost"] == 0).all()
    assert rows.loc[rows["source"] == "measured", "calls_without_cost"].sum() >= 1


def test_virtual_and_measured_rows_never_mix(tmp_path):
    def edit(operations):
        operations[0].virtual = False

    made = rebuilt(tmp_path, edit)
    with pytest.raises(DataFileError, match="never mixed"):
        fit(made.config, made.dataset, made.catalogue, made.predictors)


def test_repetitions_are_merged_and_cards_levelled(tmp_path):
    made = synthetic.write_campaign(tmp_path, synthetic.campaign(clocks=[900], networks=2))
    path = layout.operations_file("a30", "sm900", 1)
    table = files.read_table(made.measurements / path, records.MEASUREMENT_SCHEMA)
    rows = [records.row_of(MeasurementRow, values) for values in table.to_pylist()]
    slower = [records.row_of(MeasurementRow, values) for values in table.to_pylist()]
    for row in slower:
        row.gpu_uuid, row.session_id, row.repetition = "GPU-slow", "slow", 1
        row.time_device_s *= 1.3
    synthetic.write_rows(made, rows + slower, path)
    build_dataset(made.config, made.measurements, made.catalogue, made.dataset)
    samples = read_samples(made.dataset, "a30")
    assert samples.measurements == 2 * len(samples.rows)
    merged = samples.rows.set_index(["operation_id", "pass"])["time_device_corrected_s"]
    for row in (row for row in rows if row.kind == records.OPERATION and row.time_device_s):
        assert merged[row.subject_id, row.pass_] == pytest.approx(1.15 * row.time_device_s, rel=1e-6)


def test_a_pass_without_usable_rows_is_said_and_skipped(tmp_path, capsys):
    def edit(operations):
        for row in operations:
            if row.pass_ == records.TRAINING:
                row.status = records.FAILED

    made = rebuilt(tmp_path, edit, passes=["inference", "training"])
    fit(made.config, made.dataset, made.catalogue, made.predictors)
    assert "a30: nothing to learn from in training" in capsys.readouterr().err
    assert list(GpuPredictor.load(made.predictors / "a30").description.passes) == ["inference"]


def test_boosting_is_fitted_beside_the_others_and_may_answer(tmp_path):
    made = synthetic.write_campaign(
        tmp_path,
        synthetic.campaign(
            passes=["inference"],
            gpus={"a30": {"device": "virtual:a30", "clocks_mhz": [900]}},
            fit={"predictors": ["xgboost", "forest"], "folds": 4},
        ),
    )
    build_dataset(made.config, made.measurements, made.catalogue, made.dataset)
    fit(made.config, made.dataset, made.catalogue, made.predictors)
    of_pass = synthetic.read_json(made.predictors / "metrics.json")["gpus"]["a30"]["passes"]["inference"]
    predictors = of_pass["predictors"]
    boosted, forest = (predictors[name]["targets"]["time_device_corrected_s"] for name in ("xgboost", "forest"))
    assert boosted["mape"] < forest["mape"] / 2
    assert boosted["mape"] < 0.15
    rows = read_samples(made.dataset, "a30")
    costs = GpuPredictor.load(made.predictors / "a30").predict(
        rows.operations, "inference", "sm900", execution=TF32, look_up=False
    )
    measured = rows.rows.set_index("operation_id")["time_device_corrected_s"]
    works = measured[measured > 0].index
    assert (costs.loc[works, "time_device_corrected_s"] / measured[works] - 1).abs().median() < 0.05


def test_a_library_that_is_missing_is_named_with_the_way_to_get_it(made, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "xgboost", None)
    asked = synthetic.campaign(fit={"predictors": ["roofline", "xgboost"]})
    with pytest.raises(MissingLibraryError, match=r"fit\.predictors: xgboost .*pip install 'clockwatt\[xgboost\]'"):
        fit(asked, made.dataset, made.catalogue, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_missing_dataset_is_named(made, tmp_path):
    with pytest.raises(DataFileError, match=r"operations\.parquet: no such file"):
        fit(made.config, tmp_path, made.catalogue, tmp_path / "out")


def test_every_table_that_a_stage_of_analysis_writes_carries_the_digest_of_its_bytes(made):
    written = [
        path for folder in (made.dataset, made.predictors, made.validation) for path in folder.rglob("*.parquet")
    ]
    assert {layout.CROSSVAL_FILE, layout.LEFT_OUT_FILE, layout.NETWORKS_FILE} <= {path.name for path in written}
    assert [path.name for path in written if seal.is_whole(path) is not True] == []
