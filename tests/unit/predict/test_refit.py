"""Fitting again into a folder that holds predictors: whole, or not at all, and of the campaign's GPUs alone."""

import shutil

import pytest

from clockwatt.dataset.build import build_dataset
from clockwatt.errors import DataFileError, OutputError
from clockwatt.io import files
from clockwatt.predict.fit import fit
from clockwatt.predict.gpu_predictor import load_models
from clockwatt.schema import layout
from support import synthetic

SMALL = {
    "clocks": [900], "networks": 2, "passes": ["inference"],
    "fit": {"predictors": ["roofline"], "folds": 3, "trees": 3},
}  # fmt: skip


@pytest.fixture(scope="module")
def campaign(tmp_path_factory):
    made = synthetic.write_campaign(tmp_path_factory.mktemp("campaign"), synthetic.campaign(**SMALL))
    build_dataset(made.config, made.measurements, made.catalogue, made.dataset)
    fit(made.config, made.dataset, made.catalogue, made.predictors)
    return made


@pytest.fixture
def fitted(campaign, tmp_path):
    """The campaign, with predictors of its own."""
    shutil.copytree(campaign.root, tmp_path, dirs_exist_ok=True)
    return synthetic.Campaign(campaign.config, tmp_path)


def without_v100(made):
    """The dataset of the campaign after `v100` was taken out of it."""
    settings = synthetic.campaign(**SMALL)
    del settings.gpus["v100"]
    build_dataset(settings, made.measurements, made.catalogue, made.dataset)
    return settings


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_gpu_taken_out_of_the_campaign_is_offered_no_more(fitted):
    assert list(load_models(fitted.predictors)) == ["a30", "v100"]
    fit(without_v100(fitted), fitted.dataset, fitted.catalogue, fitted.predictors)
    assert list(load_models(fitted.predictors)) == ["a30"]
    assert not (fitted.predictors / "v100").exists()


def test_a_folder_that_is_not_listed_is_not_offered(fitted):
    shutil.copytree(fitted.predictors / "v100", fitted.predictors / "old")
    assert list(load_models(fitted.predictors)) == ["a30", "v100"]


def test_only_folders_of_predictors_are_removed(fitted):
    for name in ("notes", ".git"):
        (fitted.predictors / name).mkdir()
        (fitted.predictors / name / "mine.txt").write_text("kept")
    (fitted.predictors / ".a30.killed.part").mkdir()
    fit(fitted.config, fitted.dataset, fitted.catalogue, fitted.predictors)
    assert {path.name for path in fitted.predictors.iterdir() if path.is_dir()} == {"a30", "v100", "notes", ".git"}


def test_what_the_fit_before_wrote_beside_is_gone(fitted):
    (fitted.predictors / "a30" / "forest-training.npz").write_bytes(b"of a predictor that is no longer asked for")
    before = contents(fitted.predictors)
    fit(fitted.config, fitted.dataset, fitted.catalogue, fitted.predictors)
    del before["a30/forest-training.npz"]
    assert contents(fitted.predictors) == before


def test_a_refit_that_fails_leaves_every_predictor_with_its_own_metrics(fitted):
    def slower(operations):
        for row in operations:
            row.time_device_s *= 2

    def mixed(operations):
        operations[0].virtual = False

    before = contents(fitted.predictors)
    for gpu, edit in (("a30", slower), ("v100", mixed)):
        synthetic.change_operations(fitted, layout.operations_file(gpu, "sm900", 1), edit)
    build_dataset(fitted.config, fitted.measurements, fitted.catalogue, fitted.dataset)
    with pytest.raises(DataFileError, match="never mixed"):  # of v100, when a30 is fitted already
        fit(fitted.config, fitted.dataset, fitted.catalogue, fitted.predictors)
    assert contents(fitted.predictors) == before
    assert sorted(path.name for path in fitted.predictors.iterdir() if path.is_dir()) == ["a30", "v100"]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"gpus": 3}'])
def test_a_damaged_list_of_gpus_is_named(fitted, content):
    (fitted.predictors / "metrics.json").write_text(content)
    with pytest.raises(DataFileError, match=r"metrics\.json: not a list of predictors .*Run `clockwatt fit` again"):
        load_models(fitted.predictors)


def test_a_folder_that_cannot_be_put_in_place_leaves_the_old_one(tmp_path):
    files.write_text("old", tmp_path / "a30" / "card.md")
    with (
        pytest.raises(OutputError, match="a30: cannot be replaced"),
        files.folder_written_aside(tmp_path / "a30") as aside,
    ):
        aside.rmdir()
    assert contents(tmp_path) == {"a30/card.md": b"old"}
    assert [path.name for path in tmp_path.iterdir()] == ["a30"]


def test_a_folder_where_none_can_be_is_one_message(tmp_path):
    (tmp_path / "predictors").write_text("a file where a folder is wanted")
    with (
        pytest.raises(OutputError, match="a30: cannot be replaced"),
        files.folder_written_aside(tmp_path / "predictors" / "a30"),
    ):
        pass
