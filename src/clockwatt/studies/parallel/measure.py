"""Measure networks on one and several GPUs of this machine: a process for each GPU, one logger for all of them.

```
cases/      what each rank measured of each case; finished ones are kept, so that a job that was killed goes on
```
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from clockwatt import signals
from clockwatt.config import CampaignConfig, ParallelStudyConfig
from clockwatt.errors import ClockwattError
from clockwatt.gpu.interface import Gpu, GpuNotFoundError
from clockwatt.gpu.registry import open_installed, visible_gpus
from clockwatt.io.files import write_text
from clockwatt.io.progress import say
from clockwatt.measure.links.ranks import RankError, run_ranks
from clockwatt.studies.parallel.cases import Case, Result, Timing, case_file, cases_of, result_file
from clockwatt.studies.parallel.names import PIPELINE
from clockwatt.studies.parallel.tables import write_tables
from clockwatt.studies.parallel.work import measure
from clockwatt.telemetry.recording.gpu_summary import LONGEST_GAP_S, known, power_readings
from clockwatt.telemetry.recording.layout import Run
from clockwatt.telemetry.recording.loggers import Loggers
from clockwatt.telemetry.recording.summary import telemetry_of
from clockwatt.telemetry.recording.virtual import RealTimeGpu

_LAST_READINGS_S = 0.5
"""Sensors are read on for so long, so that each has a reading after the last window."""


def measure_study(campaign: CampaignConfig, label: str, folder: Path) -> None:
    """Measure all cases of the study on a GPU and write `steps.parquet`, `ranks.parquet` and `spans.parquet`.

    Nothing sets a clock or a power limit.

    Parameters
    ----------
    campaign
        With `studies.parallel`.
    label
        The label of the GPU.
    folder
        Where it is written. Cases that are finished there are kept.

    Raises
    ------
    ConfigError
        If the campaign has no such study or GPU.
    GpuError
        If there are fewer GPUs than the study needs.
    ClockwattError
        If a case failed; the tables hold the others.
    """
    study = campaign.studies.study_parallel()
    failed, measured = list[str](), list[Path]()
    with _opened(campaign, label, max(study.counts)) as gpus:
        for count in study.counts:
            cases = cases_of(campaign, label, count)
            left = [case for case in cases if not case_file(folder, case).exists()]
            while left:
                say(f"{count} GPU{'s' * (count > 1)}: {', '.join(case.name for case in left)}")
                error = _run(left, gpus[:count], study, folder)
                left = [case for case in left if not case_file(folder, case).exists()]
                if error is not None and left:
                    say(f"{left[0].name}: {error}")
                    failed.append(f"{left.pop(0).name}: {error}")
            measured += [path for case in cases if (path := case_file(folder, case)).exists()]
    if measured:
        write_tables(measured, label, folder)
    if failed:
        raise ClockwattError(
            f"studies.parallel: {len(failed)} of {len(measured) + len(failed)} cases failed. The first is "
            f"{failed[0]} The log has all messages. All measurements are kept. Run it again to repeat what failed."
        )


@contextlib.contextmanager
def _opened(campaign: CampaignConfig, label: str, count: int) -> Iterator[list[Gpu]]:
    config = campaign.gpu(label)
    with contextlib.ExitStack() as stack:
        if config.virtual_model is not None:
            gpus: list[Gpu] = [RealTimeGpu(config.virtual_model, card) for card in range(count)]
        else:
            here = [one for one in visible_gpus() if one.name.casefold() == config.device.casefold()]
            if len(here) < count:
                raise GpuNotFoundError(
                    f"{count} GPUs are needed, and {len(here)} visible {'is a' if len(here) == 1 else 'are'} "
                    f"{config.device} (studies.parallel.counts, gpus.{label}.count). Ask for as many in one job, or "
                    "choose fewer."
                )
            gpus = [open_installed(one) for one in here[:count]]
        for gpu in gpus:
            stack.enter_context(contextlib.closing(gpu))
        yield gpus


def _run(cases: Sequence[Case], gpus: Sequence[Gpu], study: ParallelStudyConfig, folder: Path) -> RankError | None:
    """Measure cases until one fails, and return why; write those that are measured, also where a signal ends it.

    Raises
    ------
    RankError
        If the ranks did not even start.
    """
    virtual = isinstance(gpus[0], RealTimeGpu)
    timing = Timing(study.idle_s, study.seconds, study.profile_steps)
    with tempfile.TemporaryDirectory() as name, Loggers(gpus, Path(name), 1) as loggers:
        of_ranks, start_ns = Path(name), time.monotonic_ns()
        loggers.work_for(os.getpid())
        try:
            run_ranks(
                measure,
                (list(cases), timing, name),
                count=len(gpus),
                gpus=[] if virtual else [gpu.identity.uuid for gpu in gpus],
                tick=loggers.tick,
            )
        except RankError as error:
            if any(of_ranks.glob("*.begun")):
                return error
            raise
        finally:
            _stop(loggers)
            _write(cases, gpus, of_ranks, start_ns, folder)
    return None


def _stop(loggers: Loggers) -> None:
    end_s = time.monotonic() + _LAST_READINGS_S
    while time.monotonic() < end_s:
        loggers.tick()
        time.sleep(0.05)
    loggers.work_for(None)
    loggers.stop()


def _write(cases: Sequence[Case], gpus: Sequence[Gpu], of_ranks: Path, start_ns: int, folder: Path) -> None:
    """Write each case that all ranks have measured, with what the sensors read meanwhile."""
    run = Run(number=1, idle_start_ns=start_ns, start_ns=start_ns)
    frames = [telemetry_of(of_ranks, run, gpu.identity.uuid) for gpu in gpus]
    for case in cases:
        paths = [result_file(of_ranks, case, rank) for rank in range(len(gpus))]
        if all(path.exists() for path in paths):
            results = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
            ranks = [
                result | _sensed(frame, result, start_ns * 1e-9) | _identity(gpu)
                for result, frame, gpu in zip(results, frames, gpus, strict=True)
            ]
            write_text(json.dumps(_described(case, len(gpus), ranks)) + "\n", case_file(folder, case))


def _sensed(frame: pd.DataFrame, result: Result, start_s: float) -> dict[str, float | None]:
    """Return energy and power in the window of a rank's steps, power while it idled, clock and temperature."""
    windows = pd.DataFrame([result["window"], result["idle_window"]], columns=["start_s", "end_s"]) - start_s
    power, counter = power_readings(frame, float(windows["end_s"].max())), frame.dropna(subset=["energy_counter_j"])
    energies = signals.energy_of_phases(
        windows, power.index, power, counter["time_s"], counter["energy_counter_j"], longest_gap_s=LONGEST_GAP_S
    )
    during = frame[frame["time_s"].between(*windows.loc[0])]
    energy_j = energies["energy_counter_j"].fillna(energies["energy_j"])
    means = {name: known(during[name].mean()) for name in ("sm_clock_mhz", "temperature_c", "gpu_utilization_percent")}
    return means | {
        "energy_j": known(energy_j[0]),
        "energy_counter_j": known(energies["energy_counter_j"][0]),
        "energy_integrated_j": known(energies["energy_j"][0]),
        "power_w": known(energy_j[0] / energies["time_s"][0]),
        "power_idle_w": known(energy_j[1] / energies["time_s"][1]),
    }


def _identity(gpu: Gpu) -> Result:
    identity = gpu.identity
    return {"gpu_name": identity.name, "gpu_uuid": identity.uuid, "virtual": identity.virtual}


def _described(case: Case, count: int, ranks: list[Result]) -> Result:
    batch = case.network.first_input.shape[0]
    return {
        "network": case.network.name,
        "input": "x".join(map(str, case.network.first_input.shape[1:])),
        "precision": str(case.network.execution[0]),
        "optimizer": case.training.optimizer,
        "strategy": case.strategy,
        "gpus": count,
        "items": batch * (case.microbatches if case.strategy == PIPELINE else count),
        "host": socket.gethostname(),
        "measured_us": time.time_ns() // 1000,
        "ranks": ranks,
    }
