"""What an operation is: a public PyTorch function, the shapes of its tensors and its settings, as canonical JSON.

Its identity is its JSON, so it depends on no device and on no network. Reading one needs no torch and imports nothing:
analysis reads operations too. Whether a function may be called at all is decided by `functions.resolve`.

The JSON of a convolution in training, with line breaks that the canonical form does not have::

    {"args":[{"tensor":0},{"tensor":1},null,{"tuple":[2,2]},{"tuple":[3,3]},{"tuple":[1,1]},1],
     "fn":"torch.nn.functional.conv2d","grad_out":[[802816,12544,112,1]],"kwargs":{},
     "out":[{"dtype":"float32","grad":true,"shape":[32,64,112,112],"stride":[802816,12544,112,1]}],
     "tensors":[{"dtype":"float32","shape":[32,3,224,224],"stride":[150528,50176,224,1]},
                {"dtype":"float32","grad":true,"parameter":true,"shape":[64,3,7,7],"stride":[147,49,7,1]}]}

Arguments are null, booleans, integers, finite floats, strings and lists of arguments as they stand; anything else is an
object with one key: `tensor` (index into `tensors`), `tuple`, `dict`, `slice`, `ellipsis`, `float` (inf, -inf, nan),
`dtype`, `device` (always "@": wherever the operation is built), `memory_format`, `layout`. A key whose value is the
default is left out.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

from clockwatt.errors import ClockwattError
from clockwatt.operations.spec import reading
from clockwatt.operations.spec.tensor_spec import DTYPE_BYTES, OutputSpec, StridedSpec, TensorSpec, contiguous_stride
from clockwatt.schema.execution import CUDNN_CLASSES, MATRIX_PRODUCTS

__all__ = [
    "DTYPE_BYTES",
    "MATRIX_CLASSES",
    "RECURRENT_CLASSES",
    "Operation",
    "OperationSpecError",
    "OutputSpec",
    "TensorSpec",
    "contiguous_stride",
]

_CONVOLUTIONS = frozenset(f"conv{n}d" for n in (1, 2, 3))

RECURRENT_CLASSES = frozenset({"lstm", "gru", "rnn_tanh", "rnn_relu"})
"""Operation classes whose states feed back into them, one step after another."""

MATRIX_CLASSES = MATRIX_PRODUCTS | (CUDNN_CLASSES - RECURRENT_CLASSES)
"""Operation classes that run on the matrix units where the GPU has them."""

OPTIMIZER_PREFIX = "torch.optim."
"""Functions of this namespace are optimizers: the operation is one step."""

_IN_PLACE_OPERATORS = {
    "iadd": "add",
    "isub": "sub",
    "imul": "mul",
    "itruediv": "div",
    "truediv": "div",
    "ifloordiv": "floordiv",
}


_REQUIRED = frozenset({"fn", "args", "kwargs", "tensors", "out"})
_KNOWN = _REQUIRED | {"grad_out", "mutates", "no_grad"}


class OperationSpecError(ClockwattError):
    """A spec is no operation, or names a function that may not be called."""


@dataclass(frozen=True)
class Operation:
    """One call of a public PyTorch function, without the values in its tensors."""

    function: str  # public name, e.g. torch.nn.functional.conv2d
    args: tuple[Any, ...] = ()  # encoded as in JSON
    kwargs: dict[str, Any] = field(default_factory=dict)  # encoded as in JSON
    tensors: tuple[TensorSpec, ...] = ()
    out: tuple[OutputSpec, ...] = ()  # what it gives, or what it changes if it gives nothing
    grad_out: tuple[tuple[int, ...] | None, ...] = ()  # stride of the gradient of each output, None where none arrives
    mutates: tuple[int, ...] = ()  # tensors that the call changes in place
    no_grad: bool = False  # called under no_grad though a tensor requires a gradient

    @cached_property
    def operation_id(self) -> str:
        """First 16 hexadecimal digits of the SHA-256 of the canonical JSON."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:16]

    @cached_property
    def operation_class(self) -> str:
        """Last part of the function's name, without underscores; in-place operators count as what they do."""
        name = self.function.removesuffix(".__get__").rsplit(".", 1)[-1].strip("_")
        if self.is_optimizer and self.kwargs.get("fused"):
            return f"{name}_fused"  # another kernel, of which what was measured without says little
        return _IN_PLACE_OPERATORS.get(name, name)

    @property
    def is_optimizer(self) -> bool:
        """Whether this is one step of an optimizer."""
        return self.function.startswith(OPTIMIZER_PREFIX)

    @property
    def is_grouped_convolution(self) -> bool:
        """Whether this is a convolution in several groups of several channels each."""
        named = dict(zip(("input", "weight"), self.args, strict=False)) | self.kwargs
        encoded = [named.get(name) for name in ("input", "weight")]
        tensors = [self.tensors[arg["tensor"]] for arg in encoded if isinstance(arg, dict) and "tensor" in arg]
        if self.operation_class not in _CONVOLUTIONS or len(tensors) < 2 or len(tensors[1].shape) < 3:
            return False
        given, weight = tensors
        channels = given.shape[1 - len(weight.shape)] if len(given.shape) >= len(weight.shape) - 1 else 0
        return 1 < weight.shape[1] < channels

    @property
    def has_backward(self) -> bool:
        """Whether a gradient arrives at one of its outputs."""
        return any(stride is not None for stride in self.grad_out)

    @property
    def dtype(self) -> str:
        """Dtype of the first floating-point tensor that it takes or gives; of the first tensor if there is none."""
        involved: tuple[StridedSpec, ...] = (*self.tensors, *self.out)
        dtypes = [tensor.dtype for tensor in involved]
        return next((dtype for dtype in dtypes if "float" in dtype), dtypes[0] if dtypes else "none")

    def to_json(self) -> str:
        """Canonical JSON: keys sorted, no white space."""
        content: dict[str, Any] = {
            "fn": self.function,
            "args": list(self.args),
            "kwargs": self.kwargs,
            "tensors": [tensor.to_dict() for tensor in self.tensors],
            "out": [output.to_dict() for output in self.out],
        }
        if self.has_backward:
            content["grad_out"] = [None if stride is None else list(stride) for stride in self.grad_out]
        if self.mutates:
            content["mutates"] = list(self.mutates)
        if self.no_grad:
            content["no_grad"] = True
        return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read an operation; nothing is imported or executed.

        Raises
        ------
        OperationSpecError
            If the text is no JSON, or anything in it is unknown, missing or out of range; the message names the place.
        """
        try:
            return cls._from_content(reading.parse(text))
        except reading.SpecFaultError as fault:
            beginning = text[:60] + ("…" if len(text) > 60 else "")
            raise OperationSpecError(
                f"not an operation: {fault}. The spec begins {beginning!r}; run `clockwatt catalogue` again."
            ) from None

    @classmethod
    def _from_content(cls, content: object) -> Self:
        given = reading.mapping(content, "spec", required=_REQUIRED, known=_KNOWN)
        tensors = tuple(
            TensorSpec.from_dict(entry, f"tensors[{i}]")
            for i, entry in enumerate(reading.sequence(given["tensors"], "tensors"))
        )
        out = tuple(
            OutputSpec.from_dict(entry, f"out[{i}]") for i, entry in enumerate(reading.sequence(given["out"], "out"))
        )
        args = reading.sequence(given["args"], "args")
        kwargs = reading.names(given["kwargs"], "kwargs")
        for place, value in (
            *((f"args[{i}]", arg) for i, arg in enumerate(args)),
            *((f"kwargs.{k}", v) for k, v in kwargs.items()),
        ):
            reading.check_argument(value, place, tensors=len(tensors), dtypes=DTYPE_BYTES)
        operation = cls(
            _function_name(given["fn"]),
            tuple(args),
            kwargs,
            tensors,
            out,
            tuple(_gradient_strides(given["grad_out"], out)) if "grad_out" in given else (),
            tuple(
                reading.index(i, "mutates", len(tensors)) for i in reading.sequence(given.get("mutates", []), "mutates")
            ),
            reading.flag(given, "no_grad", "spec"),
        )
        if operation.mutates and not operation.out:
            raise reading.SpecFaultError("mutates", "what is changed is given too, but out is empty")
        if "grad_out" in given and not operation.has_backward:
            raise reading.SpecFaultError("grad_out", "holds no gradient; leave the key out")
        return operation


def _function_name(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"torch(\.\w+)+", value, re.ASCII):
        raise reading.SpecFaultError("fn", f"{value!r} is no name of a PyTorch function")
    return value


def _gradient_strides(value: object, out: Sequence[OutputSpec]) -> Iterator[tuple[int, ...] | None]:
    strides = reading.sequence(value, "grad_out")
    if len(strides) != len(out):
        raise reading.SpecFaultError("grad_out", f"has {len(strides)} entries for {len(out)} outputs")
    for number, (stride, output) in enumerate(zip(strides, out, strict=True)):
        if stride is None:
            yield None
            continue
        where = f"grad_out[{number}]"
        yield reading.shape_and_stride({"shape": list(output.shape), "stride": stride}, where)[1]
