"""A run of the study on a real GPU: the network's script, run and recorded as by `clockwatt record`."""

from __future__ import annotations

import sys
from pathlib import Path

from clockwatt.config import CampaignConfig
from clockwatt.errors import ClockwattError
from clockwatt.gpu.interface import Gpu
from clockwatt.studies.power.plan import PlannedRun, execution_of, study_of
from clockwatt.studies.power.tasks import MODULE
from clockwatt.telemetry.recording.program import ENDED_BY
from clockwatt.telemetry.recording.session import Settings
from clockwatt.telemetry.recording.session import record as record_program
from clockwatt.telemetry.recording.summary import summarise


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
                f"{run.name}: its script {made.ending}. What it said stands above; run it by hand to see more: "
                f"{' '.join(self._command(run))}"
            )
        summarise(folder)

    def _command(self, run: PlannedRun) -> list[str]:
        study = self._study
        command = [sys.executable, "-m", f"{MODULE}.{run.task.name}", f"--epochs={study.epochs}"]
        command += [f"--device={self._device}", f"--seed={self._campaign.seed}"]
        command += [f"--precision={execution_of(self._campaign, self._label)}"]
        data = run.task.data_in(study)
        return [*command, f"--data={data}" if data else f"--examples={run.task.examples_in(study)}"]
