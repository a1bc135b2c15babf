import pytest
from hypothesis import given
from hypothesis import strategies as st

from clockwatt.gpu.interface import GpuNotFoundError, InstalledGpu, NotSupportedError
from clockwatt.gpu.nvidia.vendor import resolve_visible
from clockwatt.gpu.registry import open_gpu, visible_gpus
from clockwatt.gpu.specs import UnknownGpuError

A30S = [
    InstalledGpu("nvidia", f"GPU-{digit}{digit}bead00-1111-2222-3333-44445555666{digit}", "NVIDIA A30")
    for digit in "0123"
]
MIXED = [*A30S[:2], InstalledGpu("nvidia", "GPU-0fbead00-1111-2222-3333-444455556667", "NVIDIA H200")]


def resolve(chosen, installed=A30S, **environ):
    return resolve_visible({"CUDA_VISIBLE_DEVICES": chosen, **environ}, installed)


def test_all_are_visible_when_nothing_is_said():
    assert resolve_visible({}, A30S) == A30S


@pytest.mark.parametrize("chosen", ["", " ", "-1", "NoDevFiles", "-1,0"])
def test_none_are_visible(chosen):
    assert resolve(chosen) == []


@given(st.permutations(A30S), st.data())
def test_index_uuid_and_prefix_mean_the_same(chosen, data):
    chosen = chosen[: data.draw(st.integers(1, 4))]
    ways = st.sampled_from(
        [lambda gpu: str(A30S.index(gpu)), lambda gpu: gpu.uuid, lambda gpu: gpu.uuid[:5], lambda gpu: gpu.uuid.lower()]
    )
    text = data.draw(st.sampled_from([",", " , "])).join(data.draw(ways)(gpu) for gpu in chosen)
    assert resolve(text) == chosen


@given(st.text(alphabet="0123456789,-GPUMIg- ax", max_size=12))
def test_whatever_is_said_names_cards_once_or_is_refused(chosen):
    try:
        visible = resolve(chosen)
    except (GpuNotFoundError, NotSupportedError) as error:
        assert "CUDA_VISIBLE_DEVICES" in str(error)  # noqa: PT017
    else:
        assert len(set(visible)) == len(visible)
        assert set(visible) <= set(A30S)


def test_what_follows_minus_one_is_ignored_as_cuda_does():
    assert resolve("2,-1,0") == [A30S[2]]


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ("4", "no GPU 4 among the 4"),
        ("GPU-ff", "no GPU here has a UUID that begins with 'GPU-ff'"),
        ("GPU-", "several GPUs have a UUID that begins with 'GPU-'"),
        ("a30", "no GPU here has a UUID that begins with 'a30'"),
        ("0,0", "twice"),
        ("1,GPU-11", "twice"),
    ],
)
def test_what_cannot_be_resolved_is_an_error(chosen, message):
    with pytest.raises(GpuNotFoundError, match=message):
        resolve(chosen)


def test_mig_is_refused_with_a_reason():
    with pytest.raises(NotSupportedError, match="MIG instance cannot be measured"):
        resolve("MIG-1d1e2d33-5555-6666-7777-888899990000")


def test_an_index_among_unlike_gpus_is_refused_unless_the_order_is_the_bus():
    with pytest.raises(GpuNotFoundError, match="CUDA_DEVICE_ORDER=PCI_BUS_ID"):
        resolve("0", MIXED)
    with pytest.raises(GpuNotFoundError, match="CUDA_DEVICE_ORDER=PCI_BUS_ID"):
        resolve_visible({}, MIXED)
    assert resolve("2", MIXED, CUDA_DEVICE_ORDER="PCI_BUS_ID") == [MIXED[2]]
    assert resolve("GPU-0f", MIXED) == [MIXED[2]]


def opened_name(device, environ):
    gpu = open_gpu(device, seed=0, key="gpus.mine.device", environ=environ)
    try:
        return gpu.identity.name, gpu.identity.uuid
    finally:
        gpu.close()


@pytest.mark.parametrize("device", ["NVIDIA A30", "nvidia a30", " NVIDIA  A30 "])
def test_the_first_visible_gpu_is_opened(nvml, in_worker, device):
    environ = {"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert in_worker(opened_name, device, environ) == ("NVIDIA A30", nvml.uuid(1))


def test_another_model_names_key_and_fix(nvml, in_worker):
    with pytest.raises(
        GpuNotFoundError, match=r"gpus\.mine\.device: 'NVIDIA H200' is wanted, but this GPU is 'NVIDIA A30'"
    ):
        in_worker(opened_name, "NVIDIA H200", {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    with pytest.raises(GpuNotFoundError, match=f"set CUDA_VISIBLE_DEVICES={nvml.uuid(2)}"):
        in_worker(opened_name, "NVIDIA GeForce RTX 2080 Ti", {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})


def test_no_visible_gpu_names_key_and_fix(nvml, in_worker):
    with pytest.raises(
        GpuNotFoundError, match=r"gpus\.mine\.device: .*no GPU is visible here .*gpus\.<label>\.slurm\.gres"
    ):
        in_worker(opened_name, "NVIDIA A30", {"CUDA_VISIBLE_DEVICES": ""})


def test_indices_in_a_job_count_its_own_cards(nvml, in_worker):
    nvml.card(0).hidden = 1
    nvml.card(2).hidden = 1
    found = in_worker(visible_gpus, {"CUDA_VISIBLE_DEVICES": "0"})
    assert [(gpu.vendor, gpu.uuid) for gpu in found] == [("nvidia", nvml.uuid(1))]


def test_a_virtual_gpu_needs_no_driver():
    assert open_gpu("virtual:a30", seed=3).identity.uuid == "virtual-a30-seed3-card0"
    with pytest.raises(UnknownGpuError, match="rtx2080ti"):
        open_gpu("virtual:a31", seed=0)
