import dataclasses
import itertools
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from clockwatt.gpu.interface import NoPermissionError, NotSupportedError, throttle_reason_names
from clockwatt.gpu.sensing.sensors import update_periods_s
from clockwatt.gpu.specs import UnknownGpuError
from clockwatt.gpu.virtual.card import VirtualGpu, Work
from clockwatt.gpu.virtual.model import CardModel, Mixture
from clockwatt.gpu.virtual.sensors import PowerHistory

MODELS = ["rtx2080ti", "a30", "v100", "a100", "h100", "h200"]
CONVOLUTION = Work(flops=7_400_000_000, bytes_moved=51_500_000, dtype="float32", tf32=True, matrix=True)
ADDITION = Work(flops=6_400_000, bytes_moved=77_000_000, dtype="float32", tf32=True, matrix=False)

works = st.builds(
    Work,
    flops=st.integers(0, 10**13),
    bytes_moved=st.integers(0, 10**11),
    dtype=st.sampled_from(["float32", "float16", "bfloat16", "int64"]),
    tf32=st.booleans(),
    matrix=st.booleans(),
)
models = st.sampled_from(MODELS)


def clock_indices(count):
    return st.integers(0, count - 1)


@given(models, works, st.data())
def test_time_never_rises_with_the_clock(model, work, data):
    gpu = VirtualGpu(model, seed=1)
    clocks = gpu.supported_sm_clocks_mhz()
    low, high = sorted(data.draw(st.tuples(clock_indices(len(clocks)), clock_indices(len(clocks)))))
    gpu.lock_sm_clock(clocks[low])
    slow_s = gpu.device_time_s(work)
    gpu.lock_sm_clock(clocks[high])
    assert 0 < gpu.device_time_s(work) <= slow_s


@given(models, works)
def test_power_rises_with_the_clock(model, work):
    card = CardModel(VirtualGpu(model, seed=1).spec, seed=1, card=0)
    memory_mhz = card.spec.memory_clocks_mhz[-1]
    powers = [card.power_w(work, 1.0, mhz, memory_mhz) for mhz in card.supported_sm_clocks_mhz]
    assert powers == sorted(powers)


@given(models, works, st.data())
@settings(deadline=None)
def test_power_stays_between_idle_and_limit(model, work, data):
    gpu = VirtualGpu(model, seed=2)
    card = CardModel(gpu.spec, seed=2, card=0)
    memory_mhz, lowest_mhz = gpu.memory_clock_mhz(), gpu.supported_sm_clocks_mhz()[0]
    limit_w = data.draw(st.floats(*gpu.power_limit_range_w()))
    assume(card.power_w(work, 1.0, lowest_mhz, memory_mhz) < 0.95 * limit_w)  # or no clock could respect the limit
    gpu.set_power_limit(limit_w)
    if data.draw(st.booleans()):
        gpu.lock_sm_clock(data.draw(st.sampled_from(gpu.supported_sm_clocks_mhz())))
    gpu.load(work, busy=data.draw(st.floats(0, 1)))
    tick_s = 1.0
    for _ in range(5):
        before_j = gpu.energy_counter_j()
        gpu.advance(tick_s)
        mean_w = (gpu.energy_counter_j() - before_j) / tick_s
        assert card.power_w(None, 0, lowest_mhz, memory_mhz) - 0.002 <= mean_w <= limit_w + 0.002


def test_limit_holds_after_minutes_of_heat():
    gpu = VirtualGpu("a30", seed=0)
    gpu.load(CONVOLUTION)
    gpu.advance(600)
    assert 0.95 * 165 < gpu.power_average_w() < 165 * 1.02
    assert throttle_reason_names(gpu.throttle_reasons()) == ["sw_power_cap"]
    assert gpu.sm_clock_mhz() < gpu.spec.boost_clock_mhz


@given(st.lists(st.tuples(st.floats(0.001, 3), st.floats(20, 300)), min_size=1, max_size=8))
@settings(deadline=None)
def test_energy_is_the_integral_of_power(stretches):
    history = PowerHistory(CardModel(VirtualGpu("a100", seed=0).spec, seed=0, card=0), base_w=50)
    now_ns, integral_j = 0, 0.0
    start_j = history.energy_j(0)
    for seconds, base_w in stretches:
        history.change(now_ns, base_w)
        step_ns = round(seconds * 1e9 / 200)
        for _ in range(200):
            integral_j += history.power_w(now_ns + step_ns // 2) * step_ns * 1e-9
            now_ns += step_ns
    assert history.energy_j(now_ns) - start_j == pytest.approx(integral_j, rel=1e-6)


@given(st.floats(20, 400), st.floats(20, 400))
@settings(deadline=None)
def test_heat_follows_its_differential_equation(before_w, after_w):
    card = CardModel(VirtualGpu("a100", seed=0).spec, seed=0, card=0)
    history = PowerHistory(card, before_w)
    history.change(0, after_w)
    rise_k, step_s = history.temperature_c(0) - 30.0, 0.005
    for _ in range(2000):
        power_w = after_w + card.leakage_w_per_k * rise_k
        rise_k += step_s * (card.thermal_resistance_k_per_w * power_w - rise_k) / 12.0
    assert history.temperature_c(10**10) == pytest.approx(30.0 + rise_k, abs=0.02)


def test_counter_ring_and_power_readings_agree():
    gpu = VirtualGpu("h100", seed=0)
    gpu.load(ADDITION)
    gpu.advance(30)
    start_j, start_us = gpu.energy_counter_j(), gpu.epoch_us
    gpu.advance(2)
    counter_w = (gpu.energy_counter_j() - start_j) / 2
    ring_w = statistics.fmean(sample.power_w for sample in gpu.power_samples(start_us))
    assert ring_w == pytest.approx(counter_w, rel=0.003)
    assert gpu.power_average_w() == pytest.approx(counter_w, rel=0.005)
    assert gpu.power_instant_w() == pytest.approx(counter_w, rel=0.015)


def test_ring_is_of_limited_length_and_gives_only_what_is_new():
    gpu = VirtualGpu("h100", seed=0)
    gpu.advance(10)
    samples = gpu.power_samples(0)
    assert len(samples) == 119
    stamps = [sample.time_us for sample in samples]
    assert {later - earlier for earlier, later in itertools.pairwise(stamps)} == {20_000}
    assert stamps[-1] <= gpu.epoch_us < stamps[-1] + 20_000
    assert gpu.power_samples(stamps[-1]) == []
    assert [sample.time_us for sample in gpu.power_samples(stamps[-3])] == stamps[-2:]


@given(models, works, st.lists(st.integers(1, 400_000_000), min_size=1, max_size=12))
@settings(deadline=None)
def test_time_may_pass_in_pieces(model, work, pieces_ns):
    whole, parts = VirtualGpu(model, seed=3), VirtualGpu(model, seed=3)
    for gpu in (whole, parts):
        gpu.load(work)
    for piece_ns in pieces_ns:
        parts.advance(piece_ns / 1e9)
    whole.advance(sum(pieces_ns) / 1e9)
    assert parts.monotonic_ns == whole.monotonic_ns
    assert readings(parts) == pytest.approx(readings(whole), rel=1e-9)


def readings(gpu):
    return [gpu.power_average_w(), gpu.energy_counter_j(), gpu.sm_clock_mhz(), gpu.temperature_c(), *ring(gpu)]


def ring(gpu):
    return [sample.power_w for sample in gpu.power_samples(0)]


def run(gpu):
    seen = []
    for work in (CONVOLUTION, None, ADDITION):
        gpu.load(work)
        for _ in range(20):
            gpu.advance(0.05)
            seen.extend(readings(gpu))
    return [*seen, gpu.device_time_s(CONVOLUTION)]


def test_same_seed_gives_the_same_run_in_another_process():
    code = "import test_virtual as t; print(t.run(t.VirtualGpu('a30', seed=7)))"
    said = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parent, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert said.stdout.strip() == str(run(VirtualGpu("a30", seed=7)))


def test_cards_differ_by_a_few_percent():
    cards = [VirtualGpu("a100", seed=0, card=card) for card in range(12)]
    assert len({gpu.identity.uuid for gpu in cards}) == 12
    times = [gpu.device_time_s(ADDITION) for gpu in cards]
    assert 0.003 < statistics.stdev(times) / statistics.fmean(times) < 0.03
    for gpu in cards:
        gpu.load(ADDITION)
        gpu.advance(60)
    powers = [gpu.power_average_w() for gpu in cards]
    assert 0.01 < statistics.stdev(powers) / statistics.fmean(powers) < 0.06


def test_seeds_give_other_efficiencies_but_no_other_physics():
    times = [VirtualGpu("a30", seed=seed).device_time_s(CONVOLUTION) for seed in range(20)]
    assert len(set(times)) == 20
    assert max(times) < 2.5 * min(times)


@given(st.integers(10**6, 10**12), st.integers(10**5, 10**10))
def test_time_depends_smoothly_on_size(flops, bytes_moved):
    gpu = VirtualGpu("a30", seed=0)
    base = Work(flops, bytes_moved, "float32", tf32=True, matrix=True)
    more = dataclasses.replace(base, flops=round(flops * 1.01), bytes_moved=round(bytes_moved * 1.01))
    assert gpu.device_time_s(more) == pytest.approx(gpu.device_time_s(base), rel=0.09)


def test_tf32_and_half_precision_are_faster_where_the_hardware_has_them():
    fp32 = dataclasses.replace(CONVOLUTION, tf32=False)
    fp16 = dataclasses.replace(CONVOLUTION, dtype="float16")
    ampere, turing = VirtualGpu("a30", seed=0), VirtualGpu("rtx2080ti", seed=0)
    assert ampere.device_time_s(CONVOLUTION) < 0.4 * ampere.device_time_s(fp32)
    assert turing.device_time_s(CONVOLUTION) > 0.7 * turing.device_time_s(fp32)
    assert turing.device_time_s(fp16) < 0.6 * turing.device_time_s(fp32)


def test_clock_settles_late():
    gpu = VirtualGpu("a100", seed=0)
    gpu.load(ADDITION)
    gpu.advance(1)
    assert gpu.sm_clock_mhz() == 1410
    gpu.lock_sm_clock(900)
    gpu.advance(0.005)
    assert gpu.sm_clock_mhz() == 1410
    gpu.advance(0.1)
    assert gpu.sm_clock_mhz() == 900
    assert gpu.throttle_reasons() == 0


def test_unlocked_clock_falls_when_idle_and_a_locked_one_stays():
    gpu = VirtualGpu("a30", seed=0)
    assert (gpu.sm_clock_mhz(), throttle_reason_names(gpu.throttle_reasons())) == (210, ["gpu_idle"])
    gpu.load(ADDITION)
    gpu.advance(1)
    gpu.load(None)
    gpu.advance(1)
    assert gpu.sm_clock_mhz() == 210
    unlocked_w = gpu.power_average_w()
    gpu.lock_sm_clock(1440)
    gpu.advance(1)
    assert gpu.sm_clock_mhz() == 1440
    assert gpu.power_average_w() > 1.1 * unlocked_w
    gpu.reset_sm_clock()
    gpu.advance(1)
    assert gpu.sm_clock_mhz() == 210


def test_a_host_bound_loop_draws_less():
    powers = []
    for busy in (1.0, 0.5, 0.1):
        gpu = VirtualGpu("a30", seed=0)
        gpu.load(ADDITION, busy=busy)
        gpu.advance(30)
        powers.append(gpu.power_average_w())
        assert gpu.utilization().gpu_percent == round(100 * busy)
    assert powers[0] > 1.2 * powers[1] > 1.4 * powers[2]


@given(models, st.lists(st.tuples(works, st.integers(1, 50)), min_size=1, max_size=6))
@settings(max_examples=50)
def test_a_mixture_takes_the_time_and_energy_of_its_parts(model, parts):
    card = CardModel(VirtualGpu(model, seed=4).spec, seed=4, card=0)
    clocks = card.supported_sm_clocks_mhz[len(card.supported_sm_clocks_mhz) // 2], card.spec.memory_clocks_mhz[-1]
    times_s = [count * card.activity(work, *clocks).time_s for work, count in parts]
    powers_w = [card.power_w(work, 1.0, *clocks) for work, _ in parts]
    mixture = Mixture(tuple(parts))
    assert card.activity(mixture, *clocks).time_s == pytest.approx(sum(times_s))
    energy_j = sum(time_s * power_w for time_s, power_w in zip(times_s, powers_w, strict=True))
    assert card.power_w(mixture, 1.0, *clocks) * sum(times_s) == pytest.approx(energy_j)


def test_lower_memory_clock_slows_what_is_bound_by_memory():
    gpu = VirtualGpu("rtx2080ti", seed=0)
    fast_s = gpu.device_time_s(ADDITION)
    gpu.lock_memory_clock(810)
    assert gpu.memory_clock_mhz() == 810
    assert gpu.device_time_s(ADDITION) > 5 * fast_s
    gpu.reset_memory_clock()
    assert gpu.device_time_s(ADDITION) == fast_s


def test_update_periods_are_found_by_polling():
    def periods(model):
        gpu = VirtualGpu(model, seed=0)
        gpu.load(ADDITION)
        return update_periods_s(gpu, now_ns=lambda: gpu.monotonic_ns, wait=gpu.advance)

    assert periods("h100") == pytest.approx(
        {"power_average": 0.1, "power_instant": 0.1, "energy_counter": 0.1, "power_samples": 0.02}, abs=0.002
    )
    volta = periods("v100")
    assert "power_instant" not in volta
    assert volta["power_average"] == pytest.approx(0.02, abs=0.002)


def test_a_sensor_that_never_changes_has_no_period():
    gpu = VirtualGpu("h100", seed=0)
    periods = update_periods_s(gpu, now_ns=lambda: gpu.monotonic_ns, wait=gpu.advance, duration_s=0.05)
    assert periods["power_average"] is None


def test_missing_sensors_raise():
    with pytest.raises(NotSupportedError, match="virtual RTX 2080 Ti: has no sensor of instantaneous power"):
        VirtualGpu("rtx2080ti", seed=0).power_instant_w()
    with pytest.raises(NotSupportedError, match="PCIe"):
        VirtualGpu("a30", seed=0).pcie_tx_kib_s()


@pytest.mark.parametrize(
    ("mhz", "message"),
    [(1000, "Nearest: 990 and 1005 MHz"), (100, "Nearest: 210 MHz"), (2000, "Nearest: 1440 MHz")],
)
def test_unsupported_clock_names_the_nearest(mhz, message):
    with pytest.raises(NotSupportedError, match=message):
        VirtualGpu("a30", seed=0).lock_sm_clock(mhz)


def test_power_limit_outside_the_range_is_refused():
    with pytest.raises(NotSupportedError, match="power limit 80 W is outside 100 to 165 W"):
        VirtualGpu("a30", seed=0).set_power_limit(80)


@pytest.mark.parametrize(
    "change",
    [
        lambda gpu: gpu.lock_sm_clock(900),
        lambda gpu: gpu.reset_sm_clock(),
        lambda gpu: gpu.lock_memory_clock(1215),
        lambda gpu: gpu.reset_memory_clock(),
        lambda gpu: gpu.set_power_limit(120),
    ],
)
def test_settings_need_permission(change):
    with pytest.raises(NoPermissionError, match="virtual A30"):
        change(VirtualGpu("a30", seed=0, permitted=False))


def test_everything_says_virtual():
    identity = VirtualGpu("RTX 2080 Ti", seed=0).identity
    assert identity.virtual
    assert identity.name == "virtual RTX 2080 Ti"
    assert identity.uuid.startswith("virtual-rtx-2080-ti-")
    assert "virtual" in identity.driver_version


def test_unknown_model_and_impossible_arguments():
    with pytest.raises(UnknownGpuError):
        VirtualGpu("a31", seed=0)
    gpu = VirtualGpu("a30", seed=0)
    with pytest.raises(ValueError, match="busy"):
        gpu.load(ADDITION, busy=1.1)
    with pytest.raises(ValueError, match="does not go back"):
        gpu.advance(-1)
