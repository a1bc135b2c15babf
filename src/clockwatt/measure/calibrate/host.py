"""Calibrate a host within a minute: measure the operations of a few networks, and these networks whole.

Time alone is measured, by the session that measures shards too; nothing of it reaches the campaign's store.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from clockwatt.config import CampaignConfig, NetworkConfig, OperatingPoint
from clockwatt.gpu.interface import GpuNotFoundError
from clockwatt.gpu.registry import visible_gpus
from clockwatt.gpu.specs import VIRTUAL_PREFIX, find_spec, spec_or_none, specs
from clockwatt.io import files
from clockwatt.measure.calibrate.call_costs import NETWORKS
from clockwatt.measure.session import measure_shard
from clockwatt.measure.tasks import Shard
from clockwatt.operations.catalogue import write_catalogue
from clockwatt.schema.layout import CALLS_FILE, NETWORKS_FILE, OPERATIONS_FILE
from clockwatt.schema.records import CALL_SCHEMA, MEASUREMENT_SCHEMA, NETWORK_SCHEMA, OPERATION_SCHEMA, TIME

SECONDS = 50.0
"""Time, in s, after which no measurement is started; closing takes the rest of a minute."""


@dataclass(frozen=True)
class HostMeasurements:
    """Measurements of a host and their catalogue; times as measured.

    Attributes
    ----------
    rows
        Columns of `MEASUREMENT_SCHEMA`: operations, networks and the reference operations around them.
    operations, calls, networks
        Columns of the catalogue's tables.
    seconds
        Total duration.
    """

    rows: pd.DataFrame
    operations: pd.DataFrame
    calls: pd.DataFrame
    networks: pd.DataFrame
    seconds: float


def measure_host(
    config: CampaignConfig,
    *,
    label: str,
    point: OperatingPoint,
    networks: Sequence[NetworkConfig] = NETWORKS,
) -> HostMeasurements:
    """Measure this host with one of a campaign's GPUs at an operating point.

    `networks` are whole networks and their operations; with three or more, the costs of modules and calls can be
    fitted.

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
        tables = []
        for whole in (True, False):  # networks first: they are few, and say what modules cost
            output = folder / f"measured-{whole}.parquet"
            measure_shard(
                own, label=label, point=point, shard=Shard(1, 1, whole), catalogue_dir=folder,
                store_dir=folder / "store", output=output,
                stop_after_s=max(0.0, SECONDS - (time.monotonic() - begun_s)),
            )  # fmt: skip
            tables.append(files.read_table(output, MEASUREMENT_SCHEMA).to_pandas())
        return HostMeasurements(
            rows=pd.concat(tables, ignore_index=True),
            operations=files.read_table(folder / OPERATIONS_FILE, OPERATION_SCHEMA).to_pandas(),
            calls=files.read_table(folder / CALLS_FILE, CALL_SCHEMA).to_pandas(),
            networks=files.read_table(folder / NETWORKS_FILE, NETWORK_SCHEMA).to_pandas(),
            seconds=time.monotonic() - begun_s,
        )


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
