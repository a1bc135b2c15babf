"""Phases of the Hugging Face Trainer: training, epoch and step, and a mark at each checkpoint."""

from __future__ import annotations

from typing import Any

from clockwatt_injected import marks
from clockwatt_injected.open_phases import OpenPhases
from transformers.trainer_callback import TrainerCallback


class Phases(TrainerCallback):  # type: ignore[misc]
    """Marks what `train` does. A step is an optimizer step, with all its accumulated batches."""

    def __init__(self) -> None:
        self._phases = OpenPhases()

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._phases.begin("training")

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._phases.end("training")

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._phases.begin("epoch", int(state.epoch or 0))

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._phases.end("epoch")

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._phases.begin("step", int(state.global_step))

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._phases.end("step")

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        marks.mark("saved", int(state.global_step))
