"""The anchor operations: a fixed few, from host-bound to power-capped, measured at the start and the end of every shard.

They tell cards and hours apart: `dataset` turns them into a factor per card and a drift per hour.
"""

from __future__ import annotations

from clockwatt.operations.operation import Operation
from clockwatt.records import OperationRow

_FLOAT_BYTES = 4


def anchors() -> list[OperationRow]:
    """The anchor operations, as rows of a catalogue in the inference pass."""
    return [
        _elementwise("torch.nn.functional.relu", [256]),  # host-bound
        _elementwise("torch.nn.functional.relu", [64, 64, 112, 112]),  # memory-bound
        _softmax([4096, 4096]),
        _linear(32, 2048, 1000),  # small matrix product
        _linear(8192, 4096, 4096),  # power-capped
    ]
