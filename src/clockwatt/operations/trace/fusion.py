"""A compiled pass: the calls of a traced one as the kernels that TorchInductor makes of them.

Convolutions, matrix products, attention and a few others stay calls of libraries. What lies between them is fused: a
call joins the group of a call whose result it takes, unless that result passes through a library on another way, is a
reduction, or is read by windows. A group is one kernel. It reads what others have written and writes what others read,
once each, and stands here as an addition that moves as many bytes, the operation whose bandwidth depends least on
anything else. In training a group has kernels of the backward pass, too, and normalisations have their reductions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from clockwatt.operations.spec.operation import MATRIX_CLASSES, RECURRENT_CLASSES, Operation, OutputSpec, TensorSpec
from clockwatt.operations.spec.tensor_spec import DTYPE_BYTES, StridedSpec, contiguous_stride
from clockwatt.operations.trace.call import TracedCall
from clockwatt.schema.records import ACCUMULATION, FORWARD, OPTIMIZER

_LIBRARY = (
    MATRIX_CLASSES
    | RECURRENT_CLASSES
    | {"sort", "argsort", "topk", "cumsum", "cumprod", "embedding_bag", "nonzero", "unique", "multinomial"}
)
"""Operation classes that are not fused."""

_WINDOWS = frozenset(
    {*(f"{kind}_pool{n}d" for kind in ("max", "avg", "lp") for n in (1, 2, 3)), "interpolate", "grid_sample", "unfold"}
)
"""Operation classes that read each element several times, so it must have been written."""

_PICKS = frozenset({"embedding", "getitem", "index_select", "gather", "chunk", "split", "unbind", "narrow", "select"})
"""Operation classes that read no more than they give."""

_SAVES_NOTHING = frozenset(
    {
        *("add", "sub", "rsub", "neg", "cat", "concat", "stack", "mean", "sum", "to", "pad", "roll", "contiguous"),
        *("clone", "reshape", "flatten", "expand", "permute", "transpose", "view", "avg_pool2d", "adaptive_avg_pool2d"),
        *_PICKS,
    }
)
"""Operation classes whose gradient depends on no value."""

_BATCH_STATISTICS = frozenset({"batch_norm", "group_norm", "instance_norm"})
"""Operation classes with statistics over more than a kernel keeps: it reads its input twice."""
_ROW_STATISTICS = frozenset({"layer_norm", "rms_norm"})
_NORMALISING_BYTES = 6
"""A kernel normalises an element by stored statistics in the time in which it moves so many bytes: 6 on an H100, 8 on
an H200. TorchInductor takes a root and a quotient of each element: in 16 bits this decides, not bandwidth."""

_WIDTHS = (4096, 32)
"""Elements of a row of the additions that stand for large and small kernels."""
_LARGE = 100 * _WIDTHS[0]
_ALIGNED_BYTES = 16
"""Rows of matrices begin at multiples of it, or TorchInductor pads them."""
_WORTH_PADDING = 1024


_SPEEDUPS = {"grouped": 1.358, "narrowing": 0.725, "small": 0.783, "other": 0.823}
"""Time of convolutions channels last, relative to contiguous ones, as TorchInductor has them."""
_SMALL = 64


@dataclass
class _Group:
    """Calls that become one kernel, by their numbers; sets of calls are the bits of integers.

    Attributes
    ----------
    region
        That they are compiled with.
    members
        Of the group.
    behind
        Calls from which a way leads to the group through a library.
    """

    region: object
    members: int
    behind: int
    calls: list[int] = field(default_factory=list)


def fused(calls: Sequence[TracedCall], regions: Sequence[object], *, training: bool) -> list[TracedCall]:
    """Return a pass with the kernels of its compiled regions, in the order of their last calls.

    Parameters
    ----------
    calls
        All of the pass.
    regions
        For each call of a forward pass what it is compiled with; None for calls that stay as they are.
    training
        Whether there is a backward pass.
    """
    return list(_Fusion(calls, regions, training=training).kernels())


def is_laid_out_channels_last(calls: Sequence[TracedCall], *, training: bool) -> bool:
    """Return whether TorchInductor lays convolutions out channels last: its own rule (`decide_layout_opt`)."""
    convolutions = [
        call.operation for call in calls if call.operation.operation_class in ("conv1d", "conv2d", "conv3d")
    ]
    if not convolutions or 2 * len(calls) >= 300 * len(convolutions):
        return False
    work = dict.fromkeys(_SPEEDUPS, 0.0)
    for convolution in convolutions:
        outputs, weight = convolution.out[0], convolution.tensors[1].shape
        kind = (
            "grouped" if convolution.is_grouped_convolution
            else "small" if max(weight[:2]) <= _SMALL
            else "narrowing" if weight[0] * 2 <= weight[1] and weight[2] > 1
            else "other"
        )  # fmt: skip
        work[kind] += outputs.elements * math.prod(weight[1:])
    if training:
        return not work["grouped"] and not work["narrowing"] and bool(work["other"])
    return sum(work[kind] * times for kind, times in _SPEEDUPS.items()) <= sum(work.values())


class _Fusion:
    def __init__(self, calls: Sequence[TracedCall], regions: Sequence[object], *, training: bool) -> None:
        self._calls, self._regions, self._training = calls, regions, training
        self._roots: dict[int, int] = {}  # of views: the tensor that was written
        self._writer: dict[int, int] = {}
        self._reads: list[dict[int, tuple[int | None, dict[int, TensorSpec]]]] = []
        self._readers: dict[tuple[int, int], set[int]] = {}
        self._group: dict[int, _Group] = {}
        self._before = [0] * len(calls)
        self._added: dict[int, int] = {}  # gradients that arrive beside the first, by the call that made the tensor
        self._left_out: set[int] = set()  # additions of gradients within a region
        for number, call in enumerate(calls):
            self._add(number, call)

    def _add(self, number: int, call: TracedCall) -> None:
        self._reads.append({})
        if call.phase == OPTIMIZER:  # reads nothing that a group writes
            return
        if call.kind in ("view", "identity"):
            self._roots |= {out: self._root(call.tensors_in[0]) for out in call.tensors_out if call.tensors_in
                            and out not in call.tensors_in}  # fmt: skip
            return
        if call.phase == ACCUMULATION:
            writer = self._writer.get(self._root(call.tensors_in[0])) if call.tensors_in else None
            if writer is not None and (self._regions[writer] is not None or writer in self._left_out):
                self._added[writer] = self._added.get(writer, 0) + 1
                self._left_out.add(number)
        before = behind = 0
        for tensor, spec in zip(call.tensors_in, call.operation.tensors, strict=True):
            root = self._root(tensor)
            writer, read = self._reads[number].setdefault(root, (self._writer.get(root), {}))
            read[tensor] = spec
            if writer is not None:
                self._readers.setdefault((root, writer), set()).add(number)
                before |= self._before[writer] | 1 << writer
                of_writer = self._group.get(writer)
                behind |= self._before[writer] | 1 << writer if of_writer is None else of_writer.behind
        self._before[number] = before
        region = self._regions[number]
        if region is not None and call.operation.operation_class not in _LIBRARY:
            self._join(number, _Group(region, 1 << number, behind, [number]))
        for tensor in call.tensors_out:
            self._writer[self._root(tensor)] = number

    def _root(self, tensor: int) -> int:
        return self._roots.get(tensor, tensor)

    def _join(self, number: int, group: _Group) -> None:
        """Put a call into a group of its own, and merge it with the groups whose results it takes."""
        self._group[number] = group
        if self._calls[number].operation.operation_class in _WINDOWS:
            return
        for writer, _ in self._reads[number].values():
            other = None if writer is None else self._group.get(writer)
            if other is None or other is group or _reduces(self._calls[writer].operation):  # type: ignore[index]
                continue
            if other.region is not group.region or group.members & other.behind or other.members & group.behind:
                continue
            members, behind = group.members | other.members, group.behind | other.behind
            merged = _Group(group.region, members, behind, other.calls + group.calls)
            self._group |= dict.fromkeys(merged.calls, merged)
            group = merged

    def kernels(self) -> Iterator[TracedCall]:
        """Yield them all, and the calls that stay; see `fused`."""
        for number, call in enumerate(self._calls):
            group = self._group.get(number)
            if self._regions[number] is None:
                if number not in self._left_out:
                    yield call
            elif group is None:
                if call.kind not in ("view", "identity"):
                    yield from _of_library(call, training=self._training)
            elif number == max(group.calls):
                dtype = next((out.dtype for out in call.operation.out if out.floating), "float32")
                for moved in self._traffic(group):
                    yield _moving(moved, dtype, call)

    def _traffic(self, group: _Group) -> Iterator[int]:
        """Yield the bytes that each kernel of a group moves."""
        members = [self._calls[number].operation for number in group.calls]
        read, gradients = 0, 0
        for root, reads in self._read_from_outside(group).items():
            read += sum(reads.values())
            gradients += self._gradient_of(group, root)
        written, arriving = self._written(group)
        least = 0
        for operation in members:
            if self._training and operation.operation_class in _BATCH_STATISTICS:
                yield from (operation.tensors[0].bytes, 0)
            elif operation.operation_class == "batch_norm":
                least += _NORMALISING_BYTES * operation.tensors[0].elements
        yield max(read + written, least)
        if not self._training or not any(operation.has_backward for operation in members):
            return
        for operation in members:
            if operation.operation_class in _BATCH_STATISTICS | _ROW_STATISTICS and operation.has_backward:
                yield from (2 * operation.tensors[0].bytes, 0)
        saves = any(op.has_backward and op.operation_class not in _SAVES_NOTHING for op in members)
        more = sum(self._added.get(number, 0) * self._calls[number].operation.out[0].bytes for number in group.calls)
        yield arriving + more + gradients + (read if saves else 0)

    def _read_from_outside(self, group: _Group) -> dict[int, dict[int, int]]:
        """Return the bytes of each view of each tensor that a group reads and does not write."""
        found: dict[int, dict[int, int]] = {}
        for number in group.calls:
            operation = self._calls[number].operation
            most = sum(out.bytes for out in operation.out) if operation.operation_class in _PICKS else None
            for root, (writer, views) in self._reads[number].items():
                if writer is None or not group.members >> writer & 1:
                    sizes = {
                        view: spec.bytes if most is None else min(spec.bytes, most) for view, spec in views.items()
                    }
                    found[root] = found.get(root, {}) | sizes
        return found

    def _gradient_of(self, group: _Group, root: int) -> int:
        """Return the bytes of the gradient of a tensor that a group reads."""
        specs = [spec for number in group.calls for view, spec in self._reads[number].get(root, (None, {}))[1].items()]
        return max((spec.bytes for spec in specs if spec.grad), default=0)

    def _written(self, group: _Group) -> tuple[int, int]:
        """Return the bytes that a group writes for others, and those of the gradients that arrive for them."""
        written, arriving = 0, 0
        outputs = {
            (self._root(tensor), number): (out, stride)
            for number in group.calls
            for tensor, out, stride in _outputs(self._calls[number])
        }
        for (root, number), (out, stride) in outputs.items():
            readers = self._readers.get((root, number), set())
            if not readers or any(not group.members >> reader & 1 for reader in readers):
                written += out.bytes
                arriving += out.bytes if stride is not None else 0
        return written, arriving


def _outputs(call: TracedCall) -> Iterator[tuple[int, OutputSpec, tuple[int, ...] | None]]:
    gradients = call.operation.grad_out or (None,) * len(call.operation.out)
    return zip(call.tensors_out, call.operation.out, gradients, strict=False)


def _reduces(operation: Operation) -> bool:
    """Return whether an operation gives fewer elements than it computes with."""
    if operation.operation_class in _PICKS:
        return False

    def largest(specs: Sequence[StridedSpec]) -> int:
        return max((math.prod(spec.shape) for spec in specs), default=0)

    return largest(operation.out) < largest(operation.tensors)


def _moving(moved: int, dtype: str, call: TracedCall) -> TracedCall:
    """Return the addition that moves so many bytes, in the place of a call."""
    elements = moved / (3 * DTYPE_BYTES[dtype])
    width = _WIDTHS[elements < _LARGE]
    shape = (max(1, round(elements / width)), width)
    term = TensorSpec.dense(shape, dtype)
    operation = Operation(
        "torch.add",
        args=({"tensor": 0}, {"tensor": 1}),
        tensors=(term, term),
        out=(OutputSpec(shape, dtype, contiguous_stride(shape)),),
    )
    return TracedCall(operation, "fused", FORWARD, call.module_path, [], [])


def _of_library(call: TracedCall, *, training: bool) -> Iterator[TracedCall]:
    """Yield a library's call as TorchInductor makes it: without the bias that is fused, with padded matrices."""
    operation = call.operation
    bias = operation.args[2] if len(operation.args) > 2 else operation.kwargs.get("bias")
    convolution = operation.operation_class in ("conv1d", "conv2d", "conv3d")
    has_bias = isinstance(bias, dict) and (convolution or operation.operation_class == "linear")
    if has_bias and (convolution or (training and operation.has_backward)):
        if training and operation.has_backward:
            yield _moving(operation.out[0].bytes, operation.out[0].dtype, call)
            yield _moving(0, "float32", call)
        operation = _without_bias(operation)
    if operation.operation_class == "linear":
        padded = _padded(operation)
        if padded is not operation:
            for tensor in operation.tensors[1:]:
                yield _moving(2 * tensor.bytes, tensor.dtype, call)
        operation = padded
    yield TracedCall(operation, "compute", FORWARD, call.module_path, [], [])


def _without_bias(operation: Operation) -> Operation:
    args = (*operation.args[:2], None, *operation.args[3:])
    kwargs = {name: value for name, value in operation.kwargs.items() if name != "bias"}
    tensors = operation.tensors[:2]
    grad_out = operation.grad_out if any(one.grad for one in tensors) else ()  # none of a frozen weight
    return replace(operation, args=args if len(operation.args) > 2 else operation.args, kwargs=kwargs,
                   tensors=tensors, grad_out=grad_out)  # fmt: skip


def padding(rows: int, outputs: int, element_bytes: int) -> int:
    """Return how many outputs TorchInductor adds to a large matrix product, so that rows are aligned."""
    return 0 if min(rows, outputs) < _WORTH_PADDING else -outputs % (_ALIGNED_BYTES // element_bytes)


def _padded(operation: Operation) -> Operation:
    """Return a large linear layer with its number of outputs rounded up so that rows are aligned."""
    given, weight, *bias = operation.tensors
    features, width = weight.shape
    more = padding(math.prod(given.shape[:-1]), features, DTYPE_BYTES[weight.dtype])
    if not more:
        return operation
    features += more
    out = (*operation.out[0].shape[:-1], features)
    strides = contiguous_stride(out)
    return replace(
        operation,
        tensors=(
            given,
            replace(weight, shape=(features, width), stride=contiguous_stride((features, width))),
            *(replace(one, shape=(features,)) for one in bias),
        ),
        out=(replace(operation.out[0], shape=out, stride=strides),),
        grad_out=(strides,) if operation.has_backward else operation.grad_out,
    )
