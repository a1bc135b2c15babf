"""Provenance of a measurement: GPU, host, job and versions, the same in all rows of a session."""

from __future__ import annotations

import os
import platform
import socket
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from clockwatt import __version__
from clockwatt.config import OperatingPoint
from clockwatt.measure.bench.interface import Bench
from clockwatt.measure.tasks import Shard
from clockwatt.schema.execution import FP32
from clockwatt.schema.records import ANCHOR, MEASUREMENT_VERSION, MeasurementRow


def base_row(
    bench: Bench, label: str, point: OperatingPoint, shard: Shard, *, session_id: str, settings_id: str
) -> MeasurementRow:
    """Return a row with the columns that all rows of a session share."""
    identity = bench.gpu.identity
    return MeasurementRow(
        kind="", subject_id="", pass_="", execution=FP32, dtype="",
        gpu=label, point=str(point), session_id=session_id, shard=str(shard),
        measurement_version=MEASUREMENT_VERSION, settings_id=settings_id, clockwatt_version=__version__,
        virtual=identity.virtual, gpu_name=identity.name, gpu_uuid=identity.uuid,
        driver_version=identity.driver_version,
        host=socket.gethostname(), slurm_job_id=os.environ.get("SLURM_JOB_ID"), cpu_model=_cpu_model(),
        cuda_version=bench.versions.cuda, torch_version=bench.versions.torch, cudnn_version=bench.versions.cudnn,
        requested_sm_clock_mhz=point.sm_clock_mhz, requested_memory_clock_mhz=point.memory_clock_mhz,
        requested_power_limit_w=point.power_limit_w,
    )  # fmt: skip


def _cpu_model() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if Path("/proc/cpuinfo").is_file() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor()


def mixed_versions(rows: pa.Table) -> str | None:
    """Return a warning if a shard's rows were measured with several drivers or versions of torch; else None."""
    columns = ["driver_version", "torch_version", "cuda_version", "cudnn_version"]
    counts = rows.filter(pc.field("kind") != ANCHOR).group_by(columns).aggregate([([], "count_all")]).to_pylist()
    if len(counts) < 2:
        return None
    return "measured with several versions: " + "; ".join(
        f"{row['count_all']} rows with driver {row['driver_version']}, torch {row['torch_version']}, "
        f"CUDA {row['cuda_version']}, cuDNN {row['cudnn_version']}"
        for row in counts
    )
