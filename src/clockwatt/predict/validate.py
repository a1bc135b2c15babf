"""Networks composed from measured and from predicted operations, held against networks measured whole."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from clockwatt import files, records
from clockwatt.config import CampaignConfig
from clockwatt.dataset import schema
from clockwatt.predict.backtest import VALIDATION_FILE, regrets
from clockwatt.predict.fit import CROSSVAL_FILE, CROSSVAL_SCHEMA
from clockwatt.predict.gpumodel import GpuModel
from clockwatt.predict.metrics import metrics
from clockwatt.predict.network import COST_COLUMNS, compose
from clockwatt.predict.predictors import TARGETS
from clockwatt.predict.samples import EXCLUDED_FLAGS, gpus_in, level_cards, read_gpu_rows, read_samples
from clockwatt.progress import progress

NETWORKS_FILE = "networks.parquet"

MEASURED = "measured"
PREDICTED = "predicted"

VALIDATION_SCHEMA = pa.schema(
    [
        pa.field("gpu", pa.string()),
        pa.field("gpu_name", pa.string()),
        pa.field("virtual", pa.bool_()),
        pa.field("point", pa.string()),
        pa.field("tf32", pa.bool_()),
        pa.field("network_id", pa.string()),
        pa.field("network", pa.string()),
        pa.field("pass", pa.string()),
        pa.field("source", pa.string()),  # of the operations' costs: measured, or predicted with their group held out
        pa.field("measured_time_s", pa.float64()),
        pa.field("measured_energy_j", pa.float64()),
        pa.field("measured_power_w", pa.float64()),
        pa.field("time_s", pa.float64()),
        pa.field("latency_s", pa.float64()),
        pa.field("device_s", pa.float64()),
        pa.field("host_s", pa.float64()),
        pa.field("energy_dynamic_j", pa.float64()),
        pa.field("energy_j", pa.float64()),
        pa.field("power_w", pa.float64()),
        pa.field("plain_time_s", pa.float64()),
        pa.field("plain_energy_j", pa.float64()),
        pa.field("calls", pa.int64()),
        pa.field("calls_without_cost", pa.int64()),
    ],
    metadata={"kind": "validation"},
)
"""One whole network against one composition; see `network.Composition`."""

_NETWORK_COLUMNS = [
    "subject_id",
    "pass",
    "point",
    "tf32",
    "status",
    "flags",
    "anchor_time_factor",
    "anchor_power_factor",
    "time_device_s",
    "time_eager_s",
    "power_w",
    "energy_j",
    "energy_dynamic_j",
]
_KEY = ["pass", "point", "tf32"]


@dataclass(frozen=True)
class _Catalogue:
    networks: dict[tuple[str, str], records.NetworkRow]
    calls: dict[tuple[str, str], pd.DataFrame]
    operations: pd.DataFrame

    @classmethod
    def read(cls, folder: Path) -> _Catalogue:
        networks = files.read_table(folder / "networks.parquet", records.NETWORK_SCHEMA).to_pylist()
        columns = ["network_id", "pass", "position", "phase", "operation_id"]
        calls = files.read_table(folder / "calls.parquet", records.CALL_SCHEMA, columns).to_pandas()
        return cls(
            networks={(row["network_id"], row["pass"]): records.row_of(records.NetworkRow, row) for row in networks},
            calls={
                (str(key[0]), str(key[1])): group.sort_values("position")
                for key, group in calls.groupby(["network_id", "pass"])
            },
            operations=files.read_table(folder / "operations.parquet", records.OPERATION_SCHEMA).to_pandas(),
        )


def validate(
    config: CampaignConfig, dataset_dir: Path, catalogue_dir: Path, predictors_dir: Path, output_dir: Path
) -> None:
    """Compose every network that was measured whole, on every GPU, at every operating point, in each pass.

    Once from measured operations and once from predictions by predictors that never saw the operation's group. Writes
    `networks.parquet` with every composition and `validation.json` with the errors, and with the regret of choosing a
    clock by prediction. One GPU is in memory at a time.

    Parameters
    ----------
    config
        Named in the output.
    dataset_dir, catalogue_dir, predictors_dir
        What the stages before wrote.
    output_dir
        Where the validation goes.

    Raises
    ------
    DataFileError
        If a file is missing or damaged.
    OutputError
        If something cannot be written.
    """
    catalogue = _Catalogue.read(catalogue_dir)
    report: dict[str, Any] = {"campaign": config.campaign, "gpus": {}}
    gpus = gpus_in(dataset_dir)
    with ExitStack() as stack:
        aside = stack.enter_context(files.written_aside(output_dir / NETWORKS_FILE))
        writer = stack.enter_context(pq.ParquetWriter(aside, VALIDATION_SCHEMA, compression=files.COMPRESSION))
        advance = stack.enter_context(progress("validate", len(gpus)))
        for gpu in gpus:
            whole, left_out = _whole_networks(dataset_dir, gpu)
            compositions = _compositions(gpu, whole, catalogue, dataset_dir, predictors_dir)
            table = pa.Table.from_pylist(compositions, schema=VALIDATION_SCHEMA)
            writer.write_table(table)
            report["gpus"][gpu] = _report(table.to_pandas(), left_out)
            advance(gpu)
    files.write_text(json.dumps(report, indent=2) + "\n", output_dir / VALIDATION_FILE)


def _whole_networks(dataset_dir: Path, gpu: str) -> tuple[pd.DataFrame, int]:
    """Medians over repetitions of networks measured whole, and how many rows were left out."""
    rows = read_gpu_rows(dataset_dir / schema.NETWORKS_FILE, schema.NETWORKS_SCHEMA, gpu, _NETWORK_COLUMNS).to_pandas()
    level_cards(rows)
    flagged = rows["flags"].map(lambda flags: not set(EXCLUDED_FLAGS).isdisjoint(() if flags is None else flags))
    kept = rows[(rows["status"] == records.OK) & ~flagged.astype(bool) & rows["time_eager_s"].notna()]
    whole = kept.groupby(["subject_id", *_KEY])[["time_eager_s", "power_w", "energy_j"]].median().reset_index()
    return whole, len(rows) - len(kept)


def _compositions(
    gpu: str, whole: pd.DataFrame, catalogue: _Catalogue, dataset_dir: Path, predictors_dir: Path
) -> list[dict[str, Any]]:
    samples = read_samples(dataset_dir, gpu)
    model = GpuModel.load(predictors_dir / gpu)
    predictions = _held_out(predictors_dir, gpu, model.description.predictors[0])
    rows = []
    for (pass_, point, tf32), group in whole.groupby(_KEY):
        sources = {
            MEASURED: _at(samples.rows, pass_, point, tf32).set_index("operation_id"),
            PREDICTED: _predicted(predictions, model, catalogue.operations, str(pass_), str(point), bool(tf32)),
        }
        for measured in group.itertuples():
            key = (str(measured.subject_id), str(pass_))
            if key not in catalogue.calls:
                continue  # flagged not_in_catalogue in the dataset
            for source, costs in sources.items():
                network = catalogue.networks[key]
                composition = compose(catalogue.calls[key], network, costs, model.point_costs(str(point)))
                rows.append(
                    {
                        "gpu": gpu,
                        "gpu_name": samples.gpu_name,
                        "virtual": samples.virtual,
                        "point": point,
                        "tf32": tf32,
                        "network_id": key[0],
                        "network": network.network,
                        "pass": pass_,
                        "source": source,
                        "measured_time_s": measured.time_eager_s,
                        "measured_energy_j": measured.energy_j,
                        "measured_power_w": measured.power_w,
                        **composition.to_dict(),
                    }
                )
    return rows


def _held_out(predictors_dir: Path, gpu: str, predictor: str) -> pd.DataFrame:
    columns = ["gpu", "predictor", "pass", "point", "tf32", "operation_id", *(f"predicted_{name}" for name in TARGETS)]
    table = read_gpu_rows(predictors_dir / CROSSVAL_FILE, CROSSVAL_SCHEMA, gpu, columns)
    rows: pd.DataFrame = table.filter(pc.equal(table["predictor"], predictor)).to_pandas()
    return rows.rename(columns={f"predicted_{name}": name for name in TARGETS})


def _predicted(
    predictions: pd.DataFrame, model: GpuModel, operations: pd.DataFrame, pass_: str, point: str, tf32: bool
) -> pd.DataFrame:
    """Costs of operations as a predictor gives them that never saw their group; known ones for those without work."""
    learnt = _at(predictions, pass_, point, tf32).set_index("operation_id")[list(TARGETS)]
    if pass_ not in model.description.passes:
        return _with_energy(learnt)
    workless = operations[(operations["pass"] == pass_) & ~operations["device_work"]]
    known = model.predict(workless, pass_, point, tf32=tf32)[list(TARGETS)]
    return _with_energy(pd.concat([learnt, known]))


def _with_energy(costs: pd.DataFrame) -> pd.DataFrame:
    energy_j = costs["power_w"] * costs["time_eager_s"]
    completed: pd.DataFrame = costs.assign(energy_j=energy_j)[COST_COLUMNS]
    return completed


def _at(rows: pd.DataFrame, pass_: Any, point: Any, tf32: Any) -> pd.DataFrame:
    chosen = (rows["pass"] == pass_) & (rows["point"] == point) & (rows["tf32"] == tf32)
    found: pd.DataFrame = rows[chosen]
    return found


def _report(rows: pd.DataFrame, left_out: int) -> dict[str, Any]:
    complete = rows[rows["calls_without_cost"] == 0]
    errors: dict[str, Any] = {}
    for (pass_, source), group in complete.groupby(["pass", "source"]):
        errors.setdefault(str(pass_), {})[str(source)] = {
            name: metrics(group[f"measured_{quantity}"].to_numpy(float), group[name].to_numpy(float))
            for name, quantity in (
                ("time_s", "time_s"),
                ("plain_time_s", "time_s"),
                ("energy_j", "energy_j"),
                ("plain_energy_j", "energy_j"),
            )
        }
    return {
        "virtual": bool(rows["virtual"].any()),
        "whole_network_rows_left_out": left_out,
        "compositions": len(rows),
        "incomplete_compositions": len(rows) - len(complete),
        "errors": errors,
        "regret": regrets(complete[complete["source"] == PREDICTED]),
    }
