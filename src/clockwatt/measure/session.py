"""Measure a shard: resume, lock, verify, reference operations, subjects, reference operations, unlock, assemble."""

from __future__ import annotations

import contextlib
import math
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from clockwatt.config import CampaignConfig, GpuConfig, OperatingPoint
from clockwatt.control.points import operating_point
from clockwatt.control.verify import verify
from clockwatt.gpu.registry import open_gpu
from clockwatt.io import files
from clockwatt.io.progress import progress, say
from clockwatt.io.segments import SegmentWriter
from clockwatt.measure import reference_operations, tasks, watchdog
from clockwatt.measure.bench.interface import Bench, BenchLostError, Subject, under_load
from clockwatt.measure.bench.registry import open_bench
from clockwatt.measure.calibrate.calibration import Calibration
from clockwatt.measure.provenance import base_row, mixed_versions
from clockwatt.measure.steps import energy
from clockwatt.measure.steps.conditions import Surroundings
from clockwatt.measure.steps.procedure import measure, measure_idle
from clockwatt.measure.steps.rest import rest
from clockwatt.measure.store import Store
from clockwatt.measure.tasks import Shard
from clockwatt.schema import layout
from clockwatt.schema.execution import ExecutionSettings
from clockwatt.schema.records import (
    ANCHOR,
    FAILED,
    INFERENCE,
    OK,
    OPERATION,
    MeasurementRow,
    OperationRow,
)
from clockwatt.telemetry.logger import LoggerError

_SEGMENT_S = 3.0
"""A file is closed this often, and a kill loses so much at most: closing one takes as long as measuring time alone."""


@dataclass(frozen=True)
class Session:
    """Resources of one measuring process: a GPU at an operating point, and the output folders."""

    config: CampaignConfig
    label: str
    point: OperatingPoint
    shard: Shard
    catalogue_dir: Path
    store: Store
    calibration: Calibration

    @property
    def name(self) -> str:
        """Name in messages."""
        return f"{self.label} at {self.point}, shard {self.shard}"

    @property
    def gpu_config(self) -> GpuConfig:
        """The GPU's part of the campaign."""
        return self.config.gpu(self.label)


def measure_shard(
    config: CampaignConfig,
    *,
    label: str,
    point: OperatingPoint,
    shard: Shard,
    catalogue_dir: Path,
    store_dir: Path,
    output: Path,
    calibration: Calibration | None = None,
    retry_failed: bool = False,
    stop_after_s: float | None = None,
) -> None:
    """Measure what a shard lacks and assemble its file, with its telemetry beside it.

    What is in the store is not measured again; a shard that is finished touches no GPU. Without a calibration the
    periods and averaging windows of the sensors are not known: the energy counter and the moving average say less, and
    errors leave out what one measurement differs from the next.

    Parameters
    ----------
    retry_failed
        Whether what failed is measured again.
    stop_after_s
        Begin no further measurement after so long, and assemble what there is; the same call goes on.

    Raises
    ------
    ConfigError
        If the campaign has no such GPU or operating point.
    DataFileError, OutputError
        If the catalogue or the store cannot be read, or a file cannot be written.
    GpuError
        If the GPU is not there, is another one, or refuses the operating point.
    BenchLostError
        If the GPU cannot be used any more; what was finished is in the store.
    ShardBusyError
        If another process measures the shard.
    ShardUnfinishedError
        If the job nears its time limit; what was finished is in the store.
    """
    end_s = end_of(stop_after_s)
    store = Store(store_dir, config, label, point)
    session = Session(config, label, point, shard, catalogue_dir, store, calibration or Calibration())
    wanted = tasks.subjects(config, session.gpu_config, shard, catalogue_dir)
    with watchdog.only_process(store.shard_file(shard, "lock")):
        left = _measure_wanted(session, wanted, end_s, retry_failed=retry_failed)
    if left and (stop_after_s is None or watchdog.seconds_left() == 0):
        raise watchdog.ShardUnfinishedError(
            f"{label} at {point}, shard {shard}: the job's time is up, with {left} left to measure. Finished "
            "measurements are kept: submitted again, the job continues. A longer slurm.runtime needs fewer jobs."
        )
    if left:
        say(f"stopped after {stop_after_s:g} s with {left} left to measure; to continue, run the same command again")
    rows = session.store.table(tasks.key(subject) for subject in wanted)
    session.store.write_telemetry(rows, layout.telemetry_file(output))
    files.write_table(rows, output)
    if mixed := mixed_versions(rows):
        say(f"{label} at {point}, shard {shard}: {mixed}")


def end_of(stop_after_s: float | None) -> float:
    """Return when to begin no further measurement, on the monotonic clock: after so long, or near the job's limit."""
    limits_s = [seconds for seconds in (stop_after_s, watchdog.seconds_left()) if seconds is not None]
    return time.monotonic() + min(limits_s, default=math.inf)


def lacking(session: Session, wanted: list[Subject], *, retry_failed: bool = False) -> list[Subject]:
    """Return what of `wanted` the store lacks."""
    finished = session.store.finished()
    return [
        subject
        for subject in wanted
        if (found := finished.get(tasks.key(subject))) is None
        or not found.is_enough(energy=subject.energy)
        or (retry_failed and found.status == FAILED)
    ]


def _measure_wanted(session: Session, wanted: list[Subject], end_s: float, *, retry_failed: bool) -> int:
    """Measure what the store lacks of `wanted`, with a new logger where one died; returns how many are left."""
    for attempt in range(1, watchdog.STRIKES + 1):
        pending = lacking(session, wanted, retry_failed=retry_failed)
        say(f"{session.name}: {len(wanted) - len(pending)} of {len(wanted)} already measured")
        if not pending:
            return 0
        if any(subject.energy for subject in pending) and (warning := _power_warning(session)):
            say(warning)
        operation_ids = {subject.subject_id for subject in pending if subject.kind == OPERATION}
        try:
            with running(session, operation_ids, energy=any(subject.energy for subject in pending)) as run:
                left = measure_pending(session, run, pending, end_s)
                run.measure_anchors()
                return left
        except LoggerError as error:
            if attempt == watchdog.STRIKES:
                raise
            say(f"{session.name}: {error} It starts again, and the unfinished operation is measured again.")
    raise AssertionError("unreachable")


def _power_warning(session: Session) -> str | None:
    """Return the message if no sensor of the calibration resolves the power within the campaign's longest window."""
    sensors = session.calibration.sensors
    needed_s = energy.shortest_window_s(sensors, session.config.telemetry.fast_period_s)
    longest_s = session.config.measurement.window_max_s
    if not needed_s or min(needed_s.values()) <= longest_s:
        return None
    sensor = min(needed_s, key=lambda name: needed_s[name])
    enough_s = math.ceil(10 * needed_s[sensor]) / 10
    return (
        f"{session.label}: its quickest power sensor, {sensor}, needs a window of {needed_s[sensor]:.2f} s: within "
        f"measurement.window_max_s = {longest_s:g} s power may be missing. Set measurement.window_max_s to "
        f"{enough_s:g} or more."
    )


def measure_pending(session: Session, run: Run, pending: list[Subject], end_s: float) -> int:
    """Measure in shuffled order until it is `end_s` on the monotonic clock; returns how many are left."""
    left, timer = len(pending), watchdog.Watchdog()
    with (
        watchdog.UnderWay(session.store.shard_file(session.shard, "under-way")) as under_way,
        progress(f"{session.label} {session.point} {session.shard}", left) as advance,
    ):
        for subject in tasks.shuffled(pending, session.config, session.label, session.point):
            if time.monotonic() >= end_s:
                break
            if run.check_is_due:
                run.check()
            with _watched(under_way, timer, subject) as strikes:
                run.measure(subject, strikes)
            left -= 1
            advance(f"{subject.subject_id} {subject.pass_}")
    return left


@contextlib.contextmanager
def running(session: Session, operation_ids: set[str], *, energy: bool) -> Iterator[Run]:
    """Set the operating point, measure the reference operations, and yield what measures on this GPU.

    Parameters
    ----------
    operation_ids
        Operations of the catalogue that will be measured.
    energy
        Whether energy is measured of the reference operations, too, so that idle power is read before and after them.
        Otherwise it is read before the first energy. Each check reads it again: cards drift in minutes.
    """
    session_id = uuid.uuid4().hex
    anchor_ids = [row.operation_id for row in reference_operations.anchors()]
    with (
        contextlib.closing(
            open_gpu(session.gpu_config.device, seed=session.config.seed, key=f"gpus.{session.label}.device")
        ) as gpu,
        operating_point(gpu, session.point, session.gpu_config.control) as applied,
        open_bench(
            session.config, gpu, session_id, session.store.telemetry_folder, session.catalogue_dir, operation_ids
        ) as bench,
        _segments(session) as writer,
    ):
        for warning in applied.warnings:
            say(warning)
        if not session.point.is_default:
            verify_point(
                bench, session.point, session.gpu_config, max(reference_operations.anchors(), key=lambda row: row.flops)
            )
        settings = session.config.measurement
        if settings.rest_to_c is not None:
            rest(bench, settings.rest_to_c, settings.rest_max_s)
        base = base_row(
            bench, session.label, session.point, session.shard,
            session_id=session_id, settings_id=session.store.settings_id,
        )  # fmt: skip
        run = Run(session, bench, writer, base, anchor_ids, energy=energy)
        run.check()
        yield run


@contextlib.contextmanager
def _watched(
    under_way: watchdog.UnderWay, timer: watchdog.Watchdog, subject: Subject
) -> Iterator[watchdog.Strikes | None]:
    """Watch over one measurement; yields what is known of processes that died of it.

    One that ends in order is no strike, unless what was measured left it without its GPU.
    """
    key = tasks.key(subject)
    under_way.begin(key)
    try:
        with timer.watching(f"{subject.subject_id} {subject.pass_}", partial(under_way.blame, key)):
            yield under_way.strikes(key)
    except BenchLostError as error:
        under_way.blame(key, str(error))
        raise
    except BaseException:
        if not timer.barked:
            under_way.end(key)
        raise
    under_way.end(key)


def verify_point(bench: Bench, point: OperatingPoint, gpu_config: GpuConfig, load: OperationRow) -> None:
    """Run `load` until the clocks are what was asked for; say so if they are not.

    Raises
    ------
    ClockMismatchError
        If they are not reached and the campaign wants an error rather than flagged rows.
    """
    with (
        bench.open(anchor_subject(load.operation_id, gpu_config.execution[0])) as workload,
        under_load(bench, workload) as wait,
    ):
        seen = verify(bench.gpu, point, gpu_config.control, wait=wait)
    if not seen.reached:
        say(
            f"{bench.gpu.identity.name}: {point} was not reached under load: SM clock {seen.sm_clocks_mhz[-1]} MHz, "
            f"memory clock {seen.memory_clocks_mhz[-1]} MHz ({', '.join(seen.throttle_reasons) or 'no reason given'}). "
            "The measurements get the flag clock_off_target."
        )


def anchor_subject(operation_id: str, execution: ExecutionSettings, *, energy: bool = True) -> Subject:
    """Return a reference operation as a subject."""
    return Subject(ANCHOR, operation_id, INFERENCE, execution, "float32", 0, device_work=True, energy=energy)


class Run:
    """Measure the subjects of one session in order; without `energy`, times alone of reference operations."""

    def __init__(
        self,
        session: Session,
        bench: Bench,
        writer: SegmentWriter,
        base: MeasurementRow,
        anchor_ids: list[str],
        *,
        energy: bool,
    ) -> None:
        self._config = session.config.measurement
        self._execution = session.gpu_config.execution[0]
        self._bench, self._writer, self._base = bench, writer, base
        self._anchor_ids, self._energy = anchor_ids, energy
        self._around, self._idle_is_read = Surroundings(calibration=session.calibration), False
        self._checked_ns = bench.now_ns()
        self._position = 0

    @property
    def check_is_due(self) -> bool:
        """Whether so long has passed since the last check as the campaign says."""
        return (self._bench.now_ns() - self._checked_ns) / 1e9 >= self._config.check_every_s

    def check(self) -> None:
        """Measure the reference operations, which show drift, and, once it was needed, idle power, on a warm card."""
        self.measure_anchors()
        if self._idle_is_read:
            self._measure_idle()
        self._checked_ns = self._bench.now_ns()

    def _measure_idle(self) -> None:
        self._idle_is_read = True
        idle = measure_idle(self._bench, self._config.idle_s, self._around.calibration)
        self._around = replace(self._around, idle=idle)

    def measure_anchors(self) -> None:
        """Measure each reference operation once."""
        for anchor_id in self._anchor_ids:
            self.measure(anchor_subject(anchor_id, self._execution, energy=self._energy))

    def measure(self, subject: Subject, strikes: watchdog.Strikes | None = None) -> None:
        """Measure a subject, unless so many processes died of it that it is left out with a row that says so."""
        if subject.energy and not self._idle_is_read:
            self._measure_idle()
        row = replace(
            self._base,
            kind=subject.kind, subject_id=subject.subject_id, pass_=subject.pass_, execution=subject.execution,
            dtype=subject.dtype, repetition=subject.repetition, position=self._position,
            flags=[], throttle_reasons=[],
        )  # fmt: skip
        self._position += 1
        try:
            if strikes is not None and strikes.count >= watchdog.STRIKES:
                row.started_us = row.ended_us = self._bench.now_us()
                row.status = FAILED
                row.error = f"left out: {strikes.count} processes ended while it was measured, the last: {strikes.why}"
                return
            measure(self._bench, subject, row, self._config, self._around)
        finally:
            # a subject that a signal or another error stopped has no end: it is not finished
            if row.ended_us or row.status != OK:
                if self._writer.is_due:
                    self._flush_telemetry()
                self._writer.add([row])

    def flush(self) -> None:
        """Have in the store what is measured."""
        self._flush_telemetry()
        self._writer.flush()

    def _flush_telemetry(self) -> None:
        """Close its segment, so that a row that a kill leaves has its telemetry."""
        self._bench.flush_telemetry()
        self._bench.take_telemetry()  # what nobody asked for would pile up in the logger


@contextlib.contextmanager
def _segments(session: Session) -> Iterator[SegmentWriter]:
    writer = session.store.writer(_SEGMENT_S)
    try:
        yield writer
    finally:
        writer.merge()
