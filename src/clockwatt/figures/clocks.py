"""Networks against clock and power limit: what it does to them, what is predicted of it, and which is best."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from clockwatt import signals
from clockwatt.figures import style
from clockwatt.figures.gpus import Gpus
from clockwatt.figures.networks import NORMAL_95
from clockwatt.schema.costs import MEASURED_WHOLE
from clockwatt.schema.execution import ExecutionSettings

PER_PASS = {"time_s": ("time", "s"), "power_w": ("mean power", "W"), "energy_j": ("energy", "J")}
"""Quantities drawn: column of the composition, name, unit."""

OBJECTIVES = {"time_s": "time", "energy_j": "energy", "edp_js": "energy-delay product"}
SETTINGS = {"sm_clock_mhz": "SM clock (MHz)", "power_limit_w": "power limit (W)"}
"""Settings, and the labels of their axes."""

NETWORKS_AT_MOST = 6
POINTS_OF_A_FIT = 4
"""Fewer do not judge a second-degree curve: three points lie on one."""

_KEY = ["gpu", "setting", "network_id", "execution", "compared"]


def along(compositions: pd.DataFrame, errors: pd.DataFrame, pass_: str) -> pd.DataFrame:
    """Return the networks along each setting that was measured at two values or more, all else being as by default.

    Parameters
    ----------
    compositions
        From `load.compositions`.
    errors
        From `load.whole_errors`.
    pass_
        Which pass.

    Returns
    -------
    pandas.DataFrame
        `gpu`, `setting` (of `SETTINGS`), `x`, `network_id`, `execution`, `compared`, measured and predicted time, power
        and energy, and the standard errors of the measured time and energy.
    """
    rows = compositions[(compositions["pass"] == pass_) & (compositions["source"] == "predicted")]
    rows = rows.merge(errors, on=["gpu", "point", "execution", "network_id", "pass"], how="left")
    rows[list(PER_PASS)] = rows[list(PER_PASS)].where(rows["calls_without_cost"] == 0)
    parts = [rows.assign(setting=setting, x=rows[setting])[rows[setting].notna()] for setting in SETTINGS]
    found = pd.concat(parts, ignore_index=True)
    several = found.groupby(["gpu", "setting"])["x"].transform("nunique") > 1
    columns = [*_KEY, "x", *MEASURED_WHOLE.values(), *PER_PASS, "time_s_error", "energy_j_error"]
    return found.loc[several, columns].sort_values([*_KEY, "x"], ignore_index=True)


def draw(data: pd.DataFrame, gpus: Gpus, labels: Sequence[str]) -> Figure:
    """Draw time, power and energy against the setting: a row for each GPU and setting, a colour for each network.

    Parameters
    ----------
    data
        From `along`.
    gpus
        The GPUs of the campaign.
    labels
        GPUs with a network measured in this pass; those without a curve are named.
    """
    if data.empty:
        return style.nothing(f"no GPU ran this pass at two clocks or power limits. {_without(data, labels)}")
    rows, chosen = _rows(data, gpus), _networks(data)
    figure, grid = style.panels(len(rows), len(PER_PASS), height_in=1.65)
    for line, (gpu, setting) in zip(grid, rows, strict=True):
        own = data[(data["gpu"] == gpu) & (data["setting"] == setting)]
        for axes, (column, (name, unit)) in zip(line, PER_PASS.items(), strict=True):
            for entry, (network, execution) in zip(style.entries(_words(chosen)), chosen, strict=True):
                _curve(axes, own[(own["network_id"] == network) & (own["compared"] == execution)], column, entry)
            style.log_axis(axes, "y", unit, name.removeprefix("mean "))
            axes.set_xlabel(SETTINGS[setting])
        for axes in line:
            gpus.title(axes, gpu, loc="left")
    style.legend(figure, style.entries(_words(chosen)), "")
    style.footer(
        figure,
        "Solid: measured whole, bars 95 % intervals; dashed: composed from held-out predictions. "
        "Ring: least measured energy.",
        style.without_tf32(data),
        _not_shown(data, rows, chosen, gpus),
        _without(data, labels),
    )
    return figure


def _curve(axes: Axes, own: pd.DataFrame, column: str, entry: style.Entry) -> None:
    if own.empty:
        return
    x, measured = own["x"].to_numpy(float), own[MEASURED_WHOLE[column]].to_numpy(float)
    name = f"{column}_error"
    error = NORMAL_95 * own[name].fillna(0).to_numpy(float) if name in own else None
    size = 3.5 if len(x) <= 12 else 1.8
    axes.plot(x, own[column].to_numpy(float), color=entry.colour, linestyle=(0, (3, 2)), linewidth=0.9, zorder=2)
    axes.errorbar(
        x, measured, yerr=error, color=entry.colour, marker=entry.marker, markersize=size, elinewidth=0.7, zorder=3
    )
    if column == "energy_j" and np.isfinite(measured).any():
        least = int(np.nanargmin(measured))
        axes.plot(
            x[least], measured[least], marker="o", markersize=8, markerfacecolor="none", color=entry.colour,
            clip_on=False, zorder=4,
        )  # fmt: skip


def optima(data: pd.DataFrame) -> pd.DataFrame:
    """Return a second-degree curve through each network's time, energy and energy-delay product against the setting.

    Parameters
    ----------
    data
        From `along`.

    Returns
    -------
    pandas.DataFrame
        A row for each point: `gpu`, `setting`, `network_id`, `execution`, `compared`, `objective`, `x`, `relative`
        (measured, over that at the highest x), `fitted`, and of the whole curve `r2`, `optimum_x` (the least value
        within what was measured), `optimum_relative`. Curves of fewer than `POINTS_OF_A_FIT` points have no fit.
        Those without `signals.has_optimum` have no optimum.
    """
    parts: dict[str, list[np.ndarray]] = {}
    product = data["measured_time_s"] * data["measured_energy_j"]
    rows = data.assign(edp_js=product, time_s=data["measured_time_s"], energy_j=data["measured_energy_j"])
    for key, own in rows.groupby(_KEY):
        for objective in OBJECTIVES:
            values = own[objective].to_numpy(float)
            x = own["x"].to_numpy(float)
            known = np.isfinite(values)
            if known.sum() > 1:
                fit = _fitted(x[known], values[known] / values[known][-1])
                told = {**dict(zip(_KEY, key, strict=True)), "objective": objective, **fit}
                for name, value in told.items():
                    parts.setdefault(name, []).append(np.broadcast_to(np.asarray(value), known.sum()))
    columns = [*_KEY, "objective", "x", "relative", "fitted", "r2", "optimum_x", "optimum_relative"]
    return pd.DataFrame({name: np.concatenate(parts[name]) if parts else [] for name in columns})


def _fitted(x: np.ndarray, relative: np.ndarray) -> dict[str, object]:
    found: dict[str, object] = {"x": x, "relative": relative}
    nothing = dict.fromkeys(("fitted", "r2", "optimum_x", "optimum_relative"), np.nan)
    if len(np.unique(x)) < POINTS_OF_A_FIT:
        return found | nothing
    curve = np.polynomial.Polynomial.fit(x, relative, 2)
    fitted, fine = curve(x), np.linspace(x.min(), x.max(), 201)
    values = curve(fine)
    r2 = signals.r_squared(relative, fitted)
    found |= nothing | {"fitted": fitted, "r2": r2}
    if not signals.has_optimum(r2, values):
        return found
    least = int(np.argmin(values))
    return found | {"optimum_x": fine[least], "optimum_relative": values[least]}


def draw_optima(data: pd.DataFrame, gpus: Gpus, labels: Sequence[str]) -> Figure:
    """Time, energy and their product against the setting, each with its curve and optimum; `data` from `optima`."""
    if data.empty:
        return style.nothing(f"no GPU ran this pass at two clocks or power limits. {_without(data, labels)}")
    rows, chosen = _rows(data, gpus), _networks(data)
    figure, grid = style.panels(len(rows), len(OBJECTIVES), height_in=1.75)
    for line, (gpu, setting) in zip(grid, rows, strict=True):
        own = data[(data["gpu"] == gpu) & (data["setting"] == setting)]
        for axes, (objective, name) in zip(line, OBJECTIVES.items(), strict=True):
            of_objective = own[own["objective"] == objective]
            for entry, (network, execution) in zip(style.entries(_words(chosen)), chosen, strict=True):
                one = of_objective[(of_objective["network_id"] == network) & (of_objective["compared"] == execution)]
                _fit_curve(axes, one, entry)
            r2 = of_objective.drop_duplicates(_KEY)["r2"].dropna()
            if len(r2):
                text = f"R² {r2.median():.3f} (least {r2.min():.3f})"
                axes.text(0.97, 0.97, text, transform=axes.transAxes, fontsize=6, ha="right", va="top")
            axes.set(xlabel=SETTINGS[setting], ylabel=f"{name} (×)".replace("energy-delay product", "energy × time"))
            axes.margins(y=0.2)
        for axes in line:
            gpus.title(axes, gpu, loc="left")
    style.legend(figure, style.entries(_words(chosen)), "")
    style.footer(
        figure,
        "Relative to the highest setting. Lines: fits of the second degree, from four points on, with the median R² of "
        f"all networks; stars: their optimum, where R² is {signals.LEAST_R2:g} or more and the line spans "
        f"{signals.LEAST_RANGE:.0%} or more.",
        style.without_tf32(data),
        _not_shown(data, rows, chosen, gpus),
        _without(data, labels),
    )
    return figure


def _fit_curve(axes: Axes, own: pd.DataFrame, entry: style.Entry) -> None:
    if own.empty:
        return
    x = own["x"].to_numpy(float)
    axes.plot(x, own["relative"], linestyle="", marker=entry.marker, color=entry.colour, markersize=3, zorder=3)
    if own["fitted"].notna().all():
        fine = np.linspace(x.min(), x.max(), 60)
        axes.plot(fine, np.polynomial.Polynomial.fit(x, own["fitted"], 2)(fine), color=entry.colour, linewidth=0.9)
        # without an optimum, it is NaN: no star
        axes.plot(
            own["optimum_x"].iloc[0], own["optimum_relative"].iloc[0], marker="*", markersize=8, color=entry.colour,
            markeredgecolor="black", markeredgewidth=0.5, clip_on=False, zorder=4,
        )  # fmt: skip


def _rows(data: pd.DataFrame, gpus: Gpus) -> list[tuple[str, str]]:
    """Return GPUs with panels, once for each setting that they were measured along."""
    shown = gpus.shown(data["gpu"].unique())
    there = set(zip(data["gpu"], data["setting"], strict=True))
    return [(gpu, setting) for gpu in shown for setting in SETTINGS if (gpu, setting) in there]


def _networks(data: pd.DataFrame) -> list[tuple[str, ExecutionSettings]]:
    """Return networks, each with a TF32 setting, evenly spread over all in the order of their names."""
    pairs = sorted(
        {
            (str(name), ExecutionSettings(str(execution)))
            for name, execution in zip(data["network_id"], data["compared"], strict=True)
        }
    )
    kept = set(style.spread([str(number) for number in range(len(pairs))], NETWORKS_AT_MOST))
    return [pair for number, pair in enumerate(pairs) if str(number) in kept]


def _words(chosen: Sequence[tuple[str, ExecutionSettings]]) -> list[str]:
    return [style.network_words(network, execution=execution) for network, execution in chosen]


def _not_shown(
    data: pd.DataFrame, rows: Sequence[tuple[str, str]], chosen: Sequence[tuple[str, ExecutionSettings]], gpus: Gpus
) -> str:
    networks = sorted(set(data["network_id"]) - {network for network, _ in chosen})
    note = gpus.note([gpu for gpu, _ in rows], data["gpu"].unique())
    return f"{note} {style.networks_left_out(networks)}".strip()


def _without(data: pd.DataFrame, labels: Sequence[str]) -> str:
    """Return GPUs that have no curve."""
    return style.without_curve(set(labels) - set(data["gpu"]))
