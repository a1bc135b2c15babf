"""Schedules of several GPUs, against times that can be computed by hand."""

import itertools

import pytest

from clockwatt.errors import RequestError
from clockwatt.operations.partition import block_of, in_flight, order
from clockwatt.predict.parallel.links import LinkFit, LinkProfile
from clockwatt.predict.parallel.schedules import (
    ADDED,
    BUCKET_BYTES,
    FIRST_BUCKET_BYTES,
    RANKS,
    SLOWED,
    Step,
    Unit,
    ddp,
    ends,
    fsdp,
    sends,
    split,
)
from clockwatt.schema.links import COMMUNICATIONS, HOST_COSTS

MIB = 2**20
NO_COPIES = float("inf")


def links(bytes_per_s, latency_s=0.0, **host_costs):
    fits = tuple(LinkFit(kind, 2, latency_s, bytes_per_s) for kind in COMMUNICATIONS)
    return LinkProfile("link", "GPU", False, fits, None, dict.fromkeys(HOST_COSTS, 0.0) | host_costs)


def step(*units, host_s=0.0, optimizer_s=0.0, buffers=()):
    return Step(tuple(units), optimizer_s, host_s / 2, host_s, 0.0, 10.0, 100.0, buffers)


def unit(path, gradients=(), forward_s=1.0, backward_s=2.0):
    return Unit(path, forward_s, backward_s, tuple(gradients), 0)


def test_blocks_are_the_outermost_numbered_modules():
    assert block_of("model.h.3.mlp.0") == "model.h.3"
    assert block_of("encoder.layers.encoder_layer_11.mlp") == "encoder.layers.encoder_layer_11"
    assert block_of("trunk_output.block3.block3-2.f.a.0") == "trunk_output.block3.block3-2"
    assert block_of("conv1") == ""


def test_ddp_hides_all_but_the_last_bucket():
    small = step(unit("1", [MIB]), unit("2", [30 * MIB]), optimizer_s=0.5)
    found = ddp(small, links(30 * MIB), 2, NO_COPIES)
    assert found.communication_s == pytest.approx(1 + 1 / 30)
    assert found.exposed_s == pytest.approx(1 / 30)  # the gradient of the first module is complete last
    assert found.device_s == pytest.approx(6.5 + found.exposed_s + SLOWED * 1)


def test_ddp_communicates_one_bucket_after_another():
    many = step(unit("1", [BUCKET_BYTES] * 3, backward_s=0.0))
    found = ddp(many, links(BUCKET_BYTES, latency_s=0.1), 2, NO_COPIES)
    assert found.exposed_s == pytest.approx(3 * 1.1)


def test_ddp_fills_buckets_of_25_mib_after_one_of_1_mib():
    sizes = [FIRST_BUCKET_BYTES // 2] * 2 + [BUCKET_BYTES // 2] * 3
    found = ddp(step(unit("1", sizes)), links(1e12, ddp_bucket_s=1.0, ddp_parameter_s=0.1), 2, NO_COPIES)
    assert found.host_s == pytest.approx(ADDED * (3 * 1.0 + 5 * 0.1))


def test_buffers_are_sent_before_the_forward_pass():
    found = ddp(step(unit("1"), buffers=(8, 8)), links(16, ddp_buffer_s=1.0), 2, NO_COPIES)
    assert (found.exposed_s, found.host_s) == pytest.approx((1.0, ADDED * 2.0))


def test_fsdp_gathers_a_block_while_the_one_before_runs():
    blocks = step(unit("0", [4]), unit("1", [4]), optimizer_s=2.0)
    found = fsdp(blocks, links(8), 2, NO_COPIES, adaptive=False)
    # each is gathered twice and scattered once, in 0.5 s; the first gather of both passes and the last scatter delay
    assert found.communication_s == pytest.approx(6 * 0.5)
    assert found.exposed_s == pytest.approx(0.5 + 0.5 + 0.5)
    assert found.device_s == pytest.approx(6 + 1.0 + found.exposed_s + SLOWED * (3.0 - 1.5))


def test_fsdp_waits_for_slow_links():
    blocks = step(unit("0", [4]), unit("1", [4]))
    found = fsdp(blocks, links(1), 2, NO_COPIES, adaptive=False)
    # gathered until 4 and 8 s, run until 9 s; gathered again until 13 and 17 s, scattered until 21 and 25 s
    assert found.device_s == pytest.approx(25 + SLOWED * (24 - 19))


def test_fsdp_costs_the_host_by_group_parameter_and_optimizer():
    blocks = step(unit("0", [4, 4]), unit("1", [4]), host_s=1.0)
    costs = links(1e9, fsdp_group_s=10.0, fsdp_parameter_s=1.0, fsdp_sgd_s=0.1, fsdp_adamw_s=0.2)
    assert fsdp(blocks, costs, 2, NO_COPIES, adaptive=False).host_s == pytest.approx(RANKS + ADDED * (20 + 3 * 1.1))
    assert fsdp(blocks, costs, 2, NO_COPIES, adaptive=True).host_s == pytest.approx(RANKS + ADDED * (20 + 3 * 1.2))


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_a_pipeline_takes_its_bubble(schedule):
    equal = step(unit("0"), unit("1"), unit("2"), unit("3"))
    stages = split(equal, 4)
    assert max(ends(stages, sends(stages, links(1e9)), schedule, 8)) == pytest.approx((8 + 3) * 3.0)
    assert max(ends(stages, sends(stages, links(1e9)), schedule, 1)) == pytest.approx(4 * 3.0)


def test_1f1b_keeps_fewer_microbatches():
    assert [in_flight("1f1b", stage, 4, 8) for stage in range(4)] == [4, 3, 2, 1]
    assert in_flight("gpipe", 3, 4, 8) == 8
    for stage in range(4):
        done = order("1f1b", stage, 4, 8)
        assert sorted(done) == sorted(itertools.product((True, False), range(8)))
        alive = list(itertools.accumulate(1 if is_forward else -1 for is_forward, _ in done))
        assert max(alive) == in_flight("1f1b", stage, 4, 8)


def test_stages_are_balanced_or_begin_where_the_user_says():
    uneven = step(unit("0", forward_s=7.0), unit("1"), unit("2"), unit("3.0"), unit("3.1"))
    assert [stage.first for stage in split(uneven, 2)] == ["0", "1"]
    assert [stage.first for stage in split(uneven, 2, ["3"])] == ["0", "3"]
    with pytest.raises(RequestError, match="did you mean"):
        split(uneven, 2, ["33"])
    with pytest.raises(RequestError, match="each stage but the first: 1 for 2 GPUs, not 2"):
        split(uneven, 2, ["1", "3"])
    with pytest.raises(RequestError, match="in the order of the forward pass"):
        split(uneven, 3, ["3", "1"])
    with pytest.raises(RequestError, match="4 blocks, fewer than GPUs"):
        split(uneven, 5)
