"""Interface of all temperature models, and persistence, the baseline."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from clockwatt.studies.thermal.inputs import Ints, Task
from clockwatt.studies.thermal.traces import Array, Trace

Rows = Sequence[NDArray[np.bool_]]
"""Times of each trace that a model may be fitted to, as origins of forecasts; shape (steps,) each."""


class Forecaster(abc.ABC):
    """A model of a GPU's temperature. It looks at times before an origin, and after it at no more than the task allows.

    Parameters
    ----------
    task
        What is forecast from what.
    """

    name: ClassVar[str]
    fits_any_load: ClassVar[bool] = False
    """Whether it is fitted the same whatever is known of the load to come."""

    def __init__(self, task: Task) -> None:
        self.task = task

    @abc.abstractmethod
    def fit(self, traces: Sequence[Trace], rows: Rows | None = None) -> Forecaster:
        """Learn from traces (of some times only).

        Raises
        ------
        ThermalError
            If they do not say enough.
        """

    @abc.abstractmethod
    def forecast(self, trace: Trace, origins: Ints) -> Array:
        """Return the temperatures in °C at each horizon after each origin; shape (origins, horizons).

        NaN for horizons that were not fitted and, with a known load, where the load is missing.
        """

    @abc.abstractmethod
    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return all fitted values, as JSON and as arrays."""

    @abc.abstractmethod
    def restore(self, described: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Forecaster:
        """Take back what `state` gave.

        Raises
        ------
        ValueError, KeyError, TypeError
            If it is something else.
        """


class Persistence(Forecaster):
    """It stays as warm as it is."""

    name = "persistence"
    fits_any_load = True

    def fit(self, traces: Sequence[Trace], rows: Rows | None = None) -> Persistence:  # noqa: ARG002, nothing is fitted
        """See `Forecaster`."""
        return self

    def forecast(self, trace: Trace, origins: Ints) -> Array:
        """See `Forecaster`."""
        return np.repeat(trace.temperature_c[origins][:, None], len(self.task.steps), axis=1)

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """See `Forecaster`."""
        return {}, {}

    def restore(self, described: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Persistence:  # noqa: ARG002
        """See `Forecaster`."""
        return self


def truth(trace: Trace, origins: Ints, task: Task) -> Array:
    """Return the temperatures as they came to be, in °C; shape (origins, horizons), NaN beyond the end of the trace."""
    later = origins[:, None] + np.asarray(task.steps)[None, :]
    inside = later < len(trace)
    return np.where(inside, trace.temperature_c[np.minimum(later, len(trace) - 1)], np.nan)


def usable_rows(traces: Sequence[Trace], rows: Rows | None) -> list[Ints]:
    """Return origins of each trace that may be trained on."""
    if rows is None:
        return [np.arange(len(trace), dtype=np.intp) for trace in traces]
    return [np.flatnonzero(chosen) for chosen in rows]
