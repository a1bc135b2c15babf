"""Run the study: read records, evaluate each model on held-out data, fit it to all data, draw and write."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import csv

from clockwatt.io.files import written_aside
from clockwatt.studies.thermal.errors import ThermalError
from clockwatt.studies.thermal.evaluation import SPLITS, Judged, Known, Split, judge, possible_splits, scores
from clockwatt.studies.thermal.inputs import HORIZONS_S, Inputs, Load, Task
from clockwatt.studies.thermal.intervals import LEVEL, Intervals
from clockwatt.studies.thermal.models.rc import RcNetworks
from clockwatt.studies.thermal.models.registry import MODELS, WITHOUT_TORCH
from clockwatt.studies.thermal.stored import Fitted, Study, check_output, save_study
from clockwatt.studies.thermal.traces import Trace, read_traces

Say = Callable[[str], None]
"""Called with a line on the current step."""


@dataclass(frozen=True)
class Settings:
    """What is fitted and evaluated.

    Attributes
    ----------
    models, inputs, loads
        All of these with one another are judged.
    horizons_s
        How far ahead.
    level
        The level of intervals.
    """

    models: tuple[str, ...] = WITHOUT_TORCH
    inputs: tuple[Inputs, ...] = ("power", "sensors")
    loads: tuple[Load, ...] = ("history", "known")
    horizons_s: tuple[float, ...] = HORIZONS_S
    level: float = LEVEL


@dataclass
class Result:
    """Result of a fit."""

    study: Study
    scores: pd.DataFrame
    judged: list[Judged]
    traces: list[Trace]


def fit_study(
    folders: Sequence[Path],
    output: Path,
    settings: Settings,
    *,
    figures: Path | None = None,
    workload_of: Callable[[Path], str] | None = None,
    say: Say = lambda _: None,
) -> Result:
    """Fit models to records and write them, their scores and figures.

    Parameters
    ----------
    folders, output, settings
        Records, the folder of the fit, and what is fitted.
    figures
        Folder of the figures; None: `output`.
    workload_of
        The workload of a record by its folder; None: its name.
    say
        Called with a line on the current step.

    A model that is stored takes the richest of the inputs, and history alone: the load to come is asked for at the
    forecast.

    Raises
    ------
    DataFileError, ThermalError
        If the records do not say enough.
    OutputError
        If the folder holds something else, or cannot be written.
    """
    from clockwatt.studies.thermal.figures import draw_study

    check_output(output)
    read = read_traces(folders, workload_of=workload_of)
    judged, skipped = judge_all(read.traces, settings, say=say)
    task = Task(settings.inputs[-1], settings.loads[0], settings.horizons_s, read.traces[0].step_s)
    fitted, notes = {}, [*read.notes, *skipped]
    failed: list[ThermalError] = []
    for name in settings.models:
        say(f"all records: {name}")
        model = RcNetworks(task, intervals=True) if name == RcNetworks.name else MODELS[name](task)
        try:
            model.fit(read.traces)
        except ThermalError as error:
            failed.append(error)
            notes.append(f"{name} is not among the models: {error}")
            continue
        if isinstance(model, RcNetworks):
            notes += model.notes_
        fitted[name] = Fitted(model, _intervals(judged, name, task, settings.level))
    if failed and set(fitted) <= {"persistence"}:
        raise failed[0]
    slowed: dict[str, float] = {}
    for trace in read.traces:
        if np.isfinite(trace.slowed_from_c):
            slowed[trace.gpu] = min(trace.slowed_from_c, slowed.get(trace.gpu, np.inf))
    virtual = any(trace.virtual for trace in read.traces)
    study = Study(fitted, [str(folder) for folder in folders], virtual, slowed, list(dict.fromkeys(notes)))
    table = scores(judged, settings.level)
    with written_aside(output / "scores.csv") as aside:
        csv.write_csv(pa.Table.from_pandas(table, preserve_index=False), aside)
    draw_study(table, judged, read.traces, figures or output, virtual=virtual)
    save_study(study, output)
    return Result(study, table, judged, read.traces)


def judge_all(
    traces: Sequence[Trace],
    settings: Settings,
    splits: Collection[Split] = tuple(SPLITS),
    *,
    say: Say = lambda _: None,
) -> tuple[list[Judged], list[str]]:
    """Judge every model with every split, inputs and load; and what could not be, with the reason."""
    judged, notes = [], []
    known: Known = {}
    for split, why in possible_splits(traces).items():
        if split not in splits:
            continue
        if why is not None:
            notes.append(f"{SPLITS[split]}: not judged, {why}.")
            continue
        for name, task in _tasks(settings, traces[0].step_s):
            say(f"{SPLITS[split]}: {name}, {task.inputs}, load {'known' if task.load == 'known' else 'unknown'}")
            try:
                judged.append(judge(traces, split, name, task, known=known))
            except ThermalError as error:
                notes.append(f"{SPLITS[split]}: {name} was not judged. {error}")
    return judged, notes


def _tasks(settings: Settings, step_s: float) -> list[tuple[str, Task]]:
    """Return the inputs of each model; persistence takes only the temperature."""
    task = Task("power", "history", settings.horizons_s, step_s)
    found = [("persistence", task)]
    for name in settings.models:
        if name != "persistence":
            found += [
                (name, replace(task, inputs=inputs, load=load)) for load in settings.loads for inputs in settings.inputs
            ]
    return found


def _intervals(judged: Sequence[Judged], name: str, task: Task, level: float) -> Intervals | None:
    """Compute intervals from held-out workloads, or from held-out runs of a single workload; None with neither."""
    order: tuple[Split, ...] = ("workload", "run")
    for split in order:
        for one in judged:
            same = name == "persistence" or one.task == task
            if one.split == split and one.model == name and same:
                return Intervals.of(one.misses, level)
    return None
