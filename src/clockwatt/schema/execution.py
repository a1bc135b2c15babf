"""Execution settings: how a network runs, as one value."""

from __future__ import annotations

import functools
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Self

from clockwatt.errors import ClockwattError


@dataclass(frozen=True)
class Precision:
    """PyTorch settings of a precision.

    Attributes
    ----------
    dtype
        The dtype of the network's parameters and inputs.
    matrix_tf32, cudnn_tf32
        Whether matrix products, and what cuDNN computes (convolutions, recurrent layers), of float32 may use
        TensorFloat-32.
    words
        For titles and figures.
    autocast
        The dtype of `torch.autocast`, under which forward pass and loss run; None for none.
    """

    dtype: str
    matrix_tf32: bool
    cudnn_tf32: bool
    words: str
    autocast: str | None = None


PRECISIONS = {
    "tf32-conv": Precision("float32", False, True, "tf32-conv (PyTorch's default)"),
    "tf32": Precision("float32", True, True, "TF32"),
    "fp32": Precision("float32", False, False, "float32"),
    "bf16": Precision("bfloat16", True, True, "bfloat16"),
    "fp16": Precision("float16", True, True, "float16"),
    "bf16-mixed": Precision("float32", False, True, "bfloat16 autocast", "bfloat16"),
    "fp16-mixed": Precision("float32", False, True, "float16 autocast", "float16"),
}
"""Precisions by the names that Lightning gives them; the first of each dtype is the default of PyTorch.

`tf32-conv` uses TensorFloat-32 in all that cuDNN computes, and not in matrix products.
"""

MATRIX_PRODUCTS = frozenset(
    {
        *("addbmm", "addmm", "baddbmm", "bilinear", "bmm", "chain_matmul", "einsum", "linear", "matmul", "mm"),
        *("grouped_mm", "scaled_dot_product_attention"),
    }
)
"""Operation classes that cuBLAS or CUTLASS computes."""
CUDNN_CLASSES = frozenset(
    {
        *(f"conv{n}d" for n in (1, 2, 3)),
        *(f"conv_transpose{n}d" for n in (1, 2, 3)),
        *("lstm", "gru", "rnn_tanh", "rnn_relu"),
    }
)
"""Operation classes that cuDNN computes, TensorFloat-32 included."""

MEMORY_FORMATS = ("contiguous", "channels_last")
EAGER = "eager"
COMPILE, REDUCE_OVERHEAD = "compile", "reduce-overhead"
CUDA_GRAPH = "cuda_graph"
MODES = (EAGER, COMPILE, REDUCE_OVERHEAD, CUDA_GRAPH)
"""Eager; `torch.compile`, and the same with CUDA graphs; the eager pass captured as a CUDA graph."""
COMPILED_MODES = (COMPILE, REDUCE_OVERHEAD)
CHECKPOINTING = ("none",)

_CHOICES: tuple[tuple[str, Collection[str]], ...] = (
    ("precision", PRECISIONS),
    ("memory_format", MEMORY_FORMATS),
    ("mode", MODES),
    ("checkpointing", CHECKPOINTING),
)
_DEFAULTS = {name: next(iter(choices)) for name, choices in _CHOICES[1:]}

_SYNONYMS = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16", "bf16-true": "bf16", "16-true": "fp16"}


class ExecutionSettings(str):
    """How a network runs: its canonical text, such as `tf32`, which columns, JSON and keys hold, with its parts.

    The text is the precision, then whatever differs from contiguous memory, eager mode and no checkpointing, joined by
    `+`.

    Parameters
    ----------
    text
        In any order of its parts.

    Raises
    ------
    ClockwattError
        If a part is none that clockwatt supports, or two are of one kind.

    Examples
    --------
    >>> ExecutionSettings("bfloat16").precision
    'bf16'
    """

    __slots__ = ()

    def __new__(cls, text: str) -> Self:
        """Read the text; see the class."""
        return text if isinstance(text, cls) else super().__new__(cls, _canonical(text))

    @property
    def parts(self) -> dict[str, Any]:
        """Return every part by its name, those at their default too."""
        return _DEFAULTS | dict(_part(word, self) for word in self.split("+"))

    @property
    def precision(self) -> str:
        """Return the name of the precision."""
        return self.split("+", 1)[0]

    @property
    def dtype(self) -> str:
        """Return the dtype of the network's parameters and inputs."""
        return PRECISIONS[self.precision].dtype

    @property
    def autocast(self) -> str | None:
        """Return the dtype of `torch.autocast`; None where the network runs without."""
        return PRECISIONS[self.precision].autocast

    @property
    def without_tf32(self) -> ExecutionSettings:
        """Return the same settings with `fp32` in place of a precision that differs from it by TF32 alone."""
        precision = PRECISIONS[self.precision]
        exact = precision.dtype == PRECISIONS["fp32"].dtype and precision.autocast is None
        return ExecutionSettings("fp32" + self[len(self.precision) :]) if exact else self

    @property
    def channels_last(self) -> bool:
        """Return whether weights and inputs of four or five dimensions are laid out channels last."""
        return "channels_last" in self.split("+")

    @property
    def compiled(self) -> bool:
        """Return whether `torch.compile` makes the network's kernels."""
        return mode_of_variant(self) in COMPILED_MODES

    @property
    def waits_in_capture(self) -> bool:
        """Return whether a training step cannot be captured: the gradient scaler of `fp16-mixed` waits for the GPU."""
        return self.precision == "fp16-mixed" and mode_of_variant(self) == CUDA_GRAPH

    @property
    def eager(self) -> ExecutionSettings:
        """Return the same settings in eager mode."""
        return ExecutionSettings("+".join(word for word in self.split("+") if word not in MODES))

    @property
    def variant(self) -> str:
        """Return the part of the settings that changes a network's calls, as its id ends: `float32`, `bf16_mixed`."""
        precision = self.dtype if self.autocast is None else self.precision.replace("-", "_")
        return "+".join([precision, *self.split("+")[1:]])

    @property
    def matrix_tf32(self) -> bool:
        """Return whether float32 matrix products may use TensorFloat-32."""
        return PRECISIONS[self.precision].matrix_tf32

    @property
    def cudnn_tf32(self) -> bool:
        """Return whether convolutions and recurrent layers of float32 may use TensorFloat-32."""
        return PRECISIONS[self.precision].cudnn_tf32

    @property
    def of_operations(self) -> list[ExecutionSettings]:
        """Return all settings under which operations of such a network are measured."""
        precision = PRECISIONS[self.precision]
        switches = (precision.matrix_tf32, precision.cudnn_tf32)
        return [TF32] * any(switches) + [FP32] * (not all(switches))

    @property
    def words(self) -> str:
        """Return how titles and figures name the settings: `TF32`, `bfloat16`."""
        return ", ".join([PRECISIONS[self.precision].words, *self.split("+")[1:]])

    def of_operation(self, operation_class: str, dtype: str, measured: Collection[str] = ()) -> ExecutionSettings:
        """Return the execution settings under which an operation of such a network is measured.

        An operation names its dtype, so the settings only say whether float32 may use TensorFloat-32. Where that makes
        no difference to the operation, and everything `measured` is without, it is without.
        """
        precision = PRECISIONS[self.precision]
        in_product = dtype == "float32" and operation_class in MATRIX_PRODUCTS
        if not (precision.matrix_tf32 if in_product else precision.cudnn_tf32):
            return FP32
        depends = dtype == "float32" and operation_class in MATRIX_PRODUCTS | CUDNN_CLASSES
        exact = depends or self.precision == TF32
        return FP32 if not exact and measured and TF32 not in measured else TF32


@functools.cache  # read for each row of a table
def _canonical(text: str) -> str:
    parts: dict[str, str] = {}
    for word in text.split("+"):
        name, value = _part(word, text)
        if name in parts:
            raise ClockwattError(f"{text}: {parts[name]} and {value} are both a {name}: give one.")
        parts[name] = value
    if "precision" not in parts:
        kinds = " and a ".join(name.replace("_", " ") for name in parts)
        raise ClockwattError(
            f"{text} is a {kinds}, and names no precision. Choose {_listed(PRECISIONS)}, such as tf32+{text}."
        )
    given = [parts.get(name, _DEFAULTS.get(name)) for name, _ in _CHOICES]
    return "+".join(str(value) for value in given if value not in _DEFAULTS.values())


def _part(word: str, text: str) -> tuple[str, str]:
    value = _SYNONYMS.get(word, word)
    for name, choices in _CHOICES:
        if value in choices:
            return name, value
    named = repr(word) if word == text else f"{text}: {word!r}"
    if value.startswith("checkpoint"):
        raise ClockwattError(
            f"precision {named} is no setting: a network does its own checkpointing. "
            "Call torch.utils.checkpoint in its forward, and name that network."
        )
    raise ClockwattError(
        f"precision {named} is not supported. Choose {_listed(PRECISIONS)}; append +channels_last or a mode: "
        f"{_listed([f'+{mode}' for mode in MODES if mode != EAGER])}."
    )


def _listed(choices: Collection[str]) -> str:
    *first, last = choices
    return f"{', '.join(first)} or {last}" if first else last


def of_variant(variant: str) -> list[ExecutionSettings]:
    """Return the settings under which a network makes the same calls."""
    _, *others = variant.split("+")
    every = (ExecutionSettings("+".join([name, *others])) for name in PRECISIONS)
    return [one for one in every if one.variant == variant]


def mode_of_variant(variant: str) -> str:
    """Return the mode of a network that makes the calls of a variant."""
    return next((word for word in variant.split("+") if word in MODES), EAGER)


def all_settings(*, training: bool, images: bool) -> list[ExecutionSettings]:
    """Return every setting worth choosing among.

    Parameters
    ----------
    training
        Leave out `fp16`, whose gradients underflow without float32 weights.
    images
        Whether an input has four or five dimensions, which `channels_last` needs.
    """
    names = [name for name in PRECISIONS if not (training and name == "fp16")]
    formats = ["", "+channels_last"] if images else [""]
    # TorchInductor chooses the layout itself
    ways = [*formats, "+compile", *(f"{layout}+{CUDA_GRAPH}" for layout in formats)]
    found = [ExecutionSettings(f"{name}{way}") for way in ways for name in names]
    return [one for one in found if not (training and one.waits_in_capture)]


def default_of(variant: str) -> ExecutionSettings:
    """Return how PyTorch runs a network that makes these calls where nothing else is set."""
    return next(iter(of_variant(variant)), DEFAULT)


def execution_of_json(content: dict[str, Any]) -> list[ExecutionSettings]:
    """Take the settings, one or several, out of what was read from JSON; up to clockwatt 0.1 they are `tf32`."""
    found = content.pop("execution") if "execution" in content else content.pop("tf32")
    texts = found if isinstance(found, list) else [found]
    return [of_tf32(one) if isinstance(one, bool) else ExecutionSettings(one) for one in texts]


def of_tf32(allowed: bool) -> ExecutionSettings:
    """Return the settings that clockwatt up to 0.1 wrote as a column or key `tf32`, of what runs in float32."""
    return TF32 if allowed else FP32


FP32, TF32 = ExecutionSettings("fp32"), ExecutionSettings("tf32")
DEFAULT = ExecutionSettings("tf32-conv")
"""What PyTorch does by default in float32."""
