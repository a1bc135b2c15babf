"""A GPU with few operations of its own learns from another one's."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from clockwatt.dataset.build import build_dataset
from clockwatt.predict.fit import fit
from clockwatt.predict.gpu_predictor import load_models
from clockwatt.predict.models.training_data import read_samples, training_data
from clockwatt.predict.models.transfer import transfer_sources, with_borrowed
from clockwatt.schema import layout
from support import synthetic

KEY = ["operation_id", "point", "execution"]


@pytest.fixture(scope="module")
def campaign(tmp_path_factory):
    """Of `v100`, one operation in four was measured."""
    settings = synthetic.campaign(clocks=[900], networks=3, passes=["inference"])
    made = synthetic.write_campaign(tmp_path_factory.mktemp("campaign"), settings)
    build_dataset(made.config, made.measurements, made.catalogue, made.dataset)
    path = made.dataset / layout.OPERATIONS_FILE
    table = pq.read_table(path)
    kept = sorted(set(table["subject_id"].to_pylist()))[::4]
    few = pc.or_(pc.not_equal(table["gpu"], "v100"), pc.is_in(table["subject_id"], value_set=pa.array(kept)))
    pq.write_table(table.filter(few), path)
    return made


def data_of(campaign, gpu):
    return training_data(read_samples(campaign.dataset, gpu), "inference")


def test_operations_are_transferred_from_the_gpu_that_alone_measured_them(campaign, tmp_path):
    assert transfer_sources(campaign.dataset, ["a30", "v100"]) == {"v100": "a30"}
    assert transfer_sources(campaign.dataset, ["v100"]) == {}
    path = campaign.dataset / layout.OPERATIONS_FILE
    table = pq.read_table(path)
    shared = table.filter(pc.equal(table["gpu"], "v100"))["subject_id"][0]
    on_v100_alone = pc.and_(pc.equal(table["gpu"], "a30"), pc.equal(table["subject_id"], shared))
    pq.write_table(table.filter(pc.invert(on_v100_alone)), tmp_path / path.name)
    assert transfer_sources(tmp_path, ["a30", "v100"]) == {"a30": "v100", "v100": "a30"}
    virtual = pc.equal(table["gpu"], "v100")
    pq.write_table(table.set_column(table.schema.get_field_index("virtual"), "virtual", virtual), tmp_path / path.name)
    assert transfer_sources(tmp_path, ["a30", "v100"]) == {}, "virtual and measured GPUs never mix"


def test_costs_are_carried_over_and_nothing_of_its_own_is_changed(campaign):
    own = data_of(campaign, "v100")
    found = with_borrowed(own, read_samples(campaign.dataset, "a30"))
    count = len(own.cells)
    assert found.rows is own.rows
    pd.testing.assert_frame_equal(found.targets.iloc[:count], own.targets, check_index_type=False)
    assert set(found.cells["operation_id"]) >= set(data_of(campaign, "a30").cells["operation_id"])
    assert not found.cells.duplicated(KEY).any()
    assert found.learnt[count:].all()
    assert len(found.features) == len(found.groups) == len(found.cells) == len(found.learnt) > 2 * count
    assert found.groups.notna().all()


def test_times_come_near_those_that_would_have_been_measured(tmp_path):
    settings = synthetic.campaign(clocks=[900], networks=3, passes=["inference"])
    made = synthetic.write_campaign(tmp_path, settings)
    build_dataset(made.config, made.measurements, made.catalogue, made.dataset)
    complete = data_of(made, "v100")
    keep = np.arange(len(complete.cells)) % 4 == 0
    samples = read_samples(made.dataset, "v100")
    kept = samples.rows["operation_id"].isin(complete.cells.loc[keep, "operation_id"])
    own = training_data(replace(samples, rows=samples.rows[kept]), "inference")
    found = with_borrowed(own, read_samples(made.dataset, "a30"))
    truth = complete.targets.set_index(pd.MultiIndex.from_frame(complete.cells[KEY]))
    told = found.targets.set_index(pd.MultiIndex.from_frame(found.cells[KEY])).iloc[len(own.cells) :]
    truth = truth.reindex(told.index)
    for name in ("time_device_corrected_s", "time_host_corrected_s", "energy_dynamic_corrected_j"):
        off = (told[name] / truth[name] - 1).abs()
        assert off.median() < 0.25, name
    as_it_stands = data_of(made, "a30").targets.set_index(pd.MultiIndex.from_frame(data_of(made, "a30").cells[KEY]))
    untold = (as_it_stands.reindex(told.index) / truth - 1).abs()["time_device_corrected_s"]
    assert (told / truth - 1).abs()["time_device_corrected_s"].mean() < 0.7 * untold.mean()


def test_a_fit_says_what_was_borrowed_and_looks_none_of_it_up(campaign):
    fit(campaign.config, campaign.dataset, campaign.catalogue, campaign.predictors)
    passes = synthetic.read_json(campaign.predictors / "metrics.json")["gpus"]
    borrowed = passes["v100"]["passes"]["inference"]["borrowed"]
    assert borrowed["gpu"] == "a30"
    assert borrowed["rows"] > passes["v100"]["passes"]["inference"]["learnt_rows"] // 2
    assert "borrowed" not in passes["a30"]["passes"]["inference"]
    measured = pd.read_parquet(load_models(campaign.predictors)["v100"].folder / "measured-inference.parquet")
    assert set(measured["operation_id"]) <= set(read_samples(campaign.dataset, "v100").rows["operation_id"])
