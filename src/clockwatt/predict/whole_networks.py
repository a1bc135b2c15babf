"""Compose networks measured whole on one GPU: from measured operations, and from predictions without the network.

Overheads are estimated from these networks if there are enough, else from those that the calibration measured.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from clockwatt.config import OperatingPoint
from clockwatt.gpu.specs import find_spec
from clockwatt.measure.calibrate.module_costs import module_and_call_costs
from clockwatt.predict.composition.networks import (
    PREDICTED,
    Catalogue,
    CostsOfNetwork,
    compositions,
    host_levels,
    whole_networks,
)
from clockwatt.predict.composition.pipeline import (
    COST_COLUMNS,
    HostOverheads,
    Overheads,
    PassOverheads,
    read_calibrated,
)
from clockwatt.predict.costs import HostOnly, cost_columns, interval_factors
from clockwatt.predict.evaluation.errors import NORMAL_90, Interval, scale_of
from clockwatt.predict.evaluation.leave_out import judge_left_out, leave_networks_out, network_errors
from clockwatt.predict.evaluation.pass_errors import (
    ADDED,
    ERROR_OF,
    LOOKED_UP_ERROR,
    PassErrors,
    estimate_pass_errors,
)
from clockwatt.predict.features import OPERATION_CLASS, Setting, operation_features
from clockwatt.predict.hosts import HostsSeen
from clockwatt.predict.measured_costs import CallTimes, call_times, host_ratio, host_s_of
from clockwatt.predict.models.predictors import TARGETS, CostPredictor
from clockwatt.predict.models.training_data import Samples, TrainingData, read_samples, with_unmeasured
from clockwatt.predict.models.transfer import transfer_sources
from clockwatt.schema.costs import BY_CORRECTED, ENERGY_CORRECTED, TIME_HOST_CORRECTED
from clockwatt.schema.execution import FP32, ExecutionSettings
from clockwatt.schema.records import FORWARD, INFERENCE, LOSS, TRAINING

_KEY = ["pass", "point", "execution"]


@dataclass(frozen=True)
class WholeNetworks:
    """Passes of networks measured whole on one GPU, and the data to compose them.

    Attributes
    ----------
    gpu
        Label.
    catalogue
        Calls of networks.
    rows
        From `composition.networks.whole_networks`.
    not_comparable
        Number of further rows that cannot be compared with a composition.
    measured
        Measured costs of operations.
    overheads
        Overheads of networks beyond their calls.
    call_times
        Pass to the pooled host times of its calls, see `costs.measured.call_times`.
    """

    gpu: str
    catalogue: Catalogue
    rows: pd.DataFrame
    not_comparable: int
    measured: CostsOfNetwork
    overheads: OverheadEstimates
    call_times: Mapping[str, CallTimes] = field(default_factory=dict)

    @classmethod
    def read(
        cls,
        dataset_dir: Path,
        gpu: str,
        samples: Samples,
        catalogue: Catalogue,
        lender: Callable[[], WholeNetworks] | None = None,
    ) -> WholeNetworks:
        """Read those of a dataset, on the GPU of `samples`.

        Overheads that neither the calibration nor networks of this GPU give are those of the GPU that operations are
        transferred from, `lender`, scaled by the ratio of host times of calls.

        DataFileError if the dataset lacks a table or it is damaged.
        """
        rows, not_comparable = whole_networks(dataset_dir, gpu)
        times, pooled = pooled_host_times(samples)
        measured = measured_costs(pooled, catalogue)
        calibrated = calibrated_overheads(dataset_dir, gpu, samples, rows)
        overheads = OverheadEstimates(calibrated, seen_overheads(rows, catalogue, measured, calibrated))
        found = cls(gpu, catalogue, rows, not_comparable, measured, overheads, times)
        if lender is None:
            return found
        other = lender()
        return replace(found, overheads=overheads.completed(other.overheads, host_ratio(times, other.call_times)))

    def hosts_seen(self, dataset_dir: Path) -> HostsSeen:
        """Return the hosts that networks were measured with on this GPU."""
        return HostsSeen.of_dataset(dataset_dir, self.gpu, self.host_levels(dataset_dir))

    def host_levels(self, dataset_dir: Path) -> dict[str, dict[str, float]]:
        """Return the speed of hosts, by session and pass; see `composition.networks.host_levels`."""
        return host_levels(dataset_dir, self.gpu, self.catalogue, self.overheads.without, self.measured)

    def composed(self, source: str, costs: CostsOfNetwork, pass_: str | None = None) -> pd.DataFrame:
        """Compose the networks in one pass, or all; see `composition.networks.compositions`."""
        rows = self.rows if pass_ is None else self.rows[self.rows["pass"] == pass_]
        return compositions(rows, self.catalogue, self.overheads.without, source, costs)

    def left_out(self, make: Callable[[], CostPredictor], data: TrainingData, *, seed: int) -> pd.DataFrame:
        """Predict the operations of each network of a pass without it; see `leave_networks_out`."""
        operations, called = (
            self.catalogue.operations,
            self.catalogue.called_by(self.rows, data.pass_, set(data.rows["execution"])),
        )
        return leave_networks_out(
            make,
            with_unmeasured(data, called, operations[operations["pass"] == data.pass_]),
            self.catalogue.called(data.pass_),
            self.catalogue.names(self.rows, data.pass_),
            seed=seed,
        )

    def judge_left_out(
        self,
        rows: pd.DataFrame,
        from_measured: pd.DataFrame,
        intervals: Mapping[str, Mapping[str, Interval]],
        workless_host_s: Mapping[str, float],
    ) -> tuple[PassErrors, dict[str, Any]]:
        """Estimate the errors of unseen networks from held-out ones.

        Parameters
        ----------
        rows
            From `left_out`, one pass.
        from_measured
            Complete compositions of this pass from measured operations.
        intervals
            Of operations, for a scale of 1: target to operation class to interval.
        workless_host_s
            Host time of calls without device work, from `costs.workless_host_s`.
        """
        pass_ = str(rows["pass"].iloc[0])
        costs = left_out_costs(rows, self.catalogue, {pass_: workless_host_s}, self.call_times)
        composed = self.composed(PREDICTED, costs, pass_)
        errors, report = estimate_pass_errors(
            complete(composed), from_measured, with_errors(rows, intervals), self.catalogue
        )
        return errors, {**judge_left_out(rows), "compositions": network_errors(composed), "intervals": report}


def networks_of_gpus(
    dataset_dir: Path, gpus: list[str], catalogue: Catalogue, *, transfer: bool
) -> Callable[[str], WholeNetworks]:
    """Return a function from a GPU of a dataset to its networks; `transfer`: small ones take the host of another."""
    lent = transfer_sources(dataset_dir, gpus) if transfer else {}

    def networks(gpu: str, lender: Callable[[], WholeNetworks] | None = None) -> WholeNetworks:
        return WholeNetworks.read(dataset_dir, gpu, read_samples(dataset_dir, gpu), catalogue, lender)

    return functools.cache(lambda gpu: networks(gpu, functools.partial(networks, lent[gpu]) if gpu in lent else None))


def complete(compositions: pd.DataFrame) -> pd.DataFrame:
    """Select compositions in which every call has a cost."""
    return compositions[compositions["calls_without_cost"] == 0]


def pooled_host_times(
    samples: Samples,
) -> tuple[dict[str, CallTimes], pd.DataFrame]:
    """Return the host times of calls by pass, and the rows of the samples with these in place of their own."""
    rows, times = samples.rows.copy(), dict[str, CallTimes]()
    for pass_, own in samples.operations.groupby("pass"):
        learnt = samples.learnt(str(pass_))
        described = own[own["device_work"].astype(bool)]
        if learnt[TIME_HOST_CORRECTED].notna().any():
            features = operation_features(described)
            times[str(pass_)] = call_times(learnt, features)
            host_s = pd.Series(host_s_of(features, times.get(str(pass_), {})), index=features.index)
            here = (rows["pass"] == pass_) & rows[TIME_HOST_CORRECTED].notna()
            pooled = rows.loc[here, "operation_id"].map(host_s)
            rows.loc[here, TIME_HOST_CORRECTED] = pooled.fillna(rows.loc[here, TIME_HOST_CORRECTED])
    return times, rows


def measured_costs(rows: pd.DataFrame, catalogue: Catalogue) -> CostsOfNetwork:
    """Return a source of measured costs; `rows` of `training_data.Samples`."""
    indexed = {
        (str(pass_), str(point), ExecutionSettings(str(execution))): group.set_index("operation_id")
        for (pass_, point, execution), group in rows.groupby(_KEY)
    }
    none, known = rows.iloc[:0].set_index("operation_id"), set(rows["execution"])

    @functools.cache
    def costs(pass_: str, point: str, execution: ExecutionSettings) -> pd.DataFrame:
        return _under(catalogue.settings(pass_, execution, known), lambda one: indexed.get((pass_, point, one), none))

    return lambda _name, pass_, point, execution: costs(pass_, point, execution)


def _under(settings: pd.Series, costs_under: Callable[[ExecutionSettings], pd.DataFrame]) -> pd.DataFrame:
    """Return the costs of each operation under its settings, by its id."""
    parts: list[pd.DataFrame] = []
    for one in settings.unique():
        costs = costs_under(one)
        parts.append(costs[(settings.reindex(costs.index) == one).to_numpy()])
    return pd.concat([part for part in parts if len(part)] or parts[:1])


def left_out_costs(
    rows: pd.DataFrame,
    catalogue: Catalogue,
    workless_host_s: Mapping[str, Mapping[str, float]],
    calls: Mapping[str, CallTimes],
) -> CostsOfNetwork:
    """Return costs of operations with the network held out: predicted, except those that another network calls too.

    Parameters
    ----------
    rows
        Of `leave_out.LEFT_OUT_SCHEMA`, one GPU.
    catalogue
        Calls of networks.
    workless_host_s
        Pass to host time of calls without device work on that GPU, from `costs.workless_host_s`.
    calls
        Pass to the pooled host times of the others.
    """
    looked_up = rows["learnt"] & ~rows["unseen"]
    values = [
        rows[target].where(looked_up).fillna(rows[BY_CORRECTED[target].predicted]).to_numpy(float) for target in TARGETS
    ]
    predicted = pd.DataFrame(cost_columns(np.column_stack(values)), index=rows["operation_id"], columns=COST_COLUMNS)
    for pass_, times in calls.items():
        here = (rows["pass"] == pass_).to_numpy(bool)
        if not here.any():
            continue
        called = catalogue.operations[catalogue.operations["pass"] == pass_]
        features = operation_features(called[called["operation_id"].isin(rows["operation_id"][here])])
        pooled = pd.Series(host_s_of(features, times), index=features.index).reindex(predicted.index[here])
        own_s = predicted.loc[here, TIME_HOST_CORRECTED].to_numpy(float)
        predicted.loc[here, TIME_HOST_CORRECTED] = np.where(pooled.notna(), pooled, own_s)
    indexed = {
        (str(name), str(pass_), str(point), ExecutionSettings(str(execution))): group
        for (name, pass_, point, execution), group in predicted.groupby(
            [rows[name].to_numpy() for name in ("network", *_KEY)]
        )
    }
    none, known = pd.DataFrame(columns=COST_COLUMNS, dtype=float), set(rows["execution"])

    @functools.cache
    def workless(pass_: str) -> pd.DataFrame:
        if pass_ not in workless_host_s:
            return none
        operations = catalogue.operations
        own = operations[(operations["pass"] == pass_) & ~operations["device_work"]]
        costs = HostOnly(own[OPERATION_CLASS].to_numpy(object), workless_host_s[pass_]).costs
        return pd.DataFrame(costs.pipeline(), index=own["operation_id"], columns=COST_COLUMNS)

    def costs(name: str, pass_: str, point: str, execution: ExecutionSettings) -> pd.DataFrame:
        settings = catalogue.settings(pass_, execution, known)
        parts = [_under(settings, lambda one: indexed.get((name, pass_, point, one), none)), workless(pass_)]
        return pd.concat([part for part in parts if len(part)] or [none])

    return costs


def with_errors(rows: pd.DataFrame, intervals: Mapping[str, Mapping[str, Interval]]) -> pd.DataFrame:
    """Return operations of held-out networks, with the error of each of `pass_errors.ADDED` in a column `error_…`.

    Parameters
    ----------
    rows
        Of `leave_out.LEFT_OUT_SCHEMA`.
    intervals
        Target to operation class to interval for a scale of 1.
    """
    factors = interval_factors(rows[OPERATION_CLASS].to_numpy(object), intervals)
    looked_up = (rows["learnt"] & ~rows["unseen"]).to_numpy(bool)
    errors = {}
    for target in ADDED:
        lower, upper = factors[:, TARGETS.index(target)].T
        scale = scale_of(rows[BY_CORRECTED[target].spread].to_numpy(float))
        error = np.log(upper / lower) / (2 * NORMAL_90) * scale
        errors[ERROR_OF[target]] = np.where(looked_up & rows[target].notna(), LOOKED_UP_ERROR, error)
    return rows.assign(**errors)


FEWEST_NETWORKS = 6
"""Fewest networks, without the predicted one, to estimate overheads from; two host costs are estimated."""
FEWEST_GROUPED = 3
"""Fewest networks with grouped convolutions; few networks have any, and their overheads are larger."""
_NEAR_LIMIT = 0.95
"""Mean power relative to the power limit from which on a pass counts as power-capped."""
_COLUMNS = [
    *("network", "pass", "point", "modules", "forward_calls", "device_calls", "grouped"),
    *("host_s", "host_overhead_s", "gap_s", "dynamic_ratio"),
]


@dataclass(frozen=True)
class OverheadEstimates:
    """Overheads at each operating point of a GPU.

    Attributes
    ----------
    calibrated
        By operating point; from `calibrated_overheads`.
    seen
        Times of whole networks' passes beyond their calls; from `seen_overheads`.
    """

    calibrated: Mapping[str, Overheads]
    seen: pd.DataFrame
    _without: dict[tuple[str, str], Overheads] = field(default_factory=dict, repr=False, compare=False)

    def completed(self, other: OverheadEstimates, host_factor: float = 1.0) -> OverheadEstimates:
        """Return the overheads with those of another GPU, on a host so many times as slow, where they are not known."""
        lent = {
            point: known.completed(other.at(point).on_host(host_factor))
            for point, known in self.calibrated.items()
            if point in other.calibrated
        }
        return OverheadEstimates({**self.calibrated, **lent}, self.seen)

    def without(self, network: str, point: str) -> Overheads:
        """Return overheads at an operating point, estimated without this network."""
        key = network, point
        if key not in self._without:
            self._without[key] = self.at(point, self.seen[self.seen["network"] != network])
        return self._without[key]

    def at(self, point: str, seen: pd.DataFrame | None = None) -> Overheads:
        """Return overheads at an operating point, estimated from `seen`, by default that of all networks."""
        estimated_from = self.seen if seen is None else seen
        here = estimated_from[estimated_from["point"] == point]
        inference, training = (here[here["pass"] == pass_] for pass_ in (INFERENCE, TRAINING))
        grouped = training["grouped"].astype(bool)
        known = self.calibrated[point]
        return replace(
            known,
            inference=_estimated(known.inference, inference, _gap(inference, FEWEST_NETWORKS), None),
            training=_estimated(
                known.training,
                training,
                _gap(training[~grouped], FEWEST_NETWORKS),
                _gap(training[grouped], FEWEST_GROUPED),
            ),
        )


def _estimated(
    known: PassOverheads, own: pd.DataFrame, gap_s: float | None, grouped_gap_s: float | None
) -> PassOverheads:
    """Replace calibrated overheads of a pass by estimates from its networks."""
    return PassOverheads(
        _host_overheads(own, known.host),
        known.gap_s if gap_s is None else gap_s,
        known.grouped_gap_s if grouped_gap_s is None else grouped_gap_s,
        _median(own, "dynamic_ratio", FEWEST_NETWORKS) or known.dynamic_factor,
    )


def _host_overheads(own: pd.DataFrame, known: HostOverheads) -> HostOverheads:
    """Estimate host overheads per module and call from passes of networks; calibrated ones with too few networks."""
    host = own[own["host_overhead_s"].notna()]
    if host["network"].nunique() < FEWEST_NETWORKS:
        return known
    pass_s, modules, calls, overhead_s = (
        host[name].to_numpy(float) for name in ("host_s", "modules", "forward_calls", "host_overhead_s")
    )
    once_s = known.backward_start_s or 0.0
    (module_s, call_s), _ = module_and_call_costs(pass_s, modules, calls, overhead_s - once_s)
    return replace(known, module_s=float(module_s), forward_call_s=float(call_s))


def _gap(own: pd.DataFrame, fewest: int) -> float | None:
    """Return the device time that networks add to a call; None with fewer than `fewest` networks."""
    gap_s = _median(own, "gap_s", fewest)
    return None if gap_s is None else max(0.0, gap_s)


def _median(own: pd.DataFrame, column: str, fewest: int) -> float | None:
    """Return the median over networks; None with fewer than `fewest` networks that have it."""
    of_networks = own.groupby("network")[column].median().dropna()
    return float(of_networks.median()) if len(of_networks) >= fewest else None


def calibrated_overheads(dataset_dir: Path, gpu: str, samples: Samples, whole: pd.DataFrame) -> dict[str, Overheads]:
    """Return calibrated overheads at every measured operating point, the default first.

    The power limit is the observed one, which an administrator may have set; else the operating point's. DataFileError
    if the dataset has no calibration or it is damaged.
    """
    costs = read_calibrated(dataset_dir, gpu)
    spec = find_spec(samples.gpu_name)
    medians = samples.rows.groupby("point")[["power_idle_w", "power_limit_w"]].median()
    points = {}
    for point in sorted({*medians.index, *whole["point"]}, key=lambda point: OperatingPoint.parse(point).order):
        seen = medians.loc[point].dropna() if point in medians.index else pd.Series(dtype=float)
        requested_w = Setting(spec, OperatingPoint.parse(point), FP32).power_limit_w
        known = costs.get(point, Overheads())
        points[point] = replace(
            known,
            power_idle_w=seen.get("power_idle_w") if known.power_idle_w is None else known.power_idle_w,
            power_limit_w=float(seen.get("power_limit_w", requested_w)),
        )
    return points


def seen_overheads(
    whole: pd.DataFrame, catalogue: Catalogue, costs: CostsOfNetwork, calibrated: Mapping[str, Overheads]
) -> pd.DataFrame:
    """Return what networks' passes cost beyond the sum of their calls, on the median host.

    Parameters
    ----------
    whole
        From `networks.whole_networks`.
    catalogue
        What they call.
    costs
        Measured costs; networks with a call of unknown cost are skipped.
    calibrated
        From `calibrated_overheads`.

    Returns
    -------
    pandas.DataFrame
        `network`, `pass`, `point`, `modules`, `forward_calls`, `device_calls`; `grouped`, whether it has grouped
        convolutions; `host_s` of the pass, `host_overhead_s` of it that is not its calls', `gap_s`, likewise of the
        device for one call, and `dynamic_ratio` of the dynamic power to that of its calls; missing where it is not
        known.
    """
    rows = []
    for measured in whole.to_dict("records"):
        key = (str(measured["subject_id"]), str(measured["pass"]))
        if key not in catalogue.calls:
            continue
        network, calls = catalogue.networks[key], catalogue.calls[key]
        known = costs(network.network, key[1], str(measured["point"]), ExecutionSettings(measured["execution"]))
        of_calls = known.reindex(calls["operation_id"])
        device_s, host_s = (
            of_calls["time_device_corrected_s"].to_numpy(float),
            of_calls["time_host_corrected_s"].to_numpy(float),
        )
        if not np.isfinite(device_s).all() or not np.isfinite(host_s).all():
            continue
        pass_host_s = float(measured["time_host_corrected_s"])
        device_calls = int((device_s > 0).sum())
        rows.append(
            {
                "network": network.network,
                "pass": key[1],
                "point": str(measured["point"]),
                "modules": network.module_calls,
                "forward_calls": int(calls["phase"].isin((FORWARD, LOSS)).sum()),
                "device_calls": device_calls,
                "grouped": bool(network.grouped_convolutions),
                "host_s": pass_host_s,
                "host_overhead_s": pass_host_s - float(host_s.sum()),
                "gap_s": (float(measured["time_device_corrected_s"]) - float(device_s.sum())) / max(device_calls, 1),
                "dynamic_ratio": _dynamic_ratio(
                    measured, of_calls, calibrated.get(str(measured["point"]), Overheads())
                ),
            }
        )
    return pd.DataFrame(rows, columns=_COLUMNS)


def _dynamic_ratio(measured: Mapping[Hashable, Any], of_calls: pd.DataFrame, known: Overheads) -> float:
    """Return dynamic energy of a pass over that of its calls in the same device time; nan where it is not known.

    A pass at the power limit runs at a lower clock, so it has none.
    """
    energy_j, idle_w, limit_w = measured[ENERGY_CORRECTED], known.power_idle_w, known.power_limit_w
    if idle_w is None or limit_w is None or not energy_j > 0 or measured["power_corrected_w"] > _NEAR_LIMIT * limit_w:
        return math.nan
    dynamic_j = float(energy_j) - idle_w * float(measured["time_eager_corrected_s"])
    calls_w = float(
        (of_calls["energy_dynamic_corrected_j"] / of_calls["time_device_corrected_s"].sum()).sum(skipna=False)
    )
    return dynamic_j / (calls_w * float(measured["time_device_corrected_s"])) if calls_w > 0 else math.nan
