"""The profile of a host, as plain JSON beside predictors."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
import pandas as pd

from clockwatt.errors import DataFileError
from clockwatt.io import files
from clockwatt.predict.composition.overheads import HostOverheads
from clockwatt.predict.features.operations import CATALOGUE_COLUMNS, OPERATION_CLASS
from clockwatt.predict.hosts.costs import HostCosts

HOSTS_FOLDER = "hosts"
"""Beside the folders of predictors: a JSON file for each host that has a profile."""
HOST_COLUMN = "time_host_corrected_s"

_WORTH = 2.0
"""So many operations of its own a class needs to count as much as all classes together."""
_NORMAL_90 = 1.645


class HostModel(Protocol):
    """What a host's factors need of a GPU's predictors."""

    def predict(self, operations: pd.DataFrame, pass_: str, point: str, *, tf32: bool) -> pd.DataFrame:
        """Costs of operations on the median host; see `GpuPredictor.predict`."""


@dataclass(frozen=True)
class HostProfile:
    """A host as it was measured.

    Attributes
    ----------
    name, host, cpu_model
        What the user calls it, what it calls itself, and its processor.
    gpu_name, point, tf32, virtual
        What it was measured with.
    torch_version, measured_us, seconds
        With what, when (µs since the epoch) and for how long.
    spread
        Standard deviation of the log of what is told of it: of what the same calls cost it meanwhile, and of what its
        networks took against what their calls and `overheads` say; None where neither is known.
    operations
        Of every class and pass a few, with `features.operations.CATALOGUE_COLUMNS`, `pass`, `device_work` and `host_s`.
    overheads
        Pass to what its networks cost this host beside their calls; a pass is missing where too few were measured.
    """

    name: str
    host: str
    cpu_model: str | None
    gpu_name: str
    point: str
    tf32: bool
    virtual: bool
    torch_version: str | None
    measured_us: int
    seconds: float
    spread: float | None
    operations: list[dict[str, Any]]
    overheads: dict[str, HostOverheads]

    def costs(self, model: HostModel, pass_: str) -> HostCosts:
        """Factors of this host in a pass, against what the predictors of a GPU say of the same operations.

        A class with few operations is drawn towards all of them.
        """
        own = pd.DataFrame([row for row in self.operations if row["pass"] == pass_])
        if own.empty:
            raise DataFileError(
                f"profile of host {self.name}: holds no operation of {pass_}. Run `clockwatt calibrate --host` again."
            )
        known = model.predict(own, pass_, self.point, tf32=self.tf32).reindex(own["operation_id"])
        ratio = own["host_s"].to_numpy(float) / known[HOST_COLUMN].to_numpy(float)
        valid = np.isfinite(ratio) & (ratio > 0)
        logs = pd.Series(np.log(ratio[valid]), index=own[OPERATION_CLASS].to_numpy()[valid])
        overall = float(logs.median())
        grouped = logs.groupby(level=0)
        counts, medians = grouped.size(), grouped.median()
        shrunk = np.exp(overall + (medians - overall) * counts / (counts + _WORTH))
        width = float(np.exp(_NORMAL_90 * (self.spread or 0.0)))
        return HostCosts(
            name=self.name,
            overall=float(np.exp(overall)),
            of_classes={str(name): float(value) for name, value in shrunk.items()},
            overheads=self.overheads.get(pass_),
            low=1 / width,
            high=width,
        )

    def write(self, predictors_dir: Path) -> Path:
        """Write it beside the predictors; returns the file.

        Raises
        ------
        OutputError
            If it cannot be written.
        """
        path = profile_path(predictors_dir, self.name)
        files.write_text(json.dumps(asdict(self), indent=1) + "\n", path)
        return path

    @classmethod
    def read(cls, predictors_dir: Path, name: str) -> Self:
        """The profile of a host.

        Raises
        ------
        DataFileError
            If there is none of that name, or it is damaged.
        """
        path = profile_path(predictors_dir, name)
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            overheads = {pass_: HostOverheads(**costs) for pass_, costs in content.pop("overheads").items()}
            wanted = {*CATALOGUE_COLUMNS, "pass", "device_work", "host_s"}
            lacking = [row for row in content["operations"] if not wanted <= row.keys()]
            profile = cls(**content, overheads=overheads)
        except FileNotFoundError:
            there = sorted(one.stem for one in path.parent.glob("*.json"))
            known = f"there are {', '.join(there)}" if there else "there are none"
            raise DataFileError(
                f"--host {name}: {path} does not exist ({known}). Make it on that host: clockwatt calibrate "
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
    """Where a host's profile lies.

    Raises
    ------
    DataFileError
        If the name is none for a file.
    """
    if not name or not all(letter.isalnum() or letter in "._-" for letter in name) or name.startswith("."):
        raise DataFileError(f"--host {name!r}: a host's name has letters, digits, '.', '_' and '-' only.")
    return predictors_dir / HOSTS_FOLDER / f"{name}.json"
