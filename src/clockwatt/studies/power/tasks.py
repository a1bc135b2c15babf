"""The networks of the study: what each is trained on, and how. Nothing here imports torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from clockwatt.config import NetworkConfig, PowerStudyConfig, TrainingConfig
from clockwatt.config.studies import PowerNetwork

Kind = Literal["ecg", "cinc17", "mnist"]
_EXAMPLES: dict[Kind, int] = {"ecg": 21_799, "cinc17": 8_528, "mnist": 60_000}
MODULE = "clockwatt.studies.power"


@dataclass(frozen=True)
class Task:
    """A network and what it is trained on.

    Attributes
    ----------
    name
        In the campaign's file; also the name of the script, `python -m clockwatt.studies.power.NAME`, and of the
        function of `networks` that builds it.
    title
        As figures call it.
    kind
        The kind of the data.
    shape
        The shape of one example.
    classes
        Number of classes that it distinguishes.
    batch
        Examples of a training step.
    """

    name: PowerNetwork
    title: str
    kind: Kind
    shape: tuple[int, ...]
    classes: int
    batch: int

    @property
    def network(self) -> NetworkConfig:
        """The network as in a campaign file, to be traced."""
        return NetworkConfig(name=f"{MODULE}.networks:{self.name}", input=[self.batch, *self.shape])

    @property
    def examples(self) -> int:
        """Default number of examples in an epoch: as many as PTB-XL, CinC17 and MNIST have."""
        return _EXAMPLES[self.kind]

    def examples_in(self, study: PowerStudyConfig) -> int:
        """Return the number of examples in an epoch of generated data."""
        return study.examples.get(self.name, self.examples)

    def data_in(self, study: PowerStudyConfig) -> str | None:
        """Return the folder of the data, None where it is made."""
        return study.data.get(self.name)

    def training_in(self, study: PowerStudyConfig) -> TrainingConfig:
        """Return how the network is trained."""
        return training_with(study.optimizers.get(self.name, TRAINING_STEP.optimizer))


TRAINING_STEP = TrainingConfig(optimizer="adam", learning_rate=1e-3)
"""Training step of networks for which the study names no other optimizer."""


def training_with(optimizer: str) -> TrainingConfig:
    """Return the training step with another optimizer."""
    return TRAINING_STEP.model_copy(update={"optimizer": optimizer})


TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        Task("ecg_resnet", "ECG residual network", "ecg", (12, 4096), 5, 64),
        Task("ecg_cinc17", "ECG network of CinC17", "cinc17", (1, 9000), 4, 32),
        Task("dense_512", "dense 2 × 512", "mnist", (784,), 10, 128),
        Task("dense_16384", "dense 2 × 16,384", "mnist", (784,), 10, 32),
    )
}
