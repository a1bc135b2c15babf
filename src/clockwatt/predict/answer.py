"""What a network's pass, or a list of operations, costs on a GPU at an operating point."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from clockwatt.predict.composition.pipeline import Composer, Composition
from clockwatt.predict.costs.interface import Costs
from clockwatt.predict.description import fitted_gpus
from clockwatt.predict.evaluation.intervals import Interval
from clockwatt.predict.evaluation.pass_errors import DEVICE, GAP_S, HOST, PassErrors, added_errors, ends_of_sum
from clockwatt.predict.features.operations import OPERATION_CLASS, operation_features
from clockwatt.predict.gpu_predictor import GpuPredictor, NotPredictableError
from clockwatt.predict.hosts.answer import HostAnswer, HostSpan, span
from clockwatt.predict.hosts.profile import HostProfile
from clockwatt.predict.relative import Relative, relative
from clockwatt.schema.records import CALL_SCHEMA, NETWORK_SCHEMA, OPERATION_SCHEMA, NetworkRow, table_of

OF_MEASURED = "_of_measured"
"""End of the name of an interval's method."""

NO_OTHER_HOST = "back-to-back times alone were measured, which hold for the host that they were measured with"
"""Why a host cannot be named."""


@dataclass(frozen=True)
class TracedNetwork:
    """A network in one pass, as the catalogue has it.

    Attributes
    ----------
    network
        Its row of the catalogue.
    calls
        Its calls in order, with `operation_id` and `phase`.
    operations
        Its unique operations, with `features.operations.CATALOGUE_COLUMNS` and `device_work`.
    is_network
        False for a list of operations, to which what is known of networks does not apply.
    """

    network: NetworkRow
    calls: pd.DataFrame
    operations: pd.DataFrame
    is_network: bool = True

    @functools.cached_property
    def features(self) -> pd.DataFrame:
        """Features of the operations with device work; the same on every GPU."""
        return operation_features(self.operations[self.operations["device_work"].astype(bool)])

    def tables(self) -> tuple[pa.Table, pa.Table, pa.Table]:
        """As tables of a catalogue: the network, its calls, its operations."""
        settings = {"measured_tf32": None, "measured_quantities": None}
        return (
            table_of([replace(self.network, measured_tf32=None, measured_quantities=None)], NETWORK_SCHEMA),
            pa.Table.from_pandas(self.calls.reindex(columns=CALL_SCHEMA.names), CALL_SCHEMA, preserve_index=False),
            pa.Table.from_pandas(
                self.operations.reindex(columns=OPERATION_SCHEMA.names).assign(**settings),
                OPERATION_SCHEMA,
                preserve_index=False,
            ),
        )

    @functools.cached_property
    def composer(self) -> Composer:
        """Composes the pass from costs of `operations`, in their order."""
        return Composer(self.calls, self.network, pd.Index(self.operations["operation_id"]))


@dataclass(frozen=True)
class NetworkPrediction:
    """A predicted pass of a network on one GPU at one operating point.

    Attributes
    ----------
    virtual
        Whether it rests on a modelled GPU.
    measured_point
        Whether operations were measured at this operating point; elsewhere the clock law speaks.
    expected
        The pass as predicted.
    intervals
        `time_s`, `device_s`, `host_s`, `energy_j` and `power_w` to their lower and upper ends; what has no interval is
        missing.
    interval_method, interval_networks
        `conformal` or `student_t`, see `intervals.grouped_interval`: errors of the operations, as far as they are
        estimated to be alike, scaled by those of so many networks that were left out; with `OF_MEASURED` at the end, of
        networks composed from measured operations. `operations`: no network was left out, errors are taken as normal
        and a quarter alike. `none`: an operation has no interval, or nothing that was measured leads to the operating
        point.
    measured_calls
        How many of the calls are of operations that were measured at this operating point: these are looked up. Where
        all are, the intervals of time, energy and power are those of networks composed so, and may be narrower than
        those of device and host, which come from the operations always.
    warnings
        Why the answer rests on less than usual: what lies outside the measurements.
    host
        The host that is answered for, what paces the pass there, and what a captured graph would save; None where the
        pass is a sum of back-to-back times.
    on_hosts
        The pass at the ends of that host's range.
    predictors
        Where the predictors come from, see `GpuPredictor.origin`.
    relative_to
        How the pass compares with that on a standard GPU, if one was named.
    """

    gpu: str
    gpu_name: str
    virtual: bool
    point: str
    tf32: bool
    pass_: str
    network_id: str
    measured_point: bool
    expected: Composition
    intervals: dict[str, tuple[float, float]]
    interval_method: str
    interval_networks: int
    warnings: tuple[str, ...] = ()
    measured_calls: int = 0
    host: HostAnswer | None = None
    on_hosts: HostSpan | None = field(default=None, repr=False, compare=False)
    predictors: str = ""
    relative_to: Relative | None = None

    def spanned(self, intervals: dict[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
        """Intervals that hold for the host of the answer, widened to the range of hosts that it spans."""
        return intervals if self.on_hosts is None else self.on_hosts.widened(intervals)

    def compared_with(self, standard: NetworkPrediction) -> NetworkPrediction:
        """The same, relative to the pass on a standard GPU."""
        return replace(self, relative_to=relative(self, standard))

    def to_dict(self) -> dict[str, Any]:
        """For JSON; the key of the pass is `pass`, and `relative_to` is there if a standard GPU was named."""
        values = asdict(replace(self, on_hosts=None))
        del values["on_hosts"]
        if self.relative_to is None:
            del values["relative_to"]
        values["pass"] = values.pop("pass_")
        return values


def load_models(predictors_dir: Path) -> dict[str, GpuPredictor]:
    """Every GPU that was fitted last; what an earlier fit left of others is not offered.

    Raises
    ------
    DataFileError
        If there is none, or one is damaged.
    """
    return {gpu: GpuPredictor.load(predictors_dir / gpu) for gpu in fitted_gpus(predictors_dir)}


def predict_network(
    model: GpuPredictor, traced: TracedNetwork, point: str, *, tf32: bool = True, host: HostProfile | None = None
) -> NetworkPrediction:
    """Predict one pass of a network on one GPU at one operating point, and say what lies outside the measurements.

    Where only locked clocks were measured, `default` is answered for the boost clock, with a warning.

    `host` issues the calls; without one it is the median of those seen, and the intervals span them all.

    Raises
    ------
    NotPredictableError
        If this pass was not fitted, or the card cannot run at `point`.
    ConfigError
        If `point` is no operating point.
    """
    asked, point = point, model.point_for(point)
    model.check_runs_at(point)
    (prediction,) = predict_points(model, traced, [point], tf32=tf32, host=host)
    warnings = model.warnings(traced.operations, traced.features, traced.network.pass_, point, tf32=tf32)
    if point != asked:
        warnings.insert(0, f"Only locked clocks were measured: {asked} is answered for the boost clock, {point}.")
    return replace(prediction, warnings=tuple(warnings))


def predict_points(
    model: GpuPredictor,
    traced: TracedNetwork,
    points: Sequence[str],
    *,
    tf32: bool = True,
    host: HostProfile | None = None,
) -> list[NetworkPrediction]:
    """Predict one pass of a network on one GPU at several operating points, without warnings.

    Raises
    ------
    NotPredictableError, ConfigError
        See `predict_network`.
    """
    network, description = traced.network, model.description
    source = model.costs(traced.operations, network.pass_, tf32=tf32, features=traced.features)
    composer = traced.composer
    described = description.passes[network.pass_]
    if described.summed and host is not None:
        raise NotPredictableError(f"--host {host.name}: {description.gpu}: {NO_OTHER_HOST}. Leave --host out.")
    on_host = host.costs(model, network.pass_) if host else model.hosts_seen.costs()
    factors = on_host.factors(traced.operations[OPERATION_CLASS])
    origin = model.origin
    predictions = []
    for point, costs in source.at(points).items():
        of_host = None
        if described.summed:
            expected = composer.add_up(costs.pipeline())
        else:
            overheads = model.overheads(point)
            of_host = span(composer, costs.pipeline(), overheads, network.pass_, on_host, factors, model.hosts_seen)
            expected = of_host.expected
        if not expected.complete:
            raise NotPredictableError(
                f"{network.network_id}: calls without an operation. Run `clockwatt catalogue` again."
            )
        measured_calls = int(costs.measured[composer.positions].sum())
        unknown_there = measured_calls == 0 and not model.is_led_to(point)
        all_measured = traced.is_network and measured_calls == expected.calls
        intervals: dict[str, tuple[float, float]]
        if unknown_there:  # errors at measured points say nothing of such a one
            intervals, method, networks = {}, "none", 0
        elif described.summed:
            intervals = ends_of_sum(
                expected, costs.mean, costs.factors, _calls(composer.positions, costs), is_network=traced.is_network
            )
            method, networks = "operations" if intervals else "none", 0
        else:
            intervals, method, networks = _of_operations(
                expected, composer.positions, costs, described.errors, network.pass_, is_network=traced.is_network
            )
            if all_measured and described.networks_measured:  # they tell of time and energy, not of device and host
                of_networks, method, networks = _of_networks(expected, described.networks_measured)
                intervals |= of_networks
        predictions.append(
            NetworkPrediction(
                gpu=description.gpu,
                gpu_name=description.gpu_name,
                virtual=description.virtual,
                point=point,
                tf32=tf32,
                pass_=network.pass_,
                network_id=network.network_id,
                measured_point=point in description.points,
                expected=expected,
                intervals=of_host.widened(intervals) if of_host else intervals,
                interval_method=method,
                interval_networks=networks,
                measured_calls=measured_calls,
                host=of_host.answer if of_host else None,
                on_hosts=of_host,
                predictors=origin,
            )
        )
    return predictions


def _of_networks(expected: Composition, known: dict[str, Interval]) -> tuple[dict[str, tuple[float, float]], str, int]:
    """Intervals from residuals of networks, how they were made and of how many networks."""
    found = {}
    for name, interval in known.items():
        value = getattr(expected, name)
        if value is not None:
            lower, upper = interval.factors()
            found[name] = (value * lower, value * upper)
    of_time = known.get("time_s")
    return found, f"{of_time.method if of_time else ''}{OF_MEASURED}", of_time.groups if of_time else 0


def _of_operations(
    expected: Composition,
    positions: NDArray[np.intp],
    costs: Costs,
    errors: PassErrors | None,
    pass_: str,
    *,
    is_network: bool,
) -> tuple[dict[str, tuple[float, float]], str, int]:
    """Intervals from what is not sure of each operation, how they were made and of how many networks."""
    calls = _calls(positions, costs)
    has_energy, gap_s = expected.energy_dynamic_j is not None, GAP_S[pass_] if is_network else 0.0
    added = added_errors(costs.mean, costs.factors, calls, gap_s=gap_s, energy=has_energy)
    if DEVICE not in added or HOST not in added:
        return {}, "none", 0
    if not is_network:
        errors = PassErrors(composition_time=0.0, composition_energy=0.0)
    elif errors is None:
        errors = PassErrors()
    return errors.ends(expected, added), errors.time.method, errors.time.groups


def _calls(positions: NDArray[np.intp], costs: Costs) -> NDArray[np.float64]:
    """How often each operation is called."""
    return np.bincount(positions, minlength=len(costs.mean)).astype(np.float64)
