"""How much slower programs are beside others: a table, and the interference matrix.

```
interference.csv           slowdown of each program beside another one, and on several cards at once
figures/interference.*     PNG, PDF and CSV
```
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import stats

from clockwatt.config import CONDITION_PROGRAMS
from clockwatt.errors import DataFileError
from clockwatt.figures import style
from clockwatt.io.files import write_text
from clockwatt.studies.survey.conditions import ALONE, TOGETHER
from clockwatt.studies.survey.variance import COVERAGE

INTERFERENCE_FILE, FIGURE = "interference.csv", "interference"
COLUMNS = ["node", "repetition", "condition", "card", "base", "test", "cards", "step_s"]
_KEY = ["condition", "base", "test", "cards"]
_RUN = ["node", "repetition", "card", "base"]


def read(paths: Sequence[Path]) -> pd.DataFrame:
    """Read measurements of conditions.

    Raises
    ------
    DataFileError
        If a file is missing or of another kind, there is none, or two hold the same repetition.
    """
    files = (file for path in paths for file in (sorted(path.glob("*.csv")) if path.is_dir() else [path]))
    found = list({file.resolve(): file for file in files}.values())
    if not found:
        raise DataFileError(f"{', '.join(map(str, paths))}: no measurements of conditions. Run study-conditions.")
    tables = []
    for file in found:
        try:
            tables.append(pd.read_csv(file, keep_default_na=False))
        except (OSError, ValueError) as error:
            raise DataFileError(f"{file}: cannot be read as CSV ({error}). Delete it and run the survey.") from error
        if missing := sorted(set(COLUMNS) - set(tables[-1])):
            raise DataFileError(f"{file}: lacks {', '.join(missing)}. Give files of study-conditions.")
        if not pd.api.types.is_numeric_dtype(times := tables[-1]["step_s"]) or not (times > 0).all():
            raise DataFileError(f"{file}: step_s must contain positive numbers. Run study-conditions again.")
    rows = pd.concat(tables, ignore_index=True)
    measured = pd.concat([table[["node", "repetition"]].drop_duplicates() for table in tables])
    for node, repetition in measured[measured.duplicated()].itertuples(index=False):
        raise DataFileError(f"repetition {repetition} of {node} is in two files. Give one of them.")
    return rows


def slowdowns(rows: pd.DataFrame) -> pd.DataFrame:
    """Return how much longer a step takes than alone, by the repetitions of all nodes.

    Parameters
    ----------
    rows
        As `read` returns them.

    Returns
    -------
    pandas.DataFrame
        `condition`, `base`, `test` and `cards`; `slowdown`, the mean of `step_s` over that of the same program alone on
        the same card in the same repetition; `low` and `high`, its 95 % interval over repetitions, NaN with one;
        `repetitions`.

    Raises
    ------
    DataFileError
        If a program was not timed alone.
    """
    alone = rows[rows["condition"] == ALONE].groupby(_RUN)["step_s"].mean().rename("alone_s")
    beside = rows[rows["condition"] != ALONE].join(alone, on=_RUN)
    for _, row in beside[beside["alone_s"].isna()].iterrows():
        raise DataFileError(
            f"{row['base']} was not timed alone on card {row['card']} of {row['node']} in repetition "
            f"{row['repetition']}. Run study-conditions again."
        )
    ratios = np.log(beside["step_s"] / beside["alone_s"])
    of_repetition = beside.assign(log=ratios).groupby([*_KEY, "node", "repetition"])["log"].mean()
    table = of_repetition.groupby(_KEY).agg(["mean", "sem", "size"]).reset_index()
    half = stats.t.ppf(0.5 + COVERAGE / 2, np.maximum(table["size"] - 1, 1)) * table["sem"]
    mean = table["mean"]
    values = {"slowdown": np.exp(mean), "low": np.exp(mean - half), "high": np.exp(mean + half)}
    return table[_KEY].assign(**values, repetitions=table["size"])


def draw(table: pd.DataFrame, where: str) -> Figure:
    """Draw the slowdown of each program beside another one, and on several cards at once.

    Parameters
    ----------
    table
        As `slowdowns` returns it.
    where
        The GPU.
    """
    pairs, together = table[table["test"] != ""], table[table["condition"] == TOGETHER]
    ways = list(dict.fromkeys(pairs["condition"]))
    if table.empty:
        return style.nothing("programs were timed alone only.")
    figure, (panels,) = style.panels(1, len(ways) + (not together.empty), height_in=2.4)
    for axes, way in zip(panels, ways, strict=False):
        _draw_matrix(axes, pairs[pairs["condition"] == way], way)
    if not together.empty:
        axes = panels[-1]
        percent = 100 * (together[["slowdown", "low", "high"]] - 1)
        errors = [percent["slowdown"] - percent["low"], percent["high"] - percent["slowdown"]]
        axes.errorbar(together["cards"], percent["slowdown"], errors, fmt="o-", color=style.COLOURS[0], capsize=2)
        axes.set_xticks(together["cards"])
        axes.set_xlabel("cards of the node at work")
        axes.set_title(f"{together['base'].iloc[0]}, step longer than alone", loc="left")
        style.percent(axes, "y")
    count = table["repetitions"].min()
    means = f"means of {count} or more repetitions. Bars: 95 % intervals" if count > 1 else "one repetition"
    style.footer(figure, f"{where}: step times over those alone, {means}.")
    return figure


def _draw_matrix(axes: Axes, pairs: pd.DataFrame, way: str) -> None:
    order = [name for name in CONDITION_PROGRAMS if name in set(pairs["base"])]
    matrix = pairs.pivot_table(index="base", columns="test", values="slowdown").reindex(index=order, columns=order)
    values = matrix.to_numpy(float)
    axes.imshow(values, cmap="Reds", vmin=1, vmax=max(2.5, float(np.nanmax(values))), aspect="auto")
    for (row, column), value in np.ndenumerate(values):
        if np.isfinite(value):
            axes.text(column, row, f"{value:.2f}", ha="center", va="center", color="white" if value > 2 else "black")
    axes.set_xticks(range(len(order)), labels=order)
    axes.set_yticks(range(len(order)), labels=order)
    axes.tick_params(length=0)
    axes.grid(visible=False)
    axes.set_xlabel("program beside it (test)")
    axes.set_ylabel("program that is timed (base)")
    axes.set_title(f"two programs on one card, {way}", loc="left")


def write(paths: Sequence[Path], folder: Path, where: str) -> pd.DataFrame:
    """Write table and figure, and return the table.

    Raises
    ------
    DataFileError
        See `read`.
    OutputError
        If they cannot be written.
    """
    table = slowdowns(read(paths))
    write_text(table.to_csv(index=False), folder / INTERFERENCE_FILE)
    with style.styled():
        style.save(draw(table, where), table, folder / "figures", FIGURE)
    return table
