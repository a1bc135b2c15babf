"""An answer of `clockwatt predict` on a terminal: one line, a table of its sources, and what costs most."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from clockwatt.cli.printing import (
    measured_words,
    memory_words,
    passed,
    precision,
    quantity,
    ratio,
    rounded,
    standard_words,
    sum_words,
    tf32_words,
    warnings_of,
    with_ends,
)
from clockwatt.cli.tables import table_of
from clockwatt.predict.answer import CALIBRATE_HOST, COMPOSED, MEASURED, PREDICTED, QUANTITIES

if TYPE_CHECKING:
    from rich.table import Table

    from clockwatt.predict.answer import Answer, Estimate
    from clockwatt.predict.hosts import HostAnswer

UNITS = {"time_s": ("time", "s"), "power_w": ("mean power", "W"), "energy_j": ("energy", "J")}
_MOST_OPERATIONS = 5
_TAKE_MOST = "operations that take most time"
_INTERVALS = {
    "measured": "90 % intervals, from differences between cards of one model and between hosts.",
    "conformal": "90 % intervals, calibrated on the errors of {networks} held-out networks.",
    "student_t": "90 % intervals if errors are normal, from only {networks} held-out networks; calibration needs 9.",
    "conformal_of_measured": "90 % intervals, calibrated on the errors of {networks} networks that were composed from "
    "measured operations.",
    "student_t_of_measured": "90 % intervals if errors are normal, from only {networks} networks that were composed "
    "from measured operations; calibration needs 9.",
    "operations": "90 % intervals, not calibrated: errors are assumed to be normal and correlated.",
    "none": "No interval is known.",
}


def print_answer(answer: Answer, more: Mapping[str, Any] = MappingProxyType({}), *, verbose: bool = False) -> None:
    """Print an answer; `more` was measured for it, `verbose` adds intervals, host, predictors and notes."""
    from rich.console import Console

    console = Console()
    console.print(headline(answer), soft_wrap=True, style="bold", highlight=False)
    console.print()
    console.print(_sources(answer, verbose=verbose))
    for line in _below(answer, more, verbose=verbose):
        print(line)
    if answer.detail is not None:
        console.print()
        console.print(_operations(answer))
    for warning in warnings_of([answer]):
        print(f"Warning: {warning}")
    for line in _verbose(answer) if verbose else ():
        print(line)


def headline(answer: Answer) -> str:
    """`resnet50 32×3×224×224, inference, TF32, H200: 5.25 ms (5.08–5.43), 2.83 J, 540 W, measured; …`."""
    costs = [with_ends(answer.time_s, answer.intervals.get("time_s"), "s")]
    source = answer.source
    if answer.energy_j is not None:
        if answer.sources["energy_j"] != source:
            costs[0] += f" {source}"
            source = answer.sources["energy_j"]
        costs += [quantity(answer.energy_j, "J"), quantity(answer.power_w, "W")]
    costs.append(source)
    further = [answer.limited_by]
    if answer.items_per_s:
        further.append(f"{rounded(answer.items_per_s)} {answer.unit}/s")
    if answer.memory is not None and answer.memory.fits is False:
        further.append("does not fit")
    return "; ".join([f"{question(answer)}: {', '.join(costs)}", *filter(None, further)])


def question(answer: Answer) -> str:
    """`resnet50 32×3×224×224, inference, TF32, H200`."""
    gpu = answer.gpu_name.removeprefix("NVIDIA ")
    where = gpu if answer.point == "default" else f"{gpu} at {answer.point}"
    virtual = " (VIRTUAL GPU)" if answer.virtual else ""
    return f"{passed(answer)}, {precision(answer)}, {where}{virtual}"


def columns(answer: Answer, *, verbose: bool = False) -> dict[str, Estimate]:
    """The sources of an answer, the most trustworthy first; `verbose` adds the prediction without its network."""
    known = {MEASURED: answer.measured, COMPOSED: answer.composed, PREDICTED: answer.predicted}
    if verbose:
        known["held out"] = answer.held_out
    return {name: estimate for name, estimate in known.items() if estimate is not None}


def _sources(answer: Answer, *, verbose: bool) -> Table:
    shown = columns(answer, verbose=verbose)
    table = table_of("", *shown, between=2)
    for name in QUANTITIES:
        words, unit = UNITS[name]
        cells = (with_ends(getattr(one, name), one.intervals.get(name), unit) for one in shown.values())
        table.add_row(words, *cells)
    for name, words in (("device_s", "device time"), ("host_s", "host time")):
        value = getattr(answer.expected, name)
        if value is not None:
            cell = with_ends(value, answer.intervals.get(name), "s")
            table.add_row(words, *(cell if source in (COMPOSED, PREDICTED) else "" for source in shown))
    return table


def _below(answer: Answer, more: Mapping[str, Any], *, verbose: bool) -> Iterator[str]:
    """Phases, throughput, ratios, what was measured now, and the host where it limits the pass."""
    if answer.phases:
        phases = ", ".join(f"{name} {quantity(seconds, 's')}" for name, seconds in answer.phases.items())
        yield f"Time of the phases: {phases}."
    if answer.memory is not None:
        yield memory_words(answer.memory, verbose=verbose)
    if answer.items_per_joule:
        yield f"{rounded(answer.items_per_joule)} {answer.unit} per joule."
    if (line := sum_words([answer])) is not None:
        yield line
    if answer.relative_to is not None:
        ratios = (f"{words} × {ratio(answer.relative_to, name)}" for name, (words, _) in UNITS.items())
        yield f"{', '.join(ratios)}, relative to {standard_words(answer.relative_to)}"
    if (line := tf32_words(answer)) is not None:
        yield line
    if now := more.get("measured_now"):
        yield measured_words(now)
    if answer.host is not None and answer.host.paced_by == "host":
        yield _host_bound(answer.host)
    if not answer.measured_point and answer.intervals:
        yield f"{answer.point} was not measured: estimated from other clocks."


def _host_bound(host: HostAnswer) -> str:
    saved = f" CUDA graphs would save {quantity(host.graph_saves_s, 's')}." if host.graph_saves_s > 0 else ""
    bound = f"Host-bound: the CPU launches kernels more slowly than the GPU runs them.{saved}"
    calibrate = f"To predict for your host, run `{CALIBRATE_HOST}` on it, then add `--host NAME`."
    return bound if host.name is not None else f"{bound} {calibrate}"


def _operations(answer: Answer) -> Table:
    """Return the operations that take most device time, with their parts of the time and energy of the pass."""
    numbers = ("calls", "time", "time %", "energy %")
    table = table_of(_TAKE_MOST, *numbers, "source", right=numbers)
    for row in answer.breakdown().head(_MOST_OPERATIONS).to_dict("records"):
        share = (
            "–" if row["energy_share"] != row["energy_share"] else f"{100 * row['energy_share']:.0f}"
        )  # nan is not itself
        table.add_row(
            textwrap.shorten(row["operation"], 34, placeholder=" …"), str(row["calls"]),
            quantity(row["device_s"], "s"), f"{100 * row['time_share']:.0f}", share,
            MEASURED if row["measured"] else PREDICTED,
        )  # fmt: skip
    return table


def _verbose(answer: Answer) -> Iterator[str]:
    expected = answer.expected
    rest = "; the others are predicted" if answer.measured_calls < expected.calls else ""
    yield f"{answer.measured_calls} of {expected.calls} calls were measured on this GPU at this point{rest}."
    yield _INTERVALS[answer.interval_method].format(networks=answer.interval_networks)
    if answer.host is not None:
        yield _host(answer.host)
    if answer.optimizer is not None:
        settings = ", ".join(f"{name} {value}" for name, value in answer.optimizer.items() if name != "optimizer")
        yield f"Optimizer: {answer.optimizer['optimizer']} ({settings})."
    yield f"Predictors of {answer.gpu}: {answer.predictors}."
    for note in answer.notes:
        yield f"Note: {note}"


def _host(host: HostAnswer) -> str:
    if host.name is not None:
        return f"Host {host.name}: its calls take {host.factor:.2f}× as long as on the median host."
    hosts = "one host" if host.sessions == 1 else f"{host.sessions} hosts"
    calls = f"The host time of a call there is {host.low:.2f}–{host.high:.2f}× the median"
    return f"Host: the median of {hosts} measured with this GPU. {calls}."
