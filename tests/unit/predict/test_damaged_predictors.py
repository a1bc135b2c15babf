"""A damaged file among predictors: who only reads refuses it by name, says how to get it anew, and changes nothing."""

import contextlib
import io
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import clockwatt
from clockwatt.cli.main import main
from clockwatt.errors import ClockwattError
from clockwatt.page.write import write_page
from clockwatt.predict.validate import validate

FILES = (
    "measured-inference.parquet", "domain-inference.parquet", "roofline-inference.npz", "hosts-seen.json",
    "description.json", "../training.json", "../metrics.json",
)  # fmt: skip


@pytest.fixture
def results(made, tmp_path: Path) -> Path:
    """A copy of what analyses gave."""
    for folder in (made.predictors, made.validation, made.catalogue, made.dataset):
        shutil.copytree(folder, tmp_path / "results" / folder.name)
    return tmp_path / "results"


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def typed(*words: str) -> str:
    """What a command says on standard error; empty where it gives an answer."""
    errors = io.StringIO()
    with pytest.MonkeyPatch.context() as patched, contextlib.redirect_stderr(errors):
        patched.setattr(sys, "argv", ["clockwatt", *words])
        patched.setattr("os._exit", sys.exit)
        patched.setattr("clockwatt.cli.request_options._SILENCE_S", 3600.0)  # only errors are wanted
        with pytest.raises(SystemExit) as ended:
            main()
    assert (ended.value.code == 0) == (not errors.getvalue()), errors.getvalue()
    return errors.getvalue().removeprefix("error: ").rstrip("\n")


def called(ask: Callable[[], object]) -> str:
    """What an error of Python says; empty where there is none."""
    try:
        ask()
    except ClockwattError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", FILES)
def test_readers_refuse_it_by_name_and_leave_it_where_it_is(made, results: Path, name: str) -> None:
    predictors, page = results / "predictors", results.parent / "page.html"
    path = (predictors / "a30" / name).resolve()
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    before = contents(results)
    asked = ("net16", "--predictors-dir", str(predictors))
    said = {
        "predict": typed("predict", "--gpu", "a30", "--point", "sm1200", *asked),
        "recommend": typed("recommend", *asked),
        "show": typed("show", "net16", "--results", str(results)),
        "python": called(lambda: clockwatt.load(predictors).predict("net16", gpu="a30", point="sm1200")),
        "page": called(
            lambda: write_page(made.config, results / "dataset", predictors, results / "validation", page)
        ),
    }  # fmt: skip
    assert contents(results) == before
    refused = {reader: line for reader, line in said.items() if line}
    assert {"predict", "recommend", "python"} <= set(refused)
    for line in refused.values():
        assert line.startswith(f"{path}: ")
        assert "\n" not in line
        assert "again" in line
    assert page.exists() == ("page" not in refused)


def test_a_stage_that_writes_sets_it_aside_for_the_next_run_to_make(made, results: Path) -> None:
    path = results / "predictors" / "networks-left-out.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ClockwattError, match=r"set aside as networks-left-out\.parquet\.damaged; run the workflow"):
        validate(
            made.config, results / "dataset", results / "catalogue", results / "predictors", results / "validation"
        )
    assert not path.exists()


def test_of_a_shipped_file_it_is_said_that_it_comes_with_the_package(made, tmp_path: Path, monkeypatch) -> None:
    predictors = tmp_path / "package" / "predictors"
    shutil.copytree(made.predictors, predictors)
    monkeypatch.setattr("clockwatt.io.resources._SHIPPED", predictors.parent)
    path = predictors / "a30" / "measured-inference.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    loaded = clockwatt.load(predictors, catalogue_dir=made.catalogue)
    line = called(lambda: loaded.predict("net16", gpu="a30", point="sm1200"))
    assert line.startswith(f"{path}: damaged")
    assert line.endswith("It came with clockwatt: install clockwatt anew.")
