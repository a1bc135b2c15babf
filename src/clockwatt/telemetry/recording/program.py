"""Running a program as if nobody watched: its descriptors are ours, and signals that are sent to us reach it."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Protocol

import psutil

from clockwatt.errors import ClockwattError
from clockwatt.telemetry.recording.layout import TOKEN

PASSED_ON = frozenset(
    {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM}
)
ENDING = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT})
ENDED_BY = frozenset(128 + number for number in ENDING)
"""Statuses of programs that a signal asked to end."""

_FROM_THE_TERMINAL = 0x80
"""The kernel's own `si_code`: a key, which the terminal has sent to the program as well."""

_LONGEST_WAIT_S = 0.2


class Meanwhile(Protocol):
    """What is done while the program runs."""

    def tick(self) -> int:
        """Do what is due; when the next is, on the monotonic clock in ns."""

    def save(self) -> None:
        """Write all readings so far to closed files, since the process may end at any moment."""


@dataclass(frozen=True)
class Ended:
    """How a program ended."""

    start_us: int
    start_ns: int
    end_ns: int
    status: int
    ending: str
    processor_s: float
    memory_max_bytes: int


def check_program(command: list[str]) -> None:
    """Check that there is something to run, before anything else takes time.

    Raises
    ------
    ClockwattError
        If no command is given or there is no such program.
    """
    if not command:
        raise ClockwattError("no command. Write it after --, such as `-- python train.py`.")
    if shutil.which(command[0]) is None:
        if os.path.lexists(command[0]):
            fix = f"Write `python {command[0]}`" if command[0].endswith(".py") else "Make it executable with `chmod +x`"
            raise ClockwattError(f"{command[0]}: is no program that may be run. {fix}.")
        raise ClockwattError(f"{command[0]}: no such program. Check its name, and give each argument as its own word.")


class Signals:
    """Holds signals back for as long as the context lasts, so that each is met where it can be dealt with."""

    def __init__(self) -> None:
        self.received: list[int] = []
        self._early: list[int] = []

    def __enter__(self) -> Signals:
        self._handlers = {number: signal.signal(number, self._note) for number in PASSED_ON}
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON | {signal.SIGCHLD})
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

    @contextlib.contextmanager
    def as_before(self) -> Iterator[None]:
        """For starting a program, which inherits what is held back; what arrives meanwhile is met afterwards."""
        held = signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, held)

    def wait(self, timeout_s: float) -> tuple[int, bool] | None:
        """Return the next signal and whether the terminal sent it; None if none comes in time, or a child ended."""
        if self._early:
            return self._early.pop(0), False
        info = signal.sigtimedwait(PASSED_ON | {signal.SIGCHLD}, max(0.0, timeout_s))
        if info is None or info.si_signo == signal.SIGCHLD:
            return None
        self.received.append(info.si_signo)
        return info.si_signo, info.si_code == _FROM_THE_TERMINAL

    def pause(self, seconds: float, meanwhile: Meanwhile) -> None:
        """Wait without a program.

        Raises
        ------
        SystemExit
            If a signal asks for the end.
        """
        end_ns = time.monotonic_ns() + round(seconds * 1e9)
        while (now_ns := time.monotonic_ns()) < end_ns:
            due_ns = min(meanwhile.tick(), end_ns, now_ns + round(_LONGEST_WAIT_S * 1e9))
            arrived = self.wait((due_ns - time.monotonic_ns()) * 1e-9)
            if arrived is not None and arrived[0] in ENDING:
                raise SystemExit(128 + arrived[0])

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.received.append(number)
        self._early.append(number)


def start(command: list[str], environment: Mapping[str, str], signals: Signals) -> subprocess.Popen[bytes]:
    """Start the program.

    Raises
    ------
    ClockwattError
        If it cannot be started.
    """
    try:
        with signals.as_before():
            return subprocess.Popen(command, env=dict(environment), close_fds=False)
    except OSError as error:
        hint = " It needs a first line such as #!/bin/sh." if error.errno == errno.ENOEXEC else ""
        raise ClockwattError(f"{command[0]}: cannot be started ({error.strerror}).{hint}") from error


def wait(process: subprocess.Popen[bytes], started: tuple[int, int], signals: Signals, meanwhile: Meanwhile) -> Ended:
    """Wait for the program, passing signals on.

    Parameters
    ----------
    process
        The program.
    started
        When: µs since the epoch, and the monotonic clock in ns.
    signals
        In their context.
    meanwhile
        What is done while it runs.
    """
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        end_ns = time.monotonic_ns()
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return Ended(
                *started, end_ns, status=_shell_status(process.returncode), ending=_told(status),
                processor_s=usage.ru_utime + usage.ru_stime, memory_max_bytes=usage.ru_maxrss * 1024,
            )  # fmt: skip
        wait_s = min(_LONGEST_WAIT_S, max(0.0, (meanwhile.tick() - time.monotonic_ns()) * 1e-9))
        arrived = signals.wait(wait_s)
        if arrived is not None:
            number, from_terminal = arrived
            if not from_terminal:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, number)
            if number in ENDING:
                meanwhile.save()


def processes_of(token: str) -> list[str]:
    """Return processes that a run has started and that live: their number and name, however they left their parents."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            ours = process.pid != os.getpid() and process.environ().get(TOKEN) == token
            if ours and process.status() != psutil.STATUS_ZOMBIE:
                found.append(f"{process.pid} ({process.name()})")
    return found


def _shell_status(code: int) -> int:
    return code if code >= 0 else 128 - code


def _told(status: int) -> str:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        core = ", core dumped" if os.WCOREDUMP(status) else ""
        try:
            name = signal.Signals(number).name
        except ValueError:
            name = f"signal {number}"
        return f"killed by {name}{core}"
    return f"ended with status {os.WEXITSTATUS(status)}"
