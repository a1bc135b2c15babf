"""The bench of a virtual GPU with a logger process beside it, without which nothing is measured, as with a real GPU.

The process reads a card of the stand-in NVML; its number is a file's name in the folder that `FOLDER` of the
environment names.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from clockwatt.gpu.interface import Gpu
from clockwatt.gpu.registry import installed_gpus
from clockwatt.gpu.virtual.card import VirtualGpu
from clockwatt.measure.bench import registry
from clockwatt.measure.bench.interface import Bench
from clockwatt.measure.bench.registry import BenchSettings
from clockwatt.measure.bench.virtual import VirtualBench
from clockwatt.schema.records import TelemetryRow
from clockwatt.telemetry.logger import virtual_logger
from clockwatt.telemetry.process import LoggerProcess, logger_process

FOLDER = "LOGGED_BENCH_FOLDER"
_for_ever = contextlib.ExitStack()


class LoggedBench(VirtualBench):
    """Asks the process before it takes the virtual GPU's own telemetry."""

    process: LoggerProcess

    def take_telemetry(self) -> list[TelemetryRow]:
        """See `Bench.take_telemetry`."""
        self.process.take()
        return super().take_telemetry()


@contextlib.contextmanager
def open_logged(gpu: Gpu, settings: BenchSettings) -> Iterator[Bench]:
    """As `measure.bench.registry` opens the bench of a virtual GPU."""
    card, config, folder = cast(VirtualGpu, gpu), settings.config, Path(os.environ[FOLDER])
    with (
        logger_process(installed_gpus()[0], settings.session_id, folder / "telemetry", config.telemetry) as process,
        virtual_logger(card, settings.session_id, settings.telemetry_dir, config.telemetry) as logger,
    ):
        (folder / str(process.pid)).touch()
        bench = LoggedBench(card, logger, config.seed, settings.catalogue_dir)
        bench.process = process
        yield bench


def install() -> None:
    """Have this process measure virtual GPUs so."""
    _for_ever.enter_context(registry.register(VirtualGpu.vendor, open_logged))
