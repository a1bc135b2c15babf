"""PyTorch's caching allocator of CUDA memory, replayed: which segments it reserves for a sequence of allocations.

Sizes and rules are those of `c10/cuda/CUDACachingAllocator` with its default settings.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field

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
        self._segments = 0
        # free blocks of the small and the large pool, the smallest first, in one size the oldest segment's first
        self._free: dict[bool, list[tuple[int, int, int, Block]]] = {True: [], False: []}
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
            remainder = Block(rest, block.segment, small, before=block, after=block.after)
            if block.after is not None:
                block.after.before = remainder
            block.size, block.after = size, remainder
            self._keep(remainder)
        block.free = False
        self.allocated += block.size
        self.peak_allocated = max(self.peak_allocated, self.allocated)
        return block

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
        free = self._free[small]
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
            self._give_back()
            if self.reserved + segment > self._capacity:
                raise DoesNotFitError
        self._segments += 1
        self.reserved += segment
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        return Block(segment, self._segments, small)

    def _give_back(self) -> None:
        """Give back all segments that are free as a whole."""
        for small, free in self._free.items():
            whole = [entry for entry in free if entry[-1].before is None and entry[-1].after is None]
            self.reserved -= sum(entry[0] for entry in whole)
            self._free[small] = [entry for entry in free if entry[-1].before or entry[-1].after]

    def _keep(self, block: Block) -> None:
        self._order += 1
        block.free = True
        bisect.insort(self._free[block.small], (block.size, block.segment, self._order, block))

    def _take(self, block: Block) -> None:
        free = self._free[block.small]
        place = bisect.bisect_left(free, (block.size, block.segment))
        while free[place][-1] is not block:
            place += 1
        del free[place]
