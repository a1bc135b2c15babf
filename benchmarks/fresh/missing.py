"""What `--measure-missing` is worth on fresh passes: their operations measured once, then dealt out as it would ask.

    python benchmarks/fresh/missing.py catalogue --set second --output DIR [--count 100] [--known FILE...]
    clockwatt measure --config … --catalogue-dir DIR …             # on the GPU that measured the passes, time alone
    python benchmarks/fresh/missing.py pack FILE... --output benchmarks/fresh/operations-h200-day4.parquet
    python benchmarks/fresh/missing.py score --set second third fifth --predictors DIR [--result FILE.json]

`catalogue` writes the operations of the first passes of a set, in an order that a seed decides, each at the TF32
setting of the passes that call it. `score` composes each of these passes from the predictors and as many measured
operations as fit into the seconds asked for, most uncertain first, as `predict/measure_missing.py` chooses them: each
takes as long as it took, and opening the GPU `--opening` seconds. Passes are read from
`measured-GPU-dayN.parquet`, operations from all `operations-GPU-dayN.parquet`. Prints errors of device time,
half-widths and coverage, by what share of a pass there are no measurements of, and every pass that is more than a tenth
off after 30 s.
Nothing here is learnt from.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from clockwatt.config import NetworkConfig
from clockwatt.io import files
from clockwatt.io.former_settings import with_settings
from clockwatt.predict.gpu_predictor import GpuPredictor, load_models
from clockwatt.predict.measure_missing import Missing, Stop
from clockwatt.schema import layout, records
from clockwatt.schema.execution import FP32, TF32, ExecutionSettings
from clockwatt.schema.records import MEASUREMENT_SCHEMA, OK, OPERATION, MeasurementRow, row_of

sys.path.insert(0, str(Path(__file__).parents[2]))  # the folder of this script is what Python looks into
from benchmarks import result_file
from benchmarks.fresh.draw import SETS, FreshSet, execution_of
from benchmarks.fresh.score import Catalogue, clopper_pearson, measured
from benchmarks.operations_alone import write_operations

HERE = Path(__file__).parent
SECONDS = (0.0, 10.0, 30.0)
LIMIT = 30.0
FAR_OFF = 0.1
REMAINS = (
    "What remains is the composition: passes of short kernels come out too long, training passes of few rows too short."
)
SHARES = (0.0, 0.1, 0.2, 0.3, 0.5, 1.0)
"""Bounds of the share of a pass's device time that operations take which there was no time to measure."""
_PACKED = [
    "kind", "subject_id", "pass", "execution", "dtype", "gpu", "point", "status", "error", "flags", "session_id",
    "time_host_s", "time_device_s", "time_device_standard_error_s", "duration_s",
]  # fmt: skip


def entries_of(chosen: FreshSet, count: int | None) -> list[dict[str, Any]]:
    """The first passes of a set, in the order in which they are measured."""
    entries: list[dict[str, Any]] = json.loads(chosen.passes.read_text())
    random.Random("missing").shuffle(entries)
    return entries[:count]


def _of_operations(execution: str) -> ExecutionSettings:
    """The settings that all operations of a pass in one of TF32, float32 or 16 bits are measured under."""
    (only,) = ExecutionSettings(execution).of_operations
    return only


def catalogue(chosen: FreshSet, count: int | None, known: list[Path], output: Path) -> None:
    """Write the operations of some passes, but those that are known, as a catalogue that measures time alone."""
    entries = entries_of(chosen, count)
    wanted: dict[tuple[str, str], set[str]] = {}
    calls = files.read_table(chosen.catalogue / layout.CALLS_FILE, records.CALL_SCHEMA).to_pandas()
    of_pass = calls.groupby(["network_id", "pass"])["operation_id"].unique()
    for entry in entries:
        key = NetworkConfig.model_validate(entry["network"]).network_id, entry["pass"]
        for operation in of_pass[key]:
            wanted.setdefault((operation, entry["pass"]), set()).add(str(_of_operations(execution_of(entry))))
    rows = files.read_table(chosen.catalogue / layout.OPERATIONS_FILE, records.OPERATION_SCHEMA).to_pylist()
    for path in known:
        for values in with_settings(pq.read_table(path)).to_pylist():
            wanted.get((values["subject_id"], values["pass"]), set()).discard(values["execution"])
    rows = [row for row in rows if row["device_work"] and wanted.get((row["operation_id"], row["pass"]))]
    for row in rows:
        row["measured_execution"] = sorted(wanted[row["operation_id"], row["pass"]])
        row["measured_quantities"] = [records.TIME]
    write_operations(pa.Table.from_pylist(rows, records.OPERATION_SCHEMA), output)
    print(f"{output}: {len(rows)} operations of {len(entries)} passes")


def pack(paths: list[Path], output: Path) -> None:
    """Keep of measured operations what scoring needs."""
    rows = pa.concat_tables([files.read_table(path, MEASUREMENT_SCHEMA) for path in paths])
    rows = rows.filter(pa.array([kind == OPERATION for kind in rows["kind"].to_pylist()]))
    pq.write_table(rows.select(_PACKED), output, compression="zstd", compression_level=22)
    print(f"{output}: {rows.num_rows} rows")


@dataclass
class Recorded:
    """Stands for a GPU: gives what was measured there, as long after it is asked for as it took.

    Attributes
    ----------
    rows
        What was measured, by operation.
    opening_s
        What opening the GPU takes, before the first operation.
    """

    rows: dict[str, MeasurementRow]
    seconds: dict[str, float]
    opening_s: float
    pass_: str
    execution: ExecutionSettings
    point: str = "default"
    spent_s: float = 0.0
    given: set[str] = field(default_factory=set)

    def stored(self, operations: pa.Table) -> dict[str, MeasurementRow]:
        """What has been measured of some operations."""
        known = self.given & self.rows.keys()
        return {name: self.rows[name] for name in operations["operation_id"].to_pylist() if name in known}

    def measure(self, operations: pa.Table, stop_after_s: float | None, *, energy: bool) -> None:  # noqa: ARG002
        """Measure in the order asked for, until the time is over."""
        left_s = float("inf") if stop_after_s is None else stop_after_s - self.spent_s
        spent_s = 0.0 if self.spent_s else self.opening_s
        for name in operations["operation_id"].to_pylist():
            if spent_s > left_s:
                break
            spent_s += self.seconds.get(name, 0.0)
            self.given.add(name)
        self.spent_s += spent_s


def score(chosen: FreshSet, model: GpuPredictor, count: int | None, opening_s: float) -> pd.DataFrame:
    """Compare; a row for each pass of a set and each of `SECONDS`."""
    gpu, own = model.description.gpu, f"-day{chosen.day}.parquet"
    # operations that an earlier set has too were measured with that one
    tables = sorted(HERE.glob(f"operations-{gpu}-*.parquet"), key=lambda path: path.name.endswith(own))
    found: dict[tuple[str, str], dict[str, MeasurementRow]] = {}
    took: dict[tuple[str, str], dict[str, float]] = {}
    for values in (row for path in tables for row in with_settings(pq.read_table(path)).to_pylist()):
        key = values["pass"], values["execution"]
        took.setdefault(key, {})[values["subject_id"]] = values["duration_s"]
        if values["status"] == OK:
            row = row_of(MeasurementRow, {name: values.get(name) for name in MEASUREMENT_SCHEMA.names})
            found.setdefault(key, {})[row.subject_id] = row
    traces = Catalogue([chosen.catalogue])
    wanted = {
        (NetworkConfig.model_validate(entry["network"]).network_id, entry["pass"], execution_of(entry))
        for entry in entries_of(chosen, count)
    }
    rows = measured([HERE / f"measured-{gpu}{own}"])
    rows = rows[[key in wanted for key in zip(rows["subject_id"], rows["pass"], rows["execution"], strict=True)]]
    results = []
    for row in rows.to_dict("records"):
        if not row["device_s"] > 0:
            continue
        key = row["pass"], _of_operations(row["execution"])
        # TF32 makes no difference to operations of passes in 16 bits, which were measured with it or without
        settings = [key[1]] if row["execution"] in (FP32, TF32) else [FP32, TF32]
        rows_of = {name: one for known in settings for name, one in found.get((key[0], known), {}).items()}
        took_by = {name: one for known in settings for name, one in took.get((key[0], known), {}).items()}
        traced = traces.traced(row["subject_id"], row["pass"])
        lacking = Missing(model, traced, Recorded({}, {}, 0.0, *key)).missing()  # type: ignore[arg-type]
        never = float(lacking[~lacking.index.isin(list(rows_of))].sum())
        for seconds in SECONDS:
            demand = Recorded(rows_of, took_by, opening_s, *key)
            answer, now = Missing(model, traced, demand).answer(Stop(seconds=seconds))  # type: ignore[arg-type]
            low, high = answer.intervals["device_s"]
            results.append({
                "network": row["subject_id"], "pass": row["pass"], "seconds": seconds, "never": never,
                "error": answer.expected.device_s / row["device_s"] - 1,
                "held": low <= row["device_s"] <= high, "half_width": now.half_width, "measured": now.operations,
            })  # fmt: skip
    return pd.DataFrame(results)


COLUMNS = ("passes", "device time, %: median / 90th / worst", "within 5 %, 10 %", "coverage", "half-width",
           "operations measured, median")  # fmt: skip


def cells_of(rows: pd.DataFrame) -> list[Any]:
    """Values of `COLUMNS`."""
    errors = rows["error"].abs() * 100
    low, high = clopper_pearson(int(rows["held"].sum()), len(rows))
    return [
        len(rows), f"{errors.median():.1f} / {errors.quantile(0.9):.1f} / {errors.max():.0f}",
        f"{np.mean(errors <= 5):.0%}, {np.mean(errors <= 10):.0%}",
        f"{rows['held'].mean():.0%} ({low:.0%}–{high:.0%})", f"±{rows['half_width'].median():.1%}",
        f"{rows['measured'].median():.0f}",
    ]  # fmt: skip


def write_result(results: pd.DataFrame, hardware: str, output: Path) -> None:
    """Write a table of the sets as a result."""
    last = results[results["seconds"] == LIMIT]
    errors = last["error"].abs() * 100
    values = {
        "device time after 30 s, 90th percentile": (errors.quantile(0.9), 5),
        "device time after 30 s, worst": (errors.max(), 10),
        "half-width after 30 s": (last["half_width"].median() * 100, 4),
    }
    result_file.write(
        "measure-missing",
        "Device time of unseen passes after some seconds of measuring",
        ["test set", "seconds of measuring", *COLUMNS],
        [
            [name, f"{seconds:g}", *cells_of(rows)]
            for (name, seconds), rows in results.groupby(["set", "seconds"], sort=False)
        ],
        file=output,
        hardware=hardware,
        targets=[result_file.target(name, value, at_most=limit, unit="%") for name, (value, limit) in values.items()],
        notes=[REMAINS],
    )


def told(results: pd.DataFrame) -> None:
    """Print what was found, by how much of a pass there was to measure."""
    columns = ("seconds", "never measured", *COLUMNS)
    print("| " + " | ".join(columns) + " |\n|" + " --- |" * len(columns))
    shares = [*itertools.pairwise(SHARES), (0.0, 1.0)]
    for (from_, to), seconds in itertools.product(shares, SECONDS):
        within = (results["never"] >= from_) & ((results["never"] < to) | (to == 1.0))
        rows = results[(results["seconds"] == seconds) & within]
        if rows.empty:
            continue
        cells = f"{seconds:g}", f"{from_:.0%}–{to:.0%}", *cells_of(rows)
        print("| " + " | ".join(map(str, cells)) + " |")
    print()
    last = results[(results["seconds"] == LIMIT) & (results["error"].abs() > FAR_OFF)]
    for row in last.sort_values("never").to_dict("records"):
        print(f"- {row['network']}, {row['pass']}: {row['error']:+.0%} after {LIMIT:g} s, "
              f"{row['never']:.0%} of it never measured")  # fmt: skip


def main() -> int:
    """Do what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    writing = commands.add_parser("catalogue")
    packing = commands.add_parser("pack")
    scoring = commands.add_parser("score")
    writing.add_argument("--set", choices=SETS, default="second")
    scoring.add_argument("--set", choices=SETS, default=["second"], nargs="+")
    for one in (writing, scoring):
        one.add_argument("--count", type=int, help="only so many passes")
    for one in (writing, packing):
        one.add_argument("--output", type=Path, required=True)
    packing.add_argument("files", type=Path, nargs="+")
    writing.add_argument("--known", type=Path, nargs="*", default=[], help="measured already")
    scoring.add_argument("--predictors", type=Path, required=True)
    scoring.add_argument("--gpu", default="h200")
    scoring.add_argument("--result", type=Path, help="JSON for `docs/results/measure-missing.md`")
    scoring.add_argument("--opening", type=float, default=2.0, help="seconds that opening the GPU takes")
    given = parser.parse_args()
    if given.command == "catalogue":
        catalogue(SETS[given.set], given.count, given.known, given.output)
    elif given.command == "pack":
        pack(given.files, given.output)
    else:
        model = load_models(given.predictors)[given.gpu]
        found = {name: score(SETS[name], model, given.count, given.opening) for name in given.set}
        results = pd.concat([rows.assign(set=name) for name, rows in found.items()], ignore_index=True)
        told(results)
        if given.result:
            write_result(results, f"NVIDIA {given.gpu.upper()}", given.result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
