"""A fitted study on disk: JSON and plain arrays. Loading it never runs code from it.

```
thermal.json          what was fitted to which records, with all constants; read first
arrays-MODEL.npz      trees and weights of the models that have them
scores.csv            what each model missed in runs that it never saw
rmse.*, forecast.*    figures, with what they are drawn from
```
"""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from clockwatt.errors import DataFileError, OutputError
from clockwatt.io.files import write_text, written_aside
from clockwatt.studies.thermal.inputs import INPUTS, LOADS, Inputs, Load, Task
from clockwatt.studies.thermal.intervals import Intervals
from clockwatt.studies.thermal.models.base import Forecaster
from clockwatt.studies.thermal.models.registry import MODELS

FORMAT = 2
DESCRIPTION = "thermal.json"


@dataclass
class Fitted:
    """A model fitted to all records, with intervals from runs left out (None where there were too few)."""

    model: Forecaster
    intervals: Intervals | None


@dataclass
class Study:
    """All fitted models.

    Attributes
    ----------
    fitted
        By name of the model.
    records
        Folders that they were fitted to.
    virtual
        Whether any of these is of a virtual GPU.
    slowed_from_c
        By UUID: the lowest temperature at which heat slowed a GPU down; only those that it did.
    notes
        What a reader must know.
    """

    fitted: dict[str, Fitted]
    records: list[str]
    virtual: bool
    slowed_from_c: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def check_output(folder: Path) -> None:
    """Raise an `OutputError` if the folder holds something else than a study, which would be mixed up with it."""
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir()) and not (folder / DESCRIPTION).is_file()):
        raise OutputError(f"{folder}: contains other files. Choose an empty --output, or that of an earlier fit.")


def save_study(study: Study, folder: Path) -> None:
    """Write a study; its description last, so that there is none of arrays that are missing.

    Raises
    ------
    OutputError
        If it cannot be written.
    """
    described: dict[str, Any] = {}
    for name, fitted in study.fitted.items():
        state, arrays = fitted.model.state()
        if arrays:
            buffer = io.BytesIO()
            np.savez(buffer, allow_pickle=False, **cast("dict[str, Any]", arrays))
            with written_aside(folder / f"arrays-{name}.npz") as aside:
                aside.write_bytes(buffer.getvalue())
        task = fitted.model.task
        described[name] = {
            "inputs": task.inputs, "load": task.load, "horizons_s": list(task.horizons_s), "step_s": task.step_s,
            "arrays": bool(arrays), "state": state,
            "intervals": None if fitted.intervals is None else fitted.intervals.to_json(),
        }  # fmt: skip
    content = {
        "format": FORMAT, "records": study.records, "virtual": study.virtual, "slowed_from_c": study.slowed_from_c,
        "notes": study.notes, "models": described,
    }  # fmt: skip
    write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", folder / DESCRIPTION)


def load_study(folder: Path, *, only: str | None = None) -> Study:
    """Read a study, or one model of it.

    Raises
    ------
    DataFileError
        If there is none, it lacks the model, or it is not what `save_study` wrote.
    """
    path = folder / DESCRIPTION
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        _check_format(content)
        models = content["models"]
        if only is not None and only not in models:
            raise DataFileError(
                f"{path}: has no model {only!r}; it has {', '.join(models)}. Fit it with --model {only}."
            )
        fitted = {name: _fitted(folder, name, one) for name, one in models.items() if only in (None, name)}
        return Study(
            fitted, [str(name) for name in content["records"]], bool(content["virtual"]),
            {str(uuid): float(value) for uuid, value in content["slowed_from_c"].items()},
            [str(note) for note in content["notes"]],
        )  # fmt: skip
    except FileNotFoundError as error:
        missing = Path(str(error.filename))
        raise DataFileError(
            f"{missing}: no such file. Run `clockwatt thermal fit RECORD --output {folder}` first."
        ) from None
    except (OSError, EOFError, zipfile.BadZipFile, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataFileError(
            f"{path}: not a fit of this version of clockwatt ({error}). Run `clockwatt thermal fit` again."
        ) from error


def _check_format(content: dict[str, Any]) -> None:
    if content["format"] != FORMAT:
        raise ValueError(f"format {content['format']}, not {FORMAT}")


def _fitted(folder: Path, name: str, described: dict[str, Any]) -> Fitted:
    if described["inputs"] not in INPUTS or described["load"] not in LOADS:
        raise ValueError(f"model {name!r} takes unknown inputs")
    horizons = tuple(float(horizon) for horizon in described["horizons_s"])
    step_s = float(described["step_s"])
    if not horizons or not step_s > 0 or not all(horizon > 0 for horizon in horizons):
        raise ValueError(f"model {name!r} has an impossible horizon")
    task = Task(cast("Inputs", described["inputs"]), cast("Load", described["load"]), horizons, step_s)
    arrays: dict[str, NDArray[Any]] = {}
    if described["arrays"]:
        with np.load(folder / f"arrays-{name}.npz", allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive.files}
    model = MODELS[name](task).restore(described["state"], arrays)
    intervals = described["intervals"]
    return Fitted(model, None if intervals is None else Intervals.from_json(intervals, len(horizons)))
