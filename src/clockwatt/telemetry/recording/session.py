"""`clockwatt record`: runs a program, once or repeatedly, and leaves a record of it that is true whatever it does."""

from __future__ import annotations

import contextlib
import os
import socket
import time
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from clockwatt.config import ControlConfig, OperatingPoint
from clockwatt.control.points import check_supported, operating_point
from clockwatt.errors import OutputError
from clockwatt.gpu.interface import Gpu, GpuError
from clockwatt.io.output import told_as_output
from clockwatt.io.progress import say
from clockwatt.telemetry.recording import layout
from clockwatt.telemetry.recording.choose import computed_on
from clockwatt.telemetry.recording.layout import Logged, Record, RecordedGpu, Run
from clockwatt.telemetry.recording.loggers import Loggers
from clockwatt.telemetry.recording.program import ENDING, Signals, check_program, processes_of, start, wait
from clockwatt.telemetry.recording.versions import versions
from clockwatt.telemetry.recording.virtual import RealTimeGpu

_LOOK_EVERY_S = 1.0
_LEAVE_TIME_S = 0.5
"""Time after the program, in s, until processes are reported as left running: most helpers end with it."""

_LAST_READINGS_S = 0.3
"""Sensors are read on for so long, so that each has a reading after the program's end."""


@dataclass(frozen=True)
class Settings:
    """Settings of a recording."""

    point: OperatingPoint = field(default_factory=OperatingPoint)
    control: ControlConfig = field(default_factory=ControlConfig)
    repeat: int = 1
    name: str | None = None
    rest_to_c: float | None = None
    rest_max_s: float = 600.0
    idle_s: float = 3.0  # before each run; at least so long that a counter ticks
    hooks: bool = True  # whether frameworks mark their phases
    wait_for_children: bool = False


class UnwrittenRecordError(OutputError):
    """Programs ran whose record could not be written; `status` is that of the first that failed, else 0.

    Where runs that were wanted were not made it is never 0.
    """

    def __init__(self, told: Record, error: OutputError) -> None:
        statuses = [run.status for run in told.runs if run.status is not None]
        missing = told.repeat - len(statuses)
        self.status = next(filter(None, statuses), int(missing > 0))
        not_made = f" {missing} of {told.repeat} runs were not made." if missing else ""
        super().__init__(f"the program {told.runs[len(statuses) - 1].ending}, but {error.what}{not_made}")


def record(command: list[str], gpus: Sequence[Gpu], folder: Path, settings: Settings) -> Record:
    """Run a program and record it.

    Parameters
    ----------
    command
        The program and its arguments.
    gpus
        GPUs to record, open; none: the host alone.
    folder
        The folder of the record; made if it is not there.
    settings
        How.

    Raises
    ------
    ClockwattError
        If there is no such program, or it cannot be started.
    OutputError
        If the folder cannot be written, or holds a record already; `UnwrittenRecordError` where a program has run.
    GpuError
        If a GPU cannot be read, or not be held at the operating point.
    SystemExit
        If a signal asks for the end while no program runs.
    """
    check_program(command)
    for gpu in gpus:
        check_supported(gpu, settings.point)
    _check_folder(folder)
    told = _begun(command, gpus, settings)
    if not gpus:
        say("There is no GPU here that the program could compute on: the host is recorded.")
    with Signals() as signals, contextlib.ExitStack() as held:
        held.callback(_remove_if_empty, folder)  # where a GPU cannot be held, nothing is recorded
        for gpu in gpus:
            applied = held.enter_context(operating_point(gpu, settings.point, settings.control))
            told.notes += applied.warnings
        told.write(folder)
        try:
            for number in range(1, settings.repeat + 1):
                _rest(gpus, settings, signals, told)
                _run(command, gpus, folder, settings, signals, told, number)
                if ENDING & set(signals.received):
                    break
            told.complete = True
            told.write(folder)
        except OutputError as error:
            if any(run.status is not None for run in told.runs):
                raise UnwrittenRecordError(told, error) from error
            raise
    return told


def _check_folder(folder: Path) -> None:
    if (folder / layout.RECORD).exists():
        raise OutputError(f"{folder}: holds a record already. Choose another --output, or another --name.")
    with told_as_output(folder):
        folder.mkdir(parents=True, exist_ok=True)


def _remove_if_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()


def _begun(command: list[str], gpus: Sequence[Gpu], settings: Settings) -> Record:
    computes = computed_on(gpus)
    return Record(
        name=settings.name or Path(command[0]).name, command=command, folder=str(Path.cwd()),
        host=socket.gethostname(), point=str(settings.point), repeat=settings.repeat, recorder=os.getpid(),
        versions=versions(gpus),
        gpus=[
            RecordedGpu(
                uuid=gpu.identity.uuid, name=gpu.identity.name, virtual=gpu.identity.virtual,
                computed_on=computes[gpu.identity.uuid],
            )
            for gpu in gpus
        ],
    )  # fmt: skip


def _run(
    command: list[str], gpus: Sequence[Gpu], folder: Path, settings: Settings, signals: Signals, told: Record,
    number: int,
) -> None:  # fmt: skip
    """One run; whatever becomes of it, `told` says so."""
    marks, token = layout.marks_folder(folder, number), uuid.uuid4().hex
    with told_as_output(marks):
        marks.mkdir(parents=True)
    environment = layout.program_environment(marks, token, hooks=settings.hooks, environ=os.environ)
    run = Run(number=number, contexts_before={gpu.identity.uuid: _contexts(gpu) for gpu in gpus})
    told.runs.append(run)
    with Loggers(gpus, folder, number) as loggers:
        run.idle_start_ns = time.monotonic_ns()
        signals.pause(settings.idle_s, loggers)
        run.start_us, run.start_ns = time.time_ns() // 1000, time.monotonic_ns()
        try:
            process = start(command, environment, signals)
            loggers.work_for(process.pid)
            with contextlib.suppress(OutputError):  # the program runs: its end is waited for, and written again
                told.write(folder)
            ended = wait(process, (run.start_us, run.start_ns), signals, loggers)
            run.end_ns, run.status, run.ending = ended.end_ns, ended.status, ended.ending
            run.processor_s, run.memory_max_bytes = ended.processor_s, ended.memory_max_bytes
            loggers.work_for(None)
            with contextlib.suppress(SystemExit):  # Ctrl-C may have ended the program first: its record is complete
                _see_what_is_left(run, token, settings, signals, loggers)
        finally:
            run.logged = {what: Logged.model_validate(asdict(report)) for what, report in loggers.stop().items()}
            run.notes += loggers.notes
            told.write(folder)


def _see_what_is_left(run: Run, token: str, settings: Settings, signals: Signals, loggers: Loggers) -> None:
    """Report which processes outlive the program; wait for them if requested, until a signal ends that."""
    signals.pause(_LAST_READINGS_S, loggers)
    run.left_running = processes_of(token)
    end_ns = time.monotonic_ns() + round(_LEAVE_TIME_S * 1e9)
    while run.left_running and (settings.wait_for_children or time.monotonic_ns() < end_ns):
        signals.pause(0.1, loggers)
        run.left_running = processes_of(token)
        if settings.wait_for_children:
            run.end_ns = time.monotonic_ns()


def _rest(gpus: Sequence[Gpu], settings: Settings, signals: Signals, told: Record) -> None:
    """Wait until no GPU is warmer than it should be."""
    if settings.rest_to_c is None:
        return
    end_ns = time.monotonic_ns() + round(settings.rest_max_s * 1e9)
    waiting, said = _Resting(gpus), False
    while hot := [gpu for gpu in gpus if (now_c := _temperature_c(gpu)) is not None and now_c > settings.rest_to_c]:
        if time.monotonic_ns() > end_ns:
            names = ", ".join(f"{gpu.identity.uuid} at {_temperature_c(gpu):.0f} °C" for gpu in hot)
            note = f"after a rest of {settings.rest_max_s:.0f} s still warmer than {settings.rest_to_c:g} °C: {names}"
            told.notes.append(note)
            say(f"{note[0].upper()}{note[1:]}; running anyway.")
            return
        if not said:
            names = ", ".join(f"{gpu.identity.uuid} has {_temperature_c(gpu):.0f} °C" for gpu in hot)
            say(
                f"Resting until {settings.rest_to_c:g} °C, at most {settings.rest_max_s:.0f} s (--rest-max-s): {names}."
            )
            said = True
        signals.pause(_LOOK_EVERY_S, waiting)


class _Resting:
    """Lets the time of virtual GPUs pass while nothing is read."""

    def __init__(self, gpus: Sequence[Gpu]) -> None:
        self._gpus = [gpu for gpu in gpus if isinstance(gpu, RealTimeGpu)]

    def tick(self) -> int:
        now_ns = time.monotonic_ns()
        for gpu in self._gpus:
            gpu.advance_to(now_ns)
        return now_ns + 100_000_000

    def save(self) -> None:
        """Nothing is read."""


def _temperature_c(gpu: Gpu) -> float | None:
    try:
        return gpu.temperature_c()
    except GpuError:  # the program's record is worth having without a rest
        return None


def _contexts(gpu: Gpu) -> int | None:
    try:
        return len(gpu.computing_processes())
    except GpuError:
        return None
