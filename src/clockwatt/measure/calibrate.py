"""Calibration of a GPU at an operating point: what later stages need to know of its sensors and of its host.

Sensor periods, idle power, host costs, time against the number of iterations (the thesis's proportionality study) and
the transient of power after a load begins. Nothing else measures these.
"""

from __future__ import annotations

import contextlib
import socket
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import clockwatt
from clockwatt import files, records
from clockwatt.config import CampaignConfig, OperatingPoint
from clockwatt.control.points import operating_point
from clockwatt.gpu.select import open_gpu
from clockwatt.gpu.sensors import update_periods_s
from clockwatt.measure import anchors
from clockwatt.measure.bench import Bench, Subject, Workload, under_load
from clockwatt.measure.open import open_bench
from clockwatt.measure.procedure import measure_idle
from clockwatt.measure.statistics import Estimate, median_estimate
from clockwatt.progress import progress
from clockwatt.records import ANCHOR, CALIBRATION_SCHEMA, INFERENCE, CalibrationRow

_POLL_S = 2.0
_ITERATIONS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
_CURVE_REPEATS = 5
_TRANSIENT_RUNS = 5
_REST_S = 1.0
_LOAD_S = 1.5

IDLE_POWER = "power_idle_w"
SENSOR_PERIOD = "sensor_period_s"
TIME_AGAINST_ITERATIONS = "time_per_call_s"
POWER_TRANSIENT = "power_transient_w"


def calibrate(config: CampaignConfig, *, label: str, point: OperatingPoint, catalogue_dir: Path, output: Path) -> None:
    """Calibrate a GPU at an operating point and write `output`, rows of `CalibrationRow`.

    Raises
    ------
    GpuError, DataFileError, OutputError
        As in `measure_shard`.
    """
    gpu_config = config.gpu(label)
    with (
        contextlib.closing(open_gpu(gpu_config.device, seed=config.seed, key=f"gpus.{label}.device")) as gpu,
        operating_point(gpu, point, gpu_config.control),
        tempfile.TemporaryDirectory() as telemetry,  # what matters of it is in the rows
        open_bench(config, gpu, uuid.uuid4().hex, Path(telemetry), catalogue_dir, set()) as bench,
    ):
        rows = _Calibration(config, bench, label, point).run()
    files.write_table(records.table_of(rows, CALIBRATION_SCHEMA), output)


class _Calibration:
    """Collects the rows of one calibration."""

    def __init__(self, config: CampaignConfig, bench: Bench, label: str, point: OperatingPoint) -> None:
        self._config, self._bench = config, bench
        self._label, self._point = label, str(point)
        self._tf32 = config.gpu(label).tf32[0]
        self._rows: list[CalibrationRow] = []

    def run(self) -> list[CalibrationRow]:
        steps: list[tuple[str, Callable[[], None]]] = [
            ("idle power", self._idle),
            ("sensor periods", self._sensor_periods),
            ("host costs", self._host_costs),
            ("time against iterations", self._iterations),
            ("transient", self._transient),
        ]
        with progress(f"calibrating {self._label} {self._point}", len(steps)) as advance:
            for name, step in steps:
                step()
                advance(name)
        return self._rows

    def _idle(self) -> None:
        self._put(IDLE_POWER, measure_idle(self._bench, self._config.measurement.idle_s).power)

    def _sensor_periods(self) -> None:
        with self._heaviest() as workload, under_load(self._bench, workload) as wait:
            periods = update_periods_s(self._bench.gpu, now_ns=self._bench.now_ns, wait=wait, duration_s=_POLL_S)
        for sensor, period_s in periods.items():
            self._put(SENSOR_PERIOD, None if period_s is None else Estimate(period_s, 0.0, 1), subject=sensor)

    def _host_costs(self) -> None:
        for (quantity, subject), estimate in self._bench.host_costs().items():
            self._put(quantity, estimate, subject=subject)

    def _iterations(self) -> None:
        for anchor in anchors.anchors():
            with self._bench.open(self._subject(anchor.operation_id)) as workload:
                for iterations in _ITERATIONS:
                    times = [self._bench.timed_run(workload, iterations) / iterations for _ in range(_CURVE_REPEATS)]
                    self._put(
                        TIME_AGAINST_ITERATIONS, median_estimate(times), subject=anchor.operation_id, x=iterations
                    )

    def _transient(self) -> None:
        with self._heaviest() as workload:
            for run in range(_TRANSIENT_RUNS):
                self._bench.idle(_REST_S)
                self._bench.take_telemetry()
                start_ns = self._bench.now_ns()
                with under_load(self._bench, workload) as wait:
                    wait(_LOAD_S)
                for reading in self._bench.take_telemetry():
                    power = reading.power_sample_w if reading.power_sample_w is not None else reading.power_instant_w
                    if power is not None and reading.monotonic_ns >= start_ns:
                        since_s = (reading.monotonic_ns - start_ns) / 1e9
                        self._put(
                            POWER_TRANSIENT, Estimate(power, 0.0, 1), subject=f"run{run + 1}-{reading.lane}", x=since_s
                        )

    @contextlib.contextmanager
    def _heaviest(self) -> Iterator[Workload]:
        with self._bench.open(
            self._subject(max(anchors.anchors(), key=lambda row: row.flops).operation_id)
        ) as workload:
            yield workload

    def _subject(self, anchor_id: str) -> Subject:
        return Subject(ANCHOR, anchor_id, INFERENCE, self._tf32, "float32", 0, device_work=True)

    def _put(
        self, quantity: str, estimate: Estimate | None, subject: str | None = None, x: float | None = None
    ) -> None:
        identity = self._bench.gpu.identity
        self._rows.append(
            CalibrationRow(
                gpu=self._label, point=self._point, gpu_name=identity.name, gpu_uuid=identity.uuid,
                virtual=identity.virtual, host=socket.gethostname(), measured_us=self._bench.now_us(),
                measurement_version=clockwatt.MEASUREMENT_VERSION, quantity=quantity, subject=subject, x=x,
                value=estimate.value if estimate else None,
                standard_error=estimate.standard_error if estimate else None,
            )
        )  # fmt: skip
