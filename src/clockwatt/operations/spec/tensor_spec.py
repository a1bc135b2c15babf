"""Specs of tensors: how an operation's JSON describes its inputs and outputs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from clockwatt.operations.spec import reading

DTYPE_BYTES: dict[str, int] = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2,
    "complex64": 8, "complex128": 16,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "bool": 1,
}  # fmt: skip
"""Bytes of one element."""


@dataclass(frozen=True, slots=True)
class StridedSpec:
    """What a tensor is, whichever way it goes."""

    shape: tuple[int, ...]
    dtype: str
    stride: tuple[int, ...]  # in elements

    @property
    def elements(self) -> int:
        """Number of elements that differ in memory: an expanded dimension counts once."""
        return math.prod(size for size, step in zip(self.shape, self.stride, strict=True) if step or not size)

    @property
    def bytes(self) -> int:
        """Bytes of these elements."""
        return self.elements * DTYPE_BYTES[self.dtype]

    @property
    def extent(self) -> int:
        """Elements of storage from the first element to the last, gaps included, without the offset."""
        if 0 in self.shape:
            return 0
        return 1 + sum((size - 1) * step for size, step in zip(self.shape, self.stride, strict=True))

    @property
    def floating(self) -> bool:
        """Whether the dtype is a floating-point one."""
        return "float" in self.dtype

    @property
    def complex(self) -> bool:
        """Whether the dtype is a complex one."""
        return self.dtype.startswith("complex")

    def to_dict(self) -> dict[str, Any]:
        """As it stands in JSON."""
        return {"shape": list(self.shape), "dtype": self.dtype, "stride": list(self.stride)}


@dataclass(frozen=True, slots=True)
class TensorSpec(StridedSpec):
    """A tensor that an operation takes."""

    grad: bool = False  # requires_grad
    parameter: bool = False  # a parameter or buffer of the network, or a view of one
    positive: bool = False  # values lie in (0, 1): variances, probabilities, divisors
    below: int | None = None  # integers are indices below this
    storage: int | None = None  # tensors with the same number are views of one storage
    offset: int = 0  # in elements, within that storage
    nonzero: int | None = None  # so many elements are not zero, where the size of the output depends on that

    @classmethod
    def dense(
        cls, shape: Sequence[int], dtype: str = "float32", *, grad: bool = False, parameter: bool = False
    ) -> Self:
        """A contiguous tensor."""
        return cls(tuple(shape), dtype, contiguous_stride(shape), grad=grad, parameter=parameter)

    def to_dict(self) -> dict[str, Any]:
        """As it stands in JSON."""
        flags = {"grad": self.grad, "parameter": self.parameter, "positive": self.positive}
        content = StridedSpec.to_dict(self) | {name: True for name, value in flags.items() if value}
        if self.below is not None:
            content["below"] = self.below
        if self.nonzero is not None:
            content["nonzero"] = self.nonzero
        if self.storage is not None:
            content |= {"storage": self.storage, "offset": self.offset}
        return content

    @classmethod
    def from_dict(cls, content: object, where: str) -> Self:
        """Read what `to_dict` wrote.

        Raises
        ------
        SpecFaultError
            Naming the place in the spec.
        """
        given = reading.mapping(content, where, required=_STRIDED, known=_OF_GIVEN)
        if ("storage" in given) != ("offset" in given):
            raise reading.SpecFaultError(where, "storage and offset belong together")
        return cls(
            *_strided(given, where),
            grad=reading.flag(given, "grad", where),
            parameter=reading.flag(given, "parameter", where),
            positive=reading.flag(given, "positive", where),
            below=reading.positive(given["below"], f"{where}.below") if "below" in given else None,
            storage=reading.natural(given["storage"], f"{where}.storage") if "storage" in given else None,
            offset=reading.natural(given["offset"], f"{where}.offset") if "offset" in given else 0,
            nonzero=reading.natural(given["nonzero"], f"{where}.nonzero") if "nonzero" in given else None,
        )


@dataclass(frozen=True, slots=True)
class OutputSpec(StridedSpec):
    """A tensor that an operation gives."""

    grad: bool = False  # requires_grad

    def to_dict(self) -> dict[str, Any]:
        """As it stands in JSON."""
        return StridedSpec.to_dict(self) | ({"grad": True} if self.grad else {})

    @classmethod
    def from_dict(cls, content: object, where: str) -> Self:
        """Read what `to_dict` wrote.

        Raises
        ------
        SpecFaultError
            Naming the place in the spec.
        """
        given = reading.mapping(content, where, required=_STRIDED, known=_OF_OUTPUT)
        return cls(*_strided(given, where), grad=reading.flag(given, "grad", where))


def contiguous_stride(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a contiguous tensor, in elements; a size of 0 counts as 1, as in PyTorch."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * max(shape[axis + 1], 1)
    return tuple(strides)


_STRIDED = frozenset({"shape", "dtype", "stride"})
_OF_GIVEN = _STRIDED | {"grad", "parameter", "positive", "below", "storage", "offset", "nonzero"}
_OF_OUTPUT = _STRIDED | {"grad"}


def _strided(given: dict[str, Any], where: str) -> tuple[tuple[int, ...], str, tuple[int, ...]]:
    shape, stride = reading.shape_and_stride(given, where)
    return shape, reading.one_of(given["dtype"], DTYPE_BYTES, f"{where}.dtype"), stride
