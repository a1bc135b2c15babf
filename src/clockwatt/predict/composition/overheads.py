"""Overheads: what an operating point costs beside the calls, and what a network costs beyond them.

They are estimated from networks measured whole if there are enough, else calibrated. The calibration has a few networks
of its own; those of a campaign say the same of its own networks, on its own hosts.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from clockwatt.config import OperatingPoint
from clockwatt.gpu.specs import find_spec
from clockwatt.io import files
from clockwatt.measure.calibrate.module_costs import module_and_call_costs
from clockwatt.predict.composition.networks import Catalogue, CostsOfNetwork
from clockwatt.predict.features.points import Setting
from clockwatt.predict.samples import Samples
from clockwatt.schema import tables
from clockwatt.schema.quantities import CalibrationQuantity
from clockwatt.schema.records import CALIBRATION_SCHEMA, FORWARD, INFERENCE, LOSS, TRAINING

FEWEST_NETWORKS = 6
"""Networks, others than the one predicted, that are needed; two costs are estimated on the host."""
FEWEST_GROUPED = 3
"""Networks with grouped convolutions that are needed; few networks have any, and their overheads stand out."""
_HOST_ABOVE = 1.1
"""Back to back a pass takes at least its host time: one that claims so much more waited for the device meanwhile."""

_COLUMNS = [
    *("network", "pass", "point", "modules", "forward_calls", "device_calls", "grouped"),
    *("host_s", "host_overhead_s", "gap_s"),
]


@dataclass(frozen=True)
class Overheads:
    """Costs at one operating point beside the calls; calibrated or estimated from networks, None where not known.

    Attributes
    ----------
    power_idle_w
        Idle power, context alive, clock locked.
    per_call_inference_s, per_call_training_s
        Host time to issue one call.
    per_module_inference_s, per_module_training_s
        Host time that entering a module's forward adds.
    added_per_call_inference_s, added_per_call_training_s
        Host time that a forward call takes longer in a network, where many different ones follow each other, than in a
        loop of its own.
    per_backward_call_s
        Host time of starting a backward pass: a network pays it once.
    device_per_call_inference_s, device_per_call_training_s
        Device time that a call with device work takes longer in a network than after itself.
    device_per_call_grouped_s
        The same in training of networks with grouped convolutions. cuDNN computes some of their gradients on several
        streams at once; while such work waits in the queue, a device starts all other kernels later too.
    power_limit_w
        As seen when measuring; else what the operating point asks for, or the GPU model's default.
    """

    power_idle_w: float | None = None
    per_call_inference_s: float | None = None
    per_call_training_s: float | None = None
    per_module_inference_s: float | None = None
    per_module_training_s: float | None = None
    added_per_call_inference_s: float | None = None
    added_per_call_training_s: float | None = None
    per_backward_call_s: float | None = None
    device_per_call_inference_s: float | None = None
    device_per_call_training_s: float | None = None
    device_per_call_grouped_s: float | None = None
    power_limit_w: float | None = None

    def per_call_s(self, pass_: str) -> float | None:
        """Host time to issue one call in a pass."""
        return self.per_call_training_s if pass_ == TRAINING else self.per_call_inference_s

    def per_module_s(self, pass_: str) -> float:
        """Host time that entering a module adds in a pass; 0 where it is not known."""
        return (self.per_module_training_s if pass_ == TRAINING else self.per_module_inference_s) or 0.0

    def added_per_call_s(self, pass_: str) -> float:
        """Host time that a network adds to a forward call in a pass; 0 where it is not known."""
        return (self.added_per_call_training_s if pass_ == TRAINING else self.added_per_call_inference_s) or 0.0

    def device_per_call_s(self, pass_: str, *, grouped: bool = False) -> float:
        """Device time that a network adds to a call with device work in a pass; 0 where it is not known.

        `grouped` is whether the network has grouped convolutions.
        """
        known_s = self.device_per_call_training_s if pass_ == TRAINING else self.device_per_call_inference_s
        if grouped and pass_ == TRAINING and self.device_per_call_grouped_s is not None:
            known_s = self.device_per_call_grouped_s
        return max(0.0, known_s or 0.0)

    def or_idle_power(self, power_idle_w: float | None) -> Self:
        """The same, with this idle power where the calibration has none."""
        return self if self.power_idle_w is not None else replace(self, power_idle_w=power_idle_w)

    def on_host(self, factor: float) -> Self:
        """The same on a host whose calls cost `factor` times as much."""
        known = {name: value for name in _OF_HOST if (value := getattr(self, name)) is not None}
        return replace(self, **{name: factor * value for name, value in known.items()})

    def to_dict(self) -> dict[str, float | None]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """From JSON."""
        return cls(**{name: None if value is None else float(value) for name, value in values.items()})


_OF_HOST = (
    *("per_call_inference_s", "per_call_training_s", "per_module_inference_s", "per_module_training_s"),
    *("added_per_call_inference_s", "added_per_call_training_s", "per_backward_call_s"),
)
"""Overheads that are host time."""


@dataclass(frozen=True)
class OverheadEstimates:
    """Overheads at each operating point of a GPU.

    Attributes
    ----------
    calibrated
        From the calibration, by operating point.
    seen
        What passes of whole networks took beyond their calls; from `seen_overheads`.
    """

    calibrated: Mapping[str, Overheads]
    seen: pd.DataFrame
    _without: dict[tuple[str, str], Overheads] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def read(
        cls,
        dataset_dir: Path,
        gpu: str,
        samples: Samples,
        whole: pd.DataFrame,
        catalogue: Catalogue,
        costs: CostsOfNetwork,
    ) -> OverheadEstimates:
        """Those of one GPU of a dataset.

        Parameters
        ----------
        samples, whole, catalogue
            From `samples.read_samples` and `networks.whole_networks` of this GPU, and what the networks call.
        costs
            As measured, from `comparison.measured_costs`.

        Raises
        ------
        DataFileError
            If the dataset has no calibration or it is damaged.
        """
        calibrated = _calibrated(samples, whole, read_calibrated(dataset_dir, gpu))
        return cls(calibrated, seen_overheads(whole, catalogue, costs))

    def without(self, network: str, point: str) -> Overheads:
        """Those at an operating point, estimated without this network."""
        key = network, point
        if key not in self._without:
            self._without[key] = self.at(point, self.seen[self.seen["network"] != network])
        return self._without[key]

    def at(self, point: str, seen: pd.DataFrame | None = None) -> Overheads:
        """Those at an operating point, estimated from what was `seen`, of all networks if that is not given."""
        estimated_from = self.seen if seen is None else seen
        costs = self.calibrated[point]
        here = estimated_from[estimated_from["point"] == point]
        inference, training = (here[here["pass"] == pass_] for pass_ in (INFERENCE, TRAINING))
        grouped = training["grouped"].astype(bool)
        module_s, call_s = _host_overheads(inference, 0.0)
        training_module_s, training_call_s = _host_overheads(training, costs.per_backward_call_s or 0.0)
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


def _host_overheads(own: pd.DataFrame, once_s: float) -> tuple[float | None, float | None]:
    """Host time per module and per call; None where networks are too few. A pass costs `once_s` beside."""
    host = own[own["host_overhead_s"].notna()]
    if host["network"].nunique() < FEWEST_NETWORKS:
        return None, None
    pass_s, modules, calls, overhead_s = (
        host[name].to_numpy(float) for name in ("host_s", "modules", "forward_calls", "host_overhead_s")
    )
    (module_s, call_s), _ = module_and_call_costs(pass_s, modules, calls, overhead_s - once_s)
    return float(module_s), float(call_s)


def _gap(own: pd.DataFrame, fewest: int) -> float | None:
    """Device time that networks add to a call; None with fewer than `fewest`."""
    gaps = own.groupby("network")["gap_s"].median().dropna()
    return max(0.0, float(gaps.median())) if len(gaps) >= fewest else None


def _calibrated(samples: Samples, whole: pd.DataFrame, costs: Mapping[str, Overheads]) -> dict[str, Overheads]:
    """What the calibration says at every operating point that something was measured at, the default first.

    The power limit is the one that was seen, which an administrator may have set; else what the point asks for.
    """
    spec = find_spec(samples.gpu_name)
    medians = samples.rows.groupby("point")[["power_idle_w", "power_limit_w"]].median()
    points = {}
    for point in sorted({*medians.index, *whole["point"]}, key=_settings):
        seen = medians.loc[point].dropna() if point in medians.index else pd.Series(dtype=float)
        asked_w = Setting(spec, OperatingPoint.parse(point), tf32=False).power_limit_w
        known = costs.get(point, Overheads()).or_idle_power(seen.get("power_idle_w"))
        points[point] = replace(known, power_limit_w=float(seen.get("power_limit_w", asked_w)))
    return points


def _settings(point: str) -> tuple[int, int, int]:
    """Operating points by their settings, the default first."""
    parsed = OperatingPoint.parse(point)
    return parsed.sm_clock_mhz or 0, parsed.memory_clock_mhz or 0, parsed.power_limit_w or 0


def seen_overheads(whole: pd.DataFrame, catalogue: Catalogue, costs: CostsOfNetwork) -> pd.DataFrame:
    """What passes of networks take beyond the sum of their calls, on the median host.

    Parameters
    ----------
    whole
        From `networks.whole_networks`.
    catalogue
        What they call.
    costs
        As measured; networks with a call whose cost is not known are passed over.

    Returns
    -------
    pandas.DataFrame
        `network`, `pass`, `point`, `modules`, `forward_calls`, `device_calls`; `grouped`, whether it has grouped
        convolutions; `host_s` of the pass, `host_overhead_s` of it that is not its calls', and `gap_s`, likewise of the
        device for one call; missing where it is not known.
    """
    rows = []
    for measured in whole.to_dict("records"):
        key = (str(measured["subject_id"]), str(measured["pass"]))
        if key not in catalogue.calls:
            continue
        network, calls = catalogue.networks[key], catalogue.calls[key]
        known = costs(network.network, key[1], str(measured["point"]), bool(measured["tf32"]))
        of_calls = known.reindex(calls["operation_id"])
        device_s, host_s = (
            of_calls["time_device_corrected_s"].to_numpy(float),
            of_calls["time_host_corrected_s"].to_numpy(float),
        )
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
                "host_overhead_s": pass_host_s - float(host_s.sum()),
                "gap_s": (float(measured["time_device_corrected_s"]) - float(device_s.sum())) / max(device_calls, 1),
            }
        )
    return pd.DataFrame(rows, columns=_COLUMNS)


def _host_time(measured: Mapping[Hashable, Any]) -> float:
    """Host time of a pass on the median host; nan where it is not known."""
    host_s, eager_s = float(measured["time_host_corrected_s"]), float(measured["time_eager_corrected_s"])
    believed = bool(measured["host_steady"]) and host_s * float(measured["host_factor"]) <= _HOST_ABOVE * eager_s
    return host_s if believed else np.nan


_FIELDS = {
    (CalibrationQuantity.IDLE_POWER, None): "power_idle_w",
    (CalibrationQuantity.HOST_PER_CALL, INFERENCE): "per_call_inference_s",
    (CalibrationQuantity.HOST_PER_CALL, TRAINING): "per_call_training_s",
    (CalibrationQuantity.HOST_PER_MODULE, INFERENCE): "per_module_inference_s",
    (CalibrationQuantity.HOST_PER_MODULE, TRAINING): "per_module_training_s",
    (CalibrationQuantity.HOST_ADDED_PER_CALL, INFERENCE): "added_per_call_inference_s",
    (CalibrationQuantity.HOST_ADDED_PER_CALL, TRAINING): "added_per_call_training_s",
    (CalibrationQuantity.HOST_PER_BACKWARD_CALL, None): "per_backward_call_s",
    (CalibrationQuantity.DEVICE_ADDED_PER_CALL, INFERENCE): "device_per_call_inference_s",
    (CalibrationQuantity.DEVICE_ADDED_PER_CALL, TRAINING): "device_per_call_training_s",
}


def read_calibrated(dataset_dir: Path, gpu: str) -> dict[str, Overheads]:
    """Calibrated costs of one GPU by operating point.

    Raises
    ------
    DataFileError
        If the dataset has no calibration or it is damaged.
    """
    columns = ["gpu", "point", "quantity", "subject", "value"]
    table = files.read_table(dataset_dir / tables.CALIBRATION_FILE, CALIBRATION_SCHEMA, columns)
    values: dict[str, dict[str, float]] = {}
    for row in table.filter(pc.equal(table["gpu"], gpu)).to_pylist():
        of_point = values.setdefault(row["point"], {})
        name = _FIELDS.get((row["quantity"], row["subject"]))
        if name is not None and row["value"] is not None:
            of_point[name] = row["value"]
    return {point: Overheads(**of_point) for point, of_point in values.items()}
