"""Quantities of a calibration, and the values that measuring needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from clockwatt.gpu.sensing.sensors import SensorTraits
from clockwatt.io import files
from clockwatt.schema.quantities import CalibrationQuantity
from clockwatt.schema.records import CALIBRATION_SCHEMA

HOST, DEVICE, POWER_LIMIT = "host", "device", "power_limit"
"""Bottlenecks of back-to-back calls, each with a repeatability of its own."""


@dataclass(frozen=True)
class Calibration:
    """Calibration of a GPU at an operating point; missing entries are not known.

    Attributes
    ----------
    sensors
        Update period and averaging window of each power sensor.
    repeatability
        (quantity, bottleneck) to the relative deviation (root mean square) of measurements from a sustained one of the
        same operation, beyond what their own errors explain.
    """

    sensors: Mapping[str, SensorTraits] = field(default_factory=dict)
    repeatability: Mapping[tuple[str, str], float] = field(default_factory=dict)

    def error_between(self, quantity: str, pace: str) -> float:
        """Return relative standard error that a measurement has beyond its own; 0 where it is not known."""
        return self.repeatability.get((quantity, pace), 0.0)


def read(path: Path) -> Calibration:
    """Read what `clockwatt calibrate` wrote.

    Raises
    ------
    DataFileError
        If the file is missing or damaged.
    """
    columns = ["quantity", "subject", "value"]
    sensors: dict[str, dict[str, float | None]] = {}
    repeatability: dict[tuple[str, str], float] = {}
    for row in files.read_table(path, CALIBRATION_SCHEMA, columns).to_pylist():
        quantity, subject, value = row["quantity"], row["subject"], row["value"]
        if quantity in (CalibrationQuantity.SENSOR_PERIOD, CalibrationQuantity.SENSOR_WINDOW):
            sensors.setdefault(subject, {})[quantity] = value
        elif (
            quantity in (CalibrationQuantity.TIME_REPEATABILITY, CalibrationQuantity.POWER_REPEATABILITY)
            and value is not None
        ):
            repeatability[quantity, subject] = value
    traits = {
        name: SensorTraits(found.get(CalibrationQuantity.SENSOR_PERIOD), found.get(CalibrationQuantity.SENSOR_WINDOW))
        for name, found in sensors.items()
    }
    return Calibration(traits, repeatability)
