"""What every PyTorch operation costs, in seconds and joules, on every GPU of a cluster at every clock.

import clockwatt

clockwatt.predict("resnet50", gpu="h200").time_s                 # a network by name, or a module with example inputs
clockwatt.predict("resnet50", gpu="h200", batch=[1, 2, 4])       # a data frame
clockwatt.compare("resnet50", "resnet101", (64, 3, 224, 224), gpu="h200")[1].relative_to.time_ratio
clockwatt.recommend("resnet50", objective="energy").best.point
clockwatt.fit_memory("resnet50", gpu="h200", training=True).size  # the largest batch
clockwatt.load("results/predictors").predict("resnet50", gpu="a30").energy_j

with clockwatt.phase("epoch", index=3): ...    # in a program that `clockwatt record` may run
clockwatt.signals.integrated_energy_j(time_s, power_w)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clockwatt.cli.pretend import pretend as pretend
    from clockwatt.config import OperatingPoint as OperatingPoint
    from clockwatt.errors import ClockwattError as ClockwattError
    from clockwatt.predict.api import Predictors as Predictors
    from clockwatt.predict.api import compare as compare
    from clockwatt.predict.api import fit_memory as fit_memory
    from clockwatt.predict.api import layers as layers
    from clockwatt.predict.api import load as load
    from clockwatt.predict.api import predict as predict
    from clockwatt.predict.api import recommend as recommend
    from clockwatt.predict.api import show as show
    from clockwatt.predict.recommend import Limits as Limits
    from clockwatt.telemetry.injected.clockwatt_injected.marks import mark as mark
    from clockwatt.telemetry.injected.clockwatt_injected.marks import phase as phase

__version__ = "0.1.0"

_PUBLIC = {
    "ClockwattError": "clockwatt.errors",
    "Limits": "clockwatt.predict.recommend",
    "OperatingPoint": "clockwatt.config",
    "Predictors": "clockwatt.predict.api",
    "compare": "clockwatt.predict.api",
    "fit_memory": "clockwatt.predict.api",
    "layers": "clockwatt.predict.api",
    "load": "clockwatt.predict.api",
    "mark": "clockwatt.telemetry.injected.clockwatt_injected.marks",
    "phase": "clockwatt.telemetry.injected.clockwatt_injected.marks",
    "pretend": "clockwatt.cli.pretend",
    "recommend": "clockwatt.predict.api",
    "show": "clockwatt.predict.api",
}
"""Names to where they are: imported when they are used, since the command line must not wait for predictors."""


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        # kept: a program marks each of its steps through here
        return globals().setdefault(name, getattr(importlib.import_module(_PUBLIC[name]), name))
    if name in ("predict", "signals"):
        return importlib.import_module(f"clockwatt.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC, "predict", "signals"})
