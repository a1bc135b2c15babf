"""Everything that predicts one GPU: its fitted predictors, their intervals, and what the calibration knows."""

from __future__ import annotations

import copy
import functools
from dataclasses import replace
from pathlib import Path
from typing import Self

import pandas as pd

from clockwatt.config import OperatingPoint
from clockwatt.errors import DataFileError
from clockwatt.gpu.specs import GpuSpec, find_spec
from clockwatt.io.files import write_text
from clockwatt.predict.composition.overheads import Overheads
from clockwatt.predict.costs.interface import Among, CostSource, FirstKnown, interval_factors
from clockwatt.predict.costs.learnt import ByClock, HostOnly, Learnt
from clockwatt.predict.costs.looked_up import DeviceTimes, LookedUp, MeasuredCosts, Refined, write_measured
from clockwatt.predict.description import GpuDescription, NotPredictableError, PassDescription, is_shipped
from clockwatt.predict.features.operations import OPERATION_CLASS, operation_features
from clockwatt.predict.features.points import Setting
from clockwatt.predict.hosts.costs import HostsSeen
from clockwatt.predict.models.clock_law import POWER_CLOCKS, neighbours
from clockwatt.predict.models.cost_predictor import CostPredictor
from clockwatt.predict.models.domain import Domain
from clockwatt.predict.models.persistence import load_predictor, save_predictor
from clockwatt.predict.samples import DEVICE_AND_HOST
from clockwatt.schema import layout


class GpuPredictor:
    """Predicts operations on one GPU from a folder that `clockwatt fit` wrote."""

    def __init__(self, folder: Path, description: GpuDescription) -> None:
        self.folder = folder
        self.description = description
        self._device_times: DeviceTimes | None = None
        self._load = functools.cache(load_predictor)
        self._read_domain = functools.cache(Domain.read)
        self._read_measured = functools.cache(MeasuredCosts.read)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Open a folder of predictors; forests are read when they are first needed.

        Raises
        ------
        DataFileError
            If the folder has no description, or something else in its place.
        """
        path = folder / layout.DESCRIPTION_FILE
        try:
            return cls(folder, GpuDescription.from_json(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            raise DataFileError(f"{path}: no such file. Run `clockwatt fit` first.") from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataFileError(
                f"{path}: not a description of predictors ({error}). Run `clockwatt fit` again."
            ) from error

    @property
    def origin(self) -> str:
        """Where the predictors come from: their folder, or that they are shipped."""
        version = self.description.clockwatt_version
        return f"shipped with clockwatt {version}" if is_shipped(self.folder) else str(self.folder)

    def save_forest(self, predictor_name: str, pass_: str, predictor: CostPredictor) -> None:
        """Write one fitted predictor into the folder."""
        save_predictor(predictor, self._forest_path(predictor_name, pass_))

    def forest(self, predictor_name: str, pass_: str) -> CostPredictor:
        """One fitted predictor.

        Raises
        ------
        DataFileError
            If the folder has none of this name and pass, or it is damaged.
        """
        return self._load(self._forest_path(predictor_name, pass_))

    def save_domain(self, pass_: str, domain: Domain) -> None:
        """Write what was learnt from in one pass into the folder."""
        domain.write(self._domain_path(pass_))

    def save_measured(self, pass_: str, rows: pd.DataFrame) -> None:
        """Write what was measured in one pass into the folder; `rows` of `samples.Samples`."""
        write_measured(rows[rows["pass"] == pass_], self._measured_path(pass_))

    @functools.cached_property
    def hosts_seen(self) -> HostsSeen:
        """On which hosts the GPU was measured."""
        return HostsSeen.read(self.folder)

    def save_description(self) -> None:
        """Write the description, last: a folder without it is not complete."""
        write_text(self.description.to_json(), self.folder / layout.DESCRIPTION_FILE)

    def predict(
        self,
        operations: pd.DataFrame,
        pass_: str,
        point: str,
        *,
        tf32: bool,
        predictor: str | None = None,
        look_up: bool = True,
    ) -> pd.DataFrame:
        """Predict operations at one operating point.

        Parameters
        ----------
        operations
            Unique operations of this pass with `features.operations.CATALOGUE_COLUMNS` and `device_work`.
        pass_
            `inference` or `training`.
        point
            Operating point as in paths.
        tf32
            Whether TF32 may be used.
        predictor
            Name; None for the first.
        look_up
            Whether what was measured is taken from there.

        Returns
        -------
        pandas.DataFrame
            Indexed by operation id: `TARGETS`, and `lower_…` and `upper_…` of each, missing where no interval is known;
            `measured`, whether it was measured at this operating point.

        Raises
        ------
        NotPredictableError
            If this pass was not fitted.
        ConfigError
            If `point` is no operating point.
        """
        found = self.costs(operations, pass_, tf32=tf32, predictor=predictor, look_up=look_up).at([point])
        return found[point].frame(pd.Index(operations["operation_id"]))

    def costs(
        self,
        operations: pd.DataFrame,
        pass_: str,
        *,
        tf32: bool,
        predictor: str | None = None,
        look_up: bool = True,
        features: pd.DataFrame | None = None,
    ) -> CostSource:
        """What tells the costs of operations at any operating points: looked up where it can be, else predicted.

        `features` are those of the operations with device work, from `features.operations.operation_features`, where
        they are known already; the other parameters are those of `predict`.
        """
        known = self._described(pass_)
        works = operations["device_work"].to_numpy(bool)
        classes = operations[OPERATION_CLASS].to_numpy(object)
        ids = pd.Index(operations["operation_id"])
        measured = self._read_measured(self._measured_path(pass_)) if look_up else None
        sources: list[CostSource] = []
        if measured is not None:
            sources.append(LookedUp(measured, ids, tf32=tf32))
        if works.any():
            name = predictor or self.description.predictors[0]
            factors = interval_factors(classes[works], known.intervals.get(name, {}))
            if features is None:
                features = operation_features(operations[works])
            forest = self._load(self._forest_path(name, pass_))
            through: CostSource = Learnt(forest, self._spec, features, factors, tf32=tf32)
            if measured is not None:
                through = FirstKnown(LookedUp(measured, ids[works], tf32=tf32, positive=True), through)
            sources.append(Among(ByClock(through, known.learnt_points, self._spec), works))
        if not works.all():
            sources.append(Among(HostOnly(classes[~works], known.workless_host_s), ~works))
        times, found = self._device_times, FirstKnown(*sources)
        if times is not None and known.summed:
            raise NotPredictableError(
                f"{self.description.gpu}: {known.lacks[DEVICE_AND_HOST]}: device times that are measured now fit none "
                "of it. Answer without measuring, or fit predictors to device and host times."
            )
        return found if times is None or times.tf32 != tf32 else Refined(found, ids, times)

    def with_device_times(self, times: DeviceTimes) -> Self:
        """The same with device times that were measured in place of its own; all questions are of their pass."""
        other = copy.copy(self)
        other._device_times = times
        return other

    def warnings(
        self, operations: pd.DataFrame, features: pd.DataFrame, pass_: str, point: str, *, tf32: bool
    ) -> list[str]:
        """What makes a question one that the measurements do not cover: sentences for the user.

        Parameters
        ----------
        operations
            As in `predict`.
        features
            From `features.operations.operation_features`, of those with device work.
        pass_, point, tf32
            As in `predict`.

        Raises
        ------
        NotPredictableError
            If this pass was not fitted.
        DataFileError
            If the folder lacks what was learnt from.
        """
        lacks = self._described(pass_).lacks
        works = operations.loc[operations["device_work"].to_numpy(bool), ["operation_id", "spec", "dtype"]]
        said = self.point_warnings(point)
        if tf32 not in self.description.tf32:
            said.append(f"Nothing was measured with TF32 {'on' if tf32 else 'off'}.")
        said += [f"These predictors hold no {quantity}: {why}." for quantity, why in lacks.items()]
        if len(works):
            domain = self._read_domain(self._domain_path(pass_))
            said += domain.warnings(features, works.set_index("operation_id"))
        return said

    def point_for(self, point: str) -> str:
        """The operating point that is answered for: the boost clock for `default` where only clocks were measured."""
        measured = self.description.points
        clocked = neighbours(OperatingPoint(), list(measured))
        if point != str(OperatingPoint()) or point in measured or len(clocked) < POWER_CLOCKS:
            return point
        return str(OperatingPoint(sm_clock_mhz=self._spec.sm_clock_mhz.boost))

    def check_runs_at(self, point: str) -> None:
        """Refuse an operating point that the card cannot run at.

        Raises
        ------
        NotPredictableError
            Naming the point and what the card has.
        ConfigError
            If `point` is no operating point.
        """
        wanted, spec = OperatingPoint.parse(point), self._spec
        for asked, low, high, unit in (
            (wanted.sm_clock_mhz, spec.sm_clock_mhz.min, spec.sm_clock_mhz.max, "MHz"),
            (wanted.memory_clock_mhz, min(spec.memory_clocks_mhz), max(spec.memory_clocks_mhz), "MHz of memory"),
            (wanted.power_limit_w, spec.power_w.min, spec.power_w.max, "W"),
        ):
            if asked is not None and not low <= asked <= high and point not in self.description.points:
                has = f"{low:g} to {high:g}" if low < high else f"{low:g}"
                raise NotPredictableError(f"{self.description.gpu} cannot run at {point}: it has {has} {unit}.")

    def is_led_to(self, point: str) -> bool:
        """Whether an operating point was measured, or the law of the clock leads there from enough that were."""
        wanted, measured = OperatingPoint.parse(point), self.description.points
        if point in measured:
            return True
        return wanted.sm_clock_mhz is not None and len(neighbours(wanted, list(measured))) >= POWER_CLOCKS

    def point_warnings(self, point: str) -> list[str]:
        """Why no law leads to an operating point from those that were measured: sentences, none where one does."""
        if point in self.description.points:
            return []
        if not self.is_led_to(point):
            return [
                f"Nothing was measured at {point}, and no law leads there from {', '.join(self.description.points)}."
            ]
        wanted = OperatingPoint.parse(point)
        assert wanted.sm_clock_mhz is not None
        around = neighbours(wanted, list(self.description.points))
        clocks = [OperatingPoint.parse(name).sm_clock_mhz or 0 for name in around]
        if not min(clocks) <= wanted.sm_clock_mhz <= max(clocks):
            return [f"{point} lies outside the measured clocks, {min(clocks)} to {max(clocks)} MHz."]
        return []

    def overheads(self, point: str) -> Overheads:
        """Overheads at an operating point; at one never measured, those of the nearest SM clock.

        The nearest is one with the same power limit, if there is any.

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
        wanted = OperatingPoint.parse(point)

        def distance(name: str) -> tuple[bool, int]:
            other = OperatingPoint.parse(name)
            clocks = (other.sm_clock_mhz or boost) - (wanted.sm_clock_mhz or boost)
            return other.power_limit_w != wanted.power_limit_w, abs(clocks)

        nearest = min(measured, key=distance)
        if OperatingPoint.parse(nearest).power_limit_w == wanted.power_limit_w:
            return measured[nearest]
        limit_w = Setting(self._spec, wanted, tf32=False).power_limit_w
        return replace(measured[nearest], power_limit_w=limit_w)

    def _described(self, pass_: str) -> PassDescription:
        passes = self.description.passes
        if pass_ not in passes:
            raise NotPredictableError(
                f"{self.folder}: nothing was fitted for {pass_} ({', '.join(passes) or 'no pass'} was). "
                f"Add {pass_} to `passes` in config.yaml and measure."
            )
        return passes[pass_]

    @property
    def _spec(self) -> GpuSpec:
        return find_spec(self.description.gpu_name)

    def _measured_path(self, pass_: str) -> Path:
        return self.folder / layout.measured_file(pass_)

    def _domain_path(self, pass_: str) -> Path:
        return self.folder / layout.domain_file(pass_)

    def _forest_path(self, predictor_name: str, pass_: str) -> Path:
        return self.folder / layout.predictor_file(predictor_name, pass_)
