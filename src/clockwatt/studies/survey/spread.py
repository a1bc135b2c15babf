"""How far cards differ in programs, beside properties of the programs.

```
programs.csv     a row for each program: spread between cards, time, power, FLOP per byte, share at the power limit
```
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from clockwatt.config import NetworkConfig, SurveyStudyConfig
from clockwatt.gpu.interface import SW_POWER_CAP, THROTTLE_REASONS
from clockwatt.io import files
from clockwatt.schema.records import MEASUREMENT_SCHEMA, OK
from clockwatt.studies.survey.measured_programs import NETWORKS, operations

_PROGRAMS = b"programs"
_POWER_LIMIT = THROTTLE_REASONS[SW_POWER_CAP]
_COLUMNS = ["subject_id", "gpu_uuid", "status", "time_eager_s", "power_w", "throttle_reasons"]


def named(measurements: pa.Table, study: SurveyStudyConfig) -> pa.Table:
    """Return measurements with the name of each program, and the FLOP per byte of operations, in the metadata."""
    programs = {
        row.operation_id: [name, row.flops / (row.bytes_read + row.bytes_written)]
        for name, row in operations(study).items()
    } | {
        NetworkConfig.model_validate(entry).network_id: [name, np.nan]
        for name, entry in NETWORKS.items()
        if name in study.programs
    }
    about = (measurements.schema.metadata or {}) | {_PROGRAMS: json.dumps(programs).encode()}
    return measurements.replace_schema_metadata(about)


def spread(paths: Iterable[Path]) -> pd.DataFrame:
    """Return how far cards differ in each program, those that differ most in time first.

    Parameters
    ----------
    paths
        Files of the survey.

    Returns
    -------
    pandas.DataFrame
        `program`, `cards`; `time_s` and `power_w`, medians of the cards; `time_spread` and `power_spread`,
        (max − min) / median of the cards; `time_deviation`, standard deviation of the cards, relative;
        `flop_per_byte`, NaN for networks; `at_power_limit`, share of the measurements that the power limit slowed.
    """
    names: dict[str, list[Any]] = {}
    tables = []
    for path in paths:
        table = files.read_table(path, MEASUREMENT_SCHEMA, _COLUMNS)
        names |= json.loads((pq.read_schema(path).metadata or {}).get(_PROGRAMS, b"{}"))
        tables.append(table.to_pandas())
    rows = pd.concat(tables, ignore_index=True)
    rows = rows[rows["subject_id"].isin(names) & (rows["status"] == OK) & rows["time_eager_s"].notna()]
    found = [_row(names[str(subject)], own) for subject, own in rows.groupby("subject_id")]
    columns = [
        "program", "cards", "time_s", "power_w", "time_spread", "power_spread", "time_deviation", "flop_per_byte",
        "at_power_limit",
    ]  # fmt: skip
    return pd.DataFrame(found, columns=columns).sort_values("time_spread", ascending=False, ignore_index=True)


def _row(program: Sequence[Any], rows: pd.DataFrame) -> Sequence[Any]:
    name, flop_per_byte = program
    cards = rows.groupby("gpu_uuid")[["time_eager_s", "power_w"]].median()
    spreads = (cards.max() - cards.min()) / cards.median()
    capped = rows["throttle_reasons"].map(lambda reasons: reasons is not None and _POWER_LIMIT in reasons)
    return (
        name, len(cards), *cards.median(), *spreads, np.log(cards["time_eager_s"]).std(), flop_per_byte, capped.mean(),
    )  # fmt: skip
