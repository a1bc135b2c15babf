"""What networks add to the costs of their calls: told by networks measured whole if there are enough, else calibrated.

The calibration has a few networks of its own; those of a campaign say the same of its own networks, on its own hosts.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from clockwatt.config import OperatingPoint
from clockwatt.gpu.specs import find_spec
from clockwatt.measure.calibrate.module_costs import module_and_call_costs
from clockwatt.predict.features import Setting
from clockwatt.predict.network import COST_COLUMNS
from clockwatt.predict.pointcosts import PointCosts, read_point_costs
from clockwatt.predict.samples import Samples
from clockwatt.predict.wholes import Catalogue, Costs
from clockwatt.schema.records import FORWARD, INFERENCE, LOSS, TRAINING

FEWEST_NETWORKS = 6
"""Networks, others than the one asked for, that are needed to tell; two costs are sought on the host."""
FEWEST_GROUPED = 3
"""Networks with grouped convolutions that are needed to tell of others; few networks have any, and theirs stand out."""
_HOST_ABOVE = 1.1
"""Back to back a pass takes at least its host time: one that claims so much more waited for the device meanwhile."""

_COLUMNS = [
    *("network", "pass", "point", "modules", "forward_calls", "device_calls", "grouped"),
    *("host_s", "host_beyond_s", "gap_s"),
]


@dataclass(frozen=True)
class AddedCosts:
    """Costs that calls alone do not show, at each operating point of a GPU.

    Attributes
    ----------
    calibrated
        From the calibration, by operating point.
    beyond
        What passes of whole networks take beyond their calls; from `beyond_calls`.
    """

    calibrated: Mapping[str, PointCosts]
    beyond: pd.DataFrame
    _without: dict[tuple[str, str], PointCosts] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def read(
        cls, dataset_dir: Path, gpu: str, samples: Samples, whole: pd.DataFrame, catalogue: Catalogue, costs: Costs
    ) -> AddedCosts:
        """Those of one GPU of a dataset.

        Parameters
        ----------
        samples, whole, catalogue
            From `samples.read_samples` and `wholes.whole_networks` of this GPU, and what the networks call.
        costs
            As measured, from `wholes.measured_costs`.

        Raises
        ------
        DataFileError
            If the dataset has no calibration or it is damaged.
        """
        calibrated = _calibrated(samples, whole, read_point_costs(dataset_dir, gpu))
        return cls(calibrated, beyond_calls(whole, catalogue, costs))

    def without(self, network: str, point: str) -> PointCosts:
        """Costs at an operating point, of which this network has told nothing."""
        key = network, point
        if key not in self._without:
            self._without[key] = self.at(point, self.beyond[self.beyond["network"] != network])
        return self._without[key]

    def at(self, point: str, beyond: pd.DataFrame | None = None) -> PointCosts:
        """Costs at an operating point, told by `beyond`, or by all networks."""
        told_by = self.beyond if beyond is None else beyond
        costs = self.calibrated[point]
        here = told_by[told_by["point"] == point]
        inference, training = (here[here["pass"] == pass_] for pass_ in (INFERENCE, TRAINING))
        grouped = training["grouped"].astype(bool)
        module_s, call_s = _host_added(inference, 0.0)
        training_module_s, training_call_s = _host_added(training, costs.per_backward_call_s or 0.0)
        found = {
            "per_module_inference_s": module_s,
            "added_per_call_inference_s": call_s,
            "device_per_call_inference_s": _gap(inference, FEWEST_NETWORKS),
            "per_module_training_s": training_module_s,
            "added_per_call_training_s": training_call_s,
            "device_per_call_training_s": _gap(training[~grouped], FEWEST_NETWORKS),
            "device_per_call_grouped_s": _gap(training[grouped], FEWEST_GROUPED),
        }
        return replace(costs, **{name: value for name, value in found.items() if value is not None})


def _host_added(own: pd.DataFrame, once_s: float) -> tuple[float | None, float | None]:
    """Host time per module and per call; None where too few networks tell. A pass costs `once_s` beside."""
    host = own[own["host_beyond_s"].notna()]
    if host["network"].nunique() < FEWEST_NETWORKS:
        return None, None
    pass_s, modules, calls, beyond_s = (
        host[name].to_numpy(float) for name in ("host_s", "modules", "forward_calls", "host_beyond_s")
    )
    (module_s, call_s), _ = module_and_call_costs(pass_s, modules, calls, beyond_s - once_s)
    return float(module_s), float(call_s)


def _gap(own: pd.DataFrame, fewest: int) -> float | None:
    """Device time that networks add to a call; None where fewer than `fewest` tell."""
    gaps = own.groupby("network")["gap_s"].median().dropna()
    return max(0.0, float(gaps.median())) if len(gaps) >= fewest else None


def _calibrated(samples: Samples, whole: pd.DataFrame, costs: Mapping[str, PointCosts]) -> dict[str, PointCosts]:
    """What the calibration says at every operating point that something was measured at, the default first.

    The power limit is the one that was seen, which an administrator may have set; else what the point asks for.
    """
    spec = find_spec(samples.gpu_name)
    medians = samples.rows.groupby("point")[["power_idle_w", "power_limit_w"]].median()
    points = {}
    for point in sorted({*medians.index, *whole["point"]}, key=_settings):
        seen = medians.loc[point].dropna() if point in medians.index else pd.Series(dtype=float)
        asked_w = Setting(spec, OperatingPoint.parse(point), tf32=False).power_limit_w
        known = costs.get(point, PointCosts()).or_idle_power(seen.get("power_idle_w"))
        points[point] = replace(known, power_limit_w=float(seen.get("power_limit_w", asked_w)))
    return points


def _settings(point: str) -> tuple[int, int, int]:
    """Operating points by their settings, the default first."""
    parsed = OperatingPoint.parse(point)
    return parsed.sm_clock_mhz or 0, parsed.memory_clock_mhz or 0, parsed.power_limit_w or 0


def beyond_calls(whole: pd.DataFrame, catalogue: Catalogue, costs: Costs) -> pd.DataFrame:
    """What passes of networks take beyond the sum of their calls, on the median host.

    Parameters
    ----------
    whole
        From `wholes.whole_networks`.
    catalogue
        What they call.
    costs
        As measured; networks with a call whose cost is not known are passed over.

    Returns
    -------
    pandas.DataFrame
        `network`, `pass`, `point`, `modules`, `forward_calls`, `device_calls`; `grouped`, whether it has grouped
        convolutions; `host_s` of the pass, `host_beyond_s` of it that is not its calls', and `gap_s`, likewise of the
        device for one call; missing where it is not known.
    """
    rows = []
    for measured in whole.to_dict("records"):
        key = (str(measured["subject_id"]), str(measured["pass"]))
        if key not in catalogue.calls:
            continue
        network, calls = catalogue.networks[key], catalogue.calls[key]
        known = costs(network.network, key[1], str(measured["point"]), bool(measured["tf32"]))
        of_calls = known[COST_COLUMNS].reindex(calls["operation_id"])
        device_s, host_s = of_calls["time_device_s"].to_numpy(float), of_calls["time_host_s"].to_numpy(float)
        if not np.isfinite(device_s).all() or not np.isfinite(host_s).all():
            continue
        pass_host_s = _host_time(measured)
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
                "host_beyond_s": pass_host_s - float(host_s.sum()),
                "gap_s": (float(measured["time_device_s"]) - float(device_s.sum())) / max(device_calls, 1),
            }
        )
    return pd.DataFrame(rows, columns=_COLUMNS)


def _host_time(measured: Mapping[Hashable, Any]) -> float:
    """Host time of a pass on the median host; nan where it is not known."""
    host_s, eager_s = float(measured["time_host_s"]), float(measured["time_eager_s"])
    believed = bool(measured["host_steady"]) and host_s <= _HOST_ABOVE * eager_s
    return (host_s if believed else np.nan) / float(measured["host_factor"])
