"""Turn the results of a campaign into reference data that the project ships.

    python tools/pack_reference.py RESULTS_DIR NAME [--output-dir resources/reference]

What is shipped is brought to the columns of today by packing it again:

    python tools/pack_reference.py resources/reference/h200 h200

Rows of designed operations that were measured apart, as time alone, join what is shipped:

    python tools/pack_reference.py resources/reference/h200 h200 --designed FOLDER... --drawn CATALOGUE_DIR

Takes `config.yaml`, `catalogue/` and `measurements/`, merges the shards of each GPU and operating point into one file
each for operations and networks, and leaves out telemetry, names of hosts, Slurm's job ids and what jobs ask Slurm for.
Of several calibrations of a GPU at an operating point one is kept. Numbers are rounded to what is known (`rounded`),
and operations stand in the order of their specs, which compresses best; packing again changes nothing. What is packed
is read by `clockwatt dataset` before it replaces what was there; more than 16 MB of all references together are
refused. `--designed` takes the Parquet files of each FOLDER (of the operating point `default` of the campaign's one
GPU), and of the catalogue that they were drawn into what they measured; the same command again adds nothing. A campaign
without networks has no networks' rows, and may lack a calibration.
Prints what it holds, by kind, pass, status and flag.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from packing import rounded_column, write_small

from clockwatt import config
from clockwatt.config import CampaignConfig, SlurmResources
from clockwatt.dataset.build import build_dataset
from clockwatt.errors import ClockwattError, DataFileError
from clockwatt.io import files
from clockwatt.io.resources import resource
from clockwatt.schema import layout, records

MAX_BYTES = 16_000_000
"""What all references may take together."""
BITS = {"standard_error": 5, "time_device": 14, "time_host": 12}
"""Significant bits of columns whose name has this in it; a device time is known to 0.1 % at best, a host's to 1 %."""
DURATION_STEPS, TIME_OF_DAY_STEP_US = 128, 100_000
"""Steps of a second in which durations are told, and microseconds in those of times of day."""

_IDENTITY = ["session_id", "kind", "subject_id", "pass", "execution", "position", "started_us"]
"""What no two rows have in common; when a row began is not enough where two took less than a step together."""

CATALOGUE = {
    "operations.parquet": records.OPERATION_SCHEMA,
    "calls.parquet": records.CALL_SCHEMA,
    "networks.parquet": records.NETWORK_SCHEMA,
}


def main() -> int:
    """Pack what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, metavar="RESULTS_DIR")
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("--output-dir", type=Path, default=resource("reference"))
    parser.add_argument("--designed", type=Path, nargs="+", default=[], metavar="FOLDER")
    parser.add_argument("--drawn", type=Path, metavar="CATALOGUE_DIR")
    arguments = parser.parse_args()
    if bool(arguments.designed) != bool(arguments.drawn):
        parser.error("--designed and --drawn are given together")
    try:
        pack(arguments.results, arguments.output_dir / arguments.name, arguments.designed, arguments.drawn)
    except ClockwattError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def pack(results: Path, target: Path, designed: list[Path] | None = None, drawn: Path | None = None) -> None:
    """Pack the campaign in `results` into the folder `target`, whole or not at all.

    Parameters
    ----------
    results, target
        Where the campaign lies, and where the reference goes.
    designed, drawn
        Folders with further rows of designed operations, and the folder of the catalogue that these are of.

    Raises
    ------
    ConfigError, DataFileError
        If a part of the campaign is missing or damaged, or holds more than may be shipped.
    """
    campaign = shipped_config(config.load(results / "config.yaml"))
    further = [path for folder in designed or [] for path in sorted(folder.glob("*.parquet"))]
    further = [path for path in further if not path.name.startswith("telemetry-")]
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as scratch:
        packed = Path(scratch) / target.name
        for name, schema in CATALOGUE.items():
            table = files.read_table(results / layout.CATALOGUE / name, schema)
            ordered = in_order(table) if schema is records.OPERATION_SCHEMA else table
            write_small(ordered, packed / layout.CATALOGUE / name)
        if drawn is not None:
            add_measured(drawn / layout.OPERATIONS_FILE, further, packed / layout.CATALOGUE / layout.OPERATIONS_FILE)
        for label, gpu in campaign.gpus.items():
            for point in gpu.points:
                own = further if str(point) == "default" else []
                pack_point(results, packed / layout.MEASUREMENTS, label, str(point), own)
        write_config(campaign, target / "config.yaml", packed / "config.yaml")
        size = size_of(packed)
        others = sum(size_of(folder) for folder in target.parent.iterdir() if folder not in (target, Path(scratch)))
        if size + others > MAX_BYTES:
            raise DataFileError(
                f"{results}: {size:,} bytes when packed, {size + others:,} with the other references, more than "
                f"{MAX_BYTES:,}. Pack fewer networks."
            )
        dataset = Path(scratch) / "dataset"
        build_dataset(campaign, packed / layout.MEASUREMENTS, packed / layout.CATALOGUE, dataset)
        describe(dataset)
        if target.exists():
            target.replace(Path(scratch) / "replaced")
        packed.replace(target)
    print(f"\n{target}: {size:,} bytes")


def size_of(folder: Path) -> int:
    """Bytes of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def add_measured(drawn: Path, measured: list[Path], output: Path) -> None:
    """Add the operations of a catalogue that these files measured to another catalogue, where it lacks them.

    Raises
    ------
    DataFileError
        If a file cannot be read, or neither catalogue has an operation that was measured.
    """
    there = files.read_table(output, records.OPERATION_SCHEMA)
    rows = [files.read_table(path, records.MEASUREMENT_SCHEMA, ["kind", "subject_id", "pass"]) for path in measured]
    wanted = {(row["subject_id"], row["pass"]) for row in pa.concat_tables(rows).to_pylist()
              if row["kind"] == records.OPERATION}  # fmt: skip
    wanted -= set(keys_of(there))
    candidates = files.read_table(drawn, records.OPERATION_SCHEMA)
    added = candidates.filter(pa.array([key in wanted for key in keys_of(candidates)]))
    if lacking := sorted(wanted - set(keys_of(added))):
        operation, pass_ = lacking[0]
        raise DataFileError(
            f"{drawn}: lacks {len(lacking)} of the operations that were measured, such as {operation} ({pass_}). Give "
            "the catalogue that they were drawn from."
        )
    write_small(in_order(pa.concat_tables([there, added])), output)


def in_order(operations: pa.Table) -> pa.Table:
    """Rows of a catalogue with like specs beside one another."""
    return operations.sort_by([("spec", "ascending"), ("pass", "ascending")])


def keys_of(operations: pa.Table) -> list[tuple[str, str]]:
    """Identity and pass of the rows of a catalogue."""
    return list(zip(operations["operation_id"].to_pylist(), operations["pass"].to_pylist(), strict=True))


def shipped_config(campaign: CampaignConfig) -> CampaignConfig:
    """The campaign with one shard of each kind, without references of its own and what it asks of a site's Slurm."""
    gpus = {label: gpu.model_copy(update={"slurm": SlurmResources()}) for label, gpu in campaign.gpus.items()}
    return campaign.model_copy(update={"shards": 1, "network_shards": 1, "gpus": gpus, "reference": []})


def write_config(campaign: CampaignConfig, present: Path, output: Path) -> None:
    """Keep the file that is there, for its comments, where it says the same."""
    if present.exists() and config.load(present) == campaign:
        shutil.copyfile(present, output)
    else:
        files.write_text(config.dump(campaign), output)


def pack_point(results: Path, output: Path, gpu: str, point: str, further: list[Path]) -> None:
    """Merge the files of one GPU at one operating point, `further` files of operations with them.

    Raises
    ------
    DataFileError
        If there are no measurements or no calibration.
    """
    folder = results / layout.MEASUREMENTS / layout.point_dir(gpu, point)
    networks_wanted = bool(config.load(results / "config.yaml").networks)
    names = {path.name: path for path in sorted(folder.glob("*.parquet")) if not path.name.startswith("telemetry-")}
    calibrations = [path for name, path in names.items() if name.startswith("calibration")]
    networks = [path for name, path in names.items() if name.startswith("networks-")]
    operations = [*(path for path in names.values() if path not in (*calibrations, *networks)), *further]
    for kind, paths in (("operations", operations), ("networks", networks), ("calibration", calibrations)):
        if not paths and (networks_wanted or kind == "operations"):
            raise DataFileError(f"{folder}: holds no file of {kind}. Run that job of the campaign first.")
        print(f"{gpu} {point} {kind}: {', '.join(path.name for path in paths)}")
    own = folder / layout.calibration_file(gpu, point).name
    calibration = records.CALIBRATION_SCHEMA.empty_table()
    if calibrations:
        kept = own if own in calibrations else calibrations[0]
        print(f"{gpu} {point}: of {len(calibrations)} calibrations, {kept.name} is kept")
        calibration = files.read_table(kept, records.CALIBRATION_SCHEMA)
    write_small(merged(operations), output / layout.operations_file(gpu, point, 1))
    write_small(merged(networks), output / layout.networks_file(gpu, point, 1))
    write_small(rounded(without_host(calibration)), output / layout.calibration_file(gpu, point))


def merged(paths: list[Path]) -> pa.Table:
    """Rows of several files, each once, in the order in which they were measured, without what tells of the site."""
    tables = [files.read_table(path, records.MEASUREMENT_SCHEMA) for path in paths]
    # rounded first: rows that were packed before are known by when they began
    rows = rounded(pa.concat_tables(tables) if tables else records.MEASUREMENT_SCHEMA.empty_table())
    again = rows.select(_IDENTITY).to_pandas().duplicated()
    rows = rows.filter(pa.array(~again.to_numpy()))
    for host in sorted(set(rows["host"].to_pylist()) - {""}):
        at = rows.schema.get_field_index("error")
        rows = rows.set_column(
            at, rows.schema.field(at), pc.replace_substring(rows["error"], host, records.HOST_LEFT_OUT)
        )
    at = rows.schema.get_field_index("slurm_job_id")
    rows = rows.set_column(at, rows.schema.field(at), pa.nulls(rows.num_rows, pa.string()))
    return without_host(rows).sort_by([("started_us", "ascending"), ("position", "ascending")])


def without_host(rows: pa.Table) -> pa.Table:
    """The rows with their host's name left out."""
    at = rows.schema.get_field_index("host")
    return rows.set_column(at, rows.schema.field(at), pa.repeat(records.HOST_LEFT_OUT, rows.num_rows))


def rounded(rows: pa.Table) -> pa.Table:
    """The rows with numbers of no more digits than are known; rounding again changes nothing.

    `BITS` says what each column keeps, others six digits; durations and times of day keep the steps above.
    """
    for at, field in enumerate(rows.schema):
        if field.name == "duration_s":
            steps = np.rint(rows[field.name].to_numpy() * DURATION_STEPS) / DURATION_STEPS
            rows = rows.set_column(at, field, pa.array(steps, mask=rows[field.name].is_null().to_numpy()))
        elif pa.types.is_floating(field.type):
            rows = rounded_column(rows, field.name, BITS)
        elif field.name in ("started_us", "ended_us", "measured_us"):
            values = rows[field.name].to_numpy()
            rows = rows.set_column(at, field, pa.array(values - values % TIME_OF_DAY_STEP_US))
    return rows


def describe(dataset: Path) -> None:
    """Print what a dataset made of the packed files holds."""
    columns = ["kind", "pass", "dtype", "execution", "status", "gpu_uuid", "session_id", "flags",
               "measurement_version", "settings_id", "driver_version", "torch_version", "started_us"]  # fmt: skip
    tables = [pd.read_parquet(path, columns=columns) for path in sorted(dataset.glob("[!c]*.parquet"))]
    rows = pd.concat(tables)
    print()
    print(rows.groupby(["kind", "pass", "dtype", "execution", "status"]).size().to_string())
    flags = Counter((kind, flag) for kind, flags in zip(rows["kind"], rows["flags"], strict=True) for flag in flags)
    print("\nflags:", *(f"  {kind} {flag}: {count}" for (kind, flag), count in sorted(flags.items())), sep="\n")
    for name in ("gpu_uuid", "session_id", "measurement_version", "settings_id", "driver_version", "torch_version"):
        print(f"{name}: " + ", ".join(f"{value} ({count})" for value, count in rows[name].value_counts().items()))
    began, ended = pd.to_datetime([rows["started_us"].min(), rows["started_us"].max()], unit="us", utc=True)
    print(f"measured: {began:%Y-%m-%d %H:%M} to {ended:%Y-%m-%d %H:%M} UTC")


if __name__ == "__main__":
    sys.exit(main())
