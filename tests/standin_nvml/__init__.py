"""A stand-in for NVIDIA's management library in C: built with gcc, loaded by nvidia-ml-py through its own lookup.

The state of its cards lies in a file that this process and all that use the library map, so a test can change a sensor
or see a lock while another process runs. Layout: `State` in nvml.c.
"""

from __future__ import annotations

import ctypes
import mmap
import multiprocessing
import os
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

SOURCE = Path(__file__).with_name("nvml.c")
LIBRARY = "libnvidia-ml.so.1"

(
    MISSING_AVERAGE_FIELD,
    MISSING_INSTANT,
    MISSING_COUNTER,
    MISSING_RING,
    MISSING_MIG,
    MISSING_PCIE,
    MISSING_SM_LOCK,
    MISSING_MEMORY_LOCK,
    MISSING_OTHER_RINGS,
) = (1 << bit for bit in range(9))


class Card(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char * 96),
        ("uuid", ctypes.c_char * 96),
        *((name, ctypes.c_uint32) for name in ("hidden", "lost", "mig_enabled", "may_set", "persistence", "missing")),
        ("sm_clocks_mhz", ctypes.c_uint32 * 256),
        ("sm_clock_count", ctypes.c_uint32),
        ("memory_clocks_mhz", ctypes.c_uint32 * 16),
        ("memory_clock_count", ctypes.c_uint32),
        *((name, ctypes.c_uint32) for name in ("free_sm_mhz", "free_memory_mhz", "locked_sm_mhz", "locked_memory_mhz")),
        *((name, ctypes.c_uint32) for name in ("sm_before_lock_mhz", "settle_us", "ignores_locks")),
        ("locked_at_us", ctypes.c_uint64),
        *((name, ctypes.c_uint32) for name in ("power_mw", "limit_mw", "default_limit_mw", "lowest_limit_mw")),
        *((name, ctypes.c_uint32) for name in ("highest_limit_mw", "counter_period_us")),
        *((name, ctypes.c_uint64) for name in ("counter_since_us", "throttle_reasons", "memory_used", "memory_total")),
        *((name, ctypes.c_uint32) for name in ("temperature_c", "performance_state", "gpu_percent", "memory_percent")),
        *((name, ctypes.c_uint32) for name in ("pcie_tx_kib_s", "pcie_rx_kib_s", "settings_made")),
        *((name, ctypes.c_uint32) for name in ("minor", "process", "ignored_sm_mhz", "setting_us", "capped_sm_mhz")),
        ("device", ctypes.c_char * 64),
    )


class State(ctypes.Structure):
    _fields_ = (
        ("driver_version", ctypes.c_char * 80),
        ("cuda_version", ctypes.c_uint32),
        ("card_count", ctypes.c_uint32),
        ("cards", Card * 8),
    )


def build(folder: Path) -> Path:
    """Compile the library into `folder` and return its path."""
    library = folder / LIBRARY
    subprocess.run(
        ["gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC", f"-Wl,-soname,{LIBRARY}",
         "-o", str(library), str(SOURCE)],
        check=True,
    )  # fmt: skip
    return library


def mapped(state_file: Path) -> State:
    """State of all cards, shared with every process that maps the file."""
    with state_file.open("r+b") as file:
        return State.from_buffer(mmap.mmap(file.fileno(), 0))


class StandInNvml:
    """Cards of a machine that does not exist.

    Parameters
    ----------
    library
        As built by `build`.
    state_file
        Where the state shall lie; made anew.
    """

    def __init__(self, library: Path, state_file: Path) -> None:
        state_file.write_bytes(bytes(ctypes.sizeof(State)))
        self.state_file = state_file
        self.state = mapped(state_file)
        self.environ = {"LD_LIBRARY_PATH": str(library.parent), "STANDIN_NVML_STATE": str(state_file)}

    def install(self, *names: str) -> None:
        """Start over with idle A30-like cards of these names, which anybody may set."""
        ctypes.memset(ctypes.addressof(self.state), 0, ctypes.sizeof(State))
        self.state.driver_version = b"580.1.2"
        self.state.cuda_version = 13020
        self.state.card_count = len(names)
        for index, name in enumerate(names):
            _set_up(self.state.cards[index], index, name)

    def card(self, index: int) -> Card:
        """State of a card: read and write its fields."""
        return self.state.cards[index]

    def uuid(self, index: int) -> str:
        """UUID of a card."""
        return self.card(index).uuid.decode()

    def environment(self, **changes: str) -> dict[str, str]:
        """Environment of a process that finds the stand-in as its NVML."""
        return {**os.environ, **self.environ, **changes}


class Worker:
    """A process of its own, in which functions of a test module run with a stand-in as their NVML."""

    def __init__(self, nvml: StandInNvml) -> None:
        self._environ = nvml.environ
        self._pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Result of a module-level function, or the error it raised."""
        with mock.patch.dict(os.environ, self._environ):  # the dynamic linker reads it when the process starts
            return self._pool.submit(function, *arguments).result()

    def close(self) -> None:
        """End the process."""
        self._pool.shutdown()


def _set_up(card: Card, index: int, name: str) -> None:
    card.name, card.uuid = name.encode(), f"GPU-{index}a30beef-0000-4000-8000-{index:012d}".encode()
    card.may_set = card.persistence = 1
    clocks = range(210, 1441, 15)
    card.sm_clocks_mhz[: len(clocks)] = list(clocks)
    card.sm_clock_count = len(clocks)
    card.memory_clocks_mhz[0], card.memory_clock_count = 1215, 1
    card.free_sm_mhz, card.free_memory_mhz = 1440, 1215
    card.power_mw, card.limit_mw, card.default_limit_mw = 30_000, 165_000, 165_000
    card.lowest_limit_mw, card.highest_limit_mw = 100_000, 165_000
    card.counter_period_us, card.counter_since_us = 100_000, int(time.time() * 1e6) - 3_600_000_000
    card.throttle_reasons = 1
    card.memory_used, card.memory_total = 512 * 2**20, 24 * 2**30
    card.temperature_c, card.gpu_percent, card.memory_percent = 31, 0, 0
    card.pcie_tx_kib_s, card.pcie_rx_kib_s = 100, 200
