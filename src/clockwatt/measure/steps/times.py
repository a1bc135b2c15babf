"""Measure the times of a subject: queued, among calls of a pass, back to back, on the host.

Blocks are repeated until they are precise enough or the budget is used up. Full measurements, times alone and the
calibration each have a rule.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from clockwatt.measure.bench.interface import Bench, QueuedBlock, Workload
from clockwatt.measure.statistics import Estimate, mean_estimate, median_estimate
from clockwatt.measure.steps.load import calls_per_block
from clockwatt.schema.records import AT_ONCE, IN_SEGMENTS

_MAX_CALLS = 64
"""Most calls in a queued block; halved until all fit into the launch queue before the first one runs."""
_PASS_CALLS = 8
"""Calls that share a backward pass; fewer where they take long or do not fit into memory."""
_CUT_BLOCKS = 3
_HOST_CALLS = 100
_EAGER_BLOCK_S = 0.02
_DEVICE_WITHIN, _HOST_WITHIN = 0.005, 0.02
"""Relative standard errors at which there are blocks enough."""


@dataclass(frozen=True)
class BlocksRule:
    """Take blocks until times are precise enough, at least a few, and no more once a budget in s is spent.

    Attributes
    ----------
    fewest, most
        Blocks.
    budget_s
        Time after which the fewest are enough.
    block_s
        About how long the calls of a block take: a short block has a short wait before it.
    longest_call_s
        Calls that take longer are left out.
    """

    fewest: int
    most: int
    budget_s: float
    block_s: float
    longest_call_s: float = math.inf

    def enough(self, taken: int, elapsed_s: float, *times: tuple[Callable[[], Estimate | None], float]) -> bool:
        """Whether `taken` blocks are enough; `times` give estimates, each with the relative error that it may have.

        They are asked for only where the answer depends on them: a median takes as long as some blocks do.
        """
        if taken < self.fewest:
            return False
        return (
            taken >= self.most or elapsed_s >= self.budget_s or all(_precise(time(), within) for time, within in times)
        )


def _precise(time: Estimate | None, within: float) -> bool:
    return time is not None and time.standard_error <= within * time.value


@dataclass(frozen=True)
class TimeRules:
    """Rules for each kind of time."""

    queued: BlocksRule
    in_pass: BlocksRule
    host_only: BlocksRule


FULL = TimeRules(BlocksRule(5, 40, 0.2, 0.01), BlocksRule(3, 12, 0.08, 0.01), BlocksRule(10, 20, 0.1, 0.0))
# a call of over 20 ms makes every pass device-bound: its host time in a pass cannot be measured
TIME_ALONE = TimeRules(
    BlocksRule(3, 40, 0.012, 0.002), BlocksRule(2, 6, 0.006, 0.003, 0.02), BlocksRule(5, 20, 0.01, 0.0)
)
LEAST = TimeRules(BlocksRule(5, 5, 0.0, 0.01), BlocksRule(3, 3, 0.0, 0.01), BlocksRule(5, 5, 0.0, 0.0))


@dataclass(frozen=True)
class QueuedTimes:
    """Host and device time of a call, and how they were got."""

    host: Estimate | None
    device: Estimate | None
    method: str


def queued_times(bench: Bench, workload: Workload, rule: BlocksRule) -> QueuedTimes | None:
    """Host and device time of a call, of a network's pass too that is too long for the launch queue; None if unknown.

    The host's is that of calls during which nothing blocked it.
    """
    blocks, method = queued_blocks(bench, workload, rule), AT_ONCE
    if not blocks and workload.has_modules:
        blocks, method = _cut_blocks(bench, workload), IN_SEGMENTS
    return QueuedTimes(_host(blocks), _device(blocks), method) if blocks else None


def queued_blocks(bench: Bench, workload: Workload, rule: BlocksRule) -> list[QueuedBlock]:
    """Measure as many queued blocks as the rule requires; none if not even a single call can be queued."""
    begun_ns = bench.now_ns()
    trial = bench.queued_block(workload, 1)
    if trial is None:
        return []
    calls = max(1, min(_MAX_CALLS, round(rule.block_s / max(trial.host_s, trial.device_s))))
    # a long call is a block of its own, and the trial has been one
    blocks = [trial] if calls == 1 else []
    while not rule.enough(
        len(blocks),
        _since_s(bench, begun_ns),
        (lambda: _device(blocks), _DEVICE_WITHIN),
        (lambda: _host(blocks), _HOST_WITHIN),
    ):
        block = bench.queued_block(workload, calls)
        if block is not None:
            blocks.append(block)
        elif calls > 1:
            calls //= 2
        else:
            return []
    return blocks


def _cut_blocks(bench: Bench, workload: Workload) -> list[QueuedBlock]:
    blocks = []
    for _ in range(_CUT_BLOCKS):
        block = bench.cut_block(workload)
        if block is None:
            return []
        blocks.append(block)
    return blocks


def _host(blocks: Sequence[QueuedBlock]) -> Estimate | None:
    return median_estimate([block.host_s for block in blocks])


def _device(blocks: Sequence[QueuedBlock]) -> Estimate | None:
    return mean_estimate([block.device_s for block in blocks])


def host_time_in_pass(bench: Bench, workload: Workload, call_s: float | None, rule: BlocksRule) -> Estimate | None:
    """Return host time in s of a training call among others of a pass: what more of them take, over how many more.

    A call measured alone starts a backward pass of its own, which in a network it does not.

    Parameters
    ----------
    call_s
        About how long a call takes.
    rule
        When there are enough pairs of passes.
    """
    if call_s is not None and call_s > rule.longest_call_s:
        return None
    begun_ns = bench.now_ns()
    calls = max(2, min(_PASS_CALLS, round(rule.block_s / call_s))) if call_s else _PASS_CALLS
    while calls > 1 and bench.pass_block(workload, calls) is None:
        calls //= 2
    if calls < 2:
        return None
    slopes: list[float] = []
    while not rule.enough(len(slopes), _since_s(bench, begun_ns), (lambda: median_estimate(slopes), _HOST_WITHIN)):
        several, one = bench.pass_block(workload, calls), bench.pass_block(workload, 1)
        if several is None or one is None:
            return None
        slopes.append((several - one) / (calls - 1))
    return median_estimate(slopes)


def host_only_time(bench: Bench, workload: Workload, rule: BlocksRule) -> tuple[Estimate | None, int]:
    """Return host time in s of a call that gives the device nothing to do, and the calls that were made."""
    begun_ns = bench.now_ns()
    blocks: list[float] = []
    while not rule.enough(len(blocks), _since_s(bench, begun_ns), (lambda: median_estimate(blocks), _HOST_WITHIN)):
        blocks.append(bench.host_block(workload, _HOST_CALLS))
    return median_estimate(blocks), _HOST_CALLS * len(blocks)


def eager_time(
    bench: Bench, workload: Workload, call_s: float | None, warm_up_s: float, rule: BlocksRule
) -> Estimate | None:
    """Return the time in s of a call back to back, after so much warm-up, without a look at power.

    Parameters
    ----------
    call_s
        About how long a call takes, if that is known.
    """
    calls = calls_per_block(bench, workload) if call_s is None else max(1, round(_EAGER_BLOCK_S / call_s))
    times_s: list[float] = []
    with contextlib.closing(bench.eager_blocks(workload, calls)) as blocks:
        begun_ns = bench.now_ns()
        for duration_s in blocks:
            if _since_s(bench, begun_ns) < warm_up_s:
                continue
            times_s.append(duration_s / calls)
            elapsed_s = _since_s(bench, begun_ns) - warm_up_s
            if rule.enough(len(times_s), elapsed_s, (lambda: mean_estimate(times_s), _DEVICE_WITHIN)):
                break
    return mean_estimate(times_s)


def _since_s(bench: Bench, begun_ns: int) -> float:
    return (bench.now_ns() - begun_ns) / 1e9
