"""The loggers of a run: a process for each real GPU; virtual GPUs and the host are read in between, here."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path

from clockwatt.config import TelemetryConfig
from clockwatt.errors import OutputError
from clockwatt.gpu.interface import Gpu
from clockwatt.io.segments import SegmentWriter
from clockwatt.schema.records import TELEMETRY_SCHEMA
from clockwatt.telemetry.all_sensors import EverythingReader, EverythingRecorder, HostReader
from clockwatt.telemetry.logger import LoggerError
from clockwatt.telemetry.process import LoggerProcess, logger_process
from clockwatt.telemetry.recorder import LoggerReport
from clockwatt.telemetry.recording.layout import HOST, telemetry_folder
from clockwatt.telemetry.recording.virtual import RealTimeGpu
from clockwatt.telemetry.rings import SHORTEST_PERIOD_S

PERIODS = TelemetryConfig(ring_period_s=SHORTEST_PERIOD_S)
"""Rings are looked at this often; each is drained when it is due."""


class Loggers(contextlib.ExitStack):
    """Everything that reads sensors during a run, as long as the context lasts.

    Parameters
    ----------
    gpus
        To read, open; of a real one another process takes a handle of its own.
    folder
        The folder of the record.
    number
        The number of the run.

    Raises
    ------
    LoggerError
        On entry, if a GPU cannot be read.
    """

    def __init__(self, gpus: Sequence[Gpu], folder: Path, number: int) -> None:
        super().__init__()
        self._gpus, self._folder, self._number = gpus, folder, number
        self._processes: dict[str, LoggerProcess] = {}
        self._here: dict[str, tuple[EverythingRecorder, RealTimeGpu | None]] = {}
        self.notes: list[str] = []

    def __enter__(self) -> Loggers:
        super().__enter__()
        with contextlib.ExitStack() as begun:
            for gpu in self._gpus:
                uuid = gpu.identity.uuid
                folder = telemetry_folder(self._folder, self._number, uuid)
                if isinstance(gpu, RealTimeGpu):
                    self._here[uuid] = self._virtual(gpu, folder), gpu
                else:
                    logger = logger_process(gpu.installed, self._session(uuid), folder, PERIODS, everything=True)
                    self._processes[uuid] = begun.enter_context(logger)
            self.enter_context(begun.pop_all())
        host = HostReader(self._session(HOST), lambda: (time.time_ns() // 1000, time.monotonic_ns()))
        writer = self._writer(telemetry_folder(self._folder, self._number, HOST))
        self._here[HOST] = EverythingRecorder(host, writer, PERIODS, time.monotonic_ns()), None
        return self

    def tick(self) -> int:
        """See `program.Meanwhile`."""
        now_ns = time.monotonic_ns()
        for recorder, gpu in self._here.values():
            if gpu is None:
                recorder.tick(now_ns)
                continue
            gpu.look()
            while recorder.due_ns <= now_ns:  # in its own time it is never late
                due_ns = recorder.due_ns
                gpu.advance_to(due_ns)
                recorder.tick(due_ns)
        return min(recorder.due_ns for recorder, _ in self._here.values())

    def save(self) -> None:
        """See `program.Meanwhile`."""
        for recorder, _ in self._here.values():
            with contextlib.suppress(OutputError):
                recorder.flush()
        for logger in self._processes.values():
            with contextlib.suppress(LoggerError):
                logger.flush()

    def work_for(self, pid: int | None) -> None:
        """What virtual GPUs work for; see `RealTimeGpu`."""
        self.tick()
        for _, gpu in self._here.values():
            if gpu is not None:
                gpu.work_for(pid)

    def stop(self) -> dict[str, LoggerReport]:
        """Close all files; how each logger did. What one could not write or read stands in `notes`."""
        self.tick()
        reports = {}
        for what, (recorder, gpu) in self._here.items():
            if gpu is not None:
                gpu.advance_to(time.monotonic_ns())
            try:
                reports[what] = recorder.close()
            except OutputError as error:
                self.notes.append(str(error))
        for uuid, logger in self._processes.items():
            try:
                reports[uuid] = logger.stop()
            except LoggerError as error:
                self.notes.append(f"{uuid}: {error}")
        return reports

    def _virtual(self, gpu: RealTimeGpu, folder: Path) -> EverythingRecorder:
        gpu.advance_to(time.monotonic_ns())
        session = self._session(gpu.identity.uuid)
        reader = EverythingReader(gpu, session, gpu.now, cpu_ns=lambda: 0, sensor_cpu_share=1.0)
        return EverythingRecorder(reader, self._writer(folder), PERIODS, gpu.now()[1])

    def _session(self, what: str) -> str:
        return f"run-{self._number}/{what}"

    @staticmethod
    def _writer(folder: Path) -> SegmentWriter:
        return SegmentWriter(folder, TELEMETRY_SCHEMA, PERIODS.segment_s)
