"""`predict --measure-missing`: of a pass first measured what its time is least certain for, on a node with the GPU.

Operations are measured alone, time only, in batches; after each the pass is composed anew. What contributes most
uncertainty comes first: the width of the interval of its device time, as often as it is called.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from clockwatt.errors import RequestError
from clockwatt.gpu.specs import find_spec
from clockwatt.predict.all_gpus import AllGpus
from clockwatt.predict.answer import Answer
from clockwatt.predict.answerer import predict_network
from clockwatt.predict.costs.interface import Costs
from clockwatt.predict.costs.measured import DeviceTimes
from clockwatt.predict.description import GpuDescription
from clockwatt.predict.evaluation.errors import NORMAL_90
from clockwatt.predict.evaluation.pass_errors import PassErrors, added_errors
from clockwatt.predict.gpu_predictor import GpuPredictor
from clockwatt.predict.hosts.profile import HostProfile
from clockwatt.predict.models.predictors import TARGETS
from clockwatt.predict.recommend import Recommendation
from clockwatt.predict.tracing import TracedNetwork
from clockwatt.schema.records import MeasurementRow

if TYPE_CHECKING:
    from clockwatt.measure.on_demand import OnDemand

_FIRST_BATCH = 8
"""Each batch is twice as long as the one before: opening the GPU takes as long as measuring dozens."""
_TIME_ALONE_ERROR = 0.02
"""Half a 90 % interval of time alone, beside its own standard error: what it differs from a full measurement."""
_DEVICE = TARGETS.index("time_device_corrected_s")


@dataclass(frozen=True)
class Stop:
    """When enough was measured: after so many operations, so many seconds, or at half so wide an interval.

    Attributes
    ----------
    operations, seconds, width
        Only one of them is finite; `width` is half of the interval of device time, relative to it.
    """

    operations: float = math.inf
    seconds: float = math.inf
    width: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `20`, `30s` or `5%`; RequestError if it is none of them."""
        number = text.strip().removesuffix("s").removesuffix("%")
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if value >= 0 and math.isfinite(value):
            if text.strip() == number + "s":
                return cls(seconds=value)
            if text.strip() == number + "%":
                return cls(width=value / 100)
            if text.strip() == number and value.is_integer():
                return cls(operations=value)
        raise RequestError(
            f"{{measure_missing}} {text!r}: write how many operations (20), how long (30s) or to which width (5%)."
        )


@dataclass(frozen=True)
class MeasuredNow:
    """What was measured for an answer.

    Attributes
    ----------
    operations, looked_up
        How many operations were measured now, and were in the store before.
    left
        How many of the pass were not measured, now or ever.
    seconds
        How long it took.
    half_width_before, half_width
        Half the 90 % interval of device time relative to it, before and after.
    """

    operations: int
    looked_up: int
    left: int
    seconds: float
    half_width_before: float
    half_width: float

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass
class Missing:
    """The operations of a pass that lack a measurement on a GPU at an operating point.

    Parameters
    ----------
    model, traced
        Predictors of the GPU, and the pass.
    demand
        Where and how is measured.
    whole
        Whether the pass is measured whole afterwards.
    """

    model: GpuPredictor
    traced: TracedNetwork
    demand: OnDemand
    whole: bool = False
    _found: dict[str, MeasurementRow] = field(default_factory=dict)

    def answer(self, stop: Stop, host: HostProfile | None = None) -> tuple[Answer, MeasuredNow]:
        """Measure until `stop`, then answer; ClockwattError if the GPU is not here, or as `predict_network`."""
        begun_s = time.monotonic()
        before, missing = self._uncertainty()
        self._found = self.demand.stored(self._rows(list(missing.index)))
        looked_up, tried = len(self._found), set[str]()
        half_width, missing = self._uncertainty() if looked_up else (before, missing)
        batch = _FIRST_BATCH
        while len(missing := missing.drop(labels=list(tried & set(missing.index)))) and half_width > stop.width:
            left_s = stop.seconds - (time.monotonic() - begun_s)
            wanted = int(min(batch, stop.operations - len(tried), len(missing)))
            if wanted < 1 or left_s <= 0:
                break
            chosen = list(missing.index[:wanted])
            rows = self._rows(chosen)
            self.demand.measure(rows, None if math.isinf(left_s) else left_s)
            tried.update(chosen)
            self._found |= self.demand.stored(rows)
            half_width, missing = self._uncertainty()
            batch *= 2
        seconds = time.monotonic() - begun_s
        now = MeasuredNow(len(self._found) - looked_up, looked_up, len(missing), seconds, before, half_width)
        return self._answer(host), now

    def missing(self) -> pd.Series:
        """Share of the pass's device time that each operation without a measurement takes, by its id."""
        costs, calls, open_ = self._costs()
        seconds = calls * costs.mean[:, _DEVICE]
        return pd.Series(seconds / seconds.sum(), index=self.traced.operations["operation_id"])[open_]

    def refined(self) -> GpuPredictor:
        """The predictors with what was measured."""
        found = {name: row for name, row in self._found.items() if row.time_device_s}
        seconds = {name: float(row.time_device_s or 0.0) for name, row in found.items()}
        return self.model.with_device_times(
            DeviceTimes(str(self.demand.point), self.demand.execution, seconds, _errors(found, seconds))
        )

    def _uncertainty(self) -> tuple[float, pd.Series]:
        """Half the interval of device time relative to it, and what each operation not measured adds, most first."""
        costs, calls, open_ = self._costs()
        factors = np.nan_to_num(costs.factors, nan=1.0)
        halves_s = calls * costs.mean[:, _DEVICE] * (factors[:, _DEVICE, 1] - factors[:, _DEVICE, 0]) / 2
        added = pd.Series(halves_s, index=self.traced.operations["operation_id"])
        errors = self.model.description.passes[self.demand.pass_].errors or PassErrors()
        half_width = errors.device_half_width(added_errors(costs.mean, factors, calls, gap_s=self.traced.gap_s))
        return half_width, added[open_].sort_values(ascending=False)

    def _costs(self) -> tuple[Costs, NDArray[np.float64], NDArray[np.bool_]]:
        """Costs of the pass's operations, how often each is called, and which of them lack a measurement."""
        operations, point = self.traced.operations, str(self.demand.point)
        source = self.refined().costs(
            operations, self.demand.pass_, execution=self.demand.execution, features=self.traced.features
        )
        costs = source.at([point])[point]
        calls = self.traced.composer.times_called
        return costs, calls, operations["device_work"].to_numpy(bool) & ~costs.measured

    def _rows(self, names: list[str]) -> pa.Table:
        """Rows of the catalogue of some operations."""
        operations = self.traced.tables()[2]
        return operations.filter(pc.is_in(operations["operation_id"], value_set=pa.array(names)))

    def _answer(self, host: HostProfile | None) -> Answer:
        """The pass with what was measured."""
        return predict_network(
            self.refined(), self.traced, str(self.demand.point), execution=self.demand.execution, host=host,
            bounded=not self.whole,
        )  # fmt: skip


def _errors(rows: Mapping[str, MeasurementRow], seconds: Mapping[str, float]) -> dict[str, float]:
    """Half the 90 % interval of each device time, relative to it."""
    own = {name: (row.time_device_standard_error_s or 0.0) / seconds[name] for name, row in rows.items()}
    return {name: math.hypot(_TIME_ALONE_ERROR, NORMAL_90 * error) for name, error in own.items()}


def answer_measured(
    predictors: AllGpus,
    traced: TracedNetwork,
    stop: Stop,
    demand: OnDemand,
    host: str | None = None,
    *,
    whole: bool = False,
) -> tuple[Answer, MeasuredNow]:
    """Predict a pass with what it lacks most measured first, on a named host or the median one.

    `whole` as in `Missing`.

    Raises
    ------
    ClockwattError
        As `Missing.answer`, or if the campaign's GPU is another model than the predictors are of.
    """
    missing = replace(_missing(predictors, traced, demand), whole=whole)
    return missing.answer(stop, predictors.profile(host))


def choose_measured(
    predictors: AllGpus, traced: TracedNetwork, stop: Stop, demand_at: Callable[[str, str], OnDemand], **asked: Any
) -> tuple[Recommendation, dict[str, MeasuredNow]]:
    """Choose, measure what the choice lacks most, and choose again, until the GPU that is best was measured on.

    Parameters
    ----------
    predictors, traced, stop
        Among what is chosen, the pass, and how much is measured on each GPU.
    demand_at
        GPU and operating point to where and how is measured.
    asked
        As `AllGpus.choose` takes it.

    Returns
    -------
    answer, measured
        The choice, and what was measured on each GPU that came out best.
    """
    now, chosen = predictors, predictors.choose(traced, **asked)
    measured: dict[str, MeasuredNow] = {}
    while (best := chosen.best).gpu not in measured:
        missing = _missing(predictors, traced, demand_at(best.gpu, best.point))
        _, measured[best.gpu] = missing.answer(stop)
        now = replace(now, models={**now.models, best.gpu: missing.refined()})
        chosen = now.choose(traced, **asked)
    return chosen, measured


def _missing(predictors: AllGpus, traced: TracedNetwork, demand: OnDemand) -> Missing:
    """What a pass lacks on the GPU that is measured on."""
    model = predictors.model(demand.label)
    check_same_gpu(demand.config.gpu(demand.label).device, demand.label, model.description)
    return Missing(model, traced, demand)


def check_same_gpu(device: str, label: str, description: GpuDescription) -> None:
    """Refuse to measure on a GPU for predictors of another one, as shipped ones may be.

    RequestError if the campaign's label stands for another model, or the one is virtual and the other is not.
    """
    same = device.startswith("virtual:") == description.virtual and find_spec(device) == find_spec(description.gpu_name)
    if not same:
        raise RequestError(
            f"{{gpu}} {label}: is {device} in the campaign, but these predictors are of {description.gpu_name}. Give "
            "the campaign's GPU another label, or fit predictors of it."
        )
