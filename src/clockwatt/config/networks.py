"""Networks, and how they are trained."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from clockwatt.config import library_inputs
from clockwatt.config.measurement import Quantities
from clockwatt.config.model import Model, different, one_or_more
from clockwatt.config.precision import NetworkPrecision, WithPrecision
from clockwatt.errors import ClockwattError
from clockwatt.schema.execution import ExecutionSettings
from clockwatt.schema.optimizers import NAMES, kind_of, optimizer_name

INPUT_NAME = re.compile(r"\w+(\.\w+)*")
"""A keyword or position, or `images.0`, `batch.mask`: an entry of a list or dictionary."""

_MOST_ELEMENTS = 2**60
"""Of eight bytes each, more than any address."""

_LARGEST_BELOW = 2**63 - 1


def _check_size(shape: list[int]) -> list[int]:
    if math.prod(shape) >= _MOST_ELEMENTS:
        raise ValueError("has more elements than any memory holds: give a smaller shape")
    return shape


Shape = Annotated[list[Annotated[int, Field(gt=0)]], Field(min_length=1), AfterValidator(_check_size)]


def _check_bound(below: int) -> int:
    if below > _LARGEST_BELOW:
        raise ValueError(f"{below} is more than indices of int64 can be below: give the size of the vocabulary")
    return below


INDICES = ("int64", "int32")
"""Dtypes of inputs that are indices."""

Below = Annotated[int, Field(gt=0), AfterValidator(_check_bound)]


class InputConfig(Model):
    """One of several inputs of a network, given by keyword."""

    shape: Shape = Field(description="batch first", examples=[[8, 128]])
    dtype: Literal["float", "float32", "float16", "bfloat16", "int64", "int32", "uint8", "bool"] = Field(
        "float",
        description="float is the network's own dtype; int64 and int32 are for indices (token ids) and masks, uint8 "
        "for images",
    )
    below: Below | None = Field(
        None, description="indices are below this; needed with int64 and int32", examples=[30522]
    )
    values: Literal["random", "ones", "lengths"] = Field(
        "random",
        description="lengths: an attention mask of sentences of different lengths, each at least half of the row",
    )

    @model_validator(mode="after")
    def _indices_are_bounded(self) -> Self:
        if (self.dtype in INDICES) != (self.below is not None):
            index = self.dtype if self.dtype in INDICES else INDICES[0]
            raise ValueError(f"dtype: {index} needs below, and below needs {index}: ids lie below it, such as 30522")
        return self


class NetworkConfig(WithPrecision):
    """A network and its input, or several inputs by keyword."""

    name: str = Field(
        description="a network of torchvision (classification, segmentation or video), `timm:NAME`, `hf:CONFIG.json` "
        "for a model of the library transformers by its configuration, or package.module:callable or FILE.py:callable "
        "that returns a torch.nn.Module",
        examples=["resnet18", "timm:efficientnet_lite0", "hf:bert.json", "my_package.models:build"],
    )
    input: Shape | None = Field(
        None,
        description="shape of its only input, batch first; [batch] of a model of timm for images of its own size",
        examples=[[32, 3, 224, 224]],
    )
    inputs: dict[str, InputConfig] | None = Field(
        None,
        min_length=1,
        description="instead of `input`: keyword to its input; a number is a position, and "
        " `images.0` or `batch.mask` is an entry of a list or dictionary",
        examples=[{"input_ids": {"shape": [8, 128], "dtype": "int64", "below": 30522}}],
    )
    input_dtype: Literal["float", "int64"] = Field(
        "float",
        description="int64 for networks that take indices (token ids); `hf:` knows it by its vocabulary",
    )
    input_below: Below | None = Field(None, description="indices are below this; needed with int64", examples=[30522])
    cache_length: int | None = Field(
        None,
        gt=0,
        description="of a decoder given as `hf:`: one decoding step after this many cached tokens; "
        " `input` holds the new tokens, [batch, 1]",
        examples=[1024],
    )

    data_dependent_branch: Literal["refuse", "true", "false"] = Field(
        "refuse",
        description="value of conditions that depend on the values of a tensor; refuse: such a network is an error",
    )

    precision: Annotated[list[NetworkPrecision], one_or_more(NetworkPrecision)] = Field(
        ["fp32", "tf32"],
        min_length=1,
        description="precisions that it is measured in. fp32, tf32, tf32-conv: on GPUs whose key `precision` has them "
        "too. bf16, fp16: the network and its input are cast. bf16-mixed, fp16-mixed: torch.autocast; in training, "
        "fp16-mixed also uses GradScaler. Append `+channels_last`, `+compile` (torch.compile), `+reduce-overhead` "
        "(torch.compile with CUDA graphs) or `+cuda_graph` (the whole pass is captured): `tf32+compile`. The same "
        "network may be listed again with other precisions",
    )
    sample: float = Field(
        1.0,
        ge=0,
        le=1,
        description="share of its operations to measure, chosen independently of other networks",
    )
    whole: bool = Field(True, description="whether the whole network is measured, too")
    quantities: Quantities | None = Field(
        None,
        description="what is measured of it and its operations: `[time]` or `[time, energy]`; null: the campaign's",
    )

    _precisions_differ = different("precision")

    @model_validator(mode="before")
    @classmethod
    def _library_knows(cls, content: Any) -> Any:
        return library_inputs.complete(content) if isinstance(content, Mapping) else content

    @model_validator(mode="after")
    def _inputs_are_given_once(self) -> Self:
        if (self.input is None) == (self.inputs is None):
            raise ValueError("give `input`, the shape of the only input, or `inputs`, several by keyword")
        if self.inputs is not None and (self.input_dtype != "float" or self.input_below is not None):
            raise ValueError("input_dtype and input_below go with `input`; with `inputs`, each has its own")
        for name in self.inputs or ():
            if not INPUT_NAME.fullmatch(name):
                raise ValueError(f"inputs: {name!r} is no keyword, position, or entry such as images.0 or batch.mask")
        if (self.input_dtype == "int64") != (self.input_below is not None):
            raise ValueError(
                "input_dtype: int64 needs input_below, and input_below needs int64: ids lie below it, such as 30522"
            )
        if self.cache_length is not None and not self.name.startswith("hf:"):
            raise ValueError("cache_length is for decoders given as hf:CONFIG.json")
        return self

    @property
    def execution(self) -> list[ExecutionSettings]:
        """Settings that it is measured under."""
        return [ExecutionSettings(name) for name in self.precision]

    @property
    def dtype(self) -> str:
        """What the network and its input are cast to."""
        return self.execution[0].dtype

    @property
    def variant(self) -> str:
        """What its calls depend on beside its inputs: see `ExecutionSettings.variant`."""
        return self.execution[0].variant

    def by_variant(self) -> list[NetworkConfig]:
        """Return the network once for each variant of its precisions: each is a network of its own."""
        variants = dict.fromkeys(one.variant for one in self.execution)
        return [
            self.model_copy(update={"precision": [str(one) for one in self.execution if one.variant == variant]})
            for variant in variants
        ]

    @property
    def by_keyword(self) -> dict[str, InputConfig]:
        """Every input by its keyword; the only one of `input`, given by position, by an empty one."""
        if self.inputs is not None:
            return self.inputs
        assert self.input is not None
        return {"": InputConfig(shape=self.input, dtype=self.input_dtype, below=self.input_below)}

    @property
    def first_input(self) -> InputConfig:
        """The first input, whose first size is the batch."""
        return next(iter(self.by_keyword.values()))

    def with_batch(self, size: int) -> NetworkConfig:
        """Return the network with another first size of every input that has the first input's batch size."""
        batch = self.first_input.shape[0]

        def sized(shape: list[int]) -> list[int]:
            return [size, *shape[1:]] if shape[0] == batch else shape

        if self.inputs is not None:
            inputs = {name: one.model_copy(update={"shape": sized(one.shape)}) for name, one in self.inputs.items()}
            return self.model_copy(update={"inputs": inputs})
        return self.model_copy(update={"input": sized(self.first_input.shape)})

    @property
    def network_id(self) -> str:
        """Identity used in tables and figures, e.g. `resnet18-32x3x224x224-float32`."""
        shapes = {keyword: "x".join(map(str, one.shape)) for keyword, one in self.by_keyword.items()}
        given = "+".join(f"{keyword}={shape}" if keyword else shape for keyword, shape in shapes.items())
        behind = "" if self.cache_length is None else f"-behind{self.cache_length}"
        return f"{self.name}-{given}{behind}-{self.variant}"


def _optimizer_name(value: Any) -> Any:
    try:
        return optimizer_name(value) if isinstance(value, str) else value
    except ClockwattError as error:
        raise ValueError(str(error)) from error


if TYPE_CHECKING:
    OptimizerName: TypeAlias = str
else:
    OptimizerName = Annotated[Literal[NAMES], BeforeValidator(_optimizer_name)]


class TrainingConfig(Model):
    """What a training step does beside forward and backward."""

    optimizer: OptimizerName = Field(
        "sgd",
        description="of `torch.optim`, in the training pass; -fused: its fused kernel; none: no step, so forward, loss "
        "and backward alone",
    )
    learning_rate: float = Field(0.1, gt=0, description="learning rate of the optimizer; does not change the cost")
    momentum: float = Field(0.9, ge=0, lt=1, description="momentum of sgd")
    weight_decay: float = Field(0.0, ge=0, description="weight decay of the optimizer; above 0 it adds work")
    accumulate: int = Field(
        1, ge=1, le=256, description="batches whose gradients are summed before a step; a pass contains all of them"
    )
    clip_norm: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="largest norm of the gradients, as in `clip_grad_norm_`; null: no clipping",
    )
    loss: Literal["auto", "cross_entropy", "mse", "mean"] = Field(
        "auto",
        description="cross_entropy (classes in dimension 1), mse, or the mean of the outputs; auto: cross-entropy of "
        "class scores and of next tokens, else the mean",
    )

    @model_validator(mode="after")
    def _weights_decay_where_they_can(self) -> Self:
        if self.weight_decay and not kind_of(self.optimizer).decays:
            raise ValueError(f"weight_decay: {self.optimizer} has none; leave it at 0")
        return self

    def differences(self, other: TrainingConfig) -> str:
        """Return what ids of networks end with that are trained so, and not as in a campaign with `other`."""
        named = (
            (self.optimizer, "optimizer"),
            (f"accumulate{self.accumulate}", "accumulate"),
            ("unclipped" if self.clip_norm is None else f"clip{self.clip_norm:g}", "clip_norm"),
            (self.loss, "loss"),
        )
        return "".join(f"-{text}" for text, key in named if getattr(self, key) != getattr(other, key))
