"""Calibration of a GPU at an operating point: what later stages need to know of its sensors and of its host.

Sensor periods and averaging windows, idle power, costs of calls, time against the number of iterations (the thesis's
proportionality study), the transient of power after a load begins, power across idle and load, and how much one
measurement differs from the next. Nothing else measures these.
"""

from __future__ import annotations

import contextlib
import math
import random
import socket
import tempfile
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np

from clockwatt.config import CampaignConfig, MeasurementConfig, OperatingPoint
from clockwatt.control.points import operating_point
from clockwatt.gpu.registry import open_gpu
from clockwatt.gpu.sensing.sensors import sensor_traits
from clockwatt.io import files
from clockwatt.io.progress import progress
from clockwatt.measure import reference_operations
from clockwatt.measure.bench.interface import Bench, Subject, Workload, under_load
from clockwatt.measure.bench.registry import open_bench
from clockwatt.measure.calibrate.calibration import DEVICE, HOST, POWER_LIMIT, Calibration
from clockwatt.measure.statistics import NORMAL_95, Estimate, median_estimate
from clockwatt.measure.steps.conditions import Surroundings, pace_of
from clockwatt.measure.steps.load import calls_per_block
from clockwatt.measure.steps.procedure import measure, measure_idle
from clockwatt.schema import records
from clockwatt.schema.costs import POWER, TIME_EAGER, Measured
from clockwatt.schema.quantities import UNRESTED, CalibrationQuantity
from clockwatt.schema.records import ANCHOR, CALIBRATION_SCHEMA, INFERENCE, CalibrationRow, MeasurementRow, OperationRow

_ITERATIONS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
_CURVE_REPEATS = 5
_PULSE_BLOCKS = 10
"""Blocks of 2 ms that are issued ahead while sensors are polled: one reading of a counter took up to 18 ms."""
_TRANSIENT_RUNS = 5
_REPEATABILITY_RUNS = 4
_SUSTAINED_WINDOWS = 8
"""Length of a sustained measurement, in shortest windows: 4 s by default."""
_REST_S = 1.0
_LOAD_S = 1.5


@files.damaged_set_aside()
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
        self._execution = config.gpu(label).execution[0]
        self._rows: list[CalibrationRow] = []
        self._calibration = Calibration()
        self._around = Surroundings()

    def run(self) -> list[CalibrationRow]:
        steps: list[tuple[str, Callable[[], None]]] = [
            ("sensors", self._sensors),
            ("idle power", self._idle),
            ("costs of calls", self._call_costs),
            ("time against iterations", self._iterations),
            ("transient", self._transient),
            ("repeatability", self._repeatability),
        ]
        with progress(f"calibrating {self._label} {self._point}", len(steps)) as advance:
            for name, step in steps:
                step()
                advance(name)
        return self._rows

    def _sensors(self) -> None:
        """Periods and windows, from a load that stays below the power limit, whose limiter would make it swing."""
        with self._open(
            max(reference_operations.anchors(), key=lambda row: row.bytes_read + row.bytes_written)
        ) as workload:
            calls = max(1, calls_per_block(self._bench, workload) // _PULSE_BLOCKS)
            traits = sensor_traits(
                self._bench.gpu,
                now_ns=self._bench.now_ns, now_us=self._bench.now_us, rest=self._bench.idle,
                load=lambda: under_load(self._bench, workload, calls=calls, ahead=_PULSE_BLOCKS),
                seed=self._config.seed,
            )  # fmt: skip
        for sensor, found in traits.items():
            for quantity, value in (
                (CalibrationQuantity.SENSOR_PERIOD, found.period_s),
                (CalibrationQuantity.SENSOR_WINDOW, found.window_s),
            ):
                self._put(quantity, None if value is None else Estimate(value, 0.0, 1), subject=sensor)
        self._calibration = Calibration(traits)

    def _idle(self) -> None:
        idle = measure_idle(self._bench, self._config.measurement.idle_s, self._calibration)
        self._around = Surroundings(idle, self._calibration)
        self._put(CalibrationQuantity.IDLE_POWER, idle)

    def _call_costs(self) -> None:
        for (quantity, subject), estimate in self._bench.call_costs().items():
            self._put(quantity, estimate, subject=subject)

    def _iterations(self) -> None:
        for anchor in reference_operations.anchors():
            with self._open(anchor) as workload:
                for iterations in _ITERATIONS:
                    times = [self._bench.timed_run(workload, iterations) / iterations for _ in range(_CURVE_REPEATS)]
                    self._put(
                        CalibrationQuantity.TIME_AGAINST_ITERATIONS,
                        median_estimate(times),
                        subject=anchor.operation_id,
                        x=iterations,
                    )

    def _transient(self) -> None:
        """Power at the start of a load, several times after a rest and several times without one."""
        with self._open(max(reference_operations.anchors(), key=lambda row: row.flops)) as workload:
            for run in range(_TRANSIENT_RUNS):
                self._bench.take_telemetry()
                self._bench.idle(_REST_S)
                self._put_transients(workload, [f"run{run + 1}"])
            self._put_transients(workload, [f"{UNRESTED}{run + 1}" for run in range(_TRANSIENT_RUNS)])

    def _put_transients(self, workload: Workload, runs: Sequence[str]) -> None:
        """Record a load for each run, one right after the other: `x` is the time since its start, below 0 before it."""
        starts_ns = []
        for _ in runs:
            starts_ns.append(self._bench.now_ns())
            with under_load(self._bench, workload) as wait:
                wait(_LOAD_S)
        readings = self._bench.take_telemetry()
        for run, start_ns, end_ns in zip(runs, starts_ns, [*starts_ns[1:], math.inf], strict=True):
            for reading in readings:
                power = reading.power_sample_w if reading.power_sample_w is not None else reading.power_instant_w
                since_s = (reading.monotonic_ns - start_ns) / 1e9
                if power is not None and since_s >= -_REST_S and reading.monotonic_ns < end_ns:
                    self._put(
                        CalibrationQuantity.POWER_TRANSIENT,
                        Estimate(power, 0.0, 1),
                        subject=f"{run}-{reading.lane}",
                        x=since_s,
                    )

    def _repeatability(self) -> None:
        """Measure every reference operation several times, rebuilt each time, on a card at working temperature.

        One of its measurements is longer, to compare short measurements with a sustained one.
        """
        usual = self._config.measurement
        sustained_s = max(_SUSTAINED_WINDOWS * usual.window_min_s, usual.window_max_s)
        long = usual.model_copy(update={"window_min_s": sustained_s, "window_max_s": sustained_s})
        order = random.Random(f"{self._config.seed}/{self._label}/{self._point}")  # noqa: S311  # not a secret
        short: list[MeasurementRow] = []
        sustained: dict[str, MeasurementRow] = {}
        for run in range(_REPEATABILITY_RUNS + 1):
            for anchor in order.sample(reference_operations.anchors(), len(reference_operations.anchors())):
                row = self._measured(anchor, long if run == _REPEATABILITY_RUNS // 2 else usual)
                if run == _REPEATABILITY_RUNS // 2:
                    sustained[anchor.operation_id] = row
                else:
                    short.append(row)
        for pace in (HOST, DEVICE, POWER_LIMIT):
            rows = [row for row in short if pace_of(row) == pace]
            self._put(CalibrationQuantity.TIME_REPEATABILITY, deviation_from(sustained, rows, TIME_EAGER), subject=pace)
            self._put(CalibrationQuantity.POWER_REPEATABILITY, deviation_from(sustained, rows, POWER), subject=pace)

    def _measured(self, anchor: OperationRow, settings: MeasurementConfig) -> MeasurementRow:
        row = MeasurementRow(
            kind=ANCHOR, subject_id=anchor.operation_id, pass_=INFERENCE, gpu=self._label, point=self._point,
            execution=self._execution, dtype=anchor.dtype,
        )  # fmt: skip
        measure(self._bench, self._subject(anchor.operation_id), row, settings, self._around)
        return row

    def _open(self, anchor: OperationRow) -> AbstractContextManager[Workload]:
        return self._bench.open(self._subject(anchor.operation_id))

    def _subject(self, anchor_id: str) -> Subject:
        return Subject(ANCHOR, anchor_id, INFERENCE, self._execution, "float32", 0, device_work=True)

    def _put(
        self, quantity: str, estimate: Estimate | None, subject: str | None = None, x: float | None = None
    ) -> None:
        identity = self._bench.gpu.identity
        self._rows.append(
            CalibrationRow(
                gpu=self._label, point=self._point, gpu_name=identity.name, gpu_uuid=identity.uuid,
                virtual=identity.virtual, host=socket.gethostname(), measured_us=self._bench.now_us(),
                measurement_version=records.MEASUREMENT_VERSION, quantity=quantity, subject=subject, x=x,
                value=estimate.value if estimate else None,
                standard_error=estimate.standard_error if estimate else None,
            )
        )  # fmt: skip


def deviation_from(
    sustained: Mapping[str, MeasurementRow], short: Sequence[MeasurementRow], measured: Measured
) -> Estimate | None:
    """Return relative deviation of short measurements from sustained ones, pooled over operations, as a standard error.

    Root mean square, of which for each operation the variance that the measurements' own errors explain is taken off,
    as between groups in a one-way analysis of variance; where they explain more than there is, none is left. Deviations
    of one operation share its sustained measurement, so operations are what is sampled: with few of them the deviation
    is widened as Student's t distribution with as many degrees of freedom is wider than a normal one.

    Parameters
    ----------
    sustained
        One measurement of each operation, by subject.
    short
        Several of each.
    measured
        What is compared.

    Returns
    -------
    Estimate or None
        None if nothing can be compared. The error is that of a standard deviation of normal samples.
    """
    squares: dict[str, list[float]] = defaultdict(list)
    for row in short:
        if row.subject_id not in sustained:
            continue
        value, error = measured.of(row)
        reference, reference_error = measured.of(sustained[row.subject_id])
        if value is not None and error is not None and reference and reference_error is not None:
            squares[row.subject_id].append(
                (value / reference - 1) ** 2 - (error / reference) ** 2 - (reference_error / reference) ** 2
            )
    if not squares:
        return None
    variances = [max(0.0, float(np.mean(of_one))) for of_one in squares.values()]
    number = sum(len(of_one) for of_one in squares.values())
    deviation = float(np.sqrt(np.mean(variances)))
    from scipy.special import stdtrit  # a third of a second that a finished shard does not need

    wider = float(stdtrit(len(variances), 0.975)) / NORMAL_95
    return Estimate(wider * deviation, wider * deviation / float(np.sqrt(2 * number)), number)
