"""The environments of `--sdm conda` against what the stages that run in them import."""

from __future__ import annotations

import ast
import functools
import inspect
import re
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
import yaml

import clockwatt
from clockwatt.cli.main import app

PACKAGE = Path(clockwatt.__file__).parent
REPOSITORY = PACKAGE.parents[1]
CONDA_NAMES = {
    "matplotlib": "matplotlib-base", "pynvml": "nvidia-ml-py", "sklearn": "scikit-learn", "torch": "pytorch",
    "xgboost": "py-xgboost-cpu", "xgboost-cpu": "py-xgboost-cpu", "yaml": "pyyaml",
}  # fmt: skip
"""Packages of conda-forge by the module that they hold, or by their name on PyPI, where that is another."""


def stages() -> dict[str, str]:
    """Commands that rules run, with the file of the rule's environment."""
    found = {}
    for path in (REPOSITORY / "workflow").glob("*/*.smk"):
        for rule in re.split(r"^rule ", path.read_text(), flags=re.MULTILINE)[1:]:
            command, environment = re.search(r"-m clockwatt ([\w-]+)", rule), re.search(r'conda:\s+"(.+?)"', rule)
            if command:
                assert environment, f"{path.name}: a rule that runs {command[1]} names no environment"
                found[command[1]] = Path(environment[1]).name
    return found


def packages(environment: str) -> dict[str, str]:
    """Packages of an environment, with the versions that it allows."""
    entries = yaml.safe_load((REPOSITORY / "envs" / environment).read_text())["dependencies"]
    return {name: versions for name, _, versions in (entry.partition(" ") for entry in entries)}


def imported(source: str, *, at_once: bool = False) -> Iterator[str]:
    """Modules that a source imports, in functions too unless only what is imported `at_once` is asked for."""
    waiting: list[ast.AST] = [ast.parse(source)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting.extend(node.orelse)
        elif not (at_once and isinstance(node, ast.FunctionDef)):
            waiting.extend(ast.iter_child_nodes(node))


@functools.cache
def imported_by(path: Path, *, at_once: bool) -> frozenset[str]:
    return frozenset(imported(path.read_text(), at_once=at_once))


def files_of(module: str) -> Iterator[Path]:
    """The file of a module of the project, and those of the packages above it."""
    below = module.split(".")[1:]
    for depth in range(len(below) + 1):
        parent = PACKAGE.joinpath(*below[:depth])
        yield from (path for path in (parent / "__init__.py", parent.with_suffix(".py")) if path.is_file())


def needed(modules: set[str], *, at_once: bool) -> set[str]:
    """Libraries that modules of the project import, directly or not."""
    waiting, seen, libraries = set(modules), set(), set()
    while waiting:
        first, *_ = (module := waiting.pop()).split(".")
        if first != "clockwatt":
            libraries.update({first} - sys.stdlib_module_names)
            continue
        for path in set(files_of(module)) - seen:
            seen.add(path)
            # what a package's face imports within a function waits for who calls that
            waiting.update(imported_by(path, at_once=at_once or path.name == "__init__.py"))
    return libraries


@functools.cache
def libraries_of(command: str) -> set[str]:
    """Libraries that a command imports: with the command line, and whatever its stage may call."""
    callback = typer.main.get_command(app).commands[command].callback
    stage = set(imported(textwrap.dedent(inspect.getsource(inspect.getmodule(inspect.unwrap(callback))))))
    return needed({"clockwatt.__main__"}, at_once=True) | needed(stage, at_once=False)


@pytest.mark.parametrize("command", stages())
def test_an_environment_has_what_its_stages_import(command):
    libraries = libraries_of(command)
    assert {"typer", "pydantic", "pyarrow"} <= libraries, "imports are found"
    wanted = {CONDA_NAMES.get(name, name) for name in libraries}
    assert wanted <= set(packages(stages()[command]))


def test_an_environment_has_nothing_that_none_of_its_stages_imports():
    of_environments: dict[str, set[str]] = {}
    for command, environment in stages().items():
        of_environments.setdefault(environment, set()).update(libraries_of(command))
    for environment, libraries in of_environments.items():
        wanted = {CONDA_NAMES.get(name, name) for name in libraries} | {"python"} | extras()
        assert set(packages(environment)) <= wanted


def extras() -> set[str]:
    """What an installation may leave out, since campaigns name it, not the sources."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extras = {name: entries for name, entries in project["optional-dependencies"].items() if name != "docs"}
    named = {re.match(r"[\w-]+", entry)[0] for entries in extras.values() for entry in entries}
    return {CONDA_NAMES.get(name, name) for name in named}


def test_a_campaign_may_name_in_an_environment_whatever_it_may_name_elsewhere():
    assert extras() <= {name for environment in stages().values() for name in packages(environment)}


def test_environments_allow_the_versions_that_the_project_does():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    listed = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    allowed = {}
    for entry in listed:
        name, versions = re.fullmatch(r"([\w-]+)(.*)", entry).groups()
        allowed[CONDA_NAMES.get(name, name)] = versions
    for path in (REPOSITORY / "envs").glob("*.yaml"):
        of_environment = packages(path.name)
        assert of_environment.pop("python").startswith(project["requires-python"])
        assert of_environment == {name: allowed[name] for name in of_environment}


def test_what_the_project_depends_on_is_imported():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    modules = {
        f"clockwatt.{'.'.join(path.relative_to(PACKAGE).with_suffix('').parts)}" for path in PACKAGE.rglob("*.py")
    }
    libraries = {CONDA_NAMES.get(name, name) for name in needed(modules, at_once=False)}
    asked_for = {re.match(r"[\w-]+", entry)[0] for entry in project["dependencies"]}
    workflow = {"snakemake", "snakemake-executor-plugin-slurm"}  # imported by Snakefile and profile
    assert {CONDA_NAMES.get(name, name) for name in asked_for - workflow} <= libraries
