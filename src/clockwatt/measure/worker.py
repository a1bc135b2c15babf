"""A shard is measured by a worker, a process of its own: what ends it costs itself, and a fresh worker goes on.

The process that waits for it holds neither the GPU nor the shard, so it survives an operation that crashes, hangs or
takes all memory.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import NoReturn

from clockwatt.errors import ClockwattError
from clockwatt.io.progress import say
from clockwatt.measure import watchdog
from clockwatt.threads import start_method

_TO_END = (signal.SIGTERM, signal.SIGINT)


class WorkerEndedError(ClockwattError):
    """A worker ended before all was measured, and nothing that it measured is to blame."""


def run(measure: Callable[[], None], note: Path) -> None:
    """Call `measure` in a worker, and in a fresh one as long as something that it measured ends it.

    Each of these is a strike in the note, and after three it is left out: so it comes to an end.

    Parameters
    ----------
    measure
        Can be pickled; measures a shard that keeps its note in `note`.
    note
        See `watchdog.UnderWay`.

    Raises
    ------
    WorkerEndedError
        If a worker was killed while nothing was under way.
    SystemExit
        With the exit code of a worker that ended with a message of its own.
    """
    while True:
        before = _count(note)
        process = start_method().Process(target=_work, args=(measure,))
        process.start()
        try:
            process.join()
        except BaseException:  # this process is asked to end
            _end(process)
            raise
        code = process.exitcode or 0
        if code == 0:
            return
        if _count(note) <= before:
            if code > 0:
                sys.exit(code)
            hint = " It may have run out of memory: see slurm.mem_mb." if -code == signal.SIGKILL else ""
            raise WorkerEndedError(
                f"the measuring process was ended by signal {-code} ({signal.strsignal(-code)}) while nothing was "
                f"measured.{hint} Finished measurements are in the store; run the same command again."
            )
        say("a new process continues; the operation that ended this one is tried at most three times")


def _count(note: Path) -> int:
    return sum(strikes.count for strikes in watchdog.read_strikes(note).values())


def _end(process: BaseProcess) -> None:
    """Have the worker put clocks back and close its files, and wait for that."""
    for number in _TO_END:
        signal.signal(number, signal.SIG_IGN)
    process.terminate()
    process.join()


def _work(measure: Callable[[], None]) -> None:
    """Body of a worker."""
    for number in _TO_END:
        signal.signal(number, _terminate)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        measure()
    except ClockwattError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        sys.exit(1)


def _terminate(number: int, _frame: FrameType | None) -> NoReturn:
    """Turn the first signal into an exception; a second one must not disturb clocks being put back."""
    for one in _TO_END:
        signal.signal(one, signal.SIG_IGN)
    raise SystemExit(128 + number)


def _end_with_parent() -> None:
    """Nobody waits for this process any more: the shard is free for others."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(watchdog.GRACE_S)
        os._exit(1)
