import functools
import shutil
from pathlib import Path

import pytest
from test_imports import MODULES, imports

import clockwatt
from clockwatt.workflow.fingerprint import EVERY_STAGE, PACKAGES, fingerprints

ROOT = Path(clockwatt.__file__).parent
STUDIES = {command for command in PACKAGES if command.startswith("study_")}
WITHOUT_DATASET = {"study_power", "study_workloads", "study_parallel"}
"""Studies that read their own measurements alone."""


@pytest.fixture
def package(tmp_path):
    """A copy of the package, to change."""
    return Path(shutil.copytree(ROOT, tmp_path / "clockwatt", ignore=shutil.ignore_patterns("__pycache__")))


@functools.cache
def directly_imported(module):
    return [*imports(MODULES[module])]


def imported(command):
    """Files that a command imports, directly or not, but for the command line itself."""
    waiting, found = [f"clockwatt.cli.{command}"], set()
    while waiting:
        module = waiting.pop()
        if module in MODULES and module not in found:
            found.add(module)
            parts = module.split(".")
            waiting += [*directly_imported(module), *(".".join(parts[:depth]) for depth in range(1, len(parts)))]
    return {MODULES[name].relative_to(ROOT) for name in found if not name.startswith("clockwatt.cli")}


@pytest.mark.parametrize("command", PACKAGES)
def test_all_that_a_stage_imports_counts(command):
    counted, files = (*EVERY_STAGE, *PACKAGES[command]), imported(command)
    assert [path for path in files if not any(path.is_relative_to(part) for part in counted)] == []
    assert [part for part in PACKAGES[command] if not any(path.is_relative_to(part) for path in files)] == []


@pytest.mark.parametrize(
    ("changed", "stages"),
    [
        ("page/assets/page.css", {"page"}),
        ("page/write.py", {"page"}),
        ("figures/draw.py", {"figures", "page", *STUDIES}),
        ("predict/fit.py", {"fit", "validate", "figures", "page", "study_thermal"}),
        ("dataset/join.py", {"dataset", "fit", "validate", "figures", "page", *STUDIES} - WITHOUT_DATASET),
        ("studies/power/steps.py", {"study_power"}),
        ("schema/records.py", set(PACKAGES)),
        ("cli/options.py", set()),
        ("workflow/plan.py", set()),
    ],
)
def test_a_change_concerns_the_stages_that_may_run_it(package, changed, stages):
    before = fingerprints(package)
    path = package / changed
    path.write_text(path.read_text() + "\n")
    after = fingerprints(package)
    assert {stage for stage in PACKAGES if after[stage] != before[stage]} == stages


def test_does_not_depend_on_the_place_and_not_on_bytecode(package):
    before = fingerprints(package)
    (package / "predict" / "__pycache__").mkdir()
    (package / "predict" / "__pycache__" / "fit.cpython-311.pyc").write_bytes(b"1")
    moved = package.rename(package.with_name("moved"))
    assert fingerprints(moved) == before


def test_a_shipped_file_counts(package, tmp_path, monkeypatch):
    monkeypatch.setattr("clockwatt.workflow.fingerprint.resource", tmp_path.joinpath)
    (tmp_path / "gpus.yaml").write_text("a: 1\n")
    before = fingerprints(package)
    (tmp_path / "gpus.yaml").write_text("a: 2\n")
    assert all(fingerprints(package)[stage] != before[stage] for stage in PACKAGES)
