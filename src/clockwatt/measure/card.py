"""Measure reference operations on one card, round after round, and programs, to compare it with others of its model."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from clockwatt import config
from clockwatt.config import CampaignConfig, OperatingPoint
from clockwatt.gpu.interface import GpuNotFoundError
from clockwatt.gpu.registry import visible_gpus
from clockwatt.gpu.specs import VIRTUAL_DEVICE
from clockwatt.io import files
from clockwatt.io.segments import read_segments
from clockwatt.measure import tasks
from clockwatt.measure.bench.interface import Subject
from clockwatt.measure.calibrate.calibration import Calibration
from clockwatt.measure.session import Session, running
from clockwatt.measure.store import Store
from clockwatt.measure.tasks import Shard
from clockwatt.schema.execution import FP32, ExecutionSettings
from clockwatt.schema.layout import CALLS_FILE, OPERATIONS_FILE
from clockwatt.schema.records import (
    CALL_SCHEMA,
    INFERENCE,
    MEASUREMENT_SCHEMA,
    OPERATION,
    OPERATION_SCHEMA,
    OperationRow,
    table_of,
)

ROUND_S = 10
"""About how long a round takes."""
FLOP_PER_BYTE = b"flop_per_byte"
"""Key of the metadata of measurements: JSON of that of each operation and network, by its id."""
_LABEL = "card"


def measure_card(
    gpu: str | None = None,
    *,
    rounds: int,
    operations: Sequence[OperationRow] = (),
    networks: Sequence[Mapping[str, Any]] = (),
) -> pa.Table:
    """Measure time and power of the reference operations at the default operating point.

    Parameters
    ----------
    gpu
        UUID, its beginning, or index of a GPU, or `virtual:MODEL`; None for the first that this process may compute on.
    rounds
        How often each reference operation is measured; a round takes about 10 s.
    operations, networks
        Operations, and entries of a campaign's `networks` in inference, that are measured once, after the rounds.

    Returns
    -------
    pyarrow.Table
        With `MEASUREMENT_SCHEMA`, and `FLOP_PER_BYTE` in its metadata.

    Raises
    ------
    GpuError
        If the GPU is not here.
    BenchLostError
        If the GPU cannot be used any more.
    """
    subjects = {"networks": list(networks), "passes": [INFERENCE]} if networks else {"design": {"operations": 1}}
    campaign = config.parse({"campaign": _LABEL, "gpus": {_LABEL: {"device": device_of(gpu)}}} | subjects)
    point = OperatingPoint()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        _write_catalogue(campaign if networks else None, operations, folder)
        store, whole = Store(folder, campaign, _LABEL, point), Shard(1, 1, networks=bool(networks))
        session = Session(campaign, _LABEL, point, whole, folder, store, Calibration())
        with running(session, {row.operation_id for row in operations}, energy=True) as run:
            for _ in range(rounds - 1):
                run.check()
            for row in operations:
                execution = ExecutionSettings(FP32)  # float32 products without TF32
                run.measure(Subject(OPERATION, row.operation_id, INFERENCE, execution, row.dtype, 0, device_work=True))
            for subject in tasks.subjects(campaign, campaign.gpu(_LABEL), whole, folder) if networks else ():
                run.measure(subject)
        rows = pa.concat_tables(read_segments(store.rows_folder, MEASUREMENT_SCHEMA))
        about = {FLOP_PER_BYTE: json.dumps(_flop_per_byte(folder)).encode()}
        return rows.replace_schema_metadata((rows.schema.metadata or {}) | about)


def _flop_per_byte(folder: Path) -> dict[str, float]:
    """Return FLOP per byte of the operations and networks of a catalogue."""
    columns = ["operation_id", "flops", "bytes_read", "bytes_written"]
    rows = files.read_table(folder / OPERATIONS_FILE, OPERATION_SCHEMA, columns).to_pandas().set_index("operation_id")
    costs = pd.DataFrame({"flops": rows["flops"], "bytes": rows["bytes_read"] + rows["bytes_written"]})
    if (folder / CALLS_FILE).exists():
        calls = files.read_table(folder / CALLS_FILE, CALL_SCHEMA, ["network_id", "operation_id"]).to_pandas()
        costs = pd.concat([costs, calls.join(costs, "operation_id").groupby("network_id")[["flops", "bytes"]].sum()])
    return {str(name): float(flops / moved) for name, flops, moved in costs.itertuples() if moved}


def _write_catalogue(campaign: CampaignConfig | None, operations: Sequence[OperationRow], folder: Path) -> None:
    """Write a catalogue with these operations, and with the networks of a campaign."""
    tables = [table_of(operations, OPERATION_SCHEMA)]
    if campaign is not None:
        from clockwatt.operations.catalogue import write_catalogue  # which imports torch

        write_catalogue(campaign, folder)
        tables.append(files.read_table(folder / OPERATIONS_FILE, OPERATION_SCHEMA))
    files.write_table(pa.concat_tables(tables), folder / OPERATIONS_FILE)


def device_of(gpu: str | None) -> str:
    """Return the device as a campaign names it, and let this process compute on it alone."""
    if gpu is not None and gpu.startswith(VIRTUAL_DEVICE):
        return gpu
    chosen = {"CUDA_VISIBLE_DEVICES": gpu, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"} if gpu is not None else os.environ
    visible = visible_gpus(chosen)
    if not visible:
        raise GpuNotFoundError("this process may compute on no GPU. Run it in a job with a GPU, or give --gpu.")
    os.environ["CUDA_VISIBLE_DEVICES"] = visible[0].uuid
    return visible[0].name
