"""A page of one screen about the predictors of one GPU: where not to trust them, how far off they are, on what data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from clockwatt.config import OperatingPoint
from clockwatt.predict.description import GpuDescription
from clockwatt.predict.evaluation.intervals import COVERAGE
from clockwatt.predict.model_card_details import (
    NAMES,
    percent,
    points_in_words,
    tf32_in_words,
    time_target,
    virtual_warning,
)
from clockwatt.schema.costs import (
    BACK_TO_BACK,
    ENERGY_DYNAMIC_CORRECTED,
    POWER_CORRECTED,
    TIME_DEVICE_CORRECTED,
    TIME_HOST_CORRECTED,
)

_TARGETS = {
    TIME_DEVICE_CORRECTED: "device time of an operation",
    TIME_HOST_CORRECTED: "host time of an operation",
    ENERGY_DYNAMIC_CORRECTED: "dynamic energy of an operation",
}
_SUMMED = {
    BACK_TO_BACK: "back-to-back time of an operation",
    POWER_CORRECTED: "power of an operation, back to back",
}
_WHOLE = {"time_s": "time of a network never seen", "energy_j": "energy of a network never seen"}
_WORST_CLASSES = 5
_FEWEST_ROWS = 10
"""Of a class that is named among the worst: the error of fewer says little."""
_MOST_REASONS = 4
_FEWEST_CLOCKS = 3
"""From which the costs at other clocks follow."""


def model_card(description: GpuDescription, report: dict[str, Any], *, details: str) -> str:
    """Markdown of the page, from a GPU's description and its entry `report` of `metrics.json`; links to `details`."""
    fitted = {name: of_pass for name, of_pass in report["passes"].items() if of_pass["rows"]}
    lines = [
        f"# Predictors of {description.gpu} ({description.gpu_name})",
        "",
        *virtual_warning(description),
        "## Where not to trust them",
        "",
        *(f"- {sentence}" for sentence in _doubts(description, report, fitted)),
        "",
        "## How far they are off",
        "",
        "Median / 95th percentile of the error (rows) of what was left out when they were fitted.",
        "",
        *_errors(description.predictors[0], fitted),
        "",
        "## What they rest on",
        "",
        f"- {report['measurements']} measurements of operations, fitted by clockwatt {description.clockwatt_version}",
        f"- {points_in_words(description)}; TF32 {tf32_in_words(description)}",
        *(f"- not learnt from {count} rows: {reason}" for reason, count in _reasons(report)),
        f"- every class, interval and network: [{details}]({details})",
    ]
    return "\n".join(lines) + "\n"


def _doubts(description: GpuDescription, report: dict[str, Any], fitted: dict[str, Any]) -> Iterator[str]:
    for pass_, of_pass in report["passes"].items():
        if not of_pass["rows"]:
            yield f"{pass_.capitalize()}: there was nothing to learn from, so nothing is answered."
    name = description.predictors[0]
    for pass_, of_pass in fitted.items():
        time = time_target(of_pass["predictors"][name])
        worst = _worst(of_pass["predictors"][name]["classes"][time])
        if worst:
            told = ", ".join(f"{class_} {percent(error)}" for class_, error in worst)
            yield f"{pass_.capitalize()}, classes of operations missed most (median of {NAMES[time]}): {told}."
        beside = of_pass["predictors"][name]["perceptrons"]
        if beside == {}:
            yield f"{pass_.capitalize()}: perceptrons beside the forest were not judged, for too few operations."
        elif beside:
            both, forest = (
                f"{percent(beside[one + 'median'])} (median; 90th percentile {percent(beside[one + 'percentile_90'])})"
                for one in ("", "forest_")
            )
            yield (
                f"{pass_.capitalize()}: errors below are the forest's. Perceptrons beside it, taught without a fifth "
                f"of the groups, missed the device time of {beside['rows']:,} operations held out by {both}, the "
                f"forest by {forest}: its intervals of device time are taken to the power of {beside['width']:.2f}. "
                f"Their energies were not judged."
            )
        if of_pass["networks_left_out"] is None:
            yield f"{pass_.capitalize()}: no network was left out, so how far off one is has not been seen."
        for quantity, why in description.passes[pass_].lacks.items():
            yield f"{pass_.capitalize()}: no {quantity} is answered, since {why}."
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


def _reasons(report: dict[str, Any]) -> list[tuple[str, int]]:
    """Why most of the rows that were left out were, the most frequent reason first."""
    return sorted(report["not_learnt_from"].items(), key=lambda item: -item[1])[:_MOST_REASONS]


def _worst(classes: dict[str, Any]) -> list[tuple[str, float]]:
    """Classes of which enough was measured with their median error, the worst first."""
    known = {
        name: values["median_ape"]
        for name, values in classes.items()
        if values["rows"] >= _FEWEST_ROWS and values["median_ape"] is not None
    }
    return sorted(known.items(), key=lambda item: -item[1])[:_WORST_CLASSES]


def _errors(name: str, fitted: dict[str, Any]) -> list[str]:
    """A table of quantities by pass."""
    lines = [f"| | {' | '.join(fitted)} |", f"| --- |{' --- |' * len(fitted)}"]
    timed = {time_target(of_pass["predictors"][name]) for of_pass in fitted.values()}
    shown = {target: words for target, words in _TARGETS.items() if timed != {BACK_TO_BACK}}
    for target, words in (shown | (_SUMMED if BACK_TO_BACK in timed else {})).items():
        cells = [_cell(of_pass["predictors"][name]["targets"].get(target)) for of_pass in fitted.values()]
        lines.append(f"| {words} | {' | '.join(cells)} |")
    for quantity, words in _WHOLE.items():
        found = [(of_pass["networks_left_out"] or {}).get("compositions", {}) for of_pass in fitted.values()]
        lines.append(f"| {words} | {' | '.join(_cell(of_pass.get(quantity)) for of_pass in found)} |")
    return lines


def _cell(values: dict[str, Any] | None) -> str:
    if values is None or not values["rows"]:
        return "–"
    return f"{percent(values['median_ape'])} / {percent(values['p95_ape'])} ({values['rows']})"
