"""The version stands in the package; everything else that names it follows."""

import importlib.metadata
import subprocess
import sys
import tomllib
from pathlib import Path

import yaml

import clockwatt

REPOSITORY = Path(__file__).parents[2]


def test_the_citation_is_of_this_version():
    citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text())
    assert citation["version"] == clockwatt.__version__


def test_what_is_built_takes_its_version_from_the_package():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    assert "version" not in project
    assert importlib.metadata.version("clockwatt") == clockwatt.__version__


def test_the_command_prints_it():
    command = [sys.executable, "-m", "clockwatt", "--version"]
    assert (
        subprocess.run(command, capture_output=True, text=True, check=True).stdout
        == f"clockwatt {clockwatt.__version__}\n"
    )
