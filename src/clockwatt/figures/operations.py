"""Named operations side by side: the ten that take most of the energy (figure 5.3 of the thesis)."""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from clockwatt.figures import style
from clockwatt.figures.gpus import Gpus
from clockwatt.figures.networks import NORMAL_95
from clockwatt.operations.spec.operation import MATRIX_CLASSES
from clockwatt.schema.costs import ENERGY_CORRECTED
from clockwatt.schema.execution import TF32, ExecutionSettings

COUNT = 10
QUANTITIES = {
    "time_s": ("device time per call", "s", "time_device_corrected_s", "time_device_corrected_standard_error_s"),
    "energy_j": ("energy per call", "J", ENERGY_CORRECTED, "energy_error"),
}
"""Quantities drawn: name, unit, column and its standard error."""

_ERRORS = {"time_s": "time_error_s", "energy_j": "energy_error_j"}
"""Column of half the interval of each quantity drawn."""


def costliest(operations: pd.DataFrame, calls: pd.DataFrame, gpus: Gpus) -> pd.DataFrame:
    """Return the ten operations with most of the networks' energy, one of each class, for each kind of GPUs.

    Parameters
    ----------
    operations
        From `load.operations`.
    calls
        From `load.calls`.
    gpus
        The GPUs of the campaign.

    Returns
    -------
    pandas.DataFrame
        `kind`, `gpu`, `point`, `operation_id`, `operation_class`, `pass`, `execution`, `rank`, `dtype`, `time_s`,
        `energy_j` and halves of
        their 95 % intervals, `time_error_s` and `energy_error_j`.
    """
    counts = calls.groupby(["operation_id", "pass"])["calls"].sum().reset_index()
    rows = operations[operations[ENERGY_CORRECTED].notna() & (operations["operation_kind"] == "compute")]
    rows = rows.merge(counts, on=["operation_id", "pass"])
    rows = rows.assign(
        kind=[gpus.kind(gpu) for gpu in rows["gpu"]],
        total_j=rows["calls"] * rows["energy_dynamic_corrected_j"].astype(float),
    )
    parts = []
    for _, own in rows.groupby("kind"):
        chosen = _chosen(own)
        parts.append(own.merge(chosen, on=["operation_id", "pass", "execution"]))
    found = pd.concat(parts, ignore_index=True) if parts else rows.assign(rank=pd.Series(dtype=int))
    found = found.assign(
        time_s=found["time_device_corrected_s"].astype(float),
        energy_j=found[ENERGY_CORRECTED].astype(float),
        time_error_s=NORMAL_95 * found["time_device_corrected_standard_error_s"].astype(float),
        energy_error_j=NORMAL_95 * found["energy_error"].astype(float),
    )
    key = ["kind", "gpu", "point", "operation_id", "operation_class", "dtype", "pass", "execution", "rank"]
    columns = ["time_s", "energy_j", "time_error_s", "energy_error_j"]
    medians = found.groupby(key)[columns].median().reset_index()
    ordered: pd.DataFrame = medians.sort_values(["kind", "rank", "gpu"], ignore_index=True)
    return ordered


def _chosen(own: pd.DataFrame) -> pd.DataFrame:
    """Return the operations with their `rank`: of those that most GPUs have, with TF32, the costliest of each class."""
    own = own[own["execution"] == TF32] if (own["execution"] == TF32).any() else own
    key = ["operation_class", "operation_id", "pass", "execution"]
    counted = own.groupby(key).agg(gpus=("gpu", "nunique"), total_j=("total_j", "mean")).reset_index()
    common = counted[counted["gpus"] == counted["gpus"].max()].sort_values("total_j", ascending=False)
    first: pd.DataFrame = common.drop_duplicates("operation_class").head(COUNT)
    first = first.assign(rank=range(1, len(first) + 1))
    return first[["operation_id", "pass", "execution", "rank"]]


def words(operation_class: str, spec: str) -> str:
    """Return the display name of an operation: `conv2d 32×64×56×56, 3×3 to 128`."""
    tensors = json.loads(spec)["tensors"] if spec else []
    shapes = ["×".join(str(size) for size in tensor["shape"]) or "scalar" for tensor in tensors[:2]]
    return f"{operation_class} {' · '.join(shapes)}"


def draw(data: pd.DataFrame, specs: Mapping[str, str], gpus: Gpus) -> Figure:
    """Draw bars of time and energy, a colour for each GPU, real and virtual ones apart.

    Parameters
    ----------
    data
        From `costliest`.
    specs
        From `load.specs`.
    gpus
        The GPUs of the campaign.
    """
    if data.empty:
        return style.nothing("no operation of a network has both time and energy.")
    kinds = gpus.kinds(data["gpu"].unique())
    shown = {kind: gpus.shown(labels) for kind, labels in kinds.items()}
    heights = [0.6 + (0.12 + 0.13 * len(shown[kind])) * data.loc[data["kind"] == kind, "rank"].max() for kind in kinds]
    figure, grid = style.panels(len(kinds), len(QUANTITIES), height_in=heights)
    for line, kind in zip(grid, kinds, strict=True):
        own = data[(data["kind"] == kind) & data["gpu"].isin(shown[kind])]
        ranked = own.drop_duplicates("rank").sort_values("rank")
        names = [
            f"{words(row['operation_class'], specs.get(row['operation_id'], ''))} "
            f"{_format(row['operation_class'], row['dtype'], ExecutionSettings(row['execution']))}, {row['pass']}"
            for row in ranked.to_dict("records")
        ]
        for axes, (quantity, (name, unit, *_)) in zip(line, QUANTITIES.items(), strict=True):
            low = 0.4 * float(np.nanmin(own[quantity].where(own[quantity] > 0)))
            for offset, gpu in enumerate(shown[kind]):
                part = own[own["gpu"] == gpu]
                height = 0.8 / len(shown[kind])
                error = part[_ERRORS[quantity]].fillna(0)
                axes.barh(
                    part["rank"] - 1 + (offset - (len(shown[kind]) - 1) / 2) * height, part[quantity] - low, left=low,
                    height=height, color=gpus.entry(gpu).colour, xerr=error, error_kw={"elinewidth": 0.8},
                )  # fmt: skip
            axes.set_yticks(range(len(names)), labels=names if axes is line[0] else [""] * len(names))
            axes.tick_params(axis="y", labelsize=6, length=0)
            axes.set_ylim(len(names) - 0.4, -0.6)
            axes.set_xlim(left=low)
            style.log_axis(axes, "x", unit, name)
        point = ", ".join(dict.fromkeys(_point(own, gpu) for gpu in shown[kind]))
        for axes in line:
            gpus.kind_title(axes, kind, point, loc="right")
    labels = [label for of_kind in shown.values() for label in of_kind]
    style.legend(figure, [style.Entry(gpus.words(label), gpus.entry(label).colour, "s") for label in labels], "")
    style.footer(
        figure,
        "The costliest operation of each of the ten classes that take most energy of all networks; shapes of its "
        "first two "
        "tensors. Bars: 95 % intervals.",
        gpus.note(labels, data["gpu"].unique()),
    )
    return figure


def _point(own: pd.DataFrame, gpu: str) -> str:
    return str(own.loc[own["gpu"] == gpu, "point"].iloc[0]) if (own["gpu"] == gpu).any() else "default"


def _format(operation_class: str, dtype: str, execution: ExecutionSettings) -> str:
    """Return the number format of an operation; TF32 is for what multiplies matrices."""
    tf32 = dtype == "float32" and execution.matrix_tf32 and operation_class in MATRIX_CLASSES
    return "TF32" if tf32 else dtype
