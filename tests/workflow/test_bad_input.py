"""What a user who made a mistake sees: one message that names the key, file or GPU and the fix, and no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from support import ready_clockwatt
from support.workdir import REPOSITORY, SMALL, SNAKEMAKE, Workdir

CATALOGUE = "results/catalogue/operations.parquet"
MEASUREMENTS = "results/measurements/a30/sm900/1.parquet"


def with_gpu(**changes: Any) -> dict[str, Any]:
    return {"gpus": {"a30": SMALL["gpus"]["a30"] | changes}}


def fails(workdir: Workdir, *arguments: str) -> str:
    finished = workdir.snakemake(*arguments)
    assert finished.returncode != 0, finished.stdout
    assert "Traceback" not in finished.stdout
    return finished.stdout


def test_wrong_config_stops_before_any_job(workdir):
    workdir.configure(with_gpu(clock_mhz=[900]))
    output = fails(workdir)
    assert f"{workdir.path}/config.yaml: gpus.a30.clock_mhz: unknown key; did you mean 'clocks_mhz'?" in output
    assert not (workdir.path / "results").exists()


def test_a_key_that_stands_twice_is_refused_with_both_lines(workdir):
    with (workdir.path / "config.yaml").open("a") as file:
        file.write("gpus: {h200: {device: 'virtual:h200'}}\n")
    lines = (workdir.path / "config.yaml").read_text().splitlines()
    first = lines.index("gpus:") + 1
    message = f"config.yaml: key 'gpus' is in line {first} and in line {len(lines)}."
    assert message in fails(workdir, "-n")
    assert message in plan_fails(workdir)


def test_a_campaign_that_is_not_utf_8_is_refused_with_its_line(workdir):
    (workdir.path / "config").mkdir()
    (workdir.path / "config" / "config.yaml").write_bytes("campaign: t\n# Größe\n".encode("latin-1"))
    command = [*SNAKEMAKE, "--snakefile", str(REPOSITORY / "Snakefile"), "--directory", str(workdir.path), "-n"]
    finished = workdir.start(command)
    assert finished.returncode == 1
    assert "config/config.yaml: line 2 is not UTF-8. Save the file in UTF-8." in finished.stdout
    assert "Traceback" not in finished.stdout


def test_value_on_the_command_line_is_checked_too(workdir):
    assert "shards: 'many'" in fails(workdir, "-n", "--config", "shards=many")


def test_a_misspelt_network_fails_the_dry_run(workdir):
    workdir.configure({"networks": [SMALL["networks"][0], {"name": "resnet17", "input": [1, 3, 64, 64]}]})
    message = "'resnet17': no network of torchvision; did you mean resnet18"
    assert f"config.yaml: networks[1].name: {message}" in fails(workdir, "-n")


def test_network_with_a_data_dependent_branch(workdir):
    (workdir.path / "branching.py").write_text(
        "import torch\n\n"
        "class Branching(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        return x.relu() if x.sum() > 0 else x\n"
    )
    workdir.configure({"networks": [{"name": "branching:Branching", "input": [1, 8]}]})
    output = fails(workdir, CATALOGUE)
    assert "branching:Branching" in output
    assert "data" in output


def plan_fails(workdir: Workdir) -> str:
    """What `clockwatt plan` says of the campaign, without its own name before it."""
    command = [sys.executable, "-m", "clockwatt", "plan", "--config", "config.yaml"]
    environment = os.environ | ready_clockwatt.environment()
    finished = subprocess.run(command, cwd=workdir.path, env=environment, text=True, capture_output=True, check=False)
    assert finished.returncode == 1, finished.stdout
    assert "Traceback" not in finished.stderr
    return finished.stderr.strip().splitlines()[-1].removeprefix("error: ")


def test_a_start_a_dry_run_and_a_plan_refuse_the_same_with_the_same_words(workdir):
    workdir.configure(with_gpu(clocks_mhz=[901]))
    said = plan_fails(workdir)
    assert "gpus.a30: virtual A30: SM clock 901 MHz is not supported. Nearest: 900 and 915 MHz" in said
    for options in ((), ("-n",)):
        output = fails(workdir, *options)
        assert said in output
        assert "rule measure:" not in output  # before anything runs or is submitted
    assert not (workdir.path / "results").exists()


def test_a_data_folder_that_is_not_there_is_refused_before_anything_runs(workdir):
    study = {"gpus": {"a30": {"clocks_mhz": [900]}}, "networks": ["dense_512"], "data": {"dense_512": "nowhere"}}
    workdir.configure({"studies": {"power": study}})
    said = plan_fails(workdir)
    key = "studies.power.data.dense_512"
    fix = f"Give one with the data, or leave {key} out to have data made."
    assert said == f"config.yaml: {key}: nowhere is no folder here. {fix}"
    assert said in fails(workdir, "-n", "study_power")
    (workdir.path / "nowhere").mkdir()
    workdir.run("-n", "study_power")


def test_an_input_of_the_wrong_rank_is_refused_by_plan_as_by_a_start(workdir):
    workdir.configure({"networks": [{"name": "squeezenet1_1", "input": [3, 64]}]})
    assert plan_fails(workdir) in fails(workdir, CATALOGUE)


def test_no_gpu_of_that_name(finished):
    finished.configure(with_gpu(device="NVIDIA Imaginary 9000"))
    output = fails(finished, MEASUREMENTS)
    assert "error: " in output
    assert "NVIDIA" in output
    assert "can also use virtual:a30" in " ".join(output.split())


@pytest.mark.parametrize("damage", ["not Parquet at all", "another kind of Parquet file"])
def test_damaged_or_foreign_file(finished, damage):
    catalogue = finished.path / CATALOGUE
    foreign = finished.path / MEASUREMENTS
    catalogue.write_bytes(b"garbage" if damage.startswith("not") else foreign.read_bytes())
    assert CATALOGUE in fails(finished, MEASUREMENTS)


def snakemake_with_results_on(workdir: Workdir, options: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Snakemake with `results` on a file system of its own, which vanishes with it."""
    (workdir.path / "results").mkdir()
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    script = f'mount -t tmpfs -o {options} tmpfs results && "$@"; code=$?; find results -name "*.p*"; exit $code'
    return subprocess.run(
        ["unshare", "--mount", *user, "sh", "-c", script, "sh", *workdir.command(*arguments)],
        cwd=workdir.path, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=3600,
    )  # fmt: skip


def test_full_disk(workdir):
    finished = snakemake_with_results_on(workdir, "size=20k", CATALOGUE)
    assert finished.returncode != 0
    assert "cannot be written (No space left on device)" in finished.stdout
    assert "Traceback" not in finished.stdout
    assert not finished.stdout.splitlines()[-1].startswith("results/"), "something half-written was left"


def test_results_that_cannot_be_written(workdir):
    finished = snakemake_with_results_on(workdir, "ro", CATALOGUE)
    assert finished.returncode != 0
    assert "Read-only file system" in finished.stdout
    assert "Traceback" not in finished.stdout
