"""The stage without a GPU: tables of means and fits, and every figure of the study, of one GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd
import pyarrow as pa
from matplotlib.figure import Figure
from pyarrow import csv

from clockwatt.errors import ClockwattError
from clockwatt.figures import style
from clockwatt.io.files import write_table, written_aside
from clockwatt.io.progress import progress
from clockwatt.studies.power import analysis, limit_curves, runs_by_others, tables
from clockwatt.studies.power.figures import curves, epochs, sampling, traces
from clockwatt.studies.power.names import FIGURES, TABLES
from clockwatt.studies.power.tables import CLOCK, POWER_LIMIT

Drawn = tuple[Figure, pd.DataFrame]


@dataclass
class Results:
    """Tables of a study, and what several figures need of them."""

    runs: pd.DataFrame
    epochs: pd.DataFrame
    readings: pd.DataFrame

    @property
    def virtual(self) -> bool:
        """Whether the GPU is virtual."""
        return bool(self.runs["virtual"].any())

    @cached_property
    def summary(self) -> pd.DataFrame:
        """From `analysis.summary`."""
        return analysis.summary(self.runs)

    @cached_property
    def fits(self) -> pd.DataFrame:
        """From `analysis.fits`."""
        return analysis.fits(self.runs, self.summary)

    @cached_property
    def intervals(self) -> pd.DataFrame:
        """From `sampling.intervals`."""
        return sampling.intervals(self.readings)


def draw_study(study_dir: Path, only: Sequence[str] = ()) -> None:
    """Write means and fits, and draw figures.

    Parameters
    ----------
    study_dir
        The study's folder of a GPU, with the tables of its runs.
    only
        Which, of `names.TABLES` and `names.FIGURES`; all if empty.

    Raises
    ------
    ClockwattError
        If there is no such table or figure.
    DataFileError
        If a table is missing or damaged.
    OutputError
        If something cannot be written.
    """
    known = (*TABLES, *FIGURES)
    if unknown := [name for name in only if name not in known]:
        raise ClockwattError(f"--only {unknown[0]}: there is no such table or figure; choose among {', '.join(known)}.")
    wanted = [name for name in known if not only or name in only]
    results = Results(*tables.read(study_dir))
    with style.styled(), progress("figures", len(wanted)) as advance:
        for name in wanted:
            if name in TABLES:
                frame: pd.DataFrame = getattr(results, name)
                _write(frame.assign(virtual=results.virtual), study_dir, name)
            else:
                figure, data = DRAWN[name](results)
                style.save(figure, data, study_dir / "figures", name)
            advance(name)


def draw_runs(rows: pd.DataFrame, study_dir: Path) -> pd.DataFrame:
    """Write and draw runs that others measured, and return the best batch sizes and power limits.

    Parameters
    ----------
    rows
        From `runs_by_others.read_runs`.
    study_dir
        The study's folder of the GPU.

    Returns
    -------
    pandas.DataFrame
        From `limit_curves.choices`, also written as `choices.csv`; empty if no power limit was set.

    Raises
    ------
    DataFileError
        If there are too many networks for a figure. Of each network the batch size of least energy is drawn, where all
        are too many.
    OutputError
        If something cannot be written.
    """
    found = limit_curves.choices(rows)
    runs_by_others.write_runs(_drawn(rows, found), study_dir)
    settings = {POWER_LIMIT: "optimum_power_limit", CLOCK: "optimum_clock"}
    figures = [name for setting, name in settings.items() if rows[setting].notna().any()]
    draw_study(study_dir, [*TABLES, *figures, "front"])
    if len(found):
        _write(found, study_dir, "choices")
    return found


def _drawn(rows: pd.DataFrame, found: pd.DataFrame) -> pd.DataFrame:
    if rows.groupby(["network", "batch_size"]).ngroups <= runs_by_others.NETWORKS_AT_MOST:
        return rows
    best = found.loc[found["objective"] == "energy_j"].set_index("network")["batch_size"]
    chosen = rows["network"].map(best)
    return rows[chosen.isna() | (rows["batch_size"] == chosen)]


def _write(frame: pd.DataFrame, folder: Path, name: str) -> None:
    table = pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)
    write_table(table, folder / f"{name}.parquet")
    with written_aside(folder / f"{name}.csv") as aside:
        csv.write_csv(table, aside)


def _figure(make: Callable[[Results], pd.DataFrame], draw: Callable[..., Figure]) -> Callable[[Results], Drawn]:
    """Return what makes the data of a figure, and draws it."""

    def drawn(results: Results) -> Drawn:
        data = make(results)
        return draw(data, virtual=results.virtual), data

    return drawn


def _against(setting: str) -> Callable[[Results], Drawn]:
    def drawn(results: Results) -> Drawn:
        data = curves.against(results.runs, results.summary, setting)
        return curves.draw_against(data, results.fits, setting), data

    return drawn


DRAWN: dict[str, Callable[[Results], Drawn]] = {
    "optimum_power_limit": _against(POWER_LIMIT),
    "optimum_clock": _against(CLOCK),
    "front": _figure(lambda of: curves.front(of.summary), curves.draw_front),
    "epochs": _figure(lambda of: epochs.spread(of.epochs), epochs.draw),
    "power": _figure(lambda of: traces.power(of.readings, of.runs), traces.draw_power),
    "cumulative_energy": _figure(lambda of: traces.cumulative(of.readings, of.runs), traces.draw_cumulative),
    "sampling_interval": _figure(lambda of: sampling.histogram(of.intervals), sampling.draw_histogram),
    "jitter": _figure(lambda of: sampling.windows(of.intervals, of.readings, of.runs), sampling.draw_windows),
}
"""Figures of `names.FIGURES`: each from results to the figure and the data that it shows."""
