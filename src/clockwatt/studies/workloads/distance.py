"""Euclidean distances between the rows of two matrices, √Σ(A − B)²: bound by memory."""

from __future__ import annotations

import sys

import torch

from clockwatt.studies.workloads.inputs import Array, Size
from clockwatt.studies.workloads.session import Figures, Session, Workload, main


def row_distances(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return √Σ(A − B)² of each pair of rows; matrices of shape (rows, columns) give (rows,)."""
    return (left - right).square().sum(1).sqrt()


def run(session: Session) -> Figures:
    """Compute the distances repeatedly."""
    shape = session.size("rows"), session.size("columns")
    left, right = session.to_device(
        session.array("left", lambda: session.normal(*shape)), session.array("right", lambda: session.normal(*shape))
    )
    distances = left[:, 0]
    for _ in session.steps(range(session.size("iterations"))):
        distances = row_distances(left, right)
    return {"mean_distance": float(distances.mean())}


WORKLOAD = Workload(
    name="distance", title="Euclidean distances between the rows of two matrices.",
    sizes=(
        Size("rows", 1_000_000, "of each matrix"),
        Size("columns", 128, "of each matrix", scaled=False),
        Size("iterations", 1_000, "how often", scaled=False),
    ),
    arrays=(Array("left", ("rows", "columns")), Array("right", ("rows", "columns"))),
    run=run,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(WORKLOAD))
