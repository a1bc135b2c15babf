"""How operations are measured and sensors are read."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from clockwatt.config.model import Model, one_or_more

Quantity = Literal["time", "energy"]


def _time_is_among(quantities: list[Quantity]) -> list[Quantity]:
    if "time" not in quantities or len(set(quantities)) != len(quantities):
        raise ValueError("write [time] or [time, energy]: energy is got from power and time")
    return quantities


Quantities = Annotated[list[Quantity], one_or_more(Quantity), AfterValidator(_time_is_among)]
"""What is measured of an operation or a network."""


class TelemetryConfig(Model):
    """Periods of the logger's three sampling rates."""

    fast_period_s: float = Field(0.1, gt=0.01, le=10, description="power, energy counter, clocks, throttle reasons")
    slow_period_s: float = Field(1.0, gt=0.05, le=60, description="PCIe, temperature, utilisation, host")
    ring_period_s: float = Field(1.0, gt=0.05, le=2, description="how often the driver's ring buffer of power is read")
    segment_s: float = Field(5.0, gt=0.5, le=60, description="length of a Parquet segment; a kill loses at most one")
    sensor_cpu_share: float = Field(
        0.02,
        gt=0,
        le=1,
        description="largest share of a core for one sensor at the fast rate; an expensive one is read less often",
    )


class MeasurementConfig(Model):
    """How an operation is measured."""

    precision: float = Field(
        0.02, gt=0, lt=1, description="95 % half-width of time and power at which measuring may stop, relative"
    )
    warm_up_min_s: float = Field(0.3, ge=0, le=60, description="shortest warm-up by back-to-back calls")
    warm_up_max_s: float = Field(
        2.0, ge=0, le=600, description="longest warm-up; rows are flagged if time, power or clock still change"
    )
    window_min_s: float = Field(
        0.5, gt=0.1, le=600, description="shortest window of back-to-back calls in which power is read"
    )
    window_max_s: float = Field(
        1.0, gt=0.1, le=600, description="longest such window, if the precision is not reached before"
    )
    idle_s: float = Field(3.0, gt=0.3, le=600, description="how long idle power is read each time")
    check_every_s: float = Field(
        300.0, gt=10, description="idle power and the reference operations are measured again after this time"
    )
    rest_to_c: float | None = Field(None, gt=0, le=120, description="temperature to cool down to before a measurement")
    rest_max_s: float = Field(600.0, gt=0, description="longest such rest; if it is reached, a warning is printed")
    repetitions: int = Field(1, ge=1, le=100, description="times every operation is measured, in fresh shuffled orders")
    working_set: Literal["parameters_cold", "all_cold", "hot"] = Field(
        "parameters_cold", description="which tensors are cycled through copies that together exceed the L2 cache"
    )

    @model_validator(mode="after")
    def _durations_are_ordered(self) -> Self:
        if self.window_max_s < self.window_min_s:
            raise ValueError("window_max_s is below window_min_s")
        if self.warm_up_max_s < self.warm_up_min_s:
            raise ValueError("warm_up_max_s is below warm_up_min_s")
        return self
