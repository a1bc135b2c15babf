"""Features of operations at operating points: those of the operation, and the roofline of the GPU there.

They are computed from the catalogue, the GPU's public specification and the operating point, without measurements.
"""

from __future__ import annotations

import functools
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from clockwatt.config import OperatingPoint
from clockwatt.gpu.specs import GpuSpec
from clockwatt.operations.spec.operation import MATRIX_CLASSES
from clockwatt.predict.features.operations import NOT_LEARNT_FROM, OPERATION_CLASS, RECURRENT_GATES
from clockwatt.schema.execution import FP32, ExecutionSettings

ROOFLINE_TIME = "roofline_time_s"
POWER_LIMIT = "power_limit_w"


@dataclass(frozen=True)
class Setting:
    """GPU model, operating point and execution settings that an operation runs with."""

    spec: GpuSpec
    point: OperatingPoint
    execution: ExecutionSettings

    @property
    def sm_clock_mhz(self) -> float:
        """Requested SM clock; at `default` the clock that the GPU runs at under load."""
        return float(self.point.sm_clock_mhz or self.spec.boost_clock_mhz)

    @property
    def bandwidth_bytes_s(self) -> float:
        """Memory bandwidth at the requested memory clock."""
        highest = max(self.spec.memory_clocks_mhz)
        return self.spec.bandwidth_bytes_s * float(self.point.memory_clock_mhz or highest) / highest

    @property
    def power_limit_w(self) -> float:
        """Requested power limit; at `default` the GPU model's."""
        return float(self.point.power_limit_w or self.spec.power_w.default)


def sm_clock_mhz(point: str, spec: GpuSpec) -> float:
    """Return an operating point's SM clock; at `default` the clock that the GPU runs at under load."""
    return Setting(spec, OperatingPoint.parse(point), execution=FP32).sm_clock_mhz


def features_at(operations: pd.DataFrame, *settings: Setting) -> pd.DataFrame:
    """Return features of operations in settings: those of the operation, and the GPU's roofline there.

    Parameters
    ----------
    operations
        From `operation_features`; shape (operations, …).
    settings
        Settings that they run with, at least one.

    Returns
    -------
    pandas.DataFrame
        The same rows for each setting, one setting after another. `roofline_time_s` is FLOPs over the peak at this
        clock plus bytes over the bandwidth: the roofline (Williams, Waterman and Patterson, Commun. ACM 52(4), 2009)
        without overlap. On convolutions, the ratio of measured time to this sum is easier to predict than that to the
        larger of the two.
    """
    given = operations.drop(columns=NOT_LEARNT_FROM)
    if len(settings) > 1:
        given = given.take(np.tile(np.arange(len(given)), len(settings)))
    numbers = {name: operations[name].to_numpy(float) for name in ("flops", "bytes", "serial_s", "log_elements_out")}
    kinds = _kinds(operations)
    physics = [_physics(numbers, kinds, setting) for setting in settings]
    columns = {name: np.concatenate([each[name] for each in physics]) for name in physics[0]}
    return pd.concat([given, pd.DataFrame(columns, index=given.index)], axis=1)


def features_of(rows: pd.DataFrame, operations: pd.DataFrame, spec: GpuSpec) -> pd.DataFrame:
    """Return features of operations at the operating points they were measured at.

    Parameters
    ----------
    rows
        `operation_id`, `point` and `execution`; shape (rows, …).
    operations
        From `operation_features`, with every operation of `rows`.
    spec
        The GPU.

    Returns
    -------
    pandas.DataFrame
        One row for each of `rows`, with its index.
    """
    parts = []
    for (point, execution), group in rows.groupby(["point", "execution"], sort=True):
        setting = Setting(spec, OperatingPoint.parse(str(point)), ExecutionSettings(str(execution)))
        parts.append(features_at(operations.loc[group["operation_id"]], setting).set_index(group.index))
    return pd.concat(parts).loc[rows.index]


def _kinds(operations: pd.DataFrame) -> dict[tuple[str, bool], np.ndarray]:
    """Group operations by dtype and by whether they are matrix products, which a peak depends on."""
    matrix = operations[OPERATION_CLASS].isin(MATRIX_CLASSES | set(RECURRENT_GATES)).to_numpy(bool)
    dtypes = operations["dtype"].to_numpy(object)
    return {(dtype, kind): (dtypes == dtype) & (matrix == kind) for dtype in set(dtypes) for kind in (False, True)}


def _physics(
    operations: dict[str, np.ndarray], kinds: dict[tuple[str, bool], np.ndarray], setting: Setting
) -> dict[str, np.ndarray]:
    """Return the features that `features_at` adds in one setting; each of shape (operations,)."""
    spec = setting.spec
    clock_ratio = setting.sm_clock_mhz / spec.boost_clock_mhz
    count = len(operations["flops"])
    peak = np.empty(count)
    for (dtype, matrix), own in kinds.items():
        peak[own] = spec.peak_flops(dtype, tf32=setting.execution.matrix_tf32, matrix=matrix)
    peak *= clock_ratio
    compute_s = operations["flops"] / peak
    memory_s = operations["bytes"] / setting.bandwidth_bytes_s
    return {
        ROOFLINE_TIME: compute_s + memory_s + operations["serial_s"] / clock_ratio,
        "log_compute_time": np.log2(compute_s + 1e-9),
        "log_memory_time": np.log2(memory_s + 1e-9),
        "log_serial_time": np.log2(1 + operations["serial_s"] / clock_ratio * 1e6),
        "compute_bound": np.log2((compute_s + 1e-9) / (memory_s + 1e-9)),
        "log_bytes_over_l2": np.log2((operations["bytes"] + 1) / spec.l2_bytes),
        "log_outputs_per_sm": operations["log_elements_out"] - np.log2(spec.sm_count),
        "log_peak": np.log2(peak),
        "sm_clock_ratio": np.full(count, clock_ratio),
        "bandwidth_ratio": np.full(count, setting.bandwidth_bytes_s / spec.bandwidth_bytes_s),
        POWER_LIMIT: np.full(count, setting.power_limit_w),
    }


def settings_of(
    operations: pd.DataFrame, execution: ExecutionSettings, measured: Collection[str] = ()
) -> NDArray[np.object_]:
    """Return the settings under which each operation of a network was measured; shape (operations,).

    Parameters
    ----------
    operations
        With `operation_class` and `dtype`.
    execution
        Of the network.
    measured
        Settings of the measurements of operations.
    """
    kinds = zip(operations["operation_class"], operations["dtype"], strict=True)
    of_kind = functools.cache(lambda name, dtype: execution.of_operation(name, dtype, measured))
    return np.array([of_kind(*kind) for kind in kinds], dtype=object)
