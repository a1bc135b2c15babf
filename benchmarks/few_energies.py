"""How far off energy and power are when only a few of the measured operations have an energy.

    python benchmarks/few_energies.py [--counts 25 50 100 200 400 800] [--draws 3] [--trees 50] [--least 1]

Of the shipped H200 data, so many energies drawn at random are kept beside all times, in each pass; whole groups of
operations, a fifth, are left out altogether. Writes, over both passes, the median, mean and 90th percentile of the
absolute error of energy and of power (that over the device time, and idle power) of what is left out; and of whole
networks composed from predictions alone, of their energy, power, and time, and by how much the power limit lengthens
that. `0` is without any energy, `all` with every one. `--least` is how many it takes for operations with energy to
teach those with times alone (`predictors.FEWEST_ENERGIES`).
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import result_file

from clockwatt import config
from clockwatt.dataset.build import build_dataset
from clockwatt.gpu.specs import find_spec
from clockwatt.io.resources import resource
from clockwatt.predict.composition.networks import PREDICTED, Catalogue
from clockwatt.predict.composition.pipeline import COST_COLUMNS
from clockwatt.predict.costs import HostOnly, cost_columns, workless_host_s
from clockwatt.predict.evaluation.leave_out import grouped_folds
from clockwatt.predict.features import OPERATION_CLASS
from clockwatt.predict.models import predictors
from clockwatt.predict.models.predictors import TARGETS, RooflinePredictor
from clockwatt.predict.models.training_data import Samples, TrainingData, read_samples, training_data, with_unmeasured
from clockwatt.predict.whole_networks import WholeNetworks, complete
from clockwatt.schema.execution import ExecutionSettings

REFERENCE, GPU = "reference/h200", "h200"
TIME, ENERGY = "time_device_corrected_s", "energy_dynamic_corrected_j"
OF_ENERGY = [ENERGY, "power_corrected_w"]
FOLDS = 5


def main() -> None:
    """Write a row for each count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", type=int, nargs="+", default=[25, 50, 100, 200, 400, 800])
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--trees", type=int, default=50)
    parser.add_argument("--least", type=int, default=1)
    given = parser.parse_args()
    predictors.FEWEST_ENERGIES = given.least
    reference = resource(REFERENCE)
    with tempfile.TemporaryDirectory() as folder:
        campaign = config.load(reference / "config.yaml")
        build_dataset(campaign, reference / "measurements", reference / "catalogue", Path(folder))
        passes = [Energies(Path(folder), reference / "catalogue", pass_, given.trees) for pass_ in campaign.passes]
    rows = []
    for count in (0, *given.counts, None):
        runs = [one.run(count, draw) for one in passes for draw in range(given.draws if count else 1)]
        operations, networks = (pd.concat(tables, ignore_index=True) for tables in zip(*runs, strict=True))
        told = [quantiles(table[name]) for table in (operations, networks) for name in table if name != "longer"]
        rows.append(["all" if count is None else count, *told, f"{networks['longer'].max():+.0%}"])
        print(*rows[-1], sep=" | ", flush=True)
    columns = [
        "operations with energy",
        "energy of operations: median / mean / 90th",
        "power of operations",
        "energy of networks",
        "power of networks",
        "time of networks",
        "longest slowdown by the power limit",
    ]
    result_file.write("few-energies", "Errors with few energies beside all times", columns, rows,
                      hardware="NVIDIA H200, shipped data; computed without a GPU")  # fmt: skip


def quantiles(errors: pd.Series) -> str:
    """Median, mean and 90th percentile; dashes where nothing is told."""
    known = errors.dropna()
    if known.empty:
        return "–"
    return " / ".join(f"{100 * error:.1f}" for error in (known.median(), known.mean(), known.quantile(0.9))) + " %"


class Energies:
    """One pass: what there is to learn, what is left out, and the networks."""

    def __init__(self, dataset: Path, catalogue_dir: Path, pass_: str, trees: int) -> None:
        samples = read_samples(dataset, GPU)
        self._pass, self._trees, self._spec = pass_, trees, find_spec(samples.gpu_name)
        self._catalogue = Catalogue.read(catalogue_dir)
        self._whole = WholeNetworks.read(dataset, GPU, samples, self._catalogue)
        self._workless = self._host_only(samples)
        self._data = self._with_called(training_data(samples, pass_))
        self._left_out = grouped_folds(self._data.groups, FOLDS, 0) == 0
        self._idle_w = samples.rows["power_idle_w"].median()

    def _with_called(self, data: TrainingData | None) -> TrainingData:
        assert data is not None
        operations = self._catalogue.operations
        wanted = self._catalogue.called_by(self._whole.rows, self._pass)
        return with_unmeasured(data, wanted, operations[operations["pass"] == self._pass])

    def _host_only(self, samples: Samples) -> pd.DataFrame:
        own = self._catalogue.operations
        own = own[(own["pass"] == self._pass) & ~own["device_work"]]
        host_s = workless_host_s(samples, self._pass, self._whole.overheads.calibrated)
        costs = HostOnly(own[OPERATION_CLASS].to_numpy(object), host_s).costs
        return pd.DataFrame(costs.mean, index=own["operation_id"], columns=list(TARGETS))

    def run(self, count: int | None, draw: int) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Errors of operations left out and of whole networks with `count` energies, all if that is None."""
        data = self._data
        targets = data.targets.copy()
        known = np.flatnonzero(targets[ENERGY].notna() & data.learnt & ~self._left_out)
        kept = known if count is None else np.random.default_rng(draw).permutation(known)[:count]
        targets.loc[~targets.index.isin(kept), OF_ENERGY] = np.nan
        learnt = data.learnt & ~self._left_out
        predictor = RooflinePredictor(trees=self._trees, seed=draw).fit(data.features[learnt], targets[learnt])
        predicted = predictor.predict(data.features).reindex(columns=list(TARGETS))
        return self._operations(predicted), self._networks(predicted)

    def _operations(self, predicted: pd.DataFrame) -> pd.DataFrame:
        judged = self._left_out & self._data.learnt & self._data.targets[ENERGY].notna()
        measured, told = (table.loc[judged, [ENERGY, TIME]] for table in (self._data.targets, predicted))
        drawn, said = (table[ENERGY] / table[TIME] + self._idle_w for table in (measured, told))
        return pd.DataFrame({"energy": (told[ENERGY] / measured[ENERGY] - 1).abs(), "power": (said / drawn - 1).abs()})

    def _networks(self, predicted: pd.DataFrame) -> pd.DataFrame:
        composed = self._composed(predicted)
        unlimited = self._composed(predicted.assign(**{ENERGY: np.nan}))
        return pd.DataFrame(
            {
                **{
                    name: (composed[f"{name}_{unit}"].astype(float) / composed[f"measured_{name}_{unit}"] - 1).abs()
                    for name, unit in (("energy", "j"), ("power", "w"), ("time", "s"))
                },
                "longer": composed["time_s"] / unlimited["time_s"] - 1,
            }
        )

    def _composed(self, predicted: pd.DataFrame) -> pd.DataFrame:
        cells = self._data.cells

        def costs(_name: str, _pass: str, point: str, execution: ExecutionSettings) -> pd.DataFrame:
            here = (cells["point"] == point) & (cells["execution"] == execution)
            own = predicted[here].set_index(cells.loc[here, "operation_id"])
            both = pd.concat([own, self._workless])
            return pd.DataFrame(cost_columns(both.to_numpy(float)), index=both.index, columns=COST_COLUMNS)

        return complete(self._whole.composed(PREDICTED, costs, self._pass))


if __name__ == "__main__":
    main()
