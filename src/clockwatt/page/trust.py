"""Report the accuracy of the page: errors with the group held out, intervals, flags and exclusions."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from clockwatt.errors import DataFileError
from clockwatt.io import files
from clockwatt.page.answers import Answers
from clockwatt.page.words import operation_words
from clockwatt.predict.description import time_target
from clockwatt.predict.evaluation.leave_out import CROSSVAL_SCHEMA
from clockwatt.schema import layout, tables
from clockwatt.schema.costs import BACK_TO_BACK, BY_CORRECTED
from clockwatt.schema.flags import Flag

TIME, ENERGY = "time_device_corrected_s", "energy_dynamic_corrected_j"
_JUDGED = {"time": TIME, "energy": ENERGY}
SHOWN_AT_MOST = 900
"""Operations of a GPU and pass that are drawn, evenly spread over what they cost."""


def class_rows(predictors_dir: Path, predictor: str, answers: Answers, classes: dict[str, str]) -> list[dict[str, Any]]:
    """Errors of held-out predictions by class, with the class's share of the networks' energy; largest share first.

    Parameters
    ----------
    predictors_dir
        What `clockwatt fit` wrote.
    predictor
        Whose errors.
    answers
        Whose shares of energy count, each network alike.
    classes
        Operation id to class.
    """
    shares = _class_shares(answers, classes)
    found = []
    for gpu, of_gpu in _metrics(predictors_dir).items():
        for pass_, of_pass in of_gpu["passes"].items():
            own = of_pass["predictors"].get(predictor, {})
            for quantity, target in _JUDGED.items():
                if quantity == "time" and own:
                    target = time_target(own)
                inside = own.get("intervals", {}).get(target, {}).get("classes", {})
                for name, errors in own.get("classes", {}).get(target, {}).items():
                    if errors["rows"]:
                        found.append({
                            "gpu": gpu, "pass": pass_, "quantity": quantity, "class": name, "rows": errors["rows"],
                            "median": errors["median_ape"], "p95": errors["p95_ape"], "mean": errors["mape"],
                            "share": shares.get((gpu, pass_), {}).get(name),
                            "coverage": inside.get(name, {}).get("held_out_coverage"),
                        })  # fmt: skip
    return sorted(found, key=lambda row: (-(row["share"] or 0.0), row["class"]))


def _class_shares(answers: Answers, classes: dict[str, str]) -> dict[tuple[str, str], dict[str, float]]:
    """Return GPU and pass to class to its mean share of the dynamic energy of the networks."""
    sums: dict[tuple[str, str], dict[str, float]] = defaultdict(lambda: defaultdict(float))
    networks: Counter[tuple[str, str]] = Counter()
    for (number, gpu), shares in answers.shares.items():
        question = answers.questions[number]
        parts, key = answers.parts[question.network_id, question.pass_], (answers.gpus[gpu], question.pass_)
        total = float(np.nansum(shares.share))
        if total > 0:
            networks[key] += 1
            for operation_id, share in zip(parts.operation_ids, shares.share.tolist(), strict=True):
                if not math.isnan(share):
                    sums[key][classes[operation_id]] += share / total
    return {key: {name: value / networks[key] for name, value in own.items()} for key, own in sums.items()}


def whole_errors(predictors_dir: Path) -> list[dict[str, Any]]:
    """Return how well whole networks come out, left out and with measured operations, by GPU and pass."""
    found = []
    for gpu, of_gpu in _metrics(predictors_dir).items():
        for pass_, of_pass in of_gpu["passes"].items():
            for source, key in (("predicted", "networks_left_out"), ("measured", "networks_measured")):
                own = of_pass.get(key) or {}
                for quantity, column, summed in (
                    ("time", "time_s", "plain_time_s"),
                    ("energy", "energy_j", "plain_energy_j"),
                ):
                    errors = (own.get("compositions") or {}).get(column) or {}
                    if errors.get("rows"):
                        found.append({
                            "gpu": gpu, "pass": pass_, "source": source, "quantity": quantity, "rows": errors["rows"],
                            "median": errors["median_ape"], "p95": errors["p95_ape"],
                            "sum": ((own["compositions"].get(summed)) or {}).get("median_ape"),
                            "coverage": ((own.get("intervals") or {}).get(column) or {}).get("left_out_coverage"),
                        })  # fmt: skip
    return found


def held_out_points(predictors_dir: Path, predictor: str, specs: dict[str, str]) -> pd.DataFrame:
    """Return measured and predicted costs of operations whose group was held out, for the scatter plot.

    Returns
    -------
    pandas.DataFrame
        `gpu`, `pass`, `point`, `execution`, `operation_id`, `class`, `words`, `time`, `predicted_time`, `energy`,
        `predicted_energy`: at most `SHOWN_AT_MOST` of each GPU and pass. The time is that of the device; back to back
        where the two were not measured separately.
    """
    columns = ["gpu", "predictor", "pass", "point", "execution", "operation_id", "operation_class", "learnt"]
    judged = _JUDGED | {"back_to_back": BACK_TO_BACK}
    costs = judged | {f"predicted_{name}": BY_CORRECTED[column].predicted for name, column in judged.items()}
    table = files.read_table(predictors_dir / layout.CROSSVAL_FILE, CROSSVAL_SCHEMA, [*columns, *costs.values()])
    rows: pd.DataFrame = table.to_pandas()
    rows = rows[rows["learnt"] & (rows["predictor"] == predictor)]
    rows = rows.rename(columns={column: name for name, column in costs.items()} | {"operation_class": "class"})
    for prefix in ("", "predicted_"):
        rows[f"{prefix}time"] = rows[f"{prefix}time"].fillna(rows.pop(f"{prefix}back_to_back"))
    chosen = [
        own.iloc[np.unique(np.linspace(0, len(own) - 1, min(len(own), SHOWN_AT_MOST)).round().astype(int))]
        for _, own in rows.sort_values(["time", "operation_id"]).groupby(["gpu", "pass"])
    ]
    found = pd.concat(chosen, ignore_index=True) if chosen else rows
    return found.assign(words=[operation_words(specs[one]) if one in specs else "" for one in found["operation_id"]])


def counts(dataset_dir: Path, predictors_dir: Path) -> dict[str, Any]:
    """Return rows, flags and rows excluded from training, by GPU, and the meaning of every flag."""
    report = json.loads(_text(dataset_dir / layout.QUALITY_FILE))
    by_gpu: dict[str, Any] = {}
    for point in report["points"]:
        own = by_gpu.setdefault(point["gpu"], {"rows": 0, "missing": 0, "failed": 0, "flags": Counter()})
        own["rows"] += point["rows"]
        own["failed"] += point["rows"] - point["by_status"].get("ok", 0)
        own["missing"] += point["missing_operations"]["count"] + point["missing_networks"]["count"]
        own["flags"].update(point["by_flag"])
    for gpu, any_flag in _any_flag(dataset_dir).items():
        if gpu in by_gpu:
            by_gpu[gpu]["flagged"] = any_flag
    for gpu, of_gpu in _metrics(predictors_dir).items():
        if gpu in by_gpu:
            by_gpu[gpu]["not_learnt"] = of_gpu["not_learnt_from"]
            by_gpu[gpu]["operations"] = of_gpu["operations_at_points"]
    return {
        "gpus": by_gpu,
        "meanings": {flag.value: {"meaning": flag.meaning, "learnt": flag.learnt_from.value} for flag in Flag},
        "references": report["references"],
    }


def _any_flag(dataset_dir: Path) -> dict[str, int]:
    """Return GPU to how many of its rows have a flag at all."""
    found: Counter[str] = Counter()
    for name, schema in (
        (layout.OPERATIONS_FILE, tables.OPERATIONS_SCHEMA),
        (layout.NETWORKS_FILE, tables.NETWORKS_SCHEMA),
        (layout.ANCHORS_FILE, tables.ANCHORS_SCHEMA),
    ):
        table = files.read_table(dataset_dir / name, schema, ["gpu", "flags"])
        pairs = zip(table["gpu"].to_pylist(), table["flags"].to_pylist(), strict=True)
        found.update(gpu for gpu, flags in pairs if flags)
    return dict(found)


def _metrics(predictors_dir: Path) -> dict[str, Any]:
    path = predictors_dir / layout.METRICS_FILE
    try:
        found: dict[str, Any] = json.loads(_text(path))["gpus"]
    except (ValueError, KeyError, TypeError) as error:
        raise DataFileError(f"{path}: holds no metrics ({error}). Run `clockwatt fit` again.") from error
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise DataFileError(f"{path}: cannot be read ({error}). Run the stage that writes it again.") from error
