"""Load the training data of the networks: a user's folder, or generated data of the same shapes."""

from __future__ import annotations

import gzip
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clockwatt.errors import DataFileError
from clockwatt.studies.power.cinc17 import recordings
from clockwatt.studies.power.tasks import Task

MADE = "made"
_DISTINCT = 2048
"""Examples that are made; an epoch of more goes through them again, since their values cost nothing."""

_IDX_BYTES = 0x08
"""Type of unsigned bytes in the header of MNIST's own files."""


@dataclass(frozen=True)
class Examples:
    """Examples and their labels.

    Attributes
    ----------
    x
        float32 of shape (n, *shape of an example); of a file it may be mapped, not read. Or n recordings of shape
        (1, length), those of like length beside each other.
    y
        int64 of shape (n,), in [0, classes).
    count
        Examples of an epoch; more than n where they come again.
    source
        `made`, or the folder.
    """

    x: NDArray[Any] | list[NDArray[np.float32]]
    y: NDArray[np.int64]
    count: int
    source: str


def examples(task: Task, folder: Path | None, count: int, batch: int, seed: int) -> Examples:
    """Read a folder, or make data of the right shapes.

    Parameters
    ----------
    task
        Whose data.
    folder
        With `x.npy` and `y.npy`, or the own files of MNIST or CinC17; None: the data is made.
    count
        Examples of an epoch of made data.
    batch
        Examples of a training step; recordings of different lengths are sorted for it.
    seed
        The seed of made data.

    Raises
    ------
    DataFileError
        If the folder lacks a file or examples for a batch, or a file is not what it should be.
    """
    if folder is None:
        return _made(task, count, seed)
    if not folder.is_dir():
        raise DataFileError(f"{folder}: is no folder. Give one with the data, or none to have data made.")
    if task.kind == "cinc17" and not (folder / "x.npy").exists():
        signals, labels = recordings(folder, batch, seed)
        return Examples(signals, labels, len(labels), str(folder))
    if task.kind == "mnist" and not (folder / "x.npy").exists():
        x, y = _idx(_idx_file(folder, "train-images-idx3-ubyte")), _idx(_idx_file(folder, "train-labels-idx1-ubyte"))
        x = (x.reshape(len(x), -1) / np.float32(255)).astype(np.float32)
    else:
        x, y = _npy(folder / "x.npy"), _npy(folder / "y.npy")
    _check(task, folder, x, y)
    if len(y) < batch:
        raise DataFileError(f"{folder}: holds {len(y)} examples; a batch has {batch}. Give a smaller --batch.")
    return Examples(x, y.astype(np.int64), len(x), str(folder))


def batch_of(x: NDArray[Any] | list[NDArray[np.float32]]) -> NDArray[np.float32]:
    """Return examples as one array of their own; shorter recordings end with zeros."""
    if not isinstance(x, list):
        return np.array(x, np.float32)  # copied: what is mapped from a file may not be written to
    batch = np.zeros((len(x), 1, max(one.shape[1] for one in x)), np.float32)
    for row, recording in zip(batch, x, strict=True):
        row[:, : recording.shape[1]] = recording
    return batch


def _made(task: Task, count: int, seed: int) -> Examples:
    rng = np.random.default_rng(seed)
    distinct = min(count, _DISTINCT)
    y = rng.integers(task.classes, size=distinct)
    x = rng.standard_normal((distinct, *task.shape), dtype=np.float32)
    x += y.reshape(-1, *[1] * len(task.shape)).astype(np.float32) / task.classes  # so that there is something to learn
    return Examples(x, y, count, MADE)


def _check(task: Task, folder: Path, x: NDArray[Any], y: NDArray[Any]) -> None:
    if x.shape[1:] != task.shape or not np.issubdtype(x.dtype, np.floating):
        shape = ", ".join(map(str, task.shape))
        raise DataFileError(
            f"{folder}: x holds {x.dtype} of shape {list(x.shape)}; {task.name} takes float [n, {shape}]."
        )
    if y.shape != x.shape[:1] or not np.issubdtype(y.dtype, np.integer):
        raise DataFileError(f"{folder}: y holds {y.dtype} of shape {list(y.shape)}; it needs {len(x)} whole numbers.")
    if y.min() < 0 or y.max() >= task.classes:
        raise DataFileError(
            f"{folder}: y holds labels from {y.min()} to {y.max()}; {task.name} has 0 to {task.classes - 1}."
        )


def _npy(path: Path) -> NDArray[Any]:
    try:
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except FileNotFoundError:
        raise DataFileError(f"{path}: no such file.") from None
    except (OSError, ValueError, EOFError) as error:
        raise DataFileError(f"{path}: is no array of numbers as numpy.save writes it ({error}).") from error


def _idx_file(folder: Path, name: str) -> Path:
    found = [path for path in (folder / name, folder / f"{name}.gz") if path.exists()]
    if not found:
        raise DataFileError(f"{folder}: has neither x.npy nor {name}[.gz].")
    return found[0]


def _idx(path: Path) -> NDArray[np.uint8]:
    """Return an array of bytes in the format of MNIST's own files: 0, 0, type, rank, sizes of 4 bytes, values."""
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError) as error:
        raise DataFileError(f"{path}: cannot be read ({error}).") from error
    rank = content[3] if len(content) > 3 else 0
    if content[:3] != bytes([0, 0, _IDX_BYTES]) or len(content) < 4 + 4 * rank:
        raise DataFileError(f"{path}: is no file of MNIST's format.")
    shape = [int(size) for size in np.frombuffer(content, ">i4", rank, 4)]
    if len(content) - 4 - 4 * rank != math.prod(shape):
        raise DataFileError(f"{path}: should hold {math.prod(shape)} values and holds {len(content) - 4 - 4 * rank}.")
    return np.frombuffer(content, np.uint8, -1, 4 + 4 * rank).reshape(shape)
