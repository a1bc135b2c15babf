"""Time programs alone, on several cards of a node at once, and two on one card.

```
conditions/NODE-REPETITION.csv     node, repetition, condition, card, base, test, cards, step_s
```

`base` is the program that is timed on a card, `test` the one beside it, which is timed as base in another row. All
programs start once and wait for their turn; the order of the conditions is shuffled.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from clockwatt.config import CONDITION_PROGRAMS, CampaignConfig
from clockwatt.errors import ClockwattError
from clockwatt.gpu.interface import GpuNotFoundError
from clockwatt.gpu.registry import open_model
from clockwatt.gpu.virtual.card import VirtualGpu
from clockwatt.gpu.virtual.model import Work, contended, hashed
from clockwatt.io.files import write_text
from clockwatt.io.progress import progress, say
from clockwatt.studies.survey.cards import card_at

START_S = 30
"""About how long it takes until all programs run and are warm."""
SWITCH_S = 1
"""About how long it takes from one condition to the next."""
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
"""Returns the mean time of a step, in s, of programs that run at once."""


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
        If this is another node, none of its cards is here, or a program fails.
    """
    study, gpu = campaign.studies.study_survey(), campaign.gpu(label)
    cards, shared, uuids = study.cards_of(label, node), TIME_SLICING, []
    if gpu.virtual_model is None:
        uuids, shared = _cards_here(gpu.device, node, cards), _sharing(os.environ)
        cards = len(uuids)
    drawn = conditions(study.conditions, cards, shared)
    asked = sorted(drawn, key=lambda each: hashed(campaign.seed, node, repetition, *each))
    if gpu.virtual_model is not None:
        timer = _virtual_timer(campaign, label, f"{node}/{repetition}")
        opened: contextlib.AbstractContextManager[Timer] = contextlib.nullcontext(timer)
    else:
        environments = [{"CUDA_VISIBLE_DEVICES": uuid} for uuid in uuids]
        opened = processes(environments, [running for _, running in asked], study.seconds)
    rows = []
    with opened as timer, progress(f"conditions of {node}", len(asked)) as advance:
        for condition, running in asked:
            at_work = len({one.card for one in running})
            beside = _beside(running, timer(running))
            rows += [(condition, base.card, base.program, test, at_work, step_s) for base, test, step_s in beside]
            advance(condition)
    table = pd.DataFrame(rows, columns=["condition", "card", "base", "test", "cards", "step_s"])
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
        for index in range(1, cards):
            yield ALONE, [Running(_TOGETHER_PROGRAM, index)]
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


def _cards_here(device: str, node: str, cards: int) -> list[str]:
    """Return the UUIDs of the cards of this node that can be had; say which cannot."""
    uuids = []
    for index in range(cards):
        try:
            uuids.append(card_at(device, node, index).uuid)
        except GpuNotFoundError as error:
            if index == cards - 1 and not uuids:
                raise
            say(f"{node}: conditions without card {index}: {error}")
    return uuids


def _sharing(environ: Mapping[str, str]) -> str:
    """Return how programs share a card here."""
    return MPS if (Path(environ.get(_MPS_PIPE, _MPS_FOLDER)) / "control").exists() else TIME_SLICING


@contextlib.contextmanager
def processes(
    environments: Sequence[Mapping[str, str]], asked: Sequence[Sequence[Running]], seconds: float, scale: float = 1.0
) -> Iterator[Timer]:
    """Start programs as processes, which wait until they are timed; end them at the end of the context.

    Parameters
    ----------
    environments
        Variables of a process on each card.
    asked
        Programs that will run at once, each time.
    seconds
        For how long they are timed.
    scale
        Factor of their sizes.

    Raises
    ------
    ClockwattError
        If a program ends, here or while it is timed.
    """
    most: Counter[Running] = Counter()
    for running in asked:
        most |= Counter(running)
    started: dict[Running, list[subprocess.Popen[str]]] = {}

    def timer(running: Sequence[Running]) -> list[float]:
        copies = {one: iter(started[one]) for one in running}
        chosen = [(one, next(copies[one])) for one in running]
        _next(chosen)
        steps_s = [float(_answer(*each)) for each in chosen]
        _next(chosen)
        for each in chosen:
            _answer(*each)
        return steps_s

    try:
        for one, count in most.items():
            for _ in range(count):
                started.setdefault(one, []).append(_started(one, environments[one.card], seconds, scale))
        for one, copies in started.items():
            for process in copies:
                _answer(one, process)
        yield timer
        for process in itertools.chain(*started.values()):
            process.communicate()  # the end of its input ends it
    finally:
        for process in itertools.chain(*started.values()):
            process.kill()
            process.wait()


def _started(one: Running, environment: Mapping[str, str], seconds: float, scale: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "clockwatt.studies.survey.programs", one.program]
    return subprocess.Popen(
        [*command, "--seconds", f"{seconds}", "--scale", f"{scale}"], env={**os.environ, **environment},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        start_new_session=True,  # Ctrl-C is for the command, which ends them
    )  # fmt: skip


def _next(chosen: Sequence[tuple[Running, subprocess.Popen[str]]]) -> None:
    """Have programs that are ready run, and those that run become ready."""
    for _, process in chosen:
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # one that ended is named when its answer lacks
            process.stdin.write("\n")
            process.stdin.flush()


def _answer(one: Running, process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    if line := process.stdout.readline():
        return line
    raise ClockwattError(
        f"{one.program} on card {one.card} ended with status {process.wait()}. See its messages above; run it alone "
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
