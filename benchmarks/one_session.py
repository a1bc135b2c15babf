"""One process that measures on one GPU at its default clocks, for benchmarks that compare measurements with others.

What `clockwatt measure` does for each operation is done here for each operation: the measurement, its row in a closed
segment, its telemetry in another.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from clockwatt.config import CampaignConfig
from clockwatt.gpu.registry import open_gpu
from clockwatt.io.segments import SegmentWriter
from clockwatt.measure.bench.interface import Bench, Subject
from clockwatt.measure.bench.registry import open_bench
from clockwatt.measure.calibrate.calibration import Calibration, read
from clockwatt.measure.steps.conditions import Surroundings
from clockwatt.measure.steps.procedure import measure, measure_idle
from clockwatt.schema.execution import FP32
from clockwatt.schema.records import MEASUREMENT_SCHEMA, MeasurementRow


@dataclass(frozen=True)
class OneSession:
    """A GPU ready to measure, and the folder that keeps rows and telemetry."""

    campaign: CampaignConfig
    bench: Bench
    base: MeasurementRow
    around: Surroundings
    rows: SegmentWriter

    def measured(self, subject: Subject) -> tuple[MeasurementRow, float]:
        """Measure as a shard does; gives the row and the seconds it took all in, closing of files included.

        In a virtual GPU's own time the seconds are those of the GPU.
        """
        started_s = self.now_s()
        row = replace(
            self.base,
            kind=subject.kind, subject_id=subject.subject_id, pass_=subject.pass_, execution=subject.execution,
            dtype=subject.dtype, repetition=subject.repetition, flags=[], throttle_reasons=[],
        )  # fmt: skip
        measure(self.bench, subject, row, self.campaign.measurement, self.around)
        self.bench.flush_telemetry()
        self.rows.add([row])
        return row, self.now_s() - started_s

    def now_s(self) -> float:
        """Monotonic time in s, on the clock of the GPU."""
        return self.bench.now_ns() / 1e9


@contextlib.contextmanager
def one_session(
    campaign: CampaignConfig,
    label: str,
    catalogue_dir: Path,
    operation_ids: set[str],
    raw: Path,
    calibration_file: Path | None,
) -> Iterator[OneSession]:
    """Open the GPU `label` of a campaign, its logger writing to `raw`, and read its idle power.

    Without a calibration nothing is known of the sensors, as in `clockwatt measure`.
    """
    calibration = read(calibration_file) if calibration_file else Calibration()
    session_id = uuid.uuid4().hex
    gpu_config = campaign.gpu(label)
    with (
        contextlib.closing(open_gpu(gpu_config.device, seed=campaign.seed, key=f"gpus.{label}.device")) as gpu,
        open_bench(campaign, gpu, session_id, raw / "telemetry", catalogue_dir, operation_ids) as bench,
    ):
        base = MeasurementRow(
            kind="", subject_id="", pass_="", gpu=label, point="default", execution=FP32, dtype="",
            session_id=session_id, virtual=gpu.identity.virtual, gpu_name=gpu.identity.name, gpu_uuid=gpu.identity.uuid,
            driver_version=gpu.identity.driver_version, torch_version=bench.versions.torch,
            cuda_version=bench.versions.cuda,
        )  # fmt: skip
        around = Surroundings(measure_idle(bench, campaign.measurement.idle_s, calibration), calibration)
        yield OneSession(campaign, bench, base, around, SegmentWriter(raw / "rows", MEASUREMENT_SCHEMA, 0.0))


class TimeLimit:
    """Seconds of wall time after which a benchmark stops by itself; run again, it goes on."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def leaves(self, seconds: float) -> bool:
        """Whether so many seconds are left."""
        return time.monotonic() + seconds <= self._end
