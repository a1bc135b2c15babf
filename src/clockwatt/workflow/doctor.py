"""Check this machine: GPUs, sensors, clock permission, CUDA, Slurm, and whether a campaign fits it.

Nothing is changed: no clock, no limit, no mode.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.markup import escape
from rich.table import Table

import clockwatt
from clockwatt.config import CampaignConfig, GpuConfig, load
from clockwatt.control.points import check_supported, known_gpu, persistence_warning
from clockwatt.control.registry import NAMES, method_named
from clockwatt.control.slurm import gpu_freq_warning, shown_config
from clockwatt.errors import ClockwattError, OutputError
from clockwatt.gpu.interface import Gpu, GpuError, InstalledGpu, NotSupportedError
from clockwatt.gpu.registry import installed_gpus, lost_gpus, open_installed, visible_gpus
from clockwatt.gpu.sensing.sensors import update_periods_s
from clockwatt.gpu.specs import UnknownGpuError, find_spec
from clockwatt.io.folders import cache_folder, is_writable, temporary_folder
from clockwatt.workflow import cluster, job_limits, propose_config

POWER_SENSORS = ("power_average", "power_instant", "energy_counter", "power_samples")

OK: Literal["ok"] = "ok"
MISSING: Literal["missing"] = "missing"  # something cannot be done here, which may be as it should be
WRONG: Literal["wrong"] = "wrong"  # the campaign asks for something that will fail

_STYLES = {OK: "green", MISSING: "yellow", WRONG: "bold red"}


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    topic: str
    state: Literal["ok", "missing", "wrong"]
    text: str
    fix: str = ""


def run(config_path: Path | None, write_config: Path | None) -> int:
    """Print the report, and write a proposed campaign if asked to.

    Parameters
    ----------
    config_path
        Campaign to check as well.
    write_config
        File to propose a campaign in; it must not exist yet.

    Returns
    -------
    int
        Exit code: 1 if something that the campaign asks for will fail, else 0.

    Raises
    ------
    OutputError
        If `write_config` exists or cannot be written.
    """
    console = Console()
    findings = examine(config_path)
    table = Table.grid(padding=(0, 2))
    for finding in findings:
        told = escape(finding.text) + (f"\n[dim]→ {escape(finding.fix)}[/dim]" if finding.fix else "")
        table.add_row(escape(finding.topic), f"[{_STYLES[finding.state]}]{finding.state}", told)
    console.print(table)
    if write_config is not None:
        block = proposed_gpus_block()
        propose_config.write_config(write_config, block)
        virtual = f" {propose_config.NO_GPU_FOUND}" if propose_config.NO_GPU_FOUND in block else ""
        console.print(f"Proposed campaign: {write_config}.{virtual}")
    return 1 if any(finding.state == WRONG for finding in findings) else 0


def examine(config_path: Path | None = None) -> list[Finding]:
    """Check the installation and return the findings."""
    return [*_software(), *_folders(), *_gpus(), *_control(), *_slurm(), *_campaign(config_path)]


def proposed_gpus_block() -> str:
    """Propose a `gpus:` block in YAML, from what Slurm and NVML report here."""
    partitions = []
    with contextlib.suppress(cluster.SlurmUnavailableError):
        partitions = cluster.gpu_partitions()
    return propose_config.proposed_gpus_block(_installed(), partitions)


def _software() -> Iterator[Finding]:
    yield Finding("clockwatt", OK, f"{clockwatt.__version__} on Python {platform.python_version()}")
    yield Finding(
        "PyTorch",
        OK,
        f"torch {importlib.metadata.version('torch')}, torchvision {importlib.metadata.version('torchvision')}",
    )


def _folders() -> Iterator[Finding]:
    if not is_writable(cache := cache_folder()):
        yield Finding(
            "cache", MISSING, f"{cache} cannot be written: each prediction traces its network again",
            "set CLOCKWATT_CACHE_DIR to a folder of yours",
        )  # fmt: skip
    try:
        temporary_folder()
    except OutputError as error:
        yield Finding("PyTorch", MISSING, "cannot trace networks without a folder for temporary files", error.fix)


def _installed() -> list[InstalledGpu]:
    try:
        return installed_gpus()
    except GpuError:
        return []


def _gpus() -> Iterator[Finding]:
    try:
        installed = installed_gpus()
    except GpuError as error:
        yield Finding("GPU", MISSING, str(error), "predictions need no GPU")
        return
    if not installed:
        yield Finding(
            "GPU", MISSING, "the driver lists none that this process may open", "ask Slurm for one: --gres=gpu:1"
        )
        return
    if lost := lost_gpus():
        yield Finding("GPU", MISSING, f"{lost} fell off the bus", "the node needs an administrator")
    polled: set[str] = set()
    for found in installed:
        try:
            with contextlib.closing(open_installed(found)) as gpu:
                yield from _gpu(gpu)
                if found.name not in polled:  # cards of one model have the same sensors
                    yield from _sensors(gpu)
                yield from _clocks(gpu)
        except GpuError as error:
            yield Finding(found.name, MISSING, str(error))
        polled.add(found.name)
    try:
        visible = visible_gpus()
    except GpuError as error:
        yield Finding("CUDA", MISSING, str(error))
        return
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES", "not set")
    state = OK if visible else MISSING
    yield Finding("visible", state, f"{len(visible)} of {len(installed)} GPUs (CUDA_VISIBLE_DEVICES is {chosen!r})")
    yield _cuda()


def _gpu(gpu: Gpu) -> Iterator[Finding]:
    identity = gpu.identity
    topic = identity.name
    cuda = f", up to CUDA {identity.cuda_version}" if identity.cuda_version else ""
    yield Finding(topic, OK, f"{identity.uuid}, driver {identity.driver_version}{cuda}")
    try:
        find_spec(identity.name)
    except UnknownGpuError as error:
        yield Finding(topic, MISSING, str(error), "predictions need its specifications")


def _sensors(gpu: Gpu) -> Iterator[Finding]:
    topic = gpu.identity.name
    periods = update_periods_s(gpu, now_ns=time.monotonic_ns, wait=time.sleep)
    for sensor in POWER_SENSORS:
        if sensor not in periods:
            yield Finding(topic, MISSING, f"sensor {sensor}", "its column stays empty")
        elif (period_s := periods[sensor]) is None:
            yield Finding(topic, OK, f"sensor {sensor}, update period unknown")
        else:
            yield Finding(topic, OK, f"sensor {sensor}, new value every {period_s * 1000:.0f} ms")


def _clocks(gpu: Gpu) -> Iterator[Finding]:
    topic = gpu.identity.name
    try:
        clocks = gpu.supported_sm_clocks_mhz()
    except NotSupportedError as error:
        yield Finding(topic, MISSING, str(error), "measure it at clocks_mhz: default")
        return
    span = f"{len(clocks)} SM clocks from {clocks[0]} to {clocks[-1]} MHz"
    yield Finding(topic, OK, span)
    warning = persistence_warning(gpu)
    if warning is not None:
        yield Finding(topic, MISSING, warning)


def _control() -> Iterator[Finding]:
    if not _installed():
        yield Finding(
            "clock control",
            MISSING,
            "cannot be checked without a GPU",
            "in a GPU job: srun --gres=gpu:1 clockwatt doctor",
        )
        return
    for name in NAMES:
        advice = method_named(name).advice()
        yield Finding("clock control", OK if advice.works else MISSING, f"{name}: {advice.reason}", advice.fix)


def _cuda() -> Finding:
    import torch  # takes seconds, and only a machine with a GPU has a use for it

    if torch.cuda.is_available():
        return Finding("CUDA", OK, f"torch {torch.__version__} runs on {torch.cuda.get_device_name(0)}")
    return Finding(
        "CUDA", MISSING, f"torch {torch.__version__} (CUDA {torch.version.cuda}) finds no GPU",
        "install a torch build for the driver's CUDA, or look at CUDA_VISIBLE_DEVICES",
    )  # fmt: skip


def _slurm() -> Iterator[Finding]:
    try:
        yield Finding("Slurm", OK, cluster.version())
        yield from (Finding("Slurm", MISSING, text) for text in [gpu_freq_warning(shown_config())] if text is not None)
        partitions = cluster.gpu_partitions()
        status = cluster.job_status()
    except cluster.SlurmUnavailableError as error:
        yield Finding("Slurm", MISSING, str(error), "without Slurm, run `snakemake` on the machine with the GPU")
        return
    for found in partitions:
        yield Finding(
            "Slurm", OK, f"partition {found.partition}: {found.gpus_per_node} GPUs per node, gres {found.gres}"
        )
    if not partitions:
        yield Finding(
            "Slurm", MISSING, "no partition has GPUs in its GRES", "see GresTypes in the cluster's slurm.conf"
        )
    if status.command is not None:
        why = "accounting is on" if status.accounting else f"no accounting; MinJobAge is {status.min_job_age_s} s"
        yield Finding("Slurm", OK, f"{why}. Set slurm-status-command: {status.command} in profiles/slurm/config.yaml")
    else:
        yield Finding(
            "Slurm", MISSING, f"no accounting, and ended jobs are forgotten after {status.min_job_age_s} s",
            f"slurm-status-command: squeue, and ask for a MinJobAge of {cluster.SHORTEST_JOB_AGE_S} s or more",
        )  # fmt: skip


def _campaign(path: Path | None) -> Iterator[Finding]:
    if path is None:
        return
    try:
        campaign = load(path)
    except ClockwattError as error:
        yield Finding("config", WRONG, str(error))
        return
    yield Finding("config", OK, f"{path}: {len(campaign.gpus)} GPUs, {len(campaign.networks)} networks")
    for label, gpu_config in campaign.gpus.items():
        yield _campaign_gpu(f"gpus.{label}", gpu_config, campaign)
    with contextlib.suppress(cluster.SlurmUnavailableError):  # said above
        for misfit in job_limits.all_misfits(campaign):
            yield Finding("Slurm", WRONG, misfit)


def _campaign_gpu(key: str, gpu_config: GpuConfig, campaign: CampaignConfig) -> Finding:
    """Return whether a configured GPU exists and supports every configured operating point."""
    try:
        gpu = known_gpu(gpu_config, campaign.seed)
        if gpu is None:
            return Finding(
                key, MISSING, f"{gpu_config.device} is not on this machine", "it is checked again inside the job"
            )
        with contextlib.closing(gpu):
            for point in gpu_config.points:
                check_supported(gpu, point)
    except GpuError as error:
        return Finding(key, WRONG, str(error))
    return Finding(key, OK, f"{gpu_config.device} supports its {len(gpu_config.points)} operating points")
