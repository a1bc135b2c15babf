"""How well networks composed from their operations agree with the same networks measured whole, on shipped H200 data.

    python benchmarks/composition.py [--output-dir DIR]

Runs the stages `dataset`, `fit`, `validate` and `figures` on `resources/reference/h200`; needs no GPU.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import pandas as pd

from clockwatt import config
from clockwatt.dataset.build import build_dataset
from clockwatt.figures.draw import draw_figures
from clockwatt.predict.fit import fit
from clockwatt.predict.validate import validate
from clockwatt.resources import resource


def main() -> None:
    """Run the stages and print the errors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output-dir", type=Path)
    output_dir: Path | None = parser.parse_args().output_dir
    if output_dir is not None:
        run(output_dir)
        return
    with tempfile.TemporaryDirectory() as folder:
        run(Path(folder))


def run(folder: Path) -> None:
    """Run the stages in `folder`."""
    reference = resource("reference/h200")
    campaign = config.load(reference / "config.yaml")
    catalogue = reference / "catalogue"
    dataset, predictors, validation = (folder / name for name in ("dataset", "predictors", "validation"))
    build_dataset(campaign, reference / "measurements", catalogue, dataset)
    fit(campaign, dataset, catalogue, predictors)
    validate(campaign, dataset, catalogue, predictors, validation)
    draw_figures(campaign, dataset, predictors, validation, folder / "figures")
    report(pd.read_parquet(validation / "networks.parquet"))


def report(rows: pd.DataFrame) -> None:
    """Print the errors of every composition."""
    print(f"{'network':20} {'pass':10} {'operations':10} {'time':>8} {'energy':>8} {'plain sum':>10}")
    for row in rows.sort_values(["source", "pass", "network"]).itertuples():
        errors = (
            row.time_s / row.measured_time_s - 1,
            row.energy_j / row.measured_energy_j - 1,
            row.plain_time_s / row.measured_time_s - 1,
        )
        time, energy, plain = (f"{error:+.1%}" for error in errors)
        print(f"{row.network:20} {rows.loc[row.Index, 'pass']:10} {row.source:10} {time:>8} {energy:>8} {plain:>10}")


if __name__ == "__main__":
    main()
