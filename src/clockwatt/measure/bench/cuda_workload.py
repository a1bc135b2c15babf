"""Workload of a CUDA device: copies of a built subject, called in turn."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import torch

from clockwatt.measure.bench.interface import Workload
from clockwatt.measure.bench.split_pass import Cuts

MEMORY_SHARE = 0.5
"""Copies may take this share of the memory that is free."""
_ISSUE_GUESS_S = 50e-6

Call = Callable[[], Any]


class CudaWorkload(Workload):
    """Copies of a built subject, called in turn; `make_pass` makes a pass of several calls where they can share one."""

    def __init__(
        self,
        calls: list[Call],
        working_set: str,
        working_set_bytes: int,
        make_pass: Callable[[int], Call] | None = None,
        *,
        has_modules: bool = False,
    ) -> None:
        self.instances = len(calls)
        self.working_set = working_set
        self.working_set_bytes = working_set_bytes
        self.has_backward, self.has_modules = make_pass is not None, has_modules
        self._turn = itertools.cycle(calls)
        self.issue_s = _ISSUE_GUESS_S
        self.cuts: Cuts | None = None
        self.pass_of = functools.cache(make_pass) if make_pass else None
        self._pass_bytes: int | None = None

    def issue(self, calls: int) -> None:
        """Issue `calls` calls; results are dropped at once, so that the allocator reuses their memory."""
        turn = self._turn
        for _ in range(calls):
            next(turn)()

    def has_room_for_pass(self, calls: int) -> bool:
        """Return whether a training pass of so many calls fits into the free memory; one always fits."""
        if self.pass_of is None:
            return False
        if self._pass_bytes is None:
            self._pass_bytes = _bytes_of(self.pass_of(1))
        return calls == 1 or calls * self._pass_bytes <= MEMORY_SHARE * _free_bytes()


def _bytes_of(call: Call) -> int:
    """Return memory that a call takes beyond what is there before and after it."""
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    return int(torch.cuda.max_memory_allocated()) - before


def _free_bytes() -> int:
    """Return the device memory that can still be allocated, what the allocator keeps for reuse included."""
    free, _ = torch.cuda.mem_get_info()
    return int(free + torch.cuda.memory_reserved() - torch.cuda.memory_allocated())
