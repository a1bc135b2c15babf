"""Products of two large matrices, made on the host and copied: a GPU that works in bursts and waits for its host."""

from __future__ import annotations

import sys

import torch

import clockwatt
from clockwatt.studies.workloads.inputs import Array, Size
from clockwatt.studies.workloads.session import Figures, Session, Workload, main


def relative_residual(left: torch.Tensor, right: torch.Tensor, product: torch.Tensor) -> float:
    """Return how far a product is from that of its factors, by Freivalds' check with a vector of ones; 0 is exact."""
    ones = torch.ones(right.shape[1], 1, dtype=torch.float64, device=right.device)
    expected = left.double() @ (right.double() @ ones)
    return float(torch.linalg.norm(product.double() @ ones - expected) / torch.linalg.norm(expected))


def run(session: Session) -> Figures:
    """Run a cycle: all products, each of matrices of its own."""
    side = session.size("size")
    residual = 0.0
    for number in session.steps(range(session.size("products")), "product"):
        left, right = session.to_device(
            session.array("left", lambda: session.normal(side, side), anew=True),
            session.array("right", lambda: session.normal(side, side), anew=True),
        )
        with clockwatt.phase("multiply", number):
            product = left @ right
            session.synchronize()
        if number == 0:
            residual = relative_residual(left[:256], right, product[:256])
    return {"relative_residual": residual}


WORKLOAD = Workload(
    name="matmul", title="Products of two square matrices that are made on the host and copied to the device.",
    sizes=(
        Size("size", 10_000, "rows and columns of each matrix", least=8),
        Size("products", 20, "of each cycle", scaled=False),
    ),
    arrays=(Array("left", ("size", "size")), Array("right", ("size", "size"))),
    run=run, cycles=3, rest_to_c=30.0,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(WORKLOAD))
