"""One network on every GPU at every operating point, measured beside answered; and where each took least energy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from clockwatt.config import OperatingPoint, Pass
from clockwatt.errors import ClockwattError, DataFileError
from clockwatt.io import files
from clockwatt.predict.answer import TracedNetwork, check_fits, predict_points
from clockwatt.predict.composition.networks import PREDICTED, VALIDATION_SCHEMA
from clockwatt.predict.library import Predictors
from clockwatt.predict.prediction import NetworkPrediction
from clockwatt.schema import layout
from clockwatt.schema.costs import MEASURED_WHOLE

QUANTITIES = ("time_s", "power_w", "energy_j")


@dataclass(frozen=True)
class Whole:
    """Time, power and energy of a pass, without interval; None where it is not known."""

    time_s: float | None
    power_w: float | None
    energy_j: float | None


@dataclass(frozen=True)
class AtPoint:
    """A pass on one GPU at one operating point.

    Attributes
    ----------
    answer
        As `predict` answers: composed from measured operations where all were measured, else from predicted ones.
    measured
        The network as a whole, where it was measured so.
    unseen
        What was predicted for it by predictors that never saw it, on the host on which it was measured.
    """

    answer: NetworkPrediction
    measured: Whole | None
    unseen: Whole | None

    @property
    def composed(self) -> bool:
        """Whether every operation of it was measured there."""
        return self.answer.measured_calls == self.answer.expected.calls

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "point": self.answer.point,
            "measured": None if self.measured is None else asdict(self.measured),
            "composed" if self.composed else "predicted": self.answer.to_dict(),
            "predicted_unseen": None if self.unseen is None else asdict(self.unseen),
        }


@dataclass(frozen=True)
class OnGpu:
    """A pass on one GPU at all operating points, by their settings."""

    gpu: str
    gpu_name: str
    virtual: bool
    predictors: str
    points: tuple[AtPoint, ...]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**vars(self), "points": [point.to_dict() for point in self.points]}

    def missed(self, quantity: str) -> float | None:
        """How far predictors that never saw the network were off: the median over points; None where it is unknown."""
        errors = [
            abs(seen / true - 1)
            for point in self.points
            if point.measured is not None and point.unseen is not None
            and (true := getattr(point.measured, quantity)) and (seen := getattr(point.unseen, quantity)) is not None
        ]  # fmt: skip
        return float(np.median(errors)) if errors else None


@dataclass(frozen=True)
class Overview:
    """One pass of a network on the GPUs that were asked about; `left_out` says why others are not there."""

    network_id: str
    pass_: str
    tf32: bool
    gpus: tuple[OnGpu, ...]
    left_out: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """For JSON; the key of the pass is `pass`."""
        return {
            "network_id": self.network_id,
            "pass": self.pass_,
            "tf32": self.tf32,
            "gpus": [gpu.to_dict() for gpu in self.gpus],
            "left_out": list(self.left_out),
        }


def overview(
    predictors: Predictors,
    traced: TracedNetwork,
    *,
    gpus: Sequence[str] | None = None,
    points: Sequence[str] = (),
    tf32: bool = True,
    relative_to: str | None = None,
) -> Overview:
    """What is known of a network's pass on some GPUs at every operating point that was measured there.

    Parameters
    ----------
    gpus
        Labels; else all of the campaign's, or all that are shipped where there is no campaign.
    points
        Operating points to answer for too.
    relative_to
        A standard GPU that every answer is compared with, see `Predictors.standard`.

    Raises
    ------
    ClockwattError
        If a GPU is unknown, or if nothing can be told of any of them.
    """
    compared = _compared(predictors.validation_dir, traced, tf32=tf32)
    found, left_out = [], []
    standard = None if relative_to is None else predictors.standard(relative_to, traced, tf32=tf32)
    for label in gpus or predictors.models:
        model = predictors.model(label)
        try:
            check_fits(traced, [model.description.gpu_name])
            for point in points:
                model.description.check_runs_at(point)
            asked = sorted({*model.description.points, *points}, key=lambda point: OperatingPoint.parse(point).order)
            answers = predict_points(model, traced, asked, tf32=tf32)
            answers = [answer.compared_with(standard) for answer in answers] if standard else answers
        except ClockwattError as error:
            left_out.append(str(error) if str(error).startswith(f"{label} ") else f"{label}: {error}")
            continue
        of_gpu = compared[compared["gpu"] == label]
        found.append(
            OnGpu(
                label,
                model.description.gpu_name,
                model.description.virtual,
                model.origin,
                tuple(_at_point(answer, of_gpu[of_gpu["point"] == answer.point]) for answer in answers),
            )
        )
    if not found:
        raise ClockwattError(" ".join(left_out))
    return Overview(traced.network.network_id, traced.network.pass_, tf32, tuple(found), tuple(left_out))


def passes_of(predictors: Predictors, gpus: Sequence[str] | None) -> list[Pass]:
    """Passes that something was fitted for on any of the GPUs."""
    fitted = {pass_ for label in gpus or predictors.models for pass_ in predictors.model(label).description.passes}
    known: tuple[Pass, ...] = ("inference", "training")
    return [pass_ for pass_ in known if pass_ in fitted]


def _compared(validation_dir: Path, traced: TracedNetwork, *, tf32: bool) -> pd.DataFrame:
    """Rows of the validation about the pass; none where nothing was validated."""
    path = validation_dir / layout.NETWORKS_FILE
    rows = files.read_table(path, VALIDATION_SCHEMA) if path.exists() else VALIDATION_SCHEMA.empty_table()
    frame = rows.to_pandas()
    own = (frame["network_id"] == traced.network.network_id) & (frame["pass"] == traced.network.pass_)
    found: pd.DataFrame = frame[own & (frame["tf32"] == tf32)]
    return found


def _at_point(answer: NetworkPrediction, compared: pd.DataFrame) -> AtPoint:
    unseen = compared[(compared["source"] == PREDICTED) & (compared["calls_without_cost"] == 0)]
    return AtPoint(
        answer, _whole(compared, [MEASURED_WHOLE[quantity] for quantity in QUANTITIES]), _whole(unseen, QUANTITIES)
    )


def _whole(rows: pd.DataFrame, columns: Sequence[str]) -> Whole | None:
    if rows.empty:
        return None
    values = (rows[column].iloc[0] for column in columns)
    return Whole(*(float(value) if pd.notna(value) else None for value in values))


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
