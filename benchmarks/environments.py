"""Do the stages run in the environments of `--sdm conda`? A virtual environment from each file, and a campaign.

    python benchmarks/environments.py FOLDER

Packages come from PyPI by their names there, with the versions that the files allow; PyTorch alone takes 5 GB. Every
stage of a small campaign on a modelled GPU runs in its own environment, as the rules have it. Needs uv.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import yaml

REPOSITORY = Path(__file__).parents[1]
PYPI_NAMES = {"matplotlib-base": "matplotlib", "pytorch": "torch", "py-xgboost-cpu": "xgboost-cpu"}
CAMPAIGN = {
    "campaign": "environments",
    "gpus": {"a30": {"device": "virtual:a30", "clocks_mhz": [900]}},
    "networks": [{"name": "squeezenet1_1", "input": [1, 3, 64, 64]}],
    "passes": ["inference"],
    "fit": {"trees": 10, "predictors": ["roofline", "forest", "xgboost"]},
}


def main() -> int:
    """Make the environments and run the rules; 0 where all ran."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="for the environments and the campaign")
    folder = parser.parse_args().folder.resolve()
    pythons = {path.name: make(path, folder / path.stem) for path in sorted((REPOSITORY / "envs").glob("*.yaml"))}
    campaign = folder / "campaign"
    (campaign / "results").mkdir(parents=True, exist_ok=True)
    (campaign / "results/config.yaml").write_text(json.dumps(CAMPAIGN))
    for environment, command in commands(campaign):
        run_in(pythons[environment], environment, command, campaign)
    return 0


def make(environment: Path, folder: Path) -> Path:
    """A virtual environment with the packages of a file and nothing else; its Python."""
    entries = yaml.safe_load(environment.read_text())["dependencies"]
    packages = {name: versions for name, _, versions in (entry.partition(" ") for entry in entries)}
    versions = packages.pop("python")
    named = [f"{PYPI_NAMES.get(name, name)}{versions}" for name, versions in packages.items()]
    subprocess.run(["uv", "venv", "--quiet", "--allow-existing", "--python", versions, folder], check=True)
    python = folder / "bin/python"
    subprocess.run(["uv", "pip", "install", "--quiet", "--python", python, *named], check=True)
    return python


def commands(campaign: Path) -> list[tuple[str, list[str]]]:
    """The commands of a campaign's jobs in an order in which they can run, with the file of each's environment."""
    printed = subprocess.run(
        [
            sys.executable, "-m", "snakemake", "--snakefile", REPOSITORY / "Snakefile", "--directory", campaign,
            "--configfile", campaign / "results/config.yaml",
            "--dry-run", "--forceall", "--printshellcmds", "--nocolor",
        ],
        check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ).stdout  # fmt: skip
    environments = {}
    for path in (REPOSITORY / "workflow/rules").glob("*.smk"):
        for rule in re.split(r"^rule ", path.read_text(), flags=re.MULTILINE)[1:]:
            environment = re.search(r'conda:\s+"(.+?)"', rule)
            if environment:
                environments[rule.partition(":")[0]] = Path(environment[1]).name
    found = []
    for job in re.split(r"^(?:local)?rule ", printed, flags=re.MULTILINE)[1:]:
        command = re.search(r"python -m clockwatt (.+?)\s*>", job, flags=re.DOTALL)
        if command:
            found.append((environments[job.partition(":")[0]], shlex.split(command[1].replace("\\\n", " "))))
    return found


def run_in(python: Path, environment: str, command: list[str], campaign: Path) -> None:
    """Run one command with the sources of this checkout; its end and how long it took go to standard output."""
    began = time.monotonic()
    done = subprocess.run(
        [python, "-m", "clockwatt", *command], cwd=campaign, text=True, check=False,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY / "src")}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    if done.returncode:
        sys.exit(f"{environment}: clockwatt {shlex.join(command)}\n{done.stdout}")
    print(f"{environment}: clockwatt {command[0]} in {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
