"""Networks composed from measured and from predicted operations, compared with networks measured whole."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from clockwatt.config import CampaignConfig
from clockwatt.io import files
from clockwatt.io.progress import progress
from clockwatt.predict.composition.networks import MEASURED, PREDICTED, VALIDATION_SCHEMA, Catalogue
from clockwatt.predict.evaluation.errors import regrets
from clockwatt.predict.evaluation.leave_out import LEFT_OUT_SCHEMA, network_errors, network_intervals
from clockwatt.predict.gpu_predictor import GpuPredictor
from clockwatt.predict.models.training_data import gpus_in, read_gpu_rows
from clockwatt.predict.whole_networks import complete, left_out_costs, networks_of_gpus
from clockwatt.schema import layout


@files.damaged_set_aside()
def validate(
    config: CampaignConfig, dataset_dir: Path, catalogue_dir: Path, predictors_dir: Path, output_dir: Path
) -> None:
    """Compose every network that was measured whole, on every GPU, at every operating point, in each pass.

    Once from measured operations and once from predictions with the network left out, see `leave_out`. Writes
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
    catalogue = Catalogue.read(catalogue_dir)
    report: dict[str, Any] = {"campaign": config.campaign, "gpus": {}}
    gpus = gpus_in(dataset_dir)
    networks_of = networks_of_gpus(dataset_dir, gpus, catalogue, transfer=config.fit.transfer)
    with ExitStack() as stack:
        writer = stack.enter_context(files.table_writer(output_dir / layout.NETWORKS_FILE, VALIDATION_SCHEMA))
        advance = stack.enter_context(progress("validate", len(gpus)))
        for gpu in gpus:
            description = GpuPredictor.load(predictors_dir / gpu).description
            networks = networks_of(gpu)
            left_out = read_gpu_rows(
                predictors_dir / layout.LEFT_OUT_FILE, LEFT_OUT_SCHEMA, gpu, LEFT_OUT_SCHEMA.names
            ).to_pandas()
            predicted = left_out_costs(left_out, catalogue, description.workless_host_s, networks.call_times)
            parts = [networks.composed(MEASURED, networks.measured), networks.composed(PREDICTED, predicted)]
            rows = pd.concat(parts).assign(gpu=gpu, gpu_name=description.gpu_name, virtual=description.virtual)
            table = pa.Table.from_pandas(rows, schema=VALIDATION_SCHEMA, preserve_index=False)
            writer.write_table(table)
            report["gpus"][gpu] = _report(table.to_pandas(), networks.not_comparable)
            advance(gpu)
    files.write_text(json.dumps(report, indent=2) + "\n", output_dir / layout.VALIDATION_FILE)


def _report(rows: pd.DataFrame, not_comparable: int) -> dict[str, Any]:
    composed = complete(rows)
    errors: dict[str, Any] = {}
    for (pass_, source), group in composed.groupby(["pass", "source"]):
        errors.setdefault(str(pass_), {})[str(source)] = network_errors(group)
    return {
        "virtual": bool(rows["virtual"].any()),
        "whole_network_rows_left_out": not_comparable,
        "compositions": len(rows),
        "incomplete_compositions": len(rows) - len(composed),
        "errors": errors,
        "intervals": {
            str(pass_): {str(source): network_intervals(own)[1] for source, own in group.groupby("source")}
            for pass_, group in composed.groupby("pass")
        },
        "regret": _regrets(composed[composed["source"] == PREDICTED]),
    }


def _regrets(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Mean regret of the predicted choice beside that of the best single operating point for all networks."""
    return [
        {
            "pass": found.pass_,
            "execution": found.execution,
            "objective": found.objective,
            "fixed_point": found.at_points.columns[found.fixed],
            "networks": found.at_points.shape[0],
            "points": found.at_points.shape[1],
            "mean_regret": float(found.of(found.predicted).mean()),
            "fixed_mean_regret": float(found.at_points.iloc[:, found.fixed].mean()),
        }
        for found in regrets(rows)
    ]
