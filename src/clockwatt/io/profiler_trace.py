"""Traces of torch.profiler, as `export_chrome_trace` writes them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from clockwatt.errors import DataFileError

Event = dict[str, Any]

BASE_NS = "baseTimeNanoseconds"
ON_DEVICE, LAUNCHES = {"kernel", "gpu_memcpy", "gpu_memset"}, {"cuda_runtime", "cuda_driver"}
"""Categories of events."""


def read_trace(path: Path) -> dict[str, Any]:
    """Read a trace of `export_chrome_trace`, plain or compressed.

    Raises
    ------
    DataFileError
        If it is none.
    """
    try:
        content = path.read_bytes()
        trace = json.loads(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)
    except (OSError, EOFError, ValueError) as error:
        raise DataFileError(
            f"{path}: cannot be read as a trace ({error}). Give a file of export_chrome_trace."
        ) from None
    if not isinstance(trace, dict) or not isinstance(trace.get("traceEvents"), list):
        raise DataFileError(f"{path}: lacks traceEvents. Give a file of export_chrome_trace.")
    if not isinstance(trace.get(BASE_NS), int):
        raise DataFileError(
            f"{path}: lacks {BASE_NS}, the time that its times begin at. Write it with PyTorch 2.4 or newer."
        )
    if not complete(trace):
        raise DataFileError(f"{path}: holds no event with a duration. Profile while the program works.")
    return trace


def complete(trace: dict[str, Any]) -> list[Event]:
    """Return events with a begin and a duration; `Trace` spans what was asked of the profiler, not what it saw."""
    return [
        event for event in trace["traceEvents"]
        if isinstance(event, dict) and event.get("ph") == "X" and event.get("cat") != "Trace"
        and isinstance(event.get("name"), str) and all(isinstance(event.get(key), int | float) for key in ("ts", "dur"))
    ]  # fmt: skip


def correlated(events: list[Event], categories: set[str]) -> list[tuple[int, Event]]:
    """Return events of some categories, each with the number that a launch and its kernels share."""
    chosen = [event for event in events if event.get("cat") in categories and isinstance(event.get("args"), dict)]
    numbered = [(event["args"].get("correlation"), event) for event in chosen]
    return [(number, event) for number, event in numbered if isinstance(number, int)]
