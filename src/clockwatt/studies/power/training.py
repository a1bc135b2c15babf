"""Training a network of the study: what its scripts do, with phases marked for `clockwatt record`."""

from __future__ import annotations

import argparse
import itertools
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from clockwatt import mark, phase
from clockwatt.errors import ClockwattError
from clockwatt.schema.execution import ExecutionSettings
from clockwatt.schema.optimizers import NAMES
from clockwatt.studies.options import positive_number, scale_factor
from clockwatt.studies.power.tasks import TASKS, TRAINING_STEP, Task, training_with
from clockwatt.telemetry.injected.clockwatt_injected.marks import told

if TYPE_CHECKING:
    import torch

    from clockwatt.config import TrainingConfig
    from clockwatt.studies.power.data import Examples

_LEAST_BATCH = 2  # which a batch normalisation needs
_LOOK_EVERY = 10

EXPERIMENT, LOAD, TRAINING, EPOCH = "experiment", "load", "training", "epoch"
"""Phases, each within the one before it."""


def main(name: str, description: str, arguments: Sequence[str] | None = None) -> int:
    """Run a script: read its options, train, and say how it went.

    Parameters
    ----------
    name
        The name of the network.
    description
        For `--help`.
    arguments
        The command line; None: that of this process.

    Returns
    -------
    int
        Exit status.
    """
    task = TASKS[name]
    options = _parser(task, description).parse_args(arguments)
    try:
        train(
            task, epochs=options.epochs, examples=options.examples, batch=options.batch, data=options.data,
            device=options.device, precision=options.precision, seed=options.seed, scale=options.scale,
            seconds=options.seconds, optimizer=options.optimizer,
        )  # fmt: skip
    except ClockwattError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1
    return 0


def _parser(task: Task, description: str) -> argparse.ArgumentParser:
    def positive(text: str) -> int:
        if not text.isdecimal() or int(text) == 0:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
        return int(text)

    parser = argparse.ArgumentParser(
        prog=f"python -m clockwatt.studies.power.{task.name}", description=description,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--epochs", type=positive, default=10, help="how often all examples are trained on")
    parser.add_argument("--examples", type=positive, default=task.examples, help="of an epoch, where the data is made")
    parser.add_argument("--batch", type=positive, default=task.batch, help="examples of a training step")
    parser.add_argument("--data", type=Path, default=None, help=f"folder of the data ({_files(task)}); else it is made")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="what computes")
    parser.add_argument("--precision", choices=["tf32", "fp32"], default="tf32", help="of float32 matrix products")
    parser.add_argument("--optimizer", choices=NAMES, default=TRAINING_STEP.optimizer, help="of torch.optim")
    parser.add_argument("--scale", type=scale_factor, default=1.0, help="factor of examples (where made) and batch")
    parser.add_argument(
        "--seconds", type=positive_number, help="train for this many seconds instead of a number of epochs"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the parameters and of made data")
    return parser


def _files(task: Task) -> str:
    shape = ", ".join(map(str, task.shape))
    arrays = f"x.npy [n, {shape}] and y.npy [n]"
    files = {"ecg": "", "mnist": ", or MNIST's own files", "cinc17": ", or REFERENCE.csv and .mat files of CinC17"}
    return arrays + files[task.kind]


def train(
    task: Task,
    *,
    epochs: int,
    examples: int,
    batch: int,
    data: Path | None,
    device: str,
    precision: str,
    seed: int,
    scale: float = 1.0,
    seconds: float | None = None,
    optimizer: str = TRAINING_STEP.optimizer,
) -> None:
    """Train a network.

    Parameters
    ----------
    task
        The task.
    epochs
        Number of passes over all examples.
    examples
        The examples of an epoch, where the data is made.
    batch
        Examples of a step; what is left over at the end of an epoch is left out.
    data
        Folder of the data, or None.
    device
        `cuda` or `cpu`.
    precision
        `tf32` or `fp32`.
    seed
        The seed of the parameters and of made data.
    scale
        Factor of `examples` and `batch`; a batch has two at least.
    seconds
        Train for so long, in place of `epochs`.
    optimizer
        One of `schema.optimizers.NAMES`.

    Raises
    ------
    DataFileError
        If the data cannot be read.
    ClockwattError
        If there is no such device, or an epoch is shorter than a batch.
    """
    with phase(EXPERIMENT):
        with phase(LOAD):
            import torch

            from clockwatt.operations import numerics
            from clockwatt.studies.power import data as sources

            numerics.apply(ExecutionSettings(precision))
            torch.manual_seed(seed)
            if device == "cuda" and not torch.cuda.is_available():
                raise ClockwattError("torch finds no CUDA device; try --device cpu.")
            batch = max(_LEAST_BATCH, round(batch * scale)) if scale != 1 else batch
            count = max(batch, round(examples * scale)) if scale != 1 else examples
            found = sources.examples(task, data, count, batch, seed)
            steps = found.count // batch
            if not steps:
                raise ClockwattError(f"an epoch of {found.count} examples is shorter than a batch of {batch}.")
            mark(f"data: {found.source}")
            about = "data was made" if found.source == sources.MADE else f"data from {found.source}"
            told("note", text=f"{task.name} on {device}: {about}; examples {found.count:,}, batch {batch}")
            print(f"{task.name}: {found.count} examples an epoch, data: {found.source}", flush=True)
            training = _Training(task, found, batch, torch.device(device), training_with(optimizer))
            training.step(0)  # libraries are loaded and memory is taken before anything is timed
            training.wait()
        with phase(TRAINING):
            end_s = math.inf if seconds is None else time.monotonic() + seconds
            for epoch in range(epochs) if seconds is None else itertools.count():
                with phase(EPOCH, index=epoch):
                    for number in range(steps):
                        training.step(number)
                        # the host runs ahead of the device: where time counts, it waits now and then
                        if seconds is not None and number % _LOOK_EVERY == 0 and training.wait_until(end_s):
                            break
                    loss = training.wait()
                of = "" if seconds is not None else f" of {epochs}"
                print(f"{task.name}: epoch {epoch + 1}{of}, loss {loss:.4f}", flush=True)
                if time.monotonic() >= end_s:
                    break


class _Training:
    """A network on a device, the examples that it learns from, and its optimizer."""

    def __init__(
        self, task: Task, examples: Examples, batch: int, device: torch.device, training: TrainingConfig
    ) -> None:
        import torch

        from clockwatt.operations import optimizers
        from clockwatt.studies.power import networks

        self._device, self._batch = device, batch
        self._x, self._y = examples.x, torch.from_numpy(examples.y)
        self._network = getattr(networks, task.name)().to(device)
        self._optimizer = optimizers.make(training, self._network.parameters())
        self._loss_of = torch.nn.CrossEntropyLoss()
        self._loss: torch.Tensor | None = None

    def step(self, number: int) -> None:
        """Learn from one batch; the device may go on after this returns."""
        import torch

        from clockwatt.studies.power.data import batch_of

        first = number * self._batch % max(1, len(self._y) - self._batch + 1)
        rows = slice(first, first + self._batch)
        x = torch.from_numpy(batch_of(self._x[rows])).to(self._device)
        y = self._y[rows].to(self._device)
        self._optimizer.zero_grad()
        self._loss = self._loss_of(self._network(x), y)
        self._loss.backward()
        self._optimizer.step()

    def wait_until(self, end_s: float) -> bool:
        """Wait until the device has done all of it; whether a time of the monotonic clock is over then."""
        self.wait()
        return time.monotonic() >= end_s

    def wait(self) -> float:
        """Wait until the device has done all of it; the loss of the last step."""
        assert self._loss is not None
        return self._loss.item()
