"""The stage that needs a GPU: every run of the study that is not recorded yet, then tables of all records."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from clockwatt.config import CampaignConfig
from clockwatt.control.points import check_supported
from clockwatt.errors import ClockwattError, DataFileError
from clockwatt.gpu.interface import Gpu, GpuError, NotSupportedError
from clockwatt.gpu.registry import open_gpu
from clockwatt.io.files import write_text
from clockwatt.io.output import told_as_output
from clockwatt.io.progress import progress
from clockwatt.measure.watchdog import only_process
from clockwatt.studies.power import tables
from clockwatt.studies.power.plan import RECORDS, PlannedRun, execution_of, planned_runs, study_of
from clockwatt.studies.power.tasks import MODULE
from clockwatt.studies.power.virtual import VirtualRuns
from clockwatt.telemetry.recording.program import ENDED_BY
from clockwatt.telemetry.recording.session import Settings
from clockwatt.telemetry.recording.session import record as record_program
from clockwatt.telemetry.recording.summary import summarise

_WARMER_C = 3.0
"""Default of the temperature to rest to, in K above the temperature before the first run."""

_HOTTEST_C = 120.0
_UNFINISHED = ".unfinished"


def measure_study(campaign: CampaignConfig, label: str, study_dir: Path) -> None:
    """Record every run of the study on a GPU, and write the tables of all of them.

    What is finished stays in the folder's `records`: a process that was killed goes on with the run that it was at.

    Parameters
    ----------
    campaign
        Its study.
    label
        The label of the GPU.
    study_dir
        The study's folder of this GPU.

    Raises
    ------
    ConfigError
        If the campaign has no such study.
    ClockwattError
        If another process is at it, or a script fails.
    GpuError
        If the GPU cannot be read, or not be held at an operating point.
    OutputError
        If the folder cannot be written.
    """
    study = study_of(campaign, label)
    runs = planned_runs(campaign, label)
    with only_process(study_dir / RECORDS / "lock"), progress(f"{label}: runs", len(runs)) as advance:
        missing = [run for run in runs if not run.folder(study_dir).exists()]
        for run in runs:
            if run not in missing:
                advance(f"{run.name} is there")
        if missing:
            made_by = _opened(campaign, label)
            _check_points(campaign, label, made_by)
            rest_to_c = study.rest_to_c or _baseline_c(study_dir, made_by)
            for run in missing:
                _record(run, study_dir, made_by, rest_to_c)
                advance(run.name)
    tables.write(runs, label, study_dir)


def _opened(campaign: CampaignConfig, label: str) -> RealRuns | VirtualRuns:
    config = campaign.gpu(label)
    if config.virtual_model is None:
        return RealRuns(campaign, label, open_gpu(config.device, seed=campaign.seed, key=f"gpus.{label}.device"))
    return VirtualRuns(campaign, label)


def _check_points(campaign: CampaignConfig, label: str, made_by: RealRuns | VirtualRuns) -> None:
    """Refuse points that the GPU does not have before hours are spent on others."""
    for point in study_of(campaign, label).gpus[label].points:
        try:
            check_supported(made_by.gpu, point)
        except NotSupportedError as error:
            raise NotSupportedError(f"studies.power.gpus.{label}: {error}") from None


def _record(run: PlannedRun, study_dir: Path, made_by: RealRuns | VirtualRuns, rest_to_c: float) -> None:
    """Make a run aside and put it in its place when it is finished."""
    folder = run.folder(study_dir)
    aside = folder.with_name(folder.name + _UNFINISHED)
    with told_as_output(aside):
        shutil.rmtree(aside, ignore_errors=True)  # of a process that was killed
    made_by.record(run, aside, rest_to_c)
    with told_as_output(folder):
        aside.rename(folder)


def _baseline_c(study_dir: Path, made_by: RealRuns | VirtualRuns) -> float:
    """Return the temperature to rest to: that before the first run, and a little."""
    path = study_dir / RECORDS / "baseline.json"
    if not path.exists():
        try:
            now_c: float | None = made_by.temperature_c()
        except GpuError:
            now_c = None
        write_text(json.dumps({"temperature_c": now_c}) + "\n", path)
    try:
        before_c = json.loads(path.read_text(encoding="utf-8"))["temperature_c"]
        return _HOTTEST_C if before_c is None else float(before_c) + _WARMER_C
    except (ValueError, KeyError, TypeError) as error:
        raise DataFileError(
            f"{path}: is damaged ({error}). Delete it: the next run reads the temperature again."
        ) from error


class RealRuns:
    """Makes runs on a real GPU.

    Parameters
    ----------
    campaign
        Its study.
    label
        The label of the GPU.
    gpu
        Open, and the one that a program of this process computes on.
    device
        Device that the script computes on: `cuda`, or `cpu` where the GPU is a stand-in.
    """

    def __init__(self, campaign: CampaignConfig, label: str, gpu: Gpu, device: str = "cuda") -> None:
        self._campaign, self._label, self._device = campaign, label, device
        self.gpu = gpu
        self._study = study_of(campaign, label)

    def temperature_c(self) -> float:
        """Return the card's temperature now.

        Raises
        ------
        GpuError
            If it shows none.
        """
        return self.gpu.temperature_c()

    def record(self, run: PlannedRun, folder: Path, rest_to_c: float) -> None:
        """Make one run and record it in `folder`.

        Raises
        ------
        ClockwattError
            If the script fails.
        GpuError
            If the GPU cannot be read, or not be held at the operating point.
        OutputError
            If the folder cannot be written.
        SystemExit
            If a signal asked for the end: the run does not count.
        """
        settings = Settings(
            point=run.point, control=self._campaign.gpu(self._label).control, name=run.name, rest_to_c=rest_to_c,
            rest_max_s=self._study.rest_max_s, idle_s=self._study.idle_s, hooks=False,
        )  # fmt: skip
        told = record_program(self._command(run), [self.gpu], folder, settings)
        (made,) = told.runs
        if made.status in ENDED_BY:
            raise SystemExit(made.status)
        if made.status != 0:
            raise ClockwattError(
                f"{run.name}: its script {made.ending}. See its messages above, or run it by hand: "
                f"{' '.join(self._command(run))}"
            )
        summarise(folder)

    def _command(self, run: PlannedRun) -> list[str]:
        study = self._study
        command = [sys.executable, "-m", f"{MODULE}.{run.task.name}", f"--epochs={study.epochs}"]
        command += [f"--device={self._device}", f"--seed={self._campaign.seed}"]
        command += [f"--precision={execution_of(self._campaign, self._label)}"]
        command += [f"--optimizer={run.task.training_in(study).optimizer}"]
        data = run.task.data_in(study)
        return [*command, f"--data={data}" if data else f"--examples={run.task.examples_in(study)}"]
