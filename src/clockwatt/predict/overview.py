"""One pass of a network on every GPU at every operating point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clockwatt.config import OperatingPoint
from clockwatt.errors import ClockwattError
from clockwatt.predict.answer import Answer, to_frame
from clockwatt.predict.answerer import check_fits, predict_points, with_tf32
from clockwatt.predict.gpu_predictor import GpuPredictor
from clockwatt.predict.hosts.profile import HostProfile
from clockwatt.predict.tracing import TracedNetwork
from clockwatt.schema.execution import TF32, ExecutionSettings

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class OnGpu:
    """A pass on one GPU at all operating points, by their settings."""

    gpu: str
    gpu_name: str
    virtual: bool
    predictors: str
    points: tuple[Answer, ...]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**vars(self), "points": [point.to_dict() for point in self.points]}

    def errors(self, quantity: str) -> list[float]:
        """Relative errors of predictors that were fitted without the network, at each point where it was measured."""
        return [
            abs(predicted / measured - 1)
            for point in self.points
            if point.measured is not None and point.held_out is not None
            and (measured := getattr(point.measured, quantity))
            and (predicted := getattr(point.held_out, quantity)) is not None
        ]  # fmt: skip


@dataclass(frozen=True)
class Overview:
    """One pass of a network on several GPUs; `left_out` says why others are not there."""

    network_id: str
    pass_: str
    execution: ExecutionSettings
    gpus: tuple[OnGpu, ...]
    left_out: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """For JSON; the key of the pass is `pass`."""
        return {
            "network_id": self.network_id,
            "pass": self.pass_,
            "execution": self.execution,
            "gpus": [gpu.to_dict() for gpu in self.gpus],
            "left_out": list(self.left_out),
        }

    def to_frame(self) -> pd.DataFrame:
        """A row for each GPU and operating point; see `answer.to_frame`."""
        return to_frame(self.answers)

    @property
    def answers(self) -> list[Answer]:
        """Of all GPUs and operating points."""
        return [answer for gpu in self.gpus for answer in gpu.points]


def overview(
    models: dict[str, GpuPredictor],
    traced: TracedNetwork,
    *,
    points: Sequence[str] = (),
    execution: ExecutionSettings = TF32,
    host: HostProfile | None = None,
    standard: Answer | None = None,
) -> Overview:
    """Answer for a network's pass on some GPUs at every operating point that was measured there.

    Parameters
    ----------
    models
        Predictors of the GPUs by label.
    points
        Operating points to answer for too.
    host
        That issues the calls; without one the median of those measured on.
    standard
        Every answer is compared with it.

    Raises
    ------
    ClockwattError
        If no GPU can be answered for.
    """
    shown, left_out = [], []
    for label, model in models.items():
        try:
            check_fits(traced, [model.description.gpu_name])
            for point in points:
                model.description.check_runs_at(point)
            asked = sorted({*model.description.points, *points}, key=lambda point: OperatingPoint.parse(point).order)
            first, *others = predict_points(model, traced, asked, execution=execution, host=host)
            answers = [with_tf32(model, traced, first, host=host), *others]
        except ClockwattError as error:
            left_out.append(str(error) if str(error).startswith(f"{label} ") else f"{label}: {error}")
            continue
        compared = [answer.compared_with(standard) for answer in answers] if standard else answers
        described = model.description
        shown.append(OnGpu(label, described.gpu_name, described.virtual, model.origin, tuple(compared)))
    if not shown:
        raise ClockwattError(" ".join(left_out))
    return Overview(traced.network.network_id, traced.network.pass_, execution, tuple(shown), tuple(left_out))
