"""Opening the bench that goes with a GPU. Nothing of torch is imported for a virtual one."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Iterator
from pathlib import Path

from clockwatt.config import CampaignConfig
from clockwatt.gpu.interface import Gpu
from clockwatt.gpu.virtual.card import VirtualGpu
from clockwatt.measure import anchors, tasks
from clockwatt.measure.bench.interface import Bench
from clockwatt.measure.bench.virtual import VirtualBench
from clockwatt.telemetry.logger import virtual_logger
from clockwatt.telemetry.process import logger_process


@contextlib.contextmanager
def open_bench(
    config: CampaignConfig, gpu: Gpu, session_id: str, telemetry_dir: Path, catalogue_dir: Path, operation_ids: set[str]
) -> Iterator[Bench]:
    """The bench that goes with a GPU, its logger running and writing segments to `telemetry_dir`.

    Parameters
    ----------
    operation_ids
        Operations of the catalogue that will be measured; the anchors always can be.

    Raises
    ------
    LoggerError
        If the logger cannot read the GPU.
    """
    if isinstance(gpu, VirtualGpu):
        with virtual_logger(gpu, session_id, telemetry_dir, config.telemetry) as virtual:
            yield VirtualBench(gpu, virtual, config.seed, catalogue_dir)
        return
    # by UUID: inside a Slurm job indices are relative to the job's cgroup; before torch looks for devices
    os.environ["CUDA_VISIBLE_DEVICES"] = gpu.identity.uuid
    from clockwatt.measure.bench.cuda import CudaBench

    specs = tasks.specs(catalogue_dir, operation_ids) | {row.operation_id: row.spec for row in anchors.anchors()}
    with logger_process(gpu.identity.uuid, session_id, telemetry_dir, config.telemetry) as logger, _no_collection():
        yield CudaBench(gpu, logger, specs, config)


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Keep the garbage collector out of what is timed; it runs between two subjects, over what is new."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()
