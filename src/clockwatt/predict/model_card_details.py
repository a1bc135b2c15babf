"""All errors of the predictors of one GPU, class by class, and what they were fitted on: details of the model card."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from clockwatt.predict.description import GpuDescription
from clockwatt.predict.evaluation.intervals import CONFORMAL, STUDENT_T
from clockwatt.schema.costs import (
    BACK_TO_BACK,
    ENERGY_DYNAMIC_CORRECTED,
    POWER_CORRECTED,
    TIME_DEVICE_CORRECTED,
    TIME_HOST_CORRECTED,
)

NAMES = {
    TIME_DEVICE_CORRECTED: "device time",
    TIME_HOST_CORRECTED: "host time",
    BACK_TO_BACK: "back-to-back time",
    ENERGY_DYNAMIC_CORRECTED: "dynamic energy",
    POWER_CORRECTED: "power under load",
}
"""Quantities that are predicted, in words."""
_METHODS = {
    CONFORMAL: "conformal",
    STUDENT_T: "too few networks for a conformal interval: Student's t, if errors are normal",
}
_ERRORS = "R² | MAPE | median | 95th percentile | bias"


def model_card_details(description: GpuDescription, report: dict[str, Any]) -> str:
    """Markdown of the page, from a GPU's description and its entry `report` of `metrics.json`."""
    lines = [
        f"# Predictors of {description.gpu} ({description.gpu_name}) in detail",
        "",
        *virtual_warning(description),
        f"Fitted by clockwatt {description.clockwatt_version} on {report['measurements']} measurements of operations.",
        "",
        f"- {points_in_words(description)}",
        f"- TF32 {tf32_in_words(description)}",
        "",
        "Not learnt from:",
        "",
        *(
            [f"- {reason}: {count}" for reason, count in report["not_learnt_from"].items()]
            or ["- nothing was left out"]
        ),
        "",
    ]
    for pass_, of_pass in report["passes"].items():
        lines += _pass_section(pass_, of_pass, report["not_learnt_from"])
    return "\n".join(lines).rstrip("\n") + "\n"


def virtual_warning(description: GpuDescription) -> list[str]:
    """A paragraph that says so where nothing was measured."""
    said = ["**Virtual: everything here rests on a modelled GPU, nothing was measured.**", ""]
    return said if description.virtual else []


def points_in_words(description: GpuDescription) -> str:
    """The operating points that were measured, the first of many."""
    points = list(description.points)
    shown = ", ".join(points[:6]) + (f" … ({len(points)} in all)" if len(points) > 6 else "")
    return f"{'operating point' if len(points) == 1 else 'operating points'} {shown}"


def tf32_in_words(description: GpuDescription) -> str:
    """With which settings of TF32 something was measured."""
    return " and ".join("on" if value else "off" for value in description.tf32)


def time_target(of_predictor: dict[str, Any]) -> str:
    """The time that a predictor's errors are told of: device time, or back-to-back time where that alone was learnt."""
    known = [name for name in (TIME_DEVICE_CORRECTED, BACK_TO_BACK) if of_predictor["targets"][name]["rows"]]
    return known[0] if known else TIME_DEVICE_CORRECTED


def _pass_section(pass_: str, of_pass: dict[str, Any], excluded: dict[str, int]) -> list[str]:
    lines = [f"## {pass_.capitalize()}", ""]
    if not of_pass["rows"]:
        return [*lines, f"Nothing to learn from (rows left out, in all passes: {sum(excluded.values())}).", ""]
    for name, of_predictor in of_pass["predictors"].items():
        lines += [
            f"### {name}",
            "",
            f"{of_pass['rows']} rows, {of_predictor['folds']} folds grouped by operation class and channels.",
            "",
            *_table(
                f"quantity | {_ERRORS} | interval of rarer classes | intervals cover",
                (
                    f"{NAMES[target]} | {_error_cells(values)} | {_interval(of_predictor['intervals'].get(target))}"
                    for target, values in of_predictor["targets"].items()
                ),
            ),
            *_classes(of_predictor),
        ]
    lines += _left_out(of_pass["networks_left_out"])
    lines += _measured(of_pass["networks_measured"])
    lines += [
        "",
        f"Learnt at {', '.join(of_pass['learnt_points'])}; costs at other SM clocks follow by the clock law.",
        "",
    ]
    return lines


def _left_out(report: dict[str, Any] | None) -> list[str]:
    """Errors on networks left out one by one, on their own operations and as a whole."""
    if report is None:
        return ["### Networks left out", "", "None: no network was measured whole beside others.", ""]
    lines = [
        "### Networks left out",
        "",
        (
            f"{', '.join(report['networks'])}: each predicted by a predictor, without perceptrons, that never saw an "
            "operation that only this network calls. Errors on these operations; operations that others call too were "
            "learnt from."
        ),
        "",
    ]
    for target in (TIME_DEVICE_CORRECTED, ENERGY_DYNAMIC_CORRECTED):
        rows = {"all": report["targets"][target], **report["classes"][target]}
        lines += _errors_by("class", rows, f"{NAMES[target]}: {_ERRORS}")
    return [*lines, *_whole(report)]


def _measured(report: dict[str, Any] | None) -> list[str]:
    """Errors on networks of which every operation was measured."""
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
            ends = f"×{interval['lower']:.2f} … ×{interval['upper']:.2f}"
            lines.append(f"- {name} of a whole network: {ends} ({rests_on})")
    return [*lines, ""]


def _classes(of_predictor: dict[str, Any]) -> list[str]:
    """Errors and coverage by class, the worst first."""
    time = time_target(of_predictor)
    energy = POWER_CORRECTED if time == BACK_TO_BACK else ENERGY_DYNAMIC_CORRECTED
    errors = of_predictor["classes"][time]
    columns = " | ".join(f"{NAMES[target]}: MAPE | median | interval covers" for target in (time, energy))
    rows = []
    for name in sorted(errors, key=lambda key: -(errors[key]["mape"] or 0.0)):
        cells = [name, str(errors[name]["rows"])]
        for target in (time, energy):
            values = of_predictor["classes"][target].get(name, {})  # none where time alone was measured
            covered = of_predictor["intervals"].get(target, {}).get("classes", {}).get(name, {})
            cells += [percent(values.get(error)) for error in ("mape", "median_ape")]
            cells.append(percent(covered.get("held_out_coverage")))
        rows.append(" | ".join(cells))
    return ["By operation class, the worst first:", "", *_table(f"class | rows | {columns}", rows)]


def _table(heading: str, rows: Iterable[str]) -> list[str]:
    """A table of rows of cells, with an empty line behind it."""
    rule = "|" + " --- |" * (heading.count(" | ") + 1)
    return [f"| {heading} |", rule, *(f"| {row} |" for row in rows), ""]


def _errors_by(what: str, rows: dict[str, Any], heading: str) -> list[str]:
    """A table of errors with a row for each name."""
    cells = (f"{name} | {values['rows']} | {_error_cells(values)}" for name, values in rows.items())
    return _table(f"{what} | rows | {heading}", cells)


def _error_cells(values: dict[str, Any]) -> str:
    """Cells of a table: R², MAPE, median, 95th percentile and bias of `metrics.metrics`."""
    r2 = "–" if values["r2"] is None else f"{values['r2']:.3f}"
    return " | ".join([r2, *(percent(values[name]) for name in ("mape", "median_ape", "p95_ape", "bias"))])


def _interval(interval: dict[str, Any] | None) -> str:
    if interval is None:
        return "– | –"
    return f"×{interval['lower']:.2f} … ×{interval['upper']:.2f} | {percent(interval['held_out_coverage'])}"


def percent(value: float | None) -> str:
    """A share in percent; a dash where it is unknown."""
    return "–" if value is None else f"{100 * value:.1f} %"
