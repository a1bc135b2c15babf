"""Energy of calls that the power limit slows, as they would need it without: the same calls with pauses between.

Back to back they run at a lowered clock, where a call needs less energy and more time. In a network, other calls let
the card recover meanwhile: there they run at the clock asked for, unless the whole network is at the limit.
"""

from __future__ import annotations

from clockwatt.gpu.sensing.sensors import AVERAGE, COUNTER, RING
from clockwatt.measure.bench.interface import Bench, Workload
from clockwatt.measure.calibrate.calibration import DEVICE
from clockwatt.measure.statistics import Estimate
from clockwatt.measure.steps import energy
from clockwatt.measure.steps.conditions import Surroundings
from clockwatt.schema.quantities import CalibrationQuantity

_BURST_S = 0.005
_PAUSES = (0.5, 2.0)
"""Length of a pause over that of a burst: a longer one where the limit still acts, as it does when it is set low.

In still longer ones a card that the bursts have warmed leaks more than they need.
"""
_WINDOW_S = 1.0
_SENSORS = {"counter": COUNTER, "average": AVERAGE, "samples": RING}
"""Estimates that may see all of the time, and their sensors; others see that of the bursts, or of the pauses."""
_TRIALS = 5
_AROUND_AT_MOST_S = 5e-4
"""What begins and ends a burst; what a call alone takes beyond that is the limit's doing."""
_SLOWED_ABOVE = 1.05
"""Time of a call in a burst over that of one alone beyond which the limit acts."""


def energy_with_pauses(bench: Bench, workload: Workload, call_s: float, around: Surroundings) -> Estimate | None:
    """Return the energy of a call in J above idle power where pauses keep the card below its power limit.

    None if idle power is not known, no power can be read, or the limit acts even with the longest pauses.

    Parameters
    ----------
    call_s
        What a call takes where the power limit does not act.
    """
    if around.idle is None:
        return None
    calls = max(1, round(_BURST_S / call_s))
    around_s = _around(bench, workload, call_s)
    for pause in _PAUSES:
        bench.take_telemetry()
        bursts_s: list[float] = []
        start_ns = bench.now_ns()
        while (bench.now_ns() - start_ns) / 1e9 < _WINDOW_S:
            bursts_s.append(bench.timed_run(workload, calls))
            bench.idle(pause * calls * call_s)
        window = energy.Window(start_ns, start_ns, bench.now_ns())
        if sum(bursts_s) <= len(bursts_s) * (around_s + _SLOWED_ABOVE * calls * call_s):
            return _above_idle(bench, window, around, around.idle, len(bursts_s) * calls)
    return None


def _around(bench: Bench, workload: Workload, call_s: float) -> float:
    """Time in s that a burst takes beyond its calls: the device waits for the first one, the host for the last."""
    alone_s = []
    for _ in range(_TRIALS):
        bench.idle(_PAUSES[-1] * call_s)
        alone_s.append(bench.timed_run(workload, 1))
    return min(max(0.0, min(alone_s) - call_s), _AROUND_AT_MOST_S)


def _sees_all(estimate: str, sensors: energy.Sensors) -> bool:
    """Return whether the averaging windows of an estimate's sensor leave no gap, as far as is known."""
    if estimate not in _SENSORS:
        return False
    traits = sensors.get(_SENSORS[estimate])
    if traits is None or traits.window_s is None or traits.period_s is None:
        return True
    return _SENSORS[estimate] == COUNTER or traits.window_s >= traits.period_s


def _above_idle(
    bench: Bench, window: energy.Window, around: Surroundings, idle: Estimate, calls: int
) -> Estimate | None:
    readings = energy.power_readings(bench.take_telemetry())
    estimates = energy.estimate_all(readings, window, around.calibration.sensors)
    estimates = {name: estimate for name, estimate in estimates.items() if _sees_all(name, around.calibration.sensors)}
    chosen = energy.choose(estimates)
    if chosen is None:
        return None
    power = chosen[1].with_error(energy.between_estimators(estimates))
    power = power.with_error(
        around.calibration.error_between(CalibrationQuantity.POWER_REPEATABILITY, DEVICE) * power.value
    )
    per_call_s = window.seconds / calls
    above = Estimate(power.value - idle.value, power.standard_error, power.samples).with_error(idle.standard_error)
    return Estimate(above.value * per_call_s, above.standard_error * per_call_s, above.samples)
