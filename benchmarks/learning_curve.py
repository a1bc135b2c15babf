"""Error over the number of designed operations that are learnt from, drawn at random or chosen.

    python benchmarks/learning_curve.py [--references h200 h200-wide] [--trees 25] [--counts 0 500 …] [--figure FILE]

A fifth of the blocks of the shipped designed operations is left out and judged, always the same; what networks call is
learnt from throughout. Of the other blocks so many operations are learnt from: whole blocks at random, or chosen, half
by what the trees that know the half before disagree on, times the time it takes (`spread × time`, in rounds that double
what is known), half at random. Writes the median, mean and 90th percentile of the absolute error of the log of device
time over both passes, the error weighted by time, and a power law through the means; the figure shows the medians and
90th percentiles. Fits only; no GPU is needed.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import result_file
from matplotlib.backends.backend_agg import FigureCanvasAgg

from clockwatt import config
from clockwatt.dataset.build import join_sources
from clockwatt.dataset.reference import Source
from clockwatt.figures import style
from clockwatt.io.resources import resource
from clockwatt.predict.models.predictors import RooflinePredictor
from clockwatt.predict.models.training_data import TrainingData, gpus_in, read_samples, training_data

TARGET = "time_device_corrected_s"
JUDGED = 0.2


def main() -> None:
    """Write both curves."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--references", nargs="+", default=["h200", "h200-wide"], help="of one GPU")
    parser.add_argument("--trees", type=int, default=25)
    parser.add_argument("--counts", type=int, nargs="+", default=[0, 500, 1000, 2000, 4000, 8000, 13000])
    parser.add_argument("--figure", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        join_sources("learning curve", [source(name) for name in given.references], Path(folder))
        samples = read_samples(Path(folder), gpus_in(Path(folder))[0])
    found = [training_data(samples, pass_) for pass_ in ("inference", "training")]
    passes = [Blocks(data, given.trees) for data in found if data is not None]
    rows, notes = [], []
    table: dict[int, list[object]] = {}
    for way, chosen in (("at random", False), ("chosen, half by spread × time", True)):
        for count in given.counts:
            parts = [one.errors(count // len(passes), chosen=chosen) for one in passes]
            errors, seconds = (np.concatenate(values) for values in zip(*parts, strict=True))
            middle, most = np.quantile(errors, [0.5, 0.9])
            weighted = float(np.sum(errors * seconds) / seconds.sum())
            cells = " / ".join(f"{100 * error:.1f}" for error in (middle, errors.mean(), most))
            table.setdefault(count, [count]).append(f"{cells}; {100 * weighted:.1f} %")
            rows.append({"way": way, "count": count, "median": middle, "mean": errors.mean(), "90th": most})
            print(way, *table[count], flush=True)
        grown = [(np.log(row["count"]), np.log(row["mean"])) for row in rows if row["way"] == way and row["count"] > 0]
        if len(grown) > 1:
            slope, at_one = np.polyfit(*zip(*grown, strict=True), 1)
            at_most = np.exp(at_one + slope * np.log(100_000))
            notes.append(f"{way}: mean error ∝ count^{slope:.2f}, {at_most:.1%} at 100,000.")
    notes.append(
        f"{sum(one.most for one in passes):,} operations to train on, "
        f"{sum(one.judged for one in passes):,} held out; those that networks call are always trained on."
    )
    columns = ["operations trained on", "drawn at random: median / mean / 90th; weighted by time",
               "half chosen by spread × time"]  # fmt: skip
    result_file.write("learning-curve", "Device time of held-out blocks of designed operations", columns,
                      list(table.values()), notes=notes,
                      hardware=f"{', '.join(given.references)}, shipped data; computed without a GPU")  # fmt: skip
    if given.figure:
        draw(pd.DataFrame(rows), given.figure)


def source(name: str) -> Source:
    """Shipped reference data."""
    folder = resource(f"reference/{name}")
    return Source(config.load(folder / "config.yaml"), folder / "measurements", folder / "catalogue", name)


def draw(rows: pd.DataFrame, path: Path) -> None:
    """Errors over the number of operations, a colour for each way; none has no place on a logarithmic axis."""
    with style.styled():
        figure, ((axes,),) = style.panels(1, 1, height_in=2.6)
        entries = style.entries(list(rows["way"].unique()))
        for entry in entries:
            own = rows[(rows["way"] == entry.label) & (rows["count"] > 0)]
            for name, dashes in (("median", "-"), ("90th", ":")):
                axes.plot(own["count"], 100 * own[name], dashes, color=entry.colour, marker=entry.marker, markersize=3)
        style.log_axis(axes, "x", "", "designed operations learnt from")
        style.log_axis(axes, "y", "", "error of device time")
        style.percent(axes, "y", signed=False)
        style.legend(figure, entries, "")
        style.footer(figure, "Errors on operations left out: solid the median, dotted the 90th percentile.")
        style.settle(figure)
        FigureCanvasAgg(figure).print_png(path, metadata={"Software": None})


class Blocks:
    """One pass: what networks call, designed operations to learn from, and those that are judged."""

    def __init__(self, data: TrainingData, trees: int) -> None:
        self._data, self._trees = data, trees
        designed = data.designed & data.learnt
        names = pd.Series(data.groups.to_numpy()[designed]).drop_duplicates().to_numpy()
        order = np.random.default_rng(0).permutation(len(names))
        left_out = names[order[: int(JUDGED * len(names))]]
        place = pd.Series(np.arange(len(names)), index=names[order])
        self._place = data.groups.map(place).to_numpy(float)
        self._judged = designed & data.groups.isin(left_out).to_numpy(bool)
        self._pool = designed & ~self._judged
        self._base = data.learnt & ~designed

    @property
    def most(self) -> int:
        """How many designed operations there are to learn from."""
        return int(self._pool.sum())

    @property
    def judged(self) -> int:
        """How many are judged."""
        return int(self._judged.sum())

    def errors(self, count: int, *, chosen: bool) -> tuple[np.ndarray, np.ndarray]:
        """Absolute errors, in logs, of what is judged with so many operations learnt from, and their times."""
        known = self._chosen(count) if chosen else self._first(self._pool, count)
        said = self._fit(self._base | known).predict(self._data.features[self._judged])[TARGET].to_numpy(float)
        seconds = self._data.targets.loc[self._judged, TARGET].to_numpy(float)
        return np.abs(np.log(said / seconds)), seconds

    def _chosen(self, count: int) -> np.ndarray:
        """Half of it drawn, the rest in rounds that double what is known, half drawn, half by spread × time."""
        known = self._first(self._pool, count // 4)
        while (lacking := count - int(known.sum())) > 0 and (open_ := self._pool & ~known).any():
            batch = min(lacking, max(int(known.sum()), 100))
            features = self._data.features[open_]
            mean, spread = self._fit(self._base | known).predict_with_spread(features)
            worth = (mean[TARGET] * spread[TARGET]).to_numpy(float)
            best = np.flatnonzero(open_)[np.argsort(-worth)[: batch // 2]]
            known[best] = True
            known |= self._first(self._pool & ~known, batch - batch // 2)
        return known

    def _first(self, among: np.ndarray, count: int) -> np.ndarray:
        """Whole blocks in their random order, as many as have so many operations."""
        rows = np.flatnonzero(among)
        taken = np.zeros(len(among), dtype=bool)
        taken[rows[np.argsort(self._place[rows], kind="stable")][:count]] = True
        return taken

    def _fit(self, rows: np.ndarray) -> RooflinePredictor:
        predictor = RooflinePredictor(trees=self._trees, seed=0)
        return predictor.fit(self._data.features[rows], self._data.targets.loc[rows, [TARGET]])


if __name__ == "__main__":
    main()
