"""Run one process for each GPU of a machine, and end all of them when one dies or hangs."""

from __future__ import annotations

import datetime
import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from clockwatt.errors import ClockwattError

_START_S = 120.0
"""Time in which all ranks must have started: importing PyTorch from a shared file system can take a minute."""
_LOOK_EVERY_S = 0.25
_GRACE_S = 5.0
"""Time that a terminated rank gets before it is killed."""


class RankError(ClockwattError):
    """A rank died, failed or hung; no rank of its run is left."""


def run_ranks(
    work: Callable[..., Any],
    arguments: Sequence[Any],
    *,
    count: int,
    gpus: Sequence[str] = (),
    limit_s: float,
    progress: Callable[[], object] = lambda: None,
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
        Time after which ranks that are not finished count as hung; from the start of the last rank, or from when
        `progress` changed.
    progress
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
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        processes: list[BaseProcess] = [
            context.Process(
                target=_rank, args=(work, arguments, rank, count, tuple(gpus), folder, limit_s), daemon=True
            )
            for rank in range(count)
        ]
        try:
            for process in processes:
                process.start()
            _await(processes, folder, limit_s, progress)
        finally:
            _end([process for process in processes if process.pid is not None])
        return [json.loads((folder / f"{rank}.json").read_text(encoding="utf-8")) for rank in range(count)]


def _await(processes: Sequence[BaseProcess], folder: Path, limit_s: float, progress: Callable[[], object]) -> None:
    """Return once all ranks have finished."""
    running = dict(enumerate(processes))
    started, deadline_s, reached = False, time.monotonic() + _START_S, progress()
    while running:
        wait([process.sentinel for process in running.values()], _LOOK_EVERY_S)
        if not started and all((folder / f"{rank}.started").exists() for rank in range(len(processes))):
            started, deadline_s = True, time.monotonic() + limit_s
        if (now := progress()) != reached:
            reached, deadline_s = now, max(deadline_s, time.monotonic() + limit_s)
        ended = {rank: process for rank, process in running.items() if process.exitcode is not None}
        failed = [rank for rank in ended if not (folder / f"{rank}.json").exists()]
        if failed:
            raise _failure(processes, folder, failed)
        for rank in ended:
            del running[rank]
        if running and time.monotonic() >= deadline_s:
            ranks = ", ".join(map(str, running))
            raise RankError(
                f"rank {ranks} of {len(processes)} did not {'finish' if started else 'start'} within "
                f"{limit_s if started else _START_S:.0f} s; all were ended. Another "
                "program may hold the GPUs, or their link is broken: see `nvidia-smi topo -m`."
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
    limit_s: float,
) -> None:
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)  # before torch counts devices
    import torch
    from torch import distributed

    try:
        if gpus:
            torch.cuda.set_device(rank)
        else:
            torch.set_num_threads(1)
        distributed.init_process_group(
            "nccl" if gpus else "gloo",
            init_method=f"file://{folder / 'store'}",
            rank=rank,
            world_size=count,
            timeout=datetime.timedelta(seconds=_START_S + limit_s),  # the parent's limits come first
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
