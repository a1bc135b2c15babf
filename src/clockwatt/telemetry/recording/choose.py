"""Which GPUs are recorded."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence

from clockwatt.gpu.interface import Gpu, GpuError, GpuNotFoundError, InstalledGpu
from clockwatt.gpu.registry import installed_gpus, open_installed, visible_gpus
from clockwatt.gpu.specs import VIRTUAL_DEVICE
from clockwatt.telemetry.recording.virtual import RealTimeGpu


def chosen_gpus(names: Sequence[str], *, every: bool) -> list[Gpu]:
    """Open the GPUs to record.

    Parameters
    ----------
    names
        UUIDs, beginnings of them, indices as `nvidia-smi` counts, or `virtual:MODEL`; empty: those that a program
        started here may compute on, none if there is no GPU.
    every
        All GPUs of the machine that this process may open, the idle neighbours too.

    Raises
    ------
    GpuNotFoundError
        If one is not here, or named twice.
    UnknownGpuError
        If there is no such virtual model.
    """
    if names and every:
        raise GpuNotFoundError("--gpu and --all-gpus: give one or the other.")
    with contextlib.ExitStack() as opened:
        gpus: list[Gpu] = []
        for found in [_found(name) for name in names] if names else _here(every=every):
            gpu = RealTimeGpu(found) if isinstance(found, str) else open_installed(found)
            opened.callback(gpu.close)
            if gpu.identity.uuid in [known.identity.uuid for known in gpus]:
                raise GpuNotFoundError(f"--gpu {gpu.identity.uuid}: named twice. Name each GPU once.")
            gpus.append(gpu)
        opened.pop_all()
    return gpus


def computed_on(gpus: Sequence[Gpu]) -> dict[str, bool | None]:
    """Return whether a program started here may compute on each; None where unknown."""
    try:
        visible = {found.uuid for found in visible_gpus(os.environ)}
    except GpuError:
        return {gpu.identity.uuid: None for gpu in gpus}
    return {gpu.identity.uuid: None if gpu.identity.virtual else gpu.identity.uuid in visible for gpu in gpus}


def _here(*, every: bool) -> list[InstalledGpu]:
    try:
        installed = installed_gpus()
    except GpuNotFoundError:  # no driver: the host is recorded
        return []
    return installed if every or not installed else visible_gpus(os.environ)


def _found(name: str) -> str | InstalledGpu:
    if name.startswith(VIRTUAL_DEVICE):
        return name.removeprefix(VIRTUAL_DEVICE)
    try:
        installed = installed_gpus()
    except GpuNotFoundError as error:
        raise GpuNotFoundError(f"--gpu {name}: {error}") from None
    if name.isdecimal():
        matching = installed[int(name) : int(name) + 1]
    else:
        matching = [found for found in installed if found.uuid.lower().startswith(name.lower())]
    if len(matching) != 1:
        known = ", ".join(f"{number} ({found.uuid})" for number, found in enumerate(installed))
        why = "several GPUs have such a UUID" if matching else "there is no such GPU"
        raise GpuNotFoundError(f"--gpu {name}: {why}. Here are {known or 'none'}; virtual:a30 works on every machine.")
    return matching[0]
