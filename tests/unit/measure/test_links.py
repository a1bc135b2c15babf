"""Links: ranks that fail, die or hang, communications between CPU processes, and the name of a link."""

import os
import signal
import time

import pytest
from torch import distributed

from clockwatt import config
from clockwatt.errors import ClockwattError
from clockwatt.measure.links.ranks import RankError, run_ranks
from clockwatt.measure.links.run import UNKNOWN, measure_links, slowest_link
from clockwatt.schema.links import COMMUNICATIONS, HOST_COSTS, SEND_RECEIVE

CAMPAIGN = config.parse(
    {"campaign": "test", "gpus": {"a30": {"device": "virtual:a30"}}, "networks": [{"name": "x", "input": [8, 8]}]}
)
TOPOLOGY = """
\t\x1b[4mGPU0\tGPU1\tGPU2\tCPU Affinity\x1b[0m
GPU0\t X \tNV18\tSYS\t0-15
GPU1\tNV18\t X \tPIX\t0-15
GPU2\tSYS\tPIX\t X \t0-15

Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes
"""


def behave(rank, ways):
    """A rank that waits for others, hangs, is stopped, dies or fails."""
    if ways[rank] == "wait":
        distributed.barrier()
    if ways[rank] == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    if ways[rank] == "hang":
        time.sleep(600)
    if ways[rank] == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if ways[rank] == "fail":
        raise ValueError("no\nsuch thing")
    return rank


@pytest.mark.parametrize(
    ("ways", "limit_s", "message"),
    [
        (("hang", "die"), 600, r"rank 1 of 2 died \(signal 9\); the others were ended"),
        (("fail", "hang"), 600, "rank 0 of 2 failed: ValueError: no such thing"),
        (("wait", "wait", "hang", "wait"), 2, "rank 2 of 4 did not go on for 2 s; all were ended"),
        (("wait", "stop", "wait", "wait"), 5, "rank 1 of 4 was stopped; all were ended"),
    ],
)
def test_ranks_end_with_the_first_that_fails(ready, ways, limit_s, message):
    with pytest.raises(RankError, match=message):
        run_ranks(behave, (ways,), count=len(ways), limit_s=limit_s)


def test_a_link_needs_two_gpus():
    with pytest.raises(ClockwattError, match="--gpus 1: a link is between two GPUs"):
        measure_links(CAMPAIGN, label="a30", count=1)


@pytest.mark.parametrize(
    ("indices", "name"),
    [
        ((0, 1), "NVLink (18 links)"),
        ((1, 2), "PCIe (one switch)"),
        ((0, 2), "PCIe (between CPUs)"),
        ((0, 7), UNKNOWN),
    ],
)
def test_a_link_is_named_after_its_slowest_part(indices, name):
    assert slowest_link(TOPOLOGY, indices) == name


def test_links_of_four_virtual_gpus(ready):
    found = measure_links(CAMPAIGN, label="a30", count=4)
    assert found.virtual
    assert found.gpu_name == "virtual A30"
    assert found.power_w is None
    measured = {(row["kind"], row["gpus"]) for row in found.rows}
    assert measured == {(SEND_RECEIVE, 2)} | {(kind, gpus) for kind in COMMUNICATIONS[:-1] for gpus in (2, 4)}
    assert all(row["time_s"] > 0 for row in found.rows)
    assert set(found.host_costs) == set(HOST_COSTS)
    assert found.host_costs["ddp_bucket_s"] > 0
