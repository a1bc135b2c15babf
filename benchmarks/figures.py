"""How long the figures of a large campaign take, and how much memory.

`python benchmarks/figures.py RESULTS LABEL` takes what a finished campaign has of one GPU, repeats it until there
are 40 networks on
8 GPUs at 40 clocks each, and draws all figures of that. Nothing in these figures means anything; only their number
counts.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from clockwatt import config

GPUS, POINTS, NETWORKS = 8, 40, 40
CLOCKS_MHZ = [600 + 20 * number for number in range(POINTS)]
IDS = ("operation_id", "network_id", "network", "subject_id")


def with_column(table: pa.Table, name: str, values: pa.Array | list[str]) -> pa.Table:
    """The table with the values of one column replaced; one that it lacks stays away."""
    if name not in table.schema.names:
        return table
    place = table.schema.get_field_index(name)
    return table.set_column(place, table.schema.field(name), values)


def copies(table: pa.Table, times: int) -> pa.Table:
    """The table so many times, each with identities of its own."""
    parts = [table]
    for number in range(1, times):
        part = table
        for name in IDS:
            if name in table.schema.names:
                # before the first hyphen: what follows is the input of a network
                renamed = pc.replace_substring_regex(table[name], "^([^-]*)", rf"\1x{number}", max_replacements=1)
                part = with_column(part, name, renamed)
        parts.append(part)
    return pa.concat_tables(parts)


def enlarge(source: Path, target: Path, label: str, times: int) -> None:
    """Repeat the rows of one GPU for every GPU and clock."""
    table = pq.read_table(source)
    own = table.filter(pc.field("gpu") == label) if "gpu" in table.schema.names else table
    points = sorted(set(own["point"].to_pylist())) if "point" in own.schema.names else []
    target.parent.mkdir(parents=True, exist_ok=True)
    with pq.ParquetWriter(target, table.schema, compression="zstd") as writer:
        if not points:
            writer.write_table(copies(own, times))
            return
        at_points = {point: copies(own.filter(pc.field("point") == point), times) for point in points}
        for gpu in range(GPUS):
            for number, clock in enumerate(CLOCKS_MHZ):
                part = at_points[points[number * len(points) // POINTS]]
                part = with_column(part, "gpu", pa.array([f"gpu{gpu}"] * len(part), pa.string()))
                part = with_column(part, "point", pa.array([f"sm{clock}"] * len(part), pa.string()))
                if "requested_sm_clock_mhz" in part.schema.names:
                    part = with_column(part, "requested_sm_clock_mhz", pa.array([clock] * len(part), pa.int64()))
                writer.write_table(part)


def enlarged(results: Path, label: str, target: Path) -> None:
    """Everything that figures read, enlarged."""
    networks = pq.read_table(results / "validation" / "networks.parquet").filter(pc.field("gpu") == label)
    times = -(-NETWORKS // len(pc.unique(networks["network"])))
    for name in (
        *("dataset/operations", "dataset/networks", "dataset/calibration", "predictors/crossval"),
        *("validation/networks", "dataset/catalogue/operations", "dataset/catalogue/calls"),
    ):
        enlarge(results / f"{name}.parquet", target / f"{name}.parquet", label, times)
    report = json.loads((results / "predictors" / "metrics.json").read_text())
    report["gpus"] = {f"gpu{number}": report["gpus"][label] for number in range(GPUS)}
    (target / "predictors" / "metrics.json").write_text(json.dumps(report))
    quality = json.loads((results / "dataset" / "quality.json").read_text())
    own = next(point for point in quality["points"] if point["gpu"] == label)
    quality["points"] = [
        own | {"gpu": f"gpu{gpu}", "point": f"sm{clock}"} for gpu in range(GPUS) for clock in CLOCKS_MHZ
    ]
    (target / "dataset" / "quality.json").write_text(json.dumps(quality))
    telemetry = min((results / "measurements" / label).glob("*/telemetry-networks-*"))
    for gpu in range(GPUS):
        shutil.copytree(results / "predictors" / label, target / "predictors" / f"gpu{gpu}")
        for clock in CLOCKS_MHZ:
            folder = target / "measurements" / f"gpu{gpu}" / f"sm{clock}"
            folder.mkdir(parents=True)
            (folder / telemetry.name).symlink_to(telemetry.absolute())


def main() -> None:
    """Enlarge, draw, and say what it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("label")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        enlarged(arguments.results, arguments.label, folder)
        rows = pq.read_metadata(folder / "dataset" / "operations.parquet").num_rows
        campaign = config.load(arguments.results / "config.yaml")
        (folder / "config.yaml").write_text(config.dump(campaign))
        command = [sys.executable, "-m", "clockwatt", "figures", "--config", str(folder / "config.yaml")]
        for name in ("measurements", "dataset", "predictors", "validation"):
            command += [f"--{name}-dir", str(folder / name)]
        started = time.monotonic()
        subprocess.run([*command, "--output-dir", str(folder / "figures")], check=True)
        wall_s, used = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
        written = sorted((folder / "figures").iterdir())
        size_mb = sum(path.stat().st_size for path in written) / 1e6
        print(f"{rows:,} rows of operations, {NETWORKS} networks, {GPUS} GPUs, {POINTS} clocks")
        largest_mb = max(path.stat().st_size for path in written) / 1e6
        print(f"{len(written)} files, {size_mb:.0f} MB, the largest {largest_mb:.1f} MB")
        print(f"{wall_s:.0f} s, {used.ru_utime + used.ru_stime:.0f} s of CPU, {used.ru_maxrss / 2**20:.2f} GiB")


if __name__ == "__main__":
    main()
