"""Description of a folder of predictors, kept as JSON in it, its model card, and paths of the shipped folders."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import TypeAdapter

from clockwatt.config import OperatingPoint
from clockwatt.errors import DataFileError, RequestError
from clockwatt.gpu.specs import GpuSpec, UnknownGpuError, find_spec
from clockwatt.io.resources import resource
from clockwatt.predict.composition.pipeline import Overheads
from clockwatt.predict.evaluation.errors import CONFORMAL, COVERAGE, STUDENT_T, Interval
from clockwatt.predict.evaluation.pass_errors import PassErrors
from clockwatt.predict.features import Setting, settings_of
from clockwatt.predict.models.clock_law import POWER_CLOCKS, neighbours
from clockwatt.predict.models.training_data import DEVICE_AND_HOST
from clockwatt.schema import layout
from clockwatt.schema.costs import (
    BACK_TO_BACK,
    ENERGY_DYNAMIC_CORRECTED,
    POWER_CORRECTED,
    TIME_DEVICE_CORRECTED,
    TIME_HOST_CORRECTED,
)
from clockwatt.schema.execution import FP32, TF32, ExecutionSettings, execution_of_json

T = TypeVar("T")
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


def known_settings(descriptions: Iterable[GpuDescription]) -> set[ExecutionSettings]:
    """Return the settings that operations were measured under on one of the GPUs.

    `fp32` of a GPU without TF32 is left out where others have `tf32`: it stands for all settings of float32.
    """
    described = list(descriptions)
    known = {one for of in described if not of.without_tf32 for one in of.execution}
    exact = {one for of in described if of.without_tf32 for one in of.execution}
    return known | (exact - {FP32} if TF32 in known else exact)


def fitted_gpus(predictors_dir: Path) -> dict[str, int]:
    """Labels of the GPUs that `clockwatt fit` last wrote predictors of, sorted, and how much was measured on each.

    Folders are not listed: a folder may belong to a GPU that is no longer in the campaign. DataFileError if there are
    none, or the file that lists them is damaged.
    """
    path = predictors_dir / layout.METRICS_FILE
    try:
        gpus = json.loads(path.read_text(encoding="utf-8"))["gpus"]
        labels = {str(label): int(gpus[label].get("measurements", 0)) for label in sorted(gpus)}
    except (FileNotFoundError, NotADirectoryError):
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
        `time_s`, `energy_j` and `power_w` of device-bound networks to their intervals where every operation was
        measured; empty where there are no such.
    call_times
        Pooled host times, see `measured_costs.call_times`; empty in folders of older fits.
    lacks
        Missing quantities, `training_data.ENERGY` or `DEVICE_AND_HOST`, to the reason; empty where none is missing.
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
        Whether all of it rests on a virtual GPU.
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

    @property
    def without_tf32(self) -> bool:
        """Whether TF32 settings change nothing: the GPU has no TF32, and no measurement says `tf32`."""
        return TF32 not in self.execution and self.spec.flop_per_cycle_per_sm.tf32 is None

    def settings_of(self, operations: pd.DataFrame, execution: ExecutionSettings) -> NDArray[np.object_]:
        """Return the settings under which each operation of a network runs on this GPU; shape (operations,)."""
        return settings_of(operations, FP32 if self.without_tf32 else execution, self.execution)

    def runs_as(self, execution: ExecutionSettings) -> ExecutionSettings:
        """Return the settings under which a whole network runs on this GPU: of float32 `fp32`, without TF32."""
        return execution.without_tf32 if self.without_tf32 else execution

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
                f"{point} was not measured. To estimate it, measure at least {POWER_CLOCKS} SM clocks at the same "
                f"memory clock and power limit. Measured: {', '.join(self.points)}."
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
        points = _reader(Overheads).validate_python(content.pop("points"))
        passes = _reader(PassDescription).validate_python(content.pop("passes"))
        return cls(**content, execution=settings, points=points, passes=passes)


@functools.cache
def _reader(kind: type[T]) -> TypeAdapter[dict[str, T]]:
    return TypeAdapter(dict[str, kind])  # type: ignore[valid-type]  # a type that is known when it runs


_NAMES = {
    TIME_DEVICE_CORRECTED: "device time",
    TIME_HOST_CORRECTED: "host time",
    BACK_TO_BACK: "back-to-back time",
    ENERGY_DYNAMIC_CORRECTED: "dynamic energy",
    POWER_CORRECTED: "power under load",
}
"""Quantities that are predicted, in words."""
_TARGETS = {
    name: f"{_NAMES[name]} of an operation"
    for name in (TIME_DEVICE_CORRECTED, TIME_HOST_CORRECTED, ENERGY_DYNAMIC_CORRECTED)
}
_SUMMED = {
    BACK_TO_BACK: "back-to-back time of an operation",
    POWER_CORRECTED: "power of an operation, back to back",
}
_WHOLE = {"time_s": "time of an unseen network", "energy_j": "energy of an unseen network"}
_WORST_CLASSES = 5
_FEWEST_ROWS = 10
"""Fewest rows of a class to list it among the worst; the error of fewer rows is uncertain."""
_MOST_REASONS = 4
_FEWEST_CLOCKS = 3
"""Fewest measured clocks to extrapolate costs to other clocks."""
_METHODS = {
    CONFORMAL: "conformal",
    STUDENT_T: "too few networks for a conformal interval: Student's t, if errors are normal",
}
_ERRORS = "R² | MAPE | median | 95th percentile | bias"


def time_target(of_predictor: dict[str, Any]) -> str:
    """Return the time to report errors of: device time, or back-to-back time where that alone was fitted."""
    known = [name for name in (TIME_DEVICE_CORRECTED, BACK_TO_BACK) if of_predictor["targets"][name]["rows"]]
    return known[0] if known else TIME_DEVICE_CORRECTED


def model_card(description: GpuDescription, report: dict[str, Any], *, details: str) -> str:
    """Return Markdown of the short page, from a GPU's description and its `report` in `metrics.json`."""
    fitted = {name: of_pass for name, of_pass in report["passes"].items() if of_pass["rows"]}
    reasons = sorted(report["not_learnt_from"].items(), key=lambda item: -item[1])[:_MOST_REASONS]
    points, execution = _measured_at(description)
    lines = [
        *_head(description, ""),
        "## Known limitations",
        "",
        *(f"- {sentence}" for sentence in _doubts(description, report, fitted)),
        "",
        "## Errors",
        "",
        "Median / 95th percentile of the error on held-out operations and networks (rows).",
        "",
        f"| | {' | '.join(fitted)} |",
        f"| --- |{' --- |' * len(fitted)}",
        *(f"| {row} |" for row in _errors_by_pass(description.predictors[0], fitted)),
        "",
        "## Data",
        "",
        f"- {report['measurements']} measurements of operations, fitted by clockwatt {description.clockwatt_version}",
        f"- {points}; {execution}",
        *(f"- excluded from training, {count} rows: {reason}" for reason, count in reasons),
        f"- every class, interval and network: [{details}]({details})",
    ]
    return "\n".join(lines) + "\n"


def _doubts(description: GpuDescription, report: dict[str, Any], fitted: dict[str, Any]) -> Iterator[str]:
    for pass_, of_pass in report["passes"].items():
        if not of_pass["rows"]:
            yield f"{pass_.capitalize()}: there was nothing to learn from, so nothing is answered."
    for pass_, of_pass in fitted.items():
        of_predictor, in_pass = of_pass["predictors"][description.predictors[0]], pass_.capitalize()
        time = time_target(of_predictor)
        known = {
            name: values["median_ape"]
            for name, values in of_predictor["classes"][time].items()
            if values["rows"] >= _FEWEST_ROWS and values["median_ape"] is not None
        }
        if known:
            worst = sorted(known.items(), key=lambda item: -item[1])[:_WORST_CLASSES]
            errors = ", ".join(f"{name} {percent(error)}" for name, error in worst)
            yield f"{in_pass}, classes of operations with the largest errors (median of {_NAMES[time]}): {errors}."
        beside = of_predictor["perceptrons"]
        if beside == {}:
            yield f"{in_pass}: the MLPs beside the forest were not validated, for too few operations."
        elif beside:
            both, forest = (
                f"{percent(beside[one + 'median'])} (median; 90th percentile {percent(beside[one + 'percentile_90'])})"
                for one in ("", "forest_")
            )
            yield (
                f"{in_pass}: errors below are the forest's. Of {beside['rows']:,} held-out operations, the error of "
                f"device time is {both} with the MLPs, and {forest} with the forest alone, both fitted without a fifth "
                f"of the groups. So intervals of device time are taken to the power of {beside['width']:.2f}. Energies "
                f"were not validated with the MLPs."
            )
        if of_pass["networks_left_out"] is None:
            yield f"{in_pass}: no network was held out, so the error on one is unknown."
        for quantity, why in description.passes[pass_].lacks.items():
            yield f"{in_pass}: no {quantity} is answered, since {why}."
    asked = [OperatingPoint.parse(point).sm_clock_mhz for point in description.points]
    clocks = {clock for clock in asked if clock is not None}
    if len(clocks) < _FEWEST_CLOCKS:
        points = ", ".join(description.points)
        yield f"Other operating points than {points}: the clock model needs three measured clocks."
    else:
        yield f"SM clocks outside {min(clocks)} to {max(clocks)} MHz."
    yield "Operations of classes and sizes that were not measured: trees do not extrapolate, only the roofline does."
    if any(not description.passes[pass_].summed for pass_ in fitted):
        yield (
            "Another host: answers are for the median measured host, running nothing else. Hosts differ by a factor of "
            "up to three."
        )
    else:
        yield "Another host: back-to-back times hold for the one that they were measured with."
    yield "Another card: cards of one model differ by about 2 % in time and 4 % in energy, in all operations alike."
    yield f"Intervals: they hold {COVERAGE:.0%} of operations of the measured kinds, and fewer of others."


def _errors_by_pass(name: str, fitted: dict[str, Any]) -> Iterator[str]:
    """Return rows of a table of quantities by pass."""
    timed = {time_target(of_pass["predictors"][name]) for of_pass in fitted.values()}
    shown = ({} if timed == {BACK_TO_BACK} else _TARGETS) | (_SUMMED if BACK_TO_BACK in timed else {})
    sources = [(shown, [of_pass["predictors"][name]["targets"] for of_pass in fitted.values()])]
    left_out = [of_pass["networks_left_out"] or {} for of_pass in fitted.values()]
    sources.append((_WHOLE, [of_networks.get("compositions", {}) for of_networks in left_out]))
    for quantities, of_passes in sources:
        for quantity, words in quantities.items():
            yield " | ".join([words, *(_median_and_95th(of_pass.get(quantity)) for of_pass in of_passes)])


def _median_and_95th(values: dict[str, Any] | None) -> str:
    if values is None or not values["rows"]:
        return "–"
    return f"{percent(values['median_ape'])} / {percent(values['p95_ape'])} ({values['rows']})"


def model_card_details(description: GpuDescription, report: dict[str, Any]) -> str:
    """Return Markdown of the details, from a GPU's description and its entry `report` of `metrics.json`."""
    excluded = report["not_learnt_from"]
    lines = [
        *_head(description, " in detail"),
        f"Fitted by clockwatt {description.clockwatt_version} on {report['measurements']} measurements of operations.",
        "",
        *(f"- {said}" for said in _measured_at(description)),
        "",
        "Excluded from training:",
        "",
        *([f"- {reason}: {count}" for reason, count in excluded.items()] or ["- nothing was left out"]),
        "",
    ]
    for pass_, of_pass in report["passes"].items():
        lines += [f"## {pass_.capitalize()}", ""]
        if not of_pass["rows"]:
            lines += [f"Nothing to learn from (rows left out, in all passes: {sum(excluded.values())}).", ""]
            continue
        for name, of_predictor in of_pass["predictors"].items():
            lines += _of_predictor(name, of_pass["rows"], of_predictor)
        lines += [
            *_left_out(of_pass["networks_left_out"]),
            *_measured(of_pass["networks_measured"]),
            "",
            f"Trained on {', '.join(of_pass['learnt_points'])}; other SM clocks are extrapolated with the clock model.",
            "",
        ]
    return "\n".join(lines).rstrip("\n") + "\n"


def _of_predictor(name: str, rows: int, of_predictor: dict[str, Any]) -> list[str]:
    """Return tables of errors and intervals, over all and by class, the worst first."""
    intervals = of_predictor["intervals"]
    targets = (
        f"{_NAMES[target]} | {_error_cells(values)} | {_interval_cells(intervals.get(target))}"
        for target, values in of_predictor["targets"].items()
    )
    time = time_target(of_predictor)
    energy = POWER_CORRECTED if time == BACK_TO_BACK else ENERGY_DYNAMIC_CORRECTED
    errors = of_predictor["classes"][time]
    columns = " | ".join(f"{_NAMES[target]}: MAPE | median | interval covers" for target in (time, energy))
    classes = []
    for class_ in sorted(errors, key=lambda key: -(errors[key]["mape"] or 0.0)):
        cells = [class_, str(errors[class_]["rows"])]
        for target in (time, energy):
            values = of_predictor["classes"][target].get(class_, {})  # none where time alone was measured
            covered = intervals.get(target, {}).get("classes", {}).get(class_, {})
            shares = (values.get("mape"), values.get("median_ape"), covered.get("held_out_coverage"))
            cells += [percent(share) for share in shares]
        classes.append(" | ".join(cells))
    return [
        f"### {name}",
        "",
        f"{rows} rows, {of_predictor['folds']} folds grouped by operation class and channels.",
        "",
        *_table(f"quantity | {_ERRORS} | interval of rarer classes | intervals cover", targets),
        "By operation class, the worst first:",
        "",
        *_table(f"class | rows | {columns}", classes),
    ]


def _left_out(report: dict[str, Any] | None) -> list[str]:
    """Return tables of errors on held-out networks, of their operations and of whole passes."""
    lines = ["### Held-out networks", ""]
    if report is None:
        return [*lines, "None: no further network was measured whole.", ""]
    lines += [
        (
            f"{', '.join(report['networks'])}: each predicted without MLPs, by a predictor fitted without the "
            "operations that only this network calls. Errors on these operations; operations that others call too were "
            "trained on."
        ),
        "",
    ]
    for target in (TIME_DEVICE_CORRECTED, ENERGY_DYNAMIC_CORRECTED):
        rows = {"all": report["targets"][target], **report["classes"][target]}
        lines += _errors_by("class", rows, f"{_NAMES[target]}: {_ERRORS}")
    return [*lines, *_whole(report)]


def _measured(report: dict[str, Any] | None) -> list[str]:
    """Return a table of errors on networks of which every operation was measured."""
    lines = ["### Networks composed from measured operations", ""]
    if report is None:
        return [*lines, "None: of no network that was measured whole was every operation measured.", ""]
    return [*lines, "Operations that were measured keep their measured costs.", "", *_whole(report)]


def _whole(report: dict[str, Any]) -> list[str]:
    return [*_errors_by("whole networks", report["compositions"], _ERRORS), *interval_lines(report["intervals"]), ""]


def interval_lines(intervals: Mapping[str, Any]) -> list[str]:
    """Return a line for each interval of whole networks, and for what they are made with."""
    lines = []
    for name, interval in intervals.items():
        if name == "correlation":
            lines.append(f"- errors of two operations of a network are estimated to be correlated by {interval:.2f}")
            continue
        if name == "scales":
            device, energy = map(percent, interval)
            lines.append(f"- errors of operations count {device} in a pass's device time, {energy} in its energy")
            continue
        rests_on = (
            f"{_METHODS[interval['method']]}, {interval['groups']} networks; of networks left out in turn it contains "
            f"{percent(interval['left_out_coverage'])}"
        )
        if "median_half_width" in interval:
            lines.append(
                f"- {name} of a whole network: ±{percent(interval['median_half_width'])} in the median, from the "
                f"uncertainty of its operations ({rests_on}; interval score {interval['interval_score']:.2f})"
            )
        else:
            lines.append(f"- {name} of a whole network: {_ends(interval)} ({rests_on})")
    return lines


def _head(description: GpuDescription, what: str) -> list[str]:
    """Return the title, and a paragraph for virtual GPUs that nothing was measured."""
    virtual = ["**Virtual: everything here rests on a virtual GPU, nothing was measured.**", ""]
    title = f"# Predictors of {description.gpu} ({description.gpu_name}){what}"
    return [title, "", *(virtual if description.virtual else [])]


def _measured_at(description: GpuDescription) -> tuple[str, str]:
    """Return a sentence with the measured operating points, the first of many, and the precisions."""
    points = list(description.points)
    shown = ", ".join(points[:6]) + (f" … ({len(points)} in all)" if len(points) > 6 else "")
    return f"{'operating point' if len(points) == 1 else 'operating points'} {shown}", " and ".join(
        description.execution
    )


def _table(heading: str, rows: Iterable[str]) -> list[str]:
    """Return a table of rows of cells, and an empty line."""
    rule = "|" + " --- |" * (heading.count(" | ") + 1)
    return [f"| {heading} |", rule, *(f"| {row} |" for row in rows), ""]


def _errors_by(what: str, rows: dict[str, Any], heading: str) -> list[str]:
    """Return a table of errors with a row for each name."""
    cells = (f"{name} | {values['rows']} | {_error_cells(values)}" for name, values in rows.items())
    return _table(f"{what} | rows | {heading}", cells)


def _error_cells(values: dict[str, Any]) -> str:
    """Return cells of a table: R², MAPE, median, 95th percentile and bias of `errors.metrics`."""
    r2 = "–" if values["r2"] is None else f"{values['r2']:.3f}"
    return " | ".join([r2, *(percent(values[name]) for name in ("mape", "median_ape", "p95_ape", "bias"))])


def _interval_cells(interval: dict[str, Any] | None) -> str:
    return "– | –" if interval is None else f"{_ends(interval)} | {percent(interval['held_out_coverage'])}"


def _ends(interval: dict[str, Any]) -> str:
    return f"×{interval['lower']:.2f} … ×{interval['upper']:.2f}"


def percent(share: float | None) -> str:
    """Return a share in percent; a dash where it is unknown."""
    return "–" if share is None else f"{100 * share:.1f} %"
