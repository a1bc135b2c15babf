"""How well time, power and energy at clocks never measured follow from three that were.

    python benchmarks/dvfs_v100.py

Reads 158 CUDA kernels over the core clocks of a Tesla V100 (Wang and Chu, HKBU; rows labelled 405 MHz, which ran at
another clock, left out) from the shipped table, fits the clock law to 502, 945 and 1380 MHz, and holds it against all
other clocks. Then each
kernel gets the clock of least energy: by the law among all clocks, and among the measured ones alone. Regret is the
energy there over the least, minus one; beside it stands that of the best single clock for all kernels. Last, the same
over all designs of three, four and five measured clocks.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import result_file

from clockwatt.predict.evaluation.errors import Floats
from clockwatt.predict.models.clock_law import ClockLaw, evaluate_law, fit_law, power_terms, time_terms
from clockwatt.studies.power.runs_by_others import SHIPPED, read_runs

MEASURED_MHZ = (502, 945, 1380)


def main() -> None:
    """Print errors at the clocks held out, and regrets."""
    sweep = read_runs(Path(SHIPPED), "v100-pcie", [])
    time_s, power_w = (per_clock(sweep, name) for name in ("time_s", "power_w"))
    clocks = time_s.columns.to_numpy(float)
    given = np.isin(clocks, MEASURED_MHZ)
    print(f"{len(time_s)} kernels, {int(given.sum())} clocks measured, {int((~given).sum())} held out")
    time_law = predicted(time_terms, clocks, given, time_s.to_numpy())
    power_law = predicted(power_terms, clocks, given, power_w.to_numpy())
    rows = [report("time", time_law[:, ~given], time_s.to_numpy()[:, ~given])]
    alone = plain(time_terms, clocks, given, time_s.to_numpy())
    rows.append(report("time, a/f + b alone", alone, time_s.to_numpy()[:, ~given]))
    rows.append(report("power", power_law[:, ~given], power_w.to_numpy()[:, ~given]))
    energy_law, energy = time_law * power_law, (time_s * power_w).to_numpy()
    rows.append(report("energy", energy_law[:, ~given], energy[:, ~given]))
    title = f"{len(time_s)} kernels of a Tesla V100 at clocks that were not measured"
    result_file.write("clock-model", title, ["quantity", "mean", "median", "worst"], rows, hardware="NVIDIA Tesla V100")
    regret = energy / energy.min(axis=1, keepdims=True) - 1
    fixed = regret.mean(axis=0)
    print(f"regret of the best single clock, {clocks[fixed.argmin()]:.0f} MHz: {fixed.min():.2%}")
    among_measured = np.where(given, energy_law, np.inf)
    for name, energies in (("all clocks", energy_law), ("measured clocks", among_measured)):
        chosen = np.take_along_axis(regret, energies.argmin(axis=1)[:, None], axis=1)
        print(f"regret of the choice among {name}: mean {chosen.mean():.2%}, worst {chosen.max():.1%}")
    designs = []
    for number in (3, 4, 5):
        designs += regrets_of_designs(number, clocks, time_s.to_numpy(), power_w.to_numpy(), regret)
    columns = ["measured clocks", "choice among all clocks", "choice between measured clocks",
               "choice among measured clocks"]  # fmt: skip
    result_file.write("clock-model", "Mean regret in energy over all choices of measured clocks", columns, designs,
                      hardware="NVIDIA Tesla V100", file=result_file.RESULTS / "dvfs_v100-regret.json")  # fmt: skip


def regrets_of_designs(number: int, clocks: Floats, time_s: Floats, power_w: Floats, regret: Floats) -> list[list[str]]:
    """Return the mean regret over all designs of so many clocks, and over those that span all clocks, as rows."""
    among: dict[str, list[float]] = {"all clocks": [], "clocks between the measured": [], "the measured": []}
    spanning: dict[str, list[float]] = {name: [] for name in among}
    for chosen in itertools.combinations(range(len(clocks)), number):
        given = np.isin(np.arange(len(clocks)), chosen)
        energy = predicted(time_terms, clocks, given, time_s) * predicted(power_terms, clocks, given, power_w)
        between = (clocks >= clocks[chosen[0]]) & (clocks <= clocks[chosen[-1]])
        for name, open_to in zip(among, (np.ones_like(given), between, given), strict=True):
            choice = np.where(open_to, energy, np.inf).argmin(axis=1)
            mean = float(np.take_along_axis(regret, choice[:, None], axis=1).mean())
            among[name].append(mean)
            if between.all():
                spanning[name].append(mean)
    return [
        [f"{len(means['the measured'])} sets of {number}{title}", *(f"{np.mean(each):.1%}" for each in means.values())]
        for title, means in (("", among), (" that span all clocks", spanning))
    ]


def per_clock(rows: pd.DataFrame, name: str) -> pd.DataFrame:
    """One quantity of every kernel at every clock; shape (kernels, clocks)."""
    return rows.pivot_table(index="network", columns="sm_clock_mhz", values=name)


def predicted(terms: Callable[[Floats], Floats], clocks: Floats, given: np.ndarray, values: Floats) -> Floats:
    """Values at all clocks by the law through those given; shape (kernels, clocks)."""
    law = ClockLaw.fit(terms, clocks[given], values[:, given])
    return np.column_stack([law.at(clock) for clock in clocks])


def plain(terms: Callable[[Floats], Floats], clocks: Floats, given: np.ndarray, values: Floats) -> Floats:
    """The same at the clocks held out, without what the law misses at those given."""
    return evaluate_law(fit_law(terms(clocks[given]), values[:, given]), terms(clocks[~given]))


def report(title: str, found: Floats, measured: Floats) -> list[str]:
    """Print mean, median and worst error, and return them as a row of a table."""
    errors = np.abs(found / measured - 1)
    row = [title, f"{errors.mean():.2%}", f"{np.median(errors):.2%}", f"{errors.max():.1%}"]
    print("{}: mean {}, median {}, worst {}".format(*row))
    return row


if __name__ == "__main__":
    main()
