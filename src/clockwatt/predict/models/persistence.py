"""Fitted predictors on disk: plain arrays and JSON text in one .npz file. Loading one never runs code from it."""

from __future__ import annotations

import io
import json
import math
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clockwatt.errors import DataFileError
from clockwatt.io.files import written_aside
from clockwatt.predict.models.neural_ensemble import MalformedPerceptronsError, Perceptrons
from clockwatt.predict.models.predictors import PREDICTORS, TARGETS, CostPredictor
from clockwatt.predict.models.trees import MalformedTreesError, Trees
from clockwatt.schema.costs import TIME_DEVICE_CORRECTED

FORMAT = 3
_DESCRIPTION = "description"
_MOST_BYTES = 2_000_000_000
_DAMAGED = (
    OSError, EOFError, zipfile.BadZipFile, zlib.error, ValueError, KeyError, TypeError, AttributeError, MemoryError,
    RuntimeError,
)  # fmt: skip
"""Exceptions from reading a file that `save_predictor` did not write."""
_FITTED = ("targets_", "columns_", "classes_", "scales_")


def save_predictor(predictor: CostPredictor, path: Path) -> None:
    """Write a fitted predictor; the same predictor gives the same bytes.

    OutputError if it cannot be written.
    """
    (name,) = (name for name, kind in PREDICTORS.items() if type(predictor) is kind)
    description = {
        "format": FORMAT,
        "predictor": name,
        "parameters": predictor.get_params(),
        **{attribute: getattr(predictor, attribute) for attribute in _FITTED},
    }
    text = np.frombuffer(json.dumps(description, sort_keys=True).encode(), dtype=np.uint8)
    arrays = predictor.trees_.arrays()
    if predictor.perceptrons_ is not None:
        arrays |= predictor.perceptrons_.arrays()
    buffer = io.BytesIO()
    # not compressed: loading would take longer in each answer
    np.savez(buffer, allow_pickle=False, **{_DESCRIPTION: text, **arrays})
    with written_aside(path) as aside:
        aside.write_bytes(buffer.getvalue())


def load_predictor(path: Path) -> CostPredictor:
    """Read a fitted predictor.

    DataFileError if the file is missing, or is not a predictor that `save_predictor` wrote; nothing in it is ever
    executed.
    """
    try:
        return _predictor(_read(path))
    except FileNotFoundError:
        raise DataFileError(f"{path}: no such file. Run `clockwatt fit` first.") from None
    except _DAMAGED as error:
        raise DataFileError(
            f"{path}: not a predictor of this version of clockwatt ({error}). Delete it and run `clockwatt fit` again."
        ) from error


def _read(path: Path) -> dict[str, NDArray[Any]]:
    """Read the arrays of an untrusted file; refuse any larger than a predictor's."""
    with zipfile.ZipFile(path) as archive:
        if sum(member.file_size for member in archive.infolist()) > _MOST_BYTES:
            raise ValueError(f"more than {_MOST_BYTES:,} bytes")
        # read whole before parsing, so that zipfile checks the checksum, which NumPy alone does not
        contents = {name.removesuffix(".npy"): io.BytesIO(archive.read(name)) for name in archive.namelist()}
    return {name: np.lib.format.read_array(content, allow_pickle=False) for name, content in contents.items()}


def _predictor(arrays: dict[str, NDArray[Any]]) -> CostPredictor:
    description = json.loads(arrays[_DESCRIPTION].tobytes())
    if description["format"] != FORMAT:
        raise ValueError(f"format {description['format']}, not {FORMAT}")
    predictor = PREDICTORS[description["predictor"]](**description["parameters"])
    for attribute in _FITTED:
        setattr(predictor, attribute, description[attribute])
    _check(predictor)
    features = len(predictor.columns_) + len(predictor.classes_)
    predictor.trees_ = Trees.from_arrays(arrays, features=features)
    if predictor.trees_.value.shape[1] != len(predictor.targets_):
        raise MalformedTreesError("the trees give another number of targets")
    perceptrons = Perceptrons.from_arrays(arrays, features=features)
    if perceptrons is not None:
        if not predictor.takes_perceptrons or TIME_DEVICE_CORRECTED not in predictor.targets_:
            raise MalformedPerceptronsError("there is no device time that perceptrons could tell")
        predictor.perceptrons_ = perceptrons
    return predictor


def _check(predictor: CostPredictor) -> None:
    for names in (predictor.targets_, predictor.columns_, predictor.classes_):
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise TypeError("a list of names is something else")
    targets = predictor.targets_
    if not targets or not set(targets) <= set(TARGETS) or len(set(targets)) < len(targets):
        raise ValueError(f"targets {targets}")
    scales = predictor.scales_
    if not isinstance(scales, dict) or not all(isinstance(value, float) for value in scales.values()):
        raise TypeError("scales are not numbers")
    if not all(math.isfinite(value) and value > 0 for value in scales.values()):
        raise ValueError("a scale is no number above 0")
