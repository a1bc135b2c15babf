"""What a callback of Lightning marks, whichever of its two packages is used."""

from __future__ import annotations

from typing import Any

from clockwatt_injected.open_phases import OpenPhases


class MarksPhases:
    """Training, epoch, step, validation, test and prediction."""

    def __init__(self) -> None:
        self._phases = OpenPhases()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._phases.begin("training")

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._phases.end("training")

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        self._phases.begin("epoch", int(trainer.current_epoch))

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self._phases.end("epoch")

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self._phases.begin("step", int(batch_idx))

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self._phases.end("step")

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        self._phases.begin("validation")

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        self._phases.end("validation")

    def on_test_start(self, trainer: Any, pl_module: Any) -> None:
        self._phases.begin("test")

    def on_test_end(self, trainer: Any, pl_module: Any) -> None:
        self._phases.end("test")

    def on_predict_start(self, trainer: Any, pl_module: Any) -> None:
        self._phases.begin("prediction")

    def on_predict_end(self, trainer: Any, pl_module: Any) -> None:
        self._phases.end("prediction")
