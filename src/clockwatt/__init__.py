"""What every PyTorch operation costs, in seconds and joules, on every GPU of a cluster at every clock.

import clockwatt

predictors = clockwatt.load()  # of the campaign in results/, and those that are shipped
predictors.predict("resnet50", input=(32, 3, 224, 224), gpu="h200").expected.time_s
predictors.recommend("resnet50", input=(32, 3, 224, 224), objective="energy").best.point

with clockwatt.phase("epoch", index=3): ...    # in a program that `clockwatt record` may run
clockwatt.signals.integrated_energy_j(time_s, power_w)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clockwatt.config import OperatingPoint as OperatingPoint
    from clockwatt.errors import ClockwattError as ClockwattError
    from clockwatt.predict.library import Predictors as Predictors
    from clockwatt.predict.library import load as load
    from clockwatt.predict.recommend import Limits as Limits
    from clockwatt.telemetry.phases import mark as mark
    from clockwatt.telemetry.phases import phase as phase

__version__ = "0.1.0"

_PUBLIC = {
    "ClockwattError": "clockwatt.errors",
    "Limits": "clockwatt.predict.recommend",
    "OperatingPoint": "clockwatt.config",
    "Predictors": "clockwatt.predict.library",
    "load": "clockwatt.predict.library",
    "mark": "clockwatt.telemetry.phases",
    "phase": "clockwatt.telemetry.phases",
}
"""Names to where they are: imported when they are used, since the command line must not wait for predictors."""


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        # kept: a program marks each of its steps through here
        return globals().setdefault(name, getattr(importlib.import_module(_PUBLIC[name]), name))
    if name == "signals":
        return importlib.import_module("clockwatt.signals")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC, "signals"})
