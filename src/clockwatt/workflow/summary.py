"""Summarise a workflow run at its end: what was done, what failed and why, and the next steps.

A job is done where its file is there. It has failed where its file is not there and its log is of this run, or
Snakemake's log says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from clockwatt.config import CampaignConfig, GpuConfig
from clockwatt.figures.names import figures
from clockwatt.schema import layout
from clockwatt.schema.records import OK
from clockwatt.studies.parallel.names import STEPS as PARALLEL_STEPS
from clockwatt.studies.parallel.names import TABLE as PARALLEL_TABLE
from clockwatt.studies.power.names import MAIN as POWER_MAIN
from clockwatt.workflow.failures import Disk, reported

_REASONS, _REASON_CHARACTERS = 3, 300
_SKEW_S = 5.0
_MESSAGE = "error: "
_CALIBRATE, _MEASURE, _NETWORKS = "calibrate", "measure", "measure networks"


@dataclass(frozen=True)
class Job:
    """A job of the workflow: the file that it makes and where it logs, below the results folder."""

    stage: str
    name: str
    output: Path
    log: Path


@dataclass(frozen=True)
class Outcome:
    """Outcome of a job: now, before, failed or left; with the reason if it failed."""

    job: Job
    what: str
    reason: str = ""


def jobs(campaign: CampaignConfig) -> list[Job]:
    """Return all jobs of a campaign, stage after stage."""
    found = [Job("catalogue", "", layout.CATALOGUE / layout.OPERATIONS_FILE, Path("logs/catalogue.log"))]
    for stage, paths in (
        (_CALIBRATE, campaign.calibration_files()),
        (_MEASURE, [path for path in campaign.measurement_files() if not path.name.startswith("networks-")]),
        (_NETWORKS, [path for path in campaign.measurement_files() if path.name.startswith("networks-")]),
    ):
        for path in paths:
            log = Path("logs") / layout.MEASUREMENTS / path.with_suffix(".log")
            name = " ".join(path.parent.parts if stage == _CALIBRATE else path.with_suffix("").parts)
            found.append(Job(stage, name, layout.MEASUREMENTS / path, log))
    for stage, output in (
        ("dataset", layout.DATASET_CATALOGUE.parent / layout.QUALITY_FILE),
        ("fit", layout.PREDICTORS / layout.METRICS_FILE),
        ("validate", layout.VALIDATION / layout.VALIDATION_FILE),
        ("figures", Path("figures") / f"{next(iter(figures(list(campaign.passes))))}.png"),
        ("page", Path(layout.PAGE_FILE)),
    ):
        found.append(Job(stage, "", output, Path("logs") / f"{stage}.log"))
    return [*found, *study_jobs(campaign)]


def study_jobs(campaign: CampaignConfig) -> Iterator[Job]:
    """Yield jobs of the studies that the campaign configures, as far as all of the workflow makes them."""
    studies = campaign.studies
    power, workloads, survey = studies.power, studies.workloads, studies.survey
    for gpu, asked in power.gpus.items() if power else ():
        yield _study_job("power", gpu, "runs.parquet", "runs.log")
        for key, figure in POWER_MAIN.items():
            if getattr(asked, key):
                yield _study_job("power", gpu, f"figures/{figure}.png", f"{figure}.log")
    for gpu in (workloads.gpus or campaign.gpus) if workloads else ():
        yield _study_job("workloads", gpu, "workloads.parquet", "run.log")
        yield _study_job("workloads", gpu, "figures/workloads.png", "figures.log")
    for gpu in studies.thermal_sources(campaign.gpus):
        yield _study_job("thermal", gpu, "figures/forecast.png", "thermal.log")
    for gpu in survey.gpus if survey else ():
        for card in survey.cards(gpu) if survey else ():
            file = layout.survey_file(*card)
            yield _study_job("survey", gpu, str(file), f"{file.stem}.log")
        for shared in survey.shared_nodes(gpu) if survey else ():
            file = layout.conditions_file(*shared)
            yield _study_job("survey", gpu, str(file), f"conditions-{file.stem}.log")
        if survey and survey.compares(gpu):
            yield _study_job("survey", gpu, "variance.csv", "survey.log")
        if survey and survey.conditions:
            yield _study_job("survey", gpu, "interference.csv", "interference.log")
    for gpu in studies.parallel.labels(campaign.gpus) if studies.parallel else ():
        yield _study_job("parallel", gpu, PARALLEL_STEPS, "run.log")
        yield _study_job("parallel", gpu, PARALLEL_TABLE, "figures.log")


def _study_job(study: str, gpu: str, output: str, log: str) -> Job:
    folder = layout.STUDIES / study / gpu
    return Job(f"study {study}", f"{gpu} {Path(log).stem}", folder / output, Path("logs") / folder / log)


def outcomes(campaign: CampaignConfig, began_s: float, snakemake_logs: Iterable[Path], disk: Disk) -> list[Outcome]:
    """Return what became of every job in a run that began at `began_s`, in seconds since the epoch."""
    results = Path(campaign.results_dir)
    began_s += disk.skew_s
    failures = reported(snakemake_logs)
    found = []
    for job in jobs(campaign):
        made_s, logged_s = _changed_s(results / job.output), _changed_s(results / job.log)
        if made_s is not None:
            found.append(Outcome(job, "now" if made_s >= began_s else "before"))
        elif results / job.output in failures or (logged_s is not None and logged_s >= began_s):
            reason = failures.get(results / job.output, "") or disk.problem
            found.append(Outcome(job, "failed", _reason(results / job.log, reason)))
        else:
            found.append(Outcome(job, "left"))
    return found


def lines(
    campaign: CampaignConfig, found: Iterable[Outcome], took_s: float, disk: Disk, *, stopped: bool = False
) -> list[str]:
    """Return the summary; `stopped` is whether the run ended before it made all that it was to make."""
    found = list(found)
    results = Path(campaign.results_dir)
    failed = [outcome for outcome in found if outcome.what == "failed"]
    left = [outcome for outcome in found if outcome.what == "left"]
    if failed:
        how = f"{len(failed)} job{'s' * (len(failed) > 1)} failed"
    else:
        how = "stopped before all was done" if stopped else "nothing failed" if left else "all is done"
    said = [f"Campaign {campaign.campaign}: {how}, after {timedelta(seconds=round(took_s))}.", *_table(found)]
    if failed:
        said += ["", "Failed:", *_failures(failed, results)]
    if (quality := results / layout.DATASET_CATALOGUE.parent / layout.QUALITY_FILE).exists():
        said += ["", _rows(quality)]
    if disk.problem:
        said += ["", f"{disk.problem}."]
    if abs(disk.skew_s) > _SKEW_S:
        said += ["", f"The clock of the file system of {results} is {disk.skew_s:+.0f} s off this machine's: set them."]
    said += ["", *_next(campaign, failed, left)]
    return said


def _changed_s(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return None


def _reason(log: Path, otherwise: str) -> str:
    """Return the message that a log ends with; where it has none what else is known, or its last line."""
    text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    written = [line.strip() for line in text.splitlines() if line.strip()]
    messages = [line.removeprefix(_MESSAGE) for line in written if line.startswith(_MESSAGE)]
    if messages:
        reason = messages[-1]
    elif otherwise:
        reason = otherwise
    else:
        reason = f"ended without a message. Last line: {written[-1]}" if written else "was killed; the cause is unknown"
    return reason if len(reason) <= _REASON_CHARACTERS else f"{reason[:_REASON_CHARACTERS]}…"


def _table(found: list[Outcome]) -> list[str]:
    columns = {"now": "done now", "before": "done before", "failed": "failed", "left": "not done"}
    rows = [f"{'jobs':18}" + "".join(f"{name:>13}" for name in columns.values())]
    for stage in dict.fromkeys(outcome.job.stage for outcome in found):
        counts = [sum(one.job.stage == stage and one.what == what for one in found) for what in columns]
        rows.append(f"  {stage:16}" + "".join(f"{count or '·':>13}" for count in counts))
    return rows


def _failures(failed: list[Outcome], results: Path) -> list[str]:
    """Return a line for each reason, with the first job that has it and how many more there are."""
    by_reason: dict[str, list[Job]] = {}
    for outcome in failed:
        by_reason.setdefault(outcome.reason, []).append(outcome.job)
    ordered = sorted(by_reason.items(), key=lambda item: -len(item[1]))
    said = []
    for reason, of_it in ordered[:_REASONS]:
        more = f" and {len(of_it) - 1} more" if len(of_it) > 1 else ""
        name = f"{of_it[0].stage} {of_it[0].name}".strip()
        said += [f"  {name}{more}: {reason}", f"    {results / of_it[0].log}"]
    if len(ordered) > _REASONS:
        said.append(f"  and {sum(len(of_it) for _, of_it in ordered[_REASONS:])} more, each with its log")
    return said


def _rows(quality: Path) -> str:
    report = json.loads(quality.read_text(encoding="utf-8"))
    anchors, virtual = report["by_kind"].get("anchor", 0), report["virtual_rows"]
    of_virtual = (
        f", {'all' if virtual == report['rows'] else f'{virtual:,} of them'} on virtual GPUs" if virtual else ""
    )
    failed = "".join(
        f", {count} {status.replace('_', ' ')}" for status, count in report["by_status"].items() if status != OK
    )
    return f"Measurements: {report['rows'] - anchors:,}{of_virtual}{failed}. Details: {quality}"


def _next(campaign: CampaignConfig, failed: list[Outcome], left: list[Outcome]) -> list[str]:
    results = campaign.results_dir
    if failed:
        return [
            "Finished measurements are kept. Correct the cause, and run the same command again.",
            "Progress of each operating point: clockwatt status",
        ]
    if left:
        return [f"Left: {', '.join(dict.fromkeys(one.job.stage for one in left))}. To run them: snakemake"]
    label, gpu = next(iter(campaign.gpus.items()))
    return [
        f"Report:     {results}/{layout.PAGE_FILE}, in a browser",
        f"Results:    {results}/dataset, {results}/predictors, {results}/figures",
        f"Provenance: snakemake --report {results}/index.html",
        f"Predict:    clockwatt predict {_network(campaign, gpu)} --gpu {label} --point {gpu.points[0]}",
    ]


def _network(campaign: CampaignConfig, gpu: GpuConfig) -> str:
    """Return the arguments of `clockwatt predict` for the first network that name and input identify."""
    for network in campaign.networks:
        if network.input is not None and network.input_dtype == "float":
            shape, measured = ",".join(map(str, network.input)), gpu.execution_of(network.precision)
            return f"{network.name} --input {shape}" + (f" --precision {measured[0]}" if measured else "")
    return "resnet50 --input 32,3,224,224"
