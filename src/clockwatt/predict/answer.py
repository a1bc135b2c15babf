"""Cost of a pass: measured whole, composed of measured operations or predicted, in this order of trust."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from clockwatt.errors import ClockwattError
from clockwatt.schema.execution import ExecutionSettings

if TYPE_CHECKING:  # the command line imports constants of this module, and must start without numpy
    import pandas as pd

    from clockwatt.predict.composition.pipeline import Composition
    from clockwatt.predict.hosts import HostAnswer, HostSpan
    from clockwatt.predict.memory import PassMemory

OF_MEASURED = "_of_measured"
"""End of the name of an interval's method."""

MEASURED, COMPOSED, PREDICTED = "measured", "composed", "predicted"
"""Sources of an answer, the most trustworthy first."""

Ends = tuple[float, float]
QUANTITIES = ("time_s", "power_w", "energy_j")
RATIOS = {"time_s": "time_ratio", "power_w": "power_ratio", "energy_j": "energy_ratio"}
"""Quantities, and the names of their ratios."""
CALIBRATE_HOST = "clockwatt calibrate --host NAME"
"""Command that warnings name, to run on the host."""


@dataclass(frozen=True)
class Relative:
    """Cost of a pass relative to that on a standard GPU; a ratio of 2 is twice as much.

    Attributes
    ----------
    gpu, gpu_name, point
        The standard.
    virtual
        Whether the standard is a virtual GPU.
    mixed
        Whether a virtual GPU is compared with a measured one.
    time_ratio, power_ratio, energy_ratio
        None where one of the two is not known.
    intervals
        Ratios to the lower and upper ends of their intervals; a ratio without one is missing.
    warnings
        Warnings of the answer for the standard GPU.
    """

    gpu: str
    gpu_name: str
    point: str
    virtual: bool
    mixed: bool
    time_ratio: float | None
    power_ratio: float | None
    energy_ratio: float | None
    intervals: Mapping[str, Ends]
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


LIMITED_BY = {"host": "host-bound", "device": "device-bound", "power_limit": "power-capped"}
"""Name of the bottleneck of a pass, by `HostAnswer.paced_by`."""


@dataclass(frozen=True)
class OtherPrecision:
    """Time, mean power and energy of the pass in another precision; `source` is that of the time, as of an answer."""

    execution: ExecutionSettings
    source: str
    time_s: float
    power_w: float | None
    energy_j: float | None


class Detail(Protocol):
    """The operations behind an answer."""

    def frame(self, answer: Answer) -> pd.DataFrame:
        """Return the operations, the one that costs most device time first.

        Indexed by operation id. Columns: `operation` (readable), `operation_class`, `calls`; of all calls together
        `device_s`, `energy_dynamic_j`, `time_share` and `energy_share` of the pass; `measured`, whether the operation
        was measured at this operating point.
        """

    def shared(self, other: Any, *, host: bool) -> float:
        """Return the share of the uncertainty that two passes have in common, from 0 to 1.

        It is that of operations of equal cost in both, in the time of the `host`, else of the device.
        """


@dataclass(frozen=True)
class Estimate:
    """Time, mean power and energy of a pass from one source; None where one is not known.

    Attributes
    ----------
    intervals
        Quantities to the ends of their 90 % intervals; a quantity without one is missing.
    """

    time_s: float | None
    power_w: float | None
    energy_j: float | None
    intervals: Mapping[str, Ends] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """Cost of a pass of a network on one GPU at one operating point.

    Attributes
    ----------
    virtual
        Whether the GPU is virtual.
    network, input_shape, dtype
        Name, first input and dtype of the network.
    measured_point
        Whether operations were measured at this operating point; elsewhere costs are extrapolated with the clock model.
    expected
        The answer: `time_s`, `power_w` and `energy_j` from the most trustworthy source that knows them, see `sources`.
        The other quantities are composed.
    intervals
        `time_s`, `device_s`, `host_s`, `energy_j` and `power_w` to the ends of their 90 % intervals; a quantity without
        one is missing.
    interval_method, interval_networks
        Origin of the intervals. `measured`: cards of one model, and hosts, differ. `conformal` or `student_t` (see
        `evaluation.errors.grouped_interval`): errors of the operations, scaled by those of so many held-out networks;
        with `OF_MEASURED` at the end, errors of so many networks composed of measured operations. `operations`: errors
        of the operations alone, taken as normal. `none`: no interval is known.
    sources
        `time_s`, `power_w` and `energy_j` to `MEASURED` (the pass was measured whole), `COMPOSED` (of operations that
        all were measured at this operating point) or `PREDICTED` (others were predicted).
    measured, composed, predicted
        The pass by each source, None if not available; a pass that can be composed is not predicted.
    held_out
        The pass by predictors that were fitted without its network, on the host of its measurement; None where the
        network was not validated.
    measured_calls
        Number of calls of operations that were measured at this operating point.
    warnings
        Limits of the answer that can change it by more than 1 %.
    notes
        Limits that cannot.
    host
        The host of the answer, what limits the pass there, and what CUDA graphs would save; None where the pass is a
        sum of back-to-back times.
    on_hosts
        The pass on the fastest and slowest host of the range.
    predictors
        Where the predictors come from, see `GpuPredictor.origin`.
    relative_to
        Cost relative to the pass on a standard GPU, if one was named.
    optimizer
        Settings of the optimizer whose step a training pass of a network ends with; None for others.
    items, unit
        Number of `unit` (images, tokens, samples) that a pass processes; None for a list of operations.
    in_tf32
        The pass with TF32 in matrix products too, where PyTorch's default was asked for: if it was measured whole, or
        saves more than 10 % of time or energy.
    phases
        Seconds of `forward`, `backward` and `step` of a training pass; empty if not requested.
    memory
        Peak memory of the pass, and whether it fits; None where it was not asked for or cannot be predicted.
    detail
        The operations behind the answer, for `breakdown`.
    """

    gpu: str
    gpu_name: str
    virtual: bool
    point: str
    execution: ExecutionSettings
    pass_: str
    network_id: str
    network: str
    input_shape: list[int]
    dtype: str
    measured_point: bool
    expected: Composition
    intervals: dict[str, Ends]
    interval_method: str
    interval_networks: int
    sources: Mapping[str, str] = field(default_factory=dict)
    measured: Estimate | None = None
    composed: Estimate | None = None
    predicted: Estimate | None = None
    held_out: Estimate | None = None
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    measured_calls: int = 0
    host: HostAnswer | None = None
    on_hosts: HostSpan | None = field(default=None, repr=False, compare=False)
    predictors: str = ""
    relative_to: Relative | None = None
    optimizer: Mapping[str, Any] | None = None
    items: int | None = None
    unit: str = ""
    in_tf32: OtherPrecision | None = None
    phases: Mapping[str, float] = field(default_factory=dict)
    memory: PassMemory | None = None
    detail: Detail | None = field(default=None, repr=False, compare=False)

    def __repr__(self) -> str:
        """Return a line: what was asked, and its cost."""
        known = ((name, getattr(self, name)) for name in QUANTITIES)
        costs = ", ".join(f"{name}={value:.4g}" for name, value in known if value is not None)
        gpu = f"virtual {self.gpu}" if self.virtual else self.gpu
        where = f"{self.network_id}, {self.pass_}, {self.execution}, {gpu} at {self.point}"
        return f"<Answer {where}: {costs}, {self.source}>"

    @property
    def modelled(self) -> Estimate:
        """The pass as the sum of its operations, composed or predicted."""
        modelled = self.composed or self.predicted
        assert modelled is not None
        return modelled

    @property
    def items_per_s(self) -> float | None:
        """Throughput, items per second; None for a list of operations."""
        return self.items / self.time_s if self.items and self.time_s else None

    @property
    def items_per_joule(self) -> float | None:
        """Items per joule; None for a list of operations, or where the energy is not known."""
        return self.items / self.energy_j if self.items and self.energy_j else None

    @property
    def limited_by(self) -> str | None:
        """`host-bound`, `device-bound` or `power-capped`; None where host and device were not measured apart."""
        return None if self.host is None else LIMITED_BY[self.host.paced_by]

    @property
    def source(self) -> str:
        """Source of the time: `MEASURED`, `COMPOSED` or `PREDICTED`."""
        return self.sources["time_s"]

    @property
    def time_s(self) -> float:
        """Of one pass."""
        return self.expected.time_s

    @property
    def power_w(self) -> float | None:
        """Mean power over a pass."""
        return self.expected.power_w

    @property
    def energy_j(self) -> float | None:
        """Of one pass."""
        return self.expected.energy_j

    def with_measured(self, whole: Estimate) -> Answer:
        """Return the answer with the quantities of a measured pass in place of modelled ones."""
        known = {name: value for name in QUANTITIES if (value := getattr(whole, name)) is not None}
        if "time_s" not in known:
            return replace(self, measured=whole)
        ends = {name: ends for name, ends in whole.intervals.items() if name in known}
        return replace(
            self,
            expected=replace(self.expected, **known),
            intervals=self.intervals | ends,
            interval_method=MEASURED,
            interval_networks=0,
            sources={**self.sources, **dict.fromkeys(known, MEASURED)},
            measured=whole,
        )

    def with_warnings(self, warnings: Sequence[str]) -> Answer:
        """Return the answer with further warnings."""
        return replace(self, warnings=(*self.warnings, *warnings))

    def compared_with(self, standard: Answer) -> Answer:
        """The same, relative to the pass on a standard GPU."""
        return replace(self, relative_to=relative(self, standard))

    def breakdown(self) -> pd.DataFrame:
        """Return the operations of the pass, the one that costs most first; see `Detail.frame`."""
        assert self.detail is not None
        return self.detail.frame(self)

    def to_frame(self) -> pd.DataFrame:
        """Return a frame of one row; see `to_frame`."""
        return to_frame([self])

    def to_dict(self) -> dict[str, Any]:
        """For JSON; the key of the pass is `pass`, and `relative_to` is there if a standard GPU was named."""
        values = asdict(replace(self, on_hosts=None, detail=None, memory=None))
        for name in ("on_hosts", "detail", *(["relative_to"] if self.relative_to is None else [])):
            del values[name]
        values["pass"] = values.pop("pass_")
        values["memory"] = None if self.memory is None else self.memory.to_dict()
        derived = {"items_per_s": self.items_per_s, "items_per_joule": self.items_per_joule}
        return {**{name: getattr(self, name) for name in ("source", *QUANTITIES)}, **values, **derived}


MEMORY_COLUMNS = {
    "memory_allocated_bytes": "allocated_bytes",
    "memory_allocated_bytes_low": "allocated_low_bytes",
    "memory_allocated_bytes_high": "allocated_high_bytes",
    "memory_reserved_bytes": "reserved_bytes",
    "memory_reserved_bytes_low": "reserved_low_bytes",
    "memory_reserved_bytes_high": "reserved_high_bytes",
    "fits": "fits",
}
"""Columns of `to_frame`, and the attributes of `PassMemory` that they hold."""


def to_frame(answers: Sequence[Answer | ClockwattError], **columns: Sequence[Any]) -> pd.DataFrame:
    """Convert answers to a data frame, a row for each, with further columns in front.

    `…_low` and `…_high` are the ends of a quantity's 90 % interval; unknown values are null. `error` is the reason why
    a request has no answer.
    """
    import pandas as pd

    rows = [_row(answer) if isinstance(answer, Answer) else {"error": str(answer)} for answer in answers]
    first = pd.DataFrame({**columns}, index=range(len(rows)))
    frame = first.join(pd.DataFrame(rows, index=first.index).drop(columns=list(columns), errors="ignore"))
    return frame if "error" in frame else frame.assign(error=None)


def _row(answer: Answer) -> dict[str, Any]:
    row: dict[str, Any] = {
        "gpu": answer.gpu, "point": answer.point, "network_id": answer.network_id, "pass": answer.pass_,
        "execution": str(answer.execution), "source": answer.source,
    }  # fmt: skip
    for name in QUANTITIES:
        low, high = answer.intervals.get(name, (None, None))
        row |= {name: getattr(answer, name), f"{name}_low": low, f"{name}_high": high}
    memory = answer.memory
    for column, name in MEMORY_COLUMNS.items():
        row[column] = None if memory is None else getattr(memory, name)
    return row | {
        "device_s": answer.expected.device_s, "host_s": answer.expected.host_s, "limited_by": answer.limited_by,
        "items": answer.items, "unit": answer.unit, "items_per_s": answer.items_per_s,
        "items_per_joule": answer.items_per_joule, "measured_calls": answer.measured_calls,
        "calls": answer.expected.calls, "virtual": answer.virtual, "predictors": answer.predictors,
        "warnings": list(answer.warnings),
        **({} if answer.relative_to is None else {name: getattr(answer.relative_to, name) for name in RATIOS.values()}),
    }  # fmt: skip


_IDENTITY = ("gpu", "point", "network_id", "pass_", "execution", "optimizer", "expected")
"""Attributes of an answer that are equal where a pass is compared with itself."""


def relative(answer: Answer, standard: Answer) -> Relative:
    """Compare a pass with another one, such as the same pass on a standard GPU.

    Errors of operations that two modelled passes share cancel, see `Detail.shared`; others are taken as independent.
    Shared errors of the host, and of a network at two points, make the true interval narrower. The ratio of a pass to
    itself is exactly 1.
    """
    itself = all(getattr(answer, name) == getattr(standard, name) for name in _IDENTITY)
    correlation = _correlation(answer, standard)
    ratios: dict[str, float | None] = {}
    intervals: dict[str, Ends] = {}
    for quantity, name in RATIOS.items():
        # energy and power differ between cards, too, and so between two measurements of one operation
        of_quantity = correlation if quantity == "time_s" else correlation**2
        value, unit = getattr(answer.expected, quantity), getattr(standard.expected, quantity)
        ratios[name] = value / unit if value is not None and unit else None
        own, others = answer.intervals.get(quantity), standard.intervals.get(quantity)
        if itself and ratios[name] is not None:
            intervals[name] = (1.0, 1.0)
        elif ratios[name] is not None and own and others:
            intervals[name] = _ends_of_ratio(value, own, unit, others, of_quantity)
    return Relative(
        standard.gpu, standard.gpu_name, standard.point, standard.virtual, answer.virtual != standard.virtual,
        **ratios, intervals=intervals, warnings=standard.warnings,
    )  # fmt: skip


def _correlation(answer: Answer, standard: Answer) -> float:
    """Return the correlation between the errors of the times of two answers."""
    limits = {one.limited_by == LIMITED_BY["host"] for one in (answer, standard)}
    if answer.gpu != standard.gpu or len(limits) > 1 or answer.detail is None or standard.detail is None:
        return 0.0
    if MEASURED in (*answer.sources.values(), *standard.sources.values()):
        return 0.0
    return answer.detail.shared(standard.detail, host=limits.pop())


def _ends_of_ratio(value: float, ends: Ends, unit: float, ends_of_unit: Ends, correlation: float) -> Ends:
    """Return the interval of a quotient of two values: independent log errors add in quadrature, shared ones cancel."""
    down, up = _apart(value, ends[0]), _apart(ends[1], value)
    unit_down, unit_up = _apart(unit, ends_of_unit[0]), _apart(ends_of_unit[1], unit)
    rest = math.sqrt(correlation) * max(abs(down - unit_down), abs(up - unit_up)) if correlation else 0.0
    apart = math.sqrt(1 - correlation)
    ratio = value / unit
    low, high = math.hypot(apart * down, apart * unit_up, rest), math.hypot(apart * up, apart * unit_down, rest)
    return ratio * math.exp(-low), ratio * math.exp(high)


def _apart(higher: float, lower: float) -> float:
    return math.log(higher / lower) if lower > 0 else math.inf
