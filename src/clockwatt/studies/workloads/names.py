"""The workloads by name, and the commands that run them."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from clockwatt.config import POWER_NETWORKS, WorkloadName, WorkloadsStudyConfig

VIRTUAL_SCALE = 0.01
"""Scale of the sizes where the program runs on the CPU, with a virtual GPU."""


def module_of(name: str) -> str:
    """Return the module of a workload for `python -m`."""
    return f"clockwatt.studies.{'power' if name in POWER_NETWORKS else 'workloads'}.{name}"


def command_of(name: WorkloadName, study: WorkloadsStudyConfig, *, seed: int, virtual: bool) -> list[str]:
    """Return the command that runs a workload.

    Parameters
    ----------
    name
        The name of the workload.
    study
        Scale, seconds and data.
    seed
        The seed of what is made.
    virtual
        Whether the GPU is virtual, so that the program runs on the processor.
    """
    scale = study.scale or (VIRTUAL_SCALE if virtual else 1.0)
    command = [sys.executable, "-m", module_of(name), "--device", "cpu" if virtual else "cuda", "--seed", str(seed)]
    command += ["--scale", f"{scale:g}"]
    if study.seconds is not None:
        command += ["--seconds", f"{study.seconds:g}"]
    if name in study.data:
        command += ["--data", study.data[name]]
    return command


def figure_names(workloads: Iterable[str]) -> list[str]:
    """Return the names of the figures of a GPU that ran these workloads."""
    return ["workloads", *(f"{kind}_{name}" for name in workloads for kind in ("time", "correlation"))]
