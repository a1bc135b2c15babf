"""The logger of a real GPU: a process on another core, which closes its files whatever becomes of its caller."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from clockwatt.config import TelemetryConfig
from clockwatt.errors import ClockwattError
from clockwatt.gpu.interface import Gpu, InstalledGpu
from clockwatt.gpu.registry import open_installed
from clockwatt.io.segments import SegmentWriter
from clockwatt.schema.records import TELEMETRY_SCHEMA, TelemetryRow, table_of
from clockwatt.telemetry.all_sensors import EverythingReader, EverythingRecorder
from clockwatt.telemetry.host import HostSensors
from clockwatt.telemetry.logger import Logger, LoggerError
from clockwatt.telemetry.recorder import LoggerReport, Recorder
from clockwatt.telemetry.sampling import FAST, LaneReader

_ANSWER_TIMEOUT_S = 30.0
_END_TIMEOUT_S = 5.0


class LoggerProcess(Logger):
    """The logger of a real GPU: a process on another core, with a driver handle of its own."""

    def __init__(self, connection: Connection, process: multiprocessing.process.BaseProcess) -> None:
        self._connection, self._process = connection, process
        self._asked = False
        self._early: list[TelemetryRow] = []  # answers that came before they were taken

    @property
    def pid(self) -> int | None:
        """Number of the process."""
        return self._process.pid

    def take(self) -> list[TelemetryRow]:
        """See `Logger.take`."""
        rows: list[TelemetryRow] = self._ask("take")
        early, self._early = self._early, []
        return early + rows

    def ask(self) -> None:
        """See `Logger.ask`."""
        if not self._asked:
            self._send("take")
            self._asked = True

    def answer(self) -> list[TelemetryRow] | None:
        """See `Logger.answer`."""
        with _ended():
            if not self._asked or not self._connection.poll():
                return None
        self._receive_early()
        early, self._early = self._early, []
        return early

    def flush(self) -> None:
        """See `Logger.flush`."""
        self._ask("flush")

    def stop(self) -> LoggerReport:
        """End the process after it has closed its segments."""
        report: LoggerReport = self._ask("stop")
        self._process.join(_ANSWER_TIMEOUT_S)
        return report

    def wait_until_running(self) -> None:
        """Return once the process has opened the GPU.

        Raises
        ------
        LoggerError
            If it could not.
        """
        self._ask("ping")

    def _receive_early(self) -> None:
        self._asked = False  # first: interrupted in between, nobody waits for an answer that came
        self._early += self._received()

    def _ask(self, question: str) -> Any:
        if self._asked:
            self._receive_early()
        self._send(question)
        return self._received()

    def _send(self, question: str) -> None:
        with _ended():
            self._connection.send(question)

    def _received(self) -> Any:
        with _ended():
            if not self._connection.poll(_ANSWER_TIMEOUT_S):
                raise LoggerError(
                    f"the telemetry logger (process {self.pid}) has not answered for {_ANSWER_TIMEOUT_S:.0f} s; "
                    "the driver may hang: see `nvidia-smi` and the kernel log."
                )
            answer = self._connection.recv()
        if isinstance(answer, ClockwattError):
            raise LoggerError(f"the telemetry logger stopped: {answer}")
        return answer


@contextlib.contextmanager
def _ended() -> Iterator[None]:
    """Say it if the logger has ended."""
    try:
        yield
    except (EOFError, BrokenPipeError, ConnectionResetError):
        raise LoggerError(
            "the telemetry logger has ended; nothing can be measured without it. See its message above."
        ) from None


@contextlib.contextmanager
def logger_process(
    card: InstalledGpu, session_id: str, folder: Path, config: TelemetryConfig, *, everything: bool = False
) -> Iterator[LoggerProcess]:
    """A logger for one GPU in a process of its own, writing segments to `folder`.

    It gets a core to itself, which the calling process leaves to it, if there are at least two. It outlives an
    exception of the caller long enough to close its files, and ends by itself when the caller dies. With `everything`
    it reads all sensors and rings, keeps no rows for `take`, and leaves the cores as they are: a program that is
    recorded has what it would have without.

    Raises
    ------
    LoggerError
        If it cannot open the GPU.
    """
    allowed = sorted(os.sched_getaffinity(0))
    own_core = allowed[-1] if len(allowed) > 1 and not everything else None
    # spawned, not forked: a fork of a process that holds a CUDA context is undefined
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(
        target=_run, args=(theirs, card, session_id, folder, config, own_core, everything), daemon=True
    )
    process.start()
    theirs.close()
    logger = LoggerProcess(ours, process)
    if own_core is not None:
        os.sched_setaffinity(0, set(allowed) - {own_core})
    try:
        logger.wait_until_running()
        yield logger
    finally:
        if own_core is not None:
            os.sched_setaffinity(0, allowed)
        with contextlib.suppress(LoggerError):
            logger.stop()
        ours.close()
        process.join(_END_TIMEOUT_S)
        if process.is_alive():  # stuck in the driver; it would be waited for for ever
            process.kill()


def _run(
    connection: Connection, card: InstalledGpu, session_id: str, folder: Path, config: TelemetryConfig,
    core: int | None, everything: bool,
) -> None:  # fmt: skip
    """Body of the logger's process."""
    # a Ctrl-C reaches the whole process group; the measuring process decides when telemetry ends
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    if core is not None:
        os.sched_setaffinity(0, {core})
    try:
        with contextlib.closing(open_installed(card)) as gpu:
            _serve(connection, _recorder_of(gpu, session_id, folder, config, everything=everything))
    except ClockwattError as error:
        with contextlib.suppress(BrokenPipeError, EOFError, ConnectionResetError):
            connection.recv()
            connection.send(error)


def _recorder_of(gpu: Gpu, session_id: str, folder: Path, config: TelemetryConfig, *, everything: bool) -> Recorder:
    # Arrow imports pandas with its first table: during the first segment that would delay readings
    table_of([TelemetryRow(session_id=session_id, lane=FAST, time_us=0, monotonic_ns=0)], TELEMETRY_SCHEMA)
    writer = SegmentWriter(folder, TELEMETRY_SCHEMA, config.segment_s)
    share = config.sensor_cpu_share
    if everything:
        complete = EverythingReader(gpu, session_id, _now, cpu_ns=time.thread_time_ns, sensor_cpu_share=share)
        return EverythingRecorder(complete, writer, config, time.monotonic_ns())
    reader = LaneReader(gpu, session_id, _now, HostSensors(), cpu_ns=time.thread_time_ns, sensor_cpu_share=share)
    return Recorder(reader, writer, config, time.monotonic_ns())


def _now() -> tuple[int, int]:
    return time.time_ns() // 1000, time.monotonic_ns()


def _serve(connection: Connection, recorder: Recorder) -> None:
    while True:
        wait_s = max(0.0, (recorder.due_ns - time.monotonic_ns()) / 1e9)
        try:
            question = connection.recv() if connection.poll(wait_s) else None
        except (EOFError, ConnectionResetError):  # the measuring process died
            recorder.close()
            return
        try:
            answer = _answer(recorder, question) if question else None
        except ClockwattError as error:  # it is being waited for
            connection.send(error)
            return
        if answer is not None:
            connection.send(answer)
        if question == "stop":
            return
        recorder.tick(time.monotonic_ns())


def _answer(recorder: Recorder, question: str) -> Any:
    """Return what the measuring process requested; anything but None."""
    match question:
        case "take":
            return recorder.take()
        case "flush":
            recorder.flush()
        case "stop":
            return recorder.close()
    return "done"
