"""What the measuring process sees of the background logger, and the logger of a virtual GPU.

Nothing in the measuring process reads NVML while anything is timed: a reading takes milliseconds, gives the load a
rhythm of its own, and readings then alias with it. The measuring process asks for the readings between operations.
"""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Iterator
from pathlib import Path

from clockwatt.config import TelemetryConfig
from clockwatt.errors import ClockwattError
from clockwatt.gpu.virtual.card import VirtualGpu
from clockwatt.io.segments import SegmentWriter
from clockwatt.schema.records import TELEMETRY_SCHEMA, TelemetryRow
from clockwatt.telemetry.recorder import Recorder
from clockwatt.telemetry.sampling import LaneReader


class LoggerError(ClockwattError):
    """The background logger ended or does not answer."""


class Logger(abc.ABC):
    """What the measuring process sees of a logger."""

    @abc.abstractmethod
    def take(self) -> list[TelemetryRow]:
        """Return everything read since the last call.

        Raises
        ------
        LoggerError
            If the logger has ended.
        """

    @abc.abstractmethod
    def ask(self) -> None:
        """Ask for the readings without waiting for them; `answer` gives them.

        Raises
        ------
        LoggerError
            If the logger has ended.
        """

    @abc.abstractmethod
    def answer(self) -> list[TelemetryRow] | None:
        """Return the rows that `ask` requested: everything read since the last answer, or None if not there yet.

        Raises
        ------
        LoggerError
            If the logger has ended.
        """

    @abc.abstractmethod
    def flush(self) -> None:
        """Have everything that `take` gave in closed segments on return.

        Raises
        ------
        LoggerError
            If the logger has ended.
        OutputError
            If a segment cannot be written.
        """


class VirtualLogger(Logger):
    """The logger of a virtual GPU: it samples in the GPU's own time, which `advance` moves."""

    def __init__(self, gpu: VirtualGpu, recorder: Recorder) -> None:
        self._gpu, self._recorder = gpu, recorder

    def advance(self, seconds: float) -> None:
        """Let virtual time pass, taking each reading when it is due."""
        end_ns = self._gpu.monotonic_ns + round(seconds * 1e9)
        while self._recorder.due_ns <= end_ns:
            self._gpu.advance(max(0, self._recorder.due_ns - self._gpu.monotonic_ns) / 1e9)
            self._recorder.tick(self._gpu.monotonic_ns)
        self._gpu.advance(max(0, end_ns - self._gpu.monotonic_ns) / 1e9)

    def take(self) -> list[TelemetryRow]:
        """See `Logger.take`."""
        return self._recorder.take()

    def ask(self) -> None:
        """See `Logger.ask`; in virtual time the answer is there at once."""

    def answer(self) -> list[TelemetryRow] | None:
        """See `Logger.answer`."""
        return self._recorder.take()

    def flush(self) -> None:
        """See `Logger.flush`."""
        self._recorder.flush()


@contextlib.contextmanager
def virtual_logger(gpu: VirtualGpu, session_id: str, folder: Path, config: TelemetryConfig) -> Iterator[VirtualLogger]:
    """A logger in the virtual GPU's own time, writing segments to `folder`."""
    reader = LaneReader(
        gpu, session_id, lambda: (gpu.epoch_us, gpu.monotonic_ns), host=None,
        cpu_ns=lambda: 0, sensor_cpu_share=config.sensor_cpu_share,
    )  # fmt: skip
    recorder = Recorder(reader, SegmentWriter(folder, TELEMETRY_SCHEMA, config.segment_s), config, gpu.monotonic_ns)
    try:
        yield VirtualLogger(gpu, recorder)
    finally:
        recorder.close()
