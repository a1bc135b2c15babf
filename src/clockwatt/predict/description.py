"""Description of a folder of predictors, kept as JSON in it, and paths of the shipped folders."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from clockwatt.config import OperatingPoint
from clockwatt.errors import DataFileError, RequestError
from clockwatt.gpu.specs import GpuSpec, UnknownGpuError, find_spec
from clockwatt.io.resources import resource
from clockwatt.predict.composition.overheads import Overheads
from clockwatt.predict.evaluation.errors import Interval
from clockwatt.predict.evaluation.pass_errors import PassErrors
from clockwatt.predict.features.points import Setting
from clockwatt.predict.models.clock_law import POWER_CLOCKS, neighbours
from clockwatt.predict.training_rows import DEVICE_AND_HOST
from clockwatt.schema import layout
from clockwatt.schema.execution import FP32, ExecutionSettings, execution_of_json

_NETWORKS_OF = "h200"
"""Reference data whose catalogue has networks."""


def shipped_predictors() -> Path:
    """Folder of the predictors."""
    return resource(str(layout.PREDICTORS))


def shipped_validation() -> Path:
    """Folder of what choices and compositions by them were compared with."""
    return resource(str(layout.VALIDATION))


def shipped_catalogue() -> Path:
    """Folder of the catalogue of networks that were measured on the shipped GPUs."""
    return resource(f"reference/{_NETWORKS_OF}") / layout.CATALOGUE


def is_shipped(folder: Path) -> bool:
    """Return whether predictors in `folder` are shipped ones, not a campaign's."""
    return folder.resolve().is_relative_to(shipped_predictors().resolve())


class NotPredictableError(RequestError):
    """The predictors cannot answer this question."""


def fitted_gpus(predictors_dir: Path) -> dict[str, int]:
    """Labels of the GPUs that `clockwatt fit` last wrote predictors of, sorted, and how much was measured on each.

    Folders are not listed: a folder may belong to a GPU that is no longer in the campaign. DataFileError if there are
    none, or the file that lists them is damaged.
    """
    path = predictors_dir / layout.METRICS_FILE
    try:
        gpus = json.loads(path.read_text(encoding="utf-8"))["gpus"]
        labels = {str(label): int(gpus[label].get("measurements", 0)) for label in sorted(gpus)}
    except FileNotFoundError:
        labels = {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataFileError(f"{path}: not a list of predictors ({error}). Run `clockwatt fit` again.") from error
    if not labels:
        raise DataFileError(f"{predictors_dir}: holds no predictors. Run `clockwatt fit`, or give another folder.")
    return labels


@dataclass(frozen=True)
class PassDescription:
    """Data about one pass, besides the fitted predictors.

    Attributes
    ----------
    intervals
        Predictor to target to operation class to interval for a scale of 1. The spread of the trees gives the scale.
        `ANY_CLASS` is for classes without an interval. A target without held-out residuals has no interval.
    learnt_points
        Operating points trained on; the clock model extrapolates costs to other clocks.
    workless_host_s
        Operation class to median host time of calls without device work; `ANY_CLASS` for all of them.
    errors
        Model of how errors of operations add up in a network, estimated from held-out networks; None where none was
        measured whole.
    networks_measured
        `time_s`, `energy_j` and `power_w` of whole networks to their intervals where every operation was measured;
        empty where there are no such.
    call_times
        Pooled host times, see `costs.calls.call_times`; empty in folders of older fits.
    lacks
        Missing quantities, `training_rows.ENERGY` or `DEVICE_AND_HOST`, to the reason; empty where none is missing.
    """

    intervals: dict[str, dict[str, dict[str, Interval]]]
    learnt_points: list[str]
    workless_host_s: dict[str, float]
    errors: PassErrors | None = None
    networks_measured: dict[str, Interval] = field(default_factory=dict)
    call_times: dict[str, list[list[float]]] = field(default_factory=dict)
    lacks: dict[str, str] = field(default_factory=dict)

    @property
    def summed(self) -> bool:
        """Whether a pass is the sum of back-to-back times, since device and host were not measured separately."""
        return DEVICE_AND_HOST in self.lacks


@dataclass(frozen=True)
class GpuDescription:
    """Description of a folder of predictors.

    Attributes
    ----------
    gpu, gpu_name
        The campaign's label, and the NVML name.
    virtual
        Whether all of it rests on a modelled GPU.
    predictors
        Names in order; the first is used for predictions.
    execution
        Settings that were measured.
    points
        Operating points that were measured, and their calibrated costs.
    passes
        Pass to its description; a pass that could not be fitted is missing.
    clockwatt_version
        Version that fitted the predictors.
    """

    gpu: str
    gpu_name: str
    virtual: bool
    predictors: list[str]
    execution: list[ExecutionSettings]
    points: dict[str, Overheads]
    clockwatt_version: str
    passes: dict[str, PassDescription] = field(default_factory=dict)

    @property
    def workless_host_s(self) -> dict[str, dict[str, float]]:
        """Pass to operation class to host time of calls without device work."""
        return {pass_: known.workless_host_s for pass_, known in self.passes.items()}

    @property
    def spec(self) -> GpuSpec:
        """Of the GPU model."""
        return find_spec(self.gpu_name)

    def is_twin_of(self, other: GpuDescription) -> bool:
        """Return whether two GPUs have the same chip, and differ in memory alone."""
        try:
            return self.spec.is_twin_of(other.spec)
        except UnknownGpuError:
            return False

    def point_for(self, point: str) -> str:
        """Return the operating point to predict at: the boost clock for `default` where only clocks were measured."""
        clocked = neighbours(OperatingPoint(), list(self.points))
        if point != str(OperatingPoint()) or point in self.points or len(clocked) < POWER_CLOCKS:
            return point
        return str(OperatingPoint(sm_clock_mhz=self.spec.sm_clock_mhz.boost))

    def check_runs_at(self, point: str) -> None:
        """Refuse an operating point that the card cannot run at.

        Raises
        ------
        NotPredictableError
            Naming the point and what the card has.
        ConfigError
            If `point` is no operating point.
        """
        wanted, spec = OperatingPoint.parse(point), self.spec
        for asked, low, high, unit in (
            (wanted.sm_clock_mhz, spec.sm_clock_mhz.min, spec.sm_clock_mhz.max, "MHz"),
            (wanted.memory_clock_mhz, min(spec.memory_clocks_mhz), max(spec.memory_clocks_mhz), "MHz of memory"),
            (wanted.power_limit_w, spec.power_w.min, spec.power_w.max, "W"),
        ):
            if asked is not None and not low <= asked <= high and point not in self.points:
                has = f"{low:g} to {high:g}" if low < high else f"{low:g}"
                raise NotPredictableError(f"{self.gpu} cannot run at {point}: it has {has} {unit}.")

    def is_led_to(self, point: str) -> bool:
        """Return whether an operating point was measured, or the clock model can extrapolate to it."""
        wanted = OperatingPoint.parse(point)
        by_law = wanted.sm_clock_mhz is not None and len(neighbours(wanted, list(self.points))) >= POWER_CLOCKS
        return point in self.points or by_law

    def point_warning(self, point: str) -> str | None:
        """Return a warning for an operating point not measured; None where the clock model can extrapolate to it."""
        if point in self.points:
            return None
        if not self.is_led_to(point):
            return (
                f"Not measured at {point}, and cannot extrapolate from {', '.join(self.points)}: the clock model "
                f"needs {POWER_CLOCKS} measured SM clocks or more, at the same memory clock and power limit."
            )
        wanted = OperatingPoint.parse(point)
        assert wanted.sm_clock_mhz is not None
        clocks = [OperatingPoint.parse(name).sm_clock_mhz or 0 for name in neighbours(wanted, list(self.points))]
        if min(clocks) <= wanted.sm_clock_mhz <= max(clocks):
            return None
        return f"{point} lies outside the measured clocks, {min(clocks)} to {max(clocks)} MHz."

    def overheads(self, point: str) -> Overheads:
        """Return overheads at an operating point; where it was not measured, those of the nearest SM clock.

        Operating points with the same power limit come first. NotPredictableError if no operating point was measured.
        """
        if point in self.points:
            return self.points[point]
        if not self.points:
            raise NotPredictableError(f"{self.gpu}: no calibrated operating point. Run `clockwatt fit` again.")
        wanted, boost = OperatingPoint.parse(point), self.spec.boost_clock_mhz

        def distance(name: str) -> tuple[bool, int]:
            other = OperatingPoint.parse(name)
            clocks = (other.sm_clock_mhz or boost) - (wanted.sm_clock_mhz or boost)
            return other.power_limit_w != wanted.power_limit_w, abs(clocks)

        nearest = min(self.points, key=distance)
        if OperatingPoint.parse(nearest).power_limit_w == wanted.power_limit_w:
            return self.points[nearest]
        limit_w = Setting(self.spec, wanted, execution=FP32).power_limit_w
        return replace(self.points[nearest], power_limit_w=limit_w)

    def to_json(self) -> str:
        """Return the description as JSON text."""
        return json.dumps(asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read JSON text; ValueError, KeyError, TypeError or AttributeError if it is not a description."""
        content: dict[str, Any] = json.loads(text)
        settings = execution_of_json(content)
        passes = {
            name: PassDescription(
                intervals={
                    predictor: {target: _intervals(of_classes) for target, of_classes in of_targets.items()}
                    for predictor, of_targets in entry["intervals"].items()
                },
                learnt_points=[str(point) for point in entry["learnt_points"]],
                workless_host_s={str(key): float(value) for key, value in entry["workless_host_s"].items()},
                errors=_errors(entry["errors"]),
                networks_measured=_intervals(entry["networks_measured"]),
                call_times=entry.get("call_times", {}),
                lacks=entry.get("lacks", {}),
            )
            for name, entry in content.pop("passes").items()
        }
        points = {point: Overheads.from_dict(costs) for point, costs in content.pop("points").items()}
        return cls(**content, execution=settings, points=points, passes=passes)


def _errors(entry: dict[str, Any] | None) -> PassErrors | None:
    if entry is None:
        return None
    own = {name: Interval(**interval) for name, interval in entry.items() if isinstance(interval, dict)}
    return PassErrors(**entry | own)


def _intervals(intervals: dict[str, dict[str, Any]]) -> dict[str, Interval]:
    return {name: Interval(**interval) for name, interval in intervals.items()}
