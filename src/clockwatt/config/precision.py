"""The key `precision`, and the keys `dtype` and `tf32` that it replaces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, model_validator

from clockwatt.config.model import Model
from clockwatt.errors import ClockwattError
from clockwatt.schema.execution import PRECISIONS, ExecutionSettings, of_tf32


def _named(value: Any) -> Any:
    """Return the name of a precision that goes by another one too, such as bfloat16."""
    try:
        return str(ExecutionSettings(value)) if isinstance(value, str) else value
    except ClockwattError as error:
        raise ValueError(str(error)) from error


FLOAT_PRECISIONS = tuple(
    name for name, precision in PRECISIONS.items() if (precision.autocast or precision.dtype) == "float32"
)

if TYPE_CHECKING:
    FloatPrecision: TypeAlias = str
    NetworkPrecision: TypeAlias = str
else:
    FloatPrecision = Annotated[Literal[FLOAT_PRECISIONS], BeforeValidator(_named)]
    NetworkPrecision = Annotated[str, BeforeValidator(_named)]


class WithPrecision(Model):
    """A block with `precision`."""

    @model_validator(mode="before")
    @classmethod
    def _from_former_keys(cls, content: Any) -> Any:
        """Read `tf32` and `dtype` of campaigns up to version 0.1 as `precision`."""
        if not isinstance(content, Mapping) or not {"tf32", "dtype"} & content.keys():
            return content
        if "precision" in content:
            raise ValueError("dtype and tf32 are former names of precision: give precision alone")
        rest = {key: value for key, value in content.items() if key not in ("tf32", "dtype")}
        dtype, tf32 = content.get("dtype", "float32"), content.get("tf32")
        if dtype != "float32":
            return rest | {"precision": [dtype]}
        if tf32 is None:
            return rest
        given = tf32 if isinstance(tf32, list) else [tf32]
        if not all(isinstance(value, bool) for value in given):
            raise ValueError("tf32 is a former name of precision: write precision: fp32, tf32 or [fp32, tf32]")
        return rest | {"precision": [of_tf32(value) for value in given]}
