"""What is told of virtual sensors by polling them is what they are made of."""

import contextlib
import time

import numpy as np
import pytest

from clockwatt.gpu.interface import GpuError
from clockwatt.gpu.sensing.sensors import AVERAGE, COUNTER, INSTANT, MOST_FAILURES, RING, SensorTraits, sensor_traits
from clockwatt.gpu.sensing.windows import Steps, averaging_window_s
from clockwatt.gpu.virtual.card import VirtualGpu
from clockwatt.gpu.virtual.model import Work
from clockwatt.gpu.virtual.sensors import RING_PERIOD_NS, sensor_suite
from support.limited_gpu import RING_S, TICK_S, LimitedGpu

CONVOLUTION = Work(flops=7_400_000_000, bytes_moved=51_500_000, dtype="float32", tf32=True, matrix=True)


def traits_of(model: str, seed: int, *, locked: bool) -> dict[str, SensorTraits]:
    gpu = VirtualGpu(model, seed=seed)
    if locked:
        clocks = gpu.supported_sm_clocks_mhz()
        gpu.lock_sm_clock(clocks[len(clocks) // 2])
    gpu.advance(2.0)

    @contextlib.contextmanager
    def load():
        gpu.load(CONVOLUTION)
        yield gpu.advance
        gpu.load(None)

    started_ns = gpu.monotonic_ns
    traits = sensor_traits(
        gpu, now_ns=lambda: gpu.monotonic_ns, now_us=lambda: gpu.epoch_us, rest=gpu.advance, load=load,
        poll_s=0.006, seed=seed,
    )  # fmt: skip
    assert gpu.monotonic_ns - started_ns < 10e9
    return traits


@pytest.mark.parametrize("locked", [True, False])
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("model", ["rtx2080ti", "a100", "a30", "rtx3090", "rtx4090", "h100"])
def test_windows_of_every_architecture_are_told_to_a_tenth_of_a_period(model, seed, locked):
    traits = traits_of(model, seed, locked=locked)
    suite = sensor_suite(VirtualGpu(model, seed=0).spec.architecture)
    expected = {AVERAGE: suite.average, INSTANT: suite.instant}
    for name, sensor in expected.items():
        if sensor is None:
            assert name not in traits
            continue
        assert traits[name].period_s == pytest.approx(sensor.period_ns * 1e-9, abs=0.007)
        assert traits[name].window_s == pytest.approx(sensor.window_ns * 1e-9, abs=0.01)
    assert traits[COUNTER].window_s == pytest.approx(suite.counter_period_ns * 1e-9, abs=0.01)
    if locked:  # a clock that follows late hides the ring's own window: then it is not told
        assert traits[RING].window_s == pytest.approx(RING_PERIOD_NS * 1e-9, abs=0.001)
    else:
        assert traits[RING].window_s is None


def limited_traits(seed: int, **settings) -> dict[str, SensorTraits]:
    gpu = LimitedGpu(seed, **settings)
    return sensor_traits(
        gpu, now_ns=lambda: round(gpu.now_s * 1e9), now_us=lambda: round(gpu.now_s * 1e6), rest=gpu.advance,
        load=gpu.load, seed=seed,
    )  # fmt: skip


@pytest.mark.parametrize(
    "settings", [{}, {"heavy": True}, {"heavy": True, "block_s": 0.005, "ahead_s": 0.05, "counter_s": 0.006}]
)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_sensors_are_told_though_readings_take_long_stamps_are_late_and_the_limiter_swings(seed, settings):
    traits = limited_traits(seed, **settings)
    assert traits[AVERAGE].window_s == pytest.approx(1.0, abs=0.02)
    assert traits[INSTANT].window_s == pytest.approx(0.025, abs=0.012)
    assert traits[COUNTER].period_s == pytest.approx(TICK_S, rel=0.002)
    assert traits[COUNTER].window_s == pytest.approx(TICK_S, rel=0.06)
    assert traits[RING].period_s == pytest.approx(RING_S, rel=0.001)
    assert traits[RING].window_s == pytest.approx(RING_S, abs=0.01)  # power itself takes 6 ms to follow the load


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_of_a_load_that_stutters_with_the_readings_nothing_wrong_is_told(seed):
    traits = limited_traits(seed, block_s=0.0002, ahead_s=0.0004)
    assert traits[RING].window_s is None
    assert traits[COUNTER].window_s == pytest.approx(TICK_S, rel=0.06)  # the ring tells


def test_a_few_readings_that_fail_are_done_without():
    traits = limited_traits(0, fails=range(1, MOST_FAILURES + 1))
    assert traits[INSTANT].window_s == pytest.approx(0.025, abs=0.012)


def test_a_sensor_that_keeps_failing_is_named():
    with pytest.raises(GpuError, match=rf"power_instant failed {MOST_FAILURES + 1} times .* Timeout"):
        limited_traits(0, fails=range(100, 200))


def test_a_load_that_changes_nothing_tells_no_window():
    steps = Steps(np.arange(0.0, 7.0, 0.3), np.tile([0.0, 1.0], 12)[:24])
    times_s = np.arange(0.0, 7.0, 0.1)
    assert averaging_window_s([times_s], np.full(len(times_s), 80.0), [steps]) is None
    noise = np.random.default_rng(0).normal(80.0, 1.0, len(times_s))
    assert averaging_window_s([times_s], noise, [steps]) is None


def test_too_few_readings_or_nothing_to_compare_with_tell_no_window():
    steps = Steps([0.0, 1.0, 2.0], [0.0, 1.0, 0.0])
    assert averaging_window_s([[0.5, 1.5]], [1.0, 2.0], [steps]) is None
    assert averaging_window_s([np.arange(0.0, 3.0, 0.1)], np.arange(30.0), []) is None


@pytest.mark.parametrize("window_s", [0.03, 0.1, 0.4, 1.0])
def test_a_window_is_found_under_noise_and_delay(window_s):
    rng = np.random.default_rng(1)
    edges_s = np.cumsum(rng.uniform(0.03, 0.3, 60))
    on = np.arange(60) % 2.0
    fine_s = np.arange(0.0, edges_s[-1], 0.001)
    power = np.where(np.searchsorted(edges_s, fine_s) % 2, 400.0, 100.0)
    total = np.concatenate([[0.0], np.cumsum(power) * 0.001])
    ticks_s = np.arange(1.5, edges_s[-1], 0.1)
    ends = np.round((ticks_s - 0.012) / 0.001).astype(int)
    means = (total[ends] - total[ends - round(window_s / 0.001)]) / window_s
    seen = means * (1 + rng.normal(0, 0.005, len(means)))
    found = averaging_window_s([ticks_s + rng.uniform(0, 0.004, len(ticks_s))], seen, [Steps(edges_s, on)])
    assert found == pytest.approx(window_s, rel=0.1)


def test_windows_are_told_within_seconds_of_computing():
    """They take 0.3 s of one core; a job waits for them."""
    started = time.thread_time()
    traits_of("h100", 0, locked=False)
    assert time.thread_time() - started < 6.0
