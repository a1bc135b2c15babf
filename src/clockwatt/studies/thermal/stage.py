"""Fit temperature models to what the studies of power limits and workloads recorded on a GPU.

```
fit/        models and scores, as `clockwatt thermal fit` writes them
figures/    PNG, PDF and CSV
```
"""

from __future__ import annotations

import shutil
from pathlib import Path

from clockwatt.config import CampaignConfig
from clockwatt.io.progress import say
from clockwatt.schema.layout import STUDIES
from clockwatt.studies.thermal.errors import ThermalError
from clockwatt.studies.thermal.fit import Result, Settings, fit_study
from clockwatt.telemetry.recording.layout import RECORD

FIT = "fit"
_RECORDS = "records"


def run(campaign: CampaignConfig, label: str, results: Path) -> Result:
    """Fit the models of a GPU and draw their errors and a forecast.

    Parameters
    ----------
    campaign
        With `studies.thermal`.
    label
        The label of the GPU.
    results
        Folder of results, with the records of the other studies.

    Raises
    ------
    ConfigError
        If the campaign has no such study or GPU.
    ThermalError
        If nothing is recorded, or the records are too short.
    """
    study = campaign.studies.study_thermal()
    campaign.gpu(label)
    sources = campaign.studies.thermal_sources(campaign.gpus).get(label, [])
    roots = [results / STUDIES / name / label / _RECORDS for name in sources]
    folders = sorted(path.parent for root in roots for path in root.rglob(RECORD))
    if not folders:
        where = ", ".join(map(str, roots)) or "neither studies.power nor studies.workloads names it"
        raise ThermalError(f"studies.thermal: nothing of {label} is recorded ({where}). Run `snakemake study_thermal`.")
    folder = results / STUDIES / "thermal" / label
    shutil.rmtree(folder / FIT, ignore_errors=True)  # of another set of models
    settings = Settings(models=tuple(study.models), horizons_s=tuple(sorted(study.horizons_s)))
    return fit_study(
        folders, folder / FIT, settings, figures=folder / "figures", workload_of=_workload_of, say=say
    )  # fmt: skip


def _workload_of(folder: Path) -> str:
    """Return the program: both studies name a folder by it directly below their records."""
    return folder.parts[len(folder.parts) - 1 - folder.parts[::-1].index(_RECORDS) + 1]
