"""Opening the bench that goes with a GPU. Nothing of torch is imported for a virtual one."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from clockwatt.config import CampaignConfig
from clockwatt.gpu.interface import Gpu
from clockwatt.gpu.virtual.card import VirtualGpu
from clockwatt.measure import reference_operations, tasks
from clockwatt.measure.bench.interface import Bench
from clockwatt.measure.bench.virtual import VirtualBench
from clockwatt.telemetry.logger import virtual_logger
from clockwatt.telemetry.process import logger_process


@dataclass(frozen=True)
class BenchSettings:
    """Settings that a bench is opened with."""

    config: CampaignConfig
    session_id: str
    telemetry_dir: Path
    catalogue_dir: Path
    operation_ids: set[str]
    """Operations of the catalogue that will be measured; reference operations always can be."""


Opener = Callable[[Gpu, BenchSettings], AbstractContextManager[Bench]]


def open_bench(
    config: CampaignConfig, gpu: Gpu, session_id: str, telemetry_dir: Path, catalogue_dir: Path, operation_ids: set[str]
) -> AbstractContextManager[Bench]:
    """Return the bench of a GPU, with its logger running and writing segments to `telemetry_dir`.

    Parameters
    ----------
    operation_ids
        Operations of the catalogue that will be measured; reference operations always can be.

    Raises
    ------
    LoggerError
        If the logger cannot read the GPU.
    """
    settings = BenchSettings(config, session_id, telemetry_dir, catalogue_dir, operation_ids)
    return _OPENERS.get(gpu.vendor, _open_cuda)(gpu, settings)


@contextlib.contextmanager
def register(vendor: str, opener: Opener) -> Iterator[None]:
    """Measure a vendor's GPUs on the bench from `opener` within the context."""
    _OPENERS[vendor] = opener
    try:
        yield
    finally:
        del _OPENERS[vendor]


@contextlib.contextmanager
def _open_virtual(gpu: Gpu, settings: BenchSettings) -> Iterator[Bench]:
    card = cast(VirtualGpu, gpu)
    config = settings.config
    with virtual_logger(card, settings.session_id, settings.telemetry_dir, config.telemetry) as logger:
        yield VirtualBench(card, logger, config.seed, settings.catalogue_dir)


@contextlib.contextmanager
def _open_cuda(gpu: Gpu, settings: BenchSettings) -> Iterator[Bench]:
    # by UUID: inside a Slurm job indices are relative to the job's cgroup; before torch looks for devices
    os.environ["CUDA_VISIBLE_DEVICES"] = gpu.identity.uuid
    from clockwatt.measure.bench.cuda import CudaBench

    specs = tasks.specs(settings.catalogue_dir, settings.operation_ids)
    specs |= {row.operation_id: row.spec for row in reference_operations.anchors()}
    config = settings.config
    logger_of = logger_process(gpu.installed, settings.session_id, settings.telemetry_dir, config.telemetry)
    with logger_of as logger, _no_collection():
        yield CudaBench(gpu, logger, specs, config)


_OPENERS: dict[str, Opener] = {VirtualGpu.vendor: _open_virtual}
"""By vendor. GPUs of all others are measured as CUDA devices, which is what PyTorch calls AMD's, too."""


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
