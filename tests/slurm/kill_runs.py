"""Jobs that are killed at random moments while the helper sets their GPU, and how long the GPU stays set."""

from __future__ import annotations

import random
import select
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from clocks_node import RESTORED, ClocksNode, kill, wait_for

WAYS = ("KILL", "TERM", "INT", "scancel", "caller and helper")

CALLER = r"""
exec /usr/bin/python3 -u -c '
import os, random, signal, subprocess
signal.signal(signal.SIGINT, signal.default_int_handler)
print("pid", os.getpid())
while True:
    for verb, value in (("lock", random.randrange(210, 1441, 15)), ("lock-memory", 1215), ("power-limit", 120)):
        subprocess.run(["sudo", "-n", os.environ["HELPER"], verb, os.environ["GPU0"], str(value)], capture_output=True)
    subprocess.run(["sudo", "-n", os.environ["HELPER"], "reset", os.environ["GPU0"]], capture_output=True)
'
"""
"""Sets and resets without end, so that any moment is in the middle of something."""

SLOW_SETTING_US = 20_000
"""Each setting takes this long, so that a kill falls between setting and recording now and then."""


@dataclass(frozen=True)
class Killed:
    """One run."""

    way: str
    was_set: bool  # when it was killed
    restored_s: float  # after the job's end


def kill_at_random(node: ClocksNode, rng: random.Random, way: str, longest_s: float = 0.8) -> Killed:
    """Start a job, kill it in one way at a random moment, and wait until the GPU is as it was.

    Raises
    ------
    AssertionError
        If it is not, a minute after the job's end.
    """
    node.cards[0].setting_us = SLOW_SETTING_US
    job = node.start("cw_alice", CALLER)
    assert job.stdout is not None
    assert select.select([job.stdout], [], [], 120)[0], node.cluster.command("sinfo", "--list-reasons").stdout
    word, _, pid = job.stdout.readline().partition(" ")
    assert word == "pid", word
    time.sleep(rng.uniform(0, longest_s))
    if way == "scancel":
        node.cluster.command("scancel", "--user=cw_alice")
    elif way == "caller and helper":
        for process in [int(pid), *descendants(int(pid))]:
            kill(process)
    else:
        kill(int(pid), signal.Signals[f"SIG{way}"])
    was_set = node.settings(0) != RESTORED
    job.communicate(timeout=300)
    wait_for(lambda: not node.cluster.command("squeue", "-h", "--user=cw_alice").stdout.strip())
    return Killed(way, was_set, node.wait_restored())


def descendants(pid: int) -> list[int]:
    """Processes below one, sudo and the helper among them."""
    try:
        children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:  # it has ended
        return []
    return [*children, *(found for child in children for found in descendants(child))]
