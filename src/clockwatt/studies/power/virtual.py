"""A run of the study on a virtual GPU: the traced training step in the card's own time, nothing computed.

The record is one of `clockwatt record`, marked virtual. A virtual host issues the calls; the busier it is, the later
a poll of the sensors comes, as a thread that sleeps between its readings has it. The ring is filled by the card.
"""

from __future__ import annotations

import json
import math
import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from clockwatt.config import CampaignConfig, TelemetryConfig
from clockwatt.control.points import operating_point
from clockwatt.gpu.interface import PowerSample
from clockwatt.gpu.specs import VIRTUAL_DEVICE
from clockwatt.gpu.virtual.card import VirtualGpu
from clockwatt.gpu.virtual.model import Load
from clockwatt.gpu.virtual.sensors import noise
from clockwatt.io.files import write_text
from clockwatt.io.segments import SegmentWriter
from clockwatt.measure.bench.interface import Subject
from clockwatt.measure.bench.virtual import VirtualBench, VirtualWorkload
from clockwatt.schema.records import NETWORK, TELEMETRY_SCHEMA, TRAINING, TelemetryRow
from clockwatt.studies.power import training
from clockwatt.studies.power.data import MADE
from clockwatt.studies.power.plan import PlannedRun, execution_of, study_of
from clockwatt.studies.power.steps import steps_dir, trace_steps
from clockwatt.studies.power.tasks import TRAINING_STEP
from clockwatt.telemetry.all_sensors import EverythingReader, EverythingRecorder
from clockwatt.telemetry.logger import VirtualLogger
from clockwatt.telemetry.recording import layout
from clockwatt.telemetry.recording.layout import HOST, Logged, Record, RecordedGpu, Run
from clockwatt.telemetry.recording.versions import versions
from clockwatt.telemetry.rings import SHORTEST_PERIOD_S
from clockwatt.telemetry.sampling import SLOW

_PERIODS = TelemetryConfig(ring_period_s=SHORTEST_PERIOD_S)
_LOAD_S = 1.0
_BETWEEN_EPOCHS_S = 0.02
_LAST_READINGS_S = 0.3
_LOOK_EVERY_S = 1.0
_EPOCH_JITTER = 0.004
"""Standard deviation of an epoch's time, relative."""

_CORES = 4
_LATE_IDLE_S, _LATE_BUSY_S = 0.4e-3, 8e-3
"""Mean delay of a poll, in s, on an idle host and on one that issues calls without a pause."""

_STAMP_NOISE_S = 0.2e-3
"""Standard deviation of the ring's time stamps."""


class StudyGpu(VirtualGpu):
    """A virtual GPU whose ring stamps its samples as coarsely as real drivers do.

    What a power limit does to it depends on how busy it is: a network that the host holds up draws less than one
    that keeps the device busy, and is not slowed.
    """

    def paced(self, work: Load, host_s: float, added_s: float) -> tuple[float, float]:
        """Return the time of a step in s, and the share of it in which the device is busy, at the settled clock.

        The clock depends on how busy the device is, and that on the clock: a device that waits for the host may clock
        higher, is done sooner and waits longer.

        Parameters
        ----------
        work
            The device work of a step.
        host_s
            In which the host issues it.
        added_s
            That the device takes besides.
        """
        busy = 1.0
        while True:
            activity = self._model.activity(work, self._settled_mhz(work, busy), self._memory_mhz)
            device_s = activity.time_s + added_s
            step_s = max(host_s, device_s)
            if device_s / step_s >= busy:  # it only falls, and clocks are finite in number
                return step_s, busy
            busy = device_s / step_s

    def _clock_for(self, work: Load | None) -> int:
        return super()._clock_for(work) if work is None else self._settled_mhz(work, self._busy)

    def _settled_mhz(self, work: Load, busy: float) -> int:
        """Return the highest clock at which it stays within its limit when so busy."""
        asked_mhz = self._locked_sm_mhz or self.spec.boost_clock_mhz
        return self._model.clock_within_limit(work, asked_mhz, self._memory_mhz, self._limit_w, busy=busy or 1.0)

    def _exceeds_limit(self) -> bool:
        return self._sm_mhz > self._clock_for(self._work)

    def power_samples(self, since_us: int) -> Sequence[PowerSample]:
        """See `Gpu`."""
        shifted = [
            PowerSample(
                sample.time_us + round(_STAMP_NOISE_S * 1e6 * noise(self._noise_seed, sample.time_us)), sample.power_w
            )
            for sample in super().power_samples(since_us - round(_STAMP_NOISE_S * 1e7))
        ]
        return [sample for sample in shifted if sample.time_us > since_us]


class _PollingLogger(VirtualLogger):
    """The logger of a virtual GPU on a busy host: each reading comes late by chance.

    Parameters
    ----------
    gpu, recorder
        The card and what reads it.
    rng
        Random number generator of the lateness.
    """

    def __init__(self, gpu: VirtualGpu, recorder: EverythingRecorder, rng: np.random.Generator) -> None:
        super().__init__(gpu, recorder)
        self._rng = rng
        self.host_busy = 0.0
        self._read_ns = self._next_ns()

    def advance(self, seconds: float) -> None:
        """See `VirtualLogger.advance`."""
        end_ns = self._gpu.monotonic_ns + round(seconds * 1e9)
        while self._read_ns <= end_ns:
            self._gpu.advance(max(0, self._read_ns - self._gpu.monotonic_ns) * 1e-9)
            self._recorder.tick(self._gpu.monotonic_ns)
            self._read_ns = self._next_ns()
        self._gpu.advance(max(0, end_ns - self._gpu.monotonic_ns) * 1e-9)

    def _next_ns(self) -> int:
        late_s = self._rng.exponential(_LATE_IDLE_S + _LATE_BUSY_S * self.host_busy)
        return self._recorder.due_ns + round(late_s * 1e9)


class _Marks:
    """Marks as of a real program, on the card's clock."""

    def __init__(self, gpu: VirtualGpu, host: str) -> None:
        self._gpu, self._ids = gpu, 0
        self._lines = [self._line("process", host=host, pid=0, rank=None, python="none: nothing was computed")]

    def begin(self, name: str, index: int | None = None) -> int:
        self._ids += 1
        self._lines.append(self._line("begin", name=name, index=index, id=self._ids, thread=0))
        return self._ids

    def end(self, name: str, number: int, index: int | None = None) -> None:
        self._lines.append(self._line("end", name=name, index=index, id=number, thread=0))

    def mark(self, name: str) -> None:
        self._lines.append(self._line("mark", name=name, index=None))

    def write(self, folder: Path) -> None:
        write_text("\n".join(self._lines) + "\n", folder / "virtual.jsonl")

    def _line(self, event: str, **values: object) -> str:
        times = {"time_ns": self._gpu.monotonic_ns, "monotonic_ns": self._gpu.monotonic_ns}
        return json.dumps({"event": event, **values, **times})


class VirtualRuns:
    """Makes runs on a virtual GPU, one after the other on one card, which stays warm between them.

    Parameters
    ----------
    campaign
        Its study.
    label
        The label of the GPU.
    """

    def __init__(self, campaign: CampaignConfig, label: str) -> None:
        self._campaign, self._label = campaign, label
        self._study = study_of(campaign, label)
        self.gpu = StudyGpu(campaign.gpu(label).device.removeprefix(VIRTUAL_DEVICE), seed=campaign.seed)
        self._host = socket.gethostname()
        self._traced = tempfile.TemporaryDirectory(prefix="clockwatt-steps-")

    def temperature_c(self) -> float:
        """Return the card's temperature now."""
        return self.gpu.temperature_c()

    def record(self, run: PlannedRun, folder: Path, rest_to_c: float) -> None:
        """Make one run and record it in `folder`.

        Raises
        ------
        NotSupportedError
            If the card has no such operating point.
        OutputError
            If the folder cannot be written.
        """
        gpu = self.gpu
        told = self._begun(run)
        with operating_point(gpu, run.point, self._campaign.gpu(self._label).control):
            self._rest(rest_to_c, told)
            self._run(run, folder, told)
        told.complete = True
        told.write(folder)

    def _begun(self, run: PlannedRun) -> Record:
        identity = self.gpu.identity
        epochs, examples = self._study.epochs, run.task.examples_in(self._study)
        return Record(
            name=run.name, command=["virtual", run.task.name, f"--epochs={epochs}", f"--examples={examples}"],
            folder=str(Path.cwd()), host=self._host, point=str(run.point), repeat=1, recorder=0,
            versions=versions([self.gpu]),
            gpus=[RecordedGpu(uuid=identity.uuid, name=identity.name, virtual=True, computed_on=True)],
        )  # fmt: skip

    def _rest(self, rest_to_c: float, told: Record) -> None:
        self.gpu.load(None)
        rested_s = 0.0
        while self.gpu.temperature_c() > rest_to_c:
            if rested_s >= self._study.rest_max_s:
                told.notes.append(
                    f"after a rest of {rested_s:.0f} s still warmer than {rest_to_c:g} °C: "
                    f"{self.gpu.temperature_c():.0f} °C"
                )
                return
            self.gpu.advance(_LOOK_EVERY_S)
            rested_s += _LOOK_EVERY_S

    def _run(self, run: PlannedRun, folder: Path, told: Record) -> None:
        gpu, uuid = self.gpu, self.gpu.identity.uuid
        rng = np.random.default_rng([self._campaign.seed, run.turn])
        reader = EverythingReader(gpu, f"run-1/{uuid}", self._now, cpu_ns=lambda: 0, sensor_cpu_share=1.0)
        # in virtual time there is nothing to lose to a kill: the record counts when it is complete
        writer = SegmentWriter(layout.telemetry_folder(folder, 1, uuid), TELEMETRY_SCHEMA, math.inf)
        recorder = EverythingRecorder(reader, writer, _PERIODS, gpu.monotonic_ns)
        logger = _PollingLogger(gpu, recorder, rng)
        of_run = Run(number=1, idle_start_ns=gpu.monotonic_ns, contexts_before={uuid: 0})
        told.runs.append(of_run)
        logger.advance(self._study.idle_s)
        of_run.start_us, of_run.start_ns = self._now()
        marks = _Marks(gpu, self._host)
        bench = VirtualBench(gpu, logger, self._campaign.seed, self._steps_of(run))
        with bench.open(self._subject(run)) as workload:
            assert isinstance(workload, VirtualWorkload)
            host_busy = self._train(run, workload, logger, marks, rng)
        of_run.end_ns, of_run.status, of_run.ending = gpu.monotonic_ns, 0, "ended (virtual)"
        logger.advance(_LAST_READINGS_S)
        report = recorder.close()
        of_run.logged[uuid] = Logged.model_validate(
            {"dropped_ticks": report.dropped_ticks, "failed_readings": report.failed_readings,
             "rings": {name: vars(ring) for name, ring in report.rings.items()}}
        )  # fmt: skip
        marks.write(layout.marks_folder(folder, 1))
        self._write_host(folder, of_run, host_busy)

    def _train(
        self,
        run: PlannedRun,
        workload: VirtualWorkload,
        logger: _PollingLogger,
        marks: _Marks,
        rng: np.random.Generator,
    ) -> float:
        """The phases of the script, and what the device does in each; the share of the time in which the host works."""
        gpu, steps = self.gpu, run.task.examples_in(self._study) // run.task.batch
        assert workload.load is not None
        step_s, busy = gpu.paced(workload.load, workload.host_s, workload.model.device_extra_s)
        host_busy = workload.host_s / step_s
        experiment, load = marks.begin(training.EXPERIMENT), marks.begin(training.LOAD)
        marks.mark(f"data: {MADE}")
        logger.advance(_LOAD_S)
        marks.end(training.LOAD, load)
        whole = marks.begin(training.TRAINING)
        for index in range(self._study.epochs):
            epoch = marks.begin(training.EPOCH, index)
            gpu.load(workload.load, busy)
            logger.host_busy = host_busy
            logger.advance(steps * step_s * (1 + _EPOCH_JITTER * abs(rng.standard_normal())))
            gpu.load(None)
            logger.host_busy = 0.0
            logger.advance(_BETWEEN_EPOCHS_S)
            marks.end(training.EPOCH, epoch, index)
        marks.end(training.TRAINING, whole)
        marks.end(training.EXPERIMENT, experiment)
        return host_busy

    def _steps_of(self, run: PlannedRun) -> Path:
        """Return the catalogue of the run's training step, traced now if its optimizer is not the usual one."""
        training = run.task.training_in(self._study)
        if training == TRAINING_STEP:
            return steps_dir()
        folder = Path(self._traced.name) / run.task.name
        if not folder.exists():
            trace_steps(folder, [run.task], training)
        return folder

    def _subject(self, run: PlannedRun) -> Subject:
        return Subject(
            NETWORK, run.task.network.network_id, TRAINING, execution_of(self._campaign, self._label), "float32",
            run.repetition, device_work=True,
        )  # fmt: skip

    def _now(self) -> tuple[int, int]:
        return self.gpu.epoch_us, self.gpu.monotonic_ns

    def _write_host(self, folder: Path, run: Run, busy: float) -> None:
        """The virtual host: one core issues calls, the others idle."""
        assert run.start_ns is not None
        assert run.end_ns is not None
        period_ns = round(_PERIODS.slow_period_s * 1e9)
        training_from_ns = run.start_ns + round(_LOAD_S * 1e9)
        rows = [
            TelemetryRow(
                session_id=f"run-1/{HOST}", lane=SLOW, time_us=now_ns // 1000, monotonic_ns=now_ns,
                host_cpu_utilization_percent=[100 * (busy if now_ns > training_from_ns else 0.0) / _CORES],
            )
            for now_ns in range(run.start_ns, run.end_ns, period_ns)
        ]  # fmt: skip
        writer = SegmentWriter(layout.telemetry_folder(folder, 1, HOST), TELEMETRY_SCHEMA, math.inf)
        writer.add(rows)
        writer.flush()
