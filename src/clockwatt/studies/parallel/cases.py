"""Cases of the study: a network and a way to train it, and the work of the ranks that measure them."""

from __future__ import annotations

import hashlib
import itertools
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from clockwatt.config import CampaignConfig, NetworkConfig, TrainingConfig
from clockwatt.schema.records import MEASUREMENT_VERSION
from clockwatt.studies.parallel.names import PIPELINE, SINGLE

Result = dict[str, Any]
CASE_S = 10.0
"""About how long a case takes beside the time in which its steps are timed."""


@dataclass(frozen=True)
class Case:
    """A network and a way to train it.

    Attributes
    ----------
    name
        Of its files.
    network
        With the batch of a GPU, for a pipeline that of a microbatch, and one precision.
    strategy
        One of `names.STRATEGIES`.
    microbatches
        Of a step of a pipeline.
    begins
        Modules with which further stages of a pipeline begin; without any, stages take about the same time.
    training
        How it is trained.
    """

    name: str
    network: NetworkConfig
    strategy: str
    microbatches: int
    training: TrainingConfig
    begins: tuple[str, ...] = ()


@dataclass(frozen=True)
class Timing:
    """How long ranks idle before the first case, and steps are timed, in s; and steps under the profiler."""

    idle_s: float
    seconds: float
    profile_steps: int


def result_file(folder: Path, case: Case, rank: int) -> Path:
    """Return the file that a rank writes of a case."""
    return folder / f"{case.name}-{rank}.json"


def case_file(folder: Path, case: Case) -> Path:
    """Return the file in the study's folder with what all ranks measured of a case."""
    return folder / "cases" / f"{case.name}.json"


def cases_of(campaign: CampaignConfig, label: str, count: int) -> list[Case]:
    """Return what is measured on so many GPUs of a campaign; their names differ where anything else does."""
    study, gpu = campaign.studies.study_parallel(), campaign.gpu(label)
    found = []
    for network, strategy in itertools.product(study.networks, study.strategies if count > 1 else (SINGLE,)):
        batch = study.batch_per_gpu or network.first_input.shape[0]
        if strategy == PIPELINE:
            batch = batch * count // study.microbatches
        for execution in gpu.execution_of(network.precision):
            sized = network.with_batch(batch).model_copy(update={"precision": [execution]})
            case = Case("", sized, strategy, study.microbatches, campaign.training)
            content = f"{case}{study.settings}{gpu.device}{MEASUREMENT_VERSION}"
            words = (
                network.name.rpartition(":")[2],
                execution,
                strategy,
                count,
                hashlib.sha256(content.encode()).hexdigest()[:8],
            )
            found.append(replace(case, name=re.sub(r"[^\w.-]+", "_", "-".join(map(str, words)))))
    return found
