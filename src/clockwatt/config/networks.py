"""Networks, and how they are trained."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from clockwatt.config.measurement import Quantities
from clockwatt.config.model import Model, one_or_more


class NetworkConfig(Model):
    """A network and the shape of its input."""

    name: str = Field(
        description="torchvision classification network, or package.module:callable that returns a torch.nn.Module",
        examples=["resnet18", "my_package.models:build"],
    )
    input: list[Annotated[int, Field(gt=0)]] = Field(
        min_length=1, description="shape of the input, batch first", examples=[[32, 3, 224, 224]]
    )
    dtype: Literal["float32", "float16", "bfloat16"] = Field(
        "float32", description="the network and its input are cast to this"
    )
    input_dtype: Literal["float", "int64"] = Field(
        "float", description="int64 for networks that take indices (token ids)"
    )
    input_below: int | None = Field(
        None, gt=0, description="indices are below this; needed with int64", examples=[30522]
    )

    data_dependent_branch: Literal["refuse", "true", "false"] = Field(
        "refuse",
        description="at a branch on the values of a tensor, tracing refuses the network or takes it as true or false",
    )

    tf32: Annotated[list[bool], one_or_more(bool)] = Field(
        [False, True],
        min_length=1,
        description="of the TF32 settings of a GPU, those under which this network and its operations are measured; a "
        "network may stand once for each",
    )
    sample: float = Field(
        1.0,
        ge=0,
        le=1,
        description="share of its operations that are measured; which ones depends on each operation alone, so that it "
        "stays when networks come and go, and what another network needs is measured anyway",
    )
    whole: bool = Field(True, description="whether the network is measured whole, too")
    quantities: Quantities | None = Field(
        None,
        description="what is measured of it and its operations: `[time]` or `[time, energy]`; null: the campaign's",
    )

    @field_validator("tf32")
    @classmethod
    def _settings_differ(cls, values: list[bool]) -> list[bool]:
        if len(set(values)) != len(values):
            raise ValueError("a value stands twice: remove one")
        return values

    @model_validator(mode="after")
    def _indices_are_bounded(self) -> Self:
        if (self.input_dtype == "int64") != (self.input_below is not None):
            raise ValueError("input_dtype: int64 and input_below belong together")
        return self

    @property
    def network_id(self) -> str:
        """Identity used in tables and figures, e.g. `resnet18-32x3x224x224-float32`."""
        return f"{self.name}-{'x'.join(map(str, self.input))}-{self.dtype}"


class TrainingConfig(Model):
    """What a training step does beside forward and backward."""

    optimizer: Literal["sgd", "adam", "adamw"] = Field("sgd", description="optimizer of the training pass")
    learning_rate: float = Field(0.1, gt=0, description="of the optimizer; costs nothing")
    momentum: float = Field(0.9, ge=0, lt=1, description="of sgd")
    weight_decay: float = Field(0.0, ge=0, description="of the optimizer; above 0 it is work of its own")
