"""A page about the predictors of time on GPUs that were never measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clockwatt.predict.grouped import CONFORMAL, WORST_GROUP
from clockwatt.predict.modelcard import error_cells, percent
from clockwatt.predict.unseendescription import UnseenDescription

_HEADING = "rows | R² | MAPE | median | 95th percentile | bias |"

_METHODS = {
    CONFORMAL: "conformal, with one vote for each GPU model",
    WORST_GROUP: "too few GPU models for a conformal one: 90 % of the rows of the worst model left out",
}


def unseen_card(description: UnseenDescription, report: dict[str, Any]) -> str:
    """Markdown of the page.

    Parameters
    ----------
    description
        Of the predictors.
    report
        Their entry of `metrics.json`.
    """
    learnt = [f"- {label}: {name}" for label, name in description.gpus.items()]
    lines = [
        "# Predictors of time on GPUs that were never measured",
        "",
        *(["**Virtual: everything here rests on modelled GPUs, nothing was measured.**", ""] * description.virtual),
        f"Fitted by clockwatt {description.clockwatt_version} on {len(description.models)} GPU models:",
        "",
        *learnt,
        "",
        "Of time alone: power and energy are not offered. Errors are those on models left out, told by the others.",
        "",
    ]
    for pass_, of_pass in report["passes"].items():
        lines += _pass_section(pass_, of_pass)
    return "\n".join([*lines, *_limits(len(description.models))]) + "\n"


def _pass_section(pass_: str, of_pass: dict[str, Any]) -> list[str]:
    lines = [f"## {pass_.capitalize()}", ""]
    for name, target in (("Device time", "time_device_s"), ("Host time", "time_host_s")):
        errors = {"all": of_pass["targets"][target], **of_pass["models"][target]}
        lines += [f"{name} of operations:", "", *_table("left out", errors)]
        lines += [f"{_interval(of_pass['intervals'][target])}", ""]
    classes = of_pass["classes"]["time_device_s"]
    worst_first = sorted(classes, key=lambda name: -(classes[name]["mape"] or 0.0))
    lines += ["Device time by operation class, the worst first:", ""]
    lines += _table("class", {name: classes[name] for name in worst_first})
    for bound, judged in of_pass["networks"].items():
        lines += [f"Time of whole networks that the {bound} bounds, or of all where few GPU models have such ones:", ""]
        lines += [*_table("left out", {"all": judged["all"], **judged["models"]}), _interval(judged["interval"]), ""]
    return lines if of_pass["networks"] else [*lines, "Too few GPU models had networks measured whole.", ""]


def _table(subject: str, errors: Mapping[str, dict[str, Any]]) -> list[str]:
    lines = [f"| {subject} | {_HEADING}", "| --- | --- | --- | --- | --- | --- | --- |"]
    return [*lines, *(f"| {name} | {each['rows']} | {error_cells(each)} |" for name, each in errors.items()), ""]


def _interval(interval: dict[str, Any]) -> str:
    return (
        f"Interval: ×{interval['lower']:.2f} … ×{interval['upper']:.2f} ({_METHODS[interval['method']]}; made from the "
        f"others it contains {percent(interval['left_out_coverage'])} of the rows of a model)."
    )


def _limits(models: int) -> list[str]:
    return [
        "## Where not to trust them",
        "",
        f"- A new model is worse than all {models} in 1 of {models + 1} cases, if it is one like them.",
        "- Cards with more of something than those learnt from: trees do not extrapolate, only the roofline does.",
        "- Whatever specifications do not tell: libraries, their versions and kernels made for one architecture.",
        "- Clocks that a card cannot hold: a card at its power limit runs below the clock asked for.",
        "- Host time: that of the machines that measured, in the middle.",
    ]
