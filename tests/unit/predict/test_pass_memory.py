"""Peak memory: the caching allocator replayed, workspaces, and whether a pass fits."""

import json

import pytest
import torch

import clockwatt
from clockwatt.config import NetworkConfig, TrainingConfig
from clockwatt.gpu.specs import find_spec
from clockwatt.operations.networks import NetworkError
from clockwatt.operations.trace import memory as memory_trace
from clockwatt.operations.trace.memory import record_memory
from clockwatt.predict.memory import (
    FRAGMENTATION,
    CachingAllocator,
    DoesNotFitError,
    column_sum_bytes,
    pass_memory,
    workspace_bytes,
)
from clockwatt.schema.execution import TF32
from clockwatt.schema.records import ACTIVATIONS, CAPTURE, PARAMETERS, MemoryRow

KIB, MIB = 2**10, 2**20


def test_blocks_are_rounded_and_segments_are_as_in_pytorch():
    allocator = CachingAllocator()
    allocator.allocate(1)
    assert (allocator.allocated, allocator.reserved) == (512, 2 * MIB)
    allocator.allocate(MIB)  # small too: shares the segment
    assert allocator.reserved == 2 * MIB
    allocator.allocate(MIB + 1)  # large
    assert allocator.reserved == 22 * MIB
    allocator.allocate(11 * MIB + 1)  # a segment of its own, as 19 - 512 bytes MiB are free but more than it needs
    assert allocator.reserved == 22 * MIB
    allocator.allocate(21 * MIB + 1)
    assert allocator.reserved == 44 * MIB


def test_free_neighbours_merge_and_are_used_again():
    allocator = CachingAllocator()
    blocks = [allocator.allocate(6 * MIB) for _ in range(3)]
    assert allocator.reserved == 20 * MIB
    for block in (blocks[0], blocks[2], blocks[1]):
        allocator.release(block)
    assert allocator.allocated == 0
    allocator.allocate(19 * MIB)
    assert allocator.reserved == 20 * MIB


def test_a_remainder_of_a_large_block_up_to_one_mib_is_not_split_off():
    allocator = CachingAllocator()
    allocator.allocate(20 * MIB - MIB)
    assert allocator.allocated == 20 * MIB


def test_memory_that_is_full_is_freed_of_unused_segments_before_it_is_too_small():
    allocator = CachingAllocator(capacity=64 * MIB)
    allocator.release(allocator.allocate(40 * MIB))
    allocator.allocate(60 * MIB)
    assert allocator.reserved == 60 * MIB
    with pytest.raises(DoesNotFitError):
        allocator.allocate(8 * MIB)


def test_a_captured_graph_shares_no_memory_with_what_ran_before():
    allocator = CachingAllocator()
    old = [allocator.allocate(12 * MIB), allocator.allocate(6 * MIB), allocator.allocate(6 * MIB)]
    allocator.release(old[0])
    allocator.release(old[1])
    assert allocator.reserved == 32 * MIB
    allocator.empty_cache()  # gives the free segment back, and not the one that is half used
    assert allocator.reserved == 20 * MIB
    allocator.begin_pool()
    allocator.allocate(6 * MIB)
    assert allocator.reserved == 40 * MIB
    allocator.release(old[2])
    assert allocator.allocated == 6 * MIB


@pytest.mark.parametrize(
    ("rows", "columns", "size"),
    [(9216, 256, 18 * MIB), (9216, 1024, 72 * MIB), (16384, 500, 65_536_000), (64, 1024, 0), (2**20, 3, 6 * KIB)],
)
def test_sums_over_many_rows_need_partial_sums(rows, columns, size):
    assert column_sum_bytes(rows, columns) == size


def test_partial_sums_are_of_the_multiprocessors_that_there_are():
    assert column_sum_bytes(4096, 4096, multiprocessors=68) == 68 * MIB


def test_a_captured_pass_has_workspaces_of_cublas_beside_those_of_the_passes_before():
    def predicted(precision):
        network = NetworkConfig(name="linear", input=[64, 64], precision=precision)
        events = record_memory(network, "training", TrainingConfig(), lambda _: torch.nn.Linear(64, 64))
        return pass_memory(events, pass_="training", execution=network.execution[0], spec=find_spec("h100"))

    added = predicted("tf32+cuda_graph").allocated_bytes - predicted("tf32").allocated_bytes
    assert added == pytest.approx(65 * MIB, abs=64 * KIB)


def test_passes_before_a_capture_use_no_free_block_of_another_stream():
    network = NetworkConfig(name="relu", input=[2**21, 1], precision="tf32+cuda_graph")
    events = record_memory(network, "inference", TrainingConfig(), lambda _: torch.nn.ReLU())
    capture = next(row for row, event in enumerate(events) if event.call and CAPTURE in event.call)
    before = pass_memory(events[:capture], pass_="inference", execution=network.execution[0], spec=None)
    assert before.reserved_bytes == 40 * MIB  # though 12 MiB of the input's segment are free


def _convolution(**changed):
    call = {
        "kind": "convolution", "dtype": "float32", "x": [48, 256, 24, 24], "weight": [256, 128, 3, 3],
        "y": [48, 256, 24, 24], "stride": [1, 1], "padding": [1, 1], "dilation": [1, 1], "transposed": False,
        "groups": 2, "channels_last": False, "gradients": None,
    }  # fmt: skip
    return json.dumps(call | changed)


def test_a_convolution_that_cudnn_lays_out_anew_takes_a_copy_of_its_tensors():
    (size,) = workspace_bytes([_convolution()], tf32=True)
    assert size == pytest.approx(55.1 * MIB, rel=0.1)


def test_recurrent_layers_take_more_with_more_steps():
    call = {"kind": "lstm", "dtype": "float32", "batch": 64, "length": 64, "layers": 1, "input": 64, "output": 256,
            "weight": 10**5, "bidirectional": False, "batch_first": True}  # fmt: skip
    small, large = workspace_bytes([json.dumps(call), json.dumps(call | {"length": 1024})], tf32=True)
    assert 4 * small < large


def test_a_recurrent_layer_of_a_large_batch_takes_what_was_measured():
    layer = torch.nn.GRU(16, 128, 2, batch_first=True, bidirectional=True, device="meta")
    call = {"kind": "gru", "dtype": "float32", "batch": 2048, "length": 200, "layers": 2, "input": 16, "output": 256,
            "weight": sum(one.numel() for one in layer.parameters()), "bidirectional": True,
            "batch_first": True}  # fmt: skip
    (workspace,) = workspace_bytes([json.dumps(call)], tf32=True)
    tensors = 4 * 2048 * 200 * (16 + 256)
    assert workspace + tensors == pytest.approx(5_667_692_032, rel=0.15)  # peak of the whole network on an H200


def _rows(*sizes):
    rows = [MemoryRow(0, sizes[0], PARAMETERS, "")]
    for size in sizes[1:]:
        rows.append(MemoryRow(len(rows), size, ACTIVATIONS, "layer"))
        rows.append(MemoryRow(len(rows) - 1, None, ACTIVATIONS, "layer"))
    return rows


def test_the_peak_consists_of_what_is_alive_then():
    memory = pass_memory(
        _rows(8 * MIB, MIB, 4 * MIB, 2 * MIB), pass_="inference", execution=TF32, spec=find_spec("h200")
    )
    assert memory.allocated_bytes == 12 * MIB
    assert memory.parts[PARAMETERS] == 8 * MIB
    assert memory.parts[ACTIVATIONS] == 4 * MIB
    assert sum(memory.parts.values()) == memory.allocated_bytes
    assert memory.modules["layer", ACTIVATIONS] == 4 * MIB
    assert memory.allocated_low_bytes <= memory.allocated_bytes <= memory.allocated_high_bytes
    assert memory.fits


def test_ends_of_blocks_that_are_not_split_off_are_a_part_of_the_peak():
    rows = [MemoryRow(0, 19 * MIB, ACTIVATIONS, "layer")]
    memory = pass_memory(rows, pass_="inference", execution=TF32, spec=find_spec("h200"))
    assert (memory.parts[ACTIVATIONS], memory.parts[FRAGMENTATION]) == (19 * MIB, MIB)
    assert sum(memory.parts.values()) == memory.allocated_bytes == 20 * MIB


def test_what_fits_only_once_cached_segments_are_given_back_fits():
    gib = 2**30
    rows = _rows(8 * MIB, 60 * gib, 70 * gib)
    assert pass_memory(rows, pass_="inference", execution=TF32, spec=find_spec("h100")).fits
    assert not pass_memory(_rows(8 * MIB, 90 * gib), pass_="inference", execution=TF32, spec=find_spec("h100")).fits


@pytest.mark.parametrize(
    ("gib", "fits", "close"), [(34, True, False), (40, True, True), (43, False, True), (50, False, False)]
)
def test_where_fragmentation_decides_the_answer_says_that_it_is_close(gib, fits, close):
    freed, small, large = 37 * 2**30, 2**30, gib * 2**30  # the small one lies in what was freed
    sizes = (0, freed), (0, None), (2, small), (3, large)
    rows = [MemoryRow(number, size, ACTIVATIONS, "") for number, size in sizes]
    memory = pass_memory(rows, pass_="inference", execution=TF32, spec=find_spec("h100"))
    assert memory.allocated_high_bytes < 0.8 * memory.gpu_bytes
    assert (memory.fits, memory.close) == (fits, close)


def test_a_larger_batch_takes_more_in_every_part_but_the_parameters():
    small, large = (
        pass_memory(
            record_memory(NetworkConfig(name="alexnet", input=[size, 3, 224, 224]), "training", TrainingConfig()),
            pass_="training", execution=TF32, spec=find_spec("h100"),
        )
        for size in (8, 64)
    )  # fmt: skip
    assert small.parts[PARAMETERS] == large.parts[PARAMETERS]
    assert small.allocated_bytes < large.allocated_bytes < 8 * small.allocated_bytes


def test_memory_that_cannot_be_predicted_is_a_warning(monkeypatch, tmp_path):
    def fails(*_given):
        raise NetworkError("an odd network.")

    monkeypatch.setenv("CLOCKWATT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(memory_trace, "record_memory", fails)
    answer = clockwatt.load().predict("alexnet", (3, 3, 224, 224), gpu="h200")
    assert answer.memory is None
    assert "Memory is left out: an odd network." in answer.warnings
