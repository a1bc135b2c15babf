"""The profile of a host: made from measurements on it, kept as plain JSON beside predictors."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from clockwatt.dataset.card_host_effects import host_spreads
from clockwatt.errors import DataFileError, RequestError
from clockwatt.io import files
from clockwatt.predict.composition.overheads import HostOverheads
from clockwatt.predict.evaluation.errors import NORMAL_90
from clockwatt.predict.features import CATALOGUE_COLUMNS, OPERATION_CLASS
from clockwatt.predict.hosts.costs import HostCosts
from clockwatt.schema.costs import TIME_HOST_CORRECTED
from clockwatt.schema.execution import ExecutionSettings, execution_of_json
from clockwatt.schema.records import ANCHOR, FORWARD, INFERENCE, LOSS, NETWORK, OK, OPERATION, TRAINING

HOSTS_FOLDER = "hosts"
"""Beside the folders of predictors: a JSON file for each host that has a profile."""

_WORTH = 2.0
"""Number of operations at which a class has the same weight as all classes together."""


class HostModel(Protocol):
    """Interface of a GPU's predictors that a host's factors need."""

    def predict(
        self, operations: pd.DataFrame, pass_: str, point: str, *, execution: ExecutionSettings
    ) -> pd.DataFrame:
        """Predict costs of operations on the median host; see `GpuPredictor.predict`."""


@dataclass(frozen=True)
class HostProfile:
    """Measured profile of a host.

    Attributes
    ----------
    name, host, cpu_model
        The user's name for it, its hostname, and its processor.
    gpu_name, point, execution, virtual
        GPU, operating point and execution settings of the measurement.
    torch_version, measured_us, seconds
        PyTorch version, time (µs since the epoch) and duration of the measurement.
    spread
        Standard deviation of the log of its predicted host time: from repeated measurements of the same calls, and from
        networks measured against the sum of their calls and `overheads`; None where neither is known.
    operations
        A few of every class and pass, with `features.CATALOGUE_COLUMNS`, `pass`, `device_work` and `host_s`.
    overheads
        Pass to overheads of its networks on this host; a pass is missing where too few networks were measured.
    """

    name: str
    host: str
    cpu_model: str | None
    gpu_name: str
    point: str
    execution: ExecutionSettings
    virtual: bool
    torch_version: str | None
    measured_us: int
    seconds: float
    spread: float | None
    operations: list[dict[str, Any]]
    overheads: dict[str, HostOverheads]

    def costs(self, model: HostModel, pass_: str) -> HostCosts:
        """Return this host's factors in a pass, relative to a GPU's predictions for the same operations.

        The factor of a class with few operations is shrunk towards that of all operations.
        """
        own = pd.DataFrame([row for row in self.operations if row["pass"] == pass_])
        if own.empty:
            raise DataFileError(
                f"profile of host {self.name}: holds no operation of {pass_}. Run `clockwatt calibrate --host` again."
            )
        known = model.predict(own, pass_, self.point, execution=self.execution).reindex(own["operation_id"])
        ratio = own["host_s"].to_numpy(float) / known[TIME_HOST_CORRECTED].to_numpy(float)
        valid = np.isfinite(ratio) & (ratio > 0)
        logs = pd.Series(np.log(ratio[valid]), index=own[OPERATION_CLASS].to_numpy()[valid])
        overall = float(logs.median())
        grouped = logs.groupby(level=0)
        counts, medians = grouped.size(), grouped.median()
        shrunk = np.exp(overall + (medians - overall) * counts / (counts + _WORTH))
        width = float(np.exp(NORMAL_90 * (self.spread or 0.0)))
        return HostCosts(
            name=self.name,
            overall=float(np.exp(overall)),
            of_classes={str(name): float(value) for name, value in shrunk.items()},
            overheads=self.overheads.get(pass_),
            low=1 / width,
            high=width,
        )

    def write(self, predictors_dir: Path) -> Path:
        """Write the profile beside the predictors; return the file.

        OutputError if it cannot be written.
        """
        path = profile_path(predictors_dir, self.name)
        files.write_text(json.dumps(asdict(self), indent=1) + "\n", path)
        return path

    @classmethod
    def read(cls, predictors_dir: Path, name: str) -> Self:
        """Read the profile of a host; DataFileError if there is none of that name, or it is damaged."""
        path = profile_path(predictors_dir, name)
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            overheads = {pass_: HostOverheads(**costs) for pass_, costs in content.pop("overheads").items()}
            wanted = {*CATALOGUE_COLUMNS, "pass", "device_work", "host_s"}
            lacking = [row for row in content["operations"] if not wanted <= row.keys()]
            (execution,) = execution_of_json(content)
            profile = cls(**content, execution=execution, overheads=overheads)
        except FileNotFoundError:
            there = sorted(one.stem for one in path.parent.glob("*.json"))
            known = f"there are {', '.join(there)}" if there else "there are none"
            raise RequestError(
                f"{{host}} {name}: {path} does not exist ({known}). Make it on that host: clockwatt calibrate "
                f"--config CONFIG --gpu LABEL --point POINT --host {name}."
            ) from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataFileError(
                f"{path}: not a profile of a host ({error!r}). Run `clockwatt calibrate --host {name}` again."
            ) from error
        if lacking:
            raise DataFileError(
                f"{path}: an operation of it lacks {', '.join(sorted(wanted - lacking[0].keys()))}. "
                f"Run `clockwatt calibrate --host {name}` again."
            )
        return profile


def profile_path(predictors_dir: Path, name: str) -> Path:
    """Return the path of a host's profile; DataFileError if the name is not a valid file name."""
    if not name or not all(letter.isalnum() or letter in "._-" for letter in name) or name.startswith("."):
        raise DataFileError(f"host {name!r}: a host's name has letters, digits, '.', '_' and '-' only.")
    return predictors_dir / HOSTS_FOLDER / f"{name}.json"


_PER_CLASS = 4
"""Operations of a class that are kept; few suffice, since host time depends on the class more than on the size."""


def profile_of(
    name: str, rows: pd.DataFrame, operations: pd.DataFrame, calls: pd.DataFrame, networks: pd.DataFrame, seconds: float
) -> HostProfile:
    """Make the profile of a host from measurements.

    Parameters
    ----------
    name
        What the user calls it.
    rows, operations, calls, networks, seconds
        See `measure.calibrate.host.HostMeasurements`.

    Raises
    ------
    DataFileError
        If nothing was measured.
    """
    fine = rows[rows["status"] == OK]
    in_pass, alone = (fine[column].astype(float) for column in ("time_host_in_pass_s", "time_host_s"))
    fine = fine.assign(host_s=in_pass.fillna(alone))
    of_operations = fine[(fine["kind"] == OPERATION) & fine["host_s"].notna()]
    if of_operations.empty:
        raise DataFileError(f"host {name}: no operation could be measured; see what was said above.")
    key = ["operation_id", "pass"]
    measured = of_operations.rename(columns={"subject_id": "operation_id"})[[*key, "host_s"]]
    anchors = fine[fine["kind"] == ANCHOR].assign(session_id="all")
    spreads = host_spreads(anchors) if len(anchors) else pd.Series(dtype=float)
    first = of_operations.sort_values("started_us").iloc[0]
    host_s = measured.set_index(key)["host_s"]
    whole = fine[fine["kind"] == NETWORK]
    found = {pass_: _overheads(whole, calls, networks, host_s, pass_) for pass_ in (INFERENCE, TRAINING)}
    return HostProfile(
        name=name,
        host=str(first["host"]),
        cpu_model=_text(first["cpu_model"]),
        gpu_name=str(first["gpu_name"]),
        point=str(first["point"]),
        execution=ExecutionSettings(first["execution"]),
        virtual=bool(first["virtual"]),
        torch_version=_text(first["torch_version"]),
        measured_us=int(first["started_us"]),
        seconds=round(seconds, 1),
        spread=_spread(spreads.iloc[:1].to_numpy(float), *(off for _, off in filter(None, found.values()))),
        operations=_kept(operations.merge(measured, on=key)),
        overheads={pass_: known[0] for pass_, known in found.items() if known is not None},
    )


def _spread(of_anchors: NDArray[np.float64], *off: NDArray[np.float64]) -> float | None:
    """Return the log standard deviation: variation of reference operations, and errors on the host's networks."""
    missed = np.concatenate([np.zeros(0), *off])
    parts = [*of_anchors[np.isfinite(of_anchors)], *([np.sqrt(np.mean(missed**2))] if len(missed) else [])]
    return float(np.linalg.norm(parts)) if parts else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _kept(measured: pd.DataFrame) -> list[dict[str, Any]]:
    """Select a few operations of every class and pass, those with the shortest specs, as plain values."""
    columns = [*CATALOGUE_COLUMNS, "pass", "device_work", "host_s"]
    ordered = measured.assign(length=measured["spec"].str.len()).sort_values(["pass", OPERATION_CLASS, "length"])
    kept = ordered.groupby(["pass", OPERATION_CLASS], sort=False).head(_PER_CLASS)
    found: list[dict[str, Any]] = json.loads(kept[columns].to_json(orient="records", double_precision=15))
    return found


def _overheads(
    whole: pd.DataFrame, calls: pd.DataFrame, networks: pd.DataFrame, host_s: pd.Series, pass_: str
) -> tuple[HostOverheads, NDArray[np.float64]] | None:
    """Estimate what modules, forward calls and the start of a backward pass add to the calls of a pass.

    Non-negative least squares, relative to each pass. Return the costs, and each network's error relative to its time;
    None unless there are more networks than costs.
    """
    from scipy.optimize import nnls  # here, because answers need no scipy

    found = []
    for row in whole[whole["pass"] == pass_].to_dict("records"):
        own = calls[(calls["network_id"] == row["subject_id"]) & (calls["pass"] == pass_)]
        calls_s = host_s.reindex(pd.MultiIndex.from_frame(own[["operation_id", "pass"]])).to_numpy(float)
        pass_s = float(row["time_host_s"])
        network = networks[(networks["network_id"] == row["subject_id"]) & (networks["pass"] == pass_)].iloc[0]
        counts = [float(network["module_calls"]), float(own["phase"].isin((FORWARD, LOSS)).sum())]
        starts = [1.0] if pass_ == TRAINING else []
        found.append([pass_s, pass_s - float(calls_s.sum()), *counts, *starts])
    known = np.array([values for values in found if np.isfinite(values).all()], dtype=float)
    if not len(known) or len(known) <= known.shape[1] - 2:
        return None
    counts, beyond = known[:, 2:] / known[:, :1], known[:, 1] / known[:, 0]
    costs, _ = nnls(counts, beyond)
    overheads = HostOverheads(
        module_s=float(costs[0]),
        forward_call_s=float(costs[1]),
        backward_start_s=float(costs[2]) if pass_ == TRAINING else None,
    )
    return overheads, beyond - counts @ costs
