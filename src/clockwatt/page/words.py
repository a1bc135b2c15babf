"""Display names on the page of operating points, networks and operations."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Sequence
from typing import Any

from clockwatt.config import OperatingPoint
from clockwatt.gpu.specs import find_spec

_SHAPES_AT_MOST = 2


def clock_mhz(gpu_name: str, point: str) -> int:
    """Return the SM clock that an operating point asks for; where it asks for none, the GPU model's boost clock."""
    return OperatingPoint.parse(point).sm_clock_mhz or find_spec(gpu_name).boost_clock_mhz


def network_words(network: str, input_shape: Sequence[int], dtype: str, assumed: Sequence[str] = ()) -> dict[str, str]:
    """Return a network's name and the other properties that identify it."""
    name = network.rsplit(":", 1)[-1] if network.startswith("clockwatt.") else network
    of_input = shape_words(input_shape) + ("" if dtype == "float32" else f", {dtype}")
    return {"name": name, "input": of_input + (", assumed branches" if len(assumed) else "")}


def shape_words(shape: Iterable[int]) -> str:
    """Return a shape as text: `32×3×224×224`."""
    return "×".join(map(str, shape))


@functools.cache
def operation_words(spec: str) -> str:
    """Return the input shapes of an operation as text, without TF32 and dtype.

    Parameters
    ----------
    spec
        JSON of the catalogue.
    """
    content: dict[str, Any] = json.loads(spec)
    shapes = [shape_words(tensor["shape"]) for tensor in content["tensors"] if tensor["shape"]]
    shown = " and ".join(shapes[:_SHAPES_AT_MOST])
    more = len(shapes) - _SHAPES_AT_MOST
    return shown + (f" and {more} more" if more > 0 else "")
