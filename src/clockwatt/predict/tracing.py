"""Calls of a request's network: from a catalogue, from the cache of traces, or traced now, which needs torch.

Of one network at many batch sizes a few are traced. Where these traces have the same calls, and every number in their
specs and costs is a·batch + b, so has the trace of a size between them. A network that takes another way at one of
them, or has a number that is no such, is traced at each.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import math
import re
import shutil
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import metadata
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import ValidationError

from clockwatt.config import NetworkConfig, Pass, TrainingConfig
from clockwatt.errors import DataFileError, OutputError, RequestError
from clockwatt.io import files
from clockwatt.io.folders import cache_folder, is_readable, temporary_folder
from clockwatt.operations.spec.operation import MATRIX_CLASSES, RECURRENT_CLASSES
from clockwatt.predict.composition.pipeline import Composer
from clockwatt.predict.evaluation.pass_errors import GAP_S
from clockwatt.predict.features import operation_features
from clockwatt.schema import layout, records
from clockwatt.schema.execution import COMPILED_MODES, EAGER, ExecutionSettings, mode_of_variant
from clockwatt.schema.records import (
    CALL_SCHEMA,
    MEMORY_SCHEMA,
    NETWORK_SCHEMA,
    OPERATION_SCHEMA,
    TRAINING,
    MemoryRow,
    NetworkRow,
    column_name,
    table_of,
)

if TYPE_CHECKING:
    from clockwatt.operations.catalogue import Traced
    from clockwatt.operations.instances import Instance
    from clockwatt.operations.trace.trace import Build
    from clockwatt.predict.memory import PassMemory

TRACING = threading.RLock()
"""Held while a network is traced, which changes PyTorch for the whole process."""
PRETENDING = threading.Lock()
"""Held while `clockwatt.pretend` runs, which does too; taken with `TRACING`."""
_BEYOND = {"bytes_read": 2**53, "bytes_written": 2**53, "flops": 2**63}
"""More than an operation that fits any memory has, and than specs and tables hold."""
_MOST_TRACES = 1000
"""Number of traces in the cache."""


@dataclass(frozen=True)
class TracedNetwork:
    """A traced network in one pass, as in the catalogue; valid for all GPUs, operating points and settings.

    Attributes
    ----------
    network
        Its row of the catalogue.
    calls
        Its calls in order, with `operation_id` and `phase`.
    operations
        Its unique operations, with `features.CATALOGUE_COLUMNS` and `device_work`.
    is_network
        False for a list of operations, which has no overheads or errors of networks.
    known_features
        Its `features`, if they are already computed.
    record_memory
        Gives its `memory`; None where it has none.
    """

    network: NetworkRow
    calls: pd.DataFrame
    operations: pd.DataFrame
    is_network: bool = True
    known_features: pd.DataFrame | None = field(default=None, repr=False, compare=False)
    record_memory: Callable[[], list[MemoryRow]] | None = field(default=None, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what records memory, which belongs to this process: answers can be pickled."""
        return {**vars(self), "record_memory": None}

    @functools.cached_property
    def memory(self) -> list[MemoryRow] | None:
        """What the pass allocates and frees; recorded now if it is in no cache. None for a list of operations.

        NetworkError if it cannot be recorded.
        """
        return None if self.record_memory is None else self.record_memory()

    @functools.cached_property
    def peaks(self) -> dict[tuple[str, ExecutionSettings], PassMemory]:
        """Its peak memory on each GPU, by product name, with each settings, as far as it was asked for."""
        return {}

    @functools.cached_property
    def features(self) -> pd.DataFrame:
        """Features of the operations with device work; the same on every GPU."""
        if self.known_features is not None:
            return self.known_features
        return operation_features(self.operations[self.operations["device_work"].astype(bool)])

    @functools.cached_property
    def assumptions(self) -> tuple[str, ...]:
        """Assumptions on data while tracing, each a sentence with the number of places."""
        assumed = Counter(entry.partition(": ")[2] for entry in self.network.assumed_branches)
        eager = mode_of_variant(self.network.dtype) == EAGER
        broken = "" if eager else ", where a compiled graph breaks; what that costs is left out"
        branches = {text: f"branches on data are taken as {text}{broken}" for text in ("true", "false")}
        return tuple(
            f"Assumed while tracing: {branches.get(text, text)} ({count} place{'s' * (count > 1)})."
            for text, count in assumed.items()
        )

    @functools.cached_property
    def items(self) -> tuple[int | None, str]:
        """Number of images, tokens or samples that a pass processes, and the unit; None for a list of operations."""
        shape = list(self.network.input_shape)
        if not self.is_network or not shape:
            return None, ""
        if len(shape) == 4:
            return shape[0] * self.batches, "images"
        if any(self._takes_tokens(shape)):
            return math.prod(shape) * self.batches, "tokens"
        return shape[0] * self.batches, "samples"

    def _takes_tokens(self, shape: list[int]) -> Iterator[bool]:
        """Yield for operations whether they show that each element of the input is a token."""
        of_library = MATRIX_CLASSES | RECURRENT_CLASSES
        compiled = mode_of_variant(self.network.dtype) in COMPILED_MODES  # embeddings are in fused kernels
        for name, spec in zip(self.operations["operation_class"], self.operations["spec"], strict=True):
            if name == "embedding":
                yield any(tensor["shape"] == shape for tensor in json.loads(spec)["tensors"])
            elif compiled and len(shape) > 1 and name in of_library:
                rows = json.loads(spec)["out"][0]["shape"][:-1]
                yield rows in (shape, [math.prod(shape)])

    @property
    def batches(self) -> int:
        """Number of batches whose gradients a training pass adds up."""
        return int(json.loads(self.network.optimizer or "{}").get("accumulate", 1))

    @property
    def gap_s(self) -> float:
        """Error of the gaps between its calls; 0 for a list of operations."""
        return GAP_S[self.network.pass_] if self.is_network else 0.0

    def tables(self) -> tuple[pa.Table, pa.Table, pa.Table]:
        """Return tables of a catalogue: the network, its calls, its operations."""
        settings = {"measured_execution": None, "measured_quantities": None}
        return (
            table_of([replace(self.network, measured_execution=None, measured_quantities=None)], NETWORK_SCHEMA),
            pa.Table.from_pandas(self.calls.reindex(columns=CALL_SCHEMA.names), CALL_SCHEMA, preserve_index=False),
            pa.Table.from_pandas(
                self.operations.reindex(columns=OPERATION_SCHEMA.names).assign(**settings),
                OPERATION_SCHEMA,
                preserve_index=False,
            ),
        )

    @functools.cached_property
    def composer(self) -> Composer:
        """Composer of the pass, from costs of `operations` in their order."""
        return Composer(self.calls, self.network, pd.Index(self.operations["operation_id"]))


@dataclass(frozen=True)
class NetworkTracer:
    """Return the calls of networks; trace each network once.

    Attributes
    ----------
    catalogue_dir
        Of a campaign; it need not be there.
    training
        The training step.
    campaigns
        The campaign's training step, which the catalogue's training passes use; None if it is this one.
    """

    catalogue_dir: Path
    training: TrainingConfig
    campaigns: TrainingConfig | None = None
    _traced: dict[tuple[str, str, str], TracedNetwork] = field(default_factory=dict, repr=False, compare=False)
    _others: dict[str, NetworkTracer] = field(default_factory=dict, repr=False, compare=False)

    def trained(self, settings: Mapping[str, Any]) -> NetworkTracer:
        """Return a tracer with another training step, whose differences are appended to the ids of trained networks."""
        training = self.training.model_copy(update=dict(settings))
        if training == self.training:
            return self
        key = training.model_dump_json()
        return self._others.setdefault(key, NetworkTracer(self.catalogue_dir, training, self.training))

    def trace_instance(self, instance: Instance, network: NetworkConfig, pass_: Pass) -> TracedNetwork:
        """Trace a module's calls in one pass, with the inputs of `network`; NetworkError as `trace`."""
        traced = self._named(self._traced_now(network, pass_, instance.on_meta))
        return replace(traced, record_memory=lambda: self.memory_now(network, pass_, instance.on_meta))

    def trace(self, network: NetworkConfig, pass_: Pass) -> TracedNetwork:
        """Return a network's calls in one pass: from the catalogue, from the cache, or traced now.

        Raises
        ------
        DataFileError
            If the catalogue is damaged.
        NetworkError
            If the network cannot be found or traced.
        """
        key = network.model_dump_json(exclude={"precision", "sample", "whole", "quantities"}), network.variant, pass_
        if key not in self._traced:
            traced = self._named(self._found(network, pass_))
            self._traced[key] = replace(traced, record_memory=lambda: self.memory(network, pass_))
        return self._traced[key]

    def _named(self, traced: TracedNetwork) -> TracedNetwork:
        """Append the training settings that are not the campaign's to the id of a trained network."""
        if self.campaigns is None or traced.network.pass_ != TRAINING:
            return traced
        name = traced.network.network_id + self.training.differences(self.campaigns)
        return replace(
            traced, network=replace(traced.network, network_id=name), calls=traced.calls.assign(network_id=name)
        )

    def _found(self, network: NetworkConfig, pass_: Pass) -> TracedNetwork:
        in_catalogue = self.campaigns is None or pass_ != TRAINING
        if in_catalogue and (self.catalogue_dir / layout.NETWORKS_FILE).exists():
            catalogued = _from_catalogue(network, pass_, self.catalogue_dir)
            if catalogued is not None and not _ids_above(network, catalogued):
                return catalogued
        folder = _cache_folder(network, pass_, self.training)
        if folder is not None and is_readable(folder / layout.NETWORKS_FILE):
            cached = _cached(network, pass_, folder)
            if cached is not None:
                return cached
        traced = self._traced_now(network, pass_)
        if folder is not None:
            names = layout.NETWORKS_FILE, layout.CALLS_FILE, layout.OPERATIONS_FILE
            _keep(dict(zip(names, traced.tables(), strict=True)), folder)
        return traced

    def memory(self, network: NetworkConfig, pass_: Pass) -> list[MemoryRow]:
        """Return what a pass allocates, from the cache or recorded now; NetworkError as `trace`."""
        folder = _cache_folder(network, pass_, self.training)
        folder = None if folder is None else folder.with_name(f"{folder.name[1:]}m")
        if folder is not None:
            with contextlib.suppress(DataFileError):
                table = files.read_table(folder / layout.MEMORY_FILE, MEMORY_SCHEMA)
                return [MemoryRow(*row) for row in zip(*table.to_pydict().values(), strict=True)]
            shutil.rmtree(folder, ignore_errors=True)
        events = self.memory_now(network, pass_)
        if folder is not None:
            _keep({layout.MEMORY_FILE: table_of(events, MEMORY_SCHEMA)}, folder)
        return events

    def memory_now(self, network: NetworkConfig, pass_: Pass, build: Build | None = None) -> list[MemoryRow]:
        """Record what a pass allocates; of a network of this process if `build` gives it."""
        from clockwatt.operations.trace.memory import record_memory

        with _tracing():
            return record_memory(network, pass_, self.training, build)

    def _traced_now(self, network: NetworkConfig, pass_: Pass, build: Build | None = None) -> TracedNetwork:
        from clockwatt.operations.catalogue import trace_rows

        with _tracing():
            traced = traced_of(trace_rows(network, pass_, self.training, build))
        if (traced.operations[[*_BEYOND]].max() >= pd.Series(_BEYOND)).any():
            raise RequestError(f"network {network.name}: is larger than any memory. Give a smaller input.")
        return traced


@contextlib.contextmanager
def _tracing() -> Iterator[None]:
    """Within, one thread traces, whatever mode it is in; OutputError if PyTorch has no folder for its files.

    What a network prints is no part of the answer.
    """
    temporary_folder()
    import torch

    with TRACING, contextlib.redirect_stdout(sys.stderr), torch.inference_mode(False):
        if PRETENDING.locked():
            raise RequestError("clockwatt.pretend runs in this process. Predict networks after its context has ended.")
        yield


def traced_of(rows: Traced) -> TracedNetwork:
    """Return a traced network from its rows."""
    return TracedNetwork(rows.network, _frame(rows.calls), _frame(rows.operations))


def with_batch(network: NetworkConfig, size: int) -> NetworkConfig:
    """Return `NetworkConfig.with_batch`; RequestError if the size is not valid."""
    if isinstance(size, bool) or not isinstance(size, Integral) or size < 1:
        raise RequestError(f"batch {size!r}: give whole numbers above 0.")
    return network.with_batch(int(size))


def training_of(predictors_dir: Path) -> TrainingConfig:
    """Return the training step that the predictors' campaign measured; the default one if not recorded.

    DataFileError if the file with it is damaged.
    """
    path = predictors_dir / layout.TRAINING_FILE
    try:
        return TrainingConfig.model_validate_json(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return TrainingConfig()
    except ValidationError as error:
        what = error.errors()[0]["msg"]
    except (OSError, ValueError) as error:
        what = str(error)
    raise DataFileError(f"{path}: holds no training step ({what}). Run `clockwatt fit` again.")


def listed_operations(path: Path, pass_: Pass) -> TracedNetwork:
    """Read operations with counts from a file, which needs torch; see `operations.operation_list`.

    DataFileError if the file is missing or a line of it is no operation with a count.
    """
    from clockwatt.operations.operation_list import read_listed

    listed = read_listed(path, pass_)
    return TracedNetwork(listed.network, _frame(listed.calls), _frame(listed.operations), is_network=False)


def catalogue_table(path: Path, schema: pa.Schema) -> pa.Table:
    """Read a table of a catalogue, and cache the last ones; raises as `files.read_table`."""
    return _read(path, schema, path.stat().st_mtime_ns if path.exists() else 0)


@functools.lru_cache(maxsize=8)
def _read(path: Path, schema: pa.Schema, _modified: int) -> pa.Table:
    return files.read_table(path, schema)


def _from_catalogue(network: NetworkConfig, pass_: Pass, catalogue_dir: Path) -> TracedNetwork | None:
    def chosen(name: str, schema: Any) -> Any:
        table = catalogue_table(catalogue_dir / name, schema)
        return table.filter(pc.and_(pc.equal(table["network_id"], network.network_id), pc.equal(table["pass"], pass_)))

    rows = chosen(layout.NETWORKS_FILE, NETWORK_SCHEMA).to_pylist()
    if not rows:
        return None
    calls = chosen(layout.CALLS_FILE, CALL_SCHEMA).sort_by("position").to_pandas()
    operations = catalogue_table(catalogue_dir / layout.OPERATIONS_FILE, OPERATION_SCHEMA)
    ids = pa.array(calls["operation_id"].unique())
    called = pc.and_(pc.is_in(operations["operation_id"], value_set=ids), pc.equal(operations["pass"], pass_))
    return TracedNetwork(records.row_of(NetworkRow, rows[0]), calls, operations.filter(called).to_pandas())


def _ids_above(network: NetworkConfig, catalogued: TracedNetwork) -> bool:
    """Return whether indices of an input may be out of range; tracing then reports the error."""
    below = max((one.below or 0 for one in network.by_keyword.values()), default=0)
    if below == 0:
        return False
    operations = catalogued.operations
    indexed = operations.loc[operations["operation_class"] == "embedding", "spec"]
    bounds = [tensor.get("below") or 0 for spec in indexed for tensor in json.loads(spec)["tensors"]]
    return below > max(bounds, default=below)


def _frame(rows: list[Any]) -> pd.DataFrame:
    """Rows as a frame with the columns' names."""
    names = [entry.name for entry in dataclasses.fields(rows[0])]
    return pd.DataFrame({column_name(name): [getattr(row, name) for row in rows] for name in names})


def _cache_folder(network: NetworkConfig, pass_: Pass, training: TrainingConfig) -> Path | None:
    """Return a trace's folder in the user's cache; None for a network from user code, which may change.

    Its name depends on the network, its pass, clockwatt's tracer and the versions of all libraries that make the trace.
    """
    library, configuration = _library_of(network.name)
    if library is None:
        return None
    content = [
        network.model_dump_json(exclude={"precision", "sample", "whole", "quantities"}),
        network.variant,
        pass_,
        training.model_dump_json(),
        _code_version(),
        configuration,
        *(f"{name} {_version(name)}" for name in ("torch", library)),
    ]
    digest = hashlib.sha256("\n".join(content).encode()).hexdigest()[:32]
    return cache_folder() / "traces" / digest


def _library_of(name: str) -> tuple[str | None, str]:
    """Return the library of a network, None for user code, and the text of its configuration."""
    if name.startswith("timm:"):
        return "timm", ""
    if name.startswith("hf:"):
        try:
            return "transformers", Path(name.removeprefix("hf:")).read_text(encoding="utf-8")
        except (OSError, ValueError):
            return None, ""
    if name.startswith("clockwatt."):
        return "transformers", ""
    return (None, "") if ":" in name else ("torchvision", "")


@functools.cache
def _code_version() -> str:
    """Return a digest of the tracer's code."""
    digest = hashlib.sha256()
    package = Path(__file__).parents[1]
    for path in [*sorted((package / "operations").rglob("*.py")), package / "config" / "networks.py"]:
        digest.update(path.read_bytes())
    return digest.hexdigest()


@functools.cache
def _version(library: str) -> str:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return ""


def _cached(network: NetworkConfig, pass_: Pass, folder: Path) -> TracedNetwork | None:
    try:
        return _from_catalogue(network, pass_, folder)
    except DataFileError:  # damaged, e.g. by a power failure: trace it again
        shutil.rmtree(folder, ignore_errors=True)
        return None


def _keep(tables: Mapping[str, pa.Table], folder: Path) -> None:
    """Write tables into the cache, all of them or nothing; ignore a cache that cannot be written to."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
            for name, table in tables.items():
                files.write_table(table, Path(temporary, "trace", name))
            Path(temporary, "trace").rename(folder)
        kept = sorted((one for one in folder.parent.iterdir() if len(one.name) == len(folder.name)), key=_modified)
        for oldest in kept[:-_MOST_TRACES]:
            shutil.rmtree(oldest, ignore_errors=True)
    except (OSError, OutputError):
        return


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


_FEWEST = 8
"""Sizes from which on some are derived."""
_NUMBER = re.compile(r"(?<![\w.+-])-?\d+(?![\w.])")
_COSTS = ("flops", "bytes_read", "bytes_written", "parameter_bytes")
_CALL = ["phase", "module_path"]
_OPERATION = ["function", "operation_class", "kind", "device_work", "dtype", "flops_source"]
_NETWORK = (
    *("module_calls", "backward_nodes", "parameters", "parameter_bytes", "assumed_branches", "grouped_convolutions"),
    *("batch_norms", "optimizer"),
)

Line = tuple[int, int]
"""a and b of a·batch + b."""


def trace_sizes(
    networks: Sequence[NetworkConfig], sizes: Sequence[int], trace: Callable[[NetworkConfig], TracedNetwork]
) -> list[TracedNetwork]:
    """Trace one network at several batch sizes, those between a few of them derived where that is exact.

    Parameters
    ----------
    networks, sizes
        The network with each batch size.
    trace
        Traces one of them.
    """
    by_size = dict(zip(sizes, networks, strict=True))
    chosen = _chosen(sorted(size for size in by_size if size > 1))  # of size 1 strides are of another kind
    traced = {size: trace(by_size[size]) for size in chosen}
    pattern = _Pattern.of(traced) if traced else None

    @functools.cache
    def memory_pattern() -> tuple[list[str], list[Line]] | None:
        recorded = [[dataclasses.astuple(event) for event in traced[size].memory or ()] for size in chosen]
        return _numbered(chosen, [json.dumps(events) for events in recorded])

    def memory_at(size: int, network: NetworkConfig) -> list[MemoryRow]:
        found = memory_pattern()
        if found is None:
            return trace(network).memory or []
        return [MemoryRow(*event) for event in json.loads(_with_numbers(size, *found))]

    for size, network in by_size.items():
        if size in traced:
            continue
        if pattern is None or not min(chosen) < size < max(chosen):
            traced[size] = trace(network)
        else:
            record = functools.partial(memory_at, size, network)
            traced[size] = replace(pattern.at(size, network), record_memory=record)
    return _with_features([traced[size] for size in sizes])


def _chosen(sizes: list[int]) -> list[int]:
    """Sizes that are traced: both ends and two between, odd and even ones among them; none if there are few."""
    if len(sizes) < _FEWEST:
        return []
    between = [sizes[len(sizes) * third // 3] for third in (1, 2)]
    kinds = {size % 2 for size in (sizes[0], *between, sizes[-1])}
    other = [size for size in sizes if size % 2 not in kinds]
    return sorted({sizes[0], *between, *other[len(other) // 2 :][:1], sizes[-1]})


@dataclass(frozen=True)
class _Pattern:
    """What traces of a network at several batch sizes have in common.

    Attributes
    ----------
    first
        One of the traces.
    operations
        Of each different operation its row in `first`, the text between the numbers of its spec, and these numbers and
        its costs.
    called
        Number of the operation of each call.
    """

    first: TracedNetwork
    operations: list[tuple[dict[str, Any], list[str], list[Line], dict[str, Line]]]
    called: list[int]

    @classmethod
    def of(cls, traced: dict[int, TracedNetwork]) -> _Pattern | None:
        """The pattern of traces by batch size; None where they have none."""
        sizes, traces = list(traced), list(traced.values())
        first = traces[0]
        for other in traces[1:]:
            if len(other.calls) != len(first.calls) or not _same(other, first):
                return None
        keys = list(zip(*(one.calls["operation_id"] for one in traces), strict=True))
        numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
        rows = [one.operations.set_index("operation_id", drop=False) for one in traces]
        records = [dict(zip(frame.index, frame.to_dict("records"), strict=True)) for frame in rows]
        operations = []
        for key in numbers:
            each = [of_trace[operation_id] for of_trace, operation_id in zip(records, key, strict=True)]
            found = _operation(sizes, each)
            if found is None:
                return None
            operations.append((each[0], *found))
        return cls(first, operations, [numbers[key] for key in keys])

    def at(self, size: int, network: NetworkConfig) -> TracedNetwork:
        """The trace at another batch size between those."""
        rows = []
        for row, texts, numbers, costs in self.operations:
            spec = _with_numbers(size, texts, numbers)
            identity = hashlib.sha256(spec.encode()).hexdigest()[:16]
            changed = {name: a * size + b for name, (a, b) in costs.items()}
            rows.append({**row, **changed, "spec": spec, "operation_id": identity})
        ids = [rows[number]["operation_id"] for number in self.called]
        # in the order of the catalogue: of the last calls, each with the row of its first
        unique = {rows[number]["operation_id"]: rows[number] for number in reversed(self.called)}
        optimizer = self.first.network.network_id.rpartition(f"-{network.variant}")[2]  # none if it is the campaign's
        name = f"{network.network_id}{optimizer}"
        described = replace(self.first.network, network_id=name, input_shape=list(network.first_input.shape))
        calls = self.first.calls.assign(operation_id=ids, network_id=name)
        return TracedNetwork(described, calls, pd.DataFrame(list(reversed(unique.values()))))


def _same(one: TracedNetwork, other: TracedNetwork) -> bool:
    """Whether two traces have the same calls, their operations aside."""
    same_row = all(getattr(one.network, name) == getattr(other.network, name) for name in _NETWORK)
    columns = [*_CALL, "tensors_in", "tensors_out"]
    return same_row and all([*map(str, one.calls[name])] == [*map(str, other.calls[name])] for name in columns)


def _operation(sizes: list[int], rows: list[dict[str, Any]]) -> tuple[list[str], list[Line], dict[str, Line]] | None:
    """What the specs of an operation at several sizes have in common, their numbers, and its costs."""
    if any(row[name] != rows[0][name] for row in rows for name in _OPERATION):
        return None
    spec = _numbered(sizes, [row["spec"] for row in rows])
    costs = {name: _line(sizes, [int(row[name]) for row in rows]) for name in _COSTS}
    if spec is None or None in costs.values():
        return None
    return *spec, costs  # type: ignore[return-value]  # none is None


def _numbered(sizes: Sequence[int], texts: Sequence[str]) -> tuple[list[str], list[Line]] | None:
    """What a text at several sizes has in common between its numbers, and these; None if they follow no lines."""
    first, *others = (_NUMBER.split(text) for text in texts)
    if any(other != first for other in others):
        return None
    numbers = [
        _line(sizes, values) for values in zip(*(map(int, _NUMBER.findall(text)) for text in texts), strict=True)
    ]
    return None if None in numbers else (first, numbers)  # type: ignore[return-value]  # none is None


def _with_numbers(size: int, texts: Sequence[str], numbers: Sequence[Line]) -> str:
    """The text of `_numbered` at a size."""
    return "".join(f"{text}{a * size + b}" for text, (a, b) in zip(texts, numbers, strict=False)) + texts[-1]


def _line(sizes: Sequence[int], values: Sequence[int]) -> Line | None:
    """A and b of the line through all values; None if there is none with whole numbers."""
    a, rest = divmod(values[-1] - values[0], sizes[-1] - sizes[0])
    b = values[0] - a * sizes[0]
    is_exact = not rest and all(a * size + b == value for size, value in zip(sizes, values, strict=True))
    return (a, b) if is_exact else None


def _with_features(traced: list[TracedNetwork]) -> list[TracedNetwork]:
    """The same with their features, which are computed at once."""
    columns = list(traced[0].operations.columns)
    together = pd.concat([one.operations[columns] for one in traced], ignore_index=True)
    works = together[together["device_work"].astype(bool)].drop_duplicates("operation_id")
    features = operation_features(works)
    place = {name: number for number, name in enumerate(features.index)}

    def of(operations: pd.DataFrame) -> pd.DataFrame:
        ids = operations["operation_id"].to_numpy(object)[operations["device_work"].to_numpy(bool)]
        return features.take([place[name] for name in ids])

    return [replace(one, known_features=of(one.operations)) for one in traced]
