"""Domain of the training data, and detection of operations outside it.

Within a class, the distance between operations is that of the logarithms of their FLOPs and bytes. An operation is
outside if its distance to the nearest measured operation is larger than that of any measured operation to its nearest
neighbour, and at least a factor of two. Trees cannot extrapolate there. Of a class that was never measured, a predictor
knows the sizes of the tensors alone: `Domain.ignorance` bounds how far its cost can be from what they imply.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from clockwatt.io import files
from clockwatt.predict.features import OPERATION_CLASS, read_operation

DOMAIN_SCHEMA = pa.schema(
    [
        pa.field("operation_class", pa.string()),
        pa.field("dtype", pa.string()),
        pa.field("log_flops", pa.float64()),
        pa.field("log_bytes", pa.float64()),
        pa.field("described", pa.string()),  # in words, for messages
        pa.field("limit", pa.float64()),  # distance from which on an operation of this class lies outside
    ],
    metadata={"kind": "domain"},
)
"""One operation of the training data."""

_AT_LEAST = 1.0
"""Shortest distance that counts as outside, in log2: a factor of two."""

_COORDINATES = ["log_flops", "log_bytes"]


MATTERS = 0.01
"""Share of an answer from which on an operation outside causes a warning."""
_UNKNOWN_CLASS, _UNKNOWN_DTYPE = 10.0, 3.0
"""Possible ratio of actual to predicted cost in a class, and in a dtype, without measurements."""

SORTS = frozenset(
    {
        *("sort", "argsort", "msort", "topk", "kthvalue", "median", "nanmedian", "mode", "quantile", "nanquantile"),
        *("unique", "unique_consecutive", "searchsorted", "bucketize", "histc", "histogram", "bincount"),
    }
)
DECOMPOSITIONS = frozenset(
    {
        *("svd", "svdvals", "svd_lowrank", "pca_lowrank", "eig", "eigh", "eigvals", "eigvalsh", "lobpcg", "qr"),
        *("inv", "inv_ex", "inverse", "pinv", "tensorinv", "det", "slogdet", "logdet", "cond", "matrix_rank"),
        *(
            "matrix_norm",
            "matrix_exp",
            "matrix_power",
            "cholesky",
            "cholesky_ex",
            "cholesky_inverse",
            "lu",
            "lu_factor",
        ),
        *("lu_factor_ex", "ldl_factor", "ldl_factor_ex", "geqrf", "ormqr", "householder_product", "solve"),
        *(
            "solve_ex",
            "solve_triangular",
            "triangular_solve",
            "cholesky_solve",
            "lu_solve",
            "ldl_solve",
            "tensorsolve",
            "lstsq",
        ),
        *("cdist", "pdist"),
    }
)
ALGORITHMS = SORTS | DECOMPOSITIONS
"""Classes that take many passes over their tensors, so that sizes do not bound the cost."""
_SORTED_S, _COMPUTED_S, _COLUMN_S = 1e-9, 1e-9, 1e-4
"""Longest time of such a class on a GPU: of an element sorted, a term of a decomposition, and a column of it."""


@dataclass(frozen=True)
class Outside:
    """Operations outside the training data: a sentence, their rows of the features, and their class.

    `name` is empty where it is their dtype that was not measured.
    `ratio` is the possible ratio of the actual to the given share in an answer; `ALGORITHMS` are given at their most.
    """

    text: str
    rows: NDArray[np.intp]
    ratio: float = 1.0
    name: str = ""

    def matters(self, share: float) -> bool:
        """Return whether operations of this share in an answer can change it by more than 1 %."""
        return share * self.ratio > MATTERS


@dataclass(frozen=True)
class Ignorance:
    """How far the costs of operations can be from the predicted ones.

    Attributes
    ----------
    ratio
        Largest ratio of the two; 1 where the interval of the predictor holds; shape (operations,).
    longest_s
        Time that a sort or a decomposition can take beyond that; zero for others; shape (operations,).
    """

    ratio: NDArray[np.float64]
    longest_s: NDArray[np.float64]


@dataclass(frozen=True)
class Domain:
    """Operations of the training data, with the columns of `DOMAIN_SCHEMA`, sorted."""

    measured: pd.DataFrame

    @classmethod
    def of(cls, features: pd.DataFrame, operations: pd.DataFrame) -> Domain:
        """Make it from features of the training operations and the catalogue (`operation_id`, `spec`, `dtype`)."""
        catalogue = operations.set_index("operation_id").loc[features.index]
        columns = features[[OPERATION_CLASS, *_COORDINATES]].assign(
            dtype=catalogue["dtype"], described=catalogue["spec"].map(described)
        )
        limits = {name: _limit(group) for name, group in columns.groupby(OPERATION_CLASS)}
        columns["limit"] = columns[OPERATION_CLASS].map(limits)
        ordered = columns[DOMAIN_SCHEMA.names].sort_values(DOMAIN_SCHEMA.names)
        # one operation per position suffices
        return cls(ordered.drop_duplicates([OPERATION_CLASS, "dtype", *_COORDINATES], ignore_index=True))

    @classmethod
    def read(cls, path: Path) -> Domain:
        """Read what `write` wrote; DataFileError if it is missing, damaged or of another kind."""
        return cls(files.read_table(path, DOMAIN_SCHEMA).to_pandas())

    def write(self, path: Path) -> None:
        """Write the domain as Parquet; OutputError if it cannot be written."""
        files.write_table(pa.Table.from_pandas(self.measured, DOMAIN_SCHEMA, preserve_index=False), path)

    def outside(self, features: pd.DataFrame, operations: pd.DataFrame) -> list[Outside]:
        """Find the operations outside the training data, class by class.

        Parameters
        ----------
        features
            From `features.operation_features`.
        operations
            The same operations' rows of the catalogue, `spec` and `dtype`, with the same index.
        """
        dtypes = operations["dtype"].to_numpy(object)
        found = [
            Outside(f"Nothing was measured in {dtype}.", np.flatnonzero(dtypes == dtype))
            for dtype in sorted(set(dtypes) - self.dtypes)
        ]
        classes = features[OPERATION_CLASS].to_numpy(object)
        points = features[_COORDINATES].to_numpy(float)
        for name in sorted(set(classes)):
            rows = np.flatnonzero(classes == name)
            measured = self._of_class.get(name)
            if measured is None:
                are = "is" if rows.size == 1 else "are"
                text = f"No {name} was measured: {rows.size} {are} predicted from other operations."
                found.append(Outside(text, rows, 1.0 if name in ALGORITHMS else _UNKNOWN_CLASS, name))
                continue
            coordinates, limit = measured
            flops, bytes_ = (np.abs(np.subtract.outer(points[rows, at], coordinates[:, at])) for at in (0, 1))
            distances = np.maximum(flops, bytes_)
            nearest = distances.min(axis=1)
            far = np.flatnonzero(nearest > limit)
            if far.size:
                worst = far[nearest[far].argmax()]
                farthest = described(str(operations["spec"].loc[features.index[rows[worst]]]))
                neighbour = self._described(name, int(distances[worst].argmin()))
                text = (
                    f"{far.size} of {rows.size} {name} lie outside the training data; the farthest, {farthest}, is an "
                    f"extrapolation by a factor of {2 ** nearest[worst]:.1f} in FLOPs or bytes from {neighbour}."
                )
                found.append(Outside(text, rows[far], name=name))
        return found

    def ignorance(self, operations: pd.DataFrame) -> Ignorance:
        """Return the ignorance of operations, given by the catalogue's `operation_class`, `spec` and `dtype`."""
        classes = operations[OPERATION_CLASS]
        new_class, new_dtype = ~classes.isin(self._of_class.keys()), ~operations["dtype"].isin(self.dtypes)
        ratio = np.where(new_class, _UNKNOWN_CLASS, np.where(new_dtype, _UNKNOWN_DTYPE, 1.0))
        longest_s = np.zeros(len(ratio))
        for row in np.flatnonzero(new_class & classes.isin(ALGORITHMS)):
            longest_s[row] = _longest_s(str(operations["spec"].iloc[row]))
        return Ignorance(ratio, longest_s)

    @functools.cached_property
    def dtypes(self) -> set[str]:
        """Dtypes of the training data."""
        return set(self.measured["dtype"].unique())

    @functools.cached_property
    def _of_class(self) -> dict[str, tuple[NDArray[np.float64], float]]:
        """Class to the positions of its operations, and the largest distance that is inside."""
        points, limits = self.measured[_COORDINATES].to_numpy(float), self.measured["limit"].to_numpy(float)
        of_class = self.measured.groupby(OPERATION_CLASS).indices
        return {str(name): (points[rows], float(limits[rows[0]])) for name, rows in of_class.items()}

    def _described(self, name: str, number: int) -> str:
        of_class = self.measured.loc[self.measured[OPERATION_CLASS] == name, "described"]
        return str(of_class.iloc[number])


def _longest_s(spec: str) -> float:
    """Return the longest plausible time of an operation of `ALGORITHMS`."""
    operation = read_operation(spec)
    shapes = [(1, 1, *tensor.shape) for tensor in operation.tensors]
    if operation.operation_class in SORTS:
        return _SORTED_S * max((math.prod(shape) for shape in shapes), default=0)
    columns = max((max(shape[-2:]) for shape in shapes), default=1)
    return _COMPUTED_S * max((math.prod(shape) for shape in shapes), default=0) * columns + _COLUMN_S * columns


@functools.cache
def described(spec: str) -> str:
    """Return a readable name: `conv2d 32×3×224×224 · 64×3×7×7`."""
    operation = read_operation(spec)
    shapes = ["×".join(map(str, tensor.shape)) or "scalar" for tensor in operation.tensors[:2]]
    return f"{operation.operation_class} {' · '.join(shapes)}".strip()


def _limit(measured: pd.DataFrame) -> float:
    """Return the largest distance of a measured operation of the class to its nearest neighbour."""
    points = np.unique(measured[_COORDINATES].to_numpy(float), axis=0)
    if len(points) < 2:
        return _AT_LEAST
    from scipy.spatial import cKDTree  # here, because answers need no scipy

    nearest, _ = cKDTree(points).query(points, k=[2], p=np.inf)  # the nearest of all is the point itself
    return max(_AT_LEAST, float(nearest.max()))
