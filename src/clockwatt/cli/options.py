"""Options that commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clockwatt.config import CampaignConfig, OperatingPoint
from clockwatt.errors import ClockwattError

Config = Annotated[Path, typer.Option("--config", help="The campaign's YAML file.")]
GpuLabel = Annotated[str, typer.Option("--gpu", help="Label of a GPU in the campaign.")]
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
MeasurementsDir = Annotated[Path, typer.Option(help="Folder with the shards' files.")]
DatasetDir = Annotated[Path, typer.Option(help="Folder that `clockwatt dataset` wrote.")]
PredictorsDir = Annotated[Path, typer.Option(help="Folder that `clockwatt fit` wrote.")]
OwnOrShipped = Annotated[
    Path | None,
    typer.Option(
        "--predictors-dir",
        help="Folder that `clockwatt fit` wrote; else results/predictors, and for GPUs that it lacks those that are "
        "shipped.",
    ),
]
CatalogueBeside = Annotated[
    Path | None, typer.Option("--catalogue-dir", help="Folder of a catalogue; else that of the predictors' dataset.")
]
ValidationBeside = Annotated[
    Path | None, typer.Option("--validation-dir", help="Folder that `clockwatt validate` wrote; else that beside them.")
]
ValidationDir = Annotated[Path, typer.Option(help="Folder that `clockwatt validate` wrote.")]
OutputDir = Annotated[Path, typer.Option(help="Folder to write to.")]
Output = Annotated[Path, typer.Option(help="File to write.")]

NetworkName = Annotated[
    str | None,
    typer.Argument(
        help="torchvision name, timm:NAME, hf:CONFIG.json, package.module:callable or a campaign's network."
    ),
]
Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        help="Shape of the input, batch first: 32,3,224,224; else that which the network was measured with. Several by "
        "keyword: NAME=SHAPE[:dtype[:below]], such as input_ids=8,128:int64:30522.",
    ),
]
InputDtype = Annotated[str | None, typer.Option(help="Of the input: float, or int64 for token ids.")]
InputBelow = Annotated[int | None, typer.Option(min=1, help="Token ids of the input are below this.")]
AssumeBranch = Annotated[
    str | None, typer.Option(help="true or false: where a branch on the values of a tensor goes, such as of a mask.")
]
CacheLength = Annotated[
    int | None, typer.Option(min=1, help="Of hf: decoders: one decoding step behind so many tokens; --input BATCH,1.")
]
Operations = Annotated[
    Path | None, typer.Option(help='Operations with counts in place of a network: lines of {"spec": {…}, "count": n}.')
]
PassName = Annotated[str, typer.Option("--pass", help="inference or training.")]
Dtype = Annotated[str, typer.Option(help="float32, float16 or bfloat16.")]
Tf32 = Annotated[bool, typer.Option(help="Whether float32 may use TensorFloat-32.")]
HostName = Annotated[
    str | None,
    typer.Option(
        "--host",
        help="Answer for this host, of which `clockwatt calibrate --host` made a profile; else for the median host "
        "that was measured on, with intervals that span them all.",
    ),
]
MeasureMissing = Annotated[
    str | None,
    typer.Option(
        help="Measure first, on the GPU in this machine, the operations that make the answer least certain: so many "
        "(20), for so long (30s), or until half the interval is so wide (5%). They stay in the store."
    ),
]
MeasureWhole = Annotated[
    bool, typer.Option("--measure-whole", help="Measure the pass itself too, on the GPU in this machine.")
]
InSlurmJob = Annotated[
    bool,
    typer.Option(
        "--slurm", help="Measure on a node that has the GPU: a Slurm job with the resources of the campaign's GPU."
    ),
]
CampaignFile = Annotated[
    Path, typer.Option("--config", help="The campaign's YAML file, which says how the GPU is measured.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ClockMethod = Annotated[str, typer.Option("--method", help="nvml, helper or slurm, as control.method in a campaign.")]
RelativeTo = Annotated[
    str | None,
    typer.Option(
        "--relative-to", metavar="GPU[@POINT]", help="A standard GPU: say how time, power and energy compare with it."
    ),
]
OneGpu = Annotated[str | None, typer.Option("--gpu", help="UUID, beginning of one, or index.")]

DEFAULT_CONFIG = Path("config/config.yaml")
RESULTS = Path("results")


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
