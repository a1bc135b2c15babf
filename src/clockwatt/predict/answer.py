"""What a network's pass, or a list of operations, costs on a GPU at an operating point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from clockwatt.predict.composition.pipeline import Composition
from clockwatt.predict.costs.interface import Costs
from clockwatt.predict.description import NotPredictableError
from clockwatt.predict.evaluation.intervals import Interval
from clockwatt.predict.evaluation.pass_errors import DEVICE, HOST, PassErrors, added_errors, ends_of_sum
from clockwatt.predict.features.operations import OPERATION_CLASS
from clockwatt.predict.gpu_predictor import GpuPredictor
from clockwatt.predict.hosts.costs import HostCosts, HostSpan, span
from clockwatt.predict.hosts.profile import HostProfile
from clockwatt.predict.prediction import OF_MEASURED, Ends, NetworkPrediction
from clockwatt.predict.questions import TracedNetwork

NO_OTHER_HOST = "back-to-back times alone were measured, which hold for the host that they were measured with"
"""Why a host cannot be named."""

Intervals = tuple[dict[str, Ends], str, int]
"""Quantities to the ends of their intervals, how these were made, and of how many networks."""


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
    asked, point = point, model.description.point_for(point)
    model.description.check_runs_at(point)
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
    pass_, description, origin = traced.network.pass_, model.description, model.origin
    source = model.costs(traced.operations, pass_, tf32=tf32, features=traced.features)
    described = description.passes[pass_]
    if described.summed and host is not None:
        raise NotPredictableError(f"--host {host.name}: {description.gpu}: {NO_OTHER_HOST}. Leave --host out.")
    on_host = host.costs(model, pass_) if host else model.hosts_seen.costs()
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


def _on_host(model: GpuPredictor, traced: TracedNetwork, point: str, costs: Costs, host: HostCosts) -> HostSpan:
    """The pass on a host, from costs of its operations on the median host."""
    factors = host.factors(traced.operations[OPERATION_CLASS])
    overheads = model.description.overheads(point)
    return span(traced.composer, costs.pipeline(), overheads, traced.network.pass_, host, factors, model.hosts_seen)


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
