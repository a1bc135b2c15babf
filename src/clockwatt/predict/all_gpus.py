"""Predictors of all available GPUs, which commands and the Python API ask; answers shared out among modules."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from clockwatt.config import NetworkConfig, OperatingPoint, Pass
from clockwatt.errors import ClockwattError, RequestError, did_you_mean
from clockwatt.gpu.specs import UnknownGpuError, find_spec
from clockwatt.predict import recommend as recommending
from clockwatt.predict.answer import Answer
from clockwatt.predict.answerer import (
    OperationCosts,
    Overview,
    overview,
    predict_network,
    with_memory,
    with_tf32,
)
from clockwatt.predict.description import known_settings, shipped_catalogue
from clockwatt.predict.features import settings_of
from clockwatt.predict.gpu_predictor import BestPoint, BulkPredictor, GpuPredictor, best_points
from clockwatt.predict.hosts import HostProfile
from clockwatt.predict.models.predictors import TARGETS
from clockwatt.predict.recommend import Limits, Recommendation
from clockwatt.predict.request import Request
from clockwatt.predict.tracing import NetworkTracer, TracedNetwork, listed_operations, training_of
from clockwatt.schema.costs import BACK_TO_BACK, TIME_DEVICE_CORRECTED
from clockwatt.schema.execution import TF32, ExecutionSettings, of_variant
from clockwatt.schema.records import FORWARD, INFERENCE, LOSS, MEMORY_KINDS, OPTIMIZER, TRAINING, WORKSPACE

Trace = Callable[[Pass], TracedNetwork]
"""Function from a pass to the calls of a network in it."""


@dataclass(frozen=True)
class AllGpus:
    """Predictors of time, power and energy of one or more GPUs.

    Attributes
    ----------
    models
        Predictor of each GPU, by its label.
    predictors_dir, catalogue_dir, validation_dir
        Folders, see `api.load`.
    shipped
        Shipped predictors of GPUs that are not among `models`, by their label in the package.
    """

    models: Mapping[str, GpuPredictor]
    predictors_dir: Path
    catalogue_dir: Path
    validation_dir: Path
    shipped: Mapping[str, GpuPredictor] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Return a line: the GPUs."""
        return f"<{type(self).__name__} of {', '.join(self.gpus)}>"

    @property
    def gpus(self) -> tuple[str, ...]:
        """Labels of the GPUs that can be predicted."""
        return (*self.models, *self.shipped)

    def label(self, name: str) -> str:
        """Return the label of a GPU from its label, in any case, or its product name.

        Raises
        ------
        RequestError
            If there are no predictors of it.
        """
        for label in self.gpus:
            if name.casefold() == label.casefold():
                return label
        for label in self.gpus:
            if _is_product(name, self._model(label).description.gpu_name):
                return label
        near = did_you_mean(name.casefold(), list(self.gpus))
        raise RequestError(
            f"{{gpu}} {name}: no predictors for this GPU; there are predictors for {', '.join(self.gpus)}{near}"
            " To add a GPU, see docs/how-to/add-a-gpu.md."
        )

    def model(self, name: str) -> GpuPredictor:
        """Return the predictor of a GPU; RequestError as `label`."""
        return self._model(self.label(name))

    def ask(self, request: Request, trace: Trace | None = None) -> Answer:
        """Answer a request about one pass on one GPU at one operating point.

        Parameters
        ----------
        request
            The request.
        trace
            Returns the calls of its network in a pass; None to find the network by its name.

        Raises
        ------
        ClockwattError
            If the GPU, the network or the point is unknown, or the pass was not fitted.
        """
        trace = trace or functools.partial(self.traced, request)
        gpu = self.gpu_at(request)
        traced = trace(request.pass_)
        answer = self._answer(request, traced, gpu, request.point)
        answer = with_tf32(self.model(answer.gpu), traced, answer, host=self.profile(request.host))
        (answer,) = with_memory(traced, answer)
        return self.with_phases(answer, trace, request.host) if traced.is_network else answer

    def ask_layers(
        self, request: Request, trace: Trace | None = None, *, depth: int | None = None
    ) -> tuple[Answer, pd.DataFrame]:
        """Answer a request, and share its time, energy and memory among the network's modules.

        Parameters
        ----------
        request, trace
            As of `ask`.
        depth
            See `layers`, also for the table.

        Raises
        ------
        ClockwattError
            As `ask`.
        """
        trace = trace or functools.partial(self.traced, request)
        answer = self.ask(request, trace)
        forward = None
        if answer.phases:
            forward = self.answer(
                trace("inference"), gpu=answer.gpu, point=answer.point, execution=answer.execution, host=request.host
            )
        return answer, layers(answer, forward, depth)

    def answer_all(
        self, traced: Sequence[TracedNetwork], gpus: Sequence[str], request: Request
    ) -> list[Answer | ClockwattError]:
        """Answer for several networks on several GPUs at the operating points of a request, nested in this order.

        An error replaces an answer that is not possible; RequestError if none is possible.
        """
        points = [str(OperatingPoint.parse(point)) for point in request.points]
        of_gpus = []
        for gpu in gpus:
            model = self.model(gpu)
            asked = dict.fromkeys(model.description.point_for(point) for point in points)
            bulk = BulkPredictor.of(model, traced, [*asked])
            one = replace(self, models={**self.models, gpu: bulk})
            of_gpus.append([[one._answer_or_error(each, gpu, point, request) for point in points] for each in traced])
        answers = [answer for of_network in zip(*of_gpus, strict=True) for on_gpu in of_network for answer in on_gpu]
        if all(isinstance(answer, ClockwattError) for answer in answers):
            raise RequestError(str(answers[0]))
        return answers

    def _answer_or_error(
        self, traced: TracedNetwork, gpu: str, point: str, request: Request
    ) -> Answer | ClockwattError:
        try:
            (answer,) = with_memory(traced, self._answer(request, traced, gpu, point))
        except ClockwattError as error:
            return error
        return answer

    def _answer(self, request: Request, traced: TracedNetwork, gpu: str, point: str) -> Answer:
        execution = self.execution(request, traced)
        answer = self.answer(traced, gpu=gpu, point=point, execution=execution, host=request.host)
        return answer if request.relative_to is None else self.compared(answer, request, traced)

    def with_phases(self, answer: Answer, trace: Trace, host: str | None = None) -> Answer:
        """Add the times of forward pass (that of inference), backward pass and step to an answer about training.

        Other answers do not change, nor do those on a GPU without predictors of inference.
        """
        passes = self.model(answer.gpu).description.passes
        if answer.pass_ != TRAINING or INFERENCE not in passes or not isinstance(answer.detail, OperationCosts):
            return answer
        forward = self.answer(
            trace("inference"), gpu=answer.gpu, point=answer.point, execution=answer.execution, host=host
        )
        forward_s = forward.time_s * answer.detail.traced.batches
        step_s = float(_shares(answer, answer.detail, 0)["time_s"].get(_STEP, 0.0))
        rest_s = max(0.0, answer.time_s - forward_s - step_s)
        return replace(answer, phases={"forward": forward_s, "backward": rest_s, "step": step_s})

    def execution(self, request: Request, traced: TracedNetwork) -> ExecutionSettings:
        """Return how a request's network runs.

        Without a precision, that is the default of PyTorch, or the next precision that all its operations were measured
        in, where one was.
        """
        default = request.execution(traced.network.dtype)
        if request.precision is not None:
            return default
        models = [self.model(name) for name in request.gpus] or list(self.models.values())
        virtual = all(model.description.virtual for model in models)
        of_models = (model.description for model in {*models, *self.models.values()})
        known = known_settings(one for one in of_models if one.virtual == virtual)
        answerable = (
            one
            for one in of_variant(traced.network.dtype)
            if known.issuperset(settings_of(traced.operations, one, known))
        )
        return next(answerable, default)

    def only_gpu(self, request: Request) -> str:
        """Return the label of the GPU that a request names; without one, of the only GPU."""
        gpus = request.gpus or self.gpus
        if len(gpus) != 1:
            raise RequestError(f"{{gpu}}: give one of {', '.join(self.gpus)}.")
        return self.label(gpus[0])

    def gpu_at(self, request: Request) -> str:
        """Return the GPU that a request names, or refuse it, its point or its host: tracing takes far longer."""
        gpu = self.only_gpu(request)
        self.model(gpu).description.check_runs_at(request.point)
        self.profile(request.host)
        return gpu

    def recommendation(
        self, request: Request, trace: Callable[[Request], TracedNetwork] | None = None
    ) -> Recommendation:
        """Recommend the GPU, operating point and execution settings that minimise the cost of a request's pass.

        Parameters
        ----------
        request
            The request.
        trace
            Returns the calls of its network in the precision of a request; None to find the network by its name.

        Raises
        ------
        ClockwattError
            As `choose`.
        """
        for name in request.gpus:
            self.label(name)
        trace = trace or self.traced
        traced = trace(request)
        alternatives, left_out = dict[ExecutionSettings, TracedNetwork](), list[str]()
        for settings in request.choices(traced.network.input_shape):
            try:
                under = trace(request.model_copy(update={"precision": str(settings), "precisions": ()}))
            except ClockwattError as error:
                left_out.append(f"{settings}: {error}")
            else:
                alternatives[settings] = under
        answer = self.choose(request, traced, alternatives)
        return replace(answer, left_out=(*left_out, *answer.left_out))

    def overviews(
        self, request: Request, passes: Sequence[Pass] | None = None, trace: Trace | None = None
    ) -> list[Overview]:
        """Answer for a network on all GPUs of a request, else all of the campaign, at every point measured there.

        Parameters
        ----------
        request
            The request; its pass is used where `passes` is None.
        passes
            Passes to show; those without fitted predictors are skipped.
        trace
            As of `ask`.

        Raises
        ------
        ClockwattError
            If nothing can be shown, or as `answer`.
        """
        models = {label: self.model(label) for label in [self.label(name) for name in request.gpus] or self.models}
        fitted = {pass_ for model in models.values() for pass_ in model.description.passes}
        host = self.profile(request.host)
        shown = []
        for pass_ in [one for one in passes or [request.pass_] if one in fitted]:
            traced = (trace or functools.partial(self.traced, request))(pass_)
            execution, standard = self.execution(request, traced), None
            if request.relative_to is not None:
                standard = self.standard(request.relative_to, traced, execution=execution, host=request.host)
            shown.append(
                overview(models, traced, points=request.points, execution=execution, host=host, standard=standard)
            )
        if not shown and fitted:
            there = f"The predictors of {' and '.join(models)} have {' and '.join(sorted(fitted))} only"
            raise RequestError(f"{{pass_}} {request.pass_}: cannot be predicted. {there}: give another pass or GPU.")
        if not shown:
            raise ClockwattError(
                f"{self.predictors_dir}: no pass was fitted. Run `clockwatt fit` again: it reports what is missing."
            )
        return shown

    def least_energy(self, request: Request) -> list[BestPoint]:
        """Return where each network that was measured whole took least energy, on a request's GPUs and in its pass.

        Raises
        ------
        DataFileError
            If nothing was validated, or the file is damaged.
        ClockwattError
            If no network was measured there, a GPU is unknown, or the request has what needs a network.
        """
        for name in request.model_dump(exclude_defaults=True).keys() - {"gpus", "pass_"}:
            raise RequestError(f"{{{name}}} needs a network. Name one, or leave it out.")
        gpus = [self.label(name) for name in request.gpus]
        pass_ = request.pass_ if "pass_" in request.model_fields_set else None
        everywhere = best_points(self.validation_dir)
        found = [best for best in everywhere if best.gpu in (gpus or [best.gpu]) and pass_ in (None, best.pass_)]
        if everywhere and not found:
            known = ", ".join(sorted({f"{best.gpu} in {best.pass_}" for best in everywhere}))
            raise ClockwattError(f"no network was measured whole there; some were on {known}.")
        return found

    def traced(self, request: Request, pass_: Pass | None = None) -> TracedNetwork:
        """Return the calls of a request's network, or its operations, in its pass or another one.

        Raises
        ------
        ClockwattError
            If the network is unknown or cannot be traced, or several GPUs are to train it.
        """
        if request.gpus_per_node is not None or request.counts:
            raise RequestError("{gpus_per_node} is for `predict` and `recommend` alone: leave it out.")
        if request.operations is not None:
            return listed_operations(request.operations, pass_ or request.pass_)
        return self.tracer.trained(request.training).trace(self.network(request), pass_ or request.pass_)

    def network(self, request: Request) -> NetworkConfig:
        """Return the network of a request; without an input, with the one that it was measured with.

        Raises
        ------
        ClockwattError
            As `Request.network_config`.
        """
        return request.network_config(self.catalogue_dir, shipped_catalogue() if self.shipped else None)

    @functools.cached_property
    def tracer(self) -> NetworkTracer:
        """Return the tracer, which traces each network once."""
        return NetworkTracer(self.catalogue_dir, training_of(self.predictors_dir))

    def answer(
        self,
        traced: TracedNetwork,
        *,
        gpu: str,
        point: str | OperatingPoint = "default",
        execution: ExecutionSettings = TF32,
        host: str | None = None,
    ) -> Answer:
        """Answer for a traced pass; raises as `ask`."""
        name = str(OperatingPoint.parse(point) if isinstance(point, str) else point)
        return predict_network(self.model(gpu), traced, name, execution=execution, host=self.profile(host))

    def compared(self, answer: Answer, request: Request, traced: TracedNetwork) -> Answer:
        """Compare an answer with its pass on the standard GPU that a request names; raises as `standard`."""
        assert request.relative_to is not None
        standard = self.standard(request.relative_to, traced, execution=answer.execution, host=request.host)
        return self.related(answer, standard)

    def related(self, answer: Answer, standard: Answer) -> Answer:
        """Return an answer with its ratios to another one; warn where the two were measured on different hosts."""
        assert isinstance(answer.detail, OperationCosts)
        models = {one.gpu: self.model(one.gpu) for one in (answer, standard)}
        warnings = recommending.warnings_of_hosts(models, answer.detail.traced, [answer, standard])
        return replace(answer.compared_with(standard), warnings=(*answer.warnings, *warnings))

    def standard(
        self, named: str, traced: TracedNetwork, *, execution: ExecutionSettings = TF32, host: str | None = None
    ) -> Answer:
        """Answer for a pass on the standard GPU, which others are compared with.

        Parameters
        ----------
        named
            `GPU` or `GPU@POINT`, such as `h200@sm1320`; without a point its default.
        traced, execution, host
            As of `answer`.

        Raises
        ------
        RequestError
            If there is no such GPU or point, or the pass cannot be predicted there.
        """
        name, at, point = named.partition("@")
        try:
            gpu = self.label(name)
        except RequestError as error:
            raise RequestError(error.text.replace(f"{{gpu}} {name}", f"{{relative_to}} {named}")) from None
        try:
            return self.answer(traced, gpu=gpu, point=point if at else "default", execution=execution, host=host)
        except ClockwattError as error:
            raise RequestError(f"{{relative_to}} {named}: {error}") from error

    def choose(
        self,
        request: Request,
        traced: TracedNetwork,
        alternatives: Mapping[ExecutionSettings, TracedNetwork] = {},
    ) -> Recommendation:
        """Recommend a GPU, an operating point and, with `alternatives`, execution settings for a request's traced pass.

        With `alternatives`, candidates are compared with the request's own execution settings on the same GPU at its
        default operating point, or with `relative_to`.

        Raises
        ------
        ClockwattError
            As `ask`, or if no candidate is within the limits.
        """
        measured = [label for label, model in self.models.items() if not model.description.virtual]
        labels = [self.label(name) for name in request.gpus] or measured or list(self.models)
        execution = self.execution(request, traced)
        answer = recommending.recommend(
            {label: self._model(label) for label in labels},
            traced,
            objective=request.objective,
            limits=Limits.of(request),
            points=[str(OperatingPoint.parse(point)) for point in request.points],
            execution=execution,
            alternatives=alternatives,
            host=self.profile(request.host),
            validation_dir=self.validation_dir,
        )
        standards = dict[str, Answer]()
        if request.relative_to is not None:
            standard = self.standard(request.relative_to, traced, execution=execution, host=request.host)
            standards = dict.fromkeys(labels, standard)
        for gpu in labels if alternatives and request.relative_to is None else ():
            with contextlib.suppress(ClockwattError):  # ratios are unknown where the default does not run
                standards[gpu] = self.standard(gpu, traced, execution=execution, host=request.host)
        answer = answer.compared_with(standards)
        virtual = [label for label in self.models if label not in measured]
        if request.gpus or not measured or not virtual:
            return answer
        among = {"gpus": tuple(virtual), "precision": str(execution), "relative_to": None}
        try:
            best = self.choose(request.model_copy(update=among), traced, alternatives).best
            chosen_there = f"among them {best.gpu} at {best.point} would be chosen"
        except ClockwattError as error:
            chosen_there = f"among them none can be chosen: {error}"
        reason = f"{', '.join(virtual)}: virtual, so considered only with --gpu; {chosen_there.rstrip('.')}."
        return replace(answer, left_out=(*answer.left_out, reason))

    def profile(self, host: str | None) -> HostProfile | None:
        """Return the profile of a named host; DataFileError if there is none."""
        return None if host is None else HostProfile.read(self.predictors_dir, host)

    def _model(self, label: str) -> GpuPredictor:
        return self.models[label] if label in self.models else self.shipped[label]


def _is_product(name: str, gpu_name: str) -> bool:
    """Return whether a product name, such as `NVIDIA H200`, is that of a measured GPU."""
    try:
        return find_spec(name) == find_spec(gpu_name)
    except UnknownGpuError:
        return False


_HOST, _DEVICE = TARGETS.index("time_host_corrected_s"), TARGETS.index(TIME_DEVICE_CORRECTED)
_EAGER, _DYNAMIC = TARGETS.index(BACK_TO_BACK), TARGETS.index("energy_dynamic_corrected_j")
_STEP = f"({OPTIMIZER})"
_SHARED = 0.25
"""Share of the variance of operations' errors that all of them have in common."""
MEMORY = tuple(kind for kind in MEMORY_KINDS if kind != WORKSPACE)
COLUMNS = (
    *("calls", "flops", "time_s", "time_s_low", "time_s_high", "device_s", "forward_s", "backward_s", "energy_j"),
    *("energy_j_low", "energy_j_high", "power_w", "memory_bytes"),
)
"""Columns that every table of layers has."""


def layers(answer: Answer, forward: Answer | None = None, depth: int | None = None) -> pd.DataFrame:
    """Share a pass's time and energy among its modules.

    A call belongs to the innermost module that makes it. Time is shared by the calls' device times, in a host-bound
    pass by their host times; energy by the calls' dynamic energy, and idle power by time. The sums are the answer's.

    Parameters
    ----------
    answer
        Of the pass, with its memory if that is to be shared too.
    forward
        Of a training pass, the answer of inference: its shares are the forward parts.
    depth
        Modules below so many levels are part of the one that holds them; None for all levels.

    Returns
    -------
    pandas.DataFrame
        Indexed by `module`, the path of a module, in the order of the first calls; `(loss)` and `(optimizer)` have rows
        of their own. `COLUMNS`: times in s, energy in J, power in W; `memory_bytes`, what of the peak belongs to the
        module: its parameters, gradients, optimizer state and tensors kept. Null where something is not known.

    Raises
    ------
    RequestError
        If the answer is about no network.
    """
    if not isinstance(answer.detail, OperationCosts) or not answer.detail.traced.is_network:
        raise RequestError("layers needs a network: give one instead of {operations}.")
    if depth is not None and (isinstance(depth, bool) or not isinstance(depth, Integral) or depth < 1):
        raise RequestError(f"{{depth}} {depth!r}: give a whole number of 1 or more.")
    table = _shares(answer, answer.detail, depth)
    for name, low, high in (("time_s", "time_s_low", "time_s_high"), ("energy_j", "energy_j_low", "energy_j_high")):
        value, ends = getattr(answer, name), answer.intervals.get(name)
        if value and ends is not None:  # at least as wide, relatively, as the pass's, whose errors they share
            table[low] = np.minimum(table[low], table[name] * ends[0] / value)
            table[high] = np.maximum(table[high], table[name] * ends[1] / value)
    if forward is None:
        table["forward_s"], table["backward_s"] = table["time_s"], 0.0
    else:
        assert isinstance(forward.detail, OperationCosts)
        of_forward = _shares(forward, forward.detail, depth)["time_s"].reindex(table.index).fillna(0.0)
        steps = table.index == _STEP
        table["forward_s"] = np.where(steps, 0.0, np.minimum(of_forward, table["time_s"]))
        table["backward_s"] = np.where(steps, 0.0, table["time_s"] - table["forward_s"])
    table["memory_bytes"] = _memory(answer, table.index, depth)
    return table[list(COLUMNS)]


def with_measured(table: pd.DataFrame, seconds: pd.Series, depth: int | None) -> pd.DataFrame:
    """Add `measured_device_s`, times by module of a trace; what only the trace has gets a row of its own."""
    names = [".".join(str(path).split(".")[:depth]) for path in seconds.index]
    measured = seconds.groupby(names, sort=False).sum()
    rows = [*table.index, *(name for name in measured.index if name not in table.index)]
    return table.reindex(rows).rename_axis("module").assign(measured_device_s=measured.reindex(rows))


def _shares(answer: Answer, detail: OperationCosts, depth: int | None) -> pd.DataFrame:
    traced, costs = detail.traced, detail.costs
    positions, calls = traced.composer.positions, traced.calls
    host_bound = answer.host is not None and answer.host.paced_by == "host"
    column = _HOST if host_bound else _DEVICE
    known = np.isfinite(costs.mean[:, column])  # else back to back, as the pass's time is the sum of these
    times = np.nan_to_num(np.where(known, costs.mean[:, column], costs.mean[:, _EAGER]))
    factors = np.where(known[:, None], costs.factors[:, column], costs.factors[:, _EAGER])
    dynamic = np.nan_to_num(costs.mean[:, _DYNAMIC])
    names = (_named(path, phase, depth) for path, phase in zip(calls["module_path"], calls["phase"], strict=True))
    frame = pd.DataFrame({
        "module": list(names),
        "operation": positions,
        "flops": traced.operations["flops"].to_numpy(float)[positions],
        "time_s": times[positions],
        "device_s": np.nan_to_num(costs.mean[:, _DEVICE])[positions],
        "dynamic_j": dynamic[positions],
    })  # fmt: skip
    grouped = frame.groupby("module", sort=False)
    table = grouped[["flops", "time_s", "device_s", "dynamic_j"]].sum()
    table["calls"] = grouped.size()
    low, high = (_widths(frame, times, factors[:, side], table.index) for side in (0, 1))
    scale = answer.time_s / (table["time_s"].sum() or 1.0)
    table["time_s_low"] = np.maximum(0.0, scale * (table["time_s"] - low))
    table["time_s_high"] = scale * (table["time_s"] + high)
    table["time_s"] *= scale
    return _with_energy(table, frame, answer, dynamic, costs.factors[:, _DYNAMIC])


def _with_energy(
    table: pd.DataFrame, frame: pd.DataFrame, answer: Answer, dynamic: NDArray[np.float64], factors: NDArray[np.float64]
) -> pd.DataFrame:
    """Add energy and power: dynamic energy as the calls', and idle power over the time.

    In a host-bound pass a module's kernels may run for longer than its share of the time: power is then that of the
    kernels.
    """
    expected = answer.expected
    if answer.energy_j is None or expected.energy_dynamic_j is None:
        unknown = dict.fromkeys(("energy_j", "energy_j_low", "energy_j_high", "power_w"), np.nan)
        return table.assign(**unknown)
    scale = min(expected.energy_dynamic_j, answer.energy_j) / (table["dynamic_j"].sum() or 1.0)
    idle_w = max(0.0, answer.energy_j - scale * table["dynamic_j"].sum()) / answer.time_s
    low, high = (_widths(frame, dynamic, factors[:, side], table.index) for side in (0, 1))
    table["energy_j"] = scale * table["dynamic_j"] + idle_w * table["time_s"]
    table["energy_j_low"] = scale * np.maximum(0.0, table["dynamic_j"] - low) + idle_w * table["time_s_low"]
    table["energy_j_high"] = scale * (table["dynamic_j"] + high) + idle_w * table["time_s_high"]
    seconds = table[["time_s", "device_s"]].max(axis=1)
    table["power_w"] = table["energy_j"] / seconds.where(seconds > 0)
    return table


def _widths(
    frame: pd.DataFrame, values: NDArray[np.float64], factors: NDArray[np.float64], modules: pd.Index
) -> NDArray[np.float64]:
    """Return how far the ends of the modules' intervals are from their sums; calls of one operation err alike."""
    errors = values * np.nan_to_num(np.abs(factors - 1.0))
    counts = frame.groupby(["module", "operation"], sort=False).size()
    of_pair = counts.to_numpy() * errors[counts.index.get_level_values("operation").to_numpy(int)]
    pairs = pd.Series(of_pair, counts.index.get_level_values("module"))
    total, squares = (one.groupby(level=0).sum().reindex(modules).to_numpy(float) for one in (pairs, pairs**2))
    return np.sqrt((1 - _SHARED) * squares + _SHARED * total**2)


def _memory(answer: Answer, modules: pd.Index, depth: int | None) -> pd.Series:
    if answer.memory is None:
        return pd.Series(np.nan, modules)
    found = pd.Series(0, modules, dtype=float)
    for (path, kind), size in answer.memory.modules.items():
        name = _named(path, FORWARD, depth)
        if name in found.index and kind in MEMORY:
            found[name] += size
    return found


def _named(path: str, phase: str, depth: int | None) -> str:
    if phase in (LOSS, OPTIMIZER):
        return f"({phase})"
    return path if depth is None else ".".join(path.split(".")[:depth])
