"""Which way of setting operating points works here, and why the others do not. Nothing is set to find out."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from clockwatt.config import ControlConfig
from clockwatt.control.helper import ask
from clockwatt.control.slurm import lacks_nvml, shown_config
from clockwatt.gpu.interface import GpuError


@dataclass(frozen=True)
class Advice:
    """Whether a method can be used here."""

    method: str
    works: bool
    reason: str
    fix: str = ""


def method_advice(environ: Mapping[str, str]) -> list[Advice]:
    """What can be said of every `control.method` from here.

    Parameters
    ----------
    environ
        Of this process: the methods helper and slurm work inside a Slurm job.
    """
    return [_nvml(), _helper(), _slurm(environ), _command(), Advice("none", True, "sets nothing, for point default")]


def _nvml() -> Advice:
    if os.geteuid() != 0:
        return Advice("nvml", False, "only root may set clocks itself", "helper, command or slurm, if they work here")
    return Advice("nvml", True, "this is root (in a container the driver may still refuse)")


def _helper() -> Advice:
    helper = ControlConfig().helper
    if not Path(helper).exists():
        return Advice(
            "helper", False, f"{helper} is not installed", "an administrator installs it: privileged/README.md"
        )
    if _no_new_privileges():
        return Advice(
            "helper", False, "this process may not gain privileges (no_new_privs), so sudo cannot work",
            "run outside of the container, or use the method command or slurm",
        )  # fmt: skip
    try:
        answer = ask(helper, "status")
    except GpuError as error:
        return Advice("helper", False, str(error))
    if answer["job"] is None:
        return Advice("helper", True, "it answers, but outside of a Slurm job it sets clocks for named users at most")
    return Advice("helper", True, f"it answers in job {answer['job']}, and may set the GPUs of that job")


def _no_new_privileges() -> bool:
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return re.search(r"^NoNewPrivs:\s*1$", status, re.MULTILINE) is not None


def _slurm(environ: Mapping[str, str]) -> Advice:
    if shutil.which("srun") is None:
        return Advice("slurm", False, "srun is not installed here")
    if "SLURM_JOB_ID" not in environ:
        return Advice(
            "slurm", False, "this is not a Slurm job",
            "ask inside one, on a node with a GPU: srun --gres=gpu:1 clockwatt doctor",
        )  # fmt: skip
    if lacks_nvml(shown_config()):
        return Advice(
            "slurm", False, "this node's Slurm has no gpu_nvml plugin, without which --gpu-freq changes nothing",
            "Slurm has to be built with NVML, and gres.conf to say AutoDetect=nvml",
        )  # fmt: skip
    return Advice(
        "slurm",
        True,
        "srun --gpu-freq can be tried where nothing else works; a clock not seen ends the job",
    )


def _command() -> Advice:
    return Advice(
        "command", False, "needs a script of your site's own, if there is one",
        "control: {method: command, set_command: …}, see config/README.md",
    )  # fmt: skip
