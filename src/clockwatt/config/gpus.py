"""GPUs of a campaign: their operating points, how these are set, and what Slurm is asked for."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, PlainSerializer, field_validator, model_validator

from clockwatt.config.control import ControlConfig
from clockwatt.config.model import different, one_or_more
from clockwatt.config.points import DEFAULT_POINT, OperatingPoint
from clockwatt.config.precision import FLOAT_PRECISIONS, FloatPrecision, WithPrecision
from clockwatt.config.slurm import SlurmResources
from clockwatt.schema.execution import ExecutionSettings


def _quantity(unit: str) -> BeforeValidator:
    def check(value: Any) -> Any:
        if value is None or value == DEFAULT_POINT:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
            raise ValueError(f"{value!r} is not a number of {unit}")
        return value

    return BeforeValidator(check, json_schema_input_type=Annotated[int, Field(gt=0)] | Literal["default"])


def _or_default(value: int | None) -> int | str:
    return DEFAULT_POINT if value is None else value


Megahertz = Annotated[int | None, _quantity("MHz"), PlainSerializer(_or_default, return_type=int | str)]
Watts = Annotated[int | None, _quantity("W"), PlainSerializer(_or_default, return_type=int | str)]


class GpuConfig(WithPrecision):
    """One kind of GPU and the operating points to measure it at."""

    device: str = Field(
        description="the NVML name of the GPU, checked in the job, or virtual:MODEL",
        examples=["NVIDIA A30", "virtual:a30"],
    )
    clocks_mhz: Annotated[list[Megahertz], one_or_more(Megahertz)] = Field(
        [None],
        min_length=1,
        description="SM clocks to lock, in MHz; `default` sets nothing",
        examples=[[210, 900, 1440]],
    )
    memory_clocks_mhz: Annotated[list[Megahertz], one_or_more(Megahertz)] = Field(
        [None], min_length=1, description="memory clocks to lock, in MHz"
    )
    power_limits_w: Annotated[list[Watts], one_or_more(Watts)] = Field(
        [None], min_length=1, description="power limits, in W"
    )
    precision: Annotated[list[FloatPrecision], one_or_more(FloatPrecision)] = Field(
        ["tf32"],
        min_length=1,
        description="precisions that float32 networks are measured in: without TensorFloat-32 (fp32), with it (tf32), "
        "or with it in convolutions and recurrent layers alone, as PyTorch does by default (tf32-conv)",
    )
    count: int = Field(
        1, ge=1, le=64, description="GPUs of one node that a job of `studies.parallel` asks for; other jobs ask for one"
    )
    control: ControlConfig = Field(ControlConfig(), description="how the operating point is set")
    slurm: SlurmResources = Field(SlurmResources(), description="what a job of this GPU asks Slurm for")

    _no_duplicates = different("clocks_mhz", "memory_clocks_mhz", "power_limits_w", "precision")

    @field_validator("device")
    @classmethod
    def _device_is_named(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("is empty: write the GPU's name as `nvidia-smi -L` shows it, or virtual:a30")
        return value

    @model_validator(mode="after")
    def _settable(self) -> Self:
        self.check_settable(self.points)
        method = self.control.method
        if self.virtual_model is not None and method not in ("nvml", "none"):
            raise ValueError(f"control.method {method} is for real GPUs; a virtual one needs nvml or none")
        return self

    def check_settable(self, points: Sequence[OperatingPoint], where: str = "") -> None:
        """Refuse operating points that the method of control cannot set.

        Parameters
        ----------
        points
            The points.
        where
            Stands before what is wrong with them.

        Raises
        ------
        ValueError
            If there is one.
        """
        method = self.control.method
        if method == "none" and not all(point.is_default for point in points):
            raise ValueError(
                f"{where}control.method none sets nothing: leave clocks_mhz, memory_clocks_mhz and power_limits_w at "
                "default, or choose method nvml"
            )
        for point in points:
            beyond = sorted(point.settings.keys() - self.control.settable)
            if beyond:
                raise ValueError(
                    f"{where}control.method {method} as it is configured cannot set {beyond[0]}, but {point} asks it"
                )

    @property
    def execution(self) -> list[ExecutionSettings]:
        """Settings under which operations are measured."""
        return list(dict.fromkeys(one for name in self.precision for one in ExecutionSettings(name).of_operations))

    def execution_of(
        self, wanted: Sequence[str] | None, operation: tuple[str, str] | None = None
    ) -> list[ExecutionSettings]:
        """Return the settings under which something is measured on this GPU.

        Parameters
        ----------
        wanted
            Settings of the networks that want it measured; None for all of the GPU.
        operation
            Class and dtype of an operation; None for a network.
        """
        asked = [ExecutionSettings(name) for name in (self.precision if wanted is None else wanted)]
        if operation is None:
            return [one for one in asked if one.precision in self.precision or one.precision not in FLOAT_PRECISIONS]
        measured, of_asked = (
            dict.fromkeys(ExecutionSettings(one).of_operation(*operation, self.execution) for one in settings)
            for settings in (self.precision, asked)
        )
        return [one for one in measured if one in of_asked]

    @property
    def points(self) -> list[OperatingPoint]:
        """The operating points, in the order in which the config names them."""
        return [
            OperatingPoint(*settings)
            for settings in itertools.product(self.clocks_mhz, self.memory_clocks_mhz, self.power_limits_w)
        ]

    @property
    def virtual_model(self) -> str | None:
        """Model of a virtual GPU, None for a real one."""
        return self.device.removeprefix("virtual:") if self.device.startswith("virtual:") else None
