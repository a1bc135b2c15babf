"""Options that commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clockwatt.config import CampaignConfig, OperatingPoint
from clockwatt.errors import ClockwattError

MEASURE = "On a node with the GPU"
"""Panel of the help."""

Config = Annotated[Path, typer.Option("--config", help="The campaign's YAML file.")]
GpuLabel = Annotated[str, typer.Option("--gpu", help="Label of a GPU in the campaign.")]
StudyDir = Annotated[Path, typer.Option(help="The study's folder of this GPU.")]
Point = Annotated[str, typer.Option("--point", help="Operating point: default, sm1440, sm1440-mem5001, pl150 …")]
CatalogueDir = Annotated[
    Path, typer.Option(help="Folder of a catalogue, as `clockwatt catalogue` and `clockwatt dataset` write it.")
]
StoreDir = Annotated[Path, typer.Option(help="Folder of finished measurements.")]
CatalogueOfCampaign = Annotated[
    Path | None, typer.Option("--catalogue-dir", help="Folder that `clockwatt catalogue` wrote; else the campaign's.")
]
MeasurementsOfCampaign = Annotated[
    Path | None, typer.Option("--measurements-dir", help="Folder with the shards' files; else the campaign's.")
]
StoreOfCampaign = Annotated[
    Path | None, typer.Option("--store-dir", help="Folder of finished measurements; else the campaign's.")
]
DatasetOfCampaign = Annotated[
    Path | None, typer.Option("--dataset-dir", help="Folder that `clockwatt dataset` wrote; else the campaign's.")
]
DatasetCatalogueOfCampaign = Annotated[
    Path | None, typer.Option("--catalogue-dir", help="Folder of the dataset's catalogue; else the campaign's.")
]
PredictorsOfCampaign = Annotated[
    Path | None, typer.Option("--predictors-dir", help="Folder that `clockwatt fit` wrote; else the campaign's.")
]
OutputOfCampaign = Annotated[Path | None, typer.Option("--output-dir", help="Folder to write to; else the campaign's.")]
MeasurementsDir = Annotated[Path, typer.Option(help="Folder with the shards' files.")]
DatasetDir = Annotated[Path, typer.Option(help="Folder that `clockwatt dataset` wrote.")]
PredictorsDir = Annotated[Path, typer.Option(help="Folder that `clockwatt fit` wrote.")]
ValidationDir = Annotated[Path, typer.Option(help="Folder that `clockwatt validate` wrote.")]
OutputDir = Annotated[Path, typer.Option(help="Folder to write to.")]
Output = Annotated[Path, typer.Option(help="File to write.")]

InSlurmJob = Annotated[
    bool,
    typer.Option(
        "--slurm",
        help="Do this in a Slurm job.",
        rich_help_panel=MEASURE,
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.", show_default=False)]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Print intervals, hosts and predictors too.", show_default=False)
]
ClockMethod = Annotated[
    str, typer.Option("--method", help="How clocks are set: nvml, helper …, see `clockwatt doctor`.")
]
OneGpu = Annotated[str | None, typer.Option("--gpu", help="UUID, its beginning, or index.")]

DEFAULT_CONFIG = Path("config/config.yaml")
RESULTS = Path("results")


def in_results(given: Path | None, campaign: CampaignConfig, name: Path) -> Path:
    """The folder or file that was given, or else that of the campaign's results."""
    return Path(campaign.results_dir) / name if given is None else given


def point_of(campaign: CampaignConfig, label: str, text: str) -> OperatingPoint:
    """Operating point that `--point` names, of one of a campaign's GPUs.

    Raises
    ------
    ClockwattError
        If the campaign has no such GPU, or the GPU no such point.
    """
    point = OperatingPoint.parse(text)
    known = campaign.gpu(label).points
    if point not in known:
        raise ClockwattError(
            f"--point {text}: gpus.{label} has no such operating point; it has {', '.join(map(str, known))}. "
            f"Add it under gpus.{label}.clocks_mhz (or memory_clocks_mhz, power_limits_w)."
        )
    return point
