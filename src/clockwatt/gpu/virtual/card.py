"""A virtual GPU in its own virtual time, deterministic from its seed, behind the interface of a real one."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import clockwatt
from clockwatt.gpu.clocks import check_clock, check_power_limit
from clockwatt.gpu.interface import (
    GPU_IDLE,
    SW_POWER_CAP,
    Gpu,
    GpuIdentity,
    NoPermissionError,
    NotSupportedError,
    PowerSample,
    Utilization,
)
from clockwatt.gpu.specs import find_spec
from clockwatt.gpu.virtual.model import CardModel, Load, Mixture, Work, hashed
from clockwatt.gpu.virtual.sensors import (
    RING_PERIOD_NS,
    RING_SAMPLES,
    PowerHistory,
    Sensor,
    latest_tick,
    noise,
    sensor_suite,
)

CONTEXT_BYTES = 512 * 2**20
SETTLING_S = (0.01, 0.1)
"""Delay of the clock, in s, after a setting or a change of load."""
RING_NOISE = 0.005


class VirtualGpu(Gpu):
    """A virtual GPU. Time passes only in `advance`; what runs is said by `load`.

    A power cap lowers the clock at once, every other change of clock takes 10 to 100 ms. Unlocked, the clock falls to
    its lowest when idle and rises to boost under load. The power sensors update with periods and windows of their own.

    Parameters
    ----------
    model
        As after `virtual:` in a config, e.g. `a30`.
    seed
        The seed of the campaign.
    card
        Which card of this model; cards differ by a few percent.
    permitted
        Whether settings may be changed.

    Raises
    ------
    UnknownGpuError
        If there is no such model.
    """

    vendor = "virtual"

    def __init__(self, model: str, *, seed: int, card: int = 0, permitted: bool = True) -> None:
        self.spec = find_spec(model)
        self._model = CardModel(self.spec, seed=seed, card=card)
        self._sensors = sensor_suite(self.spec.architecture)
        self._permitted = permitted
        self._uuid = f"virtual-{self.spec.name.replace(' ', '-').lower()}-seed{seed}-card{card}"
        self._noise_seed = int(hashed(self._uuid, "noise") * 2**63)
        self._phase_ns = int(hashed(self._uuid, "phase") * 100_000_000)
        self._now_ns = 0
        self._work: Load | None = None
        self._busy = 0.0
        self._locked_sm_mhz: int | None = None
        self._memory_mhz = self.spec.memory_clocks_mhz[-1]
        self._limit_w = self.spec.power_w.default
        self._sm_mhz = self._target_mhz = self.spec.sm_clock_mhz.min
        self._settled_at_ns: int | None = None
        self._changes = 0
        self._history = PowerHistory(self._model, self._base_w())

    # virtual time and work
    @property
    def monotonic_ns(self) -> int:
        """Virtual time since the start, in ns."""
        return self._now_ns

    @property
    def epoch_us(self) -> int:
        """Virtual time in µs since the virtual GPU's epoch, which is its start."""
        return self._now_ns // 1000

    def device_time_s(self, work: Load) -> float:
        """Time in s of one call (mixture: one pass) at the operating point's settled clocks, power cap included."""
        return self._model.activity(work, self._clock_for(work), self._memory_mhz).time_s

    def load(self, work: Load | None, busy: float = 1.0) -> None:
        """Say what runs from now on.

        Parameters
        ----------
        work
            What runs over and over; None for idling with the context alive.
        busy
            Share of the time in which the device is busy, in [0, 1]; below 1 where the host is the bottleneck.
        """
        if not 0 <= busy <= 1:
            raise ValueError(f"busy is a share of time, not {busy}")
        self._work, self._busy = work, busy if work is not None else 0.0
        self._follow()

    def advance(self, seconds: float) -> None:
        """Let virtual time pass."""
        if seconds < 0:
            raise ValueError(f"time does not go back by {-seconds} s")
        end_ns = self._now_ns + round(seconds * 1e9)
        if self._settled_at_ns is not None and self._settled_at_ns <= end_ns:
            self._now_ns, self._settled_at_ns = self._settled_at_ns, None
            self._sm_mhz = self._target_mhz
            self._history.change(self._now_ns, self._base_w())
        self._now_ns = end_ns

    # identity and sensors
    @property
    def identity(self) -> GpuIdentity:
        """Which virtual card this is."""
        return GpuIdentity(
            f"virtual {self.spec.name}", self._uuid, f"virtual {clockwatt.__version__}", None, virtual=True
        )

    def index(self) -> int:
        """See `Gpu`; nobody counts virtual GPUs."""
        raise NotSupportedError(f"{self._uuid}: a virtual GPU has no index.")

    def power_average_w(self) -> float:
        """See `Gpu`; over 1 s on the architectures where the real driver averages."""
        return self._read(self._sensors.average)

    def power_instant_w(self) -> float:
        """See `Gpu`."""
        if self._sensors.instant is None:
            raise NotSupportedError(f"{self.identity.name}: has no sensor of instantaneous power.")
        return self._read(self._sensors.instant)

    def energy_counter_j(self) -> float:
        """See `Gpu`; whole mJ."""
        _, tick_ns = latest_tick(self._now_ns, self._sensors.counter_period_ns, self._phase_ns)
        return int(self._history.energy_j(tick_ns) * 1000) / 1000

    def power_samples(self, since_us: int) -> Sequence[PowerSample]:
        """See `Gpu`; time stamps are on `epoch_us`'s clock."""
        newest, _ = latest_tick(self._now_ns, RING_PERIOD_NS, self._phase_ns)
        before, _ = latest_tick((since_us + 1) * 1000 - 1, RING_PERIOD_NS, self._phase_ns)
        oldest = max(0, newest - RING_SAMPLES + 1, before + 1)
        ends_ns = [self._phase_ns + tick * RING_PERIOD_NS for tick in range(oldest - 1, newest + 1)]
        energies_j = [self._history.energy_j(end_ns) for end_ns in ends_ns]  # where one sample ends the next begins
        samples = []
        for tick, end_ns, (before_j, energy_j) in zip(
            range(oldest, newest + 1), ends_ns[1:], itertools.pairwise(energies_j), strict=True
        ):
            power_w = (energy_j - before_j) / (RING_PERIOD_NS * 1e-9)
            samples.append(PowerSample(end_ns // 1000, power_w * (1 + RING_NOISE * noise(self._noise_seed, -tick))))
        return samples

    def sm_clock_mhz(self) -> int:
        """See `Gpu`."""
        return self._sm_mhz

    def memory_clock_mhz(self) -> int:
        """See `Gpu`."""
        return self._memory_mhz

    def throttle_reasons(self) -> int:
        """See `Gpu`."""
        if self._work is None:
            return GPU_IDLE if self._locked_sm_mhz is None else 0
        return SW_POWER_CAP if self._target_mhz < self._asked_mhz() else 0

    def temperature_c(self) -> float:
        """See `Gpu`; whole °C, as of real sensors."""
        return float(round(self._history.temperature_c(self._now_ns)))

    def performance_state(self) -> int:
        """See `Gpu`; a context is always alive, so always 0."""
        return 0

    def utilization(self) -> Utilization:
        """See `Gpu`."""
        if self._work is None:
            return Utilization(0, 0)
        memory = self._model.activity(self._work, self._sm_mhz, self._memory_mhz).memory
        return Utilization(round(100 * self._busy), round(100 * self._busy * memory))

    def memory_used_bytes(self) -> int:
        """See `Gpu`; as if everything that the work moves stayed resident."""
        match self._work:
            case None:
                resident = 0
            case Work(bytes_moved=resident):
                pass
            case Mixture(parts=parts):
                resident = max(part.bytes_moved for part, _ in parts)
        return min(self.spec.memory_bytes, CONTEXT_BYTES + resident)

    def pcie_tx_kib_s(self) -> int:
        """Raise `NotSupportedError`: no bus is modelled."""
        raise NotSupportedError(f"{self.identity.name}: has no PCIe bus.")

    def pcie_rx_kib_s(self) -> int:
        """Raise `NotSupportedError`: no bus is modelled."""
        raise NotSupportedError(f"{self.identity.name}: has no PCIe bus.")

    def power_limit_w(self) -> float:
        """See `Gpu`."""
        return self._limit_w

    # what can be set
    def supported_memory_clocks_mhz(self) -> list[int]:
        """See `Gpu`."""
        return list(self.spec.memory_clocks_mhz)

    def supported_sm_clocks_mhz(self, memory_clock_mhz: int | None = None) -> list[int]:
        """See `Gpu`; the same at every memory clock."""
        if memory_clock_mhz is not None:
            check_clock(self.identity.name, "memory", memory_clock_mhz, self.spec.memory_clocks_mhz)
        return list(self._model.supported_sm_clocks_mhz)

    def power_limit_range_w(self) -> tuple[float, float]:
        """See `Gpu`."""
        return self.spec.power_w.min, self.spec.power_w.max

    def default_power_limit_w(self) -> float:
        """See `Gpu`."""
        return self.spec.power_w.default

    def persistence_mode(self) -> bool:
        """See `Gpu`."""
        return True

    def lock_sm_clock(self, mhz: int) -> None:
        """See `Gpu`."""
        self._require_permission("SM clock")
        check_clock(self.identity.name, "SM", mhz, self._model.supported_sm_clocks_mhz)
        self._locked_sm_mhz = mhz
        self._follow()

    def reset_sm_clock(self) -> None:
        """See `Gpu`."""
        self._require_permission("SM clock")
        self._locked_sm_mhz = None
        self._follow()

    def lock_memory_clock(self, mhz: int) -> None:
        """See `Gpu`."""
        self._require_permission("memory clock")
        check_clock(self.identity.name, "memory", mhz, self.spec.memory_clocks_mhz)
        self._memory_mhz = mhz
        self._follow()

    def reset_memory_clock(self) -> None:
        """See `Gpu`."""
        self._require_permission("memory clock")
        self._memory_mhz = self.spec.memory_clocks_mhz[-1]
        self._follow()

    def set_power_limit(self, watts: float) -> None:
        """See `Gpu`."""
        self._require_permission("power limit")
        check_power_limit(self.identity.name, watts, self.power_limit_range_w())
        self._limit_w = watts
        self._follow()

    def close(self) -> None:
        """Do nothing: a virtual GPU has no driver."""

    def _require_permission(self, setting: str) -> None:
        if not self._permitted:
            raise NoPermissionError(
                f"{self.identity.name}: setting the {setting} needs privileges that this user does not have."
            )

    def _asked_mhz(self) -> int:
        """Return SM clock that lock and load ask for, before any power cap."""
        if self._locked_sm_mhz is not None:
            return self._locked_sm_mhz
        return self.spec.sm_clock_mhz.min if self._work is None else self.spec.boost_clock_mhz

    def _clock_for(self, work: Load | None) -> int:
        """Return the settled SM clock under a load."""
        loaded_mhz = self._locked_sm_mhz or self.spec.boost_clock_mhz
        return self._model.clock_within_limit(work, loaded_mhz, self._memory_mhz, self._limit_w)

    def _follow(self) -> None:
        """Take up a new load or setting: power at once, the clock when it has settled."""
        self._target_mhz = self._asked_mhz() if self._work is None else self._clock_for(self._work)
        if self._target_mhz == self._sm_mhz:
            self._settled_at_ns = None
        elif self._work is not None and self._exceeds_limit():
            self._sm_mhz, self._settled_at_ns = self._target_mhz, None
        elif self._settled_at_ns is None:
            self._changes += 1
            shortest_s, longest_s = SETTLING_S
            delay_s = shortest_s + (longest_s - shortest_s) * hashed(self._uuid, "settling", self._changes)
            self._settled_at_ns = self._now_ns + round(delay_s * 1e9)
        self._history.change(self._now_ns, self._base_w())

    def _exceeds_limit(self) -> bool:
        return self._sm_mhz > self._model.clock_within_limit(self._work, self._sm_mhz, self._memory_mhz, self._limit_w)

    def _base_w(self) -> float:
        return self._model.power_w(self._work, self._busy, self._sm_mhz, self._memory_mhz)

    def _read(self, sensor: Sensor) -> float:
        tick, tick_ns = latest_tick(self._now_ns, sensor.period_ns, self._phase_ns)
        power_w = self._history.mean_power_w(tick_ns, sensor.window_ns)
        return power_w * (1 + sensor.noise * noise(self._noise_seed + sensor.window_ns, tick))
