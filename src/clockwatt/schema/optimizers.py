"""Optimizers of `torch.optim` that step on CUDA: what they are called, and what a step costs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clockwatt.errors import ClockwattError


@dataclass(frozen=True)
class Optimizer:
    """Properties of an optimizer, without torch.

    Attributes
    ----------
    class_name
        In `torch.optim`.
    states
        Tensors of state, each of a parameter's size.
    flops
        The flops of a step for one parameter, without weight decay.
    momentum
        Whether the campaign's momentum is given to it; that takes one more state and two more FLOPs.
    decays
        Whether it takes weight decay, of two FLOPs.
    fused
        Whether PyTorch has a fused kernel for it.
    factored
        Whether the state of a matrix is one value for each row and column.
    """

    class_name: str
    states: int
    flops: int
    momentum: bool = False
    decays: bool = True
    fused: bool = False
    factored: bool = False


OPTIMIZERS = {
    "sgd": Optimizer("SGD", 0, 2, momentum=True, fused=True),
    "adam": Optimizer("Adam", 2, 13, fused=True),
    "adamw": Optimizer("AdamW", 2, 13, fused=True),
    "adagrad": Optimizer("Adagrad", 1, 7, fused=True),
    "adadelta": Optimizer("Adadelta", 2, 16),
    "adafactor": Optimizer("Adafactor", 0, 14, factored=True),
    "adamax": Optimizer("Adamax", 2, 10),
    "asgd": Optimizer("ASGD", 1, 6),
    "nadam": Optimizer("NAdam", 2, 16),
    "radam": Optimizer("RAdam", 2, 15),
    "rmsprop": Optimizer("RMSprop", 1, 9),
    "rprop": Optimizer("Rprop", 2, 12, decays=False),
}
"""By the names that campaigns and commands give them."""

_NOTHING = Optimizer("", 0, 0, decays=False)

NOT_SUPPORTED = {
    "lbfgs": "it calls the network again within its step",
    "muon": "it takes matrices only",
    "sparseadam": "it takes sparse gradients only",
}

FUSED = "-fused"
NO_OPTIMIZER = "none"
NAMES = (*OPTIMIZERS, *(f"{name}{FUSED}" for name, kind in OPTIMIZERS.items() if kind.fused), NO_OPTIMIZER)
"""Without an ending PyTorch's own choice on CUDA, `foreach`; `-fused` where it has a fused kernel; `none`: no step."""

BY_CLASS = {kind.class_name: kind for kind in OPTIMIZERS.values()}


def optimizer_name(text: str) -> str:
    """Return the name of an optimizer that goes by its class (`AdamW`) or names its variant (`adamw-foreach`) too.

    Raises
    ------
    ClockwattError
        If clockwatt knows no such optimizer.
    """
    name = text.lower().removesuffix("-foreach")
    if name in NAMES:
        return name
    why = NOT_SUPPORTED.get(name)
    raise ClockwattError(f"optimizer {text}: {why or 'unknown'}. Choose {', '.join(NAMES[:-1])} or {NAMES[-1]}.")


def kind_of(name: str) -> Optimizer:
    """Return what is known of an optimizer; `name` is one of `NAMES`."""
    return _NOTHING if name == NO_OPTIMIZER else OPTIMIZERS[name.removesuffix(FUSED)]


def states_of(described: Mapping[str, Any]) -> int:
    """Return the tensors of state per parameter of an optimizer as a catalogue's `optimizer` describes it."""
    kind = kind_of(str(described["optimizer"]))
    return kind.states + bool(kind.momentum and described.get("momentum"))


LOSSES = ("auto", "cross_entropy", "mse", "mean")
"""Losses of training passes."""

TRAINED = re.compile(
    rf"(-({'|'.join([*sorted(NAMES, key=len, reverse=True), *LOSSES])}|accumulate[0-9]+|clip[0-9.e+-]+|unclipped))+$"
)
"""End of the id of a network that is not trained as its campaign trains: see `TrainingConfig.differences`."""
