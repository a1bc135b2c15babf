"""Marks and phases of a recorded program: a line of JSON each, in a file of this process's own.

`CLOCKWATT_MARKS` names the folder of these files. Without it nothing is recorded, and a mark costs a look at
a variable. A line is written by one call to the operating system, so that a kill loses none that was made before it.
"""

from __future__ import annotations

import itertools
import json
import os
import socket
import sys
import time
from _thread import RLock, get_ident
from typing import Any

VARIABLE = "CLOCKWATT_MARKS"
LONGEST_NAME = 200
_REMEMBERED_NAMES = 1000
_BEYOND_INDEX = 2**63
_NOT_OPEN, _GONE = -1, -2
_RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")


class Writer:
    """Appends lines to this process's file, which the first line makes: most processes mark nothing.

    Parameters
    ----------
    folder
        Where the file is made.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._file = _NOT_OPEN
        self._opening = RLock()  # a signal may mark while its thread opens
        self._quoted: dict[str, str] = {}
        self._ids = itertools.count(1)
        self._warned = False

    def told(self, event: str, **values: Any) -> None:
        """Write a line of any other kind than a mark."""
        if self._file == _NOT_OPEN:
            self._open()
        self._write(self._file, _event_line(event, values))

    def begin(self, name: str, index: int | None) -> int:
        """Write that a phase begins; its number is needed to end it."""
        number = next(self._ids)
        self._line("begin", name, index, number)
        return number

    def end(self, name: str, index: int | None, number: int) -> None:
        """Write that a phase ends."""
        self._line("end", name, index, number)

    def mark(self, name: str, index: int | None) -> None:
        """Write that something happened."""
        self._line("mark", name, index, 0)

    def is_mark(self, name: Any, index: Any) -> bool:
        """Return whether a mark is of the right types; if not, it is said once, and the program goes on."""
        if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME:
            self.warn("its name must be text of 1 to %d characters, not %.60r" % (LONGEST_NAME, name))
            return False
        if index is not None and not isinstance(index, int) and not _is_whole_number(index):
            self.warn(f"the index of {name!r} must be a whole number, not {type(index).__name__}")
            return False
        if index is not None and not -_BEYOND_INDEX < index < _BEYOND_INDEX:
            self.warn(f"the index of {name!r} must be a whole number of 64 bits")
            return False
        return True

    def _line(self, event: str, name: str, index: int | None, number: int) -> None:
        if self._file == _NOT_OPEN:
            self._open()
        quoted = self._quoted.get(name)
        if quoted is None:
            quoted = json.dumps(name)
            if len(self._quoted) < _REMEMBERED_NAMES:
                self._quoted[name] = quoted
        # put together by hand: a third of what json.dumps takes
        self._write(
            self._file,
            '{"event":"%s","name":%s,"index":%s,"id":%d,"thread":%d,"time_ns":%d,"monotonic_ns":%d}\n'
            % (
                event, quoted, "null" if index is None else int(index), number, get_ident(),
                time.time_ns(), time.monotonic_ns(),
            ),
        )  # fmt: skip

    def _open(self) -> None:
        with self._opening:
            if self._file != _NOT_OPEN:  # by another thread
                return
            host = socket.gethostname()
            name = "%s-%d-%x.jsonl" % (host.split(".")[0], os.getpid(), time.time_ns())
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            try:
                file = os.open(os.path.join(self._folder, name), flags, 0o666)
            except OSError:  # the record is gone, and the program has outlived it
                self._file = _GONE
                return
            process = {
                "host": host, "pid": os.getpid(), "rank": _rank(), "program": (getattr(sys, "argv", None) or [""])[0],
                "python": "%d.%d.%d" % sys.version_info[:3],
            }  # fmt: skip
            self._write(file, _event_line("process", process))
            self._file = file  # from now on other threads write to it

    def _write(self, file: int, line: str) -> None:
        if file != _GONE:
            try:
                os.write(file, line.encode("utf-8"))
            except OSError as error:
                self.warn(f"it cannot be written ({error.strerror})")

    def warn(self, why: str) -> None:
        """Say once why a mark is left out."""
        if not self._warned:
            self._warned = True
            print(f"clockwatt: a mark is not recorded: {why}. Others like it are left out in silence.", file=sys.stderr)


class Phase:
    """A stretch of time with a name, from entering it to leaving it."""

    __slots__ = ("_index", "_name", "_number")

    def __init__(self, name: str, index: int | None) -> None:
        self._name, self._index, self._number = name, index, 0

    def __enter__(self) -> Phase:
        file = _writer
        if file is not None and file.is_mark(self._name, self._index):
            self._number = file.begin(self._name, self._index)
        return self

    def __exit__(self, *_: object) -> None:
        file = _writer
        if self._number and file is not None:
            file.end(self._name, self._index, self._number)


class _NoPhase:
    def __enter__(self) -> _NoPhase:
        return self

    def __exit__(self, *_: object) -> None:
        pass


_NO_PHASE = _NoPhase()


def phase(name: str, index: int | None = None) -> Phase | _NoPhase:
    """Mark a phase of the program: `with clockwatt.phase("epoch", index=3): …`.

    Does nothing, and never fails, unless `clockwatt record` runs the program. A name or an index of another type is
    reported once on standard error; the program continues.

    Parameters
    ----------
    name
        What the phase is, such as "epoch"; at most 200 characters.
    index
        Which one, such as 3.
    """
    return _NO_PHASE if _writer is None else Phase(name, index)


def mark(name: str, index: int | None = None) -> None:
    """Mark a moment of the program: `clockwatt.mark("checkpoint", index=3)`; otherwise as `phase`."""
    file = _writer
    if file is not None and file.is_mark(name, index):
        file.mark(name, index)


def told(event: str, **values: Any) -> None:
    """Write something about the program, if it is recorded."""
    if _writer is not None:
        _writer.told(event, **values)


def _event_line(event: str, values: dict[str, Any]) -> str:
    times = {"time_ns": time.time_ns(), "monotonic_ns": time.monotonic_ns()}
    return json.dumps({"event": event, **values, **times}) + "\n"


def _rank() -> int | None:
    for variable in _RANKS:
        text = os.environ.get(variable, "")
        if text.isdigit():
            return int(text)
    return None


def _is_whole_number(index: Any) -> bool:
    """Return whether it is an integer of NumPy; one on a GPU would be waited for, and is none."""
    from numbers import Integral

    return isinstance(index, Integral)


_writer: Writer | None  # before the function: Python 3.7 refuses it behind a `global`


def _begin() -> None:
    """Start over in a forked child: in a shared file, phases of parent and child would be mixed."""
    global _writer
    folder = os.environ.get(VARIABLE)
    _writer = Writer(folder) if folder else None


_begin()
os.register_at_fork(after_in_child=_begin)
