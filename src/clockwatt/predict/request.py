"""What is asked of predictors: one typed value, the same from the command line, Python and JSON."""

from __future__ import annotations

import difflib
import functools
import json
import math
import re
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any, Literal, Self, get_args

import numpy as np
import pandas as pd
import pyarrow.compute as pc
from pydantic import Field, ValidationError

from clockwatt import config
from clockwatt.config import INPUT_NAME, PASSES, STRATEGIES, NetworkConfig, OperatingPoint, Pass
from clockwatt.config.model import Model
from clockwatt.errors import ClockwattError, RequestError
from clockwatt.predict.evaluation.errors import OBJECTIVES
from clockwatt.predict.tracing import catalogue_table
from clockwatt.schema import layout
from clockwatt.schema.execution import ExecutionSettings, all_settings, default_of
from clockwatt.schema.optimizers import LOSSES, optimizer_name
from clockwatt.schema.records import CALL_SCHEMA, NETWORK_SCHEMA, OPERATION_SCHEMA, TRAINING

DDP, FSDP, PIPELINE = STRATEGIES
SCHEDULES = ("1f1b", "gpipe")
MOST_GPUS, MOST_NODES = 64, 1024
"""GPUs of one node, and nodes."""

_CHOICES: dict[str, tuple[str, ...]] = {
    "pass_": PASSES,
    "input_dtype": ("float", "int64"),
    "assume_branch": ("true", "false"),
    "objective": OBJECTIVES,
    "loss": LOSSES,
    "strategy": STRATEGIES,
    "schedule": SCHEDULES,
}
_EXAMPLES = ("uint8", "bool")
"""Dtypes of examples that a network converts by itself; of others, the network knows."""
ALL_PRECISIONS = "all"
"""Every precision, layout and mode that can be chosen among."""
_USUAL_BATCH = 32
"""Batch size of a network of timm for which no input is given."""

_OF_PIPELINE = ("stages", "microbatches", "schedule")
PARALLEL = ("nodes", "node_links", "strategy", "links", *_OF_PIPELINE)
"""Fields of a step on several GPUs, beside their number."""
_NODES = "16 and 50GB/s,5us"
_FOR_NODES = "is for {strategy} ddp or fsdp: leave it out, or choose one of them."
_LINKS = "a file of `clockwatt calibrate --links`, or h100-nvlink"

_TRAINING = ("optimizer", "accumulate", "clip_norm", "loss")
"""Fields of a training pass."""


class Request(Model):
    """A question for predictors; `model_dump_json` and `model_validate_json` are its JSON.

    Attributes
    ----------
    network, operations
        torchvision name, `timm:NAME`, `hf:CONFIG.json`, `package.module:callable` or a campaign's network; or in its
        place a file of operations with counts.
    inputs
        Each a shape, or `NAME=SHAPE[:dtype[:below]]`; without any, the input that the network was measured with,
        or 32 images of the size that timm names.
    pass_
        `inference` or `training`.
    precision
        One of `schema.execution.PRECISIONS`, perhaps with `+channels_last` or a mode, such as `+compile`; None for the
        default of PyTorch in the network's dtype.
    precisions
        Of a recommendation: settings to choose among besides PyTorch's default, or `all`.
    optimizer
        Of a training pass, one of `schema.optimizers.NAMES`; None for the campaign's.
    accumulate, clip_norm, loss
        Of a training pass, as the campaign's `training`; None for the campaign's.
    input_dtype, input_below
        `int64` and the bound of indices, for networks that take token ids.
    assume_branch
        `true` or `false`: where a branch on the values of a tensor goes.
    cache_length
        Of a decoder given as `hf:`: one step of decoding behind so many tokens.
    gpus, points
        Labels and operating points: `predict` takes one of each, `recommend` and `show` take several.
    host, relative_to
        A host with a profile; a standard GPU, `GPU` or `GPU@POINT`, that the answer is compared with.
    gpus_per_node, strategy, links
        Train on so many GPUs, with one of `STRATEGIES` and a file or name of `parallel.links.LinkProfile`. The inputs
        are those of one rank; of a pipeline those of all ranks.
    nodes, node_links
        So many such nodes; bandwidth of a GPU to other nodes, and latency, such as `50GB/s,5us`.
    counts, node_counts, strategies
        Of a recommendation: numbers of GPUs of a node to choose among besides one, of such nodes besides one, and ways
        to train on them; all without any.
    stages, microbatches, schedule
        Of a pipeline: modules at which its second and further stages begin (else they are balanced), parts of the batch
        (1: no pipelining), and `1f1b` or `gpipe`.
    objective, max_slowdown, power_cap_w
        Of a recommendation: `time`, `energy` or `edp`, against the fastest choice (0.1 or `10%`), and mean power.
    measure_missing, measure_whole
        What is measured for the answer: see `measure_missing.Stop`; whether the pass itself is.
    run
        Whether the command runs a program at its recommendation.
    predictors_dir, catalogue_dir, validation_dir
        Folders, see `api.load`.
    config_file, store_dir
        The campaign that says how is measured or run, and where measurements go; None for the campaign's store.
    """

    network: str | None = None
    operations: Path | None = None
    inputs: tuple[str, ...] = ()
    pass_: Pass = PASSES[0]
    precision: str | None = None
    precisions: tuple[str, ...] = ()
    optimizer: str | None = None
    accumulate: int | None = Field(None, ge=1, le=256)
    clip_norm: float | None = Field(None, gt=0, allow_inf_nan=False)
    loss: str | None = None
    input_dtype: str | None = None
    input_below: int | None = Field(None, gt=0)
    assume_branch: str | None = None
    cache_length: int | None = Field(None, gt=0)
    gpus: tuple[str, ...] = ()
    points: tuple[str, ...] = ()
    host: str | None = None
    relative_to: str | None = None
    gpus_per_node: int | None = Field(None, ge=2, le=MOST_GPUS)
    nodes: int | None = Field(None, ge=2, le=MOST_NODES)
    node_links: str | None = None
    strategy: str | None = None
    links: str | None = None
    counts: tuple[int, ...] = ()
    node_counts: tuple[int, ...] = ()
    strategies: tuple[str, ...] = ()
    stages: tuple[str, ...] = ()
    microbatches: int = Field(4, ge=1, le=1024)
    schedule: str = SCHEDULES[0]
    objective: Literal["time", "energy", "edp"] = "energy"
    max_slowdown: float | str | None = None
    power_cap_w: float | None = None
    measure_missing: str | None = None
    measure_whole: bool = False
    run: bool = False
    predictors_dir: Path | None = None
    catalogue_dir: Path | None = None
    validation_dir: Path | None = None
    config_file: Path = Path("config/config.yaml")
    store_dir: Path | None = None

    @classmethod
    def of(cls, **fields: Any) -> Self:
        """Make a request; what is None or empty has its default.

        Raises
        ------
        RequestError
            Naming the field that is wrong, and what it can be.
        """
        given = {name: value for name, value in fields.items() if value is not None}
        for name in given.keys() & {"network", "precision", "optimizer"}:
            if not isinstance(given[name], str):
                shown = " ".join(reprlib.repr(given[name]).split())
                raise RequestError(f"{{{name}}} {shown}: give one name as a string; for several, a list of questions.")
        if isinstance(given.get("assume_branch"), bool):
            given["assume_branch"] = str(given["assume_branch"]).lower()
        for name in given.keys() & {"inputs", "gpus", "points", "precisions", "strategies", "stages"}:
            if isinstance(given[name], str):
                given[name] = (given[name],)
            elif not isinstance(given[name], list | tuple):
                raise RequestError(f"{{{name}}} {given[name]!r}: give a string, or several.")
        for name in [name for name, value in given.items() if isinstance(value, bool) and name in _NUMBERS]:
            raise RequestError(f"{{{name}}} {given[name]}: give a number.")
        if "max_slowdown" in given:
            slowdown(given["max_slowdown"])
        for name in given.keys() & {"counts", "node_counts"}:
            if isinstance(given[name], Integral):
                given[name] = (given[name],)
        for name in {*given.get("strategies", ())} - {*STRATEGIES}:
            raise RequestError(f"{{strategies}} {name}: choose {', '.join(STRATEGIES[:-1])} or {STRATEGIES[-1]}.")
        if "precision" in given:
            given["precision"] = str(ExecutionSettings(given["precision"]))
        if given.get("precisions"):
            if "precision" in given:
                raise RequestError("{precision} and {precisions}: give one or the other.")
            given |= _precisions(given["precisions"])
        if "optimizer" in given:
            given["optimizer"] = optimizer_name(given["optimizer"])
        for name, choices in _CHOICES.items():
            if name in given and given[name] not in choices:
                raise RequestError(f"{{{name}}} {given[name]}: choose {', '.join(choices[:-1])} or {choices[-1]}.")
        try:
            request = cls(**given)
        except ValidationError as error:
            raise _readable(error) from None
        request._check()
        return request

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `model_dump_json` wrote, or part of it.

        Raises
        ------
        RequestError
            As `of`, or if it is no JSON.
        """
        try:
            content = json.loads(text, object_pairs_hook=_without_duplicates)
        except ValueError as error:
            raise RequestError(f"{{request}}: not JSON ({error}).") from None
        if not isinstance(content, dict):
            raise RequestError(f'{{request}} {text:.40}: give an object, such as {{"network": "resnet50"}}.')
        return cls.of(**content)

    def _check(self) -> None:
        """Refuse fields that do not go together."""
        if self.operations is not None and (self.network is not None or self.inputs):
            raise RequestError("{operations} replaces a network and its {input}: give one or the other.")
        if self.operations is not None and self.measure_whole:
            raise RequestError("{measure_whole} runs a network; {operations} lists operations.")
        for setting in (self.precision, *self.precisions) if self.pass_ == TRAINING else ():
            if setting is not None and setting != "all" and ExecutionSettings(setting).waits_in_capture:
                raise RequestError(
                    f"{{precision}} {setting}: GradScaler waits for the GPU, so that no CUDA graph can capture a "
                    "training step. Choose bf16-mixed+cuda_graph, or fp16-mixed without cuda_graph."
                )
        if self.precisions and self.operations is not None:
            raise RequestError("{operations} have the dtypes that they are listed with: give one {precision}.")
        if self.precisions and self.measure_missing is not None:
            raise RequestError("{measure_missing} is for one {precision}: choose it first, then measure.")
        if self.input_dtype == "int64" and self.input_below is None:
            raise RequestError("{input_dtype} int64: give {input_below} too, which token ids are below.")
        if self.input_dtype == "float" and self.input_below is not None:
            raise RequestError("{input_below} is for token ids, {input_dtype} float is for others: give one of them.")
        if self.measure_missing is None and not self.measure_whole:
            for name in ("store_dir",) if self.run else ("config_file", "store_dir"):
                if getattr(self, name) != type(self).model_fields[name].default:
                    raise RequestError(f"{{{name}}} is for measuring: give {{measure_missing}} too, or leave it out.")
        for name in self.training:
            if self.pass_ != TRAINING:
                raise RequestError(f"{{{name}}} is for training: give {{training}} too.")
            if self.measure_whole:
                raise RequestError(f"{{measure_whole}} trains with the campaign's {name}: leave {{{name}}} out.")
        self._check_parallel()
        if self.cache_length is not None and not str(self.network).startswith("hf:"):
            raise RequestError("{cache_length} is for decoders given as hf:CONFIG.json.")
        if self.cache_length is not None and self.pass_ == TRAINING:
            raise RequestError("{cache_length} is one step of decoding, and no training step: leave one out.")
        if self.power_cap_w is not None and not self.power_cap_w >= 0:
            raise RequestError(f"{{power_cap_w}} {self.power_cap_w}: give a number of 0 or more.")

    def _check_parallel(self) -> None:
        """Refuse a step on several GPUs that is incomplete, or no training step."""
        given = [name for name in PARALLEL if getattr(self, name) != type(self).model_fields[name].default]
        if self.gpus_per_node is None and not self.counts:
            for name in (*given, *(name for name in ("node_counts", "strategies") if getattr(self, name))):
                raise RequestError(f"{{{name}}} is for several GPUs: give {{gpus_per_node}} too.")
            return
        if self.counts:
            self._check_counts()
            return
        for name, fix in (("strategy", ", ".join(STRATEGIES)), ("links", _LINKS)):
            if getattr(self, name) is None:
                raise RequestError(f"{{gpus_per_node}} {self.gpus_per_node}: give {{{name}}} too: {fix}.")
        if (self.nodes is None) != (self.node_links is None):
            raise RequestError(f"{{nodes}} and {{node_links}}: give both, such as {_NODES}.")
        if self.nodes is not None and self.strategy == PIPELINE:
            raise RequestError(f"{{nodes}} {_FOR_NODES}")
        self._check_step()
        if self.measure_whole:
            raise RequestError("{measure_whole} measures one GPU: leave it out, or {gpus_per_node}.")
        for name in _OF_PIPELINE if self.strategy != PIPELINE else ():
            if name in given:
                raise RequestError(f"{{{name}}} is for {{strategy}} pipeline: leave it out.")

    def _check_counts(self) -> None:
        """Refuse numbers of GPUs to choose among that are incomplete or impossible."""
        if self.gpus_per_node is not None or self.strategy is not None:
            raise RequestError("{counts} and {gpus_per_node}: give one or the other.")
        if self.links is None:
            raise RequestError(f"{{counts}}: give {{links}} too: {_LINKS}.")
        for count in self.counts:
            if not 2 <= count <= MOST_GPUS:
                raise RequestError(f"{{counts}} {count}: give 2 to {MOST_GPUS}; one GPU is always considered.")
        for count in self.node_counts:
            if not 2 <= count <= MOST_NODES:
                raise RequestError(f"{{node_counts}} {count}: give 2 to {MOST_NODES}; one node is always considered.")
        if bool(self.node_counts) != (self.node_links is not None):
            raise RequestError(f"{{node_counts}} and {{node_links}}: give both, such as {_NODES}.")
        if self.node_counts and self.strategies == (PIPELINE,):
            raise RequestError(f"{{node_counts}} {_FOR_NODES}")
        if self.precisions:
            raise RequestError("{precisions} cannot be combined with {counts}: give one {precision}.")
        self._check_step()

    def _check_step(self) -> None:
        """Refuse what cannot be combined with a step on several GPUs."""
        if self.pass_ != TRAINING:
            raise RequestError("{gpus_per_node} is for a training step: give {training} too.")
        for name in ("operations", "accumulate", "measure_missing", "relative_to"):
            if getattr(self, name) is not None:
                raise RequestError(f"{{{name}}} cannot be combined with {{gpus_per_node}}: leave it out.")

    def execution(self, variant: str) -> ExecutionSettings:
        """How the network runs where nothing else is known to be measured; `variant` is what its trace is of."""
        return default_of(variant) if self.precision is None else ExecutionSettings(self.precision)

    def choices(self, shape: Sequence[int]) -> list[ExecutionSettings]:
        """Settings to choose among; `shape` is that of the first input."""
        if self.precisions != (ALL_PRECISIONS,):
            return [ExecutionSettings(one) for one in self.precisions]
        return all_settings(training=self.pass_ == TRAINING, images=len(shape) in (4, 5))

    @property
    def training(self) -> dict[str, Any]:
        """The settings of the training step that are not the campaign's."""
        return {name: value for name in _TRAINING if (value := getattr(self, name)) is not None}

    @property
    def point(self) -> str:
        """The only operating point; `default` if none is named."""
        if len(self.points) > 1:
            raise RequestError(f"{{point}} {' '.join(self.points)}: give one.")
        return str(OperatingPoint.parse(self.points[0])) if self.points else "default"

    def network_config(self, catalogue_dir: Path, shipped_catalogue_dir: Path | None = None) -> NetworkConfig:
        """The network; one of the campaign may go by the last part of its name, and takes the indices it takes there.

        Parameters
        ----------
        catalogue_dir
            Of the campaign; it need not be there.
        shipped_catalogue_dir
            Of networks that the campaign does not know.

        Raises
        ------
        ConfigError
            Naming every wrong key and its fix.
        RequestError
            If something is missing, or an input is none.
        """
        if not self.network or self.network.isspace():
            raise RequestError("give a network and its {input}, such as resnet50 and 32,3,224,224.")
        known = _Known.read(catalogue_dir)
        if shipped_catalogue_dir is not None and not known.has(self.network):
            known = _Known.read(shipped_catalogue_dir)
        name = known.full_name(self.network)
        if not self.inputs:
            return self._as_measured(name, known)
        return self._given(name, known, self.inputs)

    def _given(self, name: str, known: _Known, inputs: Sequence[str]) -> NetworkConfig:
        content: dict[str, Any] = {"name": name, **self._input(name, known, inputs)}
        if self.precision is not None:
            content["precision"] = self.precision
        if self.assume_branch is not None:
            content["data_dependent_branch"] = self.assume_branch
        if self.cache_length is not None:
            content["cache_length"] = self.cache_length
        return config.parse_network(content, source="request")

    def _as_measured(self, name: str, known: _Known) -> NetworkConfig:
        """With the input that the network was measured with first."""
        if not known.has(name) and name.startswith("timm:"):
            from clockwatt.operations.constructors import timm_input_size

            return self._given(name, known, [_text([_USUAL_BATCH, *timm_input_size(name)])])
        if not known.has(name):
            close = ", ".join(difflib.get_close_matches(name, known.networks["network"].unique(), n=3))
            raise RequestError(
                f"{name}: not among the measured networks{f' (did you mean {close}?)' if close else ''}, so its input "
                "shape is unknown. Check the name, or give {input}, batch first, such as "
                f"{'8,128' if name.startswith('hf:') else '32,3,224,224'}."
            )
        execution = self.execution(known.variant(name))
        for variant in (execution.variant, execution.dtype, known.variant(name)):
            measured = known.first_input(name, variant)
            if measured is None:
                continue
            as_measured = self.model_copy(update={"precision": str(default_of(variant))})
            if as_measured._given(name, known, [measured[1]]).network_id == measured[0]:
                request = self.model_copy(update={"precision": str(execution)})
                return request._given(name, known, [measured[1]])
        raise RequestError(
            f"{name}: its input shape in {execution.dtype} is unknown. Give {{input}}, batch first, such as "
            "32,3,224,224."
        )

    def _input(self, name: str, known: _Known, inputs: Sequence[str]) -> dict[str, Any]:
        if len(inputs) > 1 or any("=" in text for text in inputs):
            if self.input_dtype is not None or self.input_below is not None:
                raise RequestError(
                    "{input_dtype} and {input_below} go with one {input} SHAPE; write NAME=SHAPE:int64:BELOW instead."
                )
            named = any("=" in text for text in inputs)
            given = [_keyword_input(text if named else f"{at}={text}") for at, text in enumerate(inputs)]
            keywords = [keyword for keyword, _ in given]
            for keyword in keywords:
                if keywords.count(keyword) > 1:
                    raise RequestError(f"{{input}} {keyword}=…: is given {keywords.count(keyword)} times.")
            return {"inputs": dict(given)}
        typed = _keyword_input(f"input={inputs[0]}")[1] if ":" in inputs[0] else {"shape": parse_shape(inputs[0])}
        below = typed.get("below", self.input_below)
        if below is None and (self.input_dtype or typed.get("dtype")) is None:
            below = known.indices_below(name)
        if typed.get("dtype") not in (None, *_CHOICES["input_dtype"]):
            return {"inputs": {"0": typed}}
        dtype = self.input_dtype or typed.get("dtype") or ("float" if below is None else "int64")
        return {"input": typed["shape"], "input_dtype": dtype, "input_below": below}


_NUMBERS = {
    name for name, one in Request.model_fields.items() if {int, float} & {one.annotation, *get_args(one.annotation)}
}


@dataclass(frozen=True)
class _Known:
    """The networks of a campaign."""

    folder: Path
    networks: pd.DataFrame

    @classmethod
    def read(cls, folder: Path) -> _Known:
        """Read them, and cache the last ones."""
        path = folder / layout.NETWORKS_FILE
        return _read(folder, path.stat().st_mtime_ns if path.exists() else None)

    def full_name(self, name: str) -> str:
        """A network of the campaign by the last part of its name, where there is one such; else as it was given."""
        full = {one for one in self.networks["network"] if one.endswith(f":{name}")}
        return full.pop() if len(full) == 1 and ":" not in name else name

    def has(self, name: str) -> bool:
        """Whether a network goes by this name, or ends with it."""
        return self.full_name(name) in set(self.networks["network"])

    def variant(self, name: str) -> str:
        """The variant that a network was measured in; float32 if that is one of several."""
        variants = list(self.networks.loc[self.networks["network"] == name, "dtype"])
        return "float32" if "float32" in variants else str(variants[0])

    def first_input(self, name: str, variant: str) -> tuple[str, str] | None:
        """Id of a network where it stands first, and the shape of its first input as it is typed; None if nowhere."""
        same = self.networks[(self.networks["network"] == name) & (self.networks["dtype"] == variant)]
        if same.empty:
            return None
        return str(same["network_id"].iloc[0]), _text(same["input_shape"].iloc[0])

    def indices_below(self, name: str) -> int | None:
        """What the indices that a network of the campaign begins with stay below; None if it takes no indices."""
        ids = self.networks.loc[self.networks["network"] == name, "network_id"]
        if ids.empty:
            return None
        calls = catalogue_table(self.folder / layout.CALLS_FILE, CALL_SCHEMA)
        called = calls.filter(pc.equal(calls["network_id"], ids.iloc[0])).sort_by("position")
        operations = catalogue_table(self.folder / layout.OPERATIONS_FILE, OPERATION_SCHEMA)
        embeddings = operations.filter(pc.equal(operations["operation_class"], "embedding"))
        specs = dict(zip(embeddings["operation_id"].to_pylist(), embeddings["spec"].to_pylist(), strict=True))
        first = next((one for one in called["operation_id"].to_pylist() if one in specs), None)
        if first is None:
            return None
        indices = json.loads(specs[first])["tensors"]
        return next((int(tensor["below"]) for tensor in indices if tensor.get("below")), None)


@functools.lru_cache(maxsize=8)
def _read(folder: Path, modified: int | None) -> _Known:
    columns = ["network", "network_id", "dtype", "input_shape"]
    if modified is None:
        return _Known(folder, pd.DataFrame(columns=columns))
    return _Known(folder, catalogue_table(folder / layout.NETWORKS_FILE, NETWORK_SCHEMA).select(columns).to_pandas())


def _precisions(given: Sequence[Any]) -> dict[str, Any]:
    """Several precisions as fields of a request; one alone is its `precision`."""
    if ALL_PRECISIONS in given:
        return {"precisions": (ALL_PRECISIONS,)}
    settings = tuple(dict.fromkeys(str(ExecutionSettings(str(name))) for name in given))
    return {"precision": settings[0], "precisions": ()} if len(settings) == 1 else {"precisions": settings}


def slowdown(given: Any) -> float:
    """Read `10%` or 0.1; RequestError if it is neither, or above 1 without a percent sign, which means percents."""
    text = str(given)
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not value >= 0:
        raise RequestError(f"{{max_slowdown}} {given!r}: write 10% or 0.1.")
    if 1 < value < math.inf and not text.endswith("%"):
        raise RequestError(
            f"{{max_slowdown}} {given!r}: would be {100 * value:g} %: write {text}%, or a number up to 1."
        )
    return value


def parse_shape(text: str, typed: str | None = None) -> list[int]:
    """Read `32,3,224,224`, or with × or x between; `typed` is all that was written for it.

    RequestError if it is no shape.
    """
    try:
        shape = [int(size) for size in re.split("[,x×]", text)]
    except ValueError:
        shape = []
    if not shape or min(shape) < 1:
        shown = text if typed is None else typed
        raise RequestError(
            f"{{input}} {shown!r}: write the shape of the input, sizes from 1, batch first, such as 32,3,224,224."
        )
    return shape


def _keyword_input(text: str) -> tuple[str, dict[str, Any]]:
    """Read `NAME=SHAPE[:dtype[:below]]`."""
    keyword, equals, rest = text.partition("=")
    shape, _, more = rest.partition(":")
    dtype, _, below = more.partition(":")
    if not equals or not INPUT_NAME.fullmatch(keyword) or (below and not below.isdecimal()):
        raise RequestError(
            f"{{input}} {text!r}: write [NAME=]SHAPE[:dtype[:below]], such as input_ids=8,128:int64:30522."
        )
    given: dict[str, Any] = {"shape": parse_shape(shape, text)}
    if dtype:
        given["dtype"] = dtype
    if below:
        given["below"] = int(below)
    return keyword, given


def typed_inputs(given: Any) -> dict[str, Any]:
    """Inputs of a named network, given in Python, as the fields of a request.

    Parameters
    ----------
    given
        A shape, an example tensor, several of these in a list or by keyword in a dict, or None.

    Raises
    ------
    RequestError
        If one is no shape.
    """
    if given is None:
        return {}
    if isinstance(given, Mapping) and not given:
        raise RequestError("inputs {}: give a shape for each keyword, or leave inputs out.")
    if isinstance(given, Mapping) and "shape" not in given:
        return {"inputs": tuple(f"{name}={':'.join(_described(name, one))}" for name, one in given.items())}
    if isinstance(given, list | tuple) and given and not all(isinstance(size, Integral) for size in given):
        several = [":".join(_described("input", one)) for one in given]
        return {"inputs": tuple(several)} if len(several) > 1 else typed_inputs(given[0])
    shape, *more = _described("input", given)
    if more and more[0] not in _CHOICES["input_dtype"]:
        return {"inputs": (":".join((shape, *more)),)}
    fields: dict[str, Any] = dict(zip(("input_dtype", "input_below"), more, strict=False))
    if "input_below" in fields:
        fields["input_below"] = int(fields["input_below"])
    return {"inputs": (shape,), **fields}


def _described(name: str, given: Any) -> list[str]:
    """Shape, dtype and bound of an input as they are typed, as far as it says them."""
    if isinstance(given, Mapping):
        if "shape" not in given:
            raise RequestError(f'inputs {name}: give a shape, or {{"shape": …, "dtype": "int64", "below": 30522}}.')
        typed = {"dtype": "int64", **given} if "below" in given else given
        more = (str(typed[key]).removeprefix("torch.") for key in ("dtype", "below") if key in typed)
        return [_shape_text(name, given["shape"]), *more]
    listed = isinstance(given, np.ndarray) and given.ndim == 1 and given.dtype.kind == "i"
    dtype = str(getattr(given, "dtype", "")).removeprefix("torch.")
    return [_shape_text(name, given if listed else getattr(given, "shape", given)), *[dtype] * (dtype in _EXAMPLES)]


def _shape_text(name: str, shape: Any) -> str:
    if isinstance(shape, str):
        return shape
    if not isinstance(shape, Sequence | np.ndarray) or not all(isinstance(size, Integral) for size in shape):
        raise RequestError(f"{name} {reprlib.repr(shape)}: give a shape, batch first, such as (32, 3, 224, 224).")
    return _text(map(int, shape))


def _text(shape: Iterable[int]) -> str:
    return ",".join(map(str, shape))


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON; RequestError if a key stands twice in it."""
    content = dict(pairs)
    for name, _ in pairs if len(content) < len(pairs) else ():
        if [other for other, _ in pairs].count(name) > 1:
            raise RequestError(f"{{request}}: {name} is given twice. Remove one.")
    return content


_KINDS = ("string", "tuple", "number", "boolean")
_FIXES = {"int": "a whole number", "float": "a number, such as 0.1", "path": "a path", "tuple": "several"}
"""What to give in place of a value that pydantic cannot read, by the first word of its error's type."""


def _readable(error: ValidationError) -> ClockwattError:
    detail = error.errors()[0]
    name = str(detail["loc"][0]) if detail["loc"] else "request"
    if detail["type"] == "extra_forbidden":
        close = difflib.get_close_matches(name, Request.model_fields, n=1)
        return RequestError(f"unknown field {name}{f'; did you mean {close[0]}?' if close else '.'}")
    what = detail["msg"].removeprefix("Input should be ").removeprefix("a valid ")
    fix = f"give a {what}" if what in _KINDS else detail["msg"].replace("Input should be", "it must be")
    if (kind := detail["type"].partition("_")[0]) in _FIXES:
        fix = f"give {_FIXES[kind]}"
    return RequestError(f"{{{name}}} {detail['input']!r}: {fix}.")
