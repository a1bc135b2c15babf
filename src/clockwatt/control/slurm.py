"""Clocks that Slurm sets: `srun --gpu-freq`, which takes effect while a step runs."""

from __future__ import annotations

import os
from collections.abc import Mapping

from clockwatt.config import OperatingPoint
from clockwatt.control.held import HeldCommand
from clockwatt.control.methods import ControlError, Method
from clockwatt.gpu.registry import visible_gpus

_STARTED_WITHIN_S = 30.0
_HELD = "clockwatt holds this step"


class SlurmMethod(Method):
    """Holds a step of its own, with the GPU and the wanted clocks, beside the one that measures.

    Slurm sets the clocks of a step's GPUs when it starts and resets them when it ends. It rounds to what it finds
    suitable without a word, so what is not supported exactly is refused before, and verification tells what came of it.
    """

    _step: HeldCommand | None = None

    def apply(self, point: OperatingPoint) -> None:
        """See `Method`."""
        if point.is_default:
            return
        if point.power_limit_w is not None:
            raise ControlError(f"control.method slurm sets clocks only, so {point} cannot be had.")
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
    """The `srun` that starts the step.

    `--overlap` lets it share cores and GPU with the step that measures; without it, it would wait for that one to end.

    Parameters
    ----------
    point
        SM and memory clock.
    environ
        Of the job.
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
