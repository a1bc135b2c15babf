"""Memory that CUDA kernels allocate themselves, from the description of a call that the trace records."""

from __future__ import annotations

import functools
import io
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clockwatt.io.resources import resource
from clockwatt.predict.models.trees import Trees

FILE = "memory/workspaces.npz"
_BYTES = {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2}
_ALIGNMENTS = (4, 8, 16, 32)
OFFSET = 0.05
"""Added to a workspace's ratio to the tensors of its convolution before the logarithm is taken."""
FORWARD, BACKWARD = "forward", "backward"


def workspace_bytes(calls: Sequence[str], *, tf32: bool) -> NDArray[np.int64]:
    """Return the bytes that each call allocates itself.

    Parameters
    ----------
    calls
        Descriptions as `MemoryRow.call` has them.
    tf32
        Whether float32 convolutions may use TensorFloat-32.
    """
    described = [json.loads(call) for call in calls]
    found = np.zeros(len(calls))
    for direction in (FORWARD, BACKWARD):
        places = [
            place for place, call in enumerate(described)
            if call["kind"] == "convolution" and (call["gradients"] is None) == (direction == FORWARD)
        ]  # fmt: skip
        if places:
            chosen = [described[place] for place in places]
            matrix = np.array([convolution_features(call, tf32=tf32) for call in chosen], dtype=np.float32)
            ratio = np.exp(_model()[0][direction].median(matrix)[:, 0]) - OFFSET
            found[places] = np.maximum(ratio, 0.0) * [convolution_bytes(call) for call in chosen]
    for place, call in enumerate(described):
        if call["kind"] == "attention":
            found[place] = _attention_bytes(call)
        elif call["kind"] in ("lstm", "gru", "rnn"):
            found[place] = _recurrent_bytes(call)
    return found.round().astype(np.int64)


def convolution_bytes(call: Mapping[str, Any]) -> int:
    """Return the bytes of input, weight and output of a convolution."""
    elements: int = sum(math.prod(call[name]) for name in ("x", "weight", "y"))
    return _BYTES.get(call["dtype"], 4) * elements


def convolution_features(call: Mapping[str, Any], *, tf32: bool) -> list[float]:
    """Return what the workspace of a convolution depends on; a transposed one as the convolution that it reverses."""
    x, y, weight, groups = call["x"], call["y"], call["weight"], call["groups"]
    if call["transposed"]:
        x, y = y, x
    element, kernel, dims = _BYTES.get(call["dtype"], 4), math.prod(weight[2:]), len(weight) - 2
    inputs, outputs, rows = x[1] // groups, y[1] // groups, x[0] * math.prod(y[2:])
    sizes = [element * math.prod(one) for one in (x, y, weight)]
    gradients = call["gradients"] or [False, False]
    return [
        float(value) for value in (
            call["transposed"], dims, x[0], x[1], y[1], inputs, outputs, groups, math.prod(x[2:]), math.prod(y[2:]),
            x[-1], kernel, weight[-1], call["stride"][-1], call["dilation"][-1], call["padding"][-1],
            element, call["dtype"] == "bfloat16", tf32 or element < 4, call["channels_last"],
            *gradients[:2], rows, 2 * rows * y[1] * inputs * kernel, *sizes, sizes[0] / sizes[1], sizes[2] / sizes[1],
            inputs * kernel, *(-(-n // a) * a / n for a in _ALIGNMENTS for n in (inputs, outputs)),
            *(n & -n for n in (inputs, outputs)),
        )
    ]  # fmt: skip


def recurrent_terms(call: Mapping[str, Any]) -> list[float]:
    """Return what memory of a recurrent layer is linear in: bytes of weights, states and inputs, and constants."""
    element, steps = _BYTES.get(call["dtype"], 4), call["batch"] * call["length"]
    states, inputs, layers = element * steps * call["output"], element * steps * call["input"], call["layers"]
    both, first, directions = call["bidirectional"], call["batch_first"], 1 + call["bidirectional"]
    return [
        float(term) for term in (
            element * call["weight"], states * layers, states, inputs, first * inputs, first * states,
            element * call["batch"] * call["output"] * layers, 2**20 * layers * directions, 2**20,
            both * states * layers, both * inputs,
        )
    ]  # fmt: skip


def _recurrent_bytes(call: Mapping[str, Any]) -> float:
    coefficients = _model()[1]
    part = f"{call['kind']} {'reserve' if call.get('reserve') else 'workspace'}"
    return float(np.dot(coefficients[part], recurrent_terms(call)))


def _attention_bytes(call: Mapping[str, Any]) -> float:
    """Return the float32 sums of the queries' gradients, and a number for each query, of a fused backward pass."""
    *rows, width = call["query"]
    elements: int = math.prod(rows) * (width + 1)
    return 4.0 * elements


@functools.cache
def _model() -> tuple[dict[str, Trees], dict[str, list[float]]]:
    """Read the fitted forests of convolutions and the coefficients of recurrent layers."""
    with np.load(io.BytesIO(resource(FILE).read_bytes()), allow_pickle=False) as arrays:
        features = int(arrays["features"])
        forests = {
            direction: Trees.from_arrays(
                {name.removeprefix(f"{direction}_"): arrays[name] for name in arrays if name.startswith(direction)},
                features,
            )
            for direction in (FORWARD, BACKWARD)
        }
        return forests, json.loads(arrays["recurrent"].tobytes())
