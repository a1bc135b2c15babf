"""Figures of the thermal study: error over the horizon by model and split, and a forecast over time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from clockwatt.figures.style import (
    COLOURS,
    GREY,
    STAMP,
    Entry,
    footer,
    legend,
    nothing,
    panels,
    round_values,
    save,
    styled,
)
from clockwatt.studies.thermal.evaluation import FLOOR_C, SPLITS, Judged
from clockwatt.studies.thermal.inputs import INPUTS, is_changing
from clockwatt.studies.thermal.intervals import Intervals
from clockwatt.studies.thermal.models.registry import MODELS
from clockwatt.studies.thermal.traces import Array, Trace

_COLOURS = dict(zip(MODELS, ("#000000", *COLOURS), strict=False))
_LINES = {"history": "-", "known": "--"}
_SHOWN_AT_S = (30.0, 300.0)
_SHOWN_S = 900.0
_LEAST_SHOWN_C = 0.01
_OVER_TIME = ("persistence", "rc", "trees", "lstm")


def draw_study(
    table: pd.DataFrame, judged: Sequence[Judged], traces: Sequence[Trace], folder: Path, *, virtual: bool
) -> None:
    """Draw `rmse` and `forecast` as PNG, PDF and CSV.

    Raises
    ------
    OutputError
        If they cannot be written.
    """
    with styled():
        figure = draw_rmse(table, virtual=virtual)
        save(figure, table, folder, "rmse")
        over_time = forecast_over_time(judged, traces)
        save(draw_forecast(over_time, virtual=virtual), over_time, folder, "forecast")


def draw_rmse(table: pd.DataFrame, *, virtual: bool) -> Figure:
    """Draw the root mean square error over the horizon: a column for each split, a row for each set of inputs.

    Parameters
    ----------
    table
        As `evaluation.scores` gives it.
    virtual
        Whether any GPU is virtual.
    """
    shown = table[table["rmse_c"].notna()]
    if shown.empty:
        return nothing("no run and no workload could be left out; give more records.")
    # a temperature that stands still is forecast without any error, which a logarithmic axis does not have
    none = bool((shown["rmse_c"] < _LEAST_SHOWN_C).any())
    shown = shown.assign(rmse_c=shown["rmse_c"].clip(lower=_LEAST_SHOWN_C))
    splits = [split for split in SPLITS if split in set(shown["split"])]
    inputs = [name for name in INPUTS if name in set(shown.loc[shown["model"] != "persistence", "inputs"])] or ["power"]
    figure, grid = panels(len(inputs), len(splits), height_in=2.1, share_x=True, share_y=True)
    for row, given in zip(grid, inputs, strict=True):
        for axes, split in zip(row, splits, strict=True):
            part = shown[(shown["split"] == split) & ((shown["inputs"] == given) | (shown["model"] == "persistence"))]
            _draw_lines(axes, part)
            if axes in grid[0]:
                axes.set_title(SPLITS[split], color=STAMP if split == "rows" else "black")
        row[0].set_ylabel(f"RMSE (°C)\n{'power alone' if given == 'power' else 'all sensors'}")
    horizons, errors = sorted(set(shown["horizon_s"])), [*shown["rmse_c"], FLOOR_C]
    for axes in [axes for row in grid for axes in row]:
        _logarithmic(axes, horizons, min(errors), max(errors))
    for axes in grid[-1]:
        axes.set_xlabel("horizon (s)")
    names = [name for name in MODELS if name in set(shown["model"])]
    lines = [Entry(name, _COLOURS[name], "o", "-") for name in names]
    lines += [Entry("history only", GREY, "", "-")]
    lines += [Entry("load to come known", GREY, "", "--")] if "known" in set(shown["load"]) else []
    lines += [Entry(f"whole degrees: {FLOOR_C:.2f} °C", STAMP, "", ":")]
    legend(figure, lines, "")
    runs = int(shown["runs"].max())
    footer(
        figure, "VIRTUAL GPUs: nothing was measured." if virtual else "",
        f"{runs} runs, each forecast by models fitted without it; with shuffled rows, not without its neighbours.",
        "Power alone: the GPU's own temperature and power.",
        f"What is below {_LEAST_SHOWN_C:g} °C is drawn there." if none else "",
    )  # fmt: skip
    return figure


def _draw_lines(axes: Axes, part: pd.DataFrame) -> None:
    for (name, load), line in part.groupby(["model", "load"], sort=False):
        ordered = line.sort_values("horizon_s")
        axes.plot(
            ordered["horizon_s"], ordered["rmse_c"], color=_COLOURS[str(name)], linestyle=_LINES[str(load)], marker="o",
            markersize=2.5, linewidth=1.6 if name == "persistence" else 1.1,
        )  # fmt: skip
    axes.axhline(FLOOR_C, color=STAMP, linestyle=":", linewidth=1.0)


def _logarithmic(axes: Axes, horizons: Sequence[float], low: float, high: float) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.xaxis.set_major_locator(FixedLocator(list(horizons)))
    axes.yaxis.set_major_locator(FixedLocator(round_values(low * 0.8, high * 1.2, 6)))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_ylim(low * 0.8, high * 1.2)


def forecast_over_time(judged: Sequence[Judged], traces: Sequence[Trace]) -> pd.DataFrame:
    """Return forecasts of one run by models that saw neither it nor, where that could be, its workload.

    Returns
    -------
    Columns `run`, `gpu`, `split`, `time_s`, `temperature_c`, `power_w`, `model`, `load`, `horizon_s`, `forecast_c`
    (made a horizon before), `low_c`, `high_c`; empty if nothing was left out.
    """
    split = next((split for split in ("workload", "run") if any(one.split == split for one in judged)), None)
    chosen = [one for one in judged if one.split == split and one.model in _OVER_TIME]
    chosen = _richest(chosen)
    places = [place for one in chosen for place in one.forecasts]
    columns = [
        "run", "gpu", "split", "time_s", "temperature_c", "power_w", "model", "load", "horizon_s", "forecast_c",
        "low_c", "high_c",
    ]  # fmt: skip
    if not places:
        return pd.DataFrame(columns=columns)
    place = max(set(places), key=lambda number: (_liveliness(traces[number]), -number))
    trace, frames = traces[place], []
    for one in chosen:
        if place not in one.forecasts:
            continue
        origins = np.concatenate([part for part, _ in one.forecasts[place]])
        values = np.concatenate([part for _, part in one.forecasts[place]])
        widths = Intervals.of(one.misses).around(is_changing(trace)[origins])
        for column, (horizon, steps) in enumerate(zip(one.task.horizons_s, one.task.steps, strict=True)):
            if horizon in _shown_horizons(one.task.horizons_s):
                later = origins + steps
                inside = later < len(trace)
                frames.append(
                    _frame(trace, one, horizon, later[inside], values[inside, column], widths[inside, column])
                )
    return pd.concat(frames, ignore_index=True)[columns] if frames else pd.DataFrame(columns=columns)


def _frame(
    trace: Trace, one: Judged, horizon_s: float, later: Array, forecast_c: Array, width_k: Array
) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "run": trace.run, "gpu": trace.gpu, "split": one.split, "time_s": trace.time_s[later],
            "temperature_c": trace.temperature_c[later], "power_w": trace.power_w[later], "model": one.model,
            "load": one.task.load, "horizon_s": horizon_s, "forecast_c": forecast_c, "low_c": forecast_c - width_k,
            "high_c": forecast_c + width_k,
        }
    )  # fmt: skip


def _shown_horizons(horizons: Sequence[float]) -> list[float]:
    """Return the horizons nearest to 30 and 300 s."""
    return sorted({min(horizons, key=lambda each: abs(np.log(each / wanted))) for wanted in _SHOWN_AT_S})


def _richest(judged: Sequence[Judged]) -> list[Judged]:
    """Return the variant with all sensors of each model and load, where there is one."""
    found = {(one.model, one.task.load): one for one in sorted(judged, key=lambda one: one.task.inputs)}
    return list(found.values())


def _liveliness(trace: Trace) -> float:
    """How much there is to forecast: the spread of the temperature of the first quarter of an hour, if it lasts."""
    part = trace.temperature_c[: round(_SHOWN_S / trace.step_s)]
    return float(part.std()) * min(1.0, len(part) * trace.step_s / _SHOWN_S)


def draw_forecast(over_time: pd.DataFrame, *, virtual: bool) -> Figure:
    """Draw the temperature over time as it was and as it was forecast, for each horizon, with power below."""
    known = over_time[over_time["forecast_c"].notna()]
    if known.empty:
        return nothing("no run could be left out; give more records.")
    known = known[known["time_s"] <= known["time_s"].min() + _SHOWN_S]
    horizons = sorted(set(known["horizon_s"]))
    figure, grid = panels(len(horizons) + 1, 1, height_in=[2.0] * len(horizons) + [1.0], share_x=True)
    for (axes,), horizon in zip(grid, horizons, strict=False):
        _draw_over_time(axes, known[known["horizon_s"] == horizon])
        axes.set_ylabel("temperature (°C)")
        axes.set_title(f"forecast {horizon:g} s before", loc="left")
    power = known.drop_duplicates("time_s").sort_values("time_s")
    grid[-1][0].plot(power["time_s"], power["power_w"], color=GREY, linewidth=0.9)
    grid[-1][0].set_ylabel("power (W)")
    grid[-1][0].set_xlabel("time since the program's start (s)")
    pairs = known[["model", "load"]].drop_duplicates().itertuples(index=False)
    lines = [Entry("the model's own card" if virtual else "measured", GREY, "", "-")]
    lines += [
        Entry(name if name == "persistence" else f"{name}, {_WORDS[load]}", _COLOURS[name], "", _LINES[load])  # type: ignore[arg-type]
        for name, load in pairs
    ]
    legend(figure, lines, "")
    one = known.iloc[0]
    shaded = "Shaded: 90 % interval of rc, from history only." if "rc" in set(known["model"]) else ""
    left_out = "its workload" if one["split"] == "workload" else "this run"
    footer(
        figure, "VIRTUAL GPU: nothing was measured." if virtual else "",
        f"{one['gpu']}, {Path(one['run']).parent.name} {Path(one['run']).name}: forecast by models fitted without "
        f"{left_out}. {shaded}",
    )  # fmt: skip
    return figure


_WORDS = {"history": "history only", "known": "load known"}


def _draw_over_time(axes: Axes, part: pd.DataFrame) -> None:
    truth = part.drop_duplicates("time_s").sort_values("time_s")
    axes.plot(truth["time_s"], truth["temperature_c"], color=GREY, linewidth=2.6, alpha=0.6)
    for (name, load), line in part.groupby(["model", "load"], sort=False):
        ordered = line.sort_values("time_s")
        colour = _COLOURS[str(name)]
        if name == "rc" and load == "history":
            axes.fill_between(
                ordered["time_s"], ordered["low_c"], ordered["high_c"], color=colour, alpha=0.13, linewidth=0
            )
        axes.plot(
            ordered["time_s"], ordered["forecast_c"], color=colour, linestyle=_LINES[str(load)],
            linewidth=0.7 if name == "persistence" else 1.0,
        )  # fmt: skip
    low, high = truth["temperature_c"].min(), truth["temperature_c"].max()
    margin = 0.35 * max(4.0, high - low)
    axes.set_ylim(low - margin, high + margin)
