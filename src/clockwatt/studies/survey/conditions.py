"""Time programs alone, on several cards of a node at once, and two on one card.

```
conditions/NODE-REPETITION.csv     node, repetition, condition, base, test, cards, step_s
```

`base` is the program that is timed, `test` the one beside it, which is timed as base in another row.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from clockwatt.config import CONDITION_PROGRAMS, CampaignConfig, SurveyStudyConfig
from clockwatt.errors import ClockwattError
from clockwatt.gpu.registry import open_model
from clockwatt.gpu.virtual.card import VirtualGpu
from clockwatt.gpu.virtual.model import Work, contended, hashed
from clockwatt.io.files import write_text
from clockwatt.studies.survey.cards import uuid_of_card

START_S = 20
"""About how long it takes until the programs of a condition run and are warm."""
ALONE, TOGETHER, TIME_SLICING, MPS = "alone", "together", "time slicing", "mps"
_TOGETHER_PROGRAM = "sgemm"
_MPS_PIPE, _MPS_FOLDER = "CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"  # noqa: S108  # where its daemon puts it
_VIRTUAL_NOISE = 0.002
_VIRTUAL = {
    "sgemm": (Work(2 * 8192**3, 12 * 8192**2, "float32", tf32=False, matrix=True), 1.0),
    "resnet50": (Work(64 * 8_200_000_000, 64 * 180_000_000, "float32", tf32=False, matrix=True), 0.95),
    "bert": (Work(16 * 22_000_000_000, 16 * 120_000_000, "float32", tf32=False, matrix=True), 0.8),
    "dlrm": (Work(16384 * 2_000_000, 16384 * 30_000, "float32", tf32=False, matrix=False), 0.4),
}
"""Work of a step of each program on a virtual card, and the share of the time in which it keeps the device busy."""


class Running(NamedTuple):
    """A program on a card of the node, by its index."""

    program: str
    card: int


Timer = Callable[[Sequence[Running]], list[float]]
"""Returns the median time of a step, in s, of programs that run at once."""


def measure(campaign: CampaignConfig, label: str, node: str, repetition: int, output: Path) -> None:
    """Time the programs under all conditions of the survey on a node.

    Parameters
    ----------
    campaign
        With `studies.survey`.
    label
        Label of the GPU.
    node
        The node.
    repetition
        Its number; on a virtual node, the noise depends on it.
    output
        File to write.

    Raises
    ------
    ClockwattError
        If this is another node, a card is not here, or a program fails.
    """
    study, gpu = campaign.studies.study_survey(), campaign.gpu(label)
    cards = study.gpus[label][node]
    if gpu.virtual_model is not None:
        shared, timer = TIME_SLICING, _virtual_timer(campaign, label, f"{node}/{repetition}")
    else:
        uuids = [uuid_of_card(gpu.device, node, index) for index in range(cards)]
        shared, timer = _sharing(os.environ), processes([{"CUDA_VISIBLE_DEVICES": uuid} for uuid in uuids], study)
    rows = [
        (condition, base.program, test, len({one.card for one in running}), step_s)
        for condition, running in conditions(study.conditions, cards, shared)
        for base, test, step_s in _beside(running, timer(running))
    ]
    table = pd.DataFrame(rows, columns=["condition", "base", "test", "cards", "step_s"])
    write_text(table.assign(node=node, repetition=repetition).to_csv(index=False), output)


def conditions(names: Sequence[str], cards: int, shared: str) -> Iterator[tuple[str, list[Running]]]:
    """Yield each condition, and the programs that run at once under it.

    Parameters
    ----------
    names
        As in `studies.survey.conditions`.
    cards
        Number of cards of the node.
    shared
        Name of the condition of two programs on one card.
    """
    for name in CONDITION_PROGRAMS:
        yield ALONE, [Running(name, 0)]
    if TOGETHER in names:
        for count in range(2, cards + 1):
            yield TOGETHER, [Running(_TOGETHER_PROGRAM, index) for index in range(count)]
    if "shared" in names:
        for pair in itertools.combinations_with_replacement(CONDITION_PROGRAMS, 2):
            yield shared, [Running(name, 0) for name in pair]


def _beside(running: Sequence[Running], steps_s: Sequence[float]) -> Iterator[tuple[Running, str, float]]:
    """Yield each program, the one beside it on its card (empty if none), and its time; cards at once count as one."""
    for number, (one, step_s) in enumerate(zip(running, steps_s, strict=True)):
        others = [other.program for at, other in enumerate(running) if at != number and other.card == one.card]
        yield one, ", ".join(others), step_s


def _sharing(environ: Mapping[str, str]) -> str:
    """Return how programs share a card here."""
    return MPS if (Path(environ.get(_MPS_PIPE, _MPS_FOLDER)) / "control").exists() else TIME_SLICING


def processes(environments: Sequence[Mapping[str, str]], study: SurveyStudyConfig, scale: float = 1.0) -> Timer:
    """Return what times programs as processes.

    Parameters
    ----------
    environments
        Variables of a process on each card.
    study
        For how long they are timed.
    scale
        Factor of their sizes.
    """

    def timer(running: Sequence[Running]) -> list[float]:
        with contextlib.ExitStack() as stack:
            started = [stack.enter_context(_started(one, environments[one.card], study, scale)) for one in running]
            for one, process in zip(running, started, strict=True):
                _answer(one, process)
            for process in started:
                assert process.stdin is not None
                process.stdin.write("go\n")
                process.stdin.flush()
            return [float(_answer(one, process)) for one, process in zip(running, started, strict=True)]

    return timer


@contextlib.contextmanager
def _started(
    one: Running, environment: Mapping[str, str], study: SurveyStudyConfig, scale: float
) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "clockwatt.studies.survey.programs", one.program]
    process = subprocess.Popen(
        [*command, "--seconds", f"{study.seconds}", "--scale", f"{scale}"], env={**os.environ, **environment},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        with process:
            yield process
            assert process.stdin is not None
            process.stdin.close()
    finally:
        process.kill()


def _answer(one: Running, process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    if line := process.stdout.readline():
        return line
    raise ClockwattError(
        f"{one.program} on card {one.card} ended with status {process.wait()}. Its messages stand above; run it alone "
        f"with `python -m clockwatt.studies.survey.programs {one.program} --seconds 1`."
    )


def _virtual_timer(campaign: CampaignConfig, label: str, key: str) -> Timer:
    gpu = open_model(campaign.gpu(label).device, seed=campaign.seed)
    assert isinstance(gpu, VirtualGpu)

    def timer(running: Sequence[Running]) -> list[float]:
        neighbours = len({one.card for one in running}) - 1
        steps = []
        for number, one in enumerate(running):
            busy = [_VIRTUAL[other.program][1] for other in running if other.card == one.card]
            noise = 1 + _VIRTUAL_NOISE * (2 * hashed(key, number, *running) - 1)
            steps.append(gpu.device_time_s(_VIRTUAL[one.program][0]) * contended(busy, neighbours) * noise)
        return steps

    return timer
