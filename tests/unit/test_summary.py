"""What a run says at its end, told from files."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from clockwatt import config
from clockwatt.config import StudiesConfig
from clockwatt.workflow import summary
from clockwatt.workflow.failures import Disk, probe

BEGAN_S = 1_000_000_000.0
WELL = Disk("", 0.0)
ERROR = """[Wed Nov 25 02:08:54 2026]
Error in rule measure:
    message: {message}
    jobid: 12
    input: a, b
    output: {output}, telemetry-1.parquet
    log: results/logs/1.log, {log} (check log file(s) for error details)
"""
CALIBRATIONS = [f"measurements/a30/sm{clock}/calibration.parquet" for clock in (900, 1200, 1440)]


@pytest.fixture
def campaign(tmp_path: Path) -> config.CampaignConfig:
    return config.parse(
        {
            "campaign": "mine",
            "results_dir": str(tmp_path),
            "gpus": {"a30": {"device": "virtual:a30", "clocks_mhz": [900, 1200, 1440]}},
            "networks": [{"name": "resnet18", "input": [1, 3, 64, 64]}],
            "shards": 4,
        }
    )


def write(campaign: config.CampaignConfig, path: str, content: str = "", at_s: float = BEGAN_S + 5) -> None:
    file = Path(campaign.results_dir) / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content)
    os.utime(file, (at_s, at_s))


def said(campaign: config.CampaignConfig, log: str = "", disk: Disk = WELL, *, stopped: bool = False) -> list[str]:
    file = Path(campaign.results_dir) / "snakemake.log"
    file.write_text(log)
    return summary.lines(campaign, summary.outcomes(campaign, BEGAN_S, [file], disk), 3700, disk, stopped=stopped)


def error(message: str, output: Path, log: Path = Path("12.log")) -> str:
    return ERROR.format(message=message, output=output, log=log)


def counts(lines: list[str], stage: str) -> list[str]:
    (line,) = (line for line in lines if line.startswith(f"  {stage:16} "))
    return line.removeprefix(f"  {stage}").split()


def test_what_was_done_now_and_before_what_failed_and_what_is_left(campaign):
    write(campaign, "catalogue/operations.parquet", at_s=BEGAN_S - 5)
    write(campaign, CALIBRATIONS[0])
    write(campaign, "logs/measurements/a30/sm1200/calibration.log", "starts\nerror: no GPU: ask for one.\n")
    write(campaign, "logs/measurements/a30/sm1440/calibration.log", "of an earlier run", at_s=BEGAN_S - 5)
    for shard in (1, 2):
        write(campaign, f"logs/measurements/a30/sm900/{shard}.log", "Traceback\nMemoryError\n")
    lines = said(campaign)
    assert lines[0] == "Campaign mine: 3 jobs failed, after 1:01:40."
    assert counts(lines, "catalogue") == ["·", "1", "·", "·"]
    assert counts(lines, "calibrate") == ["1", "·", "1", "1"]
    assert counts(lines, "measure") == ["·", "·", "2", "10"]
    text = "\n".join(lines)
    assert "  measure a30 sm900 1 and 1 more: ended without a message. Last line: MemoryError\n" in text
    assert "  calibrate a30 sm1200: no GPU: ask for one.\n" in text
    assert f"    {campaign.results_dir}/logs/measurements/a30/sm900/1.log" in lines
    assert "run the same command again" in text


def test_a_study_that_failed_is_told(campaign):
    asked = {"power": {"gpus": {"a30": {"power_limits_w": [100, 165]}}}, "workloads": {"gpus": ["a30"]}}
    studies = campaign.model_copy(update={"studies": StudiesConfig.model_validate(asked)})
    write(studies, "studies/workloads/a30/workloads.parquet")
    write(studies, "studies/workloads/a30/figures/workloads.png")
    write(studies, "logs/studies/power/a30/runs.log", "error: no GPU: ask for one.\n")
    lines = said(studies)
    assert lines[0] == "Campaign mine: 1 job failed, after 1:01:40."
    assert counts(lines, "study power") == ["·", "·", "1", "1"]
    assert counts(lines, "study workloads") == ["2", "·", "·", "·"]
    assert "  study power a30 runs: no GPU: ask for one." in lines


def test_hundreds_of_failures_are_a_screenful(campaign):
    many = campaign.model_copy(update={"shards": 400})
    for shard in range(1, 401):
        write(many, f"logs/measurements/a30/sm900/{shard}.log", f"error: reason {shard % 100}\n")
    lines = said(many)
    assert len(lines) <= 24
    assert "  and 388 more, each with its log" in lines


def test_where_all_is_done_the_results_and_what_comes_next_are_named(campaign):
    for job in summary.jobs(campaign):
        write(campaign, str(job.output))
    report = {
        "rows": 12,
        "virtual_rows": 12,
        "by_kind": {"anchor": 4, "operation": 8},
        "by_status": {"ok": 11, "out_of_memory": 1},
    }
    write(campaign, "dataset/quality.json", json.dumps(report))
    lines = said(campaign)
    assert lines[0] == "Campaign mine: all is done, after 1:01:40."
    assert counts(lines, "measure") == ["12", "·", "·", "·"]
    text = "\n".join(lines)
    assert "Measurements: 8, all on virtual GPUs, 1 out of memory." in text
    assert f"snakemake --report {campaign.results_dir}/index.html" in text
    assert "clockwatt predict resnet18 --input 1,3,64,64 --precision tf32 --gpu a30 --point sm900" in text
    assert f"{campaign.results_dir}/explore.html" in text
    assert counts(lines, "page") == ["1", "·", "·", "·"]


def test_a_job_that_slurm_ended_is_named_with_its_state(campaign):
    output = Path(campaign.results_dir) / "measurements/a30/sm900/1.parquet"
    message = (
        "SLURM-job '12' failed due to a node failure, SLURM status is: 'NODE_FAIL'. Failed nodes will be excluded."
    )
    lines = said(campaign, error(message, output))
    assert "  measure a30 sm900 1: its node failed (Slurm job 12: NODE_FAIL)" in lines
    assert counts(lines, "measure") == ["·", "·", "1", "11"]


@pytest.mark.parametrize(
    ("state", "in_log", "reason"),
    [
        ("FAILED", "*** JOB 12 ON n CANCELLED AT 2026-11-29 DUE TO NODE FAILURE, SEE", "its node failed"),
        ("FAILED", "Detected 1 oom-kill event(s) in StepId=12.0.", "it took more memory than it asked for"),
        ("CANCELLED", "*** JOB 12 ON n CANCELLED AT 2026-11-29 DUE TO PREEMPTION ***", "another job preempted it"),
        ("CANCELLED", "*** JOB 12 ON n CANCELLED AT 2026-11-29 ***", "it was cancelled"),
        ("FAILED", None, "it ended"),
    ],
)
def test_without_accounting_the_job_s_log_of_slurm_explains_its_end(campaign, tmp_path, state, in_log, reason):
    if in_log is not None:
        (tmp_path / "12.log").write_text(f"slurmstepd: error: {in_log}\n")
    output = Path(campaign.results_dir) / "measurements/a30/sm900/1.parquet"
    message = f"SLURM-job '12' failed, SLURM status is: '{state}'."
    (line,) = [line for line in said(campaign, error(message, output, tmp_path / "12.log")) if "sm900 1: " in line]
    assert line.startswith(f"  measure a30 sm900 1: {reason}")


def test_a_job_is_not_failed_by_the_end_of_the_run_and_a_cancelled_one_was_not_refused(campaign):
    outputs = [Path(campaign.results_dir) / f"measurements/a30/sm900/{shard}.parquet" for shard in (1, 2)]
    ended = "SLURM sbatch failed. The error message was 'the run was cancelled: it is not submitted again in this run'"
    cancelled = "SLURM-job '12' failed, SLURM status is: 'CANCELLED'."
    again = "SLURM sbatch failed. The error message was 'job 12 was cancelled: it is not submitted again in this run'"
    lines = said(campaign, error(ended, outputs[0]) + error(cancelled, outputs[1]) + error(again, outputs[1]))
    assert "  measure a30 sm900 2: it was cancelled (Slurm job 12: CANCELLED)" in lines
    assert counts(lines, "measure") == ["·", "·", "1", "11"]


def test_a_job_that_was_never_submitted_has_failed(campaign):
    output = Path(campaign.results_dir) / "measurements/a30/sm900/1.parquet"
    message = "SLURM sbatch failed. The error message was\n'Requested node configuration is not available'"
    lines = said(campaign, error(message, output))
    reason = "SLURM sbatch failed. The error message was 'Requested node configuration is not available'"
    assert f"  measure a30 sm900 1: {reason}" in lines
    call = "sbatch --parsable --job-name 1 --comment rule_x   -p main --mem 300 -D /x --gres=gpu:a30:3 --wrap='python'"
    refused = message.replace("'Req", "'sbatch: error: Req") + f".\n    sbatch call:\n        {call}\n"
    reason = "sbatch refused it: Requested node configuration is not available (-p main --mem 300 --gres=gpu:a30:3)"
    (line,) = [line for line in said(campaign, error(refused, output)) if reason in line]
    assert line.endswith(". Correct slurm or count of this GPU in the campaign.")


def test_a_full_disk_is_named_where_a_job_could_not_write_its_log(campaign):
    write(campaign, "logs/measurements/a30/sm900/1.log")
    lines = said(campaign, disk=Disk("results has 0 MB left: free some space", 0.0))
    assert "  measure a30 sm900 1: results has 0 MB left: free some space" in lines


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a tmpfs, which needs root")
def test_writing_to_a_full_disk_shows_that_it_is_full(tmp_path):
    assert probe(tmp_path).problem == ""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(tmp_path)], check=True)
    try:
        assert probe(tmp_path).problem == f"{tmp_path} cannot be written (No space left on device): free some space"
        assert not list(tmp_path.iterdir())
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_times_are_compared_by_the_clock_of_the_file_system(campaign):
    write(campaign, "logs/measurements/a30/sm900/1.log", "error: no GPU: ask for one.", at_s=BEGAN_S - 90)
    lines = said(campaign, disk=Disk("", -100.0))
    assert counts(lines, "measure") == ["·", "·", "1", "11"]
    assert any("-100 s off this machine's" in line for line in lines)


def test_a_run_that_a_signal_ended_does_not_say_that_nothing_failed(campaign):
    assert said(campaign, stopped=True)[0] == "Campaign mine: stopped before all was done, after 1:01:40."
