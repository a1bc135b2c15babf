"""The ways of setting operating points, by their names in a config: NAME is the `METHOD` of the file NAME.py here."""

from __future__ import annotations

import importlib
from typing import get_args

from clockwatt.config.control import ControlMethod
from clockwatt.control.methods import Method

NAMES: tuple[str, ...] = get_args(ControlMethod)


def method_named(name: str) -> type[Method]:
    """Return the way of setting operating points that `control.method` names."""
    found: type[Method] = importlib.import_module(f"clockwatt.control.{name}").METHOD
    return found
