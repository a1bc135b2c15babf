"""The costs of a call: under which names each is measured, corrected and predicted.

A measured column stays as the measurement gave it. The corrected one beside it says what the call costs on the median
card and the median host, in a pass and not slowed by the power limit; the stage `dataset` writes it, and whoever learns
from it, looks it up or draws it reads it as it stands.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Measured:
    """A measured column and that of its standard error, in the same unit."""

    column: str
    standard_error: str

    def of(self, row: Any) -> tuple[float | None, float | None]:
        """Return value and standard error that a row has."""
        return getattr(row, self.column), getattr(row, self.standard_error)

    def put(self, row: Any, value: float, standard_error: float) -> None:
        """Put value and standard error into a row."""
        setattr(row, self.column, value)
        setattr(row, self.standard_error, standard_error)


TIME_DEVICE = Measured("time_device_s", "time_device_standard_error_s")
TIME_HOST = Measured("time_host_s", "time_host_standard_error_s")
TIME_HOST_IN_PASS = Measured("time_host_in_pass_s", "time_host_in_pass_standard_error_s")
TIME_EAGER = Measured("time_eager_s", "time_eager_standard_error_s")
ENERGY = Measured("energy_j", "energy_standard_error_j")
ENERGY_DYNAMIC = Measured("energy_dynamic_j", "energy_dynamic_standard_error_j")
ENERGY_DYNAMIC_UNTHROTTLED = Measured("energy_dynamic_unthrottled_j", "energy_dynamic_unthrottled_standard_error_j")
POWER = Measured("power_w", "power_standard_error_w")

POWER_BY_ESTIMATOR: Mapping[str, Measured] = {
    "counter": Measured("power_counter_w", "power_counter_standard_error_w"),
    "instant": Measured("power_instant_w", "power_instant_standard_error_w"),
    "average": Measured("power_average_w", "power_average_standard_error_w"),
    "trapezoid": Measured("power_trapezoid_w", "power_trapezoid_standard_error_w"),
    "samples": Measured("power_samples_w", "power_samples_standard_error_w"),
}
"""Power by each estimator that may be chosen."""


@dataclass(frozen=True)
class Cost:
    """A cost of a call that predictors are fitted to and predict; its columns are named after the corrected one.

    Attributes
    ----------
    measured
        Where it is measured.
    corrected
        Column of the dataset, in the same unit, which its name ends with.
    """

    measured: Measured
    corrected: str

    @property
    def standard_error(self) -> str:
        """Column of the dataset, in the same unit."""
        name, _, unit = self.corrected.rpartition("_")
        return f"{name}_standard_error_{unit}"

    @property
    def relative_error(self) -> str:
        """Standard error over cost, of repetitions together."""
        return self.corrected.partition("_corrected")[0] + "_relative_error"

    @property
    def predicted(self) -> str:
        """A prediction, where it stands beside what was measured."""
        return f"predicted_{self.corrected}"

    @property
    def lower(self) -> str:
        """Lower end of the interval of a prediction."""
        return f"lower_{self.corrected}"

    @property
    def upper(self) -> str:
        """Upper end of the interval of a prediction."""
        return f"upper_{self.corrected}"

    @property
    def spread(self) -> str:
        """Disagreement of the trees that predict it: standard deviation of the logarithm."""
        return f"spread_{self.corrected}"


COSTS = (
    Cost(TIME_DEVICE, "time_device_corrected_s"),
    Cost(TIME_HOST, "time_host_corrected_s"),
    Cost(TIME_EAGER, "time_eager_corrected_s"),
    Cost(ENERGY_DYNAMIC, "energy_dynamic_corrected_j"),
    Cost(POWER, "power_corrected_w"),
)
"""Costs in the order of prediction."""

CORRECTED = tuple(cost.corrected for cost in COSTS)
TIME_DEVICE_CORRECTED, TIME_HOST_CORRECTED, TIME_EAGER_CORRECTED, ENERGY_DYNAMIC_CORRECTED, POWER_CORRECTED = CORRECTED
BY_CORRECTED: Mapping[str, Cost] = {cost.corrected: cost for cost in COSTS}
"""Costs by their column in the dataset."""

MEASURED_WHOLE: Mapping[str, str] = {
    "time_s": "measured_time_s",
    "energy_j": "measured_energy_j",
    "power_w": "measured_power_w",
}
"""Columns of composed costs of a pass, and of the measured ones."""
PLAIN_SUM: Mapping[str, str] = {"time_s": "plain_time_s", "energy_j": "plain_energy_j"}
"""The same, and the plain sum over its calls."""

NEEDED = (TIME_DEVICE_CORRECTED, TIME_HOST_CORRECTED)
"""Costs without which a row is excluded from training; others may be missing, since time alone is cheaper."""
BACK_TO_BACK = TIME_EAGER_CORRECTED
"""Cost that replaces them in training on a GPU without a row with both."""

TIME_HOST_FROM = "time_host_corrected_from"
ENERGY_DYNAMIC_FROM = "energy_dynamic_corrected_from"
ENERGY_CORRECTED = "energy_corrected_j"
EXCLUDED = "excluded"

MEASURED = "measured"
MEASURED_IN_PASS = "measured_in_pass"  # noqa: S105  # a pass of a network, no password
MEASURED_UNTHROTTLED = "measured_unthrottled"
ESTIMATED_FROM_CLOCK = "estimated_from_clock"
"""Source of a corrected cost, before normalisation for card and host effects."""
