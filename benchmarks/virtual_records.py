"""Records of virtual GPUs under loads that change, in their own virtual time: an hour of them takes seconds.

The folders are what `clockwatt record` writes, and say `virtual`. They are for trying the thermal models out: the
cards' constants are known (`gpu/virtual/model.py`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import clockwatt
from clockwatt.config import TelemetryConfig
from clockwatt.gpu.virtual.card import VirtualGpu
from clockwatt.gpu.virtual.model import Work
from clockwatt.io.segments import SegmentWriter
from clockwatt.schema.records import TELEMETRY_SCHEMA
from clockwatt.telemetry.recording.layout import HOST, Record, RecordedGpu, Run, telemetry_folder
from clockwatt.telemetry.sampling import FAST, SLOW, LaneReader

IDLE_S = 20.0
_TICKS_PER_S = 4
"""How often power is read; temperature is read once a second."""
_SIDE = 4096
_MATRIX = Work(flops=2 * _SIDE**3, bytes_moved=3 * 4 * _SIDE**2, dtype="float32", tf32=False, matrix=True)
_COPY = Work(flops=10**6, bytes_moved=2**30, dtype="float32", tf32=False, matrix=False)

Stretch = tuple[Work | None, float, float]
"""What runs, how busy the device is with it, for how many s."""


def _steady(chance: random.Random) -> Iterator[Stretch]:
    """One load for all the time."""
    busy = chance.uniform(0.5, 1.0)
    while True:
        yield _MATRIX, busy, 60.0


def _epochs(chance: random.Random) -> Iterator[Stretch]:
    """Training with a pause after each epoch."""
    length_s, pause_s = chance.uniform(40, 120), chance.uniform(5, 25)
    while True:
        yield _MATRIX, chance.uniform(0.85, 1.0), length_s
        yield None, 0.0, pause_s


def _bursts(chance: random.Random) -> Iterator[Stretch]:
    """Short jobs at random times, as of a server."""
    while True:
        yield _MATRIX, chance.uniform(0.2, 1.0), chance.expovariate(1 / 12) + 1
        yield None, 0.0, chance.expovariate(1 / 15) + 1


def _steps(chance: random.Random) -> Iterator[Stretch]:
    """Another load every minute or two."""
    while True:
        yield chance.choice([_MATRIX, _COPY, None]), chance.uniform(0.1, 1.0), chance.uniform(30, 150)


def _copies(chance: random.Random) -> Iterator[Stretch]:
    """Bound by memory, with short products in between."""
    while True:
        yield _COPY, chance.uniform(0.6, 1.0), chance.uniform(20, 60)
        yield _MATRIX, 1.0, chance.uniform(3, 10)


PATTERNS: dict[str, Callable[[random.Random], Iterator[Stretch]]] = {
    "steady": _steady, "epochs": _epochs, "bursts": _bursts, "steps": _steps, "copies": _copies,
}  # fmt: skip


class ExactGpu(VirtualGpu):
    """A virtual GPU whose temperature is not rounded to whole degrees."""

    def temperature_c(self) -> float:
        """Return the temperature in °C."""
        return self._history.temperature_c(self._now_ns)


def write_virtual_record(
    folder: Path, *, model: str, pattern: str, runs: int, duration_s: float, cards: Sequence[int] = (0,), seed: int = 0,
    kind: type[VirtualGpu] = VirtualGpu,
) -> Path:  # fmt: skip
    """Write a record of virtual GPUs under a pattern of loads; in each run other random ones.

    Parameters
    ----------
    folder
        Of the record; made if it is not there.
    model
        As after `virtual:`.
    pattern
        One of `PATTERNS`; the name of the record.
    runs, duration_s
        How many, how long each.
    cards
        Which cards of the model, each with a load of its own.
    seed
        Of the loads.
    kind
        Which virtual GPU.
    """
    gpus = [kind(model, seed=0, card=card) for card in cards]
    record = Record(
        name=pattern, command=["virtual load", pattern], folder=str(folder), host="virtual", point="default",
        repeat=runs, recorder=0, complete=True, versions={"clockwatt": clockwatt.__version__},
        gpus=[
            RecordedGpu(uuid=gpu.identity.uuid, name=gpu.identity.name, virtual=True, computed_on=True) for gpu in gpus
        ],
    )  # fmt: skip
    for number in range(1, runs + 1):
        loads = [PATTERNS[pattern](random.Random(f"{pattern}/{seed}/{number}/{card}")) for card in cards]
        record.runs.append(_run(folder, number, gpus, loads, duration_s))
    record.write(folder)
    return folder


def _run(
    folder: Path, number: int, gpus: Sequence[VirtualGpu], loads: Sequence[Iterator[Stretch]], duration_s: float
) -> Run:
    idle_start_ns = gpus[0].monotonic_ns
    start_ns = idle_start_ns + round(IDLE_S * 1e9)
    end_ns = start_ns + round(duration_s * 1e9)
    for gpu, load in zip(gpus, loads, strict=True):
        _record_one(telemetry_folder(folder, number, gpu.identity.uuid), gpu, load, start_ns, end_ns)
    telemetry_folder(folder, number, HOST).mkdir(parents=True, exist_ok=True)
    return Run(
        number=number, idle_start_ns=idle_start_ns, start_us=start_ns // 1000, start_ns=start_ns, end_ns=end_ns,
        status=0, ending="ended with status 0",
    )  # fmt: skip


def _record_one(folder: Path, gpu: VirtualGpu, load: Iterator[Stretch], start_ns: int, end_ns: int) -> None:
    """Read one card each second while it idles, works, and idles again for as long; then let it cool down."""
    writer = SegmentWriter(folder, TELEMETRY_SCHEMA, TelemetryConfig().segment_s)
    reader = LaneReader(
        gpu, "virtual", lambda: (gpu.epoch_us, gpu.monotonic_ns), None, cpu_ns=lambda: 0, sensor_cpu_share=1.0
    )
    gpu.load(None)
    next_change_ns, ticks = start_ns, 0
    while gpu.monotonic_ns <= end_ns + round(IDLE_S * 1e9):
        if gpu.monotonic_ns >= end_ns:
            gpu.load(None)
        elif gpu.monotonic_ns >= next_change_ns:
            work, busy, seconds = next(load)
            gpu.load(work, busy)
            next_change_ns = gpu.monotonic_ns + round(seconds * 1e9)
        writer.add(reader.read(FAST))
        if ticks % _TICKS_PER_S == 0:
            writer.add(reader.read(SLOW))
        ticks += 1
        gpu.advance(1 / _TICKS_PER_S)
    writer.merge()
    gpu.load(None)
    gpu.advance(120.0)
