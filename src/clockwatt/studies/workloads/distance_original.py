"""Euclidean distances between the rows of two matrices that are made anew for each step and copied."""

from __future__ import annotations

import sys

from clockwatt.studies.workloads.distance import row_distances
from clockwatt.studies.workloads.inputs import Array, Size
from clockwatt.studies.workloads.session import Figures, Session, Workload, main


def run(session: Session) -> Figures:
    """Compute the distances of each step's own matrices."""
    side = session.size("size")
    mean = 0.0
    for _ in session.steps(range(session.size("iterations"))):
        left, right = session.to_device(
            session.array("left", lambda: session.normal(side, side), anew=True),
            session.array("right", lambda: session.normal(side, side), anew=True),
        )
        mean = float(row_distances(left, right).mean())
    return {"mean_distance": mean}


WORKLOAD = Workload(
    name="distance_original", title="Distances between the rows of two new matrices a step, as in the study.",
    sizes=(
        Size("size", 10_000, "rows and columns of each matrix", least=2),
        Size("iterations", 20, "how often", scaled=False),
    ),
    arrays=(Array("left", ("size", "size")), Array("right", ("size", "size"))),
    run=run,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(WORKLOAD))
