"""The Python API: what `predict`, `compare`, `recommend` and `show` answer, as typed results and data frames."""

from __future__ import annotations

import functools
import itertools
import os
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from clockwatt.config import NetworkConfig, OperatingPoint, Pass
from clockwatt.errors import ClockwattError, DataFileError, RequestError
from clockwatt.predict.all_gpus import AllGpus, with_measured
from clockwatt.predict.answer import Answer, to_frame
from clockwatt.predict.answerer import Overview
from clockwatt.predict.description import shipped_catalogue, shipped_predictors, shipped_validation
from clockwatt.predict.fit_memory import DIMENSIONS, Dimension, Largest
from clockwatt.predict.fit_memory import fit_memory as largest_of
from clockwatt.predict.gpu_predictor import load_models
from clockwatt.predict.module_times import module_times
from clockwatt.predict.parallel.answer import ParallelAnswer, ask_parallel
from clockwatt.predict.parallel.choice import ParallelRecommendation, recommend_parallel
from clockwatt.predict.recommend import Limits, Recommendation
from clockwatt.predict.request import ALL_PRECISIONS, PARALLEL, Request, typed_inputs
from clockwatt.predict.tracing import NetworkTracer, TracedNetwork, trace_sizes, with_batch
from clockwatt.schema import layout
from clockwatt.schema.execution import ExecutionSettings
from clockwatt.schema.records import INFERENCE, TRAINING

if TYPE_CHECKING:
    from clockwatt.operations.instances import Instance

_OF_COUNTS = ("counts", "node_counts", "node_links", "strategies", "links", "microbatches", "schedule")
_OF_A_CHOICE = ("objective", "max_slowdown", "power_cap_w", "precisions")
_NOT_OF_ALL = {
    "relative_to": "is for predict, recommend and show only",
    **dict.fromkeys(_OF_A_CHOICE, "is for recommend only"),
    **dict.fromkeys(("gpus_per_node", *PARALLEL), "is for predict only"),
    "gpus_per_node": "is for predict only; recommend takes counts",
    "nodes": "is for predict only; recommend takes node_counts",
    "strategy": "is for predict only; recommend takes strategies",
    **dict.fromkeys(("counts", "node_counts", "strategies"), "is for recommend only"),
    "batch": "is for predict only",
    "batch_size": "is not known: write batch, such as batch=[8, 64]",
    **dict.fromkeys(("depth", "trace"), "is for layers only"),
    "limits": "is for recommend only",
    "to": "is for compare only",
    **dict.fromkeys(("dimension", "other_bytes"), "is for fit_memory only"),
    **dict.fromkeys(("dtype", "tf32"), 'is not known: write precision, such as precision="bf16"'),
    "device": 'is not known: write gpu, such as gpu="h200"',
    "model": 'is not known: write network, such as network="resnet50"',
    **dict.fromkeys(("shape", "input_shape"), "is not known: write inputs, such as inputs=(32, 3, 224, 224)"),
    **dict.fromkeys(("predictors_dir", "catalogue_dir", "validation_dir"), "is a folder: give it to `clockwatt.load`"),
    **dict.fromkeys(
        ("measure_missing", "measure_whole", "run", "config_file", "store_dir"),
        "is for measuring: run `clockwatt predict` or `recommend` with it",
    ),
}
"""What not every question takes, and the reason."""
_OF_ALL = (
    *("pass_", "precision", "operations", "optimizer", "accumulate", "clip_norm", "loss", "host", "gpus"),
    *("input_dtype", "input_below", "assume_branch", "cache_length"),
)
"""Fields that every question reads; a new field is refused until it is named here or by the question."""

RESULTS = Path("results")
"""Results of a campaign where nobody says otherwise."""


def load(
    predictors_dir: str | Path | None = None,
    *,
    catalogue_dir: str | Path | None = None,
    validation_dir: str | Path | None = None,
) -> Predictors:
    """Load what `clockwatt fit` wrote. Nothing is unpickled.

    Parameters
    ----------
    predictors_dir
        `results/predictors` of a campaign. Without it, those in `results/predictors` of the working directory if a
        campaign was fitted there, and for GPUs that it lacks those that the package ships.
    catalogue_dir
        Networks that need not be traced again; else `dataset/catalogue` beside the predictors.
    validation_dir
        Networks that were measured whole, and what choices by these predictors have cost; else `validation` beside
        the predictors.

    Raises
    ------
    RequestError
        If one is no path.
    DataFileError
        If there are no predictors, or one is damaged; if a catalogue or validation is named that is not there.
    """
    folders = {"predictors_dir": predictors_dir, "catalogue_dir": catalogue_dir, "validation_dir": validation_dir}
    for field, given in folders.items():
        if not isinstance(given, str | os.PathLike | None):
            raise RequestError(f"{{{field}}} {given!r}: give a folder.")
    for given, file, stage in (
        (catalogue_dir, layout.NETWORKS_FILE, "catalogue"), (validation_dir, layout.VALIDATION_FILE, "validate"),
    ):  # fmt: skip
        if given and not (Path(given) / file).exists():
            raise DataFileError(f"{given}: holds no {file}. Run `clockwatt {stage}`, or give another folder.")
    folder = RESULTS / layout.PREDICTORS if predictors_dir is None else Path(predictors_dir)
    shipped = load_models(shipped_predictors(), shipped_validation()) if predictors_dir is None else {}
    catalogue, validation = folder.parent / layout.DATASET_CATALOGUE, folder.parent / layout.VALIDATION
    if predictors_dir is not None or (folder / layout.METRICS_FILE).exists():
        validation = Path(validation_dir) if validation_dir else validation
        models = load_models(folder, validation)
    else:
        models, catalogue, validation = shipped, shipped_catalogue(), shipped_validation()
    return Predictors(
        models,
        folder,
        Path(catalogue_dir) if catalogue_dir else catalogue,
        Path(validation_dir) if validation_dir else validation,
        {label: model for label, model in shipped.items() if label not in models},
    )


@dataclass(frozen=True, repr=False)
class Predictors(AllGpus):
    """Predictors of time, power and energy of one or more GPUs, to be asked from Python; see `load`.

    >>> predictors = clockwatt.load()
    >>> predictors.predict("resnet50", gpu="h200").time_s
    >>> predictors.predict("resnet50", gpu="h200", batch=[1, 2, 4])  # a data frame
    """

    def predict(
        self,
        network: Any = None,
        inputs: Any = None,
        *,
        gpu: str | None = None,
        point: str | OperatingPoint = "default",
        batch: Sequence[int] | None = None,
        gpus: Sequence[str] | None = None,
        points: Sequence[str | OperatingPoint] | None = None,
        **question: Any,
    ) -> Any:
        """Predict one pass of a network on one GPU at one operating point, or each of several.

        Parameters
        ----------
        network
            torchvision name, `timm:NAME`, `hf:CONFIG.json`, `package.module:callable` or a campaign's network; a
            `torch.nn.Module`; a callable that takes `inputs`, and may call modules that it holds, as variables or in
            lists, dicts and objects. A list of questions, each a dict of these parameters, gives a data frame.
        inputs
            A shape, batch first, or an example (a tensor, an array of NumPy); several by position as a list, or by
            keyword as a dict. Token ids are `{"shape": (8, 128), "dtype": "int64", "below": 30522}`. Without inputs,
            those that the network was measured with.
        gpu, point
            One of `gpus`, or a product name; `default`, `sm1440`, `sm1440-mem5001`, `pl150` or an `OperatingPoint`.
        batch, gpus, points
            Sweeps: a row for each combination. A batch size takes the place of the first size of every input.
        question
            `training`: forward, backward and optimizer step in place of inference. Other fields of `Request`:
            `operations` (a file, in place of a network), `precision`, `optimizer`, `accumulate`, `clip_norm`, `loss`,
            `input_dtype`, `input_below`, `assume_branch`, `cache_length`, `host`, `relative_to`; of a training step on
            several GPUs `gpus_per_node`, `nodes`, `node_links`, `strategy`, `links`, `stages`, `microbatches` and
            `schedule`.

        Returns
        -------
        Answer, ParallelAnswer or pandas.DataFrame
            `time_s`, `energy_j`, `power_w`, `intervals`, `source` and more, units in their names; with `gpus_per_node`
            a `ParallelAnswer`; of a list or a sweep a data frame with a row for each question, see `answer.to_frame`.

        Raises
        ------
        ClockwattError
            If the GPU, the network or the point is unknown, or the pass was not fitted.
        """
        if isinstance(network, Sequence) and not isinstance(network, str | bytes):
            beside = {"inputs": inputs, "gpu": gpu, "batch": batch, "gpus": gpus, "points": points, **question}
            beside |= {} if point == "default" else {"point": point}
            for name in [name for name, value in beside.items() if value is not None]:
                raise RequestError(
                    f"{name} cannot be given with a list of questions. Give it in each one, such as "
                    "{'network': 'resnet18', 'gpu': 'h200'}."
                )
            answers = [self._answer_or_error_of(one) for one in network]
            if answers and all(isinstance(one, ClockwattError) for one in answers):
                raise RequestError(str(answers[0]))
            return to_frame(answers)
        sizes = list(batch) if isinstance(batch, Iterable) else []
        if batch is not None and not sizes:
            raise RequestError(f"{{batch}} {batch!r}: give one or more sizes, such as [1, 8, 64].")
        given = _Question.of(
            network,
            inputs,
            ("relative_to", "gpus_per_node", *PARALLEL),
            gpu=gpu,
            gpus=gpus,
            point=point or "default",
            points=points,
            **question,
        )
        if batch is None and gpus is None and points is None:
            return given.answer(self)
        return given.sweep(self, sizes or None)

    def _answer_or_error_of(self, question: Any) -> Answer | ClockwattError:
        try:
            return self._one_of(question)
        except ClockwattError as error:
            return error

    def _one_of(self, question: Any) -> Answer:
        """Answer one question of a list, or one of two to compare."""
        asked = dict(question) if isinstance(question, Request) else question
        if isinstance(asked, Mapping) and asked.get("gpus_per_node") is not None:
            raise RequestError("{gpus_per_node} is for one step: ask for it with `predict` alone.")
        if isinstance(question, Request):
            return self.ask(question)
        if not isinstance(asked, Mapping) or not all(isinstance(name, str) for name in asked):
            raise RequestError(
                f"{question!r}: give each question of a list as a dict, such as {{'network': 'resnet50'}}."
            )
        answer = self.predict(**question)
        if not isinstance(answer, Answer):
            raise RequestError("this question names one batch, GPU and point: ask for a sweep with `predict` alone.")
        return answer

    def recommend(
        self,
        network: Any = None,
        inputs: Any = None,
        *,
        limits: Limits | None = None,
        **question: Any,
    ) -> Recommendation | ParallelRecommendation:
        """Say on which GPU, at which operating point and under which execution settings a pass costs least.

        Parameters
        ----------
        network, inputs, question
            As for `predict`; `objective` is minimised: time, energy, or edp, their product.
        limits
            What the choice must keep to, e.g. `Limits(max_slowdown=0.1)`, or `max_slowdown` and `power_cap_w` alone.
        question
            `gpu` or `gpus`: choose among these; else among the campaign's measured ones, or among its virtual ones
            where there are no others. Shipped ones are chosen among where there is no campaign. `points`: operating
            points to consider too, though never measured. `precisions`: settings to choose among besides PyTorch's
            default, such as `["tf32", "bf16-mixed"]`, or `"all"`; each candidate has `relative_to` that default.
            `counts=[2, 4]` with `links`, and perhaps `node_counts` with `node_links`, `strategies`, `microbatches` and
            `schedule`: numbers of GPUs to train on, and how, which gives a `ParallelRecommendation`.

        Raises
        ------
        ClockwattError
            As `predict`, or if nothing keeps to the limits.
        """
        if not isinstance(limits, Limits | None):
            raise RequestError(f"limits {limits!r}: give clockwatt.Limits(max_slowdown=0.1, power_cap_w=300).")
        if limits is not None:
            for name in [name for name in asdict(limits) if question.get(name) is not None]:
                raise RequestError(f"limits and {name}: give one or the other, such as limits=Limits({name}=…).")
            question |= asdict(limits)
        if (several := question.get("precision")) == ALL_PRECISIONS or isinstance(several, list | tuple):
            if question.get("precisions") is not None:
                raise RequestError("{precision} and {precisions}: give one or the other.")
            question["precisions"] = question.pop("precision")
        given = _Question.of(network, inputs, ("relative_to", *_OF_A_CHOICE, *_OF_COUNTS), **question)
        if given.request.counts:
            trace = functools.partial(given._trace, self)
            return recommend_parallel(self, given.request, given.network(self), trace)
        return self.recommendation(given.request, lambda request: given.under(request).trace(self))

    def compare(
        self, network: Any, other: Any = None, inputs: Any = None, *, to: Mapping[str, Any] = {}, **question: Any
    ) -> tuple[Answer, Answer]:
        """Predict two passes, the second relative to the first: its `relative_to` has ratios and their intervals.

        Parameters
        ----------
        network, inputs, question
            As for `predict`, of one pass.
        other
            Network of the second pass; None for the same one.
        to
            Parameters that differ in the second pass: `{"precision": "bf16-mixed"}`.

        Raises
        ------
        ClockwattError
            As `predict`.
        """
        if not (other is None or isinstance(other, str) or callable(other)):
            raise RequestError(f"other {reprlib.repr(other)}: give a network; give the input as inputs.")
        named = isinstance(to, Mapping) and all(isinstance(name, str) for name in to)
        if not named or "relative_to" in question or (other is None and not to):
            raise RequestError('give what differs in the second pass as to={"gpu": "h100"}.')
        asked = {"network": network, "inputs": inputs, **question}
        first = self._one_of(asked)
        return first, self.related(self._one_of(asked | ({} if other is None else {"network": other}) | {**to}), first)

    def layers(
        self, network: Any = None, inputs: Any = None, *, gpu: str | None = None,
        point: str | OperatingPoint = "default", depth: int | None = None, trace: str | Path | None = None,
        **question: Any,
    ) -> pd.DataFrame:  # fmt: skip
        """Share the time, energy and memory of a pass among the modules of its network.

        Parameters
        ----------
        network, inputs, gpu, point, question
            As for `predict`.
        depth
            Modules below so many levels are part of the one that holds them; None for all levels.
        trace
            Trace of torch.profiler with stacks, to compare with.

        Returns
        -------
        pandas.DataFrame
            See `all_gpus.layers`; with a trace also `measured_device_s`, the time of the CPU if it has no kernels.

        Raises
        ------
        ClockwattError
            As `predict`, or if the trace is of another network.
        """
        for name in question.keys() & {"gpus", "points"}:
            raise RequestError(f"{name}: layers takes one {name[:-1]}.")
        if not isinstance(trace, str | os.PathLike | None):
            raise RequestError(f"trace {trace!r}: give a file that torch.profiler wrote.")
        given = _Question.of(network, inputs, gpu=gpu, point=point, **question)
        table = self.ask_layers(given.request, lambda pass_: given.trace(self, pass_), depth=depth)[1]
        if trace is None:
            return table
        from clockwatt.operations.trace.trace import called_modules

        build = None if given.instance is None else given.instance.on_meta
        modules = called_modules(given.network(self), given.request.pass_, build)
        return with_measured(table, module_times(Path(trace), modules).seconds, depth)

    def fit_memory(
        self, network: Any = None, inputs: Any = None, *, gpu: str | None = None, dimension: Dimension = "batch",
        other_bytes: int = 0, **question: Any,
    ) -> Largest:  # fmt: skip
        """Find the largest batch, sequence or number of layers whose pass fits the memory of a GPU.

        Parameters
        ----------
        network, inputs, question
            As for `predict`. For `layers`, the name of the network has `{layers}` in the place of their number, or is
            `hf:CONFIG.json`.
        gpu
            As for `predict`, or another model of `resources/gpus.yaml`.
        dimension
            What is varied: `batch`, `sequence` (the second size of the inputs) or `layers`.
        other_bytes
            Memory that other processes hold.

        Returns
        -------
        Largest
            `size`; `safe_size`, which fits with 95 % certainty; `memory` and more.

        Raises
        ------
        ClockwattError
            As `predict`; if not even the smallest size fits, or the network has no such dimension.
        """
        if "gpus" in question:
            raise RequestError("gpus: fit_memory takes one gpu.")
        for name in question.keys() & {"point", "points", "host", "operations"}:
            raise RequestError(f"{name} is not of fit_memory: leave it out.")
        if dimension not in DIMENSIONS:
            raise RequestError(f"{{dimension}} {dimension!r}: choose {', '.join(DIMENSIONS[:-1])} or {DIMENSIONS[-1]}.")
        if isinstance(other_bytes, bool) or not isinstance(other_bytes, Integral) or other_bytes < 0:
            raise RequestError(f"{{other_bytes}} {other_bytes!r}: give a whole number of bytes.")
        given = _Question.of(network, inputs, gpu=gpu, **question)
        return largest_of(self, given.request, dimension, other_bytes=int(other_bytes), instance=given.instance)[0]

    def show(self, network: Any = None, inputs: Any = None, **question: Any) -> Overview | pd.DataFrame:
        """Answer for a pass on every GPU at every operating point that was measured.

        Without a network, return a data frame: where each network that was measured whole took least energy.

        Parameters
        ----------
        network, inputs, question
            As for `predict`; `gpus` and `points` name GPUs in place of all, and further operating points.

        Raises
        ------
        ClockwattError
            As `predict`.
        """
        given = _Question.of(network, inputs, ("relative_to",), **question)
        if network is None and given.request.operations is None:
            return pd.DataFrame([best.to_dict() for best in self.least_energy(given.request)])
        return self.overviews(given.request, trace=lambda pass_: given.trace(self, pass_))[0]


def predict(network: Any = None, inputs: Any = None, **question: Any) -> Any:
    """Predict with the campaign in results/, or with the predictors that are shipped; see `Predictors.predict`."""
    return _loaded(_campaign_version()).predict(network, inputs, **question)


def compare(network: Any, other: Any = None, inputs: Any = None, **question: Any) -> tuple[Answer, Answer]:
    """Compare with the campaign in results/, or with the predictors that are shipped; see `Predictors.compare`."""
    return _loaded(_campaign_version()).compare(network, other, inputs, **question)


def layers(network: Any = None, inputs: Any = None, **question: Any) -> pd.DataFrame:
    """Share a pass with the campaign in results/, or with the shipped predictors; see `Predictors.layers`."""
    return _loaded(_campaign_version()).layers(network, inputs, **question)


def fit_memory(network: Any = None, inputs: Any = None, **question: Any) -> Largest:
    """Find what fits, with the campaign in results/ or the shipped predictors; see `Predictors.fit_memory`."""
    return _loaded(_campaign_version()).fit_memory(network, inputs, **question)


def recommend(network: Any = None, inputs: Any = None, **question: Any) -> Recommendation | ParallelRecommendation:
    """Choose with the campaign in results/, or with the predictors that are shipped; see `Predictors.recommend`."""
    return _loaded(_campaign_version()).recommend(network, inputs, **question)


def show(network: Any = None, inputs: Any = None, **question: Any) -> Overview | pd.DataFrame:
    """Show with the campaign in results/, or with the predictors that are shipped; see `Predictors.show`."""
    return _loaded(_campaign_version()).show(network, inputs, **question)


@functools.lru_cache(maxsize=1)
def _loaded(_version: tuple[Path, int]) -> Predictors:
    return load()


def _campaign_version() -> tuple[Path, int]:
    """The campaign of the working directory, and when it was fitted."""
    path = Path.cwd() / RESULTS / layout.PREDICTORS / layout.METRICS_FILE
    return path, path.stat().st_mtime_ns if path.exists() else 0


_NAMED_BY_PYTORCH = {"precision", "precisions", "optimizer", "input_dtype"}


def _several(given: Any) -> Any:
    """Return the entries of an array of NumPy, a series or a generator; else what is given."""
    is_one = isinstance(given, str | OperatingPoint) or not isinstance(given, Iterable)
    return given if is_one else [*given]


def _named(given: Any) -> Any:
    """Return the name of a dtype or an optimizer, such as `torch.bfloat16`, or of each of several; else itself."""
    if isinstance(given, list | tuple):
        return tuple(map(_named, given))
    if isinstance(given, type):
        return given.__name__
    return str(given).rpartition(".")[2] if str(given).startswith("torch.") else given


@dataclass(frozen=True)
class _Question:
    """What was asked from Python: a request, and the module that it is about where it is none that has a name."""

    request: Request
    instance: Instance | None

    @classmethod
    def of(
        cls,
        network: Any,
        inputs: Any,
        also: Sequence[str] = (),
        /,
        *,
        input: Any = None,  # noqa: A002  # as a campaign names it
        training: bool | None = None,
        gpu: str | None = None,
        gpus: str | Sequence[str] | None = None,
        point: str | OperatingPoint | None = None,
        points: str | OperatingPoint | Sequence[str | OperatingPoint] | None = None,
        **fields: Any,
    ) -> _Question:
        if input is not None and inputs is not None:
            raise RequestError("input is a network's only one, inputs are several by keyword: give one or the other.")
        given = input if inputs is None else inputs
        if not isinstance(gpu, str | None):
            raise RequestError(f"gpu {gpu!r}: give one as a string; several as gpus, where that is possible.")
        gpus, points = _several(gpus), _several(points)
        if (gpu and gpus) or (point not in (None, "default") and points):
            raise RequestError("gpu and gpus, point and points: give one of them.")
        fields["gpus"] = gpus or gpu
        points = points or point
        fields |= {name: _named(fields[name]) for name in fields.keys() & _NAMED_BY_PYTORCH}
        if training not in (None, True, False):
            raise RequestError(f"training {training!r}: give True or False.")
        if training is not None:
            pass_ = TRAINING if training else INFERENCE
            if fields.setdefault("pass_", pass_) != pass_:
                raise RequestError("training and pass_ contradict each other: give one of them.")
        for name in (fields.keys() & {*Request.model_fields, *_NOT_OF_ALL}) - {*_OF_ALL, *also}:
            raise RequestError(f"{name} {_NOT_OF_ALL.get(name, 'is not of this question')}.")
        if not isinstance(points, str | OperatingPoint | Iterable | None):
            raise RequestError(f"points {points!r}: give an operating point, such as sm1440, or several.")
        listed = [points] if isinstance(points, str | OperatingPoint) else points or ()
        fields["points"] = tuple(map(str, listed))
        if network is None or isinstance(network, str):
            return cls(Request.of(network=network, **typed_inputs(given), **fields), None)
        from clockwatt.operations.instances import Instance

        request = Request.of(**fields)
        if request.operations is not None:
            raise RequestError("operations replace a network: give one or the other.")
        if request.input_below is not None:
            given = {"shape": getattr(given, "shape", given), "dtype": "int64", "below": request.input_below}
        precision = None if request.precision is None else ExecutionSettings(request.precision)
        return cls(request, Instance(network, given, precision, request.assume_branch))

    def under(self, request: Request) -> _Question:
        """The same about another request's precision."""
        if self.instance is None or request.precision is None:
            return replace(self, request=request)
        return replace(self, request=request, instance=self.instance.under(ExecutionSettings(request.precision)))

    def _tracer(self, predictors: AllGpus) -> NetworkTracer:
        return predictors.tracer.trained(self.request.training)

    def network(self, predictors: AllGpus) -> NetworkConfig:
        """The network with its inputs."""
        return predictors.network(self.request) if self.instance is None else self.instance.config

    def trace(self, predictors: AllGpus, pass_: Pass | None = None) -> TracedNetwork:
        """Its calls."""
        if self.instance is None:
            return predictors.traced(self.request, pass_)
        return self._tracer(predictors).trace_instance(self.instance, self.instance.config, pass_ or self.request.pass_)

    def _trace(self, predictors: AllGpus, network: NetworkConfig, pass_: Pass) -> TracedNetwork:
        if self.instance is None:
            return self._tracer(predictors).trace(network, pass_)
        return self._tracer(predictors).trace_instance(self.instance, network, pass_)

    def answer(self, predictors: AllGpus) -> Answer | ParallelAnswer:
        """The answer to it."""
        if self.request.gpus_per_node is not None:
            return ask_parallel(
                predictors, self.request, self.network(predictors), functools.partial(self._trace, predictors)
            )
        return predictors.ask(self.request, trace=lambda pass_: self.trace(predictors, pass_))

    def sweep(self, predictors: AllGpus, batch: Sequence[int] | None) -> pd.DataFrame:
        """Answers for all combinations of batch sizes, GPUs and operating points."""
        request = self.request
        if request.gpus_per_node is not None:
            raise RequestError("{gpus_per_node} is for one step: leave {batch}, {gpus} and {points} out.")
        gpus = [predictors.label(name) for name in request.gpus] or [predictors.only_gpu(request)]
        if batch is None:
            traced = [self.trace(predictors)]
        else:
            network = self.network(predictors)
            networks = [with_batch(network, size) for size in batch]
            batch = [int(size) for size in batch]  # as of NumPy
            traced = trace_sizes(networks, batch, lambda one: self._trace(predictors, one, request.pass_))
        answers = predictors.answer_all(traced, gpus, request)
        asked = list(itertools.product(batch or [0], gpus, request.points))
        sizes = {} if batch is None else {"batch": [size for size, _, _ in asked]}
        return to_frame(answers, **sizes, gpu=[gpu for _, gpu, _ in asked], point=[point for *_, point in asked])
