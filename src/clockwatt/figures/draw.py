"""Drawing every figure of a campaign."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from clockwatt.config import CampaignConfig
from clockwatt.figures import calibration, load, networks, predictions, quality, style
from clockwatt.figures.names import FIGURES
from clockwatt.io.progress import progress
from clockwatt.schema import layout
from clockwatt.schema.costs import BY_CORRECTED
from clockwatt.schema.quantities import CalibrationQuantity

GPUS_AT_MOST = 4
NETWORKS_AT_MOST = len(style.COLOURS)
SMALL_MULTIPLES = 4
CLASSES_AT_MOST = 16


@dataclass(frozen=True)
class _Results:
    """Folders, and what several figures need of them."""

    config: CampaignConfig
    dataset: Path
    predictors: Path
    gpus: list[load.Gpu]
    compositions: pd.DataFrame

    @property
    def shown(self) -> list[load.Gpu]:
        """GPUs that have panels of their own."""
        labels = style.spread([gpu.label for gpu in self.gpus], GPUS_AT_MOST)
        return [gpu for gpu in self.gpus if gpu.label in labels]

    @property
    def still(self) -> list[str]:
        """GPUs without a curve along operating points, where others have one."""
        points = self.compositions.groupby("gpu")["point"].nunique()
        return sorted(str(gpu) for gpu in points.index[points == 1]) if (points > 1).any() else []

    @property
    def virtual(self) -> list[str]:
        return [gpu.label for gpu in self.gpus if gpu.virtual]

    def note(self, shown: int, of: int, what: str) -> str:
        return "" if shown == of else f"{shown} of {of} {what} are shown. "


def draw_figures(
    config: CampaignConfig, dataset_dir: Path, predictors_dir: Path, validation_dir: Path, output_dir: Path
) -> None:
    """Draw every figure of `names.FIGURES`, as PNG and PDF.

    Parameters
    ----------
    config
        Its passes, predictors and name.
    dataset_dir, predictors_dir, validation_dir
        What the stages before wrote.
    output_dir
        Where the figures go.

    Raises
    ------
    DataFileError
        If a result is missing or damaged.
    OutputError
        If a figure cannot be written.
    """
    results = _Results(
        config, dataset_dir, predictors_dir, load.gpus(predictors_dir), load.compositions(validation_dir)
    )
    with style.styled(), progress("figures", len(FIGURES)) as advance:
        for name in FIGURES:
            style.save(_DRAWN[name](results), output_dir, name)
            advance(name)


def _predicted_vs_measured(quantity: predictions.Quantity) -> Callable[[_Results], Figure]:
    def draw(results: _Results) -> Figure:
        columns = [quantity.column, BY_CORRECTED[quantity.column].predicted]
        predictor = results.config.fit.predictors[0]
        rows = pd.concat(load.held_out(results.predictors, gpu, columns).assign(gpu=gpu.label) for gpu in results.shown)
        rows = rows[rows["predictor"] == predictor]
        dense = rows.groupby(["gpu", "pass"]).size().max() > predictions.POINTS_AT_MOST
        classes = [] if dense else predictions.common_classes(rows)
        height = min(3.0, 0.92 * style.WIDTH_IN / len(results.shown))
        figure, grid = style.panels(len(results.config.passes), len(results.shown), height_in=height)
        for row, pass_ in zip(grid, results.config.passes, strict=True):
            for axes, gpu in zip(row, results.shown, strict=True):
                own = rows[(rows["gpu"] == gpu.label) & (rows["pass"] == pass_)]
                predictions.predicted_vs_measured(axes, own, quantity, classes)
        _label(grid, results, "measured", "predicted")
        if classes:
            style.legend(figure, classes, "operation class")
        note = f"{quantity.name.capitalize()}, predicted by {predictor} with its group held out. "
        note += "Darker: more operations. " if dense else ""
        note += results.note(len(results.shown), len(results.gpus), "GPUs")
        style.footer(figure, results.virtual, note)
        return figure

    return draw


def _error_by_class(results: _Results) -> Figure:
    quantity = predictions.TIME
    columns = [quantity.column, BY_CORRECTED[quantity.column].predicted]
    frames = {gpu.label: load.held_out(results.predictors, gpu, columns) for gpu in results.shown}
    counts = pd.concat(frames.values())["operation_class"].value_counts()
    ordered = sorted(counts.index, key=lambda name: (-counts[name], name))
    classes = sorted(ordered[:CLASSES_AT_MOST])
    height = 0.5 + 0.17 * len(classes)
    figure, grid = style.panels(
        len(results.config.passes), len(results.shown), height_in=max(height, 1.5), share_x=True
    )
    predictors = results.config.fit.predictors
    for row, pass_ in zip(grid, results.config.passes, strict=True):
        for axes, gpu in zip(row, results.shown, strict=True):
            rows = frames[gpu.label]
            predictions.error_by_class(axes, rows[rows["pass"] == pass_], quantity, classes, predictors)
            if axes is not row[0]:
                axes.tick_params(axis="y", labelleft=False)
    _label(grid, results, "error", "")
    style.legend(figure, predictors, "predictor")
    note = f"Absolute error of {quantity.name}, groups held out. Marker: its median; line: to its 95th percentile. "
    note += results.note(len(classes), len(ordered), "operation classes")
    style.footer(figure, results.virtual, note)
    return figure


def _network_clock(results: _Results) -> Figure:
    rows = _at_default_settings(results.compositions)
    rows = rows[(rows["source"] == "predicted") & ~rows["gpu"].isin(results.still)]
    shown = [gpu for gpu in results.shown if gpu.label not in results.still]
    names = style.spread(_by_time(rows), NETWORKS_AT_MOST)
    combinations = [(gpu, pass_) for gpu in shown for pass_ in results.config.passes]
    figure, grid = style.panels(len(combinations), len(networks.PER_PASS), height_in=1.55, share_x=False)
    for row, (gpu, pass_) in zip(grid, combinations, strict=True):
        own = rows[(rows["gpu"] == gpu.label) & (rows["pass"] == pass_)]
        for axes, (column, (name, _)) in zip(row, networks.PER_PASS.items(), strict=True):
            networks.network_clock(axes, own, column, names)
            if row is grid[0]:
                axes.set_title(name)
            if len(clocks := own["clock_mhz"].unique()) == 1:
                axes.set_xticks(clocks)
        row[0].set_ylabel(f"{style.gpu_title(gpu.label, virtual=gpu.virtual)}\n{pass_}")
    for axes in grid[-1]:
        axes.set_xlabel("SM clock (MHz)")
    style.legend(figure, names, "network")
    note = "Solid: measured whole; dashed: composed from predictions; ring: least measured energy.\n"
    note += results.note(len(names), rows["network_id"].nunique(), "networks")
    note += results.note(len(shown), len(results.gpus), "GPUs") + _without_curve(results.still)
    style.footer(figure, results.virtual, note.strip())
    return figure


def _energy_time(results: _Results) -> Figure:
    rows = results.compositions[results.compositions["source"] == "predicted"]
    rows = rows[~rows["gpu"].isin(results.still)]
    names = style.spread(_by_time(rows), SMALL_MULTIPLES)
    moving = [gpu.label for gpu in results.gpus if gpu.label not in results.still]
    labels = style.spread(moving, len(style.COLOURS))
    rows = rows[rows["gpu"].isin(labels)]
    figure, grid = style.panels(len(results.config.passes), max(len(names), 1), height_in=2.0)
    for row, pass_ in zip(grid, results.config.passes, strict=True):
        for axes, name in zip(row, names, strict=False):
            networks.energy_time(axes, rows[(rows["network_id"] == name) & (rows["pass"] == pass_)], labels)
            if row is grid[0]:
                axes.set_title(_on_two_lines(name))
        row[0].set_ylabel(f"{pass_}\nenergy per pass")
    for axes in grid[-1]:
        axes.set_xlabel("time per pass")
    titles = [style.gpu_title(gpu.label, virtual=gpu.virtual) for gpu in results.gpus if gpu.label in labels]
    style.legend(figure, titles, "GPU")
    note = "Measured whole networks, a marker per operating point; black: no other is faster and takes less energy.\n"
    note += results.note(len(names), rows["network_id"].nunique(), "networks") + _without_curve(results.still)
    style.footer(figure, results.virtual, note.strip())
    return figure


def _composed_vs_measured(results: _Results) -> Figure:
    rows = results.compositions[results.compositions["calls_without_cost"] == 0]
    quantities = ["time_s", "energy_j"]
    figure, grid = style.panels(len(results.config.passes), len(quantities), height_in=2.1)
    for row, pass_ in zip(grid, results.config.passes, strict=True):
        for axes, quantity in zip(row, quantities, strict=True):
            networks.composed_vs_measured(axes, rows[rows["pass"] == pass_], quantity)
            axes.set(title=f"{networks.PER_PASS[quantity][0]}, {pass_}", ylabel="composed against measured")
    for axes, quantity in zip(grid[-1], quantities, strict=True):
        axes.set_xlabel(f"measured {networks.PER_PASS[quantity][0]}")
    style.legend(figure, list(networks.METHODS), "composed by")
    missing = len(results.compositions) - len(rows)
    note = f"{missing} compositions lack the cost of a call and are left out." if missing else ""
    style.footer(figure, results.virtual, note)
    return figure


def _time_against_iterations(results: _Results) -> Figure:
    rows = load.calibrated(results.dataset, CalibrationQuantity.TIME_AGAINST_ITERATIONS)
    names = calibration.operation_names(list(rows["subject"].unique()))
    draw = functools.partial(calibration.time_against_iterations, operations=list(names))
    figure = _per_gpu(results, rows, draw, "calls back to back", "time per call,\nrelative to most calls")
    style.legend(figure, list(names.values()), "anchor operation, shape of its input")
    note = "A run waits for the GPU once, at its end. Bars: 95 % intervals of the median of several runs. "
    style.footer(figure, results.virtual, note + results.note(len(results.shown), len(results.gpus), "GPUs"))
    return figure


def _power_transient(results: _Results) -> Figure:
    rows = load.calibrated(results.dataset, CalibrationQuantity.POWER_TRANSIENT)
    figure = _per_gpu(results, rows, calibration.power_transient, "time since the load began (s)", "board power")
    style.legend(figure, list(calibration.SENSORS.values()), "sensor")
    note = "Several runs of the heaviest anchor operation after a rest; a sensor shows the mean over its own window. "
    style.footer(figure, results.virtual, note + results.note(len(results.shown), len(results.gpus), "GPUs"))
    return figure


def _per_gpu(results: _Results, rows: pd.DataFrame, draw: Callable[..., Axes], x: str, y: str) -> Figure:
    """A panel per GPU of calibration rows, with the operating point that they are of."""
    figure, (panels,) = style.panels(1, len(results.shown), height_in=2.2)
    for axes, gpu in zip(panels, results.shown, strict=True):
        own = rows[rows["gpu"] == gpu.label]
        point = own["point"].iloc[0] if len(own) else "not calibrated"
        axes.set(title=f"{style.gpu_title(gpu.label, virtual=gpu.virtual)}\n{point}", xlabel=x)
        if len(own):
            draw(axes, own)
    panels[0].set_ylabel(y)
    return figure


def _quality(results: _Results) -> Figure:
    statuses, flags = quality.per_gpu(load.quality(results.dataset, layout.QUALITY_FILE))
    virtual = set(results.virtual)
    rows = statuses.drop(columns="missing").sum(axis=1)
    titles = {
        label: f"{style.gpu_title(str(label), virtual=label in virtual)}\n{int(rows[label]):,} rows"
        for label in statuses.index
    }
    figure, ((left, right),) = style.panels(1, 2, height_in=1.3 + 0.32 * len(statuses))
    quality.status_bars(left, statuses.rename(index=titles))
    left.set_title("rows by how they ended")
    figure.legend(*left.get_legend_handles_labels(), loc="outside upper left", ncols=4)
    quality.flag_table(right, flags.rename(index=titles), rows.rename(index=titles))
    right.set_title("share of rows with a flag")
    right.tick_params(axis="y", labelleft=False)
    style.footer(figure, results.virtual)
    return figure


_DRAWN: dict[str, Callable[[_Results], Figure]] = {
    "predicted_vs_measured_time": _predicted_vs_measured(predictions.TIME),
    "predicted_vs_measured_power": _predicted_vs_measured(predictions.POWER),
    "predicted_vs_measured_energy": _predicted_vs_measured(predictions.ENERGY),
    "error_by_class": _error_by_class,
    "network_clock": _network_clock,
    "energy_time_pareto": _energy_time,
    "composed_vs_measured": _composed_vs_measured,
    "time_against_iterations": _time_against_iterations,
    "power_transient": _power_transient,
    "quality": _quality,
}


def _label(grid: Sequence[Sequence[Axes]], results: _Results, x: str, y: str) -> None:
    """GPUs above the columns, passes before the rows, axis labels outside."""
    for axes, gpu in zip(grid[0], results.shown, strict=True):
        axes.set_title(style.gpu_title(gpu.label, virtual=gpu.virtual))
    for row, pass_ in zip(grid, results.config.passes, strict=True):
        row[0].set_ylabel("\n".join(filter(None, (pass_, y))))
    for axes in grid[-1]:
        axes.set_xlabel(x)


def _at_default_settings(rows: pd.DataFrame) -> pd.DataFrame:
    """Operating points that differ in nothing but the SM clock, so that a curve against it is one."""
    alike = rows["point"].str.fullmatch(r"default|sm\d+")
    return rows[alike] if alike.any() else rows


def _without_curve(gpus: Sequence[str]) -> str:
    return f"Measured at one operating point and not shown: {', '.join(gpus)}." if gpus else ""


def _by_time(rows: pd.DataFrame) -> list[str]:
    """Network ids by rising time."""
    return [str(name) for name in rows.groupby("network_id")["measured_time_s"].median().sort_values().index]


def _on_two_lines(network_id: str) -> str:
    """Network above its input's shape and dtype."""
    name, shape, dtype = network_id.rsplit("-", 2)
    return f"{name}\n{shape} {dtype}"
