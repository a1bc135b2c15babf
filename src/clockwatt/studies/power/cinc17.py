"""Read the recordings of the PhysioNet/CinC challenge 2017: one lead, 300 samples a second, 9 to 61 s each."""

from __future__ import annotations

import csv
import random
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clockwatt.errors import DataFileError

CLASSES = ("N", "A", "O", "~")
"""Normal rhythm, atrial fibrillation, other rhythm, too noisy: labels 0 to 3."""

REFERENCE = "REFERENCE.csv"


def recordings(folder: Path, batch: int, seed: int) -> tuple[list[NDArray[np.float32]], NDArray[np.int64]]:
    """Read the recordings that `REFERENCE.csv` names, each with mean 0 and deviation 1.

    Recordings of like length are put into one batch, so that little is padded; the order of the batches is random.

    Returns
    -------
    Recordings of shape (1, length), and their labels.

    Raises
    ------
    DataFileError
        If a file is missing or damaged, or there are fewer recordings than a batch has.
    """
    found = sorted(_read(folder), key=lambda one: one[0].shape[1])
    if len(found) < batch:
        raise DataFileError(
            f"{folder / REFERENCE}: names {len(found)} recordings; a batch has {batch}. Give a smaller --batch."
        )
    batches = [found[first : first + batch] for first in range(0, len(found) - len(found) % batch, batch)]
    random.Random(seed).shuffle(batches)  # noqa: S311, an order is no secret
    ordered = [one for of_batch in batches for one in of_batch] + found[len(batches) * batch :]
    return [signal for signal, _ in ordered], np.array([label for _, label in ordered], np.int64)


def _read(folder: Path) -> list[tuple[NDArray[np.float32], int]]:
    path = folder / REFERENCE
    try:
        rows = [row for row in csv.reader(path.read_text(encoding="utf-8").splitlines()) if row]
    except (OSError, UnicodeDecodeError) as error:
        raise DataFileError(f"{path}: cannot be read ({error}). Give the folder of CinC17's training set.") from error
    if wrong := [row for row in rows if len(row) != 2 or row[1] not in CLASSES]:
        raise DataFileError(
            f"{path}: {','.join(wrong[0])!r} is no name and one of {', '.join(CLASSES)}. Correct the row."
        )
    return [(_signal(folder / f"{name}.mat"), CLASSES.index(label)) for name, label in rows]


def _signal(path: Path) -> NDArray[np.float32]:
    from scipy.io.matlab import MatReadError, loadmat  # only for these files

    if not path.exists():
        raise DataFileError(f"{path}: no such file, but {REFERENCE} names it. Copy it there, or remove its row.")
    try:
        value: NDArray[Any] = loadmat(path)["val"]
        (signal,) = np.asarray(value, np.float32)
    except (OSError, MatReadError, KeyError, ValueError, TypeError, NotImplementedError) as error:
        raise DataFileError(f"{path}: holds no single lead `val` as files of CinC17 do ({error}).") from error
    return np.asarray((signal - signal.mean()) / max(signal.std(), 1e-6), np.float32)[None]
