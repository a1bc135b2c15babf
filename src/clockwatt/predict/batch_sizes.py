"""One network at many batch sizes from a few traces.

Where the traces of several sizes have the same calls, and every number in their specs and costs is a·batch + b, so has
the trace of a size between them. A network that takes another way at some size, or has a number that is no such, is
traced at each.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from clockwatt.config import NetworkConfig
from clockwatt.predict.features.operations import operation_features
from clockwatt.predict.tracing import TracedNetwork

_FEWEST = 8
"""Sizes from which on some are derived."""
_NUMBER = re.compile(r"(?<![\w.+-])-?\d+(?![\w.])")
_COSTS = ("flops", "bytes_read", "bytes_written", "parameter_bytes")
_CALL = ["phase", "module_path"]
_OPERATION = ["function", "operation_class", "kind", "device_work", "dtype", "flops_source"]
_NETWORK = (
    *("module_calls", "backward_nodes", "parameters", "parameter_bytes", "assumed_branches", "grouped_convolutions"),
    "optimizer",
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
    for size, network in by_size.items():
        if size not in traced:
            derivable = pattern is not None and min(chosen) < size < max(chosen)
            traced[size] = pattern.at(size, network) if pattern and derivable else trace(network)
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
            spec = "".join(f"{text}{a * size + b}" for text, (a, b) in zip(texts, numbers, strict=False)) + texts[-1]
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
    texts = [_NUMBER.split(row["spec"]) for row in rows]
    if any(text != texts[0] for text in texts):
        return None
    found = (map(int, _NUMBER.findall(row["spec"])) for row in rows)
    numbers = [_line(sizes, values) for values in zip(*found, strict=True)]
    costs = {name: _line(sizes, [int(row[name]) for row in rows]) for name in _COSTS}
    if None in numbers or None in costs.values():
        return None
    return texts[0], numbers, costs  # type: ignore[return-value]  # none is None


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
