import subprocess
import sys

import pytest

from clockwatt.gpu.specs import UnknownGpuError, find_spec, specs

PUBLISHED_TFLOPS = {  # data sheets: FP32, then dense TF32 and FP16 on the matrix units
    "rtx2080ti": (13.4, None, 53.8),
    "v100": (15.7, None, 125),
    "a30": (10.3, 82, 165),
    "a100": (19.5, 156, 312),
    "l40s": (91.6, 183, 362),
    "rtx3090": (35.6, 35.6, 71),
    "rtx4090": (82.6, 82.6, 165.2),
}


@pytest.mark.parametrize(("model", "tflops"), PUBLISHED_TFLOPS.items())
def test_peaks_are_those_of_the_data_sheets(model, tflops):
    spec = find_spec(model)
    fp32, tf32, fp16 = tflops
    assert spec.fp32_flops == pytest.approx(fp32 * 1e12, rel=0.015)
    assert spec.tf32_flops == (spec.fp32_flops if tf32 is None else pytest.approx(tf32 * 1e12, rel=0.015))
    assert spec.fp16_flops == pytest.approx(fp16 * 1e12, rel=0.015)


@pytest.mark.parametrize("model", ["h100", "h200"])
def test_matrix_peak_of_hopper_is_published_at_1830_mhz(model):
    spec = find_spec(model)
    assert spec.fp32_flops == pytest.approx(66.9e12, rel=0.01)
    assert spec.fp16_flops * 1830 / spec.boost_clock_mhz == pytest.approx(989.4e12, rel=0.01)


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("NVIDIA A30", "a30"),
        ("nvidia a30", "a30"),
        ("virtual:a30", "a30"),
        ("virtual A30", "a30"),
        ("virtual RTX 2080 Ti", "rtx2080ti"),
        ("NVIDIA GeForce RTX 2080 Ti", "rtx2080ti"),
        ("GeForce RTX 2080 Ti", "rtx2080ti"),
        ("Tesla V100-SXM2-32GB", "v100"),
        ("Tesla V100-PCIE-16GB", "v100-pcie"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H200", "h200"),
        ("nvidia_a30", "a30"),
        ("tesla_v100", "v100"),
        ("geforce_rtx_2080_ti", "rtx2080ti"),
    ],
)
def test_names_are_found(name, model):
    assert find_spec(name) is specs()[model]


def test_every_gpu_is_found_by_the_name_a_virtual_one_carries():
    for model, spec in specs().items():
        assert find_spec(f"virtual {spec.name}") is spec
        assert find_spec(f"virtual:{model}") is spec
        assert find_spec(spec.nvml_name) is spec


@pytest.mark.parametrize("name", ["NVIDIA A300", "NVIDIA H200 NVL", "A3", "NVIDIA", "", "virtual:"])
def test_unknown_name_lists_the_known_ones(name):
    with pytest.raises(UnknownGpuError, match=r"known are .*a30.*h200.*gpus\.yaml"):
        find_spec(name)


def test_clocks_and_limits_are_ordered():
    for spec in specs().values():
        clocks = spec.supported_sm_clocks_mhz
        assert clocks == sorted(set(clocks))
        assert clocks[0] == spec.sm_clock_mhz.min
        assert clocks[-1] == spec.sm_clock_mhz.max
        assert spec.sm_clock_mhz.min < spec.sm_clock_mhz.base <= spec.boost_clock_mhz <= spec.sm_clock_mhz.max
        assert spec.boost_clock_mhz in clocks
        assert list(spec.memory_clocks_mhz) == sorted(spec.memory_clocks_mhz)
        assert spec.power_w.idle < spec.power_w.min <= spec.power_w.default <= spec.power_w.max


def test_a_clock_between_integers_is_cut_off_as_the_driver_does():
    assert find_spec("v100").supported_sm_clocks_mhz[:5] == [135, 142, 150, 157, 165]


def test_torch_is_not_imported():
    code = "import sys, clockwatt.gpu.specs as s; s.find_spec('a30'); raise SystemExit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_name_like_a_known_one_is_suggested():
    with pytest.raises(UnknownGpuError, match=r"did you mean h200"):
        find_spec("h20")
