"""Write the table of an epoch, and draw the figures of the study, from the tables of a GPU."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from clockwatt.figures import style
from clockwatt.io.files import write_text
from clockwatt.studies.parallel import figures
from clockwatt.studies.parallel.names import RANKS, SPANS, STEPS, TABLE
from clockwatt.studies.parallel.tables import epoch_table, read


def draw_study(folder: Path, images: int) -> pd.DataFrame:
    """Write `table.csv` and all figures, and return the table.

    Parameters
    ----------
    folder
        The study's folder of a GPU, with the tables of its steps.
    images
        Examples of the epoch that the table states.

    Raises
    ------
    DataFileError
        If a table is missing or damaged.
    OutputError
        If something cannot be written.
    """
    steps, ranks, spans = (read(folder, name) for name in (STEPS, RANKS, SPANS))
    table = epoch_table(steps, ranks, images)
    write_text(table.to_csv(index=False, float_format="%.6g"), folder / TABLE)
    with style.styled():
        drawn = {
            "speedup": figures.speedup(steps),
            "energy": figures.energy(steps),
            "timeline": figures.timeline(steps, spans),
        }
        for name, (figure, data) in drawn.items():
            style.save(figure, data, folder / "figures", name)
    return table
