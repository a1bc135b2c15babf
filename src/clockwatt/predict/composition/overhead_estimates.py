"""Overheads estimated from networks measured whole if there are enough, else from the calibration.

The calibration measures a few networks; those of a campaign give overheads of its own networks on its own hosts.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from clockwatt.config import OperatingPoint
from clockwatt.gpu.specs import find_spec
from clockwatt.measure.calibrate.module_costs import module_and_call_costs
from clockwatt.predict.composition.networks import Catalogue, CostsOfNetwork
from clockwatt.predict.composition.overheads import HostOverheads, Overheads, PassOverheads, read_calibrated
from clockwatt.predict.features.points import Setting
from clockwatt.predict.training_rows import Samples
from clockwatt.schema.costs import ENERGY_CORRECTED
from clockwatt.schema.execution import FP32, ExecutionSettings
from clockwatt.schema.records import FORWARD, INFERENCE, LOSS, TRAINING

FEWEST_NETWORKS = 6
"""Fewest networks, without the predicted one, to estimate overheads from; two host costs are estimated."""
FEWEST_GROUPED = 3
"""Fewest networks with grouped convolutions; few networks have any, and their overheads are larger."""
_NEAR_LIMIT = 0.95
"""Mean power relative to the power limit from which on a pass counts as power-capped."""
_COLUMNS = [
    *("network", "pass", "point", "modules", "forward_calls", "device_calls", "grouped"),
    *("host_s", "host_overhead_s", "gap_s", "dynamic_ratio"),
]


@dataclass(frozen=True)
class OverheadEstimates:
    """Overheads at each operating point of a GPU.

    Attributes
    ----------
    calibrated
        By operating point; from `calibrated_overheads`.
    seen
        Times of whole networks' passes beyond their calls; from `seen_overheads`.
    """

    calibrated: Mapping[str, Overheads]
    seen: pd.DataFrame
    _without: dict[tuple[str, str], Overheads] = field(default_factory=dict, repr=False, compare=False)

    def completed(self, other: OverheadEstimates, host_factor: float = 1.0) -> OverheadEstimates:
        """Return the overheads with those of another GPU, on a host so many times as slow, where they are not known."""
        lent = {
            point: known.completed(other.at(point).on_host(host_factor))
            for point, known in self.calibrated.items()
            if point in other.calibrated
        }
        return OverheadEstimates({**self.calibrated, **lent}, self.seen)

    def without(self, network: str, point: str) -> Overheads:
        """Return overheads at an operating point, estimated without this network."""
        key = network, point
        if key not in self._without:
            self._without[key] = self.at(point, self.seen[self.seen["network"] != network])
        return self._without[key]

    def at(self, point: str, seen: pd.DataFrame | None = None) -> Overheads:
        """Return overheads at an operating point, estimated from `seen`, by default that of all networks."""
        estimated_from = self.seen if seen is None else seen
        here = estimated_from[estimated_from["point"] == point]
        inference, training = (here[here["pass"] == pass_] for pass_ in (INFERENCE, TRAINING))
        grouped = training["grouped"].astype(bool)
        known = self.calibrated[point]
        return replace(
            known,
            inference=_estimated(known.inference, inference, _gap(inference, FEWEST_NETWORKS), None),
            training=_estimated(
                known.training,
                training,
                _gap(training[~grouped], FEWEST_NETWORKS),
                _gap(training[grouped], FEWEST_GROUPED),
            ),
        )


def _estimated(
    known: PassOverheads, own: pd.DataFrame, gap_s: float | None, grouped_gap_s: float | None
) -> PassOverheads:
    """Replace calibrated overheads of a pass by estimates from its networks."""
    return PassOverheads(
        _host_overheads(own, known.host),
        known.gap_s if gap_s is None else gap_s,
        known.grouped_gap_s if grouped_gap_s is None else grouped_gap_s,
        _median(own, "dynamic_ratio", FEWEST_NETWORKS) or known.dynamic_factor,
    )


def _host_overheads(own: pd.DataFrame, known: HostOverheads) -> HostOverheads:
    """Estimate host overheads per module and call from passes of networks; calibrated ones with too few networks."""
    host = own[own["host_overhead_s"].notna()]
    if host["network"].nunique() < FEWEST_NETWORKS:
        return known
    pass_s, modules, calls, overhead_s = (
        host[name].to_numpy(float) for name in ("host_s", "modules", "forward_calls", "host_overhead_s")
    )
    once_s = known.backward_start_s or 0.0
    (module_s, call_s), _ = module_and_call_costs(pass_s, modules, calls, overhead_s - once_s)
    return replace(known, module_s=float(module_s), forward_call_s=float(call_s))


def _gap(own: pd.DataFrame, fewest: int) -> float | None:
    """Return the device time that networks add to a call; None with fewer than `fewest` networks."""
    gap_s = _median(own, "gap_s", fewest)
    return None if gap_s is None else max(0.0, gap_s)


def _median(own: pd.DataFrame, column: str, fewest: int) -> float | None:
    """Return the median over networks; None with fewer than `fewest` networks that have it."""
    of_networks = own.groupby("network")[column].median().dropna()
    return float(of_networks.median()) if len(of_networks) >= fewest else None


def calibrated_overheads(dataset_dir: Path, gpu: str, samples: Samples, whole: pd.DataFrame) -> dict[str, Overheads]:
    """Return calibrated overheads at every measured operating point, the default first.

    The power limit is the observed one, which an administrator may have set; else the operating point's. DataFileError
    if the dataset has no calibration or it is damaged.
    """
    costs = read_calibrated(dataset_dir, gpu)
    spec = find_spec(samples.gpu_name)
    medians = samples.rows.groupby("point")[["power_idle_w", "power_limit_w"]].median()
    points = {}
    for point in sorted({*medians.index, *whole["point"]}, key=lambda point: OperatingPoint.parse(point).order):
        seen = medians.loc[point].dropna() if point in medians.index else pd.Series(dtype=float)
        requested_w = Setting(spec, OperatingPoint.parse(point), FP32).power_limit_w
        known = costs.get(point, Overheads())
        points[point] = replace(
            known,
            power_idle_w=seen.get("power_idle_w") if known.power_idle_w is None else known.power_idle_w,
            power_limit_w=float(seen.get("power_limit_w", requested_w)),
        )
    return points


def seen_overheads(
    whole: pd.DataFrame, catalogue: Catalogue, costs: CostsOfNetwork, calibrated: Mapping[str, Overheads]
) -> pd.DataFrame:
    """Return what networks' passes cost beyond the sum of their calls, on the median host.

    Parameters
    ----------
    whole
        From `networks.whole_networks`.
    catalogue
        What they call.
    costs
        Measured costs; networks with a call of unknown cost are skipped.
    calibrated
        From `calibrated_overheads`.

    Returns
    -------
    pandas.DataFrame
        `network`, `pass`, `point`, `modules`, `forward_calls`, `device_calls`; `grouped`, whether it has grouped
        convolutions; `host_s` of the pass, `host_overhead_s` of it that is not its calls', `gap_s`, likewise of the
        device for one call, and `dynamic_ratio` of the dynamic power to that of its calls; missing where it is not
        known.
    """
    rows = []
    for measured in whole.to_dict("records"):
        key = (str(measured["subject_id"]), str(measured["pass"]))
        if key not in catalogue.calls:
            continue
        network, calls = catalogue.networks[key], catalogue.calls[key]
        known = costs(network.network, key[1], str(measured["point"]), ExecutionSettings(measured["execution"]))
        of_calls = known.reindex(calls["operation_id"])
        device_s, host_s = (
            of_calls["time_device_corrected_s"].to_numpy(float),
            of_calls["time_host_corrected_s"].to_numpy(float),
        )
        if not np.isfinite(device_s).all() or not np.isfinite(host_s).all():
            continue
        pass_host_s = float(measured["time_host_corrected_s"])
        device_calls = int((device_s > 0).sum())
        rows.append(
            {
                "network": network.network,
                "pass": key[1],
                "point": str(measured["point"]),
                "modules": network.module_calls,
                "forward_calls": int(calls["phase"].isin((FORWARD, LOSS)).sum()),
                "device_calls": device_calls,
                "grouped": bool(network.grouped_convolutions),
                "host_s": pass_host_s,
                "host_overhead_s": pass_host_s - float(host_s.sum()),
                "gap_s": (float(measured["time_device_corrected_s"]) - float(device_s.sum())) / max(device_calls, 1),
                "dynamic_ratio": _dynamic_ratio(
                    measured, of_calls, calibrated.get(str(measured["point"]), Overheads())
                ),
            }
        )
    return pd.DataFrame(rows, columns=_COLUMNS)


def _dynamic_ratio(measured: Mapping[Hashable, Any], of_calls: pd.DataFrame, known: Overheads) -> float:
    """Return dynamic energy of a pass over that of its calls in the same device time; nan where it is not known.

    A pass at the power limit runs at a lower clock, so it has none.
    """
    energy_j, idle_w, limit_w = measured[ENERGY_CORRECTED], known.power_idle_w, known.power_limit_w
    if idle_w is None or limit_w is None or not energy_j > 0 or measured["power_corrected_w"] > _NEAR_LIMIT * limit_w:
        return math.nan
    dynamic_j = float(energy_j) - idle_w * float(measured["time_eager_corrected_s"])
    calls_w = float(
        (of_calls["energy_dynamic_corrected_j"] / of_calls["time_device_corrected_s"].sum()).sum(skipna=False)
    )
    return dynamic_j / (calls_w * float(measured["time_device_corrected_s"])) if calls_w > 0 else math.nan
