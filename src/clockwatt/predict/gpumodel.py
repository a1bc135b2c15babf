"""Everything that predicts one GPU: its fitted predictors, their intervals, and what the calibration knows."""

from __future__ import annotations

import functools
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd

from clockwatt.config import OperatingPoint
from clockwatt.errors import ClockwattError, DataFileError
from clockwatt.files import write_text
from clockwatt.gpu.specs import find_spec
from clockwatt.predict.clocklaw import POWER_CLOCKS
from clockwatt.predict.crossval import Interval
from clockwatt.predict.features import OPERATION_CLASS, Setting, features_at, operation_features
from clockwatt.predict.hostcosts import PointCosts
from clockwatt.predict.interpolate import interpolate, neighbours
from clockwatt.predict.persist import load_predictor, save_predictor
from clockwatt.predict.predictors import TARGETS, CostPredictor

DESCRIPTION_FILE = "description.json"
ANY_CLASS = ""
"""Stands for all classes among the host times of calls without device work."""


class NotPredictableError(ClockwattError):
    """The predictors cannot answer this question."""


@dataclass(frozen=True)
class PassDescription:
    """What is known of one pass beside the forests.

    Attributes
    ----------
    intervals
        Predictor to target to interval; a target without held-out residuals has none.
    workless_host_s
        Operation class to median host time of calls that do nothing on the device; `ANY_CLASS` for all of them.
    """

    intervals: dict[str, dict[str, Interval]]
    workless_host_s: dict[str, float]


@dataclass(frozen=True)
class GpuDescription:
    """What a folder of predictors is about.

    Attributes
    ----------
    gpu, gpu_name
        The campaign's label, and the NVML name.
    virtual
        Whether all of it rests on a modelled GPU.
    predictors
        Names in order; the first is used for predictions.
    tf32
        Settings that were measured.
    points
        Operating points that were measured, and their calibrated costs.
    passes
        Pass to what is known of it; a pass that could not be fitted is missing.
    clockwatt_version
        That fitted it.
    """

    gpu: str
    gpu_name: str
    virtual: bool
    predictors: list[str]
    tf32: list[bool]
    points: dict[str, PointCosts]
    clockwatt_version: str
    passes: dict[str, PassDescription] = field(default_factory=dict)

    def to_json(self) -> str:
        """As text."""
        return json.dumps(asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Self:
        """From text; ValueError, KeyError, TypeError or AttributeError if it is something else."""
        content: dict[str, Any] = json.loads(text)
        passes = {
            name: PassDescription(
                intervals={
                    predictor: {target: Interval(**interval) for target, interval in of_targets.items()}
                    for predictor, of_targets in entry["intervals"].items()
                },
                workless_host_s={str(key): float(value) for key, value in entry["workless_host_s"].items()},
            )
            for name, entry in content.pop("passes").items()
        }
        points = {point: PointCosts.from_dict(costs) for point, costs in content.pop("points").items()}
        return cls(**content, points=points, passes=passes)


class GpuModel:
    """Predicts operations on one GPU from a folder that `clockwatt fit` wrote."""

    def __init__(self, folder: Path, description: GpuDescription) -> None:
        self.folder = folder
        self.description = description
        self._load = functools.cache(load_predictor)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Open a folder of predictors; forests are read when they are first needed.

        Raises
        ------
        DataFileError
            If the folder has no description, or something else in its place.
        """
        path = folder / DESCRIPTION_FILE
        try:
            return cls(folder, GpuDescription.from_json(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            raise DataFileError(f"{path}: no such file. Run `clockwatt fit` first.") from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataFileError(
                f"{path}: not a description of predictors ({error}). Run `clockwatt fit` again."
            ) from error

    def save_forest(self, predictor_name: str, pass_: str, predictor: CostPredictor) -> None:
        """Write one fitted predictor into the folder."""
        save_predictor(predictor, self._forest_path(predictor_name, pass_))

    def save_description(self) -> None:
        """Write the description, last: a folder without it is not complete."""
        write_text(self.description.to_json(), self.folder / DESCRIPTION_FILE)

    def predict(
        self, operations: pd.DataFrame, pass_: str, point: str, *, tf32: bool, predictor: str | None = None
    ) -> pd.DataFrame:
        """Predict operations at one operating point.

        Parameters
        ----------
        operations
            Unique operations of this pass with `features.CATALOGUE_COLUMNS` and `device_work`.
        pass_
            `inference` or `training`.
        point
            Operating point as in paths.
        tf32
            Whether TF32 may be used.
        predictor
            Name; None for the first.

        Returns
        -------
        pandas.DataFrame
            Indexed by operation id: `TARGETS`, and `lower_…` and `upper_…` of each, missing where no interval is known.

        Raises
        ------
        NotPredictableError
            If this pass was not fitted.
        ConfigError
            If `point` is no operating point.
        """
        learnt = self._described(pass_)
        name = predictor or self.description.predictors[0]
        works = operations["device_work"].to_numpy(bool)
        predicted = self._workless(operations[~works], learnt)
        if works.any():
            features = operation_features(operations[works])
            values = self._at_point(self._load(self._forest_path(name, pass_)), features, point, tf32)
            predicted = pd.concat([predicted, with_interval(values, learnt.intervals.get(name, {}))])
        return predicted.reindex(operations["operation_id"])

    def _at_point(self, forest: CostPredictor, operations: pd.DataFrame, point: str, tf32: bool) -> pd.DataFrame:
        """By the forest at an operating point that was measured, elsewhere by the clock law through its predictions."""
        spec = find_spec(self.description.gpu_name)
        wanted = OperatingPoint.parse(point)
        around = neighbours(wanted, list(self.description.points))
        if point in self.description.points or len(around) < POWER_CLOCKS:
            return forest.predict(features_at(operations, Setting(spec, wanted, tf32)))
        settings = [Setting(spec, OperatingPoint.parse(name), tf32) for name in around]
        at_clocks = {setting.sm_clock_mhz: forest.predict(features_at(operations, setting)) for setting in settings}
        return interpolate(at_clocks, Setting(spec, wanted, tf32).sm_clock_mhz)

    def point_costs(self, point: str) -> PointCosts:
        """Calibrated costs at an operating point; at one never measured, those of the nearest SM clock.

        Raises
        ------
        NotPredictableError
            If no operating point was measured.
        """
        measured = self.description.points
        if point in measured:
            return measured[point]
        if not measured:
            raise NotPredictableError(f"{self.folder}: no calibrated operating point. Run `clockwatt fit` again.")
        boost = find_spec(self.description.gpu_name).boost_clock_mhz
        wanted = OperatingPoint.parse(point).sm_clock_mhz or boost
        nearest = min(measured, key=lambda name: abs((OperatingPoint.parse(name).sm_clock_mhz or boost) - wanted))
        return measured[nearest]

    def _described(self, pass_: str) -> PassDescription:
        passes = self.description.passes
        if pass_ not in passes:
            raise NotPredictableError(
                f"{self.folder}: nothing was fitted for {pass_} ({', '.join(passes) or 'no pass'} was). "
                f"Add {pass_} to `passes` in config.yaml and measure."
            )
        return passes[pass_]

    def _workless(self, operations: pd.DataFrame, learnt: PassDescription) -> pd.DataFrame:
        """Calls without device work cost host time alone."""
        known = learnt.workless_host_s
        host = operations[OPERATION_CLASS].map(known).fillna(known.get(ANY_CLASS, 0.0)).to_numpy(float)
        values = pd.DataFrame(0.0, index=pd.Index(operations["operation_id"]), columns=list(TARGETS))
        values["time_host_s"] = values["time_eager_s"] = host
        values["power_w"] = np.nan
        exact = {name: Interval(1.0, 1.0) for name in TARGETS}
        return with_interval(values, exact)

    def _forest_path(self, predictor_name: str, pass_: str) -> Path:
        return self.folder / f"{predictor_name}-{pass_}.npz"


def with_interval(values: pd.DataFrame, intervals: dict[str, Interval]) -> pd.DataFrame:
    """Predictions with `lower_…` and `upper_…` columns, missing where there is no interval."""
    bounds = {
        f"{side}_{name}": values[name] * (getattr(intervals[name], side) if name in intervals else np.nan)
        for name in values.columns
        for side in ("lower", "upper")
    }
    return values.assign(**bounds)
