"""How long the page takes, how much memory and how large it is, for a campaign's results and for a large campaign.

    python benchmarks/page.py results                                     as they are
    python benchmarks/page.py results --networks 40 --gpus 8 --points 40  made large

Made large, the first virtual GPU of the results stands for all: its predictors are copied under other labels, with
operating points spread over its clocks, and its networks measured whole are copied to each of them.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import tempfile
import time
from pathlib import Path

import pandas as pd
import pyarrow as pa

from clockwatt import config
from clockwatt.gpu.specs import find_spec
from clockwatt.io import files
from clockwatt.page.write import write_page
from clockwatt.predict.composition.networks import VALIDATION_SCHEMA
from clockwatt.predict.evaluation.leave_out import CROSSVAL_SCHEMA
from clockwatt.schema import layout
from clockwatt.schema.records import NETWORK_SCHEMA
from clockwatt.schema.tables import NETWORKS_SCHEMA


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--networks", type=int)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--points", type=int, default=40)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        results = asked.results
        if asked.networks:
            results = Path(name) / "results"
            enlarge(asked.results, results, asked.networks, asked.gpus, asked.points)
        campaign = config.load(asked.results / "config.yaml")
        page = Path(name) / "explore.html"
        begun, used = time.monotonic(), time.process_time()
        write_page(campaign, results / "dataset", results / "predictors", results / "validation", page)
        took, processor = time.monotonic() - begun, time.process_time() - used
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(f"{took:.1f} s, {processor:.1f} s of processor, {memory:.2f} GiB, {page.stat().st_size / 1e6:.2f} MB")


def enlarge(source: Path, results: Path, networks: int, gpus: int, points: int) -> None:
    """Write results of a large virtual campaign that are made of copies."""
    for folder in ("dataset", "predictors", "validation"):
        shutil.copytree(source / folder, results / folder)
    metrics = json.loads((results / "predictors" / layout.METRICS_FILE).read_text())
    first = next(gpu for gpu, own in sorted(metrics["gpus"].items()) if own["virtual"])
    spec = find_spec(metrics["gpus"][first]["gpu_name"])
    low, high = spec.sm_clock_mhz.min, spec.sm_clock_mhz.max
    names = [f"sm{round(low + (high - low) * number / (points - 1))}" for number in range(points)]
    labels = [f"gpu{number}" for number in range(gpus)]
    _predictors(results / "predictors", first, labels, names, metrics)
    catalogue = results / "dataset" / "catalogue" / layout.NETWORKS_FILE
    known = files.read_table(catalogue, NETWORK_SCHEMA).to_pandas()
    kept = list(dict.fromkeys(known["network_id"]))[:networks]
    chosen = known[known["network_id"].isin(kept)]
    _write(chosen, catalogue, NETWORK_SCHEMA)
    for path, schema, column in (
        (results / "dataset" / layout.NETWORKS_FILE, NETWORKS_SCHEMA, "subject_id"),
        (results / "validation" / layout.NETWORKS_FILE, VALIDATION_SCHEMA, "network_id"),
    ):
        rows = files.read_table(path, schema).to_pandas()
        point = rows.loc[rows["gpu"] == first, "point"].iloc[0]
        own = rows[(rows["gpu"] == first) & (rows["point"] == point)]
        ids = dict.fromkeys(own[column])
        everywhere = pd.concat(
            own.assign(**{column: own[column].map(dict(zip(ids, kept[start:], strict=False)))}).dropna(subset=[column])
            for start in range(0, len(kept), len(ids))
        )
        copies = [everywhere.assign(gpu=label, point=name) for label in labels for name in names]
        _write(pd.concat(copies), path, schema)


def _predictors(folder: Path, first: str, labels: list[str], names: list[str], metrics: dict) -> None:
    description = json.loads((folder / first / layout.DESCRIPTION_FILE).read_text())
    overheads = next(iter(description["points"].values()))
    for label in labels:
        shutil.copytree(folder / first, folder / label)
        described = description | {"gpu": label, "points": dict.fromkeys(names, overheads)}
        (folder / label / layout.DESCRIPTION_FILE).write_text(json.dumps(described))
    metrics["gpus"] = dict.fromkeys(labels, metrics["gpus"][first])
    (folder / layout.METRICS_FILE).write_text(json.dumps(metrics))
    rows = files.read_table(folder / layout.CROSSVAL_FILE, CROSSVAL_SCHEMA).to_pandas()
    own = rows[rows["gpu"] == first]
    _write(pd.concat([own.assign(gpu=label) for label in labels]), folder / layout.CROSSVAL_FILE, CROSSVAL_SCHEMA)


def _write(rows: pd.DataFrame, path: Path, schema: pa.Schema) -> None:
    path.unlink()
    files.write_table(pa.Table.from_pandas(rows, schema=schema, preserve_index=False), path)


if __name__ == "__main__":
    main()
