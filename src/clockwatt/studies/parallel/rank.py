"""What each rank does: build networks, train them step by step, and time and profile the steps."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import distributed

from clockwatt.measure.links import ranks
from clockwatt.operations import networks, numerics
from clockwatt.schema.records import TRAINING
from clockwatt.studies.parallel import kernels, strategies
from clockwatt.studies.parallel.cases import Case, Result, Timing
from clockwatt.studies.parallel.names import DDP, FSDP, PIPELINE

_WARM_S, _BLOCK_S = 0.5, 0.1
_LEAST_WARM, _LEAST_BLOCKS = 3, 5
_ISSUED = 5


class Worker:
    """A rank that measures, once its process group is there.

    Attributes
    ----------
    rank, count, device
        Its number, the number of ranks, and where it computes.
    control
        A group of all ranks on their hosts.
    """

    def __init__(self) -> None:
        self.rank, self.count = distributed.get_rank(), distributed.get_world_size()
        on_gpu = distributed.get_backend() == "nccl"
        self.device = torch.device("cuda", self.rank) if on_gpu else torch.device("cpu")
        self.control: Any = distributed.new_group(backend="gloo")
        distributed.all_reduce(torch.ones(1, device=self.device))

    def idle(self, seconds: float) -> tuple[float, float]:
        """Do nothing, with all ranks, and return when."""
        self.barrier()
        begun_s = time.monotonic()
        while (left_s := begun_s + seconds - time.monotonic()) > 0:
            time.sleep(min(left_s, 1.0))
            ranks.advance()
        return begun_s, time.monotonic()

    def measure(self, case: Case, timing: Timing) -> Result:
        """Measure a case and leave nothing on the GPU.

        Returns
        -------
        dict
            `blocks_s`: time of a step in each block. `window`: start and end of all blocks on the monotonic clock, in
            s. `steps`: in the window. `issue_s`: median time of the host for a step. `allocated_bytes`,
            `reserved_bytes`: their peaks; None on CPU processes. `kernels`: from `kernels.summary`. `spans`: name,
            whether a communication, start and end in µs since `origin_us` of the epoch, of the last profiled step.
        """
        try:
            return self._measure(case, timing)
        finally:
            gc.collect()
            if self.device.type == "cuda":
                torch.cuda.empty_cache()

    def _measure(self, case: Case, timing: Timing) -> Result:
        step = self.step(case)
        if on_gpu := self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        result = self.timed(step, timing.seconds)
        peaks = [torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()] if on_gpu else [None, None]
        result |= dict(zip(("allocated_bytes", "reserved_bytes"), peaks, strict=True))
        result["issue_s"] = statistics.median(self._issued_s(step) for _ in range(_ISSUED if on_gpu else 1))
        self.barrier()
        spans, origin_us = kernels.profile(step, timing.profile_steps, self.device)
        result["kernels"] = kernels.summary(spans, timing.profile_steps)
        last = spans[len(spans) * (timing.profile_steps - 1) // timing.profile_steps :]
        result["spans"] = [(span.name, span.communication, span.start_us, span.end_us) for span in last]
        return result | {"origin_us": origin_us}

    def step(self, case: Case) -> Callable[[], object]:
        """Build a network and return its training step, which has run often enough to make all that is kept."""
        numerics.apply(case.network.execution[0])
        torch.manual_seed(0)
        built = networks.build_network(case.network, self.device, pass_=TRAINING, training=case.training)
        step: Callable[[], object] = built.call
        if case.strategy == DDP:
            step = strategies.ddp_step(built)
        elif case.strategy == FSDP:
            step = strategies.fsdp_step(built)
        elif case.strategy == PIPELINE:
            step = strategies.pipeline_step(built, case.microbatches, case.begins)
        for _ in range(_LEAST_WARM):
            step()
        self.synchronize()
        return step

    def synchronize(self) -> None:
        """Wait for the GPU."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        ranks.advance()

    def barrier(self) -> None:
        """Wait for the GPU, and for the other ranks."""
        self.synchronize()
        distributed.barrier(self.control)

    def timed(self, step: Callable[[], object], seconds: float) -> Result:
        """Return `blocks_s`, `steps` and `window`, as `measure` does; all ranks take the same number of steps."""
        self.barrier()
        begun_s, steps = time.monotonic(), 0
        elapsed_s = 0.0
        while elapsed_s < min(_WARM_S, seconds):
            step()
            self.synchronize()
            steps += 1
            elapsed_s = self._of_first(time.monotonic() - begun_s)
        each_s = elapsed_s / steps
        repeated = max(1, round(_BLOCK_S / each_s))
        blocks = max(_LEAST_BLOCKS, round(seconds / (repeated * each_s)))
        blocks_s = []
        self.barrier()
        start_s = time.monotonic()
        for _ in range(blocks):
            block_s = time.perf_counter()
            for _ in range(repeated):
                step()
            self.synchronize()
            blocks_s.append((time.perf_counter() - block_s) / repeated)
        return {"blocks_s": blocks_s, "steps": blocks * repeated, "window": (start_s, time.monotonic())}

    def _of_first(self, value: float) -> float:
        """Return the value that the first rank has."""
        shared = torch.tensor([value], dtype=torch.float64)
        distributed.broadcast(shared, 0, group=self.control)
        return float(shared)

    def _issued_s(self, step: Callable[[], object]) -> float:
        self.barrier()
        begun_s = time.perf_counter()
        step()
        return time.perf_counter() - begun_s
