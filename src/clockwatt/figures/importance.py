"""Permutation importance: the change of predictions when a feature is shuffled."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from clockwatt.config import OperatingPoint
from clockwatt.figures import style
from clockwatt.figures.gpus import Gpus
from clockwatt.gpu.specs import find_spec
from clockwatt.predict.features import OPERATION_CLASS, Setting, features_at, operation_features
from clockwatt.predict.gpu_predictor import GpuPredictor

FEATURES_AT_MOST = 12
LEAST = 0.5
"""Value in percent at which bars begin."""
OPERATIONS_AT_MOST = 60
"""Shuffled at each of at most `POINTS_AT_MOST` operating points."""
POINTS_AT_MOST = 4
TARGETS = {"time_device_corrected_s": "device time", "power_corrected_w": "power"}
"""Predictions whose moves are shown."""


def importances(
    predictor: GpuPredictor, operations: pd.DataFrame, name: str, pass_: str, seed: int = 0
) -> pd.DataFrame:
    """Return how far a GPU's predictions of one pass move when a feature is shuffled among operations.

    Parameters
    ----------
    predictor
        The predictor of the GPU.
    operations
        Rows of the catalogue in this pass that do something on the device.
    name
        The name of the predictor in it.
    pass_
        Which pass; one that was fitted.
    seed
        The seed of the sample and the shuffles.

    Returns
    -------
    pandas.DataFrame
        `feature`, and for each of `TARGETS` that is predicted the median of |log(shuffled / prediction)|.
    """
    described, rng = predictor.description, np.random.default_rng(seed)
    sample = operations.sample(min(OPERATIONS_AT_MOST, len(operations)), random_state=seed)
    points = style.spread(described.passes[pass_].learnt_points, POINTS_AT_MOST)
    spec = find_spec(described.gpu_name)
    settings = [
        Setting(spec, OperatingPoint.parse(point), execution=execution)
        for point in points
        for execution in described.execution
    ]
    features = features_at(operation_features(sample), *settings).reset_index(drop=True)
    forest = predictor.forest(name, pass_)
    targets = [target for target in TARGETS if target in forest.targets_]
    base = forest.predict(features)[targets]
    names = [OPERATION_CLASS, *forest.columns_]
    shuffled = pd.concat(
        [features.assign(**{each: features[each].to_numpy()[rng.permutation(len(features))]}) for each in names],
        ignore_index=True,
    )
    moved = np.log(forest.predict(shuffled)[targets].to_numpy(float) / np.tile(base.to_numpy(float), (len(names), 1)))
    median = np.mean(np.abs(moved).reshape(len(names), len(features), len(targets)), axis=1)
    return pd.DataFrame({"feature": names, **dict(zip(targets, median.T, strict=True))})


def draw(data: pd.DataFrame, gpus: Gpus) -> Figure:
    """Draw bars of the most important features: a row for each pass, a column for each GPU.

    Parameters
    ----------
    data
        `gpu` and `pass` beside the columns of `importances`.
    gpus
        The GPUs of the campaign.
    """
    if data.empty:
        return style.nothing("there is no training data.")
    shown, passes = gpus.shown(data["gpu"].unique()), sorted(data["pass"].unique())
    figure, grid = style.panels(len(passes), len(shown), height_in=0.7 + 0.15 * FEATURES_AT_MOST)
    targets = [target for target in TARGETS if target in data]
    for line, pass_ in zip(grid, passes, strict=True):
        for axes, gpu in zip(line, shown, strict=True):
            own = data[(data["gpu"] == gpu) & (data["pass"] == pass_)]
            own = own.sort_values(targets[0], ascending=False).head(FEATURES_AT_MOST)
            for number, target in enumerate(targets):
                y = np.arange(len(own)) + (number - (len(targets) - 1) / 2) * 0.4
                moved = 100 * np.expm1(own[target].to_numpy(float))
                axes.barh(y, np.maximum(moved - LEAST, 0), left=LEAST, height=0.38, color=style.COLOURS[number])
            axes.set_yticks(range(len(own)), labels=[_words(name) for name in own["feature"]])
            axes.tick_params(axis="y", labelsize=5.5, length=0)
            axes.set_ylim(len(own) - 0.4, -0.6)
            axes.set_xlim(left=LEAST)
            style.log_axis(axes, "x", "", "prediction moves by" if line is grid[-1] else None)
            style.percent(axes, "x", signed=False)
            gpus.title(axes, gpu, pass_, lines=2)
    entries = [style.Entry(TARGETS[target], style.COLOURS[number], "s") for number, target in enumerate(targets)]
    style.legend(figure, entries, "")
    style.footer(
        figure,
        f"Geometric mean change of predictions when a feature is shuffled among {OPERATIONS_AT_MOST} "
        "operations at "
        "random. Correlated features share their importance.",
        gpus.note(shown, gpus.labels),
    )
    return figure


def _words(name: str) -> str:
    return name.replace("_", " ")


def of_gpus(
    predictors: dict[str, GpuPredictor], operations: pd.DataFrame, name: str, passes: Sequence[str]
) -> pd.DataFrame:
    """Return `importances` of several GPUs, by label, and passes, without those that were not fitted.

    Parameters
    ----------
    predictors
        Of each GPU.
    operations
        The catalogue, with `pass` and `device_work`.
    name
        The name of the predictor.
    passes
        Wanted.
    """
    parts = []
    for gpu, predictor in predictors.items():
        for pass_ in passes:
            own = operations[(operations["pass"] == pass_) & operations["device_work"].astype(bool)]
            if pass_ in predictor.description.passes and len(own):
                parts.append(importances(predictor, own, name, pass_).assign(gpu=gpu, **{"pass": pass_}))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=["gpu", "pass", "feature", *TARGETS])
