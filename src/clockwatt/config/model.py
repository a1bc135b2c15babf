"""Base class of the models of all keys."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, field_validator

LABEL_PATTERN = r"[A-Za-z0-9][A-Za-z0-9_.]*"


class Model(BaseModel):
    """Keys of one block; others are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


def different(*fields: str, what: str = "a value") -> Any:
    """Return a validator of fields, lists of `what` in which nothing may stand twice."""

    def check(values: Any) -> Any:
        if values is not None and len(set(values)) != len(values):
            raise ValueError(f"{what} is given twice: remove one")
        return values

    return field_validator(*fields)(check)


def one_or_more(item: Any) -> BeforeValidator:
    """Return the value as a list; a single value becomes a list of one."""
    return BeforeValidator(
        lambda value: value if isinstance(value, list) else [value], json_schema_input_type=item | list[item]
    )
