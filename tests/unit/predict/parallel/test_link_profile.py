"""Profiles of links: what is fitted, extrapolated, written and read."""

import json

import pytest

from clockwatt.errors import DataFileError, RequestError
from clockwatt.predict.parallel.links import SHIPPED, ClusterLinks, LinkProfile, fit_links
from clockwatt.schema.links import ALL_GATHER, ALL_REDUCE, COMMUNICATIONS, HOST_COSTS, SEND_RECEIVE

LATENCY_S, BYTES_PER_S = 20e-6, 200e9
SIZES = [2**power for power in range(10, 29, 3)]


def rows(factors=(1, 1, 1, 1, 1, 1, 1)):
    return [
        {"kind": kind, "gpus": 2, "bytes": size, "time_s": factor * (LATENCY_S + size / BYTES_PER_S)}
        for kind in COMMUNICATIONS
        for size, factor in zip(SIZES, factors, strict=True)
    ]


@pytest.fixture
def profile():
    return LinkProfile("NVLink", "H100", False, fit_links(rows()), 300.0, dict.fromkeys(HOST_COSTS, 1e-5))


def test_latency_and_bandwidth_are_fitted_with_their_errors():
    exact, *_ = fit_links(rows())
    assert (exact.latency_s, exact.bytes_per_s) == pytest.approx((LATENCY_S, BYTES_PER_S))
    assert exact.error_90 == pytest.approx(0, abs=1e-9)
    noisy, *_ = fit_links(rows([1.1, 0.9, 1.1, 0.9, 1.1, 0.9, 1.1]))
    assert noisy.latency_s == pytest.approx(LATENCY_S, abs=3 * noisy.latency_error_s)
    assert noisy.bytes_per_s == pytest.approx(BYTES_PER_S, abs=3 * noisy.bytes_per_s_error)
    assert 0.05 < noisy.error < 0.15


def test_one_size_is_too_few():
    with pytest.raises(DataFileError, match="all_reduce between 2 GPUs: all sizes but one"):
        fit_links(rows()[6:])
    with pytest.raises(DataFileError, match="all_reduce: the measurement timed out"):
        fit_links(rows()[7:])


def test_more_gpus_are_extrapolated_as_a_ring(profile):
    assert profile.time_s(SEND_RECEIVE, 2e9, 2) == pytest.approx(LATENCY_S + 0.01)
    assert profile.time_s(ALL_REDUCE, 2e9, 4) == pytest.approx(3 * LATENCY_S + 0.015)
    assert profile.time_s(ALL_GATHER, 2e9, 4) == pytest.approx(3 * LATENCY_S + 0.015)


def test_between_nodes_each_gpu_sends_its_part_and_the_slower_links_count(profile):
    fast, slow = (ClusterLinks.of(profile, 4, links) for links in ("400GB/s,5us", "10. GB/s, 5µs"))
    latency_s = profile.time_s(ALL_GATHER, 0, 8)
    assert fast.time_s(ALL_GATHER, 2e9, 32) == pytest.approx(profile.time_s(ALL_GATHER, 2e9, 8) + 3 * 5e-6)
    assert slow.time_s(ALL_GATHER, 2e9, 32) == pytest.approx(latency_s + 3 * 5e-6 + 2e9 / 8 * 0.75 / 10e9)
    assert slow.time_s(ALL_REDUCE, 2e9, 32) == pytest.approx(latency_s + 4 * 5e-6 + 2 * 2e9 / 8 * 0.75 / 10e9)
    assert slow.on_host(2.0).time_s(ALL_REDUCE, 2e9, 32) == slow.time_s(ALL_REDUCE, 2e9, 32)
    for text in ("50", "50GB/s", "0GB/s,5us", "50Gb/s,5us"):
        with pytest.raises(RequestError, match="node_links"):
            ClusterLinks.of(profile, 4, text)


def test_a_profile_is_read_as_it_was_written(profile, tmp_path):
    profile.write(tmp_path / "links.json")
    assert LinkProfile.read(tmp_path / "links.json") == profile


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_profiles_state_their_origin(name):
    assert "Measured on 2 NVIDIA H100" in LinkProfile.read(name).origin


def test_a_file_that_is_no_profile_is_refused(profile, tmp_path):
    with pytest.raises(RequestError, match="no such file"):
        LinkProfile.read(tmp_path / "none.json")
    profile.write(tmp_path / "links.json")
    content = json.loads((tmp_path / "links.json").read_text())
    content["host_costs"].pop("fsdp_group_s")
    (tmp_path / "links.json").write_text(json.dumps(content))
    with pytest.raises(DataFileError, match="fsdp_group_s missing or impossible"):
        LinkProfile.read(tmp_path / "links.json")
