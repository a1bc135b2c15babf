"""A record over time: power, cumulative energy, temperature, clock and use of each GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from clockwatt import signals
from clockwatt.figures.style import COLOURS, GREY, footer, panels, styled
from clockwatt.io.files import written_aside
from clockwatt.telemetry.recording.gpu_summary import power_readings, readings
from clockwatt.telemetry.recording.layout import FIGURE, HOST, Record, read_record, run_folder
from clockwatt.telemetry.recording.summary import telemetry_of

_MOST_POINTS = 4000
_MOST_SPANS = 60
_PANEL_IN = 1.15

Draw = Callable[[Axes, Sequence[pd.DataFrame], str], None]
"""Draws one sensor of all runs of a GPU, in a colour."""


def draw_record(folder: Path) -> None:
    """Draw `figure.png` of a record; with nothing to draw there is none.

    Raises
    ------
    DataFileError
        If there is no record, or it is damaged.
    OutputError
        If the figure cannot be written.
    """
    record = read_record(folder)
    names = [gpu.uuid for gpu in record.gpus] or [HOST]
    frames = {name: [telemetry_of(folder, run, name) for run in record.runs] for name in names}
    if not any(len(frame) for runs in frames.values() for frame in runs):
        return
    drawn = _HOST_PANELS if names == [HOST] else _GPU_PANELS
    with styled():
        figure, grid = panels(len(drawn), 1, height_in=_PANEL_IN, share_x=True)
        for (draw, label), (axes,) in zip(drawn, grid, strict=True):
            for number, (_, runs) in enumerate(frames.items()):
                draw(axes, runs, COLOURS[number % len(COLOURS)])
            axes.set_ylabel(label)
        shaded = shade_phases(grid[0][0], _phases(folder, record)) if record.runs else None
        virtual = {gpu.uuid for gpu in record.gpus if gpu.virtual}
        for number, name in enumerate(names):
            label = f"{name} (virtual)" if name in virtual else name
            grid[0][0].plot([], [], color=COLOURS[number % len(COLOURS)], label=label)
        grid[0][0].legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0.2)
        grid[-1][0].set_xlabel("time since the program's start (s)")
        several = (
            f"{len(record.runs)} runs: faint each; strong their mean, as long as more than half of them go on; band: "
            "their standard deviation."
            if len(record.runs) > 1
            else ""
        )
        phases = f"Grey above: each {shaded} of run {record.runs[0].number}." if shaded else ""
        footer(figure, f"{record.name} at {record.point} on {record.host}.", several, phases)
        with written_aside(folder / FIGURE) as aside:
            figure.savefig(aside, format="png", metadata={"Software": None})


def draw_sensor(axes: Axes, runs: Sequence[pd.Series[float]], colour: str) -> None:
    """Readings of one sensor: each run faintly, and their mean if there are several."""
    for run in runs:
        thin = run.iloc[:: max(1, len(run) // _MOST_POINTS)]
        axes.plot(thin.index, thin.to_numpy(), color=colour, alpha=0.35 if len(runs) > 1 else 1.0, linewidth=0.8)
    if len(runs) > 1:
        since = [run[run.index >= 0] for run in runs]
        # one even grid for all; what runs begin late is cut off by less than a reading
        mean = signals.average_runs(since, rate_hz=_rate_hz(since), kind="monotone")
        mean = mean[mean["runs"] > len(runs) / 2]  # where most have ended the mean jumps to what the others have
        axes.plot(mean.index, mean["mean"], color=colour)
        spread = mean["deviation"].to_numpy()
        axes.fill_between(
            mean.index, mean["mean"] - spread, mean["mean"] + spread, color=colour, alpha=0.2, linewidth=0
        )


def shade_phases(axes: Axes, phases: pd.DataFrame) -> str | None:
    """Shade each of the longest phases that come more than once, such as epochs; their name, None without any."""
    if phases.empty:
        return None
    counts = phases.groupby("name")["start_s"].count()
    fitting = counts[(counts > 1) & (counts <= _MOST_SPANS)]
    if fitting.empty:
        return None
    name = str(phases[phases["name"].isin(fitting.index)].groupby("name")["time_s"].sum().idxmax())
    shaded = phases[phases["name"] == name]
    for number, (start_s, end_s) in enumerate(zip(shaded["start_s"], shaded["end_s"], strict=True)):
        axes.axvspan(start_s, end_s, color=GREY, alpha=0.18 if number % 2 else 0.08, linewidth=0)
    return name


def _rate_hz(runs: Sequence[pd.Series[float]]) -> float:
    longest_s = max((float(run.index[-1]) for run in runs if len(run)), default=1.0)
    rates = [signals.measured_rate_hz(run.index) for run in runs if len(run) > 1]
    return min(2 * max(rates, default=1.0), _MOST_POINTS / max(longest_s, 1e-3))


def _phases(folder: Path, record: Record) -> pd.DataFrame:
    path = run_folder(folder, record.runs[0].number) / "phases.parquet"
    if not path.exists():
        return pd.DataFrame()
    phases = pd.read_parquet(path)
    first = phases["pid"].iloc[0]
    return phases[phases["pid"].eq(first)].drop_duplicates(["name", "start_s"])


def _end_s(frame: pd.DataFrame) -> float:
    return float(frame["time_s"].max()) if len(frame) else 0.0


def _power(axes: Axes, runs: Sequence[pd.DataFrame], colour: str) -> None:
    draw_sensor(axes, [power_readings(frame, _end_s(frame)) for frame in runs], colour)


def _energy(axes: Axes, runs: Sequence[pd.DataFrame], colour: str) -> None:
    cumulated = []
    for frame in runs:
        power = power_readings(frame, _end_s(frame))
        power = power[(power.index >= 0) & ~power.index.duplicated()]
        energy = signals.cumulative_energy_j(power.index, power)
        cumulated.append(pd.Series(energy, index=power.index))
    draw_sensor(axes, cumulated, colour)


def _sensor(column: str) -> Draw:
    def draw(axes: Axes, runs: Sequence[pd.DataFrame], colour: str) -> None:
        draw_sensor(axes, [readings(frame, column) for frame in runs], colour)

    return draw


def _busy(axes: Axes, runs: Sequence[pd.DataFrame], colour: str) -> None:
    used = []
    for frame in runs:
        there = frame[frame["host_cpu_utilization_percent"].notna()]
        means = [float(np.mean(list(values))) for values in there["host_cpu_utilization_percent"]]
        used.append(pd.Series(means, index=pd.Index(there["time_s"].to_numpy(float))))
    draw_sensor(axes, used, colour)


def _memory(axes: Axes, runs: Sequence[pd.DataFrame], colour: str) -> None:
    draw_sensor(axes, [readings(frame, "host_memory_used_bytes") / 2**30 for frame in runs], colour)


_GPU_PANELS = (
    (_power, "power (W)"),
    (_energy, "energy (J)"),
    (_sensor("temperature_c"), "temperature (°C)"),
    (_sensor("sm_clock_mhz"), "SM clock (MHz)"),
    (_sensor("gpu_utilization_percent"), "GPU busy (%)"),
)
_HOST_PANELS = ((_busy, "processors busy (%)"), (_memory, "memory (GiB)"))
