"""Quantities that a calibration measures of a GPU and its host, each with its unit in its name."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

UNRESTED = "unrested"
"""Begins the name of a run that follows another one without a rest, in rows of `power_transient_w`."""


class CalibrationQuantity(StrEnum):
    """A quantity of the calibration.

    Attributes
    ----------
    meaning
        What it says.
    subject
        What the column `subject` names in its rows; empty where it is null.
    """

    meaning: str
    subject: str

    def __new__(cls, name: str, meaning: str, subject: str = "") -> Self:
        """Return a member that is its name."""
        member = str.__new__(cls, name)
        member._value_ = name
        member.meaning, member.subject = meaning, subject
        return member

    SENSOR_PERIOD = ("sensor_period_s", "how often a power sensor updates", "sensor")
    SENSOR_WINDOW = ("sensor_window_s", "time that a power sensor averages over", "sensor")
    IDLE_POWER = ("power_idle_w", "idle power, context alive, clock locked")
    HOST_PER_CALL = ("host_time_per_call_s", "host time to issue one call", "pass")
    HOST_PER_MODULE = ("host_time_per_module_s", "host time that entering a module's forward adds", "pass")
    HOST_ADDED_PER_CALL = (
        "host_time_added_per_call_s",
        "host time that a forward call takes longer in a network than in a loop of its own",
        "pass",
    )
    HOST_PER_BACKWARD_CALL = ("host_time_per_backward_call_s", "host time of starting a backward pass")
    DEVICE_ADDED_PER_CALL = (
        "device_time_added_per_call_s",
        "device time that a call with device work takes longer in a network than after itself",
        "pass",
    )
    TIME_AGAINST_ITERATIONS = (
        "time_per_call_s",
        "time per call of so many calls (`x`) back to back",
        "reference operation",
    )
    POWER_TRANSIENT = ("power_transient_w", "power so many seconds (`x`) after a load began", "run and sensor")
    TIME_REPEATABILITY = (
        "time_repeatability",
        "relative deviation in time of short measurements from a sustained one, beyond their own errors",
        "bottleneck",
    )
    POWER_REPEATABILITY = ("power_repeatability", "likewise, power", "bottleneck")
