"""Predictor of one GPU, for one network or for many at once: its fitted predictors, intervals and overheads."""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from clockwatt.config import reference_point
from clockwatt.errors import DataFileError
from clockwatt.io import files
from clockwatt.io.files import write_text
from clockwatt.predict.answer import QUANTITIES, Estimate
from clockwatt.predict.composition.networks import PREDICTED, VALIDATION_SCHEMA
from clockwatt.predict.costs import (
    Among,
    BesideTwin,
    ByClock,
    Costs,
    CostSource,
    FirstKnown,
    HostOnly,
    Learnt,
    interval_factors,
)
from clockwatt.predict.description import GpuDescription, NotPredictableError, PassDescription, fitted_gpus, is_shipped
from clockwatt.predict.features import OPERATION_CLASS, operation_features
from clockwatt.predict.hosts import HostsSeen
from clockwatt.predict.measured_costs import (
    LookedUp,
    MeasuredCosts,
    MeasuredOperations,
    OfCalls,
    Refined,
    host_s_of,
    write_measured,
)
from clockwatt.predict.models.extrapolation import ALGORITHMS, MATTERS, Domain
from clockwatt.predict.models.predictors import TARGETS, CostPredictor, load_predictor, save_predictor
from clockwatt.predict.models.training_data import DEVICE_AND_HOST
from clockwatt.predict.tracing import TracedNetwork
from clockwatt.predict.warning_kinds import AnswerWarning, WarningKind
from clockwatt.schema import layout
from clockwatt.schema.costs import MEASURED_WHOLE, TIME_HOST_CORRECTED
from clockwatt.schema.execution import ExecutionSettings

_FOREST_SHIPPED = functools.cache(load_predictor)
_DOMAIN_SHIPPED = functools.cache(Domain.read)
_MEASURED_SHIPPED = functools.cache(MeasuredCosts.read)


class GpuPredictor:
    """Predict operations on one GPU from a folder that `clockwatt fit` wrote.

    Attributes
    ----------
    folder, description
        The folder, and its description.
    networks
        Networks that were measured whole on the GPU; none if not passed.
    twin
        Predictor of a GPU with the same chip that more was measured on; None without one.
    """

    twin: GpuPredictor | None = None

    def __init__(self, folder: Path, description: GpuDescription, networks: MeasuredNetworks | None = None) -> None:
        self.folder = folder
        self.description = description
        self.networks = networks or MeasuredNetworks(folder, "")
        self._measured_now: MeasuredOperations | None = None
        self.__setstate__({})

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what was read, which a copy reads again."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_read_")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        shared = is_shipped(self.folder)  # these files stay as they are: one reader serves all that is loaded
        self._read_forest = _FOREST_SHIPPED if shared else functools.cache(load_predictor)
        self._read_domain = _DOMAIN_SHIPPED if shared else functools.cache(Domain.read)
        self._read_measured = _MEASURED_SHIPPED if shared else functools.cache(MeasuredCosts.read)

    @classmethod
    def load(cls, folder: Path, networks: MeasuredNetworks | None = None) -> Self:
        """Open a folder of predictors; forests are read when they are first needed.

        DataFileError if the folder has no description, or something else in its place.
        """
        path = folder / layout.DESCRIPTION_FILE
        try:
            return cls(folder, GpuDescription.from_json(path.read_text(encoding="utf-8")), networks)
        except FileNotFoundError:
            raise DataFileError(f"{path}: no such file. Run `clockwatt fit` first.") from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataFileError(
                f"{path}: not a description of predictors ({error}). Run `clockwatt fit` again."
            ) from error

    @property
    def origin(self) -> str:
        """Origin of the predictors: their folder, or that they are shipped."""
        version = self.description.clockwatt_version
        return f"shipped with clockwatt {version}" if is_shipped(self.folder) else str(self.folder)

    def save_forest(self, predictor_name: str, pass_: str, predictor: CostPredictor) -> None:
        """Write one fitted predictor into the folder."""
        save_predictor(predictor, self._forest_path(predictor_name, pass_))

    def forest(self, predictor_name: str, pass_: str) -> CostPredictor:
        """Read a fitted predictor; DataFileError if the folder has none of this name and pass, or it is damaged."""
        return self._read_forest(self._forest_path(predictor_name, pass_))

    def save_domain(self, pass_: str, domain: Domain) -> None:
        """Write the domain of one pass's training data into the folder."""
        domain.write(self._domain_path(pass_))

    def save_measured(self, pass_: str, rows: pd.DataFrame) -> None:
        """Write the measured costs of one pass into the folder; `rows` of `training_data.Samples`."""
        write_measured(rows[rows["pass"] == pass_], self._measured_path(pass_))

    @functools.cached_property
    def hosts_seen(self) -> HostsSeen:
        """Hosts that the GPU was measured on."""
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
        execution: ExecutionSettings,
        predictor: str | None = None,
        look_up: bool = True,
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
        execution
            Execution settings of the operations, or of the network that calls them.
        predictor
            Name; None for the first.
        look_up
            Whether to use measured costs where there are any.

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
        found = self.costs(operations, pass_, execution=execution, predictor=predictor, look_up=look_up).at([point])
        return found[point].frame(pd.Index(operations["operation_id"]))

    def costs(
        self,
        operations: pd.DataFrame,
        pass_: str,
        *,
        execution: ExecutionSettings,
        predictor: str | None = None,
        look_up: bool = True,
        features: pd.DataFrame | None = None,
    ) -> CostSource:
        """Return the source of operations' costs at any operating points: measured where possible, else predicted.

        `features` are those of the operations with device work, from `features.operation_features`, where
        they are known already; the other parameters are those of `predict`.
        """
        known = self.described(pass_)
        ids = pd.Index(operations["operation_id"])
        settings = self.description.settings_of(operations, execution)
        sources: list[CostSource] = []
        for of_operations in dict.fromkeys(settings):
            own = settings == of_operations
            source = self._costs_under(
                operations[own], pass_, of_operations, predictor=predictor, look_up=look_up, features=features
            )
            sources.append(source if own.all() else Among(source, own))
        now = self._measured_now
        found = self._beside_twin(FirstKnown(*sources), operations, pass_, execution, features)
        if now is not None and known.summed:
            raise NotPredictableError(
                f"{self.description.gpu}: {known.lacks[DEVICE_AND_HOST]}: new device times cannot be combined with "
                "it. Answer without measuring, or fit predictors to device and host times."
            )
        return found if now is None or now.execution != execution else Refined(found, ids, now)

    def beside(self, twin: GpuPredictor) -> None:
        """Take a GPU with the same chip as the `twin`, and its overheads where they are not known."""
        self.twin, points = twin, self.description.points
        completed = {
            point: known.completed(twin.description.points[point])
            for point, known in points.items()
            if point in twin.description.points
        }
        self.description = replace(self.description, points=points | completed)

    def _beside_twin(
        self,
        source: CostSource,
        operations: pd.DataFrame,
        pass_: str,
        execution: ExecutionSettings,
        features: pd.DataFrame | None,
    ) -> CostSource:
        """Return the source, kept within what the twin allows."""
        if self.twin is None or pass_ not in self.twin.description.passes:
            return source
        other = self.twin.description
        bandwidths = other.spec.bandwidth_bytes_s / self.description.spec.bandwidth_bytes_s
        costs = self.twin.costs(operations, pass_, execution=execution, features=features)
        return BesideTwin(source, costs, bandwidths, other.is_led_to)

    def _costs_under(
        self,
        operations: pd.DataFrame,
        pass_: str,
        execution: ExecutionSettings,
        *,
        predictor: str | None,
        look_up: bool,
        features: pd.DataFrame | None,
    ) -> CostSource:
        """Return `costs` of operations that are all measured under the same settings."""
        known, spec = self.described(pass_), self.description.spec
        works = operations["device_work"].to_numpy(bool)
        classes = operations[OPERATION_CLASS].to_numpy(object)
        ids = pd.Index(operations["operation_id"])
        measured = self._read_measured(self._measured_path(pass_)) if look_up else None
        sources: list[CostSource] = []
        if measured is not None:
            sources.append(LookedUp(measured, ids, execution=execution))
        if features is not None:
            features = features.loc[ids[works]]
        if works.any():
            name = predictor or self.description.predictors[0]
            factors = interval_factors(classes[works], known.intervals.get(name, {}))
            features = operation_features(operations[works]) if features is None else features
            forest = self._read_forest(self._forest_path(name, pass_))
            ignorance = self._read_domain(self._domain_path(pass_)).ignorance(operations[works])
            through: CostSource = Learnt(forest, spec, features, factors, execution=execution, ignorance=ignorance)
            if measured is not None:
                through = FirstKnown(LookedUp(measured, ids[works], execution=execution, positive=True), through)
            sources.append(Among(ByClock(through, known.learnt_points, spec), works))
        if not works.all():
            sources.append(Among(HostOnly(classes[~works], known.workless_host_s), ~works))
        return self._with_calls(FirstKnown(*sources), operations, works, features, known)

    def unmeasured_algorithms(self, operations: pd.DataFrame, pass_: str) -> NDArray[np.bool_]:
        """Return which operations are of `extrapolation.ALGORITHMS` and of a class never measured in this pass."""
        suspects = np.array(operations[OPERATION_CLASS].isin(ALGORITHMS), dtype=bool)
        if suspects.any():
            domain = self._read_domain(self._domain_path(pass_))
            suspects[suspects] = domain.ignorance(operations[suspects]).longest_s > 0
        return suspects

    def lacks_dtype(self, traced: TracedNetwork) -> str | None:
        """Return a dtype of a pass's operations that was never measured on the GPU; None if all were."""
        works = traced.operations["device_work"].astype(bool)
        known = self._read_domain(self._domain_path(traced.network.pass_)).dtypes
        return next(iter(sorted(set(traced.operations.loc[works, "dtype"]) - known)), None)

    def _with_calls(
        self,
        source: CostSource,
        operations: pd.DataFrame,
        works: NDArray[np.bool_],
        features: pd.DataFrame | None,
        known: PassDescription,
    ) -> CostSource:
        """Return the source with pooled host times of calls."""
        if features is None or not known.call_times:
            return source
        classes = operations[OPERATION_CLASS].to_numpy(object)
        host_s = HostOnly(classes, known.workless_host_s).costs.mean[:, TARGETS.index(TIME_HOST_CORRECTED)].copy()
        host_s[works] = host_s_of(features, known.call_times)
        return OfCalls(source, host_s)

    def with_measured(self, operations: MeasuredOperations) -> Self:
        """Return the predictor with these measured costs in place of its own; it serves their pass only."""
        other = copy.copy(self)
        other._measured_now = operations
        return other

    def warnings(
        self,
        operations: pd.DataFrame,
        features: pd.DataFrame,
        pass_: str,
        points: Sequence[str],
        *,
        execution: ExecutionSettings,
        shares: NDArray[np.float64],
    ) -> dict[str, tuple[list[str], list[str]]]:
        """Return the warnings of an answer at operating points, as sentences for the user.

        Parameters
        ----------
        operations
            As in `predict`.
        features
            From `features.operation_features`, of those with device work.
        pass_, points, execution
            As in `predict`.
        shares
            Share of each operation in the answer; shape (operations,).

        Returns
        -------
        dict
            Point to the sentences that can change the answer by more than 1 %, and to the others.

        Raises
        ------
        NotPredictableError
            If this pass was not fitted.
        DataFileError
            If the folder lacks its training data's domain.
        """
        lacks = self.described(pass_).lacks
        works = operations["device_work"].to_numpy(bool)
        warnings, notes, spec = list[str](), list[str](), self.description.spec
        if spec.flop_per_cycle_per_sm.bf16 is None and (operations["dtype"] == "bfloat16").any():
            text = f"{spec.name} emulates bfloat16, which is slow and was not measured. Choose float16."
            warnings.append(AnswerWarning(text, WarningKind.EMULATED_PRECISION))
        settings = self.description.settings_of(operations, execution)
        lacking = ~np.isin(settings, self.description.execution)
        if shares[lacking].sum() > MATTERS:
            missing = sorted(set(settings[lacking]))
            needs = "" if execution in missing else f", which matrix products need in {execution}"
            warnings.append(f"Nothing was measured in {' and '.join(missing)}{needs}.")
        for quantity, why in lacks.items():
            kind = WarningKind.NO_HOST_TIME if quantity == DEVICE_AND_HOST else None
            warnings.append(AnswerWarning(f"These predictors hold no {quantity}: {why}.", kind))
        if works.any():
            catalogued = operations.loc[works, ["operation_id", "spec", "dtype"]].set_index("operation_id")
            shares_of = dict[str, float]()
            for outside in self._read_domain(self._domain_path(pass_)).outside(features, catalogued):
                share = float(shares[works][outside.rows].sum())
                if outside.name and outside.matters(share):
                    shares_of[outside.name] = share
                in_full = notes if outside.name or not outside.matters(share) else warnings
                in_full.append(outside.text)
            if shares_of:
                share = 100 * min(sum(shares_of.values()), 1.0)
                most = f"{share:.0f}" if share >= 10 else f"{share:.2g}"
                names = ", ".join(shares_of)
                warnings.append(
                    f"Up to {most} % of time and energy come from operations outside the training data ({names})."
                )
        of_points = ((point, self.description.point_warning(point)) for point in points)
        return {point: ([*([] if of is None else [of]), *warnings], notes) for point, of in of_points}

    def described(self, pass_: str) -> PassDescription:
        """Return what is known of a pass; NotPredictableError if nothing was fitted for it."""
        passes = self.description.passes
        if pass_ not in passes:
            if is_shipped(self.folder):
                raise NotPredictableError(f"{self.description.gpu}: its shipped data cover only {', '.join(passes)}.")
            raise NotPredictableError(
                f"{self.description.gpu}, {self.origin}: nothing was fitted for {pass_} "
                f"({', '.join(passes) or 'no pass'} was). Measure a campaign with {pass_} among its `passes`."
            )
        return passes[pass_]

    def _measured_path(self, pass_: str) -> Path:
        return self.folder / layout.measured_file(pass_)

    def _domain_path(self, pass_: str) -> Path:
        return self.folder / layout.domain_file(pass_)

    def _forest_path(self, predictor_name: str, pass_: str) -> Path:
        return self.folder / layout.predictor_file(predictor_name, pass_)


def load_models(predictors_dir: Path, validation_dir: Path | None = None) -> dict[str, GpuPredictor]:
    """Open the predictors of all GPUs of the last fit, by label.

    With a folder of `clockwatt validate`, answers know which networks were measured whole. DataFileError if there is no
    GPU, or one is damaged.
    """
    measurements = fitted_gpus(predictors_dir)
    models = {
        gpu: GpuPredictor.load(
            predictors_dir / gpu, None if validation_dir is None else MeasuredNetworks(validation_dir, gpu)
        )
        for gpu in measurements
    }
    for gpu, model in models.items():
        twins = [
            other
            for other, of_other in models.items()
            if of_other.description.virtual == model.description.virtual
            and of_other.description.is_twin_of(model.description)
            and measurements[other] > measurements[gpu]
        ]
        if twins:
            model.beside(models[max(twins, key=lambda other: measurements[other])])
    return models


class BulkPredictor(GpuPredictor):
    """Give the same predictions as `model`, at operating points known beforehand.

    Parameters
    ----------
    model
        Predictor that this one is made from.
    operations
        Pass to all operations to predict, as `GpuPredictor.predict` takes them.
    features
        Pass to the features of those with device work, from `features.operation_features`.
    points
        Operating points to predict at; None for the measured ones.
    """

    def __init__(
        self,
        model: GpuPredictor,
        operations: Mapping[str, pd.DataFrame],
        features: Mapping[str, pd.DataFrame],
        points: Sequence[str] | None = None,
    ) -> None:
        vars(self).update(vars(model))  # what the other has read serves both
        self._operations, self._features = operations, features
        self._points = list(self.description.points if points is None else points)
        self._index = {pass_: pd.Index(rows["operation_id"]) for pass_, rows in operations.items()}
        self._known: dict[tuple[str, ExecutionSettings], dict[str, Costs]] = {}

    @classmethod
    def of(cls, model: GpuPredictor, traced: Sequence[TracedNetwork], points: Sequence[str]) -> Self:
        """Make a predictor for all operations of some networks at some operating points."""
        operations, features = {}, {}
        for pass_ in {one.network.pass_ for one in traced}:
            same = [one for one in traced if one.network.pass_ == pass_]
            rows = pd.concat([one.operations for one in same], ignore_index=True)
            operations[pass_] = rows.drop_duplicates("operation_id", ignore_index=True)
            known = pd.concat([one.features for one in same])
            known = known[~known.index.duplicated()]
            works = operations[pass_].loc[operations[pass_]["device_work"].astype(bool), "operation_id"]
            features[pass_] = known.loc[works]
        return cls(model, operations, features, points)

    def costs(
        self,
        operations: pd.DataFrame,
        pass_: str,
        *,
        execution: ExecutionSettings,
        predictor: str | None = None,
        look_up: bool = True,
        features: pd.DataFrame | None = None,
    ) -> CostSource:
        """See `GpuPredictor.costs`; by the first predictor, with measured costs where there are any."""
        if predictor is not None or not look_up:
            return super().costs(
                operations, pass_, execution=execution, predictor=predictor, look_up=look_up, features=features
            )
        if (pass_, execution) not in self._known:
            source = super().costs(self._operations[pass_], pass_, execution=execution, features=self._features[pass_])
            self._known[pass_, execution] = source.at(self._points)
        return _Some(
            self._known[pass_, execution], self._index[pass_].get_indexer(pd.Index(operations["operation_id"]))
        )


class _Some:
    """Source of costs of some of the operations, by their positions."""

    def __init__(self, known: Mapping[str, Costs], positions: object) -> None:
        self._known, self._positions = known, positions

    def at(self, points: Sequence[str]) -> dict[str, Costs]:
        """See `CostSource.at`."""
        rows = self._positions
        found = {}
        for point in points:
            costs = self._known[point]
            found[point] = Costs(*(getattr(costs, name)[rows] for name in ("mean", "factors", "known", "measured")))
        return found


_KEY = ["network_id", "pass", "execution", "point"]


class MeasuredNetworks:
    """Passes of one GPU that were measured whole, from the folder that `clockwatt validate` wrote.

    Parameters
    ----------
    validation_dir
        It need not be there: then nothing is known.
    gpu
        Label.
    """

    def __init__(self, validation_dir: Path, gpu: str) -> None:
        self._path, self._gpu = validation_dir / layout.NETWORKS_FILE, gpu

    def measured(self, network_id: str, pass_: str, point: str, *, execution: ExecutionSettings) -> Estimate | None:
        """A pass as measured; None where it was not."""
        rows = self._rows.get((network_id, pass_, execution, point))
        return None if rows is None else _estimate(rows, [MEASURED_WHOLE[quantity] for quantity in QUANTITIES])

    def held_out(self, network_id: str, pass_: str, point: str, *, execution: ExecutionSettings) -> Estimate | None:
        """A pass as predictors predict it that were fitted without its network, on the host of its measurement."""
        rows = self._rows.get((network_id, pass_, execution, point))
        if rows is None:
            return None
        rows = rows[(rows["source"] == PREDICTED) & (rows["calls_without_cost"] == 0)]
        return _estimate(rows, QUANTITIES)

    @functools.cached_property
    def _rows(self) -> dict[Any, pd.DataFrame]:
        if not self._path.exists():
            return {}
        rows = files.read_table(self._path, VALIDATION_SCHEMA).to_pandas()
        return dict(iter(rows[rows["gpu"] == self._gpu].groupby(_KEY)))


def _estimate(rows: pd.DataFrame, columns: Sequence[str]) -> Estimate | None:
    if rows.empty:
        return None
    values = [float(rows[column].iloc[0]) if pd.notna(rows[column].iloc[0]) else None for column in columns]
    return Estimate(time_s=values[0], power_w=values[1], energy_j=values[2])


_OF_ONE = ["gpu", "network_id", "pass", "execution"]
_MEASURED = ["measured_time_s", "measured_energy_j"]


@dataclass(frozen=True)
class BestPoint:
    """A network's pass on one GPU at the operating point where it took least energy, beside the reference point.

    Attributes
    ----------
    points
        How many operating points were measured.
    more_time, less_energy
        Than at the reference point (`config.reference_point`), relative to it; 0 where that is the same.
    """

    network_id: str
    pass_: str
    execution: ExecutionSettings
    gpu: str
    virtual: bool
    points: int
    point: str
    time_s: float
    energy_j: float
    reference_point: str
    more_time: float
    less_energy: float

    def to_dict(self) -> dict[str, Any]:
        """For JSON; the key of the pass is `pass`."""
        values = asdict(self)
        return {"pass": values.pop("pass_"), **values}


def best_points(validation_dir: Path) -> list[BestPoint]:
    """Of every network, pass, GPU and execution settings that was measured whole; those at most points first.

    Raises
    ------
    DataFileError
        If nothing was validated, or the file is damaged.
    """
    path = validation_dir / layout.NETWORKS_FILE
    if not path.exists():
        raise DataFileError(f"{path}: no such file. Run the campaign to its end, or name a network.")
    table = files.read_table(path, VALIDATION_SCHEMA, [*_OF_ONE, "virtual", "point", *_MEASURED])
    rows = table.to_pandas().dropna(subset=_MEASURED).drop_duplicates([*_OF_ONE, "point"])
    found = []
    for (gpu, network_id, pass_, execution), own in rows.groupby(_OF_ONE, sort=True):
        least = own.loc[own["measured_energy_j"].idxmin()]
        reference = own.set_index("point").loc[reference_point(own["point"])]
        found.append(
            BestPoint(
                str(network_id), str(pass_), ExecutionSettings(str(execution)), str(gpu),
                bool(least["virtual"]), len(own),
                str(least["point"]), float(least["measured_time_s"]), float(least["measured_energy_j"]),
                str(reference.name),
                float(least["measured_time_s"] / reference["measured_time_s"] - 1),
                float(1 - least["measured_energy_j"] / reference["measured_energy_j"]),
            )
        )  # fmt: skip
    return sorted(found, key=lambda best: -best.points)
