"""Telemetry of a program of the user's own: the logger runs beside a command."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import uuid
from collections.abc import Sequence
from pathlib import Path

from clockwatt.config import TelemetryConfig
from clockwatt.errors import ClockwattError
from clockwatt.gpu.interface import InstalledGpu
from clockwatt.telemetry.process import logger_process


def record(command: list[str], gpus: Sequence[InstalledGpu], output_dir: Path) -> int:
    """Run `command` while the GPUs' sensors are logged to `output_dir/{uuid}`; returns the command's exit status.

    Raises
    ------
    ClockwattError
        If the command cannot be started.
    LoggerError
        If a GPU cannot be read.
    """
    with contextlib.ExitStack() as stack:
        for gpu in gpus:
            stack.enter_context(logger_process(gpu, uuid.uuid4().hex, output_dir / gpu.uuid, TelemetryConfig()))
        try:
            process = subprocess.Popen(command)
        except OSError as error:
            raise ClockwattError(f"{command[0]}: cannot be started ({error.strerror}).") from error
        # a Ctrl-C goes to the command as well; what it makes of it is its own business
        previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            return process.wait()
        finally:
            signal.signal(signal.SIGINT, previous)
