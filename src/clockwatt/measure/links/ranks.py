"""Run one process for each GPU of a machine, and end all of them when one dies or hangs."""

from __future__ import annotations

import datetime
import json
import multiprocessing
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from clockwatt.errors import ClockwattError

_START_S = 120.0
"""Time in which all ranks must have started: importing PyTorch from a shared file system can take a minute."""
_LIMIT_S = 40.0
"""Time without a communication after which ranks count as hung; with all else, they are ended within a minute."""
_LONGEST_STEP_S = 300.0
"""Time that a CPU process may compute between two communications."""
_LOOK_EVERY_S = 0.25
_REPORT_EVERY_S = 1.0
_COMPUTING = 0.1
"""Share of a core that a process uses which computes; one that waits for others uses less."""
_SILENT_S = 4.0
"""Time without a report after which a process is stopped."""
_GRACE_S = 5.0
"""Time that a terminated rank gets before it is killed."""


class RankError(ClockwattError):
    """A rank died, failed or hung; no rank of its run is left."""


class _Reports:
    """What each rank reports of itself, in memory that all processes share.

    Attributes
    ----------
    steps
        Number of communications that were started, and of calls of `advance`.
    common
        Number of communications that were started among all ranks, which lags where a rank is behind the others.
    computing
        Number of reports in which a CPU process computed.
    reported_s
        When the last report was written, on the monotonic clock.
    """

    def __init__(self, count: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.steps, self.common, self.computing = (context.RawArray("q", count) for _ in range(3))
        self.reported_s = context.RawArray("d", count)

    def write(self, rank: int, *, on_gpu: bool) -> None:
        """Write reports until this process ends; end it when its parent has ended."""
        from torch.distributed import distributed_c10d

        parent = multiprocessing.parent_process()
        stepped_s, used_s = time.monotonic(), time.process_time()
        while parent is None or parent.is_alive():
            before, now_s = self.steps[rank], time.monotonic()
            started = [_started(group) for group in list(distributed_c10d._world.pg_map)]  # first that of all ranks
            self.steps[rank], self.common[rank] = _advanced[0] + sum(started), sum(started[:1])
            if self.steps[rank] > before:
                stepped_s = now_s
            before_s, used_s = used_s, time.process_time()
            if not on_gpu and used_s - before_s > _COMPUTING * _REPORT_EVERY_S and now_s - stepped_s < _LONGEST_STEP_S:
                self.computing[rank] += 1
            self.reported_s[rank] = now_s
            time.sleep(_REPORT_EVERY_S)
        os._exit(1)

    def message(self, running: Iterable[int], limit_s: float) -> str:
        """Return which of the running ranks hang: those that are stopped, else those that are behind the others."""
        silent_s = time.monotonic() - _SILENT_S
        if stopped := [rank for rank in running if self.reported_s[rank] < silent_s]:
            return f"{_named(stopped, len(self.steps))} was stopped; all were ended. See what stops processes here."
        least = min(self.common[rank] for rank in running)
        behind = [rank for rank in running if self.common[rank] == least]
        return (
            f"{_named(behind, len(self.steps))} did not go on for {limit_s:.0f} s; all were ended. Another program may "
            "hold the GPUs, or their link is broken: see `nvidia-smi topo -m`."
        )


def _started(group: Any) -> int:
    """Return the number of communications that a group has started; 0 for groups of several backends, without one."""
    try:
        return int(group._get_sequence_number_for_group())
    except RuntimeError:
        return 0


_advanced = [0]


def advance() -> None:
    """Report that this rank goes on, where it does not communicate for many seconds."""
    _advanced[0] += 1


def _named(ranks: Sequence[int], count: int) -> str:
    return f"rank {', '.join(map(str, ranks))} of {count}"


def run_ranks(
    work: Callable[..., Any],
    arguments: Sequence[Any],
    *,
    count: int,
    gpus: Sequence[str] = (),
    limit_s: float = _LIMIT_S,
    tick: Callable[[], object] = lambda: None,
) -> list[Any]:
    """Call a function in `count` processes that can communicate.

    Parameters
    ----------
    work
        A function of a module, called with the rank and `arguments`. Its result must be valid JSON.
    arguments
        Picklable.
    count
        Number of processes.
    gpus
        UUIDs of the GPUs, one for each process, which communicate with NCCL; without any, they use gloo.
    limit_s
        Time after which ranks count as hung that start no communication, do not call `advance` and, on CPU processes,
        do not compute.
    tick
        Called four times a second.

    Returns
    -------
    list
        What each rank returned, in their order.

    Raises
    ------
    RankError
        If one failed, died or hung. The others are ended first.
    """
    context, reports = multiprocessing.get_context("spawn"), _Reports(count)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        processes: list[BaseProcess] = [
            context.Process(
                target=_rank, args=(work, arguments, rank, count, tuple(gpus), folder, reports), daemon=True
            )
            for rank in range(count)
        ]
        try:
            for process in processes:
                process.start()
            _await(processes, folder, reports, limit_s, tick)
        finally:
            _end([process for process in processes if process.pid is not None])
        return [json.loads((folder / f"{rank}.json").read_text(encoding="utf-8")) for rank in range(count)]


def _await(
    processes: Sequence[BaseProcess],
    folder: Path,
    reports: _Reports,
    limit_s: float,
    tick: Callable[[], object],
) -> None:
    """Return once all ranks have finished."""
    running = dict(enumerate(processes))
    deadline_s, reached = time.monotonic() + _START_S, list[int]()
    while running:
        wait([process.sentinel for process in running.values()], _LOOK_EVERY_S)
        tick()
        waiting = [rank for rank in running if not (folder / f"{rank}.started").exists()]
        if not waiting and (now := [*reports.steps, *reports.computing]) != reached:
            reached, deadline_s = now, time.monotonic() + limit_s
        ended = {rank: process for rank, process in running.items() if process.exitcode is not None}
        failed = [rank for rank in ended if not (folder / f"{rank}.json").exists()]
        if failed:
            raise _failure(processes, folder, failed)
        for rank in ended:
            del running[rank]
        if running and time.monotonic() >= deadline_s:
            if not waiting:
                raise RankError(reports.message(running, limit_s))
            raise RankError(
                f"{_named(waiting, len(processes))} did not start within {_START_S:.0f} s; all were ended. Importing "
                "PyTorch takes too long, or another program holds the GPUs."
            )


def _failure(processes: Sequence[BaseProcess], folder: Path, failed: Sequence[int]) -> RankError:
    """Return the error of the rank that died, else of the first that failed: others fail because of it."""
    errors = {rank: folder / f"{rank}.error" for rank in failed}
    written = sorted((path.stat().st_mtime_ns, rank) for rank, path in errors.items() if path.exists())
    dead = [rank for rank, path in errors.items() if not path.exists()]
    if not dead:
        rank = written[0][1]
        return RankError(f"rank {rank} of {len(processes)} failed: {errors[rank].read_text(encoding='utf-8')}")
    code = processes[dead[0]].exitcode or 0
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    return RankError(
        f"rank {dead[0]} of {len(processes)} died ({how}); the others were ended. Check its GPU and the memory of the "
        "machine, and run the command again."
    )


def _end(processes: Sequence[BaseProcess]) -> None:
    for process in processes:
        process.terminate()
    deadline_s = time.monotonic() + _GRACE_S
    for process in processes:
        process.join(max(0.0, deadline_s - time.monotonic()))
        if process.is_alive():
            process.kill()
            process.join()


def _rank(
    work: Callable[..., Any],
    arguments: Sequence[Any],
    rank: int,
    count: int,
    gpus: Sequence[str],
    folder: Path,
    reports: _Reports,
) -> None:
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)  # before torch counts devices
    import torch
    from torch import distributed

    try:
        threading.Thread(target=reports.write, args=(rank,), kwargs={"on_gpu": bool(gpus)}, daemon=True).start()
        if gpus:
            torch.cuda.set_device(rank)
        else:
            torch.set_num_threads(1)
        distributed.init_process_group(
            "nccl" if gpus else "gloo",
            init_method=f"file://{folder / 'store'}",
            rank=rank,
            world_size=count,
            timeout=datetime.timedelta(seconds=_START_S + _LONGEST_STEP_S),  # the parent's limits come first
        )
        (folder / f"{rank}.started").touch()
        result = work(rank, *arguments)
        distributed.destroy_process_group()
    except Exception as error:  # noqa: BLE001  # whatever a rank raises becomes one message
        text = " ".join(f"{type(error).__name__}: {error}".split())
        (folder / f"{rank}.error").write_text(f"{text:.300}", encoding="utf-8")
        raise SystemExit(1) from None
    part = folder / f"{rank}.part"
    part.write_text(json.dumps(result), encoding="utf-8")
    part.rename(folder / f"{rank}.json")
