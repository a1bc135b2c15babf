"""How often a GPU's power sensors get a new value, found by polling them."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Sequence

from clockwatt.gpu.interface import Gpu, NotSupportedError

RING = "power_samples"

FEWEST_CHANGES = 4


def update_periods_s(
    gpu: Gpu,
    *,
    now_ns: Callable[[], int],
    wait: Callable[[float], None],
    duration_s: float = 2.0,
    poll_s: float = 0.002,
) -> dict[str, float | None]:
    """Update period of each power sensor in s.

    A reading of NVML can take milliseconds, so a period is known to about the time of one round of readings.

    Parameters
    ----------
    gpu
        What is polled.
    now_ns
        Monotonic clock in ns: `time.monotonic_ns`, or that of a virtual GPU.
    wait
        Lets so many seconds pass: `time.sleep`, or a virtual GPU's `advance`.
    duration_s
        How long to poll.
    poll_s
        Pause between two rounds of readings.

    Returns
    -------
    dict
        Sensor to period; None for a sensor whose value changed too seldom to tell. Missing sensors are left out.
    """
    readings = {
        "power_average": gpu.power_average_w,
        "power_instant": gpu.power_instant_w,
        "energy_counter": gpu.energy_counter_j,
    }
    sensors = {name: read for name, read in readings.items() if _is_there(read)}
    seen = {name: read() for name, read in sensors.items()}
    changes_ns: dict[str, list[int]] = {name: [] for name in sensors}
    end_ns = now_ns() + round(duration_s * 1e9)
    while now_ns() < end_ns:
        wait(poll_s)
        for name, read in sensors.items():
            value = read()
            if value != seen[name]:
                seen[name] = value
                changes_ns[name].append(now_ns())
    periods = {name: _median_distance(times, 1e-9) for name, times in changes_ns.items()}
    if _is_there(lambda: gpu.power_samples(0)):
        periods[RING] = _median_distance([sample.time_us for sample in gpu.power_samples(0)], 1e-6)
    return periods


def _is_there(read: Callable[[], object]) -> bool:
    try:
        read()
    except NotSupportedError:
        return False
    return True


def _median_distance(times: Sequence[int], unit_s: float) -> float | None:
    if len(times) < FEWEST_CHANGES:
        return None
    return statistics.median(later - earlier for earlier, later in itertools.pairwise(times)) * unit_s
