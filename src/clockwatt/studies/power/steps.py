"""The traced training steps of the study's networks: shipped for the usual optimizer, traced for others.

`python -m clockwatt.studies.power.steps` in the checkout traces them anew; a test compares.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from clockwatt.config import CampaignConfig, TrainingConfig
from clockwatt.io.resources import resource
from clockwatt.studies.power.tasks import TASKS, TRAINING_STEP, Task


def steps_dir() -> Path:
    """Return the folder of a catalogue that has the training step of every network of the study."""
    return resource("studies/power")


def trace_steps(
    folder: Path, tasks: Iterable[Task] = tuple(TASKS.values()), training: TrainingConfig = TRAINING_STEP
) -> None:
    """Trace them, and write the catalogue.

    Parameters
    ----------
    folder
        Made if it is not there.
    tasks, training
        Networks, and how they are trained.

    Raises
    ------
    OutputError
        If it cannot be written.
    """
    from clockwatt.operations.catalogue import write_catalogue  # imports torch

    content = {
        "campaign": "power",
        "gpus": {"any": {"device": "any"}},
        "networks": [task.network.model_dump() for task in tasks],
        "passes": ["training"],
        "training": training.model_dump(),
    }
    write_catalogue(CampaignConfig.model_validate(content), folder)


if __name__ == "__main__":
    trace_steps(Path("resources/studies/power"))
