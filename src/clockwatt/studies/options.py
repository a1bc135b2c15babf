"""Types of options that the programs of studies share, for `argparse`."""

from __future__ import annotations

import argparse
import math

MOST = 1000
"""Largest scale: sizes beyond it overflow."""


def positive_number(text: str) -> float:
    """Return a finite number above 0; `argparse.ArgumentTypeError` for anything else."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return value


def scale_factor(text: str) -> float:
    """Return a number above 0, up to 1,000; `argparse.ArgumentTypeError` for anything else."""
    value = positive_number(text)
    if value > MOST:
        raise argparse.ArgumentTypeError(f"{text!r} is above {MOST:,}")
    return value
