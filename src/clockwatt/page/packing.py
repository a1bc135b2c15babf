"""Columns of numbers as text that the page's script unpacks: little-endian bytes in base64, exact and short."""

from __future__ import annotations

import base64
import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

KINDS = {"f8": np.float64, "f4": np.float32, "i4": np.int32, "u1": np.uint8}
"""Kinds of columns, as the script names them, too."""


def packed(values: ArrayLike, kind: str) -> dict[str, str]:
    """Return a column of one of `KINDS`; what is not known is nan."""
    array = np.ascontiguousarray(values, dtype=np.dtype(KINDS[kind]).newbyteorder("<"))
    return {kind: base64.b64encode(array.tobytes()).decode("ascii")}


def plain(value: Any) -> Any:
    """Return a value as JSON has it: numbers of numpy as Python's, what is not finite as null."""
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
