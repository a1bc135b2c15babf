"""Phases of a trainer of the package `pytorch_lightning`."""

from __future__ import annotations

from clockwatt_injected.lightning_hooks import MarksPhases
from pytorch_lightning import Callback


class Phases(MarksPhases, Callback):  # type: ignore[misc]
    """At the top of a module, so that a trainer that is sent to another process can be pickled."""
