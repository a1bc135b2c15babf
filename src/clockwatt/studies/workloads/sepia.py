"""Pictures tinted in sepia: a small matrix for each pixel, bytes in and bytes out."""

from __future__ import annotations

import sys

import torch

from clockwatt.studies.workloads.inputs import Array, Size
from clockwatt.studies.workloads.session import Figures, Session, Workload, main

TINT = ((0.393, 0.769, 0.189), (0.349, 0.686, 0.168), (0.272, 0.534, 0.131))
"""Red, green and blue of the result (rows) from those of a picture (columns)."""


def sepia(pictures: torch.Tensor) -> torch.Tensor:
    """Tint pictures; bytes of shape (pictures, 3, height, width) give the same."""
    tint = torch.tensor(TINT, device=pictures.device)
    mixed = torch.einsum("oc,pchw->pohw", tint, pictures.float())
    return mixed.round().clamp(max=255).to(torch.uint8)


def run(session: Session) -> Figures:
    """Tint all pictures repeatedly."""
    size = session.size
    shape = size("pictures"), 3, size("height"), size("width")
    made = session.array("pictures", lambda: session.indices(0, 256, *shape).to(torch.uint8))
    (pictures,) = session.to_device(made)
    tinted = pictures
    for _ in session.steps(range(size("iterations"))):
        tinted = sepia(pictures)
    red, green, blue = tinted.float().mean((0, 2, 3)).tolist()
    return {"mean_red": red, "mean_green": green, "mean_blue": blue}


WORKLOAD = Workload(
    name="sepia", title="Pictures tinted in sepia.",
    sizes=(
        Size("pictures", 16, "at a time", scaled=False),
        Size("height", 1_080, "of a picture, in pixels", least=4),
        Size("width", 1_920, "of a picture, in pixels", least=4),
        Size("iterations", 2_000, "how often", scaled=False),
    ),
    arrays=(Array("pictures", ("pictures", 3, "height", "width"), "image"),),
    run=run,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(WORKLOAD))
