"""Estimate the cost of a campaign's studies before submission: jobs and remaining programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from clockwatt.config import CampaignConfig
from clockwatt.errors import DataFileError
from clockwatt.measure.card import ROUND_S
from clockwatt.schema import layout
from clockwatt.studies.survey.conditions import START_S, SWITCH_S, conditions
from clockwatt.studies.survey.measured_programs import PROGRAM_S, networks, operations
from clockwatt.telemetry.recording.layout import read_record
from clockwatt.workflow.plan import JOB_START_S
from clockwatt.workflow.summary import study_jobs


@dataclass(frozen=True)
class StudyPlan:
    """Estimated cost of a study on one GPU.

    Attributes
    ----------
    study, label
        Its target, and the GPU's.
    programs, finished
        That are recorded, and how many of them were.
    jobs
        Slurm jobs that are left, of those that the main command makes.
    gpu_hours
        Left, rests between programs apart; None where nothing says how long a program takes.
    """

    study: str
    label: str
    programs: int
    finished: int
    jobs: int
    gpu_hours: float | None


def plan_studies(campaign: CampaignConfig) -> list[StudyPlan]:
    """Count what is left of every study that the campaign configures, GPU by GPU; what is recorded costs nothing."""
    results = Path(campaign.results_dir)
    left: dict[tuple[str, str], int] = {}
    for job in study_jobs(campaign):
        study, label = job.output.parts[1:3]
        left[study, label] = left.get((study, label), 0) + (not (results / job.output).exists())
    return [_plan(study, label, jobs, list(programs(campaign, study, label))) for (study, label), jobs in left.items()]


def programs(campaign: CampaignConfig, study: str, label: str) -> Iterator[Program]:
    """Return programs that a study records on a GPU."""
    told = {"power": _of_power, "workloads": _of_workloads, "survey": _of_survey, "parallel": _of_parallel}.get(study)
    folder = Path(campaign.results_dir) / layout.STUDIES / study / label
    return iter(()) if told is None else told(campaign, label, folder)  # some record nothing themselves


class Program(NamedTuple):
    """A program of a study: the folder of its record, and how long it will take in s, if that is said."""

    name: str
    where: Path
    finished: bool
    takes_s: float | None


def _of_power(campaign: CampaignConfig, label: str, folder: Path) -> Iterator[Program]:
    from clockwatt.studies.power.plan import planned_runs

    for run in planned_runs(campaign, label):
        where = run.folder(folder)
        yield Program(run.task.name, where, where.exists(), None)


def _of_workloads(campaign: CampaignConfig, label: str, folder: Path) -> Iterator[Program]:
    from clockwatt.studies.workloads.names import command_of
    from clockwatt.studies.workloads.records import RECORDS, is_finished

    study, virtual = campaign.studies.study_workloads(), campaign.gpu(label).virtual_model is not None
    for name in study.workloads:
        where = folder / RECORDS / name
        takes_s = None if study.seconds is None else study.seconds + study.idle_s
        finished = is_finished(where, command_of(name, study, seed=campaign.seed, virtual=virtual))
        yield Program(name, where, finished, takes_s)


def _of_survey(campaign: CampaignConfig, label: str, folder: Path) -> Iterator[Program]:
    study = campaign.studies.study_survey()
    programs = len(operations(study)) + len(networks(study))
    for node, index, session in study.cards(label):
        where = folder / layout.survey_file(node, index, session)
        held = study.gpus[label][node]  # all cards of the node
        takes_s = (JOB_START_S + study.rounds * ROUND_S + programs * PROGRAM_S) * held
        yield Program(where.stem, where, where.exists(), takes_s)
    for node, repetition in study.shared_nodes(label):
        where, cards = folder / layout.conditions_file(node, repetition), study.gpus[label][node]
        runs = len(list(conditions(study.conditions, cards, "shared")))
        takes_s = (JOB_START_S + START_S + runs * (SWITCH_S + study.seconds)) * cards
        yield Program(where.stem, where, where.exists(), takes_s)


def _of_parallel(campaign: CampaignConfig, label: str, folder: Path) -> Iterator[Program]:
    from clockwatt.studies.parallel.cases import CASE_S, case_file, cases_of

    study = campaign.studies.study_parallel()
    for count in study.counts:
        for case in cases_of(campaign, label, count):
            where = case_file(folder, case)
            takes_s = (CASE_S + study.seconds) * campaign.gpus[label].count  # a job holds all GPUs to its end
            yield Program(case.name, where, where.exists(), takes_s)


def _plan(study: str, label: str, jobs: int, told: Sequence[Program]) -> StudyPlan:
    finished = [program for program in told if program.finished]
    unsaid = [program.where for program in finished if program.takes_s is None]
    lasted = [seconds for where in unsaid if (seconds := _lasted_s(where)) is not None]
    usual_s = sum(lasted) / len(lasted) if lasted else None
    left = [usual_s if program.takes_s is None else program.takes_s for program in told if not program.finished]
    hours = None if None in left else (sum(filter(None, left)) + bool(left) * JOB_START_S) / 3600
    return StudyPlan(f"study_{study}", label, len(told), len(finished), jobs, hours)


def _lasted_s(where: Path) -> float | None:
    try:
        (run,) = read_record(where).runs
    except (DataFileError, ValueError):  # the job of the study says what is wrong with it
        return None
    return None if run.end_ns is None or run.idle_start_ns is None else (run.end_ns - run.idle_start_ns) * 1e-9


def show_studies(plans: Sequence[StudyPlan]) -> None:
    """Print what studies will cost, if there are any."""
    if not plans:
        return
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, title="Studies: programs that are recorded")
    table.add_column("study", no_wrap=True)
    table.add_column("GPU", no_wrap=True)
    for heading in ("programs", "done", "jobs left", "GPU-hours left"):
        table.add_column(heading, justify="right")
    for plan in plans:
        hours = "unknown" if plan.gpu_hours is None else f"{plan.gpu_hours:.1f}"
        counts = (plan.programs, plan.finished, plan.jobs)
        table.add_row(plan.study, plan.label, *map(str, counts), hours)
    console = Console()
    console.print(table)
    console.print("GPU-hours of studies exclude rests between programs.", soft_wrap=True)
    if any(plan.gpu_hours is None for plan in plans):
        console.print("GPU-hours are unknown until a first program has finished.", soft_wrap=True)
