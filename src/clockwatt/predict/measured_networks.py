"""Networks that were measured whole, and the operating point where each took least energy."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from clockwatt.config import reference_point
from clockwatt.errors import DataFileError
from clockwatt.io import files
from clockwatt.predict.answer import QUANTITIES, Estimate
from clockwatt.predict.composition.networks import PREDICTED, VALIDATION_SCHEMA
from clockwatt.schema import layout
from clockwatt.schema.costs import MEASURED_WHOLE
from clockwatt.schema.execution import ExecutionSettings

_KEY = ["network_id", "pass", "execution", "point"]


class MeasuredNetworks:
    """Passes of one GPU that were measured whole, from the folder that `clockwatt validate` wrote.

    Parameters
    ----------
    validation_dir
        It need not be there: then nothing is known.
    gpu
        Label.
    """

    def __init__(self, validation_dir: Path, gpu: str) -> None:
        self._path, self._gpu = validation_dir / layout.NETWORKS_FILE, gpu

    def measured(self, network_id: str, pass_: str, point: str, *, execution: ExecutionSettings) -> Estimate | None:
        """A pass as measured; None where it was not."""
        rows = self._rows.get((network_id, pass_, execution, point))
        return None if rows is None else _estimate(rows, [MEASURED_WHOLE[quantity] for quantity in QUANTITIES])

    def held_out(self, network_id: str, pass_: str, point: str, *, execution: ExecutionSettings) -> Estimate | None:
        """A pass as predictors predict it that were fitted without its network, on the host of its measurement."""
        rows = self._rows.get((network_id, pass_, execution, point))
        if rows is None:
            return None
        rows = rows[(rows["source"] == PREDICTED) & (rows["calls_without_cost"] == 0)]
        return _estimate(rows, QUANTITIES)

    @functools.cached_property
    def _rows(self) -> dict[Any, pd.DataFrame]:
        if not self._path.exists():
            return {}
        rows = files.read_table(self._path, VALIDATION_SCHEMA).to_pandas()
        return dict(iter(rows[rows["gpu"] == self._gpu].groupby(_KEY)))


def _estimate(rows: pd.DataFrame, columns: Sequence[str]) -> Estimate | None:
    if rows.empty:
        return None
    values = [float(rows[column].iloc[0]) if pd.notna(rows[column].iloc[0]) else None for column in columns]
    return Estimate(time_s=values[0], power_w=values[1], energy_j=values[2])


_OF_ONE = ["gpu", "network_id", "pass", "execution"]
_MEASURED = ["measured_time_s", "measured_energy_j"]


@dataclass(frozen=True)
class BestPoint:
    """A network's pass on one GPU at the operating point where it took least energy, beside the reference point.

    Attributes
    ----------
    points
        How many operating points were measured.
    more_time, less_energy
        Than at the reference point (`config.reference_point`), relative to it; 0 where that is the same.
    """

    network_id: str
    pass_: str
    execution: ExecutionSettings
    gpu: str
    virtual: bool
    points: int
    point: str
    time_s: float
    energy_j: float
    reference_point: str
    more_time: float
    less_energy: float

    def to_dict(self) -> dict[str, Any]:
        """For JSON; the key of the pass is `pass`."""
        values = asdict(self)
        return {"pass": values.pop("pass_"), **values}


def best_points(validation_dir: Path) -> list[BestPoint]:
    """Of every network, pass, GPU and execution settings that was measured whole; those at most points first.

    Raises
    ------
    DataFileError
        If nothing was validated, or the file is damaged.
    """
    path = validation_dir / layout.NETWORKS_FILE
    if not path.exists():
        raise DataFileError(f"{path}: no such file. Run the campaign to its end, or name a network.")
    table = files.read_table(path, VALIDATION_SCHEMA, [*_OF_ONE, "virtual", "point", *_MEASURED])
    rows = table.to_pandas().dropna(subset=_MEASURED).drop_duplicates([*_OF_ONE, "point"])
    found = []
    for (gpu, network_id, pass_, execution), own in rows.groupby(_OF_ONE, sort=True):
        least = own.loc[own["measured_energy_j"].idxmin()]
        reference = own.set_index("point").loc[reference_point(own["point"])]
        found.append(
            BestPoint(
                str(network_id), str(pass_), ExecutionSettings(str(execution)), str(gpu),
                bool(least["virtual"]), len(own),
                str(least["point"]), float(least["measured_time_s"]), float(least["measured_energy_j"]),
                str(reference.name),
                float(least["measured_time_s"] / reference["measured_time_s"] - 1),
                float(1 - least["measured_energy_j"] / reference["measured_energy_j"]),
            )
        )  # fmt: skip
    return sorted(found, key=lambda best: -best.points)
