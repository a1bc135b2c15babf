import io

import pytest
from rich.console import Console

from clockwatt.config import OperatingPoint
from clockwatt.control import manual
from clockwatt.control.methods import ControlError
from clockwatt.gpu.interface import GpuNotFoundError, NoPermissionError


def said(function, *arguments, **options):
    console = Console(file=io.StringIO(), width=200)
    getattr(manual, function)(*arguments, **options, console=console)
    return console.file.getvalue()


def lock(point, gpu):
    return said("lock", OperatingPoint.parse(point), gpu=gpu)


def reset(gpu):
    return said("reset", gpu=gpu)


def test_show_changes_nothing(nvml, in_worker):
    nvml.card(1).locked_sm_mhz = 900
    shown = in_worker(said, "show")
    for index in range(3):
        assert nvml.uuid(index) in shown
        assert nvml.card(index).settings_made == 0
    assert "900 MHz" in shown
    assert "of 210–1440" in shown
    assert "gpu_idle" in shown


def test_lock_stays_until_reset(nvml, in_worker):
    assert "sm900-pl120, until" in in_worker(lock, "sm900-pl120", nvml.uuid(1))
    card = nvml.card(1)
    assert (card.locked_sm_mhz, card.limit_mw) == (900, 120_000)
    in_worker(lock, "mem1215", "1")
    assert card.locked_memory_mhz == 1215
    in_worker(reset, nvml.uuid(1)[:8])
    assert (card.locked_sm_mhz, card.locked_memory_mhz, card.limit_mw) == (0, 0, 165_000)
    assert nvml.card(0).settings_made == nvml.card(2).settings_made == 0


def test_lock_warns_where_it_will_be_lost(nvml, in_worker):
    nvml.card(0).persistence = 0
    assert "persistence mode is off" in in_worker(lock, "sm900", nvml.uuid(0))


def test_with_several_gpus_one_must_be_named(nvml, in_worker):
    with pytest.raises(GpuNotFoundError, match=f"3 GPUs: choose one with --gpu UUID.\n  {nvml.uuid(0)}  NVIDIA A30"):
        in_worker(lock, "sm900", None)
    assert nvml.card(0).settings_made == 0


def test_a_single_gpu_need_not_be_named(nvml, in_worker):
    nvml.install("NVIDIA A30")
    in_worker(lock, "sm900", None)
    assert nvml.card(0).locked_sm_mhz == 900


def test_nothing_to_lock():
    with pytest.raises(ControlError, match="clockwatt clocks reset"):
        manual.lock(OperatingPoint())


def test_permission_is_needed(nvml, in_worker):
    nvml.card(0).may_set = 0
    for function, arguments in ((lock, ("sm900", nvml.uuid(0))), (reset, (nvml.uuid(0),))):
        with pytest.raises(NoPermissionError, match="privileges"):
            in_worker(function, *arguments)
