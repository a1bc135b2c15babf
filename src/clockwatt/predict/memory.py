"""Peak memory of a pass, from what it allocates and frees.

`CachingAllocator` replays PyTorch's allocator of CUDA memory; its sizes and rules are those of
`c10/cuda/CUDACachingAllocator` with default settings. `workspace_bytes` estimates what kernels allocate themselves.
"""

from __future__ import annotations

import bisect
import functools
import io
import json
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clockwatt.gpu.specs import GpuSpec
from clockwatt.io.resources import resource
from clockwatt.predict.models.trees import Trees
from clockwatt.schema.execution import ExecutionSettings
from clockwatt.schema.records import CAPTURE, CUBLAS, CUBLASLT, MEMORY_KINDS, STREAM, UNCOMPILED, WORKSPACE, MemoryRow

CONTEXT_BYTES = 512 * 2**20
"""Typical memory of a CUDA context with the kernels of PyTorch and cuDNN loaded."""
_ERRORS_FILE = "memory/errors.json"
CUBLAS_BYTES = {"hopper": 32 * 2**20, "blackwell": 32 * 2**20}
_OLDER_CUBLAS_BYTES = 8320 * 2**10
"""PyTorch's defaults of `CUBLAS_WORKSPACE_CONFIG`, in bytes."""
CUBLASLT_BYTES = 2**20
"""PyTorch's default of `CUBLASLT_WORKSPACE_SIZE`, in bytes."""

FRAGMENTATION = "fragmentation"
"""Part of what is allocated: ends of blocks that are larger than asked for, and too small to be split off."""
_STREAM, _CAPTURE, _UNCOMPILED = (
    json.dumps({"kind": kind}, separators=(",", ":")) for kind in (STREAM, CAPTURE, UNCOMPILED)
)

ModuleBytes = Mapping[tuple[str, str], int]
"""Module path and kind to bytes."""


@dataclass(frozen=True)
class PassMemory:
    """Memory of a pass on one GPU; all in bytes.

    Attributes
    ----------
    allocated_bytes, allocated_low_bytes, allocated_high_bytes
        Most that PyTorch has allocated at once, and the ends of its 90 % interval.
    reserved_bytes, reserved_low_bytes, reserved_high_bytes
        Most that PyTorch's caching allocator has reserved with unlimited memory, and the ends of its 90 % interval.
    used_bytes
        What PyTorch does not count: the CUDA context, and what other processes hold.
    parts
        What is allocated at the peak, by `MEMORY_KINDS`, and `FRAGMENTATION`; the sum is `allocated_bytes`.
    gpu_bytes
        Memory of the GPU; None if it is not known.
    fits
        Whether the pass runs within the memory of the GPU; None if that is not known.
    close
        Whether that would be otherwise if it took as much more or less as the interval allows.
    eager
        Whether it is that of the eager pass, though this one is compiled; the interval is wider then.
    modules
        What is allocated at the peak by module and kind.
    """

    allocated_bytes: int
    allocated_low_bytes: int
    allocated_high_bytes: int
    reserved_bytes: int
    reserved_low_bytes: int
    reserved_high_bytes: int
    used_bytes: int
    parts: Mapping[str, int]
    gpu_bytes: int | None
    fits: bool | None
    close: bool = False
    eager: bool = False
    modules: ModuleBytes = field(default_factory=dict, repr=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        values = asdict(replace(self, modules={}))
        del values["modules"]
        return values


def pass_memory(
    events: Sequence[MemoryRow],
    *,
    pass_: str,
    execution: ExecutionSettings,
    spec: GpuSpec | None,
    used_bytes: int = CONTEXT_BYTES,
) -> PassMemory:
    """Replay what a pass allocates on a GPU.

    Parameters
    ----------
    events
        From `operations.trace.memory.record_memory`.
    pass_, execution
        For the interval, and the workspaces of convolutions.
    spec
        The GPU; None where it is not known.
    used_bytes
        Memory that is not PyTorch's: the context, and what other processes hold.
    """
    sizes = allocation_bytes(events, execution, spec)
    allocator = CachingAllocator()
    peak_row = replay(allocator, events, sizes, {})
    modules = _alive(events, sizes, peak_row)
    parts = {kind: sum(size for (_, one), size in modules.items() if one == kind) for kind in MEMORY_KINDS}
    parts[FRAGMENTATION] = allocator.peak_allocated - sum(parts.values())
    tf32 = execution.cudnn_tf32 or execution.dtype != "float32"
    eager = execution.compiled and any(event.call == _UNCOMPILED for event in events)
    low, high = _errors()[error_group(pass_, tf32=tf32, compiled=execution.compiled, eager=eager)]
    reserved = [round(allocator.peak_reserved * end) for end in _errors()[reserved_group(pass_, execution)]]
    capacity = None if spec is None else spec.memory_bytes
    least = fits = most = None
    if capacity is not None:
        least, fits, most = (
            _fits(events, sizes, allocator.peak_reserved, int((capacity - used_bytes) / ratio))
            for ratio in (low, 1, high)
        )
    return PassMemory(
        allocator.peak_allocated,
        round(allocator.peak_allocated * low),
        round(allocator.peak_allocated * high),
        allocator.peak_reserved,
        max(reserved[0], round(allocator.peak_allocated * low)),
        reserved[1],
        used_bytes,
        parts,
        capacity,
        fits,
        least != most,
        eager,
        modules,
    )


def allocation_bytes(events: Sequence[MemoryRow], execution: ExecutionSettings, spec: GpuSpec | None) -> list[int]:
    """Return the bytes of each allocation; 0 where one is freed."""
    calls = sorted({event.call for event in events if event.call is not None})
    count = spec.sm_count if spec else _MULTIPROCESSORS
    found = dict(zip(calls, workspace_bytes(calls, tf32=execution.cudnn_tf32, multiprocessors=count), strict=True))
    cublas = CUBLAS_BYTES.get(spec.architecture if spec else "hopper", _OLDER_CUBLAS_BYTES)
    for kind, size in ((CUBLAS, cublas), (CUBLASLT, CUBLASLT_BYTES)):
        found |= {call: size for call in calls if json.loads(call)["kind"] == kind}
    return [int(found[event.call]) if event.call is not None else event.bytes or 0 for event in events]


def replay(
    allocator: CachingAllocator, events: Sequence[MemoryRow], sizes: Sequence[int], blocks: dict[int, Block]
) -> int:
    """Allocate and free as events say, and return the row at which most was allocated.

    Parameters
    ----------
    blocks
        What is allocated, by number; what is there before is not allocated again.

    Raises
    ------
    DoesNotFitError
        If it takes more than the allocator's capacity.
    """
    peak_row, peak = 0, allocator.peak_allocated
    for row, (event, size) in enumerate(zip(events, sizes, strict=True)):
        if event.bytes is None:
            if (block := blocks.pop(event.number, None)) is not None:
                allocator.release(block)
        elif size and event.number not in blocks:
            blocks[event.number] = allocator.allocate(size)
            if allocator.peak_allocated > peak:
                peak, peak_row = allocator.peak_allocated, row
        elif event.call == _STREAM:
            allocator.begin_pool()
        elif event.call == _CAPTURE:
            allocator.empty_cache()
            allocator.begin_pool()
    return peak_row


def _alive(events: Sequence[MemoryRow], sizes: Sequence[int], row: int) -> ModuleBytes:
    """Return what is allocated after a row, by module and kind."""
    alive: dict[int, int] = {}
    for event, size in zip(events[: row + 1], sizes, strict=False):
        if event.bytes is None:
            alive.pop(event.number, None)
        elif size:
            alive[event.number] = rounded(size)
    found: defaultdict[tuple[str, str], int] = defaultdict(int)
    for number, size in alive.items():
        found[events[number].module_path, events[number].kind] += size
    return dict(found)


def most_at_once(
    events: Sequence[MemoryRow], share: Callable[[MemoryRow], float], freed_at_once: str | None = None
) -> float:
    """Return the most bytes that are allocated at once, if `share` of each allocation counts.

    Allocations of the kind `freed_at_once` count as if they were freed before the next one.
    """
    alive: dict[int, float] = {}
    held = most = 0.0
    for event in events:
        if event.bytes is None:
            held -= alive.pop(event.number, 0.0)
        elif counted := share(event) * event.bytes:
            most = max(most, held + counted)
            if event.kind != freed_at_once:
                alive[event.number] = counted
                held += counted
    return most


def _fits(events: Sequence[MemoryRow], sizes: Sequence[int], reserved: int, capacity: int) -> bool:
    if reserved <= capacity:
        return True
    try:
        replay(CachingAllocator(capacity), events, sizes, {})
    except DoesNotFitError:
        return False
    return True


def error_group(pass_: str, *, tf32: bool, compiled: bool = False, eager: bool = False) -> str:
    """Return which networks' errors apply: workspaces of float32 convolutions without TensorFloat-32 vary more."""
    if compiled:
        return f"{pass_} compiled{', from eager' * eager}"
    return pass_ if tf32 else f"{pass_} fp32"


def reserved_group(pass_: str, execution: ExecutionSettings) -> str:
    """Return which networks' errors of reserved memory apply."""
    return f"reserved {pass_}{' compiled' * execution.compiled}"


@functools.cache
def _errors() -> dict[str, tuple[float, float]]:
    """Return the 5th and 95th percentile of measured to predicted peak memory, by group."""
    content = json.loads(resource(_ERRORS_FILE).read_text(encoding="utf-8"))
    return {pass_: (ends[0], ends[1]) for pass_, ends in content.items()}


ROUND_BYTES = 512
_SMALL_BYTES = 2**20
"""Largest block of the small pool."""
_SMALL_SEGMENT = 2 * 2**20
_LARGE_SEGMENT = 20 * 2**20
_LEAST_LARGE = 10 * 2**20
"""Blocks from this size on have a segment of their own, a multiple of `_SMALL_SEGMENT`."""


class DoesNotFitError(Exception):
    """An allocation needs more memory than there is."""


def rounded(size: int) -> int:
    """Return the bytes of the block for so many bytes."""
    return max(ROUND_BYTES, -(-size // ROUND_BYTES) * ROUND_BYTES)


@dataclass(eq=False)
class Block:
    """A part of a segment; neighbours merge once both are free."""

    size: int
    segment: int
    small: bool
    pool: int = 0
    free: bool = True
    before: Block | None = field(default=None, repr=False)
    after: Block | None = field(default=None, repr=False)


class CachingAllocator:
    """Allocate and free blocks as PyTorch does.

    Parameters
    ----------
    capacity
        Bytes that can be reserved; None for no limit.

    Attributes
    ----------
    allocated, reserved
        Bytes of blocks in use and of segments.
    peak_allocated, peak_reserved
        The most of each so far.
    """

    def __init__(self, capacity: int | None = None) -> None:
        self.allocated = self.reserved = self.peak_allocated = self.peak_reserved = 0
        self._capacity = capacity
        self._segments = self._pool = 0
        # free blocks by pool, small and large apart, the smallest first, in one size the oldest segment's first
        self._free: defaultdict[tuple[int, bool], list[tuple[int, int, int, Block]]] = defaultdict(list)
        self._order = 0

    def allocate(self, size: int) -> Block:
        """Return a block for so many bytes.

        Raises
        ------
        DoesNotFitError
            If it does not fit, not even once all free segments are given back.
        """
        size = rounded(size)
        small = size <= _SMALL_BYTES
        block = self._cached(size, small) or self._new_segment(size, small)
        rest = block.size - size
        if rest >= ROUND_BYTES if small else rest > _SMALL_BYTES:
            remainder = Block(rest, block.segment, small, block.pool, before=block, after=block.after)
            if block.after is not None:
                block.after.before = remainder
            block.size, block.after = size, remainder
            self._keep(remainder)
        block.free = False
        self.allocated += block.size
        self.peak_allocated = max(self.peak_allocated, self.allocated)
        return block

    def begin_pool(self) -> None:
        """Allocate from a pool that shares no segment with what was allocated before."""
        self._pool += 1

    def release(self, block: Block) -> None:
        """Free a block and merge it with free neighbours."""
        self.allocated -= block.size
        for other in (block.before, block.after):
            if other is None or not other.free:
                continue
            self._take(other)
            if other is block.before:
                block.before = other.before
                if other.before is not None:
                    other.before.after = block
            else:
                block.after = other.after
                if other.after is not None:
                    other.after.before = block
            block.size += other.size
        block.free = True
        self._keep(block)

    def _cached(self, size: int, small: bool) -> Block | None:
        free = self._free[self._pool, small]
        place = bisect.bisect_left(free, (size,))
        return free.pop(place)[-1] if place < len(free) else None

    def _new_segment(self, size: int, small: bool) -> Block:
        if small:
            segment = _SMALL_SEGMENT
        elif size < _LEAST_LARGE:
            segment = _LARGE_SEGMENT
        else:
            segment = -(-size // _SMALL_SEGMENT) * _SMALL_SEGMENT
        if self._capacity is not None and self.reserved + segment > self._capacity:
            self.empty_cache()
            if self.reserved + segment > self._capacity:
                raise DoesNotFitError
        self._segments += 1
        self.reserved += segment
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        return Block(segment, self._segments, small, self._pool)

    def empty_cache(self) -> None:
        """Give back all segments that are free as a whole."""
        for pool, free in self._free.items():
            whole = [entry for entry in free if entry[-1].before is None and entry[-1].after is None]
            self.reserved -= sum(entry[0] for entry in whole)
            self._free[pool] = [entry for entry in free if entry[-1].before or entry[-1].after]

    def _keep(self, block: Block) -> None:
        self._order += 1
        block.free = True
        bisect.insort(self._free[block.pool, block.small], (block.size, block.segment, self._order, block))

    def _take(self, block: Block) -> None:
        free = self._free[block.pool, block.small]
        place = bisect.bisect_left(free, (block.size, block.segment))
        while free[place][-1] is not block:
            place += 1
        del free[place]


WORKSPACES_FILE = "memory/workspaces.npz"
_BYTES = {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2}
_ALIGNMENTS = (4, 8, 16, 32)
_MULTIPROCESSORS = 132
"""Of Hopper, taken where the GPU is not known."""
OFFSET = 0.05
"""Added to a workspace's ratio to the tensors of its convolution before the logarithm is taken."""
FORWARD, BACKWARD = "forward", "backward"
RESERVE = "reserve"
LEAST_BYTES = 2**20
"""Below this, errors of the workspace of recurrent layers count less."""


def workspace_bytes(calls: Sequence[str], *, tf32: bool, multiprocessors: int = _MULTIPROCESSORS) -> NDArray[np.int64]:
    """Return the bytes that each call allocates itself.

    Parameters
    ----------
    calls
        Descriptions as `MemoryRow.call` has them.
    tf32
        Whether float32 convolutions may use TensorFloat-32.
    multiprocessors
        How many the GPU has.
    """
    described = [json.loads(call) for call in calls]
    found = np.zeros(len(calls))
    for direction in (FORWARD, BACKWARD):
        places = [
            place for place, call in enumerate(described)
            if call["kind"] == "convolution" and (call["gradients"] is None) == (direction == FORWARD)
        ]  # fmt: skip
        if places:
            chosen = [described[place] for place in places]
            matrix = np.array([convolution_features(call, tf32=tf32) for call in chosen], dtype=np.float32)
            ratio = np.exp(_estimated(direction, matrix)) - OFFSET
            found[places] = np.maximum(ratio, 0.0) * [convolution_bytes(call) for call in chosen]
    for place, call in enumerate(described):
        if call["kind"] == "attention":
            found[place] = _attention_bytes(call)
        elif call["kind"] == "column_sum":
            found[place] = column_sum_bytes(call["rows"], call["columns"], multiprocessors)
        elif call["kind"] in ("lstm", "gru", "rnn"):
            found[place] = _recurrent_bytes(call, tf32=tf32)
    return found.round().astype(np.int64)


def convolution_bytes(call: Mapping[str, Any]) -> int:
    """Return the bytes of input, weight and output of a convolution."""
    elements: int = sum(math.prod(call[name]) for name in ("x", "weight", "y"))
    return _BYTES.get(call["dtype"], 4) * elements


def convolution_features(call: Mapping[str, Any], *, tf32: bool) -> list[float]:
    """Return what the workspace of a convolution depends on; a transposed one as the convolution that it reverses."""
    x, y, weight, groups = call["x"], call["y"], call["weight"], call["groups"]
    if call["transposed"]:
        x, y = y, x
    element, kernel, dims = _BYTES.get(call["dtype"], 4), math.prod(weight[2:]), len(weight) - 2
    inputs, outputs, rows = x[1] // groups, y[1] // groups, x[0] * math.prod(y[2:])
    sizes = [element * math.prod(one) for one in (x, y, weight)]
    gradients = call["gradients"] or [False, False]
    return [
        float(value) for value in (
            call["transposed"], dims, x[0], x[1], y[1], inputs, outputs, groups, math.prod(x[2:]), math.prod(y[2:]),
            x[-1], kernel, weight[-1], call["stride"][-1], call["dilation"][-1], call["padding"][-1],
            element, call["dtype"] == "bfloat16", tf32 or element < 4, call["channels_last"],
            *gradients[:2], rows, 2 * rows * y[1] * inputs * kernel, *sizes, sizes[0] / sizes[1], sizes[2] / sizes[1],
            inputs * kernel, *(-(-n // a) * a / n for a in _ALIGNMENTS for n in (inputs, outputs)),
            *(n & -n for n in (inputs, outputs)),
        )
    ]  # fmt: skip


def recurrent_terms(call: Mapping[str, Any]) -> list[float]:
    """Return what memory of a recurrent layer is linear in: bytes of weights, states and inputs, and constants."""
    element, steps = _BYTES.get(call["dtype"], 4), call["batch"] * call["length"]
    states, inputs, layers = element * steps * call["output"], element * steps * call["input"], call["layers"]
    both, first, directions = call["bidirectional"], call["batch_first"], 1 + call["bidirectional"]
    return [
        float(term) for term in (
            element * call["weight"], states * layers, states, inputs, first * inputs, first * states,
            element * call["batch"] * call["output"] * layers, 2**20 * layers * directions, 2**20,
            both * states * layers, both * inputs,
        )
    ]  # fmt: skip


def recurrent_features(call: Mapping[str, Any], *, tf32: bool) -> list[float]:
    """Return what decides by how much the workspace of a recurrent layer differs from what is linear in its terms."""
    element, batch, length, inputs = _BYTES.get(call["dtype"], 4), call["batch"], call["length"], call["input"]
    hidden, states = call["output"] // (1 + call["bidirectional"]), batch * length * call["output"]
    return [
        float(value) for value in (
            call["kind"] == "lstm", element, call["dtype"] == "bfloat16", tf32 or element < 4, batch, length, inputs,
            hidden, call["layers"], call["bidirectional"], call["batch_first"], batch * length, batch * hidden,
            element * states, element * call["weight"], inputs / hidden, call["weight"] / states,
            *(n & -n for n in (batch, inputs, hidden)),
        )
    ]  # fmt: skip


def _recurrent_bytes(call: Mapping[str, Any], *, tf32: bool) -> float:
    part = f"{call['kind']} {RESERVE if call.get('reserve') else WORKSPACE}"
    linear = float(np.dot(_model()[1][part], recurrent_terms(call)))
    if call.get("reserve"):
        return linear
    ratio = _estimated("recurrent", [recurrent_features(call, tf32=tf32)])[0]
    return float((linear + LEAST_BYTES) * np.exp(ratio) - LEAST_BYTES)


def column_sum_bytes(rows: int, columns: int, multiprocessors: int = _MULTIPROCESSORS) -> int:
    """Return the bytes of partial sums where several blocks of threads sum each column, as a bias's gradient.

    The numbers are those of `aten/src/ATen/native/cuda/Reduce.cuh`, and 2,048 threads a multiprocessor.
    """
    vector = next(one for one in (4, 2, 1) if columns % one == 0)
    most = 512 // vector
    across, down = (2 ** (min(size, most).bit_length() - 1) if size else 1 for size in (columns // vector, rows))
    height = min(down, most // min(across, 32))
    width = min(across, most // height)
    values, blocks = -(-rows // height), -(-columns // (vector * width))
    at_once = multiprocessors * (2048 // (width * height))
    if values < 256 or blocks > at_once:
        return 0
    parts = max(min(-(-at_once // blocks), -(-values // 16)), -(-values // 256))
    return 4 * columns * parts * width * vector if parts > 1 else 0


def _attention_bytes(call: Mapping[str, Any]) -> float:
    """Return the float32 sums of the queries' gradients, and a number for each query, of a fused backward pass."""
    *rows, width = call["query"]
    elements: int = math.prod(rows) * (width + 1)
    return 4.0 * elements


@functools.cache
def _model() -> tuple[dict[str, Trees], dict[str, list[float]]]:
    """Read the fitted forests, and the coefficients of recurrent layers."""
    with np.load(io.BytesIO(resource(WORKSPACES_FILE).read_bytes()), allow_pickle=False) as arrays:
        described = json.loads(arrays["described"].tobytes())
        forests = {
            forest: Trees.from_arrays(
                {name.removeprefix(f"{forest}/"): arrays[name] for name in arrays if name.startswith(f"{forest}/")},
                features,
            )
            for forest, features in described["features"].items()
        }
        return forests, described["coefficients"]


def _estimated(forest: str, features: NDArray[np.float32] | list[list[float]]) -> NDArray[np.float64]:
    """Return the median of a forest's trees for each row of features."""
    estimated: NDArray[np.float64] = _model()[0][forest].median(np.asarray(features, dtype=np.float32))[:, 0]
    return estimated
