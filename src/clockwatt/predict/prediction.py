"""A predicted pass of a network, and how it compares with the same pass on a standard GPU."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the command line reads words of this module, and does without numpy and what comes with it
    from clockwatt.predict.composition.pipeline import Composition
    from clockwatt.predict.hosts.costs import HostAnswer, HostSpan

OF_MEASURED = "_of_measured"
"""End of the name of an interval's method."""

Ends = tuple[float, float]
RATIOS = {"time_s": "time_ratio", "power_w": "power_ratio", "energy_j": "energy_ratio"}
"""Quantities, and what their ratios are called."""


@dataclass(frozen=True)
class Relative:
    """How a pass compares with that on a standard GPU; a ratio of 2 is twice as much.

    Attributes
    ----------
    gpu, gpu_name, point
        The standard.
    virtual
        Whether the standard is a modelled GPU.
    mixed
        Whether a modelled GPU is compared with a measured one.
    time_ratio, power_ratio, energy_ratio
        None where one of both is not known.
    intervals
        Ratios to their lower and upper ends; what has no interval is missing.
    warnings
        Of the standard's own answer: where not to trust it.
    """

    gpu: str
    gpu_name: str
    point: str
    virtual: bool
    mixed: bool
    time_ratio: float | None
    power_ratio: float | None
    energy_ratio: float | None
    intervals: Mapping[str, Ends]
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True)
class NetworkPrediction:
    """A predicted pass of a network on one GPU at one operating point.

    Attributes
    ----------
    virtual
        Whether it rests on a modelled GPU.
    measured_point
        Whether operations were measured at this operating point; elsewhere the clock law speaks.
    expected
        The pass as predicted.
    intervals
        `time_s`, `device_s`, `host_s`, `energy_j` and `power_w` to their lower and upper ends; what has no interval is
        missing.
    interval_method, interval_networks
        What the intervals rest on. `conformal` or `student_t` (see `intervals.grouped_interval`): errors of the
        operations, scaled by those of so many networks that were left out; with `OF_MEASURED` at the end, errors of so
        many networks composed from measured operations. `operations`: errors of the operations alone, taken as normal,
        since no network was left out. `none`: an operation has no interval, or no measurement leads to this point.
    measured_calls
        How many of the calls are of operations that were measured at this operating point: these are looked up. Where
        all are, the intervals of time, energy and power are those of networks composed so, and may be narrower than
        those of device and host, which come from the operations always.
    warnings
        Why the answer rests on less than usual: what lies outside the measurements.
    host
        The host that is answered for, what paces the pass there, and what a captured graph would save; None where the
        pass is a sum of back-to-back times.
    on_hosts
        The pass at the ends of that host's range.
    predictors
        Where the predictors come from, see `GpuPredictor.origin`.
    relative_to
        How the pass compares with that on a standard GPU, if one was named.
    optimizer
        Settings of the optimizer whose step a training pass of a network ends with, those of the predictors' campaign;
        None for others.
    """

    gpu: str
    gpu_name: str
    virtual: bool
    point: str
    tf32: bool
    pass_: str
    network_id: str
    measured_point: bool
    expected: Composition
    intervals: dict[str, Ends]
    interval_method: str
    interval_networks: int
    warnings: tuple[str, ...] = ()
    measured_calls: int = 0
    host: HostAnswer | None = None
    on_hosts: HostSpan | None = field(default=None, repr=False, compare=False)
    predictors: str = ""
    relative_to: Relative | None = None
    optimizer: Mapping[str, Any] | None = None

    def compared_with(self, standard: NetworkPrediction) -> NetworkPrediction:
        """The same, relative to the pass on a standard GPU."""
        return replace(self, relative_to=relative(self, standard))

    def to_dict(self) -> dict[str, Any]:
        """For JSON; the key of the pass is `pass`, and `relative_to` is there if a standard GPU was named."""
        values = asdict(replace(self, on_hosts=None))
        del values["on_hosts"]
        if self.relative_to is None:
            del values["relative_to"]
        values["pass"] = values.pop("pass_")
        return values


def relative(prediction: NetworkPrediction, standard: NetworkPrediction) -> Relative:
    """Compare a pass with the same pass on a standard GPU.

    Errors of the two are taken as independent: what they share (the host, the network) makes the true interval
    narrower, most of all between two points of one GPU. A pass is to itself as 1, without doubt.
    """
    itself = (prediction.gpu, prediction.point) == (standard.gpu, standard.point)
    ratios: dict[str, float | None] = {}
    intervals: dict[str, Ends] = {}
    for quantity, name in RATIOS.items():
        value, unit = getattr(prediction.expected, quantity), getattr(standard.expected, quantity)
        ratios[name] = value / unit if value is not None and unit else None
        own, others = prediction.intervals.get(quantity), standard.intervals.get(quantity)
        if itself and ratios[name] is not None:
            intervals[name] = (1.0, 1.0)
        elif ratios[name] is not None and own and others:
            intervals[name] = _ends_of_ratio(value, own, unit, others)
    return Relative(
        standard.gpu, standard.gpu_name, standard.point, standard.virtual, prediction.virtual != standard.virtual,
        **ratios, intervals=intervals, warnings=standard.warnings,
    )  # fmt: skip


def _ends_of_ratio(value: float, ends: Ends, unit: float, ends_of_unit: Ends) -> Ends:
    """Ends of a quotient of two values whose errors are independent: distances of logarithms, added in squares."""
    down = math.hypot(_apart(value, ends[0]), _apart(ends_of_unit[1], unit))
    up = math.hypot(_apart(ends[1], value), _apart(unit, ends_of_unit[0]))
    return value / unit * math.exp(-down), value / unit * math.exp(up)


def _apart(higher: float, lower: float) -> float:
    return math.log(higher / lower) if lower > 0 else math.inf
