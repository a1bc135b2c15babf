"""Read the marks of a program: its phases, moments and libraries."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from clockwatt.telemetry.recording.layout import Run

PHASE_COLUMNS = ("name", "index", "rank", "pid", "host", "thread", "start_s", "end_s", "complete")
_MOST_NOTES = 5


@dataclass
class Marks:
    """Marks of all processes of a run; times are in s since the program's start."""

    phases: pd.DataFrame  # `PHASE_COLUMNS`; one that the program did not end is not complete
    moments: pd.DataFrame  # name, index, rank, pid, time_s
    libraries: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def read_marks(folder: Path, run: Run, host: str, end_s: float) -> Marks:
    """Read the marks of a run.

    Parameters
    ----------
    folder
        The folder of the files.
    run
        Says when the program started.
    host
        Whose clock the run's times are of. What another host marked is placed by the time of day.
    end_s
        When the program ended, in s since its start: the end of phases that it did not end itself.
    """
    phases: list[dict[str, Any]] = []
    moments: list[dict[str, Any]] = []
    read = Marks(pd.DataFrame(), pd.DataFrame())
    wrong: list[str] = []
    for path in sorted(folder.glob("*.jsonl")):
        process: dict[str, Any] = {"host": host, "pid": None, "rank": None}
        begun: dict[int, dict[str, Any]] = {}
        for number, line in enumerate(path.read_bytes().splitlines(), 1):
            event = _event(line)
            if event is None:
                wrong.append(f"{path.name}:{number}")
                continue
            at_s = _since_start(event, run, here=process["host"] == host)
            about = {name: event.get(name) for name in ("name", "index", "thread")} | process
            match event["event"]:
                case "process":
                    process = {name: event.get(name) for name in process}
                    read.libraries.setdefault("Python of the program", str(event.get("python")))
                case "library":
                    read.libraries.setdefault(str(event.get("name")), str(event.get("version")))
                case "note":
                    read.notes.append(str(event.get("text")))
                case "begin":
                    begun[event["id"]] = {**about, "start_s": at_s, "end_s": end_s, "complete": False}
                    phases.append(begun[event["id"]])
                case "end" if event["id"] in begun:
                    begun.pop(event["id"]).update(end_s=at_s, complete=True)
                case "mark":
                    moments.append({**about, "time_s": at_s})
    if wrong:
        more = ", …" if len(wrong) > _MOST_NOTES else ""
        read.notes.append(f"{len(wrong)} lines are no marks and left out: {', '.join(wrong[:_MOST_NOTES])}{more}")
    read.phases = _frame(phases, PHASE_COLUMNS).sort_values("start_s", kind="stable", ignore_index=True)
    read.moments = _frame(moments, ("name", "index", "rank", "pid", "time_s"))
    return read


def _frame(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=list(columns))
    whole = {name: "Int64" for name in ("index", "rank", "pid", "thread") if name in columns}
    kinds = {"start_s": float, "end_s": float, "time_s": float, "complete": bool, "name": str, "host": str}
    return frame.astype(whole | {name: kind for name, kind in kinds.items() if name in columns})


def _event(line: bytes) -> dict[str, Any] | None:
    """Return a line as written by `clockwatt.mark`; None if it is anything else."""
    try:
        event = json.loads(line, object_pairs_hook=_printable)
    except ValueError:
        return None
    if not isinstance(event, dict) or not _is_whole(event.get("time_ns")):
        return None
    if event.get("event") in ("begin", "end", "mark"):
        index = event.get("index")
        numbered = event["event"] == "mark" or _is_whole(event.get("id"))
        named = isinstance(event.get("name"), str) and (index is None or _is_whole(index))
        placed = all(event.get(name) is None or _is_whole(event[name]) for name in ("thread", "monotonic_ns"))
        return event if named and numbered and placed else None
    return event if event.get("event") in ("process", "library", "note") else None


def _printable(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; half of a surrogate pair, as names of files may have and no file can hold, becomes a ?."""
    told = {}
    for name, value in pairs:
        told[name] = value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
    return told


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63


def _since_start(event: dict[str, Any], run: Run, *, here: bool) -> float:
    monotonic_ns = event.get("monotonic_ns")
    if here and monotonic_ns is not None and run.start_ns is not None:
        return float((monotonic_ns - run.start_ns) * 1e-9)
    return float((event["time_ns"] - (run.start_us or 0) * 1000) * 1e-9)
