"""Predict a network's pass, or operations, on a GPU, or on all at all their points, and select GPUs with memory."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from clockwatt.config import OperatingPoint
from clockwatt.errors import ClockwattError
from clockwatt.gpu.specs import UnknownGpuError, find_spec, spec_or_none
from clockwatt.predict.answer import (
    CALIBRATE_HOST,
    COMPOSED,
    MEASURED,
    OF_MEASURED,
    PREDICTED,
    QUANTITIES,
    Answer,
    Ends,
    Estimate,
    OtherPrecision,
    to_frame,
)
from clockwatt.predict.composition.pipeline import Composition, Overheads
from clockwatt.predict.costs import Costs
from clockwatt.predict.description import NotPredictableError
from clockwatt.predict.evaluation.errors import NORMAL_90, Interval
from clockwatt.predict.evaluation.pass_errors import (
    CARD_ENERGY,
    CARD_TIME,
    DEVICE,
    DYNAMIC,
    HOST,
    PassErrors,
    added_errors,
    ends_of_sum,
    in_mode,
)
from clockwatt.predict.features import OPERATION_CLASS
from clockwatt.predict.gpu_predictor import GpuPredictor
from clockwatt.predict.hosts import HostCosts, HostProfile, HostSpan, span
from clockwatt.predict.memory import pass_memory
from clockwatt.predict.models.extrapolation import described
from clockwatt.predict.models.predictors import TARGETS
from clockwatt.predict.tracing import TracedNetwork
from clockwatt.predict.warning_kinds import AnswerWarning, WarningKind
from clockwatt.schema import records
from clockwatt.schema.costs import BACK_TO_BACK
from clockwatt.schema.execution import DEFAULT, TF32, ExecutionSettings, mode_of_variant
from clockwatt.schema.optimizers import states_of

NO_OTHER_HOST = "back-to-back times alone were measured, which hold for the host that they were measured with"
"""Message for a named host in a pass without separate host times."""

_BELOW_IDLE, _ABOVE_LIMIT = 0.93, 1.0
"""Range of possible mean powers, relative to the median card's idle power and to the power limit."""

_ON_ANOTHER_HOST = 1.05
"""Ratio of a pass on the median host to the measured one from which on that ran on another host."""

_WORTH_SAYING = 0.9
"""Largest ratio of a pass's time or energy in TF32 to that in PyTorch's default at which TF32 is suggested."""

_EQUAL = 1e-6
"""Relative difference, from rounding, that costs of one operation may have in two passes."""

_DEVICE, _EAGER, _DYNAMIC = (TARGETS.index(name) for name in (DEVICE, BACK_TO_BACK, DYNAMIC))

Intervals = tuple[dict[str, Ends], str, int]
"""Quantities to the ends of their intervals, the method, and the number of networks that they are based on."""


def predict_network(
    model: GpuPredictor,
    traced: TracedNetwork,
    point: str,
    *,
    execution: ExecutionSettings = TF32,
    host: HostProfile | None = None,
    bounded: bool = True,
) -> Answer:
    """Answer for one pass of a network on one GPU at one operating point.

    Where only locked clocks were measured, `default` means the boost clock, and the answer has a warning. There is no
    answer at an operating point that neither was measured nor can be extrapolated to.

    `host` issues the calls. Without one, it is the median host, and the intervals cover all hosts seen. `bounded` as in
    `predict_points`.

    Raises
    ------
    NotPredictableError
        If this pass was not fitted, the card cannot run at `point`, or there are no data to predict it there.
    ConfigError
        If `point` is no operating point.
    """
    asked, point = point, model.description.point_for(point)
    model.description.check_runs_at(point)
    (answer,) = predict_points(model, traced, [point], execution=execution, host=host, bounded=bounded)
    if (reason := _unknown(model, answer)) is not None:
        raise NotPredictableError(f"{reason} Choose a measured point, or measure at {point}.")
    if point == asked:
        return answer
    boost = f"Only locked clocks were measured. For {asked}, this is the answer at the boost clock, {point}."
    return replace(answer, warnings=(boost, *answer.warnings))


def _unknown(model: GpuPredictor, answer: Answer) -> str | None:
    """Return why there are no data for an answer's operating point; None where there are."""
    known, point = model.description, answer.point
    if answer.measured is not None or answer.measured_calls or known.is_led_to(point):
        return None
    return f"{known.gpu}: {known.point_warning(point)}"


def predict_points(
    model: GpuPredictor,
    traced: TracedNetwork,
    points: Sequence[str],
    *,
    execution: ExecutionSettings = TF32,
    host: HostProfile | None = None,
    bounded: bool = True,
) -> list[Answer]:
    """Answer for one pass of a network on one GPU at several operating points.

    All commands and the Python API use this function. Unless `bounded`, operations of any cost may carry the pass,
    which is then measured whole.

    Raises
    ------
    NotPredictableError, ConfigError
        See `predict_network`; also if a sort or a decomposition that was never measured could double a pass that was
        not measured whole.
    """
    pass_, description = traced.network.pass_, model.description
    source = model.costs(traced.operations, pass_, execution=execution, features=traced.features)
    if description.passes[pass_].summed and host is not None:
        raise NotPredictableError(f"{{host}} {host.name}: {description.gpu}: {NO_OTHER_HOST}. Leave {{host}} out.")
    on_host = host.costs(model, pass_) if host else model.hosts_seen.costs(pass_, is_network=traced.is_network)
    costs = source.at(points)
    answers = [_modelled(model, traced, point, costs[point], on_host, execution=execution) for point in points]
    unbounded = model.unmeasured_algorithms(traced.operations, pass_)
    shares = _shares(traced, costs, answers, unbounded)
    warned = model.warnings(traced.operations, traced.features, pass_, points, execution=execution, shares=shares)
    answers = [
        replace(
            answer,
            warnings=(*traced.assumptions, *warned[answer.point][0]),
            notes=tuple(warned[answer.point][1]),
        )
        for answer in answers
    ]
    if traced.is_network and not host:  # measured passes ran on other hosts than the named one
        answers = [_with_measured(model, answer) for answer in answers]
    if bounded:
        _check_bounded(model, traced, costs, answers, unbounded)
    return answers


def _check_bounded(
    model: GpuPredictor,
    traced: TracedNetwork,
    costs: dict[str, Costs],
    answers: Sequence[Answer],
    unbounded: NDArray[np.bool_],
) -> None:
    """Refuse passes that operations without any bound on their cost could double."""
    for answer in answers:
        of_point = costs[answer.point]
        more_s = (of_point.end(1) - of_point.mean)[:, _DEVICE] * traced.composer.times_called
        more_s[~unbounded | of_point.measured] = 0.0
        if answer.source != MEASURED and more_s.sum() > answer.time_s:
            worst = described(str(traced.operations["spec"].iloc[int(more_s.argmax())]))
            raise NotPredictableError(
                f"{traced.network.network_id}: {worst} can take most of the pass and was never measured on "
                f"{model.description.gpu}; its time does not follow from the sizes of its tensors. Measure it on a "
                "node with the GPU ({measure_missing} 20), or give the network without it."
            )


def with_tf32(model: GpuPredictor, traced: TracedNetwork, answer: Answer, *, host: HostProfile | None = None) -> Answer:
    """Add `Answer.in_tf32` to an answer; raises as `predict_network`."""
    if answer.execution.precision != DEFAULT:
        return answer
    execution = ExecutionSettings(answer.execution.replace(DEFAULT, TF32))
    (other,) = predict_points(model, traced, [answer.point], execution=execution, host=host, bounded=False)
    saves = other.time_s < _WORTH_SAYING * answer.time_s or (other.energy_j or math.inf) < _WORTH_SAYING * (
        answer.energy_j or 0.0
    )
    if other.measured is None and not saves:
        return answer
    in_tf32 = OtherPrecision(execution, other.source, other.time_s, other.power_w, other.energy_j)
    return replace(answer, in_tf32=in_tf32)


def _modelled(
    model: GpuPredictor,
    traced: TracedNetwork,
    point: str,
    costs: Costs,
    on_host: HostCosts,
    *,
    execution: ExecutionSettings,
) -> Answer:
    """Sum the pass from its operations: composed where all were measured, else predicted."""
    description = model.description
    of_host = None
    if description.passes[traced.network.pass_].summed:
        expected = traced.composer.add_up(costs.pipeline())
    else:
        of_host = _on_host(model, traced, point, costs, on_host)
        expected = of_host.expected
    if not expected.complete:
        raise NotPredictableError(
            f"{traced.network.network_id}: calls refer to missing operations. Run `clockwatt catalogue` again."
        )
    measured_calls = int(costs.measured[traced.composer.positions].sum())
    intervals, method, networks = _intervals(model, traced, point, costs, expected, on_host, measured_calls)
    intervals = of_host.widened(intervals) if of_host else intervals
    intervals = in_mode(intervals, expected, mode_of_variant(traced.network.dtype))
    intervals = _possible(intervals, expected, description.overheads(point))
    ends = {name: intervals[name] for name in QUANTITIES if name in intervals}
    estimate = Estimate(expected.time_s, expected.power_w, expected.energy_j, ends)
    is_composed = measured_calls == expected.calls
    source = COMPOSED if is_composed else PREDICTED
    return Answer(
        gpu=description.gpu,
        gpu_name=description.gpu_name,
        virtual=description.virtual,
        point=point,
        execution=execution,
        pass_=traced.network.pass_,
        network_id=traced.network.network_id,
        network=traced.network.network,
        input_shape=list(traced.network.input_shape),
        dtype=traced.network.dtype,
        measured_point=point in description.points,
        expected=expected,
        intervals=intervals,
        interval_method=method,
        interval_networks=networks,
        sources={name: source for name in QUANTITIES if getattr(expected, name) is not None},
        composed=estimate if is_composed else None,
        predicted=None if is_composed else estimate,
        measured_calls=measured_calls,
        host=of_host.answer if of_host else None,
        on_hosts=of_host,
        predictors=model.origin,
        optimizer=None if traced.network.optimizer is None else json.loads(traced.network.optimizer),
        items=traced.items[0],
        unit=traced.items[1],
        detail=OperationCosts(traced, costs),
    )


@dataclass(frozen=True)
class OperationCosts:
    """Return the operations of an answer, see `answer.Detail`."""

    traced: TracedNetwork
    costs: Costs

    def frame(self, answer: Answer) -> pd.DataFrame:
        """See `answer.Detail`."""
        operations, calls = self.traced.operations, self.traced.composer.times_called
        device_s, dynamic_j = calls * _seconds(self.costs), calls * self.costs.mean[:, _DYNAMIC]
        modelled = answer.modelled
        frame = pd.DataFrame(
            {
                "operation": [
                    f"fused kernel, {moved / 1e6:.3g} MB" if kind == "fused" else described(spec)
                    for spec, kind, moved in zip(
                        operations["spec"],
                        operations["kind"],
                        operations["bytes_read"] + operations["bytes_written"],
                        strict=True,
                    )
                ],
                OPERATION_CLASS: operations[OPERATION_CLASS].to_numpy(object),
                "calls": calls.astype(int),
                "device_s": device_s,
                "energy_dynamic_j": dynamic_j,
                "time_share": device_s / (modelled.time_s or 1.0),
                "energy_share": dynamic_j / (modelled.energy_j or math.nan),
                "measured": self.costs.measured,
            },
            index=pd.Index(operations["operation_id"]),
        )
        return frame[calls > 0].sort_values("device_s", ascending=False, kind="stable")

    def shared(self, other: OperationCosts, *, host: bool) -> float:
        """See `answer.Detail`."""
        one, another = (costs._uncertainty(TARGETS.index(HOST) if host else _DEVICE) for costs in (self, other))
        whole = math.sqrt(sum(part for _, part in one.values()) * sum(part for _, part in another.values()))
        common = sum(
            min(one[name][1], another[name][1])
            for name in one.keys() & another.keys()
            if math.isclose(one[name][0], another[name][0], rel_tol=_EQUAL)
        )
        return min(1.0, common / whole) if whole else 0.0

    def _uncertainty(self, column: int) -> dict[str, tuple[float, float]]:
        """Return each operation's cost, and its part of the relative uncertainty of their sum, by operation id."""
        cost, (lower, upper) = self.costs.mean[:, column], self.costs.factors[:, column].T
        all_calls = cost * self.traced.composer.times_called
        parts = all_calls * (upper - lower) / (np.nansum(all_calls) or 1.0)
        values = zip(self.traced.operations["operation_id"], cost.tolist(), parts.tolist(), strict=True)
        return {name: (each, part) for name, each, part in values if part > 0}


def _seconds(costs: Costs) -> NDArray[np.float64]:
    """Return each operation's device time; its back-to-back time where device and host were not separated."""
    device = costs.mean[:, _DEVICE]
    return np.where(np.isfinite(device), device, costs.mean[:, _EAGER])


def _with_measured(model: GpuPredictor, answer: Answer) -> Answer:
    """Replace the modelled pass of an answer by the one measured whole, if there is one."""
    key = answer.network_id, answer.pass_, answer.point
    execution = model.description.runs_as(answer.execution)
    measured = model.networks.measured(*key, execution=execution)
    answer = replace(answer, held_out=model.networks.held_out(*key, execution=execution))
    if measured is None:
        return answer
    whole = measured_whole(model, answer, measured)
    host = answer.host
    if host is None or host.paced_by != "host" or measured.time_s is None:
        return whole
    if answer.time_s <= _ON_ANOTHER_HOST * measured.time_s:
        return whole
    line = (
        f"Measured whole in {1e3 * measured.time_s:.3g} ms, on a faster host. The answer is for the median host, which "
        f"issues the calls more slowly. For your host, run `{CALIBRATE_HOST}`."
    )
    return replace(answer, measured=whole.measured, warnings=(*answer.warnings, line))


def measured_whole(model: GpuPredictor, answer: Answer, measured: Estimate) -> Answer:
    """Return the answer with a measured pass, whose 90 % intervals cover card and host effects."""
    ends = {}
    for name, error in (("time_s", CARD_TIME), ("power_w", CARD_ENERGY), ("energy_j", CARD_ENERGY)):
        value = getattr(measured, name)
        if value is not None:
            ends[name] = (value * math.exp(-NORMAL_90 * error), value * math.exp(NORMAL_90 * error))
    if answer.on_hosts:
        ends = answer.on_hosts.widened(ends)
    limit_w = model.description.overheads(answer.point).power_limit_w
    if limit_w and "power_w" in ends:
        low, high = ends["power_w"]
        ends["power_w"] = low, max(min(high, limit_w), measured.power_w or 0.0)
    return answer.with_measured(replace(measured, intervals=ends))


def _shares(
    traced: TracedNetwork, costs: dict[str, Costs], answers: Sequence[Answer], unbounded: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return each operation's largest share of the pass's time or energy over all points; shape (operations,).

    Of `unbounded` operations it is that of the upper end of their time.
    """
    calls = traced.composer.times_called
    shares = np.zeros(len(calls))
    for answer in answers:
        of_point = costs[answer.point]
        seconds = np.where(unbounded, of_point.end(1)[:, _DEVICE], _seconds(of_point))
        shares = np.fmax(shares, calls * seconds / (answer.time_s or 1.0))
        shares = np.fmax(shares, calls * of_point.mean[:, _DYNAMIC] / (answer.energy_j or 1.0))
    return shares


def _possible(ends: dict[str, Ends], expected: Composition, known: Overheads) -> dict[str, Ends]:
    """Clip intervals: a pass takes no less than its device, and a card draws from its idle power to its limit."""
    if {"time_s", "device_s"} <= set(ends):
        low, high = ends["time_s"]
        ends = ends | {"time_s": _around(expected.time_s, max(low, ends["device_s"][0]), high)}
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


SMALLER = "Choose a smaller batch; `clockwatt fit-memory` finds the largest."
"""What to do about a pass that does not fit."""

_OF_EAGER = "Peak memory is that of the eager pass; the interval covers what compiled passes need, mostly less."


def with_memory(traced: TracedNetwork, first: Answer, *others: Answer) -> list[Answer]:
    """Add the peak memory of a pass to its answers on one GPU, and a warning if the pass does not fit it.

    A pass whose memory cannot be predicted has a warning with the reason instead, without PyTorch a note.
    """
    answers = [first, *others]
    if traced.record_memory is None:
        return answers
    asked = first.gpu_name, first.execution
    try:
        if asked not in traced.peaks:
            spec, events = spec_or_none(first.gpu_name), traced.memory or []
            traced.peaks[asked] = pass_memory(events, pass_=first.pass_, execution=first.execution, spec=spec)
    except ClockwattError as error:
        return [replace(one, warnings=(*one.warnings, f"Memory is left out: {error}")) for one in answers]
    except ModuleNotFoundError as error:
        return [replace(one, notes=(*one.notes, f"Memory is left out: {error}")) for one in answers]
    known = traced.peaks[asked]
    memory = replace(known, parts={**known.parts}, modules={**known.modules})  # who asked may change them
    lacking = lacks_memory(replace(first, memory=memory))
    more = () if lacking is None else (AnswerWarning(f"{lacking} {SMALLER}", WarningKind.DOES_NOT_FIT),)
    notes = (_OF_EAGER,) if memory.eager else ()
    return [replace(one, memory=memory, warnings=(*more, *one.warnings), notes=(*one.notes, *notes)) for one in answers]


def lacks_memory(answer: Answer) -> str | None:
    """Return the message for a pass that does not fit its GPU; None where it fits or that is not known."""
    memory = answer.memory
    if memory is None or memory.fits is not False or memory.gpu_bytes is None:
        return None
    needed, there = memory.allocated_bytes / 2**30, memory.gpu_bytes / 2**30
    return f"Does not fit: the pass needs {needed:.1f} GiB; {answer.gpu} has {there:.1f} GiB."


def check_fits(traced: TracedNetwork, gpu_names: list[str]) -> set[str]:
    """Return the GPUs with memory for the least that a pass needs: weights, their gradients, the largest operation.

    ClockwattError if none has enough.
    """
    row = traced.network
    states = 0 if row.optimizer is None else states_of(json.loads(row.optimizer))
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
    """Compose the pass on a host, from costs of its operations on the median host."""
    overheads = model.description.overheads(point)
    return span(
        traced.composer, costs.pipeline(), overheads, traced.network.pass_, host, model.hosts_seen,
        is_network=traced.is_network,
    )  # fmt: skip


def _intervals(
    model: GpuPredictor,
    traced: TracedNetwork,
    point: str,
    costs: Costs,
    expected: Composition,
    on_host: HostCosts,
    measured_calls: int,
) -> Intervals:
    """Return intervals of the pass on one host, the method, and the number of networks they are based on."""
    described, is_network = model.description.passes[traced.network.pass_], traced.is_network
    if measured_calls == 0 and not model.description.is_led_to(point):
        return {}, "none", 0  # errors at measured points do not apply to extrapolated ones
    if described.summed:
        calls = traced.composer.times_called
        ends = ends_of_sum(expected, costs.mean, costs.factors, calls, is_network=is_network)
        return ends, "operations" if ends else "none", 0
    errors = described.errors
    if errors and on_host.varies:  # part of its range
        errors = replace(errors, composition_host=0.0)
    ends, method, networks = _of_operations(traced, costs, expected, errors)
    device_bound = (expected.device_s or 0.0) >= (expected.host_s or 0.0)
    if is_network and device_bound and measured_calls == expected.calls and described.networks_measured:
        # they have time, energy and power, but neither device nor host time
        of_networks, method, networks = _of_networks(expected, described.networks_measured)
        ends |= of_networks
    return ends, method, networks


def _of_operations(traced: TracedNetwork, costs: Costs, expected: Composition, errors: PassErrors | None) -> Intervals:
    """Return intervals from the uncertainty of each operation."""
    has_energy, gap_s = expected.energy_dynamic_j is not None, traced.gap_s
    added = added_errors(costs.mean, costs.factors, traced.composer.times_called, gap_s=gap_s, energy=has_energy)
    if DEVICE not in added or HOST not in added:
        return {}, "none", 0
    if not traced.is_network:
        errors = PassErrors(composition_device=0.0, composition_host=0.0, composition_energy=0.0)
    elif errors is None:
        errors = PassErrors()
    return errors.ends(expected, added), errors.device.method, errors.device.groups


def _of_networks(expected: Composition, known: dict[str, Interval]) -> Intervals:
    """Return intervals from residuals of networks of which every operation was measured."""
    values = {name: getattr(expected, name) for name in known}
    found = {name: interval.around(values[name]) for name, interval in known.items() if values[name] is not None}
    of_time = known.get("time_s")
    return found, f"{of_time.method if of_time else ''}{OF_MEASURED}", of_time.groups if of_time else 0


@dataclass(frozen=True)
class OnGpu:
    """A pass on one GPU at all operating points, by their settings."""

    gpu: str
    gpu_name: str
    virtual: bool
    predictors: str
    points: tuple[Answer, ...]

    def __repr__(self) -> str:
        """Return a line: its operating points."""
        return f"<OnGpu {self.gpu} at {', '.join(answer.point for answer in self.points)}>"

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**vars(self), "points": [point.to_dict() for point in self.points]}

    def errors(self, quantity: str) -> list[float]:
        """Relative errors of predictors that were fitted without the network, at each point where it was measured."""
        return [
            abs(predicted / measured - 1)
            for point in self.points
            if point.measured is not None and point.held_out is not None
            and (measured := getattr(point.measured, quantity))
            and (predicted := getattr(point.held_out, quantity)) is not None
        ]  # fmt: skip


@dataclass(frozen=True)
class Overview:
    """One pass of a network on several GPUs; `left_out` says why others are not there."""

    network_id: str
    pass_: str
    execution: ExecutionSettings
    gpus: tuple[OnGpu, ...]
    left_out: tuple[str, ...]

    def __repr__(self) -> str:
        """Return a line: what was asked, and the GPUs."""
        points = len(self.answers)
        return (
            f"<Overview {self.network_id}, {self.pass_}, {self.execution}: {points} point{'s' * (points > 1)} of "
            f"{', '.join(gpu.gpu for gpu in self.gpus)}>"
        )

    def to_dict(self) -> dict[str, Any]:
        """For JSON; the key of the pass is `pass`."""
        return {
            "network_id": self.network_id,
            "pass": self.pass_,
            "execution": self.execution,
            "gpus": [gpu.to_dict() for gpu in self.gpus],
            "left_out": list(self.left_out),
        }

    def to_frame(self) -> pd.DataFrame:
        """A row for each GPU and operating point; see `answer.to_frame`."""
        return to_frame(self.answers)

    @property
    def answers(self) -> list[Answer]:
        """Of all GPUs and operating points."""
        return [answer for gpu in self.gpus for answer in gpu.points]


def overview(
    models: dict[str, GpuPredictor],
    traced: TracedNetwork,
    *,
    points: Sequence[str] = (),
    execution: ExecutionSettings = TF32,
    host: HostProfile | None = None,
    standard: Answer | None = None,
) -> Overview:
    """Answer for a network's pass on some GPUs at every operating point that was measured there.

    Parameters
    ----------
    models
        Predictors of the GPUs by label.
    points
        Operating points to answer for too; those without data are left out.
    host
        That issues the calls; without one the median of those measured on.
    standard
        Every answer is compared with it.

    Raises
    ------
    ClockwattError
        If no GPU can be answered for.
    """
    shown, left_out = list[OnGpu](), list[str]()
    for label, model in models.items():
        try:
            check_fits(traced, [model.description.gpu_name])
            for point in points:
                model.description.check_runs_at(point)
            asked = sorted(
                {*model.description.points, *map(model.description.point_for, points)},
                key=lambda point: OperatingPoint.parse(point).order,
            )
            every = predict_points(model, traced, asked, execution=execution, host=host)
            reasons = [_unknown(model, answer) for answer in every]
            left_out += filter(None, reasons)
            known = [answer for answer, reason in zip(every, reasons, strict=True) if reason is None]
            answers = [with_tf32(model, traced, one, host=host) for one in known[:1]] + known[1:]
        except ClockwattError as error:
            named = str(error).startswith(tuple(f"{label}{end}" for end in " :,"))
            left_out.append(str(error) if named else f"{label}: {error}")
            continue
        if not answers:
            continue
        compared = [answer.compared_with(standard) for answer in answers] if standard else answers
        described = model.description
        shown.append(OnGpu(label, described.gpu_name, described.virtual, model.origin, tuple(compared)))
    if not shown:
        raise ClockwattError(" ".join(left_out))
    return Overview(traced.network.network_id, traced.network.pass_, execution, tuple(shown), tuple(left_out))
