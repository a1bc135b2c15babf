"""Kernels and communications of steps, as the profiler sees them; on CPU processes, operations of PyTorch and gloo."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.profiler import ProfilerActivity

from clockwatt import signals

_ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
_LONGEST_NAME = 80


class Span(NamedTuple):
    """A kernel, a copy or a communication, with its times in µs since the first and its launch by the profiler."""

    name: str
    communication: bool
    start_us: float
    end_us: float
    blocks_per_sm: float | None
    occupancy: float | None


def profile(step: Callable[[], object], steps: int, device: torch.device) -> tuple[list[Span], float]:
    """Run steps under the profiler and return what ran on the device, and when the first began, in µs of the epoch."""
    on_gpu = device.type == "cuda"
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # it says when it starts and stops
    with torch.profiler.profile(activities=[ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU]) as profiler:
        for _ in range(steps):
            step()
        if on_gpu:
            torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        trace = json.loads(path.read_bytes())
    events = [event for event in trace["traceEvents"] if event.get("ph") == "X" and event["dur"] > 0]
    # since the first: microseconds of the epoch leave no digits for a kernel's
    origin_us = min((event["ts"] for event in events), default=0.0)
    return _spans(events, origin_us, on_gpu=on_gpu), trace.get("baseTimeNanoseconds", 0) / 1000 + origin_us


def _spans(events: list[dict[str, Any]], origin_us: float, *, on_gpu: bool) -> list[Span]:
    found, until_us = [], 0.0
    for event in sorted(events, key=lambda event: (event["ts"], -event["dur"])):
        name, start_us = event["name"], event["ts"] - origin_us
        end_us = start_us + event["dur"]
        if on_gpu:
            communication, wanted = "nccl" in name.lower(), event.get("cat") in _ON_GPU
        else:
            communication = name.startswith("gloo:")
            # operations call others: the outermost count
            wanted = communication or (name.startswith("aten::") and start_us >= until_us)
            until_us = end_us if wanted and not communication else until_us
        if wanted:
            launch = event.get("args", {})
            occupancy = launch.get("est. achieved occupancy %")
            found.append(
                Span(
                    name[:_LONGEST_NAME], communication, start_us, end_us, launch.get("blocks per SM"),
                    None if occupancy is None else occupancy / 100,
                )
            )  # fmt: skip
    return found


def summary(spans: Sequence[Span], steps: int) -> dict[str, float | None]:
    """Return times of a step and shares, of steps that follow each other.

    Returns
    -------
    dict
        `kernels`: their number. `kernel_s`, `communication_s`: in which kernels, and in which communications run.
        `busy_s`: in which either runs. `overlap`: communication time during which a kernel runs, over all of it.
        `communication_share`: of the sum of all kernels' times. `utilisation`, `sm_efficiency` and `occupancy`, as
        PyTorch's TensorBoard plugin computes them: share of the time in which a kernel runs; the same, weighted with
        the blocks that are launched for each SM, at most 1; mean over kernels, weighted with their times. The last two
        are None on CPU processes.
    """
    kernels, communications = ([span for span in spans if span.communication is kind] for kind in (False, True))
    of_kernels, of_communications, of_all = (_union_s(part) for part in (kernels, communications, spans))
    total_us = (max(span.end_us for span in spans) - min(span.start_us for span in spans)) if spans else 0.0
    sums = [sum(span.end_us - span.start_us for span in part) for part in (communications, spans)]
    launched = [span for span in spans if span.blocks_per_sm is not None and span.occupancy is not None]
    return {
        "kernels": len(kernels) / steps,
        "kernel_s": of_kernels / steps,
        "communication_s": of_communications / steps,
        "busy_s": of_all / steps,
        "overlap": (of_kernels + of_communications - of_all) / of_communications if communications else None,
        "communication_share": sums[0] / sums[1] if spans else None,
        "utilisation": of_all / (1e-6 * total_us) if spans else None,
        "sm_efficiency": _sm_efficiency(launched, total_us) if launched else None,
        "occupancy": _occupancy(launched) if launched else None,
    }


def _ends(spans: Sequence[Span]) -> NDArray[np.float64]:
    return np.array([(span.start_us, span.end_us) for span in spans], float).reshape(-1, 2)


def _union_s(spans: Sequence[Span]) -> float:
    starts, ends = signals.joined(*_ends(spans).T)
    return float(1e-6 * np.sum(ends - starts))


def _sm_efficiency(spans: Sequence[Span], total_us: float) -> float:
    """Return the mean over time of the blocks per SM of all kernels that run, at most 1 at any time."""
    blocks, ends = np.array([span.blocks_per_sm for span in spans], float), _ends(spans)
    times, changes = np.concatenate([ends[:, 0], ends[:, 1]]), np.concatenate([blocks, -blocks])
    order = np.argsort(times, kind="stable")
    running = np.minimum(1.0, np.cumsum(changes[order])[:-1])
    return float(np.sum(running * np.diff(times[order])) / total_us)


def _occupancy(spans: Sequence[Span]) -> float:
    ends = _ends(spans)
    return float(np.average([span.occupancy or 0.0 for span in spans], weights=ends[:, 1] - ends[:, 0]))
