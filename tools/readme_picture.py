"""The picture of the README: energy of networks on a real H200, measured, summed, composed, predicted.

`python tools/readme_picture.py RESULTS` makes `docs/images/energy-h200.png`; its campaign has `reference: [h200]`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg

from clockwatt import config
from clockwatt.figures import draw, networks, style
from clockwatt.figures.gpus import Gpu, Gpus

PICTURE = Path("docs/images/energy-h200.png")
GPU, INPUT = "h200", "-32x3x224x224-float32"


def main(results: Path) -> None:
    """Draw the networks at batch 32, float32 with TF32."""
    read = draw.Results(
        config.load(results / "config.yaml"),
        *(results / name for name in ("measurements", "dataset", "predictors", "validation")),
    )
    data = networks.costs(read.compositions, read.whole_errors, read.sum_errors, "energy_j", "inference")
    shown = data[(data["gpu"] == GPU) & (data["execution"] == "tf32") & data["network_id"].str.endswith(INPUT)]
    if shown.empty:
        sys.exit(
            f"error: {results}: no network was measured whole on the H200. Its campaign needs `reference: [h200]`."
        )
    with style.styled():
        figure = networks.draw(shown, Gpus([Gpu(GPU, virtual=False)]), "energy_j")
        style.settle(figure)
        FigureCanvasAgg(figure).print_png(PICTURE, metadata={"Software": None})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
