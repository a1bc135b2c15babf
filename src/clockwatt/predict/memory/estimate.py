"""Peak memory of a pass, from what it allocates and frees."""

from __future__ import annotations

import functools
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from clockwatt.gpu.specs import GpuSpec
from clockwatt.io.resources import resource
from clockwatt.predict.memory.allocator import Block, CachingAllocator, DoesNotFitError, rounded
from clockwatt.predict.memory.workspaces import workspace_bytes
from clockwatt.schema.execution import ExecutionSettings
from clockwatt.schema.records import CUBLAS, MEMORY_KINDS, MemoryRow

CONTEXT_BYTES = 512 * 2**20
"""Typical memory of a CUDA context with the kernels of PyTorch and cuDNN loaded."""
_ERRORS_FILE = "memory/errors.json"
CUBLAS_BYTES = {"hopper": 32 * 2**20, "blackwell": 32 * 2**20}
_OLDER_CUBLAS_BYTES = 8320 * 2**10
"""PyTorch's defaults of `CUBLAS_WORKSPACE_CONFIG`, in bytes."""

ModuleBytes = Mapping[tuple[str, str], int]
"""Module path and kind to bytes."""


@dataclass(frozen=True)
class PassMemory:
    """Memory of a pass on one GPU; all in bytes.

    Attributes
    ----------
    allocated_bytes, allocated_low_bytes, allocated_high_bytes
        Most that PyTorch has allocated at once, and the ends of its 90 % interval.
    reserved_bytes
        Most that PyTorch's caching allocator has reserved with unlimited memory.
    context_bytes
        The CUDA context, which PyTorch does not count.
    parts
        What is allocated at the peak, by `MEMORY_KINDS`; the sum is `allocated_bytes`.
    gpu_bytes
        Memory of the GPU; None if it is not known.
    fits
        Whether the pass runs within the memory of the GPU; None if that is not known.
    modules
        What is allocated at the peak by module and kind.
    """

    allocated_bytes: int
    allocated_low_bytes: int
    allocated_high_bytes: int
    reserved_bytes: int
    context_bytes: int
    parts: Mapping[str, int]
    gpu_bytes: int | None
    fits: bool | None
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
    sizes = _sizes(events, execution, spec)
    allocator, peak_row = _replayed(events, sizes)
    modules = _alive(events, sizes, peak_row)
    parts = {kind: sum(size for (_, one), size in modules.items() if one == kind) for kind in MEMORY_KINDS}
    low, high = _errors()[error_group(pass_, tf32=execution.cudnn_tf32 or execution.dtype != "float32")]
    capacity = None if spec is None else spec.memory_bytes
    fits = None
    if capacity is not None:
        fits = _fits(events, sizes, allocator.peak_reserved, capacity - used_bytes)
    return PassMemory(
        allocator.peak_allocated,
        round(allocator.peak_allocated * low),
        round(allocator.peak_allocated * high),
        allocator.peak_reserved,
        CONTEXT_BYTES,
        parts,
        capacity,
        fits,
        modules,
    )


def _sizes(events: Sequence[MemoryRow], execution: ExecutionSettings, spec: GpuSpec | None) -> list[int]:
    """Return the bytes of each allocation; 0 where one is freed."""
    calls = sorted({event.call for event in events if event.call is not None})
    found = dict(zip(calls, workspace_bytes(calls, tf32=execution.cudnn_tf32), strict=True))
    for call in calls:
        if json.loads(call)["kind"] == CUBLAS:
            found[call] = CUBLAS_BYTES.get(spec.architecture if spec else "hopper", _OLDER_CUBLAS_BYTES)
    return [int(found[event.call]) if event.call is not None else event.bytes or 0 for event in events]


def _replayed(
    events: Sequence[MemoryRow], sizes: Sequence[int], capacity: int | None = None
) -> tuple[CachingAllocator, int]:
    """Return the allocator after all events, and the row at which most was allocated.

    Raises
    ------
    DoesNotFitError
        If it takes more than `capacity`.
    """
    allocator, peak_row, peak = CachingAllocator(capacity), 0, 0
    blocks: dict[int, Block] = {}
    for row, (event, size) in enumerate(zip(events, sizes, strict=True)):
        if event.bytes is None:
            if (block := blocks.pop(event.number, None)) is not None:
                allocator.release(block)
        elif size:
            blocks[event.number] = allocator.allocate(size)
            if allocator.peak_allocated > peak:
                peak, peak_row = allocator.peak_allocated, row
    return allocator, peak_row


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


def _fits(events: Sequence[MemoryRow], sizes: Sequence[int], reserved: int, capacity: int) -> bool:
    if reserved <= capacity:
        return True
    try:
        _replayed(events, sizes, capacity)
    except DoesNotFitError:
        return False
    return True


def error_group(pass_: str, *, tf32: bool) -> str:
    """Return which networks' errors apply: workspaces of float32 convolutions without TensorFloat-32 vary more."""
    return pass_ if tf32 else f"{pass_} fp32"


@functools.cache
def _errors() -> dict[str, tuple[float, float]]:
    """Return the 5th and 95th percentile of measured to predicted peak memory, by `error_group`."""
    content = json.loads(resource(_ERRORS_FILE).read_text(encoding="utf-8"))
    return {pass_: (ends[0], ends[1]) for pass_, ends in content.items()}
