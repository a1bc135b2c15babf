"""The runs of the study on one GPU: which, in which order, and where each is recorded."""

from __future__ import annotations

import hashlib
import json
import random
from dataclasses import dataclass
from pathlib import Path

from clockwatt.config import CampaignConfig, OperatingPoint, PowerStudyConfig
from clockwatt.errors import ConfigError
from clockwatt.schema.execution import FP32, TF32, ExecutionSettings
from clockwatt.schema.records import MEASUREMENT_VERSION
from clockwatt.studies.power.tasks import TASKS, TRAINING_STEP, Task

RECORDS = "records"
_DIGITS = 8


@dataclass(frozen=True)
class PlannedRun:
    """One run of the study.

    Attributes
    ----------
    task
        The network that is trained.
    point
        Operating point that is held.
    repetition
        From 1.
    turn
        Its place in the order of all runs, from 1.
    digest
        Of all that its record depends on beside these.
    """

    task: Task
    point: OperatingPoint
    repetition: int
    turn: int
    digest: str

    @property
    def name(self) -> str:
        """As messages and records call it."""
        return f"{self.task.name} at {self.point}, repetition {self.repetition}"

    def folder(self, study_dir: Path) -> Path:
        """Return the folder of its finished record, below the study's folder of the GPU."""
        return study_dir / RECORDS / self.task.name / str(self.point) / f"{self.repetition}-{self.digest}"


def study_of(campaign: CampaignConfig, label: str) -> PowerStudyConfig:
    """Return the study as a campaign has it.

    Raises
    ------
    ConfigError
        If it has none, or none on this GPU.
    """
    study = campaign.studies.study_power()
    if label not in study.gpus:
        raise ConfigError(f"studies.power.gpus: no GPU is labelled {label!r}; there are {', '.join(study.gpus)}.")
    return study


def planned_runs(campaign: CampaignConfig, label: str) -> list[PlannedRun]:
    """Return every run on a GPU, in the order in which they are made.

    Within a repetition networks and operating points are shuffled, so that neither the hour nor the ambient temperature
    is confounded with one of them.

    Raises
    ------
    ConfigError
        If the campaign has no such study.
    """
    study = study_of(campaign, label)
    pairs = [(name, point) for name in study.networks for point in study.gpus[label].points]
    runs: list[PlannedRun] = []
    for repetition in range(1, study.repetitions + 1):
        shuffled = list(pairs)
        random.Random(f"{campaign.seed}/{label}/{repetition}").shuffle(shuffled)  # noqa: S311, an order is no secret
        for name, point in shuffled:
            digest = _digest(campaign, study, label, TASKS[name])
            runs.append(PlannedRun(TASKS[name], point, repetition, len(runs) + 1, digest))
    return runs


def execution_of(campaign: CampaignConfig, label: str) -> ExecutionSettings:
    """Return the settings that networks are trained under: with TensorFloat-32 where the GPU's `precision` has it."""
    return TF32 if TF32 in campaign.gpu(label).precision else FP32


def _digest(campaign: CampaignConfig, study: PowerStudyConfig, label: str, task: Task) -> str:
    gpu = campaign.gpu(label)
    settings = {
        "device": gpu.device,
        "control": gpu.control.model_dump(mode="json"),
        "tf32": execution_of(campaign, label) == TF32,
        "seed": campaign.seed,
        "epochs": study.epochs,
        "data": task.data_in(study) or task.examples_in(study),
        "measurement_version": MEASUREMENT_VERSION,
    }
    if (training := task.training_in(study)) != TRAINING_STEP:
        settings["optimizer"] = training.optimizer
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:_DIGITS]
