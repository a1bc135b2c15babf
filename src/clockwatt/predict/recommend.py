"""What a network's pass costs at an operating point, and where it costs least."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from clockwatt.errors import DataFileError
from clockwatt.predict.backtest import objective_of
from clockwatt.predict.gpumodel import DESCRIPTION_FILE, GpuModel, NotPredictableError
from clockwatt.predict.network import COST_COLUMNS, Composition, compose
from clockwatt.predict.predictors import TARGETS
from clockwatt.predict.validate import VALIDATION_FILE
from clockwatt.records import NetworkRow


@dataclass(frozen=True)
class TracedNetwork:
    """A network in one pass, as the catalogue has it.

    Attributes
    ----------
    network
        Its row of the catalogue.
    calls
        Its calls in order, with `operation_id` and `phase`.
    operations
        Its unique operations, with `features.CATALOGUE_COLUMNS` and `device_work`.
    """

    network: NetworkRow
    calls: pd.DataFrame
    operations: pd.DataFrame


@dataclass(frozen=True)
class NetworkPrediction:
    """A predicted pass of a network on one GPU at one operating point.

    Attributes
    ----------
    virtual
        Whether it rests on a modelled GPU.
    measured_point
        Whether operations were measured at this operating point; elsewhere the clock law speaks.
    expected
        The pass as predicted.
    lower, upper
        The same with every operation at the end of its interval, as if all errors had one cause: the widest the
        intervals allow. None where an operation has no interval.
    """

    gpu: str
    gpu_name: str
    virtual: bool
    point: str
    tf32: bool
    pass_: str
    network_id: str
    measured_point: bool
    expected: Composition
    lower: Composition | None
    upper: Composition | None

    def to_dict(self) -> dict[str, Any]:
        """For JSON; the key of the pass is `pass`."""
        values = asdict(self)
        values["pass"] = values.pop("pass_")
        return values


@dataclass(frozen=True)
class Recommendation:
    """Where a network's pass costs least.

    Attributes
    ----------
    objective
        time, energy or edp.
    best
        The choice.
    candidates
        Every operating point of every GPU, best first; those too slow come last.
    allowed
        How many of them are within the allowed slowdown of the fastest.
    regret
        What such choices have cost on the best GPU, see `backtest.regrets`; None without a validation of it.
    """

    objective: str
    best: NetworkPrediction
    candidates: list[NetworkPrediction]
    allowed: int
    regret: dict[str, Any] | None

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "objective": self.objective,
            "best": self.best.to_dict(),
            "candidates": [candidate.to_dict() for candidate in self.candidates],
            "allowed": self.allowed,
            "regret": self.regret,
        }


def load_models(predictors_dir: Path) -> dict[str, GpuModel]:
    """Every GPU that a folder of predictors knows.

    Raises
    ------
    DataFileError
        If there is none, or one is damaged.
    """
    folders = sorted(path.parent for path in predictors_dir.glob(f"*/{DESCRIPTION_FILE}"))
    if not folders:
        raise DataFileError(f"{predictors_dir}: holds no predictors. Run `clockwatt fit`, or give another folder.")
    return {folder.name: GpuModel.load(folder) for folder in folders}


def predict_network(model: GpuModel, traced: TracedNetwork, point: str, *, tf32: bool = True) -> NetworkPrediction:
    """Predict one pass of a network on one GPU at one operating point.

    Raises
    ------
    NotPredictableError
        If this pass was not fitted.
    ConfigError
        If `point` is no operating point.
    """
    network = traced.network
    costs = model.predict(traced.operations, network.pass_, point, tf32=tf32)
    point_costs = model.point_costs(point)

    def composed(prefix: str) -> Composition | None:
        chosen = costs[[f"{prefix}{name}" for name in TARGETS]].set_axis(list(TARGETS), axis=1)
        chosen["energy_j"] = chosen["power_w"] * chosen["time_eager_s"]
        composition = compose(traced.calls, network, chosen[COST_COLUMNS], point_costs)
        return composition if composition.complete else None

    expected = composed("")
    if expected is None:
        raise NotPredictableError(f"{network.network_id}: calls without an operation. Run `clockwatt catalogue` again.")
    description = model.description
    return NetworkPrediction(
        gpu=description.gpu,
        gpu_name=description.gpu_name,
        virtual=description.virtual,
        point=point,
        tf32=tf32,
        pass_=network.pass_,
        network_id=network.network_id,
        measured_point=point in description.points,
        expected=expected,
        lower=composed("lower_"),
        upper=composed("upper_"),
    )


def recommend(
    models: dict[str, GpuModel],
    traced: TracedNetwork,
    *,
    objective: str = "energy",
    max_slowdown: float = math.inf,
    tf32: bool = True,
    validation_dir: Path | None = None,
) -> Recommendation:
    """Find the GPU and operating point at which a pass costs least.

    Parameters
    ----------
    models
        GPUs to choose from, by label; all their measured operating points count. Virtual and measured ones do not mix.
    traced
        The network.
    objective
        `time`, `energy` or `edp` (their product).
    max_slowdown
        How much slower than the fastest candidate the choice may be; 0.1 is 10 %.
    tf32
        Whether TF32 may be used.
    validation_dir
        From `clockwatt validate`: what such choices have cost where it was measured.

    Raises
    ------
    NotPredictableError
        If no GPU predicts this pass, the idle power that energy needs is unknown, or virtual and measured GPUs mix.
    ValueError
        If there is no such objective.
    """
    if len({model.description.virtual for model in models.values()}) > 1:
        raise NotPredictableError(
            "virtual and measured GPUs cannot be compared: name the GPUs to choose from, all of one kind (--gpu)."
        )
    candidates = [
        predict_network(model, traced, point, tf32=tf32)
        for model in models.values()
        if traced.network.pass_ in model.description.passes
        for point in model.description.points
    ]
    values = {id(candidate): _value(candidate, objective) for candidate in candidates}
    if not candidates or not any(math.isfinite(value) for value in values.values()):
        raise NotPredictableError(
            f"no GPU predicts the {objective} of {traced.network.network_id} in {traced.network.pass_}. "
            "Fit predictors for this pass; energy also needs idle power from `clockwatt calibrate`."
        )
    fastest = min(candidate.expected.time_s for candidate in candidates)

    def too_slow(candidate: NetworkPrediction) -> bool:
        return candidate.expected.time_s > fastest * (1 + max_slowdown)

    ordered = sorted(candidates, key=lambda candidate: (too_slow(candidate), values[id(candidate)]))
    best = ordered[0]
    return Recommendation(
        objective=objective,
        best=best,
        candidates=ordered,
        allowed=sum(not too_slow(candidate) for candidate in candidates),
        regret=None if validation_dir is None else _known_regret(validation_dir, best, objective),
    )


def _value(candidate: NetworkPrediction, objective: str) -> float:
    energy_j = candidate.expected.energy_j
    if energy_j is None and objective != "time":
        return math.inf
    return float(objective_of(objective, candidate.expected.time_s, energy_j))


def _known_regret(validation_dir: Path, best: NetworkPrediction, objective: str) -> dict[str, Any] | None:
    path = validation_dir / VALIDATION_FILE
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        entries = report["gpus"].get(best.gpu, {}).get("regret", [])
        wanted = {"pass": best.pass_, "tf32": best.tf32, "objective": objective}
        return next((entry for entry in entries if {key: entry[key] for key in wanted} == wanted), None)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataFileError(f"{path}: not a validation ({error}). Run `clockwatt validate` again.") from error
