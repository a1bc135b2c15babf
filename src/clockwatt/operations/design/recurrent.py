"""Recurrent layers as cuDNN runs them, and optimizer steps."""

from __future__ import annotations

import torch
from torch import nn

from clockwatt.config import TrainingConfig
from clockwatt.operations import optimizers
from clockwatt.operations.design.block import Block, Input
from clockwatt.operations.design.convolutions import dtype
from clockwatt.operations.design.sizes import Sizes
from clockwatt.operations.spec.encode import dtype_of
from clockwatt.operations.spec.operation import Operation
from clockwatt.operations.spec.tensor_spec import TensorSpec

_MOST_STEPS = 512
"""Steps × layers × directions: each waits for the one before it, which a bound by the roofline does not see."""


def recurrent(sizes: Sizes) -> Block:
    """A long short-term memory or a gated recurrent unit, its weights in one piece as cuDNN wants them."""
    layers, both = sizes.one_of((1, 2, 3), (65, 28, 7)), sizes.chance(0.3)
    length = sizes.until(lambda: sizes.sequence(512), lambda length: length * layers * (1 + both) <= _MOST_STEPS)
    batch = sizes.batch(256)
    width_in, width = sizes.width(2048), sizes.width(2048)
    return recurrent_of(sizes, (batch, length, width_in, width), layers, both=both)


def recurrent_of(
    sizes: Sizes, shape: tuple[int, int, int, int], layers: int, *, both: bool, chosen: str | None = None
) -> Block:
    """A layer of such a shape.

    Parameters
    ----------
    sizes
        Draws which kind it is, how its input is laid out, and its dtype where none is chosen.
    shape
        Batch, steps, width of the input and of the layer.
    layers
        Stacked ones.
    both
        Whether it runs in both directions.
    chosen
        Its dtype.
    """
    batch, length, width_in, width = shape
    first = sizes.chance(0.7)
    kind = sizes.one_of((nn.LSTM, nn.GRU), (60, 40))
    chosen = chosen or dtype(sizes)
    with torch.device("meta"):
        module = kind(
            width_in, width, layers, bias=sizes.chance(0.95), batch_first=first, bidirectional=both,
            dtype=dtype_of(chosen),
        )  # fmt: skip
    _in_one_piece(module)
    sides = (batch, length, width_in) if first else (length, batch, width_in)
    return Block(module, [Input(sides, chosen, grad=sizes.chance(0.85))])


def _in_one_piece(module: nn.RNNBase) -> None:
    """Lay the weights out as `flatten_parameters` does on a GPU: matrices of all layers, then all biases."""
    names = [name for names in module._all_weights for name in names]
    ordered = sorted(names, key=lambda name: name.startswith("bias"))
    weights = {name: getattr(module, name) for name in names}
    total = sum(weight.numel() for weight in weights.values())
    storage = torch.empty(total, dtype=next(iter(weights.values())).dtype, device="meta")
    offset = 0
    for name in ordered:
        weight = weights[name]
        module._parameters[name] = nn.Parameter(storage[offset : offset + weight.numel()].view(weight.shape))
        offset += weight.numel()
    module._flat_weights = [getattr(module, name) for name in names]


def optimizer_step(sizes: Sizes) -> Operation:
    """One step over the parameters of something like a network."""
    training = TrainingConfig(
        optimizer=sizes.one_of(("sgd", "adam", "adamw")),
        momentum=sizes.one_of((0.0, 0.9), (30, 70)),
        weight_decay=sizes.one_of((0.0, 0.01), (60, 40)),
    )
    chosen, width, parameters = dtype(sizes), sizes.width(2048), list[TensorSpec]()
    kernel = sizes.one_of(((), (3, 3), (1, 1)))
    for _ in range(sizes.integer(1, 60)):
        wider = sizes.one_of((width, 2 * width, 4 * width))
        shapes = [(wider, width, *kernel), (wider,)] + ([(wider,)] if kernel else [])
        parameters += [TensorSpec.dense(shape, chosen, grad=True, parameter=True) for shape in shapes]
    return optimizers.operation_of(training, parameters)
