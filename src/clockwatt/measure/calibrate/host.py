"""Calibrate a host within a minute: measure a few operations of every class that a few networks call.

Time alone is measured, by the session that measures shards too; nothing of it reaches the campaign's store.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pyarrow as pa

from clockwatt.config import CampaignConfig, NetworkConfig, OperatingPoint
from clockwatt.gpu.interface import GpuNotFoundError
from clockwatt.gpu.registry import visible_gpus
from clockwatt.gpu.specs import VIRTUAL_PREFIX, find_spec, spec_or_none, specs
from clockwatt.io import files
from clockwatt.measure.calibrate.call_costs import NETWORKS
from clockwatt.measure.session import measure_shard
from clockwatt.measure.tasks import Shard
from clockwatt.operations.catalogue import write_catalogue
from clockwatt.schema.layout import OPERATIONS_FILE
from clockwatt.schema.records import MEASUREMENT_SCHEMA, OPERATION_SCHEMA, TIME

SECONDS = 50.0
"""Time, in s, after which no measurement is started; closing takes the rest of a minute."""
_PER_CLASS = 4
"""Operations of a class and pass; few suffice, since host time depends on the class more than on the size."""


@dataclass(frozen=True)
class HostMeasurements:
    """Measurements of a host and their catalogue; times as measured.

    Attributes
    ----------
    rows
        Columns of `MEASUREMENT_SCHEMA`: operations and the reference operations around them.
    operations
        Columns of `OPERATION_SCHEMA`.
    seconds
        Total duration.
    """

    rows: pd.DataFrame
    operations: pd.DataFrame
    seconds: float


def measure_host(
    config: CampaignConfig,
    *,
    label: str,
    point: OperatingPoint,
    networks: Sequence[NetworkConfig] = NETWORKS,
) -> HostMeasurements:
    """Measure this host with one of a campaign's GPUs at an operating point.

    `networks` are those whose operations are measured.

    Raises
    ------
    ConfigError, GpuError, BenchLostError
        As in `measure_shard`.
    """
    begun_s = time.monotonic()
    own = _campaign(config, label, networks)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_catalogue(own, folder)
        operations = _few_of_each(files.read_table(folder / OPERATIONS_FILE, OPERATION_SCHEMA).to_pandas())
        kept = pa.Table.from_pandas(operations, OPERATION_SCHEMA, preserve_index=False)
        files.write_table(kept, folder / OPERATIONS_FILE)
        output = folder / "measured.parquet"
        measure_shard(
            own, label=label, point=point, shard=Shard(1, 1, networks=False), catalogue_dir=folder,
            store_dir=folder / "store", output=output, stop_after_s=max(0.0, SECONDS - (time.monotonic() - begun_s)),
        )  # fmt: skip
        rows = files.read_table(output, MEASUREMENT_SCHEMA).to_pandas()
        return HostMeasurements(rows, operations, time.monotonic() - begun_s)


def _few_of_each(operations: pd.DataFrame) -> pd.DataFrame:
    """Select a few operations of every class and pass, those with the shortest specs."""
    ordered = operations.assign(length=operations["spec"].str.len()).sort_values(["pass", "operation_class", "length"])
    return ordered.groupby(["pass", "operation_class"], sort=False).head(_PER_CLASS).drop(columns="length")


def campaign_here(gpu: str | None) -> tuple[CampaignConfig, str]:
    """Return a campaign of one GPU of this machine, and the label of that GPU.

    Parameters
    ----------
    gpu
        Product name or model (`h100`), or `virtual:MODEL`; None for the first GPU that this process may compute on.

    Raises
    ------
    GpuNotFoundError
        If there is none.
    UnknownGpuError
        If `gpu` is no known model.
    """
    wanted = None if gpu is None else find_spec(gpu)
    device = gpu
    if gpu is None or not gpu.startswith(VIRTUAL_PREFIX):
        names = [one.name for one in visible_gpus()]
        device = next((name for name in names if wanted in (None, spec_or_none(name))), None)
        if device is None:
            raise GpuNotFoundError(f"--gpu {gpu}: this machine has {', '.join(names) or 'no GPU'}. Leave --gpu out.")
    assert device is not None
    label = next((model for model, spec in specs().items() if spec is spec_or_none(device)), "gpu")
    networks = [network.model_dump(mode="json", exclude_unset=True) for network in NETWORKS]
    content = {"campaign": "host", "gpus": {label: {"device": device}}, "networks": networks}
    return CampaignConfig.model_validate(content), label


def _campaign(config: CampaignConfig, label: str, networks: Sequence[NetworkConfig]) -> CampaignConfig:
    """Return the campaign with these networks in place of its own, each once, time alone."""
    gpu = config.gpu(label)
    content = config.model_dump(mode="json", exclude_unset=True)
    content |= {
        "gpus": {label: content["gpus"][label] | {"precision": [gpu.precision[0]]}},
        "networks": [network.model_dump(mode="json", exclude_unset=True) for network in networks],
        "quantities": [TIME],
        "passes": ["inference", "training"],
        "reference": [],
    }
    content["measurement"] = content.get("measurement", {}) | {"repetitions": 1}
    return CampaignConfig.model_validate({key: value for key, value in content.items() if key != "design"})
