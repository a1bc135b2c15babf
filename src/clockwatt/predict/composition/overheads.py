"""Overheads of an operating point and of a network, beyond the costs of calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from clockwatt.io import files
from clockwatt.schema import layout
from clockwatt.schema.quantities import CalibrationQuantity
from clockwatt.schema.records import CALIBRATION_SCHEMA, INFERENCE, TRAINING


@dataclass(frozen=True)
class HostOverheads:
    """Host times of one pass beyond its calls; None where not known.

    Attributes
    ----------
    call_s
        Time to issue one call.
    module_s
        Time that entering a module's forward adds.
    forward_call_s
        Extra time of a forward call in a network, where different calls follow each other, compared with a loop of the
        same call.
    backward_start_s
        Time to start a backward pass, once per pass.
    """

    call_s: float | None = None
    module_s: float | None = None
    forward_call_s: float | None = None
    backward_start_s: float | None = None

    def completed(self, other: HostOverheads) -> HostOverheads:
        """Return the overheads with those of another GPU where they are not known."""
        return HostOverheads(
            **{
                name: other_s if (own_s := getattr(self, name)) is None else own_s
                for name, other_s in vars(other).items()
            }
        )

    def scaled(self, factor: float) -> HostOverheads:
        """Return the overheads of a host whose calls cost `factor` times as much."""
        known = (self.call_s, self.module_s, self.forward_call_s, self.backward_start_s)
        return HostOverheads(*(None if value is None else factor * value for value in known))


@dataclass(frozen=True)
class PassOverheads:
    """Overheads of one pass beyond its calls; None where not known.

    Attributes
    ----------
    host
        Host overheads.
    gap_s
        Extra device time of a call with device work in a network, compared with repetitions of the same call.
    grouped_gap_s
        The same in training of networks with grouped convolutions. cuDNN computes some of their gradients on several
        streams at once; while such work waits in the queue, a device starts all other kernels later too.
    dynamic_factor
        Dynamic energy in a network relative to that of its operations alone, whose random inputs have no zeros.
    """

    host: HostOverheads = HostOverheads()
    gap_s: float | None = None
    grouped_gap_s: float | None = None
    dynamic_factor: float | None = None

    def completed(self, other: PassOverheads) -> PassOverheads:
        """Return the overheads with those of another GPU where they are not known."""
        known = {name: value for name, value in vars(self).items() if value is not None}
        return replace(other, **known | {"host": self.host.completed(other.host)})

    def gap_of(self, *, grouped: bool) -> float:
        """Return device time between calls of a network, with or without grouped convolutions; 0 if unknown."""
        known_s = self.grouped_gap_s if grouped and self.grouped_gap_s is not None else self.gap_s
        return max(0.0, known_s or 0.0)


@dataclass(frozen=True)
class Overheads:
    """Overheads at one operating point, calibrated or estimated from networks; None where not known.

    Attributes
    ----------
    inference, training
        Overheads of each pass.
    power_idle_w
        Idle power, context alive, clock locked.
    power_limit_w
        Observed while measuring; else that of the operating point, or the GPU model's default.
    """

    inference: PassOverheads = PassOverheads()
    training: PassOverheads = PassOverheads()
    power_idle_w: float | None = None
    power_limit_w: float | None = None

    def of(self, pass_: str) -> PassOverheads:
        """Return the overheads of one pass."""
        return self.training if pass_ == TRAINING else self.inference

    def completed(self, other: Overheads) -> Overheads:
        """Return the overheads with those of another GPU where they are not known; powers are the card's own."""
        inference, training = self.inference.completed(other.inference), self.training.completed(other.training)
        return replace(self, inference=inference, training=training)

    def on_host(self, factor: float) -> Overheads:
        """Return the overheads on a host whose calls cost `factor` times as much."""
        if factor == 1.0:
            return self
        inference, training = (replace(own, host=own.host.scaled(factor)) for own in (self.inference, self.training))
        return replace(self, inference=inference, training=training)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Overheads:
        """Make it from the output of `dataclasses.asdict`; KeyError, TypeError or ValueError if it is not one."""

        def number(value: Any) -> float | None:
            return None if value is None else float(value)

        def of_pass(own: Mapping[str, Any]) -> PassOverheads:
            host = HostOverheads(**{name: number(value) for name, value in own["host"].items()})
            return PassOverheads(
                host, *(number(own.get(name)) for name in ("gap_s", "grouped_gap_s", "dynamic_factor"))
            )

        passes = of_pass(values["inference"]), of_pass(values["training"])
        return cls(*passes, number(values["power_idle_w"]), number(values["power_limit_w"]))


def read_calibrated(dataset_dir: Path, gpu: str) -> dict[str, Overheads]:
    """Return calibrated overheads of one GPU by operating point.

    DataFileError if the dataset has no calibration or it is damaged.
    """
    columns = ["gpu", "point", "quantity", "subject", "value"]
    table = files.read_table(dataset_dir / layout.CALIBRATION_FILE, CALIBRATION_SCHEMA, columns)
    values: dict[str, dict[tuple[str, str | None], float]] = {}
    for row in table.filter(pc.equal(table["gpu"], gpu)).to_pylist():
        of_point = values.setdefault(row["point"], {})
        if row["value"] is not None:
            of_point[row["quantity"], row["subject"]] = row["value"]
    return {
        point: Overheads(
            _of_pass(found, INFERENCE), _of_pass(found, TRAINING), found.get((CalibrationQuantity.IDLE_POWER, None))
        )
        for point, found in values.items()
    }


def _of_pass(found: Mapping[tuple[str, str | None], float], pass_: str) -> PassOverheads:
    host = HostOverheads(
        call_s=found.get((CalibrationQuantity.HOST_PER_CALL, pass_)),
        module_s=found.get((CalibrationQuantity.HOST_PER_MODULE, pass_)),
        forward_call_s=found.get((CalibrationQuantity.HOST_ADDED_PER_CALL, pass_)),
        backward_start_s=found.get((CalibrationQuantity.HOST_PER_BACKWARD_CALL, None)) if pass_ == TRAINING else None,
    )
    return PassOverheads(host, found.get((CalibrationQuantity.DEVICE_ADDED_PER_CALL, pass_)))
