"""Which module imports which: only from packages below, never in a cycle; analysis needs neither torch nor NVML."""

import ast
import functools
import graphlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import clockwatt

ROOT = Path(clockwatt.__file__).parent

LEVELS = [
    {"schema", "errors", "threads"},
    {"io", "config", "signals"},
    {"gpu"},
    {"telemetry", "control", "operations"},
    {"measure"},
    {"dataset"},
    {"predict"},
    {"figures"},
    {"studies"},
    {"page"},
    {"workflow"},
    {"cli", "__main__"},
]
"""Packages, lowest level first; packages of one level may import each other."""

PREDICT_LEVELS = [
    {"features", "warning_kinds", "module_times"},
    {"models"},
    {"composition", "memory"},
    {"evaluation", "hosts"},
    {"costs", "measured_costs"},
    {"description", "answer"},
    {"request", "tracing"},
    {"gpu_predictor"},
    {"answerer"},
    {"whole_networks", "recommend"},
    {"fit", "validate", "all_gpus"},
    {"fit_memory", "measure_missing", "parallel"},
    {"api"},
]
"""Packages and modules of `predict`, likewise."""


def modules() -> dict[str, Path]:
    """Every module of the package by its name."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


@functools.cache
def imports(path: Path, *, at_start: bool = False, for_types: bool = False) -> list[str]:
    """Modules that a file imports.

    `at_start` leaves out imports within functions; `for_types` adds those that only a type checker follows.
    """

    def nodes(parent: ast.AST) -> Iterator[ast.AST]:
        for node in ast.iter_child_nodes(parent):
            if at_start and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                continue
            if not for_types and isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                continue
            yield node
            yield from nodes(node)

    found: list[str] = []
    for node in nodes(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found += [name if name in MODULES else node.module for name in names]
    return found


def upward(levels: list[set[str]], depth: int, below: str) -> list[str]:
    """Imports that lead from a package to one above it; packages are told by the part of a module's name at `depth`."""
    level_of = {package: number for number, packages in enumerate(levels) for package in packages}

    def level(module: str) -> int | None:
        parts = module.split(".")
        if not module.startswith(below) or len(parts) <= depth:
            return None
        assert parts[depth] in level_of, f"{module}: its package {parts[depth]!r} is on no level"
        return level_of[parts[depth]]

    return [
        f"{module} imports {imported}"
        for module, path in MODULES.items()
        if (own := level(module)) is not None
        for imported in imports(path)
        if (other := level(imported)) is not None and other > own
    ]


def test_packages_import_only_from_packages_below_them() -> None:
    assert upward(LEVELS, 1, "clockwatt.") == []


def test_packages_of_predict_import_only_from_packages_below_them() -> None:
    assert upward(PREDICT_LEVELS, 2, "clockwatt.predict.") == []


def test_an_import_that_leads_up_is_found() -> None:
    assert "clockwatt.predict.fit imports clockwatt.config" in upward(LEVELS[::-1], 1, "clockwatt.")


def test_no_modules_import_each_other() -> None:
    graph = {
        module: set(imports(path, for_types=True)) & MODULES.keys() - {"clockwatt", module}
        for module, path in MODULES.items()
        if module != "clockwatt"  # it names what the user imports from it, and imports nothing by itself
    }
    graphlib.TopologicalSorter(graph).prepare()  # CycleError names the modules


ANALYSIS = ("predict", "dataset", "figures", "page", "studies.thermal")
WITH_PYTORCH = {"clockwatt.studies.thermal.models.recurrent_net"}
# each package is imported in a fork of its own, which finds libraries that most of them need imported already
IMPORTING = """
import importlib, json, os, sys
import bokeh.models, matplotlib.figure, pandas, pyarrow.compute, pyarrow.csv, pyarrow.parquet, pydantic

for package, modules in json.loads(sys.argv[1]).items():
    if os.fork() == 0:
        for module in modules:
            importlib.import_module(module)
        print(package, {"torch", "pynvml"} & set(sys.modules), flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.fixture(scope="module")
def imported() -> subprocess.CompletedProcess[str]:
    packages = {
        package: [name for name in MODULES if name.startswith(f"clockwatt.{package}") and name not in WITH_PYTORCH]
        for package in ANALYSIS
    }
    command = [sys.executable, "-c", IMPORTING, json.dumps(packages)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("package", ANALYSIS)
def test_analysis_imports_neither_torch_nor_nvml(imported: subprocess.CompletedProcess[str], package: str) -> None:
    assert imported.returncode == 0, imported.stderr
    assert f"{package} set()" in imported.stdout.splitlines(), imported.stdout + imported.stderr


def test_questions_are_answered_without_what_only_fitting_needs() -> None:
    fitting = {"torch", "pynvml", "sklearn", "scipy", "xgboost", "matplotlib"}
    found = [
        f"{module} imports {imported}"
        for module, path in MODULES.items()
        if module.startswith("clockwatt.predict.")
        for imported in imports(path, at_start=True)
        if imported.split(".")[0] in fitting
    ]
    assert found == []


def test_what_each_job_of_the_workflow_imports_is_light() -> None:
    checkout = Path(__file__).parents[2]
    files = [checkout / "Snakefile", *checkout.glob("workflow/*/*.smk")]
    lines = re.findall("^from clockwatt.*$", "\n".join(path.read_text() for path in files), re.MULTILINE)
    assert len(lines) > 10
    code = "\n".join([*lines, "import sys; print({'matplotlib', 'scipy', 'sklearn', 'torch'} & {*sys.modules})"])
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "set()\n"


def test_measuring_starts_without_pandas_and_scipy() -> None:
    code = "import sys, clockwatt.cli.main, clockwatt.measure.calibrate.run, clockwatt.measure.session\n"
    code += "print({'matplotlib', 'pandas', 'scipy', 'sklearn'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "set()\n"


def test_planning_starts_without_what_draws_figures() -> None:
    code = "import sys, clockwatt.workflow.plan_studies; print({'matplotlib', 'scipy'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "set()\n"
