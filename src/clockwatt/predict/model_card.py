"""Model card of one GPU's predictors: a short page of their limits, and a page with all errors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from clockwatt.config import OperatingPoint
from clockwatt.predict.description import GpuDescription
from clockwatt.predict.evaluation.errors import CONFORMAL, COVERAGE, STUDENT_T
from clockwatt.schema.costs import (
    BACK_TO_BACK,
    ENERGY_DYNAMIC_CORRECTED,
    POWER_CORRECTED,
    TIME_DEVICE_CORRECTED,
    TIME_HOST_CORRECTED,
)

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
_WHOLE = {"time_s": "time of a network never seen", "energy_j": "energy of a network never seen"}
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
        "## Where not to trust them",
        "",
        *(f"- {sentence}" for sentence in _doubts(description, report, fitted)),
        "",
        "## How far they are off",
        "",
        "Median / 95th percentile of the error (rows) of what was left out when they were fitted.",
        "",
        f"| | {' | '.join(fitted)} |",
        f"| --- |{' --- |' * len(fitted)}",
        *(f"| {row} |" for row in _errors(description.predictors[0], fitted)),
        "",
        "## What they rest on",
        "",
        f"- {report['measurements']} measurements of operations, fitted by clockwatt {description.clockwatt_version}",
        f"- {points}; {execution}",
        *(f"- not learnt from {count} rows: {reason}" for reason, count in reasons),
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
            told = ", ".join(f"{name} {percent(error)}" for name, error in worst)
            yield f"{in_pass}, classes of operations missed most (median of {_NAMES[time]}): {told}."
        beside = of_predictor["perceptrons"]
        if beside == {}:
            yield f"{in_pass}: perceptrons beside the forest were not judged, for too few operations."
        elif beside:
            both, forest = (
                f"{percent(beside[one + 'median'])} (median; 90th percentile {percent(beside[one + 'percentile_90'])})"
                for one in ("", "forest_")
            )
            yield (
                f"{in_pass}: errors below are the forest's. Perceptrons beside it, taught without a fifth "
                f"of the groups, missed the device time of {beside['rows']:,} operations held out by {both}, the "
                f"forest by {forest}: its intervals of device time are taken to the power of {beside['width']:.2f}. "
                f"Their energies were not judged."
            )
        if of_pass["networks_left_out"] is None:
            yield f"{in_pass}: no network was left out, so how far off one is has not been seen."
        for quantity, why in description.passes[pass_].lacks.items():
            yield f"{in_pass}: no {quantity} is answered, since {why}."
    asked = [OperatingPoint.parse(point).sm_clock_mhz for point in description.points]
    clocks = {clock for clock in asked if clock is not None}
    if len(clocks) < _FEWEST_CLOCKS:
        yield f"Other operating points than {', '.join(description.points)}: no law leads there."
    else:
        yield f"SM clocks outside {min(clocks)} to {max(clocks)} MHz."
    yield "Operations of classes and sizes that were not measured: trees do not extrapolate, only the roofline does."
    if any(not description.passes[pass_].summed for pass_ in fitted):
        yield "Another host: it is the median of those that measured, alone at work. Hosts differ by a factor of two."
    else:
        yield "Another host: back-to-back times hold for the one that they were measured with."
    yield "Another card: cards of one model differ by several percent, all operations of a network alike."
    yield f"Intervals: meant for {COVERAGE:.0%} of operations of the kinds measured; of other kinds more lie outside."


def _errors(name: str, fitted: dict[str, Any]) -> Iterator[str]:
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
        "Not learnt from:",
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
            f"Learnt at {', '.join(of_pass['learnt_points'])}; costs at other SM clocks follow by the clock law.",
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
    lines = ["### Networks left out", ""]
    if report is None:
        return [*lines, "None: no network was measured whole beside others.", ""]
    lines += [
        (
            f"{', '.join(report['networks'])}: each predicted by a predictor, without perceptrons, that never saw an "
            "operation that only this network calls. Errors on these operations; operations that others call too were "
            "learnt from."
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
    return [*lines, "Operations that were measured are looked up, not predicted.", "", *_whole(report)]


def _whole(report: dict[str, Any]) -> list[str]:
    lines = _errors_by("whole networks", report["compositions"], _ERRORS)
    for name, interval in report["intervals"].items():
        if name == "correlation":
            lines.append(f"- errors of two operations of a network are estimated to be correlated by {interval:.2f}")
            continue
        rests_on = (
            f"{_METHODS[interval['method']]}, {interval['groups']} networks; of networks left out in turn it contains "
            f"{percent(interval['left_out_coverage'])}"
        )
        if "median_half_width" in interval:
            lines.append(
                f"- {name} of a whole network: ±{percent(interval['median_half_width'])} in the median, as wide as its "
                f"operations are unsure ({rests_on}; interval score {interval['interval_score']:.2f})"
            )
        else:
            lines.append(f"- {name} of a whole network: {_ends(interval)} ({rests_on})")
    return [*lines, ""]


def _head(description: GpuDescription, what: str) -> list[str]:
    """Return the title, and a paragraph for virtual GPUs that nothing was measured."""
    virtual = ["**Virtual: everything here rests on a modelled GPU, nothing was measured.**", ""]
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
