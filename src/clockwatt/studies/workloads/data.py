"""A user's own data for a workload: `.npy` files of a folder, none of them pickled, each as it is declared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from clockwatt.errors import DataFileError
from clockwatt.studies.workloads.inputs import Array, Size

_KINDS = {"float": "f", "index": "iu", "image": "u"}


def read_arrays(
    declared_arrays: Sequence[Array], declared_sizes: Sequence[Size], folder: Path, sizes: Mapping[str, int]
) -> tuple[dict[str, torch.Tensor], dict[str, int]]:
    """Read the arrays of a workload from a folder.

    Parameters
    ----------
    declared_arrays, declared_sizes
        Arrays and sizes that the workload declares.
    folder
        With a file `NAME.npy` for each.
    sizes
        Values of the sizes. Lengths of the files stand in for those that shapes name.

    Returns
    -------
    arrays, sizes
        On the host, by name; and all sizes, with the lengths of the files.

    Raises
    ------
    DataFileError
        If a file is missing or holds something else.
    """
    if not folder.is_dir():
        raise DataFileError(f"--data {folder}: no such folder.")
    declared = {size.name: size for size in declared_sizes}
    arrays: dict[str, torch.Tensor] = {}
    found: dict[str, int] = {}
    for array in declared_arrays:
        path = folder / f"{array.name}.npy"
        values = _read(path, array)
        for name, length in zip(array.shape, values.shape, strict=True):
            if isinstance(name, str):
                declared[name].checked(length, str(path))
                if found.setdefault(name, length) != length:
                    raise DataFileError(f"{path}: {length:,} {name}, but another file has {found[name]:,}.")
        arrays[array.name] = torch.from_numpy(values)
    known = {**sizes, **found}
    for array in declared_arrays:
        if array.below is not None and int(arrays[array.name].max()) >= known[array.below]:
            largest = int(arrays[array.name].max())
            raise DataFileError(
                f"{folder / array.name}.npy: holds {largest:,}, but indices must be below {array.below}, which is "
                f"{known[array.below]:,}. Give another --{array.below.replace('_', '-')}."
            )
    return arrays, known


def _read(path: Path, array: Array) -> NDArray[np.generic]:
    """Return a file's numbers, of the dtype that the workload takes."""
    wanted = f"It must be {array.in_words.partition(', ')[2]}."
    try:
        values = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise DataFileError(f"{path}: no such file. {wanted}") from None
    except (OSError, ValueError, EOFError) as error:
        raise DataFileError(f"{path}: not an array of NumPy ({error}). {wanted}") from error
    if not isinstance(values, np.ndarray):
        raise DataFileError(f"{path}: holds several arrays. {wanted}")
    fits = values.ndim == len(array.shape) and all(
        isinstance(name, str) or length == name for name, length in zip(array.shape, values.shape, strict=True)
    )
    if not fits or values.dtype.kind not in _KINDS[array.kind] or (array.kind == "image" and values.dtype != np.uint8):
        shape = ", ".join(map(str, values.shape))
        raise DataFileError(f"{path}: holds {values.dtype} ({shape}). {wanted}")
    if not values.size:
        raise DataFileError(f"{path}: is empty. {wanted}")
    if array.kind == "float":
        values = values.astype(np.float32)
        if not np.isfinite(values).all():
            raise DataFileError(f"{path}: holds values that are not finite.")
    elif array.kind == "index":
        if int(values.min()) < 0:
            raise DataFileError(f"{path}: holds negative indices. {wanted}")
        values = values.astype(np.int64)
    return np.ascontiguousarray(values)
