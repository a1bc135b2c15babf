"""Clocks that Slurm sets: `srun --gpu-freq`, which takes effect while a step runs. A fallback for want of others.

Slurm sets application clocks, which NVIDIA deprecates: new drivers accept and ignore them. So each operating point is a
step of its own, and counts only if the clock that is read back under load is the one asked for (`verify`).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from clockwatt.config import OperatingPoint
from clockwatt.control.lock_process import HeldCommand
from clockwatt.control.methods import Advice, ControlError, Method
from clockwatt.gpu.registry import visible_gpus

_STARTED_WITHIN_S = 30.0
_HELD = "clockwatt holds this step"
_CONFIG_WITHIN_S = 20


class SlurmMethod(Method):
    """Hold a separate Slurm step with the GPU and the wanted clocks while another step measures.

    Slurm sets the clocks of a step's GPUs when it starts and resets them when it ends. It rounds clocks without a
    message, so clocks that are not supported exactly are refused first. `verify` checks the result.
    """

    locks_by_hand = True
    _step: HeldCommand | None = None

    @classmethod
    def advice(cls) -> Advice:
        """See `Method`: it works inside a Slurm job."""
        if shutil.which("srun") is None:
            return Advice(False, "srun is not installed here")
        if "SLURM_JOB_ID" not in os.environ:
            return Advice(
                False, "this is not a Slurm job",
                "in a GPU job: srun --gres=gpu:1 clockwatt doctor",
            )  # fmt: skip
        if lacks_nvml(shown_config()):
            return Advice(
                False, "Slurm on this node has no gpu_nvml plugin",
                "an administrator must build Slurm with NVML, and set AutoDetect=nvml in gres.conf",
            )  # fmt: skip
        return Advice(True, "may work; a job ends if its clock is not set")

    def apply(self, point: OperatingPoint) -> None:
        """See `Method`."""
        if point.is_default:
            return
        if point.power_limit_w is not None:
            raise ControlError(f"control.method slurm sets clocks only, not {point}. Choose another method or point.")
        self._check_job()
        self._step = HeldCommand(step_command(point, os.environ), step_environment(os.environ))
        self._step.wait_until_held(_STARTED_WITHIN_S, _HELD)

    def release(self) -> None:
        """See `Method`."""
        step, self._step = self._step, None
        if step is not None:
            step.stop()

    def _check_job(self) -> None:
        if "SLURM_JOB_ID" not in os.environ:
            raise ControlError("control.method slurm works inside a Slurm job: run `snakemake --profile slurm`.")
        if len(gpus := visible_gpus()) != 1:
            raise ControlError(
                f"control.method slurm would set all {len(gpus)} GPUs of this job: ask for one "
                "(gpus.<label>.slurm.gres)."
            )


def step_command(point: OperatingPoint, environ: Mapping[str, str]) -> list[str]:
    """Return the `srun` that starts the step.

    `--overlap` lets it share cores and GPU with the step that measures; without it, it would wait for that one to end.

    Parameters
    ----------
    point
        SM and memory clock.
    environ
        Environment variables of the job.
    """
    clocks = [str(point.sm_clock_mhz)] if point.sm_clock_mhz is not None else []
    clocks += [f"memory={point.memory_clock_mhz}"] if point.memory_clock_mhz is not None else []
    return [
        "srun", "--overlap", "--jobid", environ["SLURM_JOB_ID"], "--nodes=1", "--ntasks=1", "--cpus-per-task=1",
        "--mem=0", "--cpu-bind=none", *([f"--nodelist={node}"] if (node := environ.get("SLURMD_NODENAME")) else []),
        f"--gpu-freq={','.join(clocks)}", "--gpus-per-task=1",
        "sh", "-c", f"echo '{_HELD}'; exec cat",
    ]  # fmt: skip


def step_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Environment without what the step that measures was started with: `srun` would take it for its own options."""
    of_job = ("SLURM_JOB_ID", "SLURM_CONF", "SLURM_CLUSTER_NAME")
    return {name: value for name, value in environ.items() if name in of_job or not name.startswith(("SLURM", "SRUN_"))}


def shown_config() -> str:
    """Return Slurm's configuration as `scontrol show config` prints it; empty where there is no Slurm, or no answer."""
    try:
        return subprocess.run(
            ["scontrol", "show", "config"], capture_output=True, text=True, check=False, timeout=_CONFIG_WITHIN_S
        ).stdout
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return ""


def lacks_nvml(shown: str) -> bool:
    """Whether this node's Slurm has no plugin for NVML, without which it sets no clocks; False if it does not say.

    Parameters
    ----------
    shown
        As of `shown_config`.
    """
    found = re.search(r"^PluginDir\s*=\s*(\S+)", shown, re.MULTILINE)
    folders = [Path(folder) for folder in found[1].split(":")] if found else []
    return bool(folders) and not any((folder / "gpu_nvml.so").exists() for folder in folders)


def gpu_freq_warning(shown: str) -> str | None:
    """Return a warning where Slurm itself sets the clocks of every step; else None.

    Up to some version it does so unless slurm.conf says otherwise: then it shows a GpuFreqDef that nobody has written.

    Parameters
    ----------
    shown
        As of `shown_config`.
    """
    found = re.search(r"^GpuFreqDef\s*=\s*(\S+)", shown, re.MULTILINE)
    if found is None or found[1] in ("(null)", "N/A") or lacks_nvml(shown):
        return None
    return (
        f"GpuFreqDef={found[1]}: Slurm may set application clocks in every job step that does not ask for others. "
        "Operating point `default` is that clock then, not the card's own: lock the clocks that you want to know."
    )


METHOD = SlurmMethod
