"""What keeps a shard from harm: one process at a time, an end before Slurm's, and no operation that ends it for ever.

An operation may hang or take its process with it. It is noted before it begins; who finds the note of a process that
died counts a strike, and after three the operation is left out, with a row that says so. `worker` has the shard gone on
with by a fresh process.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from clockwatt.errors import ClockwattError
from clockwatt.io.output import told_as_output
from clockwatt.io.progress import say

if TYPE_CHECKING:
    from clockwatt.measure.store import Key

STRIKES = 3
HANG_S = 900.0
"""An operation that is under way for so long hangs: a measurement takes seconds, building a large network minutes."""
GRACE_S = 30.0
"""Time that a terminated process gets to reset clocks and close its files, in s."""
_KILLED = "it was killed or crashed"
_MARGIN_S = 90.0
"""Before Slurm's time limit: the current operation, the last reference operations, merging and assembling."""
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}


class ShardBusyError(ClockwattError):
    """Another process measures the shard."""


class ShardUnfinishedError(ClockwattError):
    """The shard's time was up before all was measured; what was finished is in the store."""


@contextlib.contextmanager
def only_process(path: Path) -> Iterator[None]:
    """Hold a shard's lock file, so that no two processes measure the same.

    It is let go of when the process ends, however it ends. Where a file system knows no locks a warning is all there
    is: the store stays whole, but things may be measured twice.

    Raises
    ------
    ShardBusyError
        If another process holds it; the message names host, process and job.
    OutputError
        If the file cannot be written.
    """
    with told_as_output(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+", encoding="utf-8")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "another process"
            raise ShardBusyError(
                f"{path}: {holder} measures this shard. Wait for it, or end it; its finished measurements are kept."
            ) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            say(f"{path}: this file system knows no locks; see to it that no other process measures this shard.")
        file.truncate(0)
        job = os.environ.get("SLURM_JOB_ID")
        file.write(f"process {os.getpid()} on {socket.gethostname()}{f', job {job}' if job else ''}")
        file.flush()
        yield


def seconds_left(environment: Mapping[str, str] = os.environ) -> float | None:
    """Seconds until a job should begin nothing more, from Slurm's time limit; None outside a job or without a limit."""
    start, end = (environment.get(f"SLURM_JOB_{name}_TIME", "") for name in ("START", "END"))
    if not end.isdecimal():
        return None
    margin_s = min(_MARGIN_S, 0.1 * (int(end) - int(start))) if start.isdecimal() else _MARGIN_S
    return max(0.0, int(end) - time.time() - margin_s)


@dataclass
class Strikes:
    """How many processes died while something was measured, and what is known of the last one."""

    count: int
    why: str


class UnderWay:
    """The note of what is being measured, in a file of the shard; a context manager.

    A process that leaves the context ends in order, whatever the reason: it leaves no strike but those of `blame`.

    Parameters
    ----------
    path
        The file; it is there only while something is under way, or after a process died.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._died = read_strikes(path)
        self._strike = Strikes(0, "")  # of what is under way, should this process die

    def strikes(self, key: Key) -> Strikes | None:
        """Return the record of processes that died during this measurement; None if none did."""
        return self._died.get(str(key))

    def begin(self, key: Key) -> None:
        """Note that this is under way: for a process that dies, not for a machine, so nothing is waited for.

        Raises
        ------
        OutputError
            If the note cannot be written.
        """
        before = self.strikes(key)
        self._strike = Strikes(before.count + 1 if before else 1, _KILLED)
        self._write(self._died | {str(key): self._strike})

    def blame(self, key: Key, why: str) -> None:
        """Note why this process must end while this is under way."""
        self._died[str(key)] = replace(self._strike, why=why)
        self._write(self._died)

    def end(self, key: Key) -> None:
        """Note that it ended, well or not."""
        self._died.pop(str(key), None)

    def __enter__(self) -> UnderWay:
        return self

    def __exit__(self, *_exception: object) -> None:
        """Keep the strikes of what was not tried again, and no more."""
        if self._died:
            self._write(self._died)
        else:
            self._path.unlink(missing_ok=True)

    def _write(self, died: Mapping[str, Strikes]) -> None:
        with told_as_output(self._path):
            content = json.dumps({key: asdict(strikes) for key, strikes in died.items()}).encode()
            # not emptied first: file systems then write what follows to the disk at once, and it is waited for
            with os.fdopen(os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o666), "wb") as file:
                file.write(content)
                file.truncate()


def read_strikes(path: Path) -> dict[str, Strikes]:
    """Return the strikes in a note, by key; empty without a note, or if a full disk truncated it."""
    with contextlib.suppress(FileNotFoundError, ValueError, TypeError):
        return {str(key): Strikes(**strikes) for key, strikes in json.loads(path.read_text("utf-8")).items()}
    return {}


class Watchdog:
    """Ends this process when an operation hangs: first as SIGTERM does, then, if that is not heard, at once.

    Attributes
    ----------
    barked
        Whether it found one.
    """

    def __init__(self, hang_s: float | None = None, grace_s: float = GRACE_S) -> None:
        self._hang_s, self._grace_s = HANG_S if hang_s is None else hang_s, grace_s
        self.barked = False

    @contextlib.contextmanager
    def watching(self, name: str, blame: Callable[[str], None]) -> Iterator[None]:
        """Watch over one operation; `blame` is called with the reason before this process ends."""
        done = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(name, blame, done), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()

    def _watch(self, name: str, blame: Callable[[str], None], done: threading.Event) -> None:
        if done.wait(self._hang_s):
            return
        self.barked = True
        blame(f"hung for {self._hang_s:g} s")
        say(f"{name} has not answered for {self._hang_s:g} s: this process ends, and a new one continues.")
        os.kill(os.getpid(), signal.SIGTERM)
        if not done.wait(self._grace_s):
            sys.stderr.flush()
            os._exit(1)
