"""Numbers with no more digits than are known: what is left out of a mantissa are zeros, which compress."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def to_bits(values: NDArray[Any], bits: int) -> NDArray[Any]:
    """Round floating-point numbers to so many significant bits; NaN, infinities and zeros stay.

    Rounding again changes nothing. The relative error is at most 2 to the power of `-bits`: 20 bits are 6 digits, 8
    bits 2 and a half.
    """
    mantissa, exponent = np.frexp(values)
    scale = values.dtype.type(2.0**bits)
    rounded: NDArray[Any] = np.ldexp(np.rint(mantissa * scale) / scale, exponent)
    return rounded
