"""What an operating point costs beside the calls themselves: on the host, on the device, idle power, power limit."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

import pyarrow.compute as pc

from clockwatt.io import files
from clockwatt.schema import tables
from clockwatt.schema.records import CALIBRATION_SCHEMA, INFERENCE, TRAINING

_PER_CALL = "host_time_per_call_s"


@dataclass(frozen=True)
class PointCosts:
    """Costs at one operating point, calibrated or told by whole networks; None where they are not known.

    Attributes
    ----------
    power_idle_w
        Idle power, context alive, clock locked.
    per_call_inference_s, per_call_training_s
        Host time to issue one call.
    per_module_inference_s, per_module_training_s
        Host time that entering a module's forward adds.
    added_per_call_inference_s, added_per_call_training_s
        Host time that a forward call takes longer in a network, where many different ones follow each other, than in a
        loop of its own.
    per_backward_call_s
        Host time of starting a backward pass: a network pays it once.
    device_per_call_inference_s, device_per_call_training_s
        Device time that a call with device work takes longer in a network than after itself.
    device_per_call_grouped_s
        The same in training of networks with grouped convolutions. cuDNN computes some of their gradients on several
        streams at once; while such work waits in the queue, a device starts all other kernels later too.
    power_limit_w
        As seen when measuring; else what the operating point asks for, or the GPU model's default.
    """

    power_idle_w: float | None = None
    per_call_inference_s: float | None = None
    per_call_training_s: float | None = None
    per_module_inference_s: float | None = None
    per_module_training_s: float | None = None
    added_per_call_inference_s: float | None = None
    added_per_call_training_s: float | None = None
    per_backward_call_s: float | None = None
    device_per_call_inference_s: float | None = None
    device_per_call_training_s: float | None = None
    device_per_call_grouped_s: float | None = None
    power_limit_w: float | None = None

    def per_call_s(self, pass_: str) -> float | None:
        """Host time to issue one call in a pass."""
        return self.per_call_training_s if pass_ == TRAINING else self.per_call_inference_s

    def per_module_s(self, pass_: str) -> float:
        """Host time that entering a module adds in a pass; 0 where it is not known."""
        return (self.per_module_training_s if pass_ == TRAINING else self.per_module_inference_s) or 0.0

    def added_per_call_s(self, pass_: str) -> float:
        """Host time that a network adds to a forward call in a pass; 0 where it is not known."""
        return (self.added_per_call_training_s if pass_ == TRAINING else self.added_per_call_inference_s) or 0.0

    def device_per_call_s(self, pass_: str, *, grouped: bool = False) -> float:
        """Device time that a network adds to a call with device work in a pass; 0 where it is not known.

        `grouped` is whether the network has grouped convolutions.
        """
        known_s = self.device_per_call_training_s if pass_ == TRAINING else self.device_per_call_inference_s
        if grouped and pass_ == TRAINING and self.device_per_call_grouped_s is not None:
            known_s = self.device_per_call_grouped_s
        return max(0.0, known_s or 0.0)

    def or_idle_power(self, power_idle_w: float | None) -> Self:
        """The same, with this idle power where the calibration has none."""
        return self if self.power_idle_w is not None else replace(self, power_idle_w=power_idle_w)

    def on_host(self, factor: float) -> Self:
        """The same on a host whose calls cost `factor` times as much."""
        on_host = [entry.name for entry in fields(self) if entry.name.startswith(("per_", "added_"))]
        known = {name: value for name in on_host if (value := getattr(self, name)) is not None}
        return replace(self, **{name: factor * value for name, value in known.items()})

    def to_dict(self) -> dict[str, float | None]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """From JSON."""
        return cls(**{name: None if value is None else float(value) for name, value in values.items()})


_FIELDS = {
    ("power_idle_w", None): "power_idle_w",
    (_PER_CALL, INFERENCE): "per_call_inference_s",
    (_PER_CALL, TRAINING): "per_call_training_s",
    ("host_time_per_module_s", INFERENCE): "per_module_inference_s",
    ("host_time_per_module_s", TRAINING): "per_module_training_s",
    ("host_time_added_per_call_s", INFERENCE): "added_per_call_inference_s",
    ("host_time_added_per_call_s", TRAINING): "added_per_call_training_s",
    ("host_time_per_backward_call_s", None): "per_backward_call_s",
    ("device_time_added_per_call_s", INFERENCE): "device_per_call_inference_s",
    ("device_time_added_per_call_s", TRAINING): "device_per_call_training_s",
}


def read_point_costs(dataset_dir: Path, gpu: str) -> dict[str, PointCosts]:
    """Calibrated costs of one GPU by operating point.

    Raises
    ------
    DataFileError
        If the dataset has no calibration or it is damaged.
    """
    columns = ["gpu", "point", "quantity", "subject", "value"]
    table = files.read_table(dataset_dir / tables.CALIBRATION_FILE, CALIBRATION_SCHEMA, columns)
    values: dict[str, dict[str, float]] = {}
    for row in table.filter(pc.equal(table["gpu"], gpu)).to_pylist():
        of_point = values.setdefault(row["point"], {})
        name = _FIELDS.get((row["quantity"], row["subject"]))
        if name is not None and row["value"] is not None:
            of_point[name] = row["value"]
    return {point: PointCosts(**of_point) for point, of_point in values.items()}
