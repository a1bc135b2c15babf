"""Device time of each module of a network, as torch.profiler saw it with its stacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from clockwatt.errors import DataFileError
from clockwatt.io.profiler_trace import LAUNCHES, ON_DEVICE, Event, complete, correlated, read_trace

_MODULE, _BACKWARD, _STEP = "nn.Module: ", "autograd::engine::evaluate_function: ", "Optimizer.step#"
LOSS, OPTIMIZER, OTHER = "(loss)", "(optimizer)", "(other)"


@dataclass(frozen=True)
class ModuleTimes:
    """Times of a trace.

    Attributes
    ----------
    seconds
        Of a mean pass by the path of the module; `LOSS`, `OPTIMIZER` and `OTHER` are outside of modules.
    passes
        Calls of the network in the trace.
    on_device
        Whether they are times of kernels, not of the CPU's operations.
    """

    seconds: pd.Series
    passes: int
    on_device: bool


def module_times(path: Path, modules: Sequence[tuple[str, str]]) -> ModuleTimes:
    """Return the time of each module in a trace.

    A kernel belongs to the innermost module that launched it, a backward kernel to that of its forward operation.

    Parameters
    ----------
    path
        The trace, profiled with `with_stack=True`.
    modules
        Path and class of each module of the network, in the order of their first calls.

    Raises
    ------
    DataFileError
        If the file is no such trace, or of another network.
    """
    events = complete(read_trace(path))
    calls = [event for event in events if event["name"].startswith(_MODULE)]
    if not calls:
        raise DataFileError(f"{path}: names no modules. Profile with torch.profiler.profile(with_stack=True).")
    root = modules[0][1]
    of_root = [event for event in calls if _class(event) == root]
    passes = [event for event, around in zip(of_root, _enclosing(of_root, of_root), strict=True) if around is None]
    if not passes:
        raise DataFileError(f"{path}: has no call of {root}. Give the network of the trace.")
    first = [event for event in calls if event["tid"] == passes[0]["tid"] and _within(event, passes[0])]
    paths = _paths(path, first, modules)
    work, on_device = _work(events)
    owners = _owners(events, calls, passes, [launch for launch, _ in work], paths)
    frame = pd.DataFrame({"module": owners, "seconds": [1e-6 * took / len(passes) for _, took in work]})
    return ModuleTimes(frame.groupby("module", sort=False)["seconds"].sum(), len(passes), on_device)


def _class(event: Event) -> str:
    return str(event["name"]).removeprefix(_MODULE).rpartition("_")[0]


def _within(event: Event, around: Event) -> bool:
    return bool(around["ts"] <= event["ts"] < around["ts"] + around["dur"])


def _paths(path: Path, calls: list[Event], modules: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return the path of each module of the trace; modules of a class are in the order of their first calls."""
    names: dict[str, dict[str, None]] = {}
    for event in sorted(calls, key=lambda event: (event["ts"], -event["dur"])):
        names.setdefault(_class(event), {})[event["name"]] = None
    expected: dict[str, list[str]] = {}
    for place, kind in modules:
        expected.setdefault(kind, []).append(place)
    for kind in {**names, **expected}:
        profiled, wanted = len(names.get(kind, ())), len(expected.get(kind, ()))
        if profiled != wanted:
            raise DataFileError(
                f"{path}: has {profiled} modules of {kind}, the network {wanted}. Give the network of the trace."
            )
    return {name: place for kind, found in names.items() for name, place in zip(found, expected[kind], strict=True)}


def _work(events: list[Event]) -> tuple[list[tuple[Event, float]], bool]:
    """Return launches with the time in µs of what they launch; without kernels, the CPU's outermost operations."""
    launches = dict(correlated(events, LAUNCHES))
    kernels = [(number, event) for number, event in correlated(events, ON_DEVICE) if number in launches]
    if kernels:
        return [(launches[number], event["dur"]) for number, event in kernels], True
    operations = [event for event in events if event.get("cat") == "cpu_op" and event["name"].startswith("aten::")]
    around = _enclosing(operations, operations)
    return [(one, one["dur"]) for one, outer in zip(operations, around, strict=True) if outer is None], False


def _owners(
    events: list[Event], calls: list[Event], passes: list[Event], launches: list[Event], paths: Mapping[str, str]
) -> list[str]:
    """Return the module that each launch belongs to, or what it is for outside of modules."""
    operations = [event for event in events if event.get("cat") == "cpu_op" and isinstance(event.get("args"), dict)]
    backward = [event for event in operations if event["name"].startswith(_BACKWARD)]
    forward = [one for one in operations if _sequence(one) is not None and not one["args"].get("Fwd thread id")]
    forward.sort(key=lambda event: event["ts"])  # the last operation of a number is what made its gradient
    ends = np.array([event["ts"] + event["dur"] for event in passes])
    starts = np.sort([event["ts"] for event in backward])

    def outside(event: Event) -> str:
        ended = ends[ends <= event["ts"]]
        began = len(ended) and np.searchsorted(starts, ended.max()) < np.searchsorted(starts, event["ts"])
        return OTHER if not len(ended) or began or not len(starts) else LOSS

    def placed(points: list[Event]) -> list[str]:
        around = _enclosing(calls, points)
        return [
            outside(point) if module is None else paths.get(module["name"], OTHER)
            for point, module in zip(points, around, strict=True)
        ]

    of_number = dict(zip(map(_sequence, forward), placed(forward), strict=True))
    steps = _enclosing([event for event in events if event["name"].startswith(_STEP)], launches)
    of_gradients = _enclosing(backward, launches)
    in_modules = _enclosing(calls, launches)
    return [
        paths.get(module["name"], OTHER) if module is not None
        else OPTIMIZER if step is not None
        else of_number.get(_sequence(gradient), OTHER) if gradient is not None
        else outside(launch)
        for launch, module, step, gradient in zip(launches, in_modules, steps, of_gradients, strict=True)
    ]  # fmt: skip


def _sequence(event: Event) -> int | None:
    number = event.get("args", {}).get("Sequence number")
    return number if isinstance(number, int) and number >= 0 else None


def _enclosing(ranges: list[Event], points: list[Event]) -> list[Event | None]:
    """Return for each event the innermost range of its thread that begins before it and holds it, if any."""
    found: list[Event | None] = [None] * len(points)
    entries = [(str(one.get("tid")), one["ts"], -one["dur"], 1, -1, one) for one in ranges]
    entries += [(str(one.get("tid")), one["ts"], -one["dur"], 0, number, one) for number, one in enumerate(points)]
    entries.sort(key=lambda entry: entry[:5])
    stack: list[tuple[str, Event]] = []
    for thread, ts, _, is_range, number, event in entries:
        while stack and (stack[-1][0] != thread or stack[-1][1]["ts"] + stack[-1][1]["dur"] <= ts):
            stack.pop()
        if is_range:
            stack.append((thread, event))
        else:
            found[number] = stack[-1][1] if stack else None
    return found
