"""Where each network that was measured whole took least energy: what a campaign found, in a line for each."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from clockwatt.errors import DataFileError
from clockwatt.io import files
from clockwatt.predict.composition.comparison import VALIDATION_SCHEMA
from clockwatt.schema import layout

_OF_ONE = ["gpu", "network_id", "pass", "tf32"]
_MEASURED = ["measured_time_s", "measured_energy_j"]


@dataclass(frozen=True)
class BestPoint:
    """A network's pass on one GPU at the operating point where it took least energy, beside the fastest one.

    Attributes
    ----------
    points
        How many operating points were measured.
    more_time, less_energy
        Than at the fastest point, relative to it; 0 where that is the same.
    """

    network_id: str
    pass_: str
    tf32: bool
    gpu: str
    virtual: bool
    points: int
    point: str
    time_s: float
    energy_j: float
    fastest_point: str
    more_time: float
    less_energy: float

    def to_dict(self) -> dict[str, Any]:
        """For JSON; the key of the pass is `pass`."""
        values = asdict(self)
        return {"pass": values.pop("pass_"), **values}


def best_points(validation_dir: Path) -> list[BestPoint]:
    """Of every network, pass, GPU and setting of TF32 that was measured whole; those at most points first.

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
    for (gpu, network_id, pass_, tf32), own in rows.groupby(_OF_ONE, sort=True):
        least = own.loc[own["measured_energy_j"].idxmin()]
        fastest = own.loc[own["measured_time_s"].idxmin()]
        found.append(
            BestPoint(
                str(network_id), str(pass_), bool(tf32), str(gpu), bool(least["virtual"]), len(own),
                str(least["point"]), float(least["measured_time_s"]), float(least["measured_energy_j"]),
                str(fastest["point"]),
                float(least["measured_time_s"] / fastest["measured_time_s"] - 1),
                float(1 - least["measured_energy_j"] / fastest["measured_energy_j"]),
            )
        )  # fmt: skip
    return sorted(found, key=lambda best: -best.points)
