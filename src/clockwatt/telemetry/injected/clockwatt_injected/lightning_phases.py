"""Phases of a trainer of the package `lightning.pytorch`."""

from __future__ import annotations

from clockwatt_injected.lightning_hooks import MarksPhases
from lightning.pytorch import Callback


class Phases(MarksPhases, Callback):  # type: ignore[misc]
    """At the top of a module, so that a trainer that is sent to another process can be pickled."""
