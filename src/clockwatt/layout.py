"""Where a campaign's files lie, for the workflow and for the stages alike, relative to the results folder."""

from __future__ import annotations

from pathlib import Path

from clockwatt.config import CampaignConfig, OperatingPoint

CATALOGUE = Path("catalogue")
STORE = Path("store")
MEASUREMENTS = Path("measurements")


def point_dir(gpu: str, point: OperatingPoint | str) -> Path:
    """Folder, below store or measurements, of a GPU at an operating point."""
    return Path(gpu) / str(point)


def operations_file(gpu: str, point: OperatingPoint | str, shard: int) -> Path:
    """Measurements of one shard of operations (1-based), below the measurements folder."""
    return point_dir(gpu, point) / f"{shard}.parquet"


def networks_file(gpu: str, point: OperatingPoint | str, shard: int) -> Path:
    """Measurements of one shard of whole networks (1-based), below the measurements folder."""
    return point_dir(gpu, point) / f"networks-{shard}.parquet"


def telemetry_file(measurements: Path) -> Path:
    """Telemetry that goes with a file of measurements, beside it."""
    return measurements.with_name(f"telemetry-{measurements.name}")


def calibration_file(gpu: str, point: OperatingPoint | str) -> Path:
    """Calibration of a GPU at an operating point, below the measurements folder."""
    return point_dir(gpu, point) / "calibration.parquet"


def measurement_files(config: CampaignConfig) -> list[Path]:
    """Every file of measurements that a campaign gives, below the measurements folder."""
    return [
        path for label, gpu in config.gpus.items() for point in gpu.points for path in _measured(config, label, point)
    ]


def point_files(config: CampaignConfig, gpu: str, point: OperatingPoint) -> list[Path]:
    """Files of measurements, and the calibration, of one GPU at one operating point, below the measurements folder."""
    return [*_measured(config, gpu, point), calibration_file(gpu, point)]


def _measured(config: CampaignConfig, gpu: str, point: OperatingPoint) -> list[Path]:
    return [
        *(operations_file(gpu, point, shard) for shard in range(1, config.shards + 1)),
        *(networks_file(gpu, point, shard) for shard in range(1, config.network_shards + 1)),
    ]


def calibration_files(config: CampaignConfig) -> list[Path]:
    """Every calibration that a campaign gives, below the measurements folder."""
    return [calibration_file(label, point) for label, gpu in config.gpus.items() for point in gpu.points]
