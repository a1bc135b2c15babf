"""What a network's pass, or a list of operations, costs on a GPU at an operating point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clockwatt.predict.composition.pipeline import Composition
from clockwatt.predict.costs.interface import Costs
from clockwatt.predict.description import NotPredictableError, fitted_gpus
from clockwatt.predict.evaluation.intervals import Interval
from clockwatt.predict.evaluation.pass_errors import DEVICE, GAP_S, HOST, PassErrors, added_errors, ends_of_sum
from clockwatt.predict.features.operations import OPERATION_CLASS
from clockwatt.predict.gpu_predictor import GpuPredictor
from clockwatt.predict.hosts.costs import span
from clockwatt.predict.hosts.profile import HostProfile
from clockwatt.predict.prediction import OF_MEASURED, NetworkPrediction
from clockwatt.predict.questions import TracedNetwork

NO_OTHER_HOST = "back-to-back times alone were measured, which hold for the host that they were measured with"
"""Why a host cannot be named."""


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
