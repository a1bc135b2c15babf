"""Run one command on a node with a campaign's GPU, as a Slurm job, and wait for it."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Sequence

from clockwatt.config import GpuConfig
from clockwatt.errors import ClockwattError


def srun_command(gpu: GpuConfig, command: Sequence[str]) -> list[str]:
    """Return the `srun` that runs a command with the resources of the campaign's jobs on a GPU."""
    asked = gpu.slurm
    gpus = f"{asked.gpu_model}:{asked.gpu}" if asked.gpu_model else asked.gpu
    options = {
        "--partition": asked.partition,
        "--account": asked.account,
        "--qos": asked.qos,
        "--constraint": asked.constraint,
        "--nodelist": asked.nodelist,
        "--gres": asked.gres,
        "--gpus": gpus,
        "--time": asked.runtime,
        "--cpus-per-task": asked.cpus_per_task,
        "--mem": asked.mem_mb,
    }
    given = [f"{name}={value}" for name, value in options.items() if value is not None]
    extra = shlex.split(asked.extra or "")
    # quit on interrupt: the job ends with the one who asked
    return ["srun", "--job-name=clockwatt", "--ntasks=1", "--quit-on-interrupt", *given, *extra, *command]


def run_on_node(gpu: GpuConfig, command: Sequence[str], text: str) -> str:
    """Run a command in a Slurm job of its own that reads `text`, and return what it printed.

    Its standard error, and Slurm's, pass through.

    Raises
    ------
    ClockwattError
        If there is no Slurm, or this is a job of it already.
    SystemExit
        With the command's or Slurm's exit status, if it is not 0: why has been said on standard error.
    """
    if "SLURM_JOB_ID" in os.environ:
        raise ClockwattError("--slurm: this is a Slurm job already. Leave --slurm out to measure on its own GPU.")
    try:
        job = subprocess.Popen(srun_command(gpu, command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    except FileNotFoundError:
        raise ClockwattError(
            "--slurm: Slurm is not installed here (no `srun` in PATH). Ask on a machine that submits jobs, or leave "
            "--slurm out to measure on this machine's GPU."
        ) from None
    interrupted = signal.signal(signal.SIGINT, signal.SIG_IGN)  # srun gets it too, and ends the job
    try:
        printed, _ = job.communicate(text)
    except SystemExit:  # asked to end: so is the job
        job.terminate()
        job.wait()
        raise
    finally:
        signal.signal(signal.SIGINT, interrupted)
    if job.returncode != 0:
        raise SystemExit(job.returncode if job.returncode > 0 else 128 - job.returncode)
    return printed
