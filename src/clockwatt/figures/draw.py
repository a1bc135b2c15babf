"""Drawing every figure of a campaign: what each is given, and where it goes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from clockwatt.config import CampaignConfig
from clockwatt.figures import (
    calibration,
    classes,
    clocks,
    composed,
    importance,
    learning,
    load,
    machine,
    networks,
    operations,
    pareto_front,
    predictions,
    quality,
    regret,
    sampling,
    sensors,
    style,
)
from clockwatt.figures.gpus import Gpus
from clockwatt.figures.names import figures
from clockwatt.io.progress import progress
from clockwatt.predict.gpu_predictor import GpuPredictor
from clockwatt.schema.quantities import CalibrationQuantity

TRACES_AT_MOST = 3
"""Operating points of a GPU whose power traces are shown."""

LEARNT = (predictions.TIME, predictions.POWER, predictions.ENERGY)
"""Quantities that predictors estimate."""

Drawn = tuple[Figure, pd.DataFrame]


class Results:
    """Folders of a campaign, and what several figures need of them, read once."""

    def __init__(
        self, config: CampaignConfig, measurements: Path, dataset: Path, predictors: Path, validation: Path
    ) -> None:
        self.config = config
        self.measurements, self.dataset, self.predictors, self.validation = (
            measurements, dataset, predictors, validation,
        )  # fmt: skip
        self.report = load.metrics(predictors)
        self.quality = load.quality(dataset)
        self.gpus: Gpus = load.gpus(self.report)
        self.shown = self.gpus.shown(self.gpus.labels)

    @property
    def predictor(self) -> str:
        """The one that compositions and answers use."""
        return str(self.config.fit.predictors[0])

    @functools.cached_property
    def compositions(self) -> pd.DataFrame:
        """From `load.compositions`."""
        return load.compositions(self.validation)

    @functools.cached_property
    def whole_errors(self) -> pd.DataFrame:
        """From `load.whole_errors`."""
        return load.whole_errors(self.dataset)

    @functools.cached_property
    def calls(self) -> pd.DataFrame:
        """From `load.calls`."""
        return load.calls(self.dataset)

    @functools.cached_property
    def catalogue(self) -> pd.DataFrame:
        """From `load.catalogue`."""
        return load.catalogue(self.dataset)

    @functools.cached_property
    def operations(self) -> pd.DataFrame:
        """Those of every GPU at its reference point; see `load.operations`."""
        points = {
            label: load.reference_point(point["point"] for point in self.quality["points"] if point["gpu"] == label)
            for label in self.gpus.labels
        }
        return load.operations(self.dataset, points, ["dtype", "operation_kind", "energy_dynamic_corrected_j"])

    @functools.cached_property
    def sum_errors(self) -> pd.DataFrame:
        """From `networks.sum_errors`."""
        return networks.sum_errors(self.operations, self.calls)

    @functools.cached_property
    def held_out(self) -> pd.DataFrame:
        """Held-out predictions of every GPU that is shown, weighted."""
        columns = ["operation_id", *(name for one in LEARNT for name in (one.column, one.predicted))]
        names = self.config.fit.predictors
        parts = [load.held_out(self.predictors, gpu, names, columns) for gpu in self.shown]
        return predictions.weighted(pd.concat(parts, ignore_index=True), self.calls)

    @functools.cached_property
    def class_errors(self) -> pd.DataFrame:
        """Errors of device time; see `classes.class_errors`."""
        return classes.class_errors(self.held_out, predictions.TIME, self.config.fit.predictors)

    @functools.cached_property
    def telemetry(self) -> pd.DataFrame:
        """Telemetry of the GPUs shown, at a few operating points each; see `load.telemetry`."""
        return load.telemetry(self.measurements, self.shown, TRACES_AT_MOST)

    @functools.cached_property
    def telemetry_of_one_point(self) -> pd.DataFrame:
        """The same, each GPU at its reference point."""
        rows = self.telemetry
        last = {gpu: load.reference_point(own["point"]) for gpu, own in rows.groupby("gpu")}
        return rows[rows["point"] == rows["gpu"].map(last)]

    def measured_in(self, pass_: str) -> list[str]:
        """Return GPUs with a network in this pass."""
        return sorted(self.compositions.loc[self.compositions["pass"] == pass_, "gpu"].unique())


def draw_figures(
    config: CampaignConfig,
    measurements_dir: Path,
    dataset_dir: Path,
    predictors_dir: Path,
    validation_dir: Path,
    output_dir: Path,
) -> None:
    """Draw every figure of `names.figures`, as PNG and PDF, each with its data as CSV beside it.

    Parameters
    ----------
    config
        Its passes, predictors and name.
    measurements_dir, dataset_dir, predictors_dir, validation_dir
        What the stages before wrote; of the first the telemetry, as far as there is any.
    output_dir
        Where the figures go.

    Raises
    ------
    DataFileError
        If a result is missing or damaged.
    OutputError
        If a figure cannot be written.
    """
    results = Results(config, measurements_dir, dataset_dir, predictors_dir, validation_dir)
    wanted = figures(list(config.passes))
    with style.styled(), progress("figures", len(wanted)) as advance:
        for name, (family, pass_) in wanted.items():
            figure, data = DRAWN[family](results, pass_)
            style.save(figure, data, output_dir, name)
            advance(name)


def _figure(
    make: Callable[[Results, str], pd.DataFrame], draw: Callable[..., Figure], *more: Callable[[Results, str], Any]
) -> Callable[[Results, str], Drawn]:
    """Return what makes the data of a figure, and draws it, given the data, the GPUs and `more`."""

    def drawn(results: Results, pass_: str) -> Drawn:
        data = make(results, pass_)
        return draw(data, results.gpus, *(one(results, pass_) for one in more)), data

    return drawn


def _network(quantity: str) -> Callable[[Results, str], Drawn]:
    def drawn(results: Results, pass_: str) -> Drawn:
        data = networks.costs(results.compositions, results.whole_errors, results.sum_errors, quantity, pass_)
        return networks.draw(data, results.gpus, quantity), data

    return drawn


def _operations(results: Results, _: str) -> Drawn:
    data = operations.costliest(results.operations, results.calls, results.gpus)
    specs = load.specs(results.catalogue, data["operation_id"].unique())
    return operations.draw(data, specs, results.gpus), data


def _predicted(quantity: predictions.Quantity) -> Callable[[Results, str], Drawn]:
    def drawn(results: Results, _: str) -> Drawn:
        rows = results.held_out[results.held_out["predictor"] == results.predictor]
        data, told = predictions.compared(rows, quantity), predictions.summary(rows, quantity)
        return predictions.draw_compared(data, told, quantity, results.gpus, results.predictor), data

    return drawn


def _error_by_class(results: Results, _: str) -> Drawn:
    data, names = results.class_errors, results.config.fit.predictors
    return classes.draw_class_errors(data, predictions.TIME, results.gpus, names), data


def _importance(results: Results, _: str) -> Drawn:
    shown = {gpu: GpuPredictor.load(results.predictors / gpu) for gpu in results.shown}
    data = importance.of_gpus(shown, results.catalogue, results.predictor, list(results.config.passes))
    return importance.draw(data, results.gpus), data


def _transient(results: Results, _: str) -> Drawn:
    rows = load.calibrated(results.dataset, CalibrationQuantity.POWER_TRANSIENT)
    return calibration.draw_transient(rows, results.gpus), rows[["gpu", "point", "subject", "x", "value"]]


DRAWN: dict[str, Callable[[Results, str], Drawn]] = {
    "network_energy": _network("energy_j"),
    "network_time": _network("time_s"),
    "network_clock": _figure(
        lambda of, pass_: clocks.along(of.compositions, of.whole_errors, pass_), clocks.draw, Results.measured_in
    ),
    "network_optimum": _figure(
        lambda of, pass_: clocks.optima(clocks.along(of.compositions, of.whole_errors, pass_)),
        clocks.draw_optima,
        Results.measured_in,
    ),
    "energy_time": _figure(
        lambda of, pass_: pareto_front.points(of.compositions, of.whole_errors, of.gpus, pass_), pareto_front.draw
    ),
    "regret": _figure(lambda of, _: regret.regrets(of.compositions), regret.draw),
    "composed_vs_measured": _figure(
        lambda of, _: composed.errors(of.compositions, of.gpus),
        composed.draw,
        lambda of, _: int((of.compositions["calls_without_cost"] > 0).sum()),
    ),
    "operations": _operations,
    "predicted_vs_measured_time": _predicted(predictions.TIME),
    "predicted_vs_measured_power": _predicted(predictions.POWER),
    "predicted_vs_measured_energy": _predicted(predictions.ENERGY),
    "error_by_class": _error_by_class,
    "coverage_by_class": _figure(
        lambda of, _: classes.coverages(of.report, of.class_errors, predictions.TIME.column),
        classes.draw_coverages,
        lambda of, _: of.predictor,
    ),
    "learning_curve": _figure(lambda of, _: learning.curves(of.report, LEARNT), learning.draw, lambda *_: LEARNT),
    "importance": _importance,
    "time_against_duration": _figure(
        lambda of, _: calibration.durations(load.calibrated(of.dataset, CalibrationQuantity.TIME_AGAINST_ITERATIONS)),
        calibration.draw_durations,
    ),
    "power_transient": _transient,
    "power_traces": _figure(lambda of, _: sensors.traces(of.telemetry), sensors.draw_traces),
    "sampling_interval": _figure(lambda of, _: sampling.intervals(of.telemetry_of_one_point), sensors.draw_intervals),
    "cumulative_energy": _figure(lambda of, _: sensors.cumulated(of.telemetry_of_one_point), sensors.draw_cumulated),
    "clock_seen": _figure(lambda of, _: machine.clocks(load.clocks(of.dataset)), machine.draw_clocks),
    "cards": _figure(lambda of, _: machine.cards(of.quality), machine.draw_cards),
    "quality": _figure(lambda of, _: quality.counts(of.quality), quality.draw),
}
"""Families of `names.QUESTIONS`: each from results and a pass to the figure and the data that it shows."""
