"""Paths of a campaign's files relative to the results folder, for the workflow and the stages."""

from __future__ import annotations

from pathlib import Path

CATALOGUE = Path("catalogue")
STORE = Path("store")
MEASUREMENTS = Path("measurements")
DATASET = Path("dataset")
DATASET_CATALOGUE = DATASET / "catalogue"
PREDICTORS = Path("predictors")
VALIDATION = Path("validation")
STUDIES = Path("studies")

OPERATIONS_FILE = "operations.parquet"
CALLS_FILE = "calls.parquet"
NETWORKS_FILE = "networks.parquet"
MEMORY_FILE = "memory.parquet"
ANCHORS_FILE = "anchors.parquet"
CALIBRATION_FILE = "calibration.parquet"
QUALITY_FILE = "quality.json"
"""Files of a catalogue, a dataset and a validation."""

METRICS_FILE = "metrics.json"
"""Beside the folders of predictors: of which GPUs they are, and how well each does."""
TRAINING_FILE = "training.json"
"""Beside the folders of all GPUs: the training step of the campaign, which a question's network makes, too."""
CROSSVAL_FILE = "crossval.parquet"
LEFT_OUT_FILE = "networks-left-out.parquet"
"""Beside the folders of all GPUs: predictions of operations, and of those of networks, that were left out."""
DESCRIPTION_FILE = "description.json"
MODEL_CARD_FILE = "model-card.md"
MODEL_CARD_DETAILS_FILE = "model-card-details.md"
HOSTS_SEEN_FILE = "hosts-seen.json"
"""File in the folder of a GPU's predictors."""
VALIDATION_FILE = "validation.json"
"""In the folder of a validation: errors of networks, and what choosing a clock by prediction has cost."""

PAGE_FILE = "explore.html"
"""In the results folder: the page of results."""

CATALOGUE_FILES = (OPERATIONS_FILE, CALLS_FILE, NETWORKS_FILE)


def survey_file(node: str, index: int | str, session: int | str) -> Path:
    """Return the measurements of a card in the survey, below its folder of a GPU."""
    return Path("cards") / f"{node}-{index}-{session}.parquet"


def conditions_file(node: str, repetition: int | str) -> Path:
    """Return the times of programs under the conditions of the survey, below its folder of a GPU."""
    return Path("conditions") / f"{node}-{repetition}.csv"


def point_dir(gpu: str, point: object) -> Path:
    """Return the folder, below store or measurements, of a GPU at an operating point."""
    return Path(gpu) / str(point)


def shard_file(store: Path, gpu: str, point: object, shard: object, suffix: str) -> Path:
    """Return a file of one shard in the store: its lock, or the note of what is under way."""
    return store / point_dir(gpu, point) / "shards" / f"{str(shard).replace('/', '-of-')}.{suffix}"


def operations_file(gpu: str, point: object, shard: int) -> Path:
    """Return measurements of one shard of operations (1-based), below the measurements folder."""
    return point_dir(gpu, point) / f"{shard}.parquet"


def networks_file(gpu: str, point: object, shard: int) -> Path:
    """Return measurements of one shard of whole networks (1-based), below the measurements folder."""
    return point_dir(gpu, point) / f"networks-{shard}.parquet"


def telemetry_file(measurements: Path) -> Path:
    """Return telemetry that goes with a file of measurements, beside it."""
    return measurements.with_name(f"telemetry-{measurements.name}")


def predictor_file(predictor: str, pass_: str) -> str:
    """Return the name of a fitted predictor of one pass, in the folder of its GPU."""
    return f"{predictor}-{pass_}.npz"


def domain_file(pass_: str) -> str:
    """Return the file name of the training rows of one pass, in the folder of a GPU's predictors."""
    return f"domain-{pass_}.parquet"


def measured_file(pass_: str) -> str:
    """Return the name of what was measured in one pass, in the folder of a GPU's predictors."""
    return f"measured-{pass_}.parquet"


def calibration_file(gpu: str, point: object) -> Path:
    """Return the calibration of a GPU at an operating point, below the measurements folder."""
    return point_dir(gpu, point) / CALIBRATION_FILE
