"""How far cards differ in programs and reference operations, beside what limits these.

```
programs.csv              a row for each program: limit, spread between cards, time, power, FLOP per byte
figures/programs.csv      a row for each program and card: difference from the median card
```
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from matplotlib.figure import Figure

from clockwatt.figures import style
from clockwatt.gpu.interface import SW_POWER_CAP, THROTTLE_REASONS
from clockwatt.gpu.specs import spec_or_none
from clockwatt.io import files
from clockwatt.measure.reference_operations import anchors
from clockwatt.schema.execution import ExecutionSettings
from clockwatt.schema.records import MEASUREMENT_SCHEMA, MEASUREMENT_VERSION, OK
from clockwatt.studies.survey.measured_programs import PROGRAMS
from clockwatt.studies.survey.observations import last_shared_position

_FIXED = ("ReLU, small", "ReLU", "softmax", "linear, small", "linear")
"""Names of the reference operations."""
_POWER_LIMIT = THROTTLE_REASONS[SW_POWER_CAP]
_COLUMNS = [
    "subject_id", "gpu_uuid", "gpu_name", "dtype", "execution", "status", "time_eager_s", "time_host_s",
    "time_device_s", "power_w", "power_limit_w", "throttle_reasons", "position", "measurement_version",
]  # fmt: skip
_AT_LIMIT = 0.9
"""Least share of the limit that a measurement draws at the limit: bursts of short kernels meet it far below."""
LIMITS = ("power limit", "compute", "memory", "host", "not known")
"""What limits a program."""


def of_cards(paths: Iterable[Path]) -> pd.DataFrame:
    """Return the programs and reference operations of each card of files of the survey.

    Returns
    -------
    pandas.DataFrame
        `program`, `limit` (one of `LIMITS`), `card`, `time_s` and `power_w` (medians), `time_difference` and
        `power_difference` from the median card, relative, `flop_per_byte`, and `at_power_limit`, the share of all
        measurements of the program that the power limit slowed.
    """
    fixed = {
        row.operation_id: [name, row.flops / (row.bytes_read + row.bytes_written)]
        for name, row in zip(_FIXED, anchors(), strict=True)
    }
    names: dict[str, list[Any]] = {}
    tables = []
    for path in paths:
        table = files.read_table(path, MEASUREMENT_SCHEMA, _COLUMNS)
        names |= json.loads((pq.read_schema(path).metadata or {}).get(PROGRAMS, b"{}"))
        tables.append(table.to_pandas())
    rows, names = pd.concat(tables, ignore_index=True), names | fixed
    usable = (
        (rows["status"] == OK) & (rows["measurement_version"] == MEASUREMENT_VERSION) & rows["time_eager_s"].notna()
    )
    rows = rows[usable & rows["subject_id"].isin(names)]
    found = []
    for subject, own in rows.groupby("subject_id"):
        shared = own[own["position"] <= last_shared_position(own)] if subject in fixed else own
        found.append(_of_cards(shared, *names[str(subject)]))
    columns = [
        "program", "limit", "card", "time_s", "power_w", "time_difference", "power_difference", "flop_per_byte",
        "at_power_limit",
    ]  # fmt: skip
    return pd.concat(found, ignore_index=True)[columns]


def _of_cards(rows: pd.DataFrame, name: str, flop_per_byte: float) -> pd.DataFrame:
    reasons = rows["throttle_reasons"].map(lambda reasons: reasons is not None and _POWER_LIMIT in reasons)
    capped = (reasons & ~(rows["power_w"] < _AT_LIMIT * rows["power_limit_w"])).mean()
    cards = rows.groupby("gpu_uuid")[["time_eager_s", "power_w"]].median().set_axis(["time_s", "power_w"], axis=1)
    differences = (cards / cards.median() - 1).set_axis(["time_difference", "power_difference"], axis=1)
    limit = "power limit" if capped > 0.5 else _other_limit(rows, flop_per_byte)
    found = cards.join(differences).rename_axis("card").reset_index()
    return found.assign(program=name, limit=limit, flop_per_byte=flop_per_byte, at_power_limit=capped)


def _other_limit(rows: pd.DataFrame, flop_per_byte: float) -> str:
    """Return what limits a program below the power limit: its FLOP per byte are compared with those of the GPU."""
    if (rows["time_host_s"] > rows["time_device_s"]).mean() > 0.5:
        return "host"
    row = rows.iloc[0]
    spec, tf32 = spec_or_none(row["gpu_name"]), ExecutionSettings(row["execution"]).matrix_tf32
    if spec is None or np.isnan(flop_per_byte):
        return "not known"
    of_gpu = spec.peak_flops(row["dtype"], tf32=tf32, matrix=True) / spec.bandwidth_bytes_s
    return "compute" if flop_per_byte > of_gpu else "memory"


def spread(cards: pd.DataFrame) -> pd.DataFrame:
    """Return how far cards differ in each program, those that differ most in time first.

    Parameters
    ----------
    cards
        As `of_cards` returns them.

    Returns
    -------
    pandas.DataFrame
        `program`, `limit`, `cards` (their number); `time_s` and `power_w`, medians of the cards; `time_spread` and
        `power_spread`, (max − min) / median of the cards; `time_deviation`, standard deviation of the cards, relative;
        `flop_per_byte` and `at_power_limit` as in `of_cards`.
    """
    differences = ["time_difference", "power_difference"]
    groups = cards.groupby("program", sort=False)
    first, medians = groups.first(), groups[["time_s", "power_w"]].median()
    ranges = groups[differences].max() - groups[differences].min()
    columns = {
        "limit": first["limit"],
        "cards": groups.size(),
        "time_s": medians["time_s"],
        "power_w": medians["power_w"],
        "time_spread": ranges["time_difference"],
        "power_spread": ranges["power_difference"],
        "time_deviation": cards.assign(log=np.log1p(cards["time_difference"])).groupby("program")["log"].std(),
        "flop_per_byte": first["flop_per_byte"],
        "at_power_limit": first["at_power_limit"],
    }
    found = pd.DataFrame(columns).rename_axis("program").reset_index()
    return found.sort_values("time_spread", ascending=False, ignore_index=True)


def draw_programs(cards: pd.DataFrame, where: str) -> Figure:
    """Draw each card's difference from the median card in each program, coloured by what limits the program.

    Parameters
    ----------
    cards
        As `of_cards` returns them.
    where
        Model of the cards.
    """
    names = [name for limit in LIMITS for name in cards.loc[cards["limit"] == limit, "program"].unique()]
    shown = style.entries([limit for limit in LIMITS if limit in set(cards["limit"])])
    figure, (panels,) = style.panels(1, 2, height_in=0.5 + 0.2 * len(names), share_y=True)
    for axes, quantity in zip(panels, ("time", "power"), strict=True):
        for entry in shown:
            own = cards[cards["limit"] == entry.label]
            at = own["program"].map(names.index)
            axes.plot(100 * own[f"{quantity}_difference"], at, entry.marker, color=entry.colour, alpha=0.5)
        axes.axvline(0, color=style.GREY, linewidth=0.8, zorder=1)
        axes.set_xlabel(quantity)
        style.percent(axes, "x")
    panels[0].set_yticks(range(len(names)), labels=names)
    panels[0].invert_yaxis()
    style.legend(figure, shown, f"{where}: difference from the median card, by what limits the program")
    style.footer(figure, "A point is a card. At the power limit, power is the same on all cards and time differs.")
    return figure
