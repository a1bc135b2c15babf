"""Who imports whom: rooms import only from rooms below them, and analysis needs neither torch nor NVML."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import clockwatt

ROOT = Path(clockwatt.__file__).parent

FLOORS = [
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
"""Rooms of the house, from the ground up; rooms of one floor may import each other."""

PREDICT_FLOORS = [
    {"features"},
    {"samples"},
    {"models"},
    {"composition"},
    {"evaluation", "hosts"},
    {"costs"},
    {"description"},
    {"gpu_predictor", "model_card", "prediction", "query"},
    {"answer"},
    {"whole_networks", "recommend", "questions"},
    {"fit", "validate", "library"},
    {"overview", "missing"},
]
"""Rooms of `predict`, likewise."""


def modules() -> dict[str, Path]:
    """Every module of the package by its name."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def imports(path: Path, *, at_start: bool = False) -> Iterator[str]:
    """Modules of the package, and others, that a file imports; `at_start` leaves out what waits inside of functions."""

    def nodes(parent: ast.AST) -> Iterator[ast.AST]:
        for node in ast.iter_child_nodes(parent):
            if at_start and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                continue
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                continue
            yield node
            yield from nodes(node)

    for node in nodes(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in MODULES else node.module for name in names)


def upward(floors: list[set[str]], depth: int, below: str) -> list[str]:
    """Imports that lead from a room to one above it; rooms are told by the part of a module's name at `depth`."""
    floor_of = {room: number for number, rooms in enumerate(floors) for room in rooms}

    def floor(module: str) -> int | None:
        parts = module.split(".")
        if not module.startswith(below) or len(parts) <= depth:
            return None
        assert parts[depth] in floor_of, f"{module}: its room {parts[depth]!r} is on no floor"
        return floor_of[parts[depth]]

    return [
        f"{module} imports {imported}"
        for module, path in MODULES.items()
        if (own := floor(module)) is not None
        for imported in imports(path)
        if (other := floor(imported)) is not None and other > own
    ]


def test_rooms_import_only_from_rooms_below_them() -> None:
    assert upward(FLOORS, 1, "clockwatt.") == []


def test_rooms_of_predict_import_only_from_rooms_below_them() -> None:
    assert upward(PREDICT_FLOORS, 2, "clockwatt.predict.") == []


def test_an_import_that_leads_up_is_found() -> None:
    assert "clockwatt.predict.fit imports clockwatt.config" in upward(FLOORS[::-1], 1, "clockwatt.")


ANALYSIS = ("predict", "dataset", "figures", "page")
# each room is imported in a fork of its own, which finds libraries that most of them need imported already
IMPORTING = """
import importlib, json, os, sys
import bokeh.models, matplotlib.figure, pandas, pyarrow.compute, pyarrow.csv, pyarrow.parquet, pydantic

for room, modules in json.loads(sys.argv[1]).items():
    if os.fork() == 0:
        for module in modules:
            importlib.import_module(module)
        print(room, {"torch", "pynvml"} & set(sys.modules), flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.fixture(scope="module")
def imported() -> subprocess.CompletedProcess[str]:
    rooms = {room: [name for name in MODULES if name.startswith(f"clockwatt.{room}")] for room in ANALYSIS}
    command = [sys.executable, "-c", IMPORTING, json.dumps(rooms)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("room", ANALYSIS)
def test_analysis_imports_neither_torch_nor_nvml(imported: subprocess.CompletedProcess[str], room: str) -> None:
    assert imported.returncode == 0, imported.stderr
    assert f"{room} set()" in imported.stdout.splitlines(), imported.stdout + imported.stderr


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
