"""An operation that hangs, crashes or loses the GPU costs itself alone: a fresh process measures the others."""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from clockwatt import config
from clockwatt.config import OperatingPoint
from clockwatt.gpu.virtual.card import VirtualGpu
from clockwatt.io import files
from clockwatt.measure import watchdog, worker
from clockwatt.measure.bench import registry
from clockwatt.measure.bench.interface import BenchLostError
from clockwatt.measure.bench.virtual import VirtualBench
from clockwatt.measure.session import measure_shard
from clockwatt.measure.store import Store
from clockwatt.measure.tasks import Shard
from clockwatt.schema.records import ANCHOR, MEASUREMENT_SCHEMA
from clockwatt.telemetry.logger import virtual_logger

ALL = Shard(1, 1, networks=False)
HANG_S = 0.5
ENDINGS = {
    "killed": "it was killed or crashed",  # as by the kernel where memory runs out
    "deaf": f"hung for {HANG_S} s",
    "lost": "CUDA error: an illegal memory access",
}


class FaultyBench(VirtualBench):
    """One operation of it ends its process, some of the times that it is tried."""

    victim = fault = ""
    tries: Path
    survives_after = 10**9

    @contextlib.contextmanager
    def open(self, subject):
        if subject.subject_id == self.victim and subject.pass_ == "inference":
            with self.tries.open("a") as file:
                file.write(f"{os.getpid()}\n")
            if len(self.tries.read_text().split()) <= self.survives_after:
                self._end_process()
        with super().open(subject) as workload:
            yield workload

    def _end_process(self):
        match self.fault:
            case "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            case "deaf":  # in C, without a look at Python's signals
                signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
                ctypes.CDLL(None).sleep(60)
            case "lost":
                raise BenchLostError("CUDA error: an illegal memory access")


class ImpatientWatchdog(watchdog.Watchdog):
    """Takes one operation to hang after a moment; the others have the time that a busy machine needs."""

    def __init__(self, victim):
        super().__init__(grace_s=0.2)
        self._victim = victim

    @contextlib.contextmanager
    def watching(self, name, blame):
        self._hang_s = HANG_S if name == self._victim else watchdog.HANG_S
        with super().watching(name, blame):
            yield


def measure(campaign, folder, victim, fault, survives_after=10**9):
    """What a worker does here: measure on a bench on which one operation ends its process."""

    @contextlib.contextmanager
    def open_bench(gpu, settings):
        with virtual_logger(gpu, settings.session_id, settings.telemetry_dir, settings.config.telemetry) as logger:
            bench = FaultyBench(gpu, logger, settings.config.seed, settings.catalogue_dir)
            bench.victim, bench.fault, bench.tries = victim, fault, folder / "tries"
            bench.survives_after = survives_after
            yield bench

    if fault == "deaf":
        watchdog.Watchdog = partial(ImpatientWatchdog, f"{victim} inference")
    registry._OPENERS[VirtualGpu.vendor] = open_bench  # for good: this process is the test's own
    measure_shard(
        campaign, label="a30", point=OperatingPoint(), shard=ALL, catalogue_dir=folder / "catalogue",
        store_dir=folder / "store", output=folder / "1.parquet",
    )  # fmt: skip


def note(campaign, folder):
    return Store(folder / "store", campaign, "a30", OperatingPoint()).shard_file(ALL, "under-way")


def rows_of(folder):
    rows = files.read_table(folder / "1.parquet", MEASUREMENT_SCHEMA).to_pandas()
    return rows[rows["kind"] != ANCHOR]


@pytest.fixture
def victim(catalogue):
    table = files.pq.read_table(catalogue / "operations.parquet", columns=["operation_id"])
    return table["operation_id"][1].as_py()


@pytest.mark.usefixtures("ready")
@pytest.mark.parametrize("fault", ENDINGS)
def test_an_operation_that_ends_its_process_costs_itself_alone(campaign, catalogue, victim, fault):
    folder = catalogue.parent
    worker.run(partial(measure, campaign, folder, victim, fault), note(campaign, folder))
    rows = rows_of(folder)
    failed = rows[rows["status"] == "failed"]
    assert list(zip(failed["subject_id"], failed["pass"], strict=True)) == [(victim, "inference")]
    expected = f"left out: 3 processes ended while it was measured, the last: {ENDINGS[fault]}"
    assert failed["error"].iloc[0] == expected
    assert len(rows) == 12
    assert len(set((folder / "tries").read_text().split())) == 3
    assert not note(campaign, folder).exists()


@pytest.mark.usefixtures("ready")
def test_one_that_ends_its_process_once_is_measured_by_the_next(campaign, catalogue, victim):
    folder = catalogue.parent
    worker.run(partial(measure, campaign, folder, victim, "lost", 1), note(campaign, folder))
    assert "failed" not in set(rows_of(folder)["status"])
    assert len((folder / "tries").read_text().split()) == 2


def fail_before_anything(how):
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    raise BenchLostError("no GPU")


@pytest.mark.parametrize(
    ("how", "error"), [("killed", worker.WorkerEndedError), ("error", SystemExit)], ids=["killed", "error"]
)
def test_a_worker_that_ends_while_nothing_is_measured_is_not_followed_by_another(tmp_path, how, error, capfd):
    with pytest.raises(error, match=r"signal 9 \(Killed\) while nothing was measured|1"):
        worker.run(partial(fail_before_anything, how), tmp_path / "note")
    assert capfd.readouterr().err.count("no GPU") == (how == "error")


def slow(folder):
    try:
        (folder / "began").touch()  # the signal may come before it has returned
        time.sleep(60)
    finally:
        time.sleep(0.3)  # a second signal must not disturb this
        (folder / "ended").touch()


def supervise(folder):
    signal.signal(signal.SIGTERM, worker._terminate)
    worker.run(partial(slow, folder), folder / "note")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_worker_ends_in_order_with_the_process_that_waits_for_it(tmp_path, number):
    supervisor = multiprocessing.get_context("spawn").Process(target=supervise, args=(tmp_path,))
    supervisor.start()
    wait_for(tmp_path / "began")
    os.kill(supervisor.pid, number)
    supervisor.join()
    assert supervisor.exitcode == (143 if number == signal.SIGTERM else -9)
    wait_for(tmp_path / "ended")


def wait_for(path):
    deadline = time.monotonic() + 300
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_command_measures_in_a_worker(campaign, catalogue):
    folder = catalogue.parent
    (folder / "config.yaml").write_text(config.dump(campaign))
    done = subprocess.run(
        [sys.executable, "-m", "clockwatt", "measure", "--config", "config.yaml", "--gpu", "a30", "--point", "sm900",
         "--catalogue-dir", "catalogue", "--store-dir", "store", "--output", "1.parquet"],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(rows_of(folder)) == 12


SAY_HOW = """
import os, sys
from pathlib import Path
import clockwatt.cli.main
from clockwatt.measure import worker

def tell():
    print(os.getpid() != parent, "clockwatt.cli.main" in sys.modules, "numpy" in sys.modules)

parent = os.getpid()
if __name__ == "__main__":
    if sys.argv[1] == "threads":
        import threading
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    worker.run(tell, Path(sys.argv[2]))
"""


@pytest.mark.parametrize(("process", "forked"), [("alone", True), ("threads", False)])
def test_the_command_line_forks_its_worker_unless_threads_run(tmp_path, process, forked):
    (tmp_path / "how.py").write_text(SAY_HOW)
    command = [sys.executable, tmp_path / "how.py", process, tmp_path / "note"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    # a fork finds the number of its parent as that set it; a fresh process sets its own
    assert told == [str(forked), "True", "False"]
