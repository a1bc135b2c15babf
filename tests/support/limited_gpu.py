"""The power sensors of a GPU as an H200's were seen to be, whose readings take time and whose limiter swings."""

import contextlib

import numpy as np

from clockwatt.gpu.interface import GpuError, PowerSample

STEP_S = 0.0005
IDLE_W, STEADY_W, LIMITED_W, LIMIT_W = 120.0, 485.0, 720.0, 700.0
TICK_S, RING_S = 0.1, 0.02


class LimitedGpu:
    """Sensors and a load in their own time. Power is integrated in steps of 0.5 ms.

    Parameters
    ----------
    heavy
        Whether the load meets the power limit: it then begins with a peak and swings.
    window_s
        Averaging window of the instantaneous sensor, whose ticks drift as that of an H200 does.
    block_s, ahead_s
        How long a block of calls takes, and how much work is queued: while a reading takes longer, the GPU idles.
    counter_s
        How long a reading of the energy counter takes; one in ten takes four times as long.
    fails
        Which readings of the instantaneous sensor fail, by number.
    """

    def __init__(self, seed, *, heavy=False, window_s=0.025, block_s=0.002, ahead_s=0.02, counter_s=0.004, fails=()):
        self.now_s = 0.0
        self._random = np.random.default_rng(seed)
        self._heavy, self._window_s, self._block_s, self._counter_s = heavy, window_s, block_s, counter_s
        self._ahead_s, self._busy_until_s = ahead_s, 0.0
        self._fails, self._readings = set(fails), 0
        self._energy_j = [0.0]
        self._power_w = self._second_w = IDLE_W
        self._clock, self._noise_w = 1.0, 0.0
        self._on_s, self._off_s = None, -1.0
        self._phases_s = self._random.uniform(0, TICK_S, 2)
        self._ticks_s = [self._random.uniform(0, TICK_S)]
        self._stamped = []
        self.advance(2.5)

    def advance(self, seconds):
        self.now_s += seconds
        while len(self._energy_j) * STEP_S < self.now_s + 2 * STEP_S:
            self._noise_w = 0.9 * self._noise_w + self._random.normal(0, 2)
            self._power_w += (self._target_w() - self._power_w) * STEP_S / 0.006
            self._second_w += (self._power_w - self._second_w) * STEP_S / 0.5
            self._energy_j.append(self._energy_j[-1] + (self._power_w + self._noise_w) * STEP_S)

    def _target_w(self):
        if self._on_s is None or len(self._energy_j) * STEP_S > self._busy_until_s:
            return IDLE_W + 40 * (self.now_s - self._off_s < 0.04)
        if not self._heavy:
            return STEADY_W
        since_s = len(self._energy_j) * STEP_S - self._on_s
        self._clock += STEP_S * (-20 if self._second_w > LIMIT_W else 1.5)
        self._clock = min(1.0, max(0.6, self._clock))
        peak_w = 200 * np.exp(-(((since_s - 0.05) / 0.025) ** 2))
        return (LIMITED_W + peak_w + 25 * np.sin(2 * np.pi * since_s / 0.13)) * self._clock

    @contextlib.contextmanager
    def load(self):
        self._on_s = self.now_s
        yield self._wait
        self.advance(max(0.0, self._busy_until_s - self.now_s))
        self._on_s, self._off_s = None, self.now_s

    def _wait(self, seconds):
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self._busy_until_s = self.now_s + self._block_s + self._ahead_s
            self.advance(self._block_s)

    def _mean_w(self, end_s, window_s):
        return round((self._energy_until_j(end_s) - self._energy_until_j(end_s - window_s)) / window_s, 2)

    def _energy_until_j(self, end_s):
        step, part = divmod(end_s / STEP_S, 1)
        before, after = self._energy_j[int(step) : int(step) + 2]
        return before + part * (after - before)

    def _drifting_tick_s(self):
        while self._ticks_s[-1] <= self.now_s:
            held_up = self._random.random() < 0.02
            late_s = self._random.exponential(0.0002) + held_up * self._random.uniform(0, 0.015)
            self._ticks_s.append(self._ticks_s[-1] + TICK_S + late_s)
        return self._ticks_s[-2]

    def power_average_w(self):
        self.advance(0.0001)
        return self._mean_w(self._drifting_tick_s(), 1.0)

    def power_instant_w(self):
        self.advance(0.0001)
        self._readings += 1
        if self._readings in self._fails:
            raise GpuError("instantaneous power: NVML says Timeout.")
        return self._mean_w(self._drifting_tick_s() - 0.01, self._window_s)

    def energy_counter_j(self):
        self.advance(self._counter_s * (4 if self._random.random() < 0.1 else 1))
        tick_s = self._phases_s[0] + TICK_S * np.floor((self.now_s - self._phases_s[0] - STEP_S) / TICK_S)
        return round(self._energy_until_j(tick_s), 3)

    def power_samples(self, since_us):
        self.advance(0.0005)
        while (end_s := self._phases_s[1] + RING_S * (len(self._stamped) + 1)) < self.now_s - STEP_S:
            # the driver stamps one in four late, seldom by nearly a period
            late_s = self._random.uniform(0, 0.0013) if self._random.random() < 0.75 else self._random.uniform(0, 0.01)
            self._stamped.append(PowerSample(round((end_s + late_s) * 1e6), self._mean_w(end_s, RING_S)))
        return [sample for sample in self._stamped[-119:] if since_us < sample.time_us <= self.now_s * 1e6]
