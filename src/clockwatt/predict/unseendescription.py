"""What a folder of predictors for GPUs that were never measured says of itself, as JSON beside them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from clockwatt.gpu.specs import find_spec
from clockwatt.predict.grouped import GroupedInterval
from clockwatt.predict.pointcosts import PointCosts

UNSEEN_FILE = "unseen.json"

OPERATIONS, DEVICE, HOST = "operations", "device", "host"
"""What errors are stated of: operations, and whole networks by what bounds them."""


@dataclass(frozen=True)
class UnseenPass:
    """What is known of one pass beside the forest.

    Attributes
    ----------
    workless_host_s, host
        See `TimePredictor`.
    intervals
        One of `TIMES` to operation class to interval, `ANY_CLASS` for other classes.
    networks
        `DEVICE` and `HOST` to the interval of the time of whole networks that are bound so; empty where none was
        measured whole.
    errors
        On GPU models left out: `OPERATIONS` to `metrics.metrics` of their device time, `DEVICE` and `HOST` to those of
        the time of whole networks, where there are any.
    """

    workless_host_s: dict[str, float]
    host: PointCosts
    intervals: dict[str, dict[str, GroupedInterval]]
    networks: dict[str, GroupedInterval]
    errors: dict[str, dict[str, Any]]


@dataclass(frozen=True)
class UnseenDescription:
    """What a predictor for unseen GPUs rests on.

    Attributes
    ----------
    virtual
        Whether all of it rests on modelled GPUs.
    gpus
        Label to NVML name of the GPUs learnt from.
    tf32
        Settings that were measured.
    sm_clock_ratios
        Lowest and highest SM clock learnt from, relative to the card's boost clock.
    clockwatt_version
        That fitted it.
    passes
        Pass to what is known of it; a pass that could not be fitted is missing.
    """

    virtual: bool
    gpus: dict[str, str]
    tf32: list[bool]
    sm_clock_ratios: tuple[float, float]
    clockwatt_version: str
    passes: dict[str, UnseenPass] = field(default_factory=dict)

    @property
    def models(self) -> list[str]:
        """GPU models learnt from, sorted."""
        return sorted({find_spec(name).name for name in self.gpus.values()})

    def to_json(self) -> str:
        """As text."""
        return json.dumps(asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Self:
        """From text; ValueError, KeyError, TypeError or AttributeError if it is something else."""
        content: dict[str, Any] = json.loads(text)
        lowest, highest = content.pop("sm_clock_ratios")
        passes = {
            name: UnseenPass(
                workless_host_s={str(key): float(value) for key, value in entry["workless_host_s"].items()},
                host=PointCosts.from_dict(entry["host"]),
                intervals={
                    target: {key: GroupedInterval(**interval) for key, interval in of_classes.items()}
                    for target, of_classes in entry["intervals"].items()
                },
                networks={bound: GroupedInterval(**interval) for bound, interval in entry["networks"].items()},
                errors={subject: dict(values) for subject, values in entry["errors"].items()},
            )
            for name, entry in content.pop("passes").items()
        }
        return cls(**content, sm_clock_ratios=(float(lowest), float(highest)), passes=passes)
