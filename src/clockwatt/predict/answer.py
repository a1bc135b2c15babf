"""What a network's pass, or a list of operations, costs on a GPU at an operating point, and which GPUs have room."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pandas as pd
import pyarrow as pa

from clockwatt.errors import ClockwattError
from clockwatt.gpu.specs import UnknownGpuError, find_spec
from clockwatt.predict.composition.overheads import Overheads
from clockwatt.predict.composition.pipeline import Composer, Composition
from clockwatt.predict.costs.interface import Costs
from clockwatt.predict.description import NotPredictableError
from clockwatt.predict.evaluation.errors import Interval
from clockwatt.predict.evaluation.pass_errors import DEVICE, GAP_S, HOST, PassErrors, added_errors, ends_of_sum
from clockwatt.predict.features.operations import OPERATION_CLASS, operation_features
from clockwatt.predict.gpu_predictor import GpuPredictor
from clockwatt.predict.hosts.costs import HostCosts, HostSpan, span
from clockwatt.predict.hosts.profile import HostProfile
from clockwatt.predict.prediction import OF_MEASURED, Ends, NetworkPrediction
from clockwatt.schema import records
from clockwatt.schema.records import CALL_SCHEMA, NETWORK_SCHEMA, OPERATION_SCHEMA, NetworkRow, table_of

NO_OTHER_HOST = "back-to-back times alone were measured, which hold for the host that they were measured with"
"""Why a host cannot be named."""

_BELOW_IDLE, _ABOVE_LIMIT = 0.93, 1.05
"""Mean powers that are possible, over the median card's idle power and over the limit: of 45 H200s the least drew 0.94
times the median when idle, and 99.9 % of 5,566 measurements were at most at 1.04 times the limit."""

Intervals = tuple[dict[str, Ends], str, int]
"""Quantities to the ends of their intervals, how these were made, and of how many networks."""


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

    @property
    def gap_s(self) -> float:
        """What gaps between its calls may take more or less than measured; 0 for a list of operations."""
        return GAP_S[self.network.pass_] if self.is_network else 0.0

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


def predict_network(
    model: GpuPredictor, traced: TracedNetwork, point: str, *, tf32: bool = True, host: HostProfile | None = None
) -> NetworkPrediction:
    """Predict one pass of a network on one GPU at one operating point, and say what lies outside the measurements.

    Where only locked clocks were measured, `default` is answered for the boost clock, with a warning. An operating
    point where nothing was measured, and to which no law leads, is not answered for.

    `host` issues the calls; without one it is the median of those seen, and the intervals span them all.

    Raises
    ------
    NotPredictableError
        If this pass was not fitted, the card cannot run at `point`, or nothing says what it does there.
    ConfigError
        If `point` is no operating point.
    """
    asked, point = point, model.description.point_for(point)
    model.description.check_runs_at(point)
    (prediction,) = predict_points(model, traced, [point], tf32=tf32, host=host)
    if prediction.measured_calls == 0 and not model.description.is_led_to(point):
        raise NotPredictableError(
            f"{model.description.gpu}: {model.description.point_warning(point)} Ask for one of these, or measure there."
        )
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
    pass_, description, origin = traced.network.pass_, model.description, model.origin
    source = model.costs(traced.operations, pass_, tf32=tf32, features=traced.features)
    described = description.passes[pass_]
    if described.summed and host is not None:
        raise NotPredictableError(f"--host {host.name}: {description.gpu}: {NO_OTHER_HOST}. Leave --host out.")
    on_host = host.costs(model, pass_) if host else model.hosts_seen.costs(pass_, is_network=traced.is_network)
    predictions = []
    for point, costs in source.at(points).items():
        of_host = None
        if described.summed:
            expected = traced.composer.add_up(costs.pipeline())
        else:
            of_host = _on_host(model, traced, point, costs, on_host)
            expected = of_host.expected
        if not expected.complete:
            raise NotPredictableError(
                f"{traced.network.network_id}: calls without an operation. Run `clockwatt catalogue` again."
            )
        measured_calls = int(costs.measured[traced.composer.positions].sum())
        intervals, method, networks = _intervals(model, traced, point, costs, expected, measured_calls)
        predictions.append(
            NetworkPrediction(
                gpu=description.gpu,
                gpu_name=description.gpu_name,
                virtual=description.virtual,
                point=point,
                tf32=tf32,
                pass_=pass_,
                network_id=traced.network.network_id,
                measured_point=point in description.points,
                expected=expected,
                intervals=_possible(
                    of_host.widened(intervals) if of_host else intervals, expected, description.overheads(point)
                ),
                interval_method=method,
                interval_networks=networks,
                measured_calls=measured_calls,
                host=of_host.answer if of_host else None,
                on_hosts=of_host,
                predictors=origin,
                optimizer=None if traced.network.optimizer is None else json.loads(traced.network.optimizer),
            )
        )
    return predictions


def _possible(ends: dict[str, Ends], expected: Composition, known: Overheads) -> dict[str, Ends]:
    """The intervals without mean powers that the card cannot have: below its idle power, above its limit."""
    if expected.power_w is None or expected.energy_j is None or not {"power_w", "time_s", "energy_j"} <= set(ends):
        return ends
    least_w = _BELOW_IDLE * (known.power_idle_w or 0.0)
    most_w = _ABOVE_LIMIT * known.power_limit_w if known.power_limit_w else math.inf
    (power_low, power_high), (time_low, time_high), (energy_low, energy_high) = (
        ends[name] for name in ("power_w", "time_s", "energy_j")
    )
    return ends | {
        "power_w": _around(expected.power_w, max(power_low, least_w), min(power_high, most_w)),
        "energy_j": _around(
            expected.energy_j, max(energy_low, least_w * time_low), min(energy_high, most_w * time_high)
        ),
    }


def _around(value: float, low: float, high: float) -> Ends:
    return min(low, value), max(high, value)


def check_fits(traced: TracedNetwork, gpu_names: list[str]) -> set[str]:
    """The GPUs whose memory has room for what a pass needs at least: weights, their gradients, the largest operation.

    ClockwattError if none of them has.
    """
    row = traced.network
    states = 0 if row.optimizer is None else 2 if "adam" in row.optimizer else 1
    copies = 1 if row.pass_ != records.TRAINING else 2 + states
    moved = traced.operations["bytes_read"] + traced.operations["bytes_written"]
    largest = int(moved.max()) // (1 if row.pass_ != records.TRAINING else 2)
    needed = max(copies * row.parameter_bytes, largest)
    memory = {}
    for name in gpu_names:
        try:
            memory[name] = find_spec(name).memory_bytes
        except UnknownGpuError:
            memory[name] = needed
    if all(needed > size for size in memory.values()):
        largest_gpu, size = max(memory.items(), key=lambda item: item[1])
        raise ClockwattError(
            f"{row.network_id}: a pass of {row.pass_} needs at least {needed / 2**30:.0f} GiB, more than the "
            f"{size / 2**30:.0f} GiB of {largest_gpu}: choose a smaller batch or network."
        )
    return {name for name, size in memory.items() if needed <= size}


def _on_host(model: GpuPredictor, traced: TracedNetwork, point: str, costs: Costs, host: HostCosts) -> HostSpan:
    """The pass on a host, from costs of its operations on the median host."""
    factors = host.factors(traced.operations[OPERATION_CLASS])
    overheads = model.description.overheads(point)
    return span(
        traced.composer, costs.pipeline(), overheads, traced.network.pass_, host, factors, model.hosts_seen,
        is_network=traced.is_network,
    )  # fmt: skip


def _intervals(
    model: GpuPredictor, traced: TracedNetwork, point: str, costs: Costs, expected: Composition, measured_calls: int
) -> Intervals:
    """Intervals of the pass on one host, how they were made and of how many networks."""
    described, is_network = model.description.passes[traced.network.pass_], traced.is_network
    if measured_calls == 0 and not model.description.is_led_to(point):
        return {}, "none", 0  # errors at measured points say nothing of such a one
    if described.summed:
        calls = traced.composer.times_called
        ends = ends_of_sum(expected, costs.mean, costs.factors, calls, is_network=is_network)
        return ends, "operations" if ends else "none", 0
    ends, method, networks = _of_operations(traced, costs, expected, described.errors)
    if is_network and measured_calls == expected.calls and described.networks_measured:
        # they tell of time, energy and power, not of device and host
        of_networks, method, networks = _of_networks(expected, described.networks_measured)
        ends |= of_networks
    return ends, method, networks


def _of_operations(traced: TracedNetwork, costs: Costs, expected: Composition, errors: PassErrors | None) -> Intervals:
    """Intervals from what is not sure of each operation."""
    has_energy, gap_s = expected.energy_dynamic_j is not None, traced.gap_s
    added = added_errors(costs.mean, costs.factors, traced.composer.times_called, gap_s=gap_s, energy=has_energy)
    if DEVICE not in added or HOST not in added:
        return {}, "none", 0
    if not traced.is_network:
        errors = PassErrors(composition_time=0.0, composition_energy=0.0)
    elif errors is None:
        errors = PassErrors()
    return errors.ends(expected, added), errors.time.method, errors.time.groups


def _of_networks(expected: Composition, known: dict[str, Interval]) -> Intervals:
    """Intervals from residuals of networks of which every operation was measured."""
    values = {name: getattr(expected, name) for name in known}
    found = {name: interval.around(values[name]) for name, interval in known.items() if values[name] is not None}
    of_time = known.get("time_s")
    return found, f"{of_time.method if of_time else ''}{OF_MEASURED}", of_time.groups if of_time else 0
