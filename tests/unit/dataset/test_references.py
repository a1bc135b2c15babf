"""A campaign's own rows beside those of the H200 that are shipped."""

import dataclasses
import json
import shutil

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from clockwatt import config
from clockwatt.cli.main import app
from clockwatt.config import FitConfig
from clockwatt.dataset.build import build_dataset
from clockwatt.dataset.card_host_effects import host_factors
from clockwatt.dataset.reference import references
from clockwatt.errors import ConfigError, DataFileError
from clockwatt.io import files
from clockwatt.io.resources import resource
from clockwatt.predict.fit import fit
from clockwatt.predict.gpu_predictor import load_models
from clockwatt.schema.tables import OPERATIONS_SCHEMA
from support import synthetic

SHIPPED = resource("reference/h200")
ROWS = ("operations.parquet", "networks.parquet", "anchors.parquet")
RESNET18 = {"name": "resnet18", "input": [32, 3, 224, 224]}


def joined(folder, network=None, **changes):
    settings = synthetic.campaign(clocks=[900], networks=1, reference=["h200"], **changes)
    if network is not None:
        settings = settings.model_copy(update={"networks": [config.parse_network(network, source="test")]})
    made = synthetic.write_campaign(folder, settings)
    build_dataset(settings, made.measurements, made.catalogue, made.dataset)
    rows = {name: pd.read_parquet(made.dataset / name) for name in ROWS}
    return made, rows, synthetic.read_json(made.dataset / "quality.json")


@pytest.fixture(scope="module")
def beside_shipped(tmp_path_factory):
    """What `joined` gives without a change; not to be changed."""
    return joined(tmp_path_factory.mktemp("joined"))


def shipped_rows():
    shipped = config.load(SHIPPED / "config.yaml")
    return pd.concat(pd.read_parquet(SHIPPED / "measurements" / path) for path in shipped.measurement_files())


def test_all_rows_of_both_are_there_and_know_what_they_measured(beside_shipped):
    made, rows, quality = beside_shipped
    everything = pd.concat(rows.values())
    reference = everything[everything["gpu"] == "h200"]
    assert len(reference) == len(shipped_rows())
    assert not reference["virtual"].any()
    assert everything.loc[everything["gpu"] != "h200", "virtual"].all()
    assert rows["operations.parquet"]["function"].notna().all()
    assert quality["references"] == {"h200": {"rows_left_out": {}}}
    assert {(point["gpu"], point["reference"]) for point in quality["points"]} == {
        ("a30", None), ("v100", None), ("h200", "h200"),
    }  # fmt: skip
    calibration = pd.read_parquet(made.dataset / "calibration.parquet")
    assert set(calibration["gpu"]) == {"a30", "v100", "h200"}


def test_the_catalogue_of_the_dataset_has_every_network_of_both_with_all_its_calls(beside_shipped):
    made, rows, _ = beside_shipped
    networks, calls, operations = (
        pd.read_parquet(made.dataset / "catalogue" / f"{name}.parquet") for name in ("networks", "calls", "operations")
    )
    key = ["network_id", "pass"]
    assert not networks.duplicated(key).any()
    assert not operations.duplicated(["operation_id", "pass"]).any()
    assert dict(calls.groupby(key).size()) == networks.set_index(key)["calls"].to_dict()
    assert set(rows["networks.parquet"]["subject_id"]) <= set(networks["network_id"])
    assert set(calls["operation_id"]) <= set(operations["operation_id"])


def test_own_rows_of_the_same_label_and_operating_point_win(tmp_path):
    gpus = {"h200": {"device": "NVIDIA H200", "control": {"method": "none"}}}
    made, rows, quality = joined(tmp_path, gpus=gpus)
    own = sum(len(pd.read_parquet(made.measurements / path)) for path in made.config.measurement_files())
    assert sum(map(len, rows.values())) == quality["rows"] == own
    left_out = quality["references"]["h200"]["rows_left_out"]
    assert left_out == {"h200 default: measured by the campaign itself": len(shipped_rows())}


def thinned(name, folder):
    """Shipped reference data with a tenth of their operations: to join all of them takes long."""
    shutil.copytree(resource(f"reference/{name}"), folder)
    for path in folder.glob("measurements/**/*.parquet"):
        table = pq.read_table(path)
        if "kind" in table.column_names:
            kept = (np.array(table["kind"]) != "operation") | (np.arange(len(table)) % 10 == 0)
            path.unlink()
            files.write_table(table.filter(pa.array(kept)), path)
    return str(folder)


def test_reference_data_of_the_same_gpu_are_joined_into_one(tmp_path):
    wide = thinned("h200-wide", tmp_path / "wide")
    settings = synthetic.campaign(clocks=[900], networks=1, reference=[wide, "h200"])
    made = synthetic.write_campaign(tmp_path, settings)
    build_dataset(settings, made.measurements, made.catalogue, made.dataset)
    measured = {
        source.reference: pd.concat(
            pd.read_parquet(source.measurements / path) for path in source.config.measurement_files()
        )
        for source in references(settings)
    }
    rows = pd.concat(pd.read_parquet(made.dataset / name) for name in ROWS)
    rows = rows[rows["gpu"] == "h200"]
    assert len(rows) == sum(map(len, measured.values()))
    assert set(rows["session_id"]) == {session for part in measured.values() for session in part["session_id"]}
    assert rows.loc[rows["kind"] == "operation", "function"].notna().all()
    anchors = rows[rows["kind"] == "anchor"]
    of_sessions = anchors.groupby("session_id")["anchor_host_factor"]
    assert of_sessions.nunique(dropna=False).eq(1).all()
    pd.testing.assert_series_equal(of_sessions.first(), host_factors(anchors), check_names=False)  # of both together
    quality = synthetic.read_json(made.dataset / "quality.json")
    (point,) = (point for point in quality["points"] if point["gpu"] == "h200")
    assert point["reference"] == f"{wide}, h200"
    assert point["rows"] == len(rows)
    assert not point["missing_networks"]["count"]


def test_rows_of_a_network_that_the_campaign_has_otherwise_are_left_out_and_counted(tmp_path):
    made, rows, quality = joined(tmp_path, network=RESNET18)
    shipped = shipped_rows()
    unlike = shipped["subject_id"] == "resnet18-32x3x224x224-float32"
    assert list(quality["references"]["h200"]["rows_left_out"].values()) == [unlike.sum()]
    measured = rows["networks.parquet"]
    assert set(measured.loc[measured["subject_id"] == "resnet18-32x3x224x224-float32", "gpu"]) == {"a30", "v100"}
    calls = pd.read_parquet(made.dataset / "catalogue" / "calls.parquet")
    own = pd.read_parquet(made.catalogue / "calls.parquet")
    assert (calls["network_id"] == "resnet18-32x3x224x224-float32").sum() == len(own)


def test_a_label_that_stands_for_another_device_in_the_reference_is_refused():
    settings = synthetic.campaign(gpus={"h200": {"device": "virtual:h200"}}, reference=["h200"])
    with pytest.raises(ConfigError, match=r"gpus\.h200: is virtual:h200 here and NVIDIA H200 in the reference"):
        references(settings)


def test_a_label_that_stands_for_other_devices_in_two_references_is_refused(tmp_path):
    other = tmp_path / "other"
    shutil.copytree(SHIPPED, other)
    path = other / "config.yaml"
    path.write_text(path.read_text().replace("device: NVIDIA H200", "device: NVIDIA A30"))
    settings = synthetic.campaign(reference=["h200", str(other)])
    with pytest.raises(ConfigError, match=r"gpus\.h200: is NVIDIA H200 in the reference data 'h200' and NVIDIA A30 in"):
        references(settings)


def test_every_file_of_a_reference_is_there():
    (source,) = references(synthetic.campaign(reference="h200"))
    assert [path for path in source.files() if not path.is_file()] == []


def test_a_recommendation_is_among_measured_gpus_and_says_so(beside_shipped, tmp_path):
    whole, rows, _ = beside_shipped
    quick = FitConfig(trees=5, folds=2, predictors=["roofline"])
    made = synthetic.Campaign(whole.config.model_copy(update={"passes": ["inference"], "fit": quick}), tmp_path)
    shutil.copytree(whole.dataset, made.dataset)
    path, of_all = made.dataset / "operations.parquet", rows["operations.parquet"]
    few = (of_all["gpu"] != "h200") | (of_all.index % 10 == 0)  # a fit to all rows takes long
    table = files.read_table(path, OPERATIONS_SCHEMA).filter(pa.array(few))
    path.unlink()
    files.write_table(table, path)
    fit(made.config, made.dataset, made.dataset / "catalogue", made.predictors)
    virtual = {label: model.description.virtual for label, model in load_models(made.predictors).items()}
    assert virtual == {"a30": True, "v100": True, "h200": False}
    folders = ["--predictors-dir", str(made.predictors), "--catalogue-dir", str(made.dataset / "catalogue")]
    asked = ["recommend", "resnet18", "--input", "32,3,224,224", "--json", *folders]
    answer = json.loads(CliRunner().invoke(app, asked).stdout)
    assert {candidate["gpu"] for candidate in answer["candidates"]} == {"h200"}
    assert answer["best"]["virtual"] is False
    answer = json.loads(CliRunner().invoke(app, [*asked, "--gpu", "a30"]).stdout)
    assert {candidate["virtual"] for candidate in answer["candidates"]} == {True}


@pytest.fixture
def shipped_again(tmp_path):
    """A copy of the shipped reference, as `references` gives it, written at another time."""
    (source,) = references(synthetic.campaign(reference=["h200"]))
    copy = tmp_path / "h200"
    shutil.copytree(SHIPPED, copy, copy_function=shutil.copy)
    again = dataclasses.replace(source, measurements=copy / "measurements", catalogue=copy / "catalogue")
    return source, again


def test_a_copy_of_the_reference_data_has_the_same_digest(shipped_again):
    source, again = shipped_again
    assert again.digest() == source.digest()


def test_other_reference_data_have_another_digest(shipped_again):
    source, again = shipped_again
    changed = again.files()[0]
    changed.chmod(0o644)
    changed.write_bytes(changed.read_bytes()[:-1] + b"x")
    assert again.digest() != source.digest()


def test_reference_data_that_cannot_be_read_are_named(shipped_again):
    _, again = shipped_again
    again.files()[-1].unlink()
    with pytest.raises(DataFileError, match=r"networks\.parquet: cannot be read"):
        again.digest()
