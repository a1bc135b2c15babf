"""`predict --measure-missing`: of a pass first measured what its time is least certain for, on a node with the GPU.

Operations are measured alone, in batches; after each the pass is composed anew. What contributes most uncertainty comes
first: the width of its interval, as often as it is called. Device times come first, which take a twentieth of the time
that energies take; then energies, as long as the energy is less certain than the device time.
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
from clockwatt.predict.costs import Costs
from clockwatt.predict.description import GpuDescription
from clockwatt.predict.evaluation.errors import NORMAL_90
from clockwatt.predict.evaluation.pass_errors import PassErrors, added_errors
from clockwatt.predict.gpu_predictor import GpuPredictor
from clockwatt.predict.hosts import HostProfile
from clockwatt.predict.measured_costs import MeasuredOperations
from clockwatt.predict.models.predictors import TARGETS
from clockwatt.predict.recommend import Recommendation
from clockwatt.predict.request import Request
from clockwatt.predict.tracing import TracedNetwork
from clockwatt.schema.costs import ENERGY_DYNAMIC_CORRECTED, TIME_DEVICE_CORRECTED
from clockwatt.schema.records import MeasurementRow

if TYPE_CHECKING:
    from clockwatt.measure.on_demand import OnDemand

_FIRST_BATCH = 8
"""Each batch is twice as long as the one before: composing the pass anew takes as long as measuring one."""
_TIME_TAKES_S, _ENERGY_TAKES_S = 0.1, 1.5
"""About what measuring an operation takes, in time alone and with energy: so many are asked for where seconds limit."""
_TIME_ALONE_ERROR = 0.02
"""Half a 90 % interval of time alone, beside its own standard error: what it differs from a full measurement."""
_ENERGY_ERROR = 0.04
"""Half a 90 % interval of dynamic energy, beside its own standard error: what sensors and windows differ by."""
_DEVICE, _DYNAMIC = (TARGETS.index(name) for name in (TIME_DEVICE_CORRECTED, ENERGY_DYNAMIC_CORRECTED))


@dataclass(frozen=True)
class Stop:
    """When enough was measured: after so many operations, so many seconds, or at half so wide an interval.

    Attributes
    ----------
    operations, seconds, width
        Only one of them is finite. So many operations are measured in time, and as many in energy; `width` is half of
        the intervals of device time and dynamic energy, relative to them.
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
    operations, energies, looked_up
        How many operations were measured now, of how many the energy, and how many were in the store before.
    left
        How many of the pass were not measured, now or ever.
    seconds, energies_s
        How long it took, and how much of it the energies.
    half_width_before, half_width
        Half the 90 % interval of device time relative to it, before and after.
    energy_half_width_before, energy_half_width
        The same of dynamic energy; None without predicted energy.
    """

    operations: int
    energies: int
    looked_up: int
    left: int
    seconds: float
    energies_s: float
    half_width_before: float
    half_width: float
    energy_half_width_before: float | None
    energy_half_width: float | None

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
        before, missing = self._uncertainty(_DEVICE)
        energy_before, lacking = self._uncertainty(_DYNAMIC)
        self._found = self.demand.stored(self._rows([*missing.index.union(lacking.index)]))
        looked_up = len(self._found)
        half_width = self._measure(stop, begun_s, _DEVICE, stop.width)
        operations, timed_s = len(self._found) - looked_up, time.monotonic()
        with_energy = len(self._energies())
        energy_half_width = self._measure(stop, begun_s, _DYNAMIC, max(stop.width, half_width or 0.0))
        ended_s = time.monotonic()
        now = MeasuredNow(
            operations,
            len(self._energies()) - with_energy,
            looked_up,
            len(self._uncertainty(_DEVICE)[1]),
            ended_s - begun_s,
            ended_s - timed_s,
            before or 0.0,
            half_width or 0.0,
            energy_before,
            energy_half_width,
        )
        return self._answer(host), now

    def _measure(self, stop: Stop, begun_s: float, target: int, width: float) -> float | None:
        """Measure operations in one cost until `stop`, or until half its interval is `width`; return that half."""
        energy, tried, batch = target == _DYNAMIC, set[str](), _FIRST_BATCH
        takes_s = _ENERGY_TAKES_S if energy else _TIME_TAKES_S
        half_width, missing = self._uncertainty(target)
        while half_width is not None and half_width > width:
            missing = missing.drop(labels=list(tried & set(missing.index)))
            left_s = stop.seconds - (time.monotonic() - begun_s)
            many = batch if math.isinf(left_s) else left_s / takes_s
            wanted = int(min(many, stop.operations - len(tried), len(missing)))
            if wanted < 1:
                break
            chosen = list(missing.index[:wanted])
            rows = self._rows(chosen)
            self.demand.measure(rows, None if math.isinf(left_s) else left_s, energy=energy)
            tried.update(chosen)
            self._found |= self.demand.stored(rows)
            half_width, missing = self._uncertainty(target)
            batch *= 2
        return half_width

    def missing(self) -> pd.Series:
        """Share of the pass's device time that each operation without a measurement takes, by its id."""
        costs, calls, open_ = self._costs()
        seconds = calls * costs.mean[:, _DEVICE]
        return pd.Series(seconds / seconds.sum(), index=self.traced.operations["operation_id"])[open_]

    def refined(self) -> GpuPredictor:
        """The predictors with what was measured."""
        return self.model.with_measured(
            MeasuredOperations(str(self.demand.point), self.demand.execution, self._times(), self._energies())
        )

    def _times(self) -> dict[str, tuple[float, float]]:
        """Device times that were measured, each with half its 90 % interval relative to it."""
        return _with_errors(
            {name: (row.time_device_s, row.time_device_standard_error_s) for name, row in self._found.items()},
            _TIME_ALONE_ERROR,
        )

    def _energies(self) -> dict[str, tuple[float, float]]:
        """Dynamic energies that were measured, of unthrottled calls where back to back the power limit slows them."""
        found = {}
        for name, row in self._found.items():
            unthrottled = row.energy_dynamic_unthrottled_j, row.energy_dynamic_unthrottled_standard_error_j
            plain = row.energy_dynamic_j, row.energy_dynamic_standard_error_j
            found[name] = plain if unthrottled[0] is None else unthrottled
        return _with_errors(found, _ENERGY_ERROR)

    def _uncertainty(self, target: int) -> tuple[float | None, pd.Series]:
        """Half the interval of a cost of the pass relative to it, and what each operation adds that is not measured.

        What adds most comes first. None and nothing where the predictors hold no energy.
        """
        costs, calls, open_ = self._costs()
        factors = np.nan_to_num(costs.factors, nan=1.0)
        halves = calls * costs.mean[:, target] * (factors[:, target, 1] - factors[:, target, 0]) / 2
        ids = self.traced.operations["operation_id"]
        errors = self.model.description.passes[self.demand.pass_].errors or PassErrors()
        added = added_errors(costs.mean, factors, calls, gap_s=self.traced.gap_s)
        if target == _DEVICE:
            return errors.device_half_width(added), pd.Series(halves, index=ids)[open_].sort_values(ascending=False)
        if not np.isfinite(halves).all() or ENERGY_DYNAMIC_CORRECTED not in added:
            return None, pd.Series(dtype=float)
        open_ = (halves > 0) & ~ids.isin(list(self._energies())).to_numpy(bool)
        open_ &= (
            ~self.model.costs(
                self.traced.operations,
                self.demand.pass_,
                execution=self.demand.execution,
                features=self.traced.features,
            )
            .at([str(self.demand.point)])[str(self.demand.point)]
            .measured
        )
        return errors.dynamic_half_width(added), pd.Series(halves, index=ids)[open_].sort_values(ascending=False)

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
        return operations.filter(pc.is_in(operations["operation_id"], value_set=pa.array(names, pa.string())))

    def _answer(self, host: HostProfile | None) -> Answer:
        """The pass with what was measured."""
        return predict_network(
            self.refined(), self.traced, str(self.demand.point), execution=self.demand.execution, host=host,
            bounded=not self.whole,
        )  # fmt: skip


def _with_errors(
    found: Mapping[str, tuple[float | None, float | None]], at_least: float
) -> dict[str, tuple[float, float]]:
    """Keep values above zero, each with half its 90 % interval relative to it."""
    return {
        name: (value, math.hypot(at_least, NORMAL_90 * (error or 0.0) / value))
        for name, (value, error) in found.items()
        if value is not None and value > 0
    }


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
    predictors: AllGpus,
    request: Request,
    traced: TracedNetwork,
    stop: Stop,
    demand_at: Callable[[str, str], OnDemand],
) -> tuple[Recommendation, dict[str, MeasuredNow]]:
    """Choose, measure what the choice lacks most, and choose again, until the GPU that is best was measured on.

    Parameters
    ----------
    predictors, request, traced, stop
        Among what is chosen, what is asked, the pass, and how much is measured on each GPU.
    demand_at
        GPU and operating point to where and how is measured.

    Returns
    -------
    answer, measured
        The choice, and what was measured on each GPU that came out best.
    """
    now, chosen = predictors, predictors.choose(request, traced)
    measured: dict[str, MeasuredNow] = {}
    while (best := chosen.best).gpu not in measured:
        with demand_at(best.gpu, best.point) as demand:
            missing = _missing(predictors, traced, demand)
            _, measured[best.gpu] = missing.answer(stop)
        now = replace(now, models={**now.models, best.gpu: missing.refined()})
        chosen = now.choose(request, traced)
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
            "the campaign's GPU another label, or fit predictors to it."
        )
