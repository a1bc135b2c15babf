"""Answers of `clockwatt predict` and `clockwatt recommend` as tables and as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from clockwatt.errors import ClockwattError
from clockwatt.predict.prediction import RATIOS

if TYPE_CHECKING:
    from clockwatt.predict.composition.pipeline import Composition
    from clockwatt.predict.hosts.costs import HostAnswer
    from clockwatt.predict.prediction import NetworkPrediction, Relative
    from clockwatt.predict.recommend import Recommendation

_WIDEST = 300
_TWO_DECIMALS = 0.1
_THREE_DIGITS = 100
_PREFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"))


_INTERVALS = {
    "conformal": "Low to high: 90 %, as wide as its operations are unsure; conformal, from {networks} networks "
    "measured whole and left out one by one.",
    "student_t": "Low to high: 90 % if errors are normal, as wide as its operations are unsure, from only {networks} "
    "networks measured whole and left out one by one; conformal intervals need 9.",
    "conformal_of_measured": "Low to high: 90 %, conformal, from {networks} networks whose operations were measured.",
    "student_t_of_measured": "Low to high: 90 % if errors are normal, from only {networks} networks whose operations "
    "were measured; conformal intervals need 9.",
    "operations": "Low to high: 90 % if errors are normal and a quarter of them is shared by all operations.",
    "none": "No interval is known.",
}


_TOLD_APART = ("device_s", "host_s")
_RATIOS = {"time": "time_s", "energy": "energy_j", "mean power": "power_w"}


def parse_slowdown(text: str) -> float:
    """Read `10%` or `0.1`.

    Raises
    ------
    ClockwattError
        If it is neither, or a number above 1 without a percent sign, by which percents are meant.
    """
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not value >= 0:
        raise ClockwattError(f"--max-slowdown {text!r}: write 10% or 0.1.")
    if value > 1 and not text.endswith("%"):
        raise ClockwattError(
            f"--max-slowdown {text!r}: would be {100 * value:g} %: write {text}%, or a number up to 1."
        )
    return value


def print_prediction(
    prediction: NetworkPrediction, tokens: int | None = None, more: Mapping[str, Any] = MappingProxyType({})
) -> None:
    """One line per quantity, with its interval; `tokens` and `more` as in `print_json`."""
    from rich.console import Console  # here, because JSON needs none of it
    from rich.table import Table

    kind = "VIRTUAL, a modelled GPU" if prediction.virtual else prediction.gpu_name
    table = Table(title=f"{prediction.network_id}, {prediction.pass_}, {prediction.gpu} ({kind}) at {prediction.point}")
    for heading in ("", "expected", "low", "high"):
        table.add_column(heading, justify="left" if not heading else "right")
    for name, attribute, unit in (
        ("time", "time_s", "s"),
        ("of it: device", "device_s", "s"),
        ("of it: host", "host_s", "s"),
        ("energy", "energy_j", "J"),
        ("mean power", "power_w", "W"),
    ):
        low, high = prediction.intervals.get(attribute, (None, None))
        expected = _of(prediction.expected, attribute)
        if expected is None and attribute in _TOLD_APART:
            continue
        table.add_row(name, quantity(expected, unit), quantity(low, unit), quantity(high, unit))
    console = Console()
    console.print(table)
    if prediction.expected.device_s is None:
        console.print("The time is the sum of back-to-back times; device and host were not told apart.")
    if prediction.relative_to is not None:
        told = ((words, ratio(prediction.relative_to, name)) for words, name in _RATIOS.items())
        console.print(f"{', '.join(f'{words} × {value}' for words, value in told)}, 90 % in brackets:")
        console.print(f"relative to {standard_words(prediction.relative_to)}")
    if tokens is not None and prediction.expected.energy_j is not None:
        console.print(f"Energy per token: {quantity(prediction.expected.energy_j / tokens, 'J')}.")
    if prediction.measured_calls:
        known, calls = prediction.measured_calls, prediction.expected.calls
        console.print(f"Of {calls} calls, {known} are of operations measured there, and looked up.")
    console.print(_INTERVALS[prediction.interval_method].format(networks=prediction.interval_networks))
    if now := more.get("measured_now"):
        console.print(_measured(now))
    if whole := more.get("measured_whole"):
        console.print(
            f"Measured whole: {quantity(whole['time_s'], 's')}, device {quantity(whole['device_s'], 's')}, host "
            f"{quantity(whole['host_s'], 's')}, {quantity(whole['energy_j'], 'J')}, {quantity(whole['power_w'], 'W')}."
        )
    if prediction.host is not None:
        console.print(_said_of(prediction.host))
    if prediction.optimizer is not None:
        settings = ", ".join(f"{name} {value}" for name, value in prediction.optimizer.items() if name != "optimizer")
        by = f"{prediction.optimizer['optimizer']} ({settings})"
        console.print(f"Weights are updated by {by}, as in these predictors' campaign.")
    console.print(f"Predictors of {prediction.gpu}: {prediction.predictors}.")
    if not prediction.measured_point and prediction.intervals:
        console.print("Nothing was measured at this operating point: the law of the clock speaks, from other points.")
    for warning in prediction.warnings:
        console.print(f"Beware: {warning}")


def _measured(now: Mapping[str, Any]) -> str:
    return (
        f"Measured now: {now['operations']} operations in {now['seconds']:.0f} s, {now['looked_up']} were in the "
        f"store, {now['left']} are predicted. Device time: ± {now['half_width_before']:.1%} before, "
        f"± {now['half_width']:.1%} now."
    )


def _said_of(host: HostAnswer) -> str:
    """Which host the answer is for, what paces the pass there, and what a captured graph would save."""
    if host.name is not None:
        where = f"On host {host.name}, whose calls cost {host.factor:.2f} times those of the median host measured on"
    elif f"{host.low:.2f}" == f"{host.high:.2f}":
        sessions = "one session" if host.sessions == 1 else f"{host.sessions} sessions"
        where = f"On the host measured on ({sessions}), none slower or quicker; --host answers for another"
    else:
        where = (
            f"On the median host measured on; low to high spans hosts from {host.low:.2f} to {host.high:.2f} times its "
            f"cost of a call ({host.sessions} sessions); --host answers for one"
        )
    paces = {"host": "The host", "device": "The device", "power_limit": "The power limit"}[host.paced_by]
    saved = f"save {quantity(host.graph_saves_s, 's')}" if host.graph_saves_s > 0 else "save nothing"
    return f"{where}. {paces} paces the pass; a captured graph would {saved} of it."


def print_recommendation(answer: Recommendation, more: Mapping[str, Any], *, rows: int = 20) -> None:
    """The candidates, best first, and what is known of the regret of such choices; `more` was measured for it."""
    from rich.console import Console
    from rich.table import Table

    best = answer.best
    virtual = " (VIRTUAL: modelled GPUs)" if best.virtual else ""
    table = Table(title=f"{best.network_id}, {best.pass_}: least {answer.objective}{virtual}")
    ratios = () if best.relative_to is None else tuple(f"{words} ×" for words in _RATIOS)
    for heading in ("GPU", "point", "time (90 %)", "energy (90 %)", "mean power", *ratios):
        table.add_column(heading, justify="right" if heading not in ("GPU", "point") else "left")
    for number, candidate in enumerate(answer.candidates[:rows]):
        expected = candidate.expected
        style = "bold" if number == 0 else None if number < answer.allowed else "dim"
        point = candidate.point if candidate.measured_point else f"{candidate.point} (not measured)"
        table.add_row(
            candidate.gpu, point,
            with_ends(expected.time_s, candidate.intervals.get("time_s"), "s"),
            with_ends(expected.energy_j, candidate.intervals.get("energy_j"), "J"),
            quantity(expected.power_w, "W"), *_ratios(candidate), style=style,
        )  # fmt: skip
    console = Console()
    if ratios:  # numbers are not cut where a terminal is narrow
        wide = console.options.update(max_width=_WIDEST)
        console.width = max(console.width, console.measure(table, options=wide).maximum)
    console.print(table)
    if best.relative_to is not None:
        console.print(f"×: relative to {standard_words(best.relative_to)}")
    if len(answer.platforms) > 1:
        others = ", ".join(
            f"{one.gpu} at {one.point} ({answer.objective} × {answer.times_the_best(one):.2f})"
            for one in answer.platforms[1:]
        )
        where = f"{best.gpu} ({best.gpu_name}) at {best.point}"
        console.print(f"Best platform: {where}; behind it, each at its best: {others}.")
    if answer.as_good > 1:
        names = ", ".join(f"{one.gpu} at {one.point}" for one in answer.candidates[1 : answer.as_good])
        console.print(f"As good, within error: {names}.")
    for label, now in more.get("measured_now", {}).items():
        console.print(f"{label}: {_measured(now)}")
    origins = {one.gpu: one.predictors for one in answer.candidates}
    console.print(f"Predictors: {'; '.join(f'{gpu}: {origin}' for gpu, origin in origins.items())}.")
    for reason in answer.left_out:
        console.print(f"Left out: {reason}")
    for warning in best.warnings:
        console.print(f"Beware: {warning}")
    if answer.allowed < len(answer.candidates):
        console.print(
            f"{len(answer.candidates) - answer.allowed} of {len(answer.candidates)} are beyond the limits (dim, last)."
        )
    if answer.regret is None:
        console.print(
            f"What such a choice costs over the best one is unknown: no networks measured whole on {best.gpu} at "
            "several operating points were validated (`clockwatt validate`)."
        )
    else:
        known = answer.regret
        console.print(
            f"Of {known['networks']} networks measured whole on {best.gpu} at {known['points']} operating points: such "
            f"a choice costs {known['mean_regret']:.1%} more {answer.objective} than the best point on average; "
            f"{known['fixed_point']} for all of them costs {known['fixed_mean_regret']:.1%} more."
        )


def print_json(
    answer: NetworkPrediction | Recommendation,
    tokens: int | None = None,
    more: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """The answer as one JSON document; of a decoding step that gives so many tokens also what each costs.

    `more` has further keys: what was measured for the answer.
    """
    content = answer.to_dict() | dict(more)
    if tokens is not None:
        energy_j = content["expected"]["energy_j"]
        content["energy_per_token_j"] = None if energy_j is None else energy_j / tokens
    print(json.dumps(content, indent=2))


def with_ends(value: float | None, ends: tuple[float, float] | None, unit: str) -> str:
    """`1.28 ms (1.22–1.33)`, a value and its interval in the same unit; a dash where it is unknown."""
    told = quantity(value, unit)
    if not value or ends is None:
        return told
    scale = 10.0 ** round(math.log10(value / float(told.split()[0].replace(",", ""))))
    return f"{told} ({'–'.join(_three_digits(end / scale) for end in ends)})"


def _three_digits(value: float) -> str:
    return f"{value:.0f}" if value >= _THREE_DIGITS else f"{value:.3g}"


def ratio(relative: Relative, quantity_name: str) -> str:
    """`1.40 (1.22–1.61)`; a dash where it is not known."""
    name = RATIOS[quantity_name]
    value, ends = getattr(relative, name), relative.intervals.get(name)
    if value is None:
        return "–"
    return _factor(value) if ends is None else f"{_factor(value)} ({_factor(ends[0])}–{_factor(ends[1])})"


def _factor(value: float) -> str:
    """Two decimals, or two digits where that would be none."""
    return f"{value:.2f}" if value >= _TWO_DECIMALS else f"{value:.2g}"


def standard_words(relative: Relative) -> str:
    """`h200 (NVIDIA H200, measured) at default.`, and whether what is compared differs in kind."""
    kind = "VIRTUAL, a modelled GPU" if relative.virtual else f"{relative.gpu_name}, measured"
    mixed = " Beware: a modelled GPU is compared with a measured one." if relative.mixed else ""
    warnings = "".join(f" Beware: {warning}" for warning in relative.warnings)
    return f"{relative.gpu} ({kind}) at {relative.point}.{mixed}{warnings}"


def _ratios(candidate: NetworkPrediction) -> list[str]:
    return [] if candidate.relative_to is None else [ratio(candidate.relative_to, name) for name in _RATIOS.values()]


def quantity(value: float | None, unit: str) -> str:
    """A value to three digits with an SI prefix, long times in whole seconds; a dash where it is unknown."""
    if value is None:
        return "–"
    shown = float(f"{value:.3g}")  # which of 999.6 makes 1,000
    if shown == 0:
        return f"0 {unit}"
    if unit == "s" and abs(shown) >= 1000:
        return f"{value:,.0f} s"
    scale, prefix = next(((scale, prefix) for scale, prefix in _PREFIXES if abs(shown) >= scale), _PREFIXES[-1])
    return f"{shown / scale:.3g} {prefix}{unit}"


def _of(composition: Composition, attribute: str) -> float | None:
    value: float | None = getattr(composition, attribute)
    return value
