"""Clusters of points by Lloyd's algorithm: a matrix product, a minimum and a scattered sum in turn."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import torch

from clockwatt.studies.workloads.inputs import Array, Size
from clockwatt.studies.workloads.session import Figures, Session, Workload, main


def assigned(points: torch.Tensor, centres: torch.Tensor) -> torch.Tensor:
    """Return the nearest centre of each point: shapes (points, columns) and (clusters, columns) to (points,)."""
    # |p|² is the same for all centres of a point, and left out
    return (centres.square().sum(1) - 2 * points @ centres.T).argmin(1)


def moved(points: torch.Tensor, centres: torch.Tensor, nearest: torch.Tensor) -> torch.Tensor:
    """Return means of the points of each cluster; a centre without points stays where it is."""
    sums = torch.zeros_like(centres).index_add_(0, nearest, points)
    counts = torch.bincount(nearest, minlength=len(centres))[:, None]
    return torch.where(counts > 0, sums / counts.clamp(min=1), centres)


def iterations(points: torch.Tensor, centres: torch.Tensor, count: int) -> Iterator[torch.Tensor]:
    """Yield centres after each of so many iterations."""
    for _ in range(count):
        centres = moved(points, centres, assigned(points, centres))
        yield centres


def run(session: Session) -> Figures:
    """Run all iterations, from points that were drawn as centres."""
    size = session.size
    made = session.array("points", lambda: session.normal(size("points"), size("columns")))
    (points,) = session.to_device(made)
    clusters = min(size("clusters"), len(points))
    first = torch.randperm(len(points), generator=session.generator)[:clusters].to(session.device)
    centres = points[first]
    for _ in session.steps(range(size("iterations"))):
        (centres,) = iterations(points, centres, 1)
    apart = points - centres[assigned(points, centres)]
    return {"mean_square_distance": float(apart.square().sum(1).mean())}


WORKLOAD = Workload(
    name="kmeans", title="Clusters of points by Lloyd's algorithm.",
    sizes=(
        Size("points", 1_000_000, "to sort into clusters", least=2),
        Size("columns", 32, "of a point", scaled=False),
        Size("clusters", 100, "that are found", scaled=False),
        Size("iterations", 500, "of the algorithm", scaled=False),
    ),
    arrays=(Array("points", ("points", "columns")),),
    run=run,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(WORKLOAD))
