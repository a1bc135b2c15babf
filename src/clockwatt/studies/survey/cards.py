"""Measure each card of a node for the survey, and list those that could not be measured.

```
cards/NODE-INDEX-SESSION.parquet     as `clockwatt card --output` writes it; without a row where the card did not answer
```
"""

from __future__ import annotations

import math
import os
import re
import socket
import zlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from clockwatt.config import CampaignConfig
from clockwatt.errors import ClockwattError
from clockwatt.gpu.interface import GpuError, GpuNotFoundError, InstalledGpu
from clockwatt.gpu.registry import visible_gpus
from clockwatt.io import files
from clockwatt.io.progress import say
from clockwatt.measure.bench.interface import BenchLostError
from clockwatt.measure.card import measure_card
from clockwatt.schema.records import MEASUREMENT_SCHEMA
from clockwatt.studies.survey.measured_programs import named, networks, operations

_REASON = b"not_measured"
_SERIAL = b"serial"
_NAME = re.compile(r"(?P<node>.+?)-(?P<index>[0-9]+)(-[0-9]+)?$")


def measure(campaign: CampaignConfig, label: str, node: str, index: int, output: Path) -> None:
    """Measure the card with an index among those of this job; a card that does not answer gives a file without a row.

    Parameters
    ----------
    campaign
        With `studies.survey`.
    label
        Label of the GPU.
    node, index
        The card. A virtual one exists on every node.
    output
        File to write.

    Raises
    ------
    ConfigError
        If the campaign has no such study or GPU.
    ClockwattError
        If this is another node.
    """
    study, gpu = campaign.studies.study_survey(), campaign.gpu(label)

    def measured(card: str) -> pa.Table:
        products = [*operations(study).values()]
        rows = measure_card(card, rounds=study.rounds, operations=products, networks=networks(study))
        return named(rows, study)

    try:
        if gpu.virtual_model is not None:
            table = measured(f"{gpu.device}#{zlib.crc32(f'{node}-{index}'.encode())}")
            hosts = pa.array([node] * len(table), table.schema.field("host").type)
            table = table.set_column(table.schema.get_field_index("host"), table.schema.field("host"), hosts)
        else:
            card = card_at(gpu.device, node, index)
            table = measured(card.uuid)
            table = table.replace_schema_metadata((table.schema.metadata or {}) | {_SERIAL: card.serial.encode()})
    except (GpuError, BenchLostError) as error:
        say(f"{node}: card {index} was not measured: {error}")
        about = (MEASUREMENT_SCHEMA.metadata or {}) | {_REASON: str(error).encode()}
        table = MEASUREMENT_SCHEMA.empty_table().replace_schema_metadata(about)
    files.write_table(table, output)


def card_at(device: str, node: str, index: int) -> InstalledGpu:
    """Return the card of this node with an index among those of this job.

    Raises
    ------
    ClockwattError
        If this is another node.
    GpuNotFoundError
        If there is no such card, or it is of another model.
    """
    here = os.environ.get("SLURMD_NODENAME") or socket.gethostname().partition(".")[0]
    if here != node:
        raise ClockwattError(f"this is node {here}, not {node}. Run it there, or correct studies.survey.gpus.")
    found = visible_gpus()
    if index >= len(found):
        raise GpuNotFoundError(f"card {index} is not here: this job may compute on {len(found)} GPUs.")
    if found[index].name.casefold() != device.casefold():
        raise GpuNotFoundError(f"card {index} is a {found[index].name}, not a {device}.")
    return found[index]


def not_measured(paths: Iterable[Path]) -> dict[str, str]:
    """Return the names of files without a measurement, and why, of files of the survey."""
    reasons = {path.stem: (pq.read_schema(path).metadata or {}).get(_REASON) for path in paths}
    return {name: reason.decode() for name, reason in reasons.items() if reason is not None}


def serials(paths: Iterable[Path]) -> dict[str, str]:
    """Return the serial number of the card of each file of the survey by the name of the file; empty if unknown."""
    return {path.stem: (pq.read_schema(path).metadata or {}).get(_SERIAL, b"").decode() for path in paths}


def place(name: str) -> tuple[str, float]:
    """Return node and index of a card by its file `NODE-INDEX` or `NODE-INDEX-SESSION`; the name and NaN if other."""
    found = _NAME.match(name)
    return (found["node"], float(found["index"])) if found else (name, math.nan)


def from_median_card(observed: pd.DataFrame) -> pd.Series:
    """Return the log of each measurement, less that of the median card in its quantity.

    Parameters
    ----------
    observed
        As `observations` returns them.
    """
    means = observed.groupby(["quantity", "card"])["log"].mean()
    return observed["log"] - observed["quantity"].map(means.groupby("quantity").median())


def differences(observed: pd.DataFrame) -> pd.DataFrame:
    """Return each card's difference from the median card, relative: a row for each card, a column for each quantity.

    Parameters
    ----------
    observed
        As `observations` returns them.
    """
    logs = observed.assign(log=from_median_card(observed))
    return logs.pivot_table(index="card", columns="quantity", values="log", sort=False).transform(np.expm1)
