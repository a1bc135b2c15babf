"""Measure the reference operations on one card, round after round, for its comparison with other cards of its model."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pyarrow as pa

from clockwatt import config
from clockwatt.config import OperatingPoint
from clockwatt.gpu.interface import GpuNotFoundError
from clockwatt.gpu.registry import visible_gpus
from clockwatt.gpu.specs import VIRTUAL_DEVICE
from clockwatt.io import files
from clockwatt.io.segments import read_segments
from clockwatt.measure.calibrate.calibration import Calibration
from clockwatt.measure.session import Session, running
from clockwatt.measure.store import Store
from clockwatt.measure.tasks import Shard
from clockwatt.schema.layout import OPERATIONS_FILE
from clockwatt.schema.records import MEASUREMENT_SCHEMA, OPERATION_SCHEMA

ROUND_S = 10
"""About how long a round takes."""
_LABEL = "card"


def measure_card(gpu: str | None = None, *, rounds: int) -> pa.Table:
    """Measure time and power of the reference operations at the default operating point.

    Parameters
    ----------
    gpu
        UUID, its beginning, or index of a GPU, or `virtual:MODEL`; None for the first that this process may compute on.
    rounds
        How often each operation is measured; a round takes about 10 s.

    Returns
    -------
    pyarrow.Table
        With `MEASUREMENT_SCHEMA`.

    Raises
    ------
    GpuError
        If the GPU is not here.
    BenchLostError
        If the GPU cannot be used any more.
    """
    campaign = config.parse(
        {"campaign": _LABEL, "gpus": {_LABEL: {"device": _device(gpu)}}, "design": {"operations": 1}}
    )
    point = OperatingPoint()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        files.write_table(OPERATION_SCHEMA.empty_table(), folder / OPERATIONS_FILE)
        store = Store(folder, campaign, _LABEL, point)
        session = Session(campaign, _LABEL, point, Shard(1, 1, networks=False), folder, store, Calibration())
        with running(session, set(), energy=True) as run:
            for _ in range(rounds - 1):
                run.check()
        return pa.concat_tables(read_segments(store.rows_folder, MEASUREMENT_SCHEMA))


def _device(gpu: str | None) -> str:
    """Return the device as a campaign names it, and let this process compute on it alone."""
    if gpu is not None and gpu.startswith(VIRTUAL_DEVICE):
        return gpu
    chosen = {"CUDA_VISIBLE_DEVICES": gpu, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"} if gpu is not None else os.environ
    visible = visible_gpus(chosen)
    if not visible:
        raise GpuNotFoundError("this process may compute on no GPU. Run it in a job with a GPU, or give --gpu.")
    os.environ["CUDA_VISIBLE_DEVICES"] = visible[0].uuid
    return visible[0].name
