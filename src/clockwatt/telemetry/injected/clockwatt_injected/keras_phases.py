"""Phases of Keras 2 and 3: training, epoch, step, validation and prediction."""

from __future__ import annotations

from typing import Any

from clockwatt_injected.open_phases import OpenPhases


class Phases:
    """Marks what `fit`, `fit_generator`, `evaluate` and `predict` do; a callback with Keras's own class beside it."""

    def __init__(self) -> None:
        super().__init__()
        self._phases = OpenPhases()

    def on_train_begin(self, logs: Any = None) -> None:
        self._phases.begin("training")

    def on_train_end(self, logs: Any = None) -> None:
        self._phases.end("training")

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._phases.begin("epoch", int(epoch))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._phases.end("epoch")

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._phases.begin("step", int(batch))

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._phases.end("step")

    on_batch_begin, on_batch_end = on_train_batch_begin, on_train_batch_end  # names before Keras 2.3

    def on_test_begin(self, logs: Any = None) -> None:
        self._phases.begin("validation")

    def on_test_end(self, logs: Any = None) -> None:
        self._phases.end("validation")

    def on_predict_begin(self, logs: Any = None) -> None:
        self._phases.begin("prediction")

    def on_predict_end(self, logs: Any = None) -> None:
        self._phases.end("prediction")
