"""The measuring procedure of C. Nicolai's thesis, for comparison, on the same callables.

10,000 calls to warm up, then 3 blocks of at least 10 s of back-to-back calls, timed on the host with the device
synchronised at both ends, as `torch.utils.benchmark` does; meanwhile `nvidia-smi` writes the driver's power reading as
often as it can. Power is the mean of the readings within three standard deviations of their mean, and those readings'
deviation its error; energy is power times time.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from counter_reference import calls_that_take

from clockwatt.measure.bench.interface import Bench, Subject, Workload
from clockwatt.measure.steps import energy

WARM_UP_CALLS = 10_000
WARM_UP_MAX_S = 15.0
BLOCKS = 3
BLOCK_S = 10.0
MARGIN = 1.005
"""A block is sized from a second of calls, which may have been a little slower."""
SMI = ["nvidia-smi", "--query-gpu=timestamp,power.draw", "--format=csv,noheader,nounits", "-lms", "1"]


@dataclass(frozen=True)
class ThesisResult:
    """Per call, with the standard error of the blocks' mean and the deviation of the power readings."""

    time_s: float
    time_error_s: float
    power_w: float
    power_error_w: float
    calls: int
    warm_up_calls: int
    readings: int


def thesis_procedure(bench: Bench, subject: Subject, power_file: Path) -> ThesisResult:
    """Measure as the thesis did; `power_file` keeps what nvidia-smi wrote."""
    with bench.open(subject) as workload:
        warm_up_calls = min(WARM_UP_CALLS, calls_that_take(bench, workload, WARM_UP_MAX_S))
        timed_block(bench, workload, warm_up_calls)
        trial_calls = calls_that_take(bench, workload, 1.0)
        calls = int(np.ceil(trial_calls * MARGIN * BLOCK_S / timed_block(bench, workload, trial_calls)))
        with power_readings(bench, power_file) as finish:
            times = [timed_block(bench, workload, calls) / calls for _ in range(BLOCKS)]
            power = finish()
    estimate = energy.thesis_mean(power)
    return ThesisResult(
        float(np.mean(times)), float(np.std(times, ddof=1) / BLOCKS**0.5),
        estimate.value, estimate.standard_error,
        calls * BLOCKS, warm_up_calls, power.size,
    )  # fmt: skip


def timed_block(bench: Bench, workload: Workload, calls: int) -> float:
    """Seconds that so many back-to-back calls take."""
    if not bench.gpu.identity.virtual:
        return bench.timed_run(workload, calls)
    # a timed run of a virtual GPU lets none of its time pass, and its sensors would see no load
    with contextlib.closing(bench.eager_blocks(workload, calls)) as blocks:
        return next(blocks)


@contextlib.contextmanager
def power_readings(bench: Bench, path: Path) -> Iterator[Callable[[], np.ndarray]]:
    """Have power read; yields what ends that and gives the readings in W, shape (n,).

    On a virtual GPU, of which nvidia-smi knows nothing, they are the logger's readings of the same sensor.
    """
    if bench.gpu.identity.virtual:
        bench.take_telemetry()
        yield lambda: energy.power_readings(bench.take_telemetry()).average.value
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        process = subprocess.Popen([*SMI, f"--id={bench.gpu.identity.uuid}"], stdout=file)

        def finish() -> np.ndarray:
            process.terminate()
            process.wait()
            return parse_smi(path)

        try:
            yield finish
        finally:
            process.kill()
            process.wait()


def parse_smi(path: Path) -> np.ndarray:
    """Power in W from nvidia-smi's lines `2026/11/21 05:00:00.123, 345.67`; the last, cut off by its end, is left out.

    Raises
    ------
    SystemExit
        If there is no reading; the message tells what nvidia-smi wrote.
    """
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    fields = [line.rpartition(",")[2].strip() for line in lines if line.endswith("\n")]
    values = [float(field) for field in fields if field.replace(".", "", 1).isdigit()]
    if len(values) < 2:
        raise SystemExit(f"{path}: nvidia-smi gave no power: {''.join(lines)[:200]!r}")
    return np.array(values)
