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

_GRACE_S = 5.0
"""Time that a terminated rank gets before it is killed."""


class RankError(ClockwattError):
    """A rank died, failed or hung; no rank of its run is left."""


def run_ranks(
    work: Callable[..., Any], arguments: Sequence[Any], *, count: int, gpus: Sequence[str] = (), limit_s: float
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
        Time after which ranks that are not finished count as hung.

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
            _await(processes, folder, time.monotonic() + limit_s, limit_s)
        finally:
            _end([process for process in processes if process.pid is not None])
        return [json.loads((folder / f"{rank}.json").read_text(encoding="utf-8")) for rank in range(count)]


def _await(processes: Sequence[BaseProcess], folder: Path, deadline_s: float, limit_s: float) -> None:
    """Return once all ranks have finished."""
    running = dict(enumerate(processes))
    while running:
        wait([process.sentinel for process in running.values()], max(0.0, deadline_s - time.monotonic()))
        ended = {rank: process for rank, process in running.items() if process.exitcode is not None}
        failed = [rank for rank in ended if not (folder / f"{rank}.json").exists()]
        if failed:
            # the others fail because of the first one
            errors = {rank: folder / f"{rank}.error" for rank in range(len(processes))}
            written = sorted(((path.stat().st_mtime_ns, rank) for rank, path in errors.items() if path.exists()))
            if written:
                rank = written[0][1]
                raise RankError(f"rank {rank} of {len(processes)} failed: {errors[rank].read_text(encoding='utf-8')}")
            code = processes[failed[0]].exitcode or 0
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            raise RankError(
                f"rank {failed[0]} of {len(processes)} died ({how}); the others were ended. Check its GPU and the "
                "memory of the machine, and run the command again."
            )
        for rank in ended:
            del running[rank]
        if running and time.monotonic() >= deadline_s:
            ranks = ", ".join(map(str, running))
            raise RankError(
                f"rank {ranks} of {len(processes)} did not finish within {limit_s:.0f} s; all were ended. Another "
                "program may hold the GPUs, or their link is broken: see `nvidia-smi topo -m`."
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
            timeout=datetime.timedelta(seconds=limit_s),
        )
        result = work(rank, *arguments)
        distributed.destroy_process_group()
    except Exception as error:  # noqa: BLE001  # whatever a rank raises becomes one message
        text = " ".join(f"{type(error).__name__}: {error}".split())
        (folder / f"{rank}.error").write_text(f"{text:.300}", encoding="utf-8")
        raise SystemExit(1) from None
    part = folder / f"{rank}.part"
    part.write_text(json.dumps(result), encoding="utf-8")
    part.rename(folder / f"{rank}.json")
