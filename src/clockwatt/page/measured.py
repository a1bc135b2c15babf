"""Join measured and composed costs of whole networks with their candidates."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from clockwatt.config import CampaignConfig
from clockwatt.io import files
from clockwatt.page.answers import Answers
from clockwatt.predict.composition.networks import MEASURED, PREDICTED, VALIDATION_SCHEMA
from clockwatt.predict.gpu_predictor import GpuPredictor
from clockwatt.schema import layout, tables
from clockwatt.schema.costs import ENERGY_CORRECTED
from clockwatt.schema.records import OK

_KEY = ["network_id", "pass", "execution", "gpu", "point"]
_NORMAL_95 = 1.96

COLUMNS = (
    *("measured_time_s", "measured_time_error_s", "measured_energy_j", "measured_energy_error_j", "measured_power_w"),
    *("composed_time_s", "composed_energy_j", "summed_time_s", "summed_energy_j"),
    *("left_out_time_s", "left_out_energy_j"),
)
"""Measured whole, with half the width of a 95 % interval; composed from measured operations; their plain sum; composed
from predictions with the network held out."""


def networks_asked(config: CampaignConfig, dataset_dir: Path) -> dict[bool, set[str]]:
    """Return the networks to predict on virtual GPUs (True) and measured ones (False).

    They are those of the campaign and those that were measured whole on a GPU of the kind.
    """
    table = files.read_table(dataset_dir / layout.NETWORKS_FILE, tables.NETWORKS_SCHEMA, ["subject_id", "virtual"])
    of_campaign = {network.network_id for network in config.networks}
    found = {False: set(of_campaign), True: set(of_campaign)}
    for network_id, virtual in zip(table["subject_id"].to_pylist(), table["virtual"].to_pylist(), strict=True):
        found[virtual].add(network_id)
    return found


def beside_candidates(
    answers: Answers, models: dict[str, GpuPredictor], dataset_dir: Path, validation_dir: Path
) -> tuple[pd.DataFrame, list[str]]:
    """Return measured and composed passes, a row for each candidate.

    Returns
    -------
    rows : pandas.DataFrame
        `COLUMNS` and `flags`, a sorted tuple; in the order of the candidates. What is not known is nan.
    left_out : list of str
        Sentences: what was measured and is not beside a candidate.
    """
    keys = _keys(answers, models)
    whole = _whole(dataset_dir)
    composed = files.read_table(validation_dir / layout.NETWORKS_FILE, VALIDATION_SCHEMA).to_pandas()
    composed = composed[composed["calls_without_cost"] == 0]
    from_measured = _of_source(composed, MEASURED, {
        "time_s": "composed_time_s", "energy_j": "composed_energy_j", "plain_time_s": "summed_time_s",
        "plain_energy_j": "summed_energy_j",
    })  # fmt: skip
    left_out = _of_source(composed, PREDICTED, {"time_s": "left_out_time_s", "energy_j": "left_out_energy_j"})
    rows = whole.join(from_measured, how="left").join(left_out, how="left")
    beside = rows.reindex(keys)
    without = len(rows.index.difference(keys))
    said = [f"{without} passes were measured whole that no predictor answers for."] if without else []
    flags = [value if isinstance(value, tuple) else () for value in beside["flags"]]
    return beside.reset_index(drop=True)[list(COLUMNS)].assign(flags=pd.Series(flags, dtype=object)), said


def _keys(answers: Answers, models: dict[str, GpuPredictor]) -> pd.MultiIndex:
    points = [list(model.description.points) for model in models.values()]
    columns = (answers.candidates[name].to_numpy(int) for name in ("question", "gpu", "point"))
    keys = []
    for question, gpu, point in zip(*columns, strict=True):
        asked = answers.questions[question]
        keys.append((asked.network_id, asked.pass_, asked.execution, answers.gpus[gpu], points[gpu][point]))
    return pd.MultiIndex.from_tuples(keys, names=_KEY) if keys else pd.MultiIndex.from_arrays([[]] * 5, names=_KEY)


def _whole(dataset_dir: Path) -> pd.DataFrame:
    """Return medians over the repetitions of networks measured whole, all their flags, by `_KEY`."""
    costs = {
        "measured_time_s": "time_eager_corrected_s",
        "measured_time_error_s": "time_eager_corrected_standard_error_s",
        "measured_energy_j": ENERGY_CORRECTED,
        "measured_energy_error_j": "energy_standard_error_j",
        "measured_power_w": "power_corrected_w",
    }
    columns = ["subject_id", "status", "flags", *_KEY[1:], *costs.values()]
    rows = files.read_table(dataset_dir / layout.NETWORKS_FILE, tables.NETWORKS_SCHEMA, columns).to_pandas()
    rows = rows[rows["status"] == OK].rename(columns={"subject_id": "network_id"})
    grouped = rows.groupby(_KEY, sort=False)
    medians = grouped[list(costs.values())].median()
    medians.columns = pd.Index(list(costs))
    for name in ("measured_time_error_s", "measured_energy_error_j"):
        medians[name] *= _NORMAL_95 / np.sqrt(grouped.size())
    flags = grouped["flags"].agg(lambda own: tuple(sorted({flag for flags in own for flag in flags})))
    found: pd.DataFrame = medians.assign(flags=flags)
    return found


def _of_source(rows: pd.DataFrame, source: str, names: dict[str, str]) -> pd.DataFrame:
    own = rows[rows["source"] == source].groupby(_KEY, sort=False)[list(names)].median()
    found: pd.DataFrame = own.rename(columns=names)
    return found
