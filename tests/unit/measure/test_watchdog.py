"""What keeps a shard from harm: locks, time limits, dead loggers, operations that end their process."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time

import pytest

from clockwatt import config
from clockwatt.config import OperatingPoint
from clockwatt.errors import OutputError
from clockwatt.gpu import registry
from clockwatt.gpu.interface import Vendor
from clockwatt.gpu.virtual.card import VirtualGpu
from clockwatt.io import files
from clockwatt.measure import watchdog
from clockwatt.measure.bench import registry as benches
from clockwatt.measure.bench.virtual import VirtualBench
from clockwatt.measure.session import measure_shard
from clockwatt.measure.store import Key, Store
from clockwatt.measure.tasks import Shard
from clockwatt.schema.execution import TF32
from clockwatt.schema.records import MEASUREMENT_SCHEMA
from clockwatt.telemetry.logger import LoggerError, virtual_logger

ALL = Shard(1, 1, networks=False)
KEY = Key("operation", "o", "inference", TF32, 0)
SPAWN = multiprocessing.get_context("spawn")


def measured(campaign, catalogue):
    folder, (label,) = catalogue.parent, campaign.gpus
    output = folder / "1.parquet"
    measure_shard(
        campaign, label=label, point=OperatingPoint(), shard=ALL, catalogue_dir=catalogue,
        store_dir=folder / "store", output=output,
    )  # fmt: skip
    rows = files.read_table(output, MEASUREMENT_SCHEMA).to_pandas()
    return rows[rows["kind"] != "anchor"]


def hold(path, held, done):
    with watchdog.only_process(path):
        held.set()
        done.wait(60)


def test_of_two_processes_on_one_shard_the_second_is_refused_until_the_first_is_killed(campaign, catalogue):
    path = Store(catalogue.parent / "store", campaign, "a30", OperatingPoint()).shard_file(ALL, "lock")
    held, done = SPAWN.Event(), SPAWN.Event()
    process = SPAWN.Process(target=hold, args=(path, held, done))
    process.start()
    assert held.wait(60)
    with pytest.raises(watchdog.ShardBusyError, match=f"process {process.pid} on .* measures this shard"):
        measured(campaign, catalogue)
    process.kill()
    process.join()
    assert len(measured(campaign, catalogue)) == 12


def test_a_job_near_its_time_limit_ends_cleanly_and_the_next_goes_on(campaign, catalogue, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time()) + 60))
    with pytest.raises(watchdog.ShardUnfinishedError, match=r"with 12 left to measure.*submitted again"):
        measured(campaign, catalogue)
    assert not (catalogue.parent / "1.parquet").exists()
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time()) + 3600))
    assert len(measured(campaign, catalogue)) == 12


def test_a_short_job_keeps_most_of_its_time():
    now = int(time.time())
    left = watchdog.seconds_left({"SLURM_JOB_START_TIME": str(now), "SLURM_JOB_END_TIME": str(now + 120)})
    assert 60 < left <= 108  # a tenth is kept, not 90 s
    assert watchdog.seconds_left({}) is None


def die(path):
    watchdog.UnderWay(path).begin(KEY)
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.usefixtures("ready")
def test_processes_that_die_of_an_operation_are_counted_and_one_that_ends_is_not(tmp_path):
    path = tmp_path / "note"
    for strikes in range(1, 4):
        process = SPAWN.Process(target=die, args=(path,))
        process.start()
        process.join()
        assert watchdog.UnderWay(path).strikes(KEY) == watchdog.Strikes(strikes, "it was killed or crashed")
    with watchdog.UnderWay(path) as note:
        note.begin(KEY)
        note.end(KEY)
    assert not path.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a tmpfs, which needs root")
def test_a_full_disk_is_no_strike(campaign, catalogue):
    store = Store(catalogue.parent / "store", campaign, "a30", OperatingPoint())
    folder = catalogue.parent / "store"
    folder.mkdir()
    # room for the note, and not for a segment
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48k", "tmpfs", str(folder)], check=True)
    try:
        with pytest.raises(OutputError, match="No space left on device"):
            measured(campaign, catalogue)
        assert watchdog.read_strikes(store.shard_file(ALL, "under-way")) == {}
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_process_that_is_told_to_end_between_two_operations_is_no_strike(tmp_path):
    path = tmp_path / "note"
    with contextlib.suppress(SystemExit), watchdog.UnderWay(path) as note:
        note.begin(KEY)
        note.end(KEY)
        raise SystemExit(143)
    assert watchdog.read_strikes(path) == {}


def test_after_three_strikes_an_operation_is_left_out_with_a_row_that_says_so(campaign, catalogue):
    first = measured(campaign, catalogue)
    victim = first[first["status"] == "ok"].iloc[0]
    store = Store(catalogue.parent / "store", campaign, "a30", OperatingPoint())
    for segment in store.rows_folder.glob("*.parquet"):
        segment.unlink()
    key = Key("operation", victim["subject_id"], victim["pass"], victim["execution"], 0)
    store.shard_file(ALL, "under-way").write_text(json.dumps({str(key): {"count": 3, "why": "hung"}}))
    rows = measured(campaign, catalogue)
    failed = rows[rows["status"] == "failed"]
    assert list(failed["subject_id"]) == [victim["subject_id"]]
    assert failed["error"].iloc[0] == "left out: 3 processes ended while it was measured, the last: hung"
    assert (rows["status"] == "ok").sum() == (first["status"] == "ok").sum() - 1


def hang(path, hear):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # who hears the signal has time to end by it
    timer, note = watchdog.Watchdog(hang_s=0.3, grace_s=60 if hear else 0.3), watchdog.UnderWay(path)
    note.begin(KEY)
    with timer.watching("an operation", functools.partial(note.blame, KEY)):
        if hear:
            time.sleep(60)
        else:  # in C, without a look at Python's signals
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
            ctypes.CDLL(None).sleep(60)


@pytest.mark.parametrize(("hear", "code"), [(True, 143), (False, 1)])
def test_an_operation_that_hangs_ends_its_process_and_is_a_strike(tmp_path, hear, code):
    process = SPAWN.Process(target=hang, args=(tmp_path / "note", hear))
    process.start()
    process.join()
    assert process.exitcode == code
    assert watchdog.UnderWay(tmp_path / "note").strikes(KEY) == watchdog.Strikes(1, "hung for 0.3 s")


class LoggedGpu(VirtualGpu):
    vendor = "logged"


class Logged(Vendor):
    """A virtual GPU whose logger can be told to die."""

    name = LoggedGpu.vendor

    def claims(self, device):
        return device == "logged"

    def installed(self):
        return []

    def lost(self):
        return 0

    def visible(self, environ):
        return []

    def open(self, uuid):
        return LoggedGpu("a30", seed=0)

    def open_configured(self, device, *, seed, key, environ):
        return self.open("")

    def open_model(self, device, *, seed):
        return self.open("")


LIVES_FOR_TAKES = 12
"""How often a logger that will die is read: past the anchors, and far from all there is to measure."""


@pytest.mark.parametrize("deaths", [1, 3])
def test_a_logger_that_died_is_started_anew_twice(campaign, catalogue, deaths, capsys):
    content = campaign.model_dump(mode="json") | {"gpus": {"logged": {"device": "logged"}}}
    opened = 0

    @contextlib.contextmanager
    def open_bench(gpu, settings):
        nonlocal opened
        opened += 1
        with virtual_logger(gpu, settings.session_id, settings.telemetry_dir, settings.config.telemetry) as logger:
            if opened <= deaths:
                left, taken = itertools.count(LIVES_FOR_TAKES, -1), logger.take

                def take():
                    if next(left) <= 0:
                        raise LoggerError("the telemetry logger has ended")
                    return taken()

                logger.take = take
            yield VirtualBench(gpu, logger, settings.config.seed, settings.catalogue_dir)

    with registry.register(Logged()), benches.register(Logged.name, open_bench):
        if deaths == 3:
            with pytest.raises(LoggerError):
                measured(config.parse(content), catalogue)
        else:
            rows = measured(config.parse(content), catalogue)
            assert len(rows) == 12
            assert not rows.duplicated(["subject_id", "pass"]).any()
    assert opened == min(deaths + 1, 3)
    assert "It starts again" in capsys.readouterr().err


def test_rows_of_several_versions_are_named(campaign, catalogue, capsys):
    measured(campaign, catalogue)
    store = Store(catalogue.parent / "store", campaign, "a30", OperatingPoint())
    (segment,) = store.rows_folder.glob("*.parquet")
    table = files.read_table(segment, MEASUREMENT_SCHEMA)
    versions = ["other", *table["torch_version"].to_pylist()[1:]]
    kept = [index for index, kind in enumerate(table["kind"].to_pylist()) if kind != "anchor"]
    versions = ["other" if index == kept[0] else value for index, value in enumerate(versions)]
    column = table.schema.get_field_index("torch_version")
    files.write_table(table.set_column(column, MEASUREMENT_SCHEMA.field(column), [versions]), segment)
    measured(campaign, catalogue)
    assert "measured with several versions: " in capsys.readouterr().err
