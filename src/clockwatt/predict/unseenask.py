"""What a network's pass takes on a GPU that was never measured: the question, and whether there is an answer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from clockwatt.config import OperatingPoint
from clockwatt.gpu.clocks import check_clock, check_power_limit
from clockwatt.gpu.interface import NotSupportedError
from clockwatt.gpu.specs import VIRTUAL_PREFIX, GpuSpec, UnknownGpuError, find_spec
from clockwatt.predict.ask import NetworkPrediction, TracedNetwork
from clockwatt.predict.crossval import ANY_CLASS
from clockwatt.predict.features import OPERATION_CLASS, Setting
from clockwatt.predict.gpumodel import GpuModel, NotPredictableError
from clockwatt.predict.grouped import CONFORMAL, WORST_GROUP, GroupedInterval
from clockwatt.predict.network import Composer, Composition
from clockwatt.predict.predictors import TIMES
from clockwatt.predict.unseen import UnseenModel, bound_by, cost_columns, unseen_dir, without_energy
from clockwatt.predict.unseendescription import UNSEEN_FILE

_METHODS = {CONFORMAL: "conformal_gpus", WORST_GROUP: "worst_gpu"}


def load_unseen(predictors_dir: Path, gpu: str, models: Mapping[str, GpuModel]) -> tuple[UnseenModel, GpuSpec]:
    """The predictor for a GPU that is no label, and the GPU's specifications.

    Parameters
    ----------
    predictors_dir
        From `clockwatt fit`.
    gpu
        A name that `gpu.specs.find_spec` knows; after `virtual:` it is asked of virtual GPUs.
    models
        Those that were measured, by their labels.

    Raises
    ------
    NotPredictableError
        If it has no specifications, was measured, or no predictor for GPUs never measured is there.
    DataFileError
        If that predictor is damaged.
    """
    measured = f"{predictors_dir} has predictors for {', '.join(models)}"
    try:
        spec = find_spec(gpu)
    except UnknownGpuError as error:
        raise NotPredictableError(f"--gpu {gpu}: {measured}. A GPU that was never measured: {error}") from None
    virtual = gpu.strip().lower().startswith(VIRTUAL_PREFIX)
    for label, known in models.items():
        if known.description.virtual == virtual and find_spec(known.description.gpu_name) == spec:
            raise NotPredictableError(f"--gpu {gpu}: was measured. Ask for it by its label: --gpu {label}.")
    if not (unseen_dir(predictors_dir, virtual=virtual) / UNSEEN_FILE).exists():
        kind = "virtual" if virtual else "measured"
        fix = f"It takes `fit.unseen_gpu: true` in config.yaml, three {kind} GPU models, and `clockwatt fit` again."
        if (unseen_dir(predictors_dir, virtual=not virtual) / UNSEEN_FILE).exists():
            name = spec.nvml_name if virtual else f"{VIRTUAL_PREFIX}:{gpu}"
            fix += f" One from {'measured' if virtual else 'virtual'} GPUs is there: --gpu '{name}'."
        raise NotPredictableError(f"--gpu {gpu}: {measured}, and none from {kind} GPUs for one never measured. {fix}")
    return UnseenModel.load(unseen_dir(predictors_dir, virtual=virtual)), spec


def predict_unseen(
    model: UnseenModel, spec: GpuSpec, traced: TracedNetwork, point: str, *, tf32: bool = True
) -> NetworkPrediction:
    """Predict the time of one pass of a network on a GPU that was never measured; energy and power are missing.

    Raises
    ------
    NotPredictableError
        If this pass was not fitted, or the GPU has no such operating point.
    ConfigError
        If `point` is no operating point.
    DataFileError
        If the predictor is damaged.
    """
    network, description = traced.network, model.description
    if network.pass_ not in description.passes:
        raise NotPredictableError(
            f"{model.folder}: nothing was fitted for {network.pass_} ({', '.join(description.passes)} was). Measure it "
            "on three GPU models or more."
        )
    setting = Setting(spec, OperatingPoint.parse(point), tf32)
    _check(setting)
    predictor, known = model.predictor(network.pass_), description.passes[network.pass_]
    times = predictor.times(traced.operations, traced.features, setting)
    composer = Composer(traced.calls, network, times.index)

    def composed(values: pd.DataFrame) -> Composition:
        return composer.compose(cost_columns(values).to_numpy(float), predictor.host)

    expected = without_energy(composed(times))
    if not expected.complete:
        raise NotPredictableError(f"{network.network_id}: calls without an operation. Run `clockwatt catalogue` again.")
    bound = bound_by(expected) if traced.is_network else None
    if bound in known.networks:
        interval = known.networks[bound]
        ends = (expected.time_s * interval.lower, expected.time_s * interval.upper)
        method, models = _METHODS[interval.method], interval.groups
    else:
        classes = traced.operations[OPERATION_CLASS]
        lower, upper = (composed(times * _factors(classes, known.intervals, side)) for side in ("lower", "upper"))
        ends = (lower.time_s, upper.time_s)
        method, models = "operations_gpus", known.intervals[TIMES[0]][ANY_CLASS].groups
    return NetworkPrediction(
        gpu=spec.name,
        gpu_name=spec.nvml_name,
        virtual=description.virtual,
        point=point,
        tf32=tf32,
        pass_=network.pass_,
        network_id=network.network_id,
        measured_gpu=False,
        measured_point=False,
        expected=expected,
        intervals={"time_s": ends},
        interval_method=method,
        interval_networks=0,
        interval_gpus=models,
        warnings=tuple(model.warnings(traced.operations, traced.features, network.pass_, setting, bound)),
    )


def _check(setting: Setting) -> None:
    """Refuse an operating point that the card cannot have."""
    spec, point = setting.spec, setting.point
    try:
        if point.memory_clock_mhz is not None:
            check_clock(spec.nvml_name, "memory", point.memory_clock_mhz, spec.memory_clocks_mhz)
        if point.sm_clock_mhz is not None:
            check_clock(spec.nvml_name, "SM", point.sm_clock_mhz, spec.supported_sm_clocks_mhz)
        if point.power_limit_w is not None:
            check_power_limit(spec.nvml_name, point.power_limit_w, (spec.power_w.min, spec.power_w.max))
    except NotSupportedError as error:
        raise NotPredictableError(f"--point {point}: {error}") from None


def _factors(classes: pd.Series, intervals: dict[str, dict[str, GroupedInterval]], side: str) -> NDArray[np.float64]:
    """Factors from times of operations to one end of their intervals; shape (operations, 3)."""
    columns = [
        [getattr(intervals[name].get(str(each), intervals[name][ANY_CLASS]), side) for each in classes]
        for name in TIMES
    ]
    return np.array(columns, dtype=float).T
