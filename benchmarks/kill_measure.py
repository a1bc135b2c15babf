"""Kill `clockwatt measure` with SIGKILL at random moments and see that no more is lost than the operation under way.

    python benchmarks/kill_measure.py --config FILE --gpu LABEL --catalogue-dir DIR [--kills 10] [--finish]

Starts the command, waits for the first row of an operation that it adds, and kills it within a random time after that.
After each kill it is checked that

- every row that could be read before the kill can still be read, and is as it was;
- the rows of the session have no gap, and on a real GPU the last one ended no longer before the kill than one
  measurement takes (a virtual GPU measures hundreds in the 2 s between two segments);
- every segment of telemetry is readable, and each row's time has its readings;
- no operation is measured in two sessions.

With `--finish` the command is then left to finish, and its output must hold every operation once. An AssertionError
tells what does not hold.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import pyarrow.parquet as pq

from clockwatt import config
from clockwatt.config import CampaignConfig, OperatingPoint
from clockwatt.io.segments import read_segments, segment_paths
from clockwatt.measure import tasks
from clockwatt.measure.store import Key, Store
from clockwatt.measure.tasks import Shard
from clockwatt.schema import records
from clockwatt.schema.records import ANCHOR, MEASUREMENT_SCHEMA, TELEMETRY_SCHEMA, MeasurementRow

POLL_S = 0.02
LOGGER_CLOSES_S = 15.0
"""The logger notices the death of its parent, drains the sensors and closes its file."""
UNDER_WAY_S = 2.0
"""What an operation under way may take beyond the longest one seen, such as building it."""

Place = tuple[str, int]
"""Session and position of a row."""


@dataclass(frozen=True)
class Kill:
    """What one kill left."""

    after_s: float
    rows: int
    operations: int
    lost_s: float | None
    telemetry: int


class Victim:
    """A campaign's one shard, measured into a store of its own."""

    def __init__(self, given: argparse.Namespace, campaign: CampaignConfig, folder: Path) -> None:
        self.store = Store(folder / "store", campaign, given.gpu, OperatingPoint.parse(given.point))
        self.output = folder / "1.parquet"
        self.wanted = tasks.subjects(campaign, campaign.gpu(given.gpu), Shard(1, 1, False), given.catalogue_dir)
        self.virtual = campaign.gpu(given.gpu).virtual_model is not None
        self._command = [
            sys.executable, "-m", "clockwatt", "measure", "--config", str(given.config), "--gpu", given.gpu,
            "--point", given.point, "--catalogue-dir", str(given.catalogue_dir),
            "--store-dir", str(folder / "store"), "--output", str(self.output),
        ]  # fmt: skip

    def start(self) -> subprocess.Popen[bytes]:
        """Start or resume measuring."""
        return subprocess.Popen(self._command, stderr=subprocess.DEVNULL)

    def rows(self) -> dict[Place, MeasurementRow]:
        """All rows in closed segments; one that an interrupted merge left twice counts once, if both are the same."""
        rows: dict[Place, MeasurementRow] = {}
        for table in read_segments(self.store.rows_folder, MEASUREMENT_SCHEMA):
            for values in table.to_pylist():
                row = records.row_of(MeasurementRow, values)
                assert rows.setdefault((row.session_id, row.position), row) == row, f"two rows at one place: {row}"
        return rows

    def wait_for_operation(self, process: subprocess.Popen[bytes]) -> dict[Place, MeasurementRow]:
        """Rows once the process has added one that is no anchor."""
        before, seen = self.rows(), set(segment_paths(self.store.rows_folder))
        while process.poll() is None:
            time.sleep(POLL_S)
            if seen != (seen := set(segment_paths(self.store.rows_folder))):
                rows = self.rows()
                if any(row.kind != ANCHOR for place, row in rows.items() if place not in before):
                    return rows
        raise SystemExit(
            f"measuring ended with status {process.returncode} before it could be killed: too little to do"
        )


def kill_once(victim: Victim, rng: random.Random, within_s: float) -> Kill:
    """Kill one run and check what is left."""
    started = time.monotonic()
    process = victim.start()
    try:
        victim.wait_for_operation(process)
        time.sleep(rng.uniform(0, within_s))
        before = victim.rows()
    finally:
        children = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        process.wait()
    killed_us, after_s = time.time_ns() // 1000, time.monotonic() - started
    _, alive = psutil.wait_procs(children, LOGGER_CLOSES_S)
    assert not alive, f"outlived the process that was killed: {alive}"
    rows = victim.rows()
    for place, row in before.items():
        assert rows.get(place) == row, f"lost or changed: {row}"
    check_places(rows)
    check_once(rows)
    lost_s = None if victim.virtual else check_loss(rows, killed_us)
    operations = sum(row.kind != ANCHOR for row in rows.values())
    return Kill(after_s, len(rows), operations, lost_s, check_telemetry(victim, rows))


def check_places(rows: dict[Place, MeasurementRow]) -> None:
    """Positions of each session count from 0 without a gap."""
    positions = defaultdict(list)
    for session_id, position in sorted(rows):
        positions[session_id].append(position)
    for session_id, found in positions.items():
        assert found == list(range(len(found))), f"session {session_id} lacks rows: {found}"


def check_once(rows: dict[Place, MeasurementRow]) -> None:
    """No operation is measured twice."""
    keys = Counter(
        (row.subject_id, row.pass_, row.execution, row.repetition) for row in rows.values() if row.kind != ANCHOR
    )
    twice = [key for key, count in keys.items() if count > 1]
    assert not twice, f"measured more than once: {twice}"


def check_loss(rows: dict[Place, MeasurementRow], killed_us: int) -> float:
    """Seconds between the end of the last row and the kill: less than one measurement."""
    last = max(rows.values(), key=lambda row: row.ended_us)
    longest_s = max(row.duration_s or 0.0 for row in rows.values())
    lost_s = (killed_us - last.ended_us) / 1e6
    assert lost_s <= longest_s + UNDER_WAY_S, f"{lost_s:.1f} s are lost; one measurement takes {longest_s:.1f} s"
    return lost_s


def check_telemetry(victim: Victim, rows: dict[Place, MeasurementRow]) -> int:
    """Every segment is readable, and each row has readings of its time; gives the number of readings."""
    times: dict[str, list[np.ndarray]] = defaultdict(list)
    for table in read_segments(victim.store.telemetry_folder, TELEMETRY_SCHEMA, ["session_id", "time_us"]):
        for session_id in set(table["session_id"].to_pylist()):
            mine = np.array(table["session_id"].to_pylist()) == session_id
            times[session_id].append(table["time_us"].to_numpy()[mine])
    in_order = {session_id: np.sort(np.concatenate(parts)) for session_id, parts in times.items()}
    for row in rows.values():
        if row.window_s is not None:
            first, last = np.searchsorted(in_order[row.session_id], [row.started_us, row.ended_us])
            assert last > first, f"no telemetry of {row}"
    return sum(readings.size for readings in in_order.values())


def finish(victim: Victim) -> None:
    """Let the rest be measured; the output holds every operation once, and the store nothing twice."""
    assert victim.start().wait() == 0, "the last run failed"
    rows = victim.rows()
    check_once(rows)
    check_telemetry(victim, rows)
    table = pq.read_table(victim.output, columns=["kind", "subject_id", "pass", "execution", "repetition"])
    found = Counter(Key(*row.values()) for row in table.to_pylist() if row["kind"] != ANCHOR)
    assert found == Counter(tasks.key(subject) for subject in victim.wanted), "the output is not what was wanted"
    print(f"\nfinished: all {len(victim.wanted)} operations once, from {len({place[0] for place in rows})} sessions")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--gpu", required=True)
    parser.add_argument("--point", default="default")
    parser.add_argument("--catalogue-dir", type=Path, required=True)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--within", type=float, default=4.0, help="seconds after the first operation's row")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--finish", action="store_true")
    given = parser.parse_args()
    rng = random.Random(given.seed)
    with tempfile.TemporaryDirectory() as folder:
        victim = Victim(given, config.load(given.config), Path(folder))
        print("| killed after | rows | of operations | since the last row | readings of telemetry |")
        print("| --- | --- | --- | --- | --- |")
        for _ in range(given.kills):
            kill = kill_once(victim, rng, given.within)
            lost = "" if kill.lost_s is None else f"{kill.lost_s:.2f} s"
            print(f"| {kill.after_s:.1f} s | {kill.rows} | {kill.operations} | {lost} | {kill.telemetry} |", flush=True)
        lost = "what the open segment held" if victim.virtual else "the operation under way"
        print(f"\n{given.kills} kills: nothing lost but {lost}, nothing measured twice")
        if given.finish:
            finish(victim)


if __name__ == "__main__":
    main()
