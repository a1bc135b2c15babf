"""`clockwatt.phase` and `clockwatt.mark`: the same as frameworks are hooked with, so that there is one way to mark."""

from __future__ import annotations

from clockwatt.telemetry.injected.clockwatt_injected.marks import mark as mark
from clockwatt.telemetry.injected.clockwatt_injected.marks import phase as phase
