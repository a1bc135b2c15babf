"""What a test's Slurm takes of the machine: ports, a major number for device nodes, processes."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import time
from pathlib import Path


def free_ports(count: int) -> list[int]:
    """TCP ports that nobody listens on, at random below those that sockets of others are given by themselves."""
    ports: list[int] = []
    while len(ports) < count:
        port = random.randrange(10_000, 32_000)
        with contextlib.suppress(OSError), socket.create_server(("", port)):
            ports.append(port)
    return ports


def unused_major() -> int:
    """A major number of the range for local use that no character driver holds."""
    held = {
        line.split()[0] for line in Path("/proc/devices").read_text().split("Block devices")[0].splitlines()[1:] if line
    }
    return next(major for major in range(240, 255) if str(major) not in held)


def answers(host: str, port: int) -> bool:
    """Whether somebody listens on a TCP port."""
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return False
    return True


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def terminate(pid: int, timeout_s: float = 120) -> None:
    """End a process, by force if it does not end by itself."""
    if not alive(pid):
        return
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + timeout_s
    while alive(pid):
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            return
        time.sleep(0.05)
