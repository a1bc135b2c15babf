"""The real logger process, its NVML the stand-in."""

import multiprocessing
import os
import signal
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from clockwatt.config import TelemetryConfig
from clockwatt.gpu.interface import GpuNotFoundError, InstalledGpu
from clockwatt.io.files import read_table
from clockwatt.io.segments import read_segments, segment_paths
from clockwatt.schema.records import TELEMETRY_SCHEMA, TelemetryRow
from clockwatt.telemetry.logger import LoggerError
from clockwatt.telemetry.process import logger_process
from support.processes import command_of

FREQUENT = TelemetryConfig(segment_s=1.0)


def nvidia(uuid: str) -> InstalledGpu:
    return InstalledGpu("nvidia", uuid, "NVIDIA A30")


def log_for(uuid: str, folder: Path, seconds: float) -> tuple[int, set[int], set[int]]:
    """Readings taken, and the cores of the caller and of the logger."""
    with logger_process(nvidia(uuid), "s", folder, FREQUENT) as logger:
        time.sleep(seconds)
        (child,) = multiprocessing.active_children()
        cores = set(os.sched_getaffinity(0)), set(psutil.Process(child.pid).cpu_affinity())
        return len(logger.take()), *cores


def answers_without_waiting(uuid: str, folder: Path) -> list[int]:
    """How often each reading of the fast lane came, of three at least."""
    times: list[int] = []
    with logger_process(nvidia(uuid), "s", folder, FREQUENT) as logger:
        deadline = time.monotonic() + 120
        while len(times) < 3 and time.monotonic() < deadline:
            logger.ask()
            while (answer := logger.answer()) is None and time.monotonic() < deadline:
                time.sleep(0.001)
            times += fast(answer or [])
        logger.ask()
        logger.flush()  # a question in between loses nothing
        times += fast(logger.take())
        return [times.count(taken) for taken in times]


def fast(rows: list[TelemetryRow]) -> list[int]:
    return [row.monotonic_ns for row in rows if row.lane == "fast"]


def log_until_killed(uuid: str, folder: Path) -> None:
    with logger_process(nvidia(uuid), "s", folder, FREQUENT):
        time.sleep(3600)


def log_a_dead_logger(uuid: str, folder: Path) -> str:
    with logger_process(nvidia(uuid), "s", folder, FREQUENT) as logger:
        (child,) = multiprocessing.active_children()
        os.kill(child.pid or 0, signal.SIGKILL)
        child.join()
        try:
            logger.take()
        except LoggerError as error:
            return str(error)
    return ""


def telemetry(folder: Path):
    return [table.to_pandas() for table in read_segments(folder, TELEMETRY_SCHEMA)]


@pytest.mark.undisturbed
def test_the_lanes_keep_their_rhythm_on_a_core_of_their_own(nvml, in_worker, tmp_path: Path) -> None:
    taken, ours, theirs = in_worker(log_for, nvml.uuid(1), tmp_path, 3.0)
    assert taken > 0
    assert not ours & theirs or len(ours) == 1
    (path,) = segment_paths(tmp_path)  # merged at the end
    rows = read_table(path, TELEMETRY_SCHEMA).to_pandas()
    fast = rows[rows["lane"] == "fast"]
    lasted_s = (rows["monotonic_ns"].max() - rows["monotonic_ns"].min()) * 1e-9
    assert 4 <= len(fast) <= 10 * lasted_s + 2  # fewer on a machine that is busy with something else, never more
    assert np.median(np.diff(fast["monotonic_ns"])) == pytest.approx(1e8, rel=0.4)
    assert fast["power_instant_w"].notna().all()
    assert 1 <= (rows["lane"] == "slow").sum() <= lasted_s + 2
    ring = rows.loc[rows["lane"] == "ring", "time_us"]
    assert len(ring) == len(set(ring))


def test_readings_can_be_asked_for_without_waiting_and_come_once(nvml, in_worker, tmp_path: Path) -> None:
    counts = in_worker(answers_without_waiting, nvml.uuid(1), tmp_path)
    assert len(counts) >= 3
    assert set(counts) == {1}


def say_why_it_cannot_write(uuid: str, folder: Path) -> str:
    with logger_process(nvidia(uuid), "s", folder, FREQUENT) as logger:
        folder.write_text("a file where the folder should be")
        try:
            logger.flush()
        except LoggerError as error:
            return str(error)
    return ""


def test_a_logger_that_cannot_write_says_so_at_once(nvml, in_worker, tmp_path: Path) -> None:
    message = in_worker(say_why_it_cannot_write, nvml.uuid(1), tmp_path / "telemetry")
    assert "telemetry" in message
    assert "silent" not in message, "its answer was not waited for in vain"


def test_telemetry_survives_the_death_of_the_measuring_process(nvml, tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    os.environ.update(nvml.environ)
    try:
        process = context.Process(target=log_until_killed, args=(nvml.uuid(0), tmp_path))
        process.start()
    finally:
        for name in nvml.environ:
            del os.environ[name]
    deadline = time.monotonic() + 300
    while not segment_paths(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.1)
    (logger,) = [
        child
        for child in psutil.Process(process.pid).children(recursive=True)
        if "spawn_main" in " ".join(command_of(child))
    ]
    process.kill()
    process.join()
    logger.wait(timeout=600)  # it ends by itself
    assert sum(len(table) for table in telemetry(tmp_path)) > 10


def test_a_logger_that_died_is_an_error_not_a_gap(nvml, in_worker, tmp_path: Path) -> None:
    assert "the telemetry logger has ended" in in_worker(log_a_dead_logger, nvml.uuid(0), tmp_path)


def test_a_card_that_is_not_there_is_told_by_the_caller(nvml, in_worker, tmp_path: Path) -> None:
    with pytest.raises((LoggerError, GpuNotFoundError), match="GPU-nowhere"):
        in_worker(log_for, "GPU-nowhere", tmp_path, 0.1)
