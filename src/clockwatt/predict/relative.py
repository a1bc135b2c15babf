"""A pass relative to the same pass on a standard GPU: ratios of time, power and energy, with intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clockwatt.predict.answer import NetworkPrediction

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
