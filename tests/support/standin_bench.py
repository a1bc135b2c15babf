"""A bench whose calls take time and nothing else, so that session, control and telemetry run on the stand-in NVML."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator, Iterator
from pathlib import Path

from clockwatt.config import CampaignConfig
from clockwatt.gpu.interface import Gpu
from clockwatt.measure.bench.interface import (
    BLOCKS_AHEAD,
    Bench,
    HostClockBench,
    QueuedBlock,
    Subject,
    Versions,
    Workload,
)
from clockwatt.measure.statistics import Estimate
from clockwatt.telemetry.process import logger_process

_CALL_S = 1e-4


class SleepingWorkload(Workload):
    """Calls that take a tenth of a millisecond."""

    instances = 1
    working_set = "hot"
    working_set_bytes = 0
    has_backward = False
    has_modules = False


class StandInBench(HostClockBench):
    """The GPU's sensors are read for real; what runs on it sleeps."""

    versions = Versions(None, None, None)

    def idle(self, seconds: float) -> None:
        time.sleep(seconds)

    @contextlib.contextmanager
    def open(self, subject: Subject) -> Iterator[Workload]:
        yield SleepingWorkload()

    def host_block(self, workload: Workload, calls: int) -> float:
        return _CALL_S

    def queued_block(self, workload: Workload, calls: int) -> QueuedBlock | None:
        return QueuedBlock(_CALL_S, _CALL_S)

    def cut_block(self, workload: Workload) -> QueuedBlock | None:
        return QueuedBlock(_CALL_S, _CALL_S)

    def pass_block(self, workload: Workload, calls: int) -> float | None:
        return None

    def eager_blocks(self, workload: Workload, calls: int, *, ahead: int = BLOCKS_AHEAD) -> Generator[float]:
        while True:
            begun = time.monotonic()
            time.sleep(calls * _CALL_S)
            yield time.monotonic() - begun

    def timed_run(self, workload: Workload, calls: int) -> float:
        return calls * _CALL_S

    def call_costs(self) -> dict[tuple[str, str | None], Estimate | None]:
        return {}

    def memory_peak_bytes(self) -> int | None:
        return None


@contextlib.contextmanager
def open_standin_bench(
    config: CampaignConfig, gpu: Gpu, session_id: str, telemetry_dir: Path, catalogue_dir: Path, operation_ids: set[str]
) -> Iterator[Bench]:
    """As `clockwatt.measure.bench.registry.open_bench`."""
    with logger_process(gpu.installed, session_id, telemetry_dir, config.telemetry) as logger:
        yield StandInBench(gpu, logger)
