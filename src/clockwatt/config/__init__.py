"""Schema of `config/config.yaml`, a module per block. Errors name the key and the fix."""

from clockwatt.config.campaign import PASSES, CampaignConfig, Pass
from clockwatt.config.control import ControlConfig, placeholders
from clockwatt.config.design import DesignConfig, DesignRound
from clockwatt.config.fit import FitConfig
from clockwatt.config.gpus import GpuConfig
from clockwatt.config.measurement import MeasurementConfig, TelemetryConfig
from clockwatt.config.model import LABEL_PATTERN
from clockwatt.config.networks import INDICES, INPUT_NAME, InputConfig, NetworkConfig, TrainingConfig
from clockwatt.config.points import DEFAULT_POINT, POINT_PATTERN, POINT_SETTINGS, OperatingPoint, reference_point
from clockwatt.config.reading import dump, json_schema, load, parse, parse_network, read_yaml
from clockwatt.config.slurm import SlurmResources
from clockwatt.config.studies import (
    CONDITION_PROGRAMS,
    FEWEST_CARDS,
    ORIGINAL_WORKLOADS,
    POWER_NETWORKS,
    STRATEGIES,
    WORKLOADS,
    ParallelStudyConfig,
    PowerStudyConfig,
    PowerStudyGpu,
    StudiesConfig,
    SurveyStudyConfig,
    WorkloadName,
    WorkloadsStudyConfig,
)

__all__ = [
    "CONDITION_PROGRAMS",
    "DEFAULT_POINT",
    "FEWEST_CARDS",
    "INDICES",
    "INPUT_NAME",
    "LABEL_PATTERN",
    "ORIGINAL_WORKLOADS",
    "PASSES",
    "POINT_PATTERN",
    "POINT_SETTINGS",
    "POWER_NETWORKS",
    "STRATEGIES",
    "WORKLOADS",
    "CampaignConfig",
    "ControlConfig",
    "DesignConfig",
    "DesignRound",
    "FitConfig",
    "GpuConfig",
    "InputConfig",
    "MeasurementConfig",
    "NetworkConfig",
    "OperatingPoint",
    "ParallelStudyConfig",
    "Pass",
    "PowerStudyConfig",
    "PowerStudyGpu",
    "SlurmResources",
    "StudiesConfig",
    "SurveyStudyConfig",
    "TelemetryConfig",
    "TrainingConfig",
    "WorkloadName",
    "WorkloadsStudyConfig",
    "dump",
    "json_schema",
    "load",
    "parse",
    "parse_network",
    "placeholders",
    "read_yaml",
    "reference_point",
]
