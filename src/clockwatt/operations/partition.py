"""Blocks of a network, and how they are split into stages of a pipeline that run in turn; without PyTorch."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from clockwatt.errors import RequestError

_NUMBERED = re.compile(r"(?:.*[_-])?\d+")
"""Part of a module's path that numbers the blocks of a network: `h.0`, `encoder_layer_0`, `block1-0`."""

GPIPE = "gpipe"


def block_of(path: str) -> str:
    """Return the outermost module above or at a path whose name has a number, such as `model.h.0`; empty without."""
    parts = path.split(".")
    for place, part in enumerate(parts):
        if _NUMBERED.fullmatch(part):
            return ".".join(parts[: place + 1])
    return ""


def balanced(seconds: Sequence[float], gpus: int) -> list[int]:
    """Return where stages begin, so that the longest is as short as possible."""
    if len(seconds) < gpus:
        raise RequestError(f"{{gpus_per_node}} {gpus}: the network has {len(seconds)} blocks, fewer than GPUs.")
    until = [0.0, *itertools.accumulate(seconds)]
    longest = {(1, end): (until[end], 0) for end in range(1, len(until))}
    for stages in range(2, gpus + 1):
        for end in range(stages, len(until)):
            longest[stages, end] = min(
                (max(longest[stages - 1, begin][0], until[end] - until[begin]), begin)
                for begin in range(stages - 1, end)
            )
    places, end = [], len(seconds)
    for stages in range(gpus, 1, -1):
        end = longest[stages, end][1]
        places.append(end)
    return places[::-1]


def order(schedule: str, stage: int, stages: int, microbatches: int) -> list[tuple[bool, int]]:
    """Return what a stage computes: whether a forward pass, and the number of the microbatch."""
    before = in_flight(schedule, stage, stages, microbatches)
    rest = [(is_forward, number) for number in range(microbatches) for is_forward in (False, True)]
    following = [(is_forward, number + before * is_forward) for is_forward, number in rest]
    return [
        *((True, number) for number in range(before)),
        *((is_forward, number) for is_forward, number in following if number < microbatches),
    ]


def in_flight(schedule: str, stage: int, stages: int, microbatches: int) -> int:
    """Return how many microbatches a stage keeps activations of at once."""
    return microbatches if schedule == GPIPE else min(microbatches, stages - stage)
