"""Types of options that the programs of studies share, for `argparse`."""

from __future__ import annotations

import argparse
import math


def positive_number(text: str) -> float:
    """Return a finite number above 0; `argparse.ArgumentTypeError` for anything else."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return value
