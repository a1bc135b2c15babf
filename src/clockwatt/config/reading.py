"""Reading and writing a campaign's file. Errors name the key and the fix."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import yaml
from pydantic import ValidationError

from clockwatt.config.campaign import CampaignConfig
from clockwatt.config.control import ControlConfig
from clockwatt.config.design import DesignConfig, DesignRound
from clockwatt.config.fit import FitConfig
from clockwatt.config.gpus import GpuConfig
from clockwatt.config.measurement import MeasurementConfig, TelemetryConfig
from clockwatt.config.model import Model
from clockwatt.config.networks import InputConfig, NetworkConfig, TrainingConfig
from clockwatt.config.slurm import SlurmResources
from clockwatt.errors import ConfigError


def load(path: Path) -> CampaignConfig:
    """Read and check a campaign's YAML file.

    Raises
    ------
    ConfigError
        Naming the file, every wrong key and its fix.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file. Give the campaign's file with --config.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read ({error}).") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from error
    return parse(content, source=str(path))


def parse(content: Any, source: str = "config") -> CampaignConfig:
    """Check a campaign given as a mapping; `source` is named in errors.

    Raises
    ------
    ConfigError
        Naming every wrong key and its fix.
    """
    if not isinstance(content, Mapping):
        raise ConfigError(f"{source}: is not a mapping of keys; see config/README.md for an example.")
    try:
        return CampaignConfig.model_validate(dict(content))
    except ValidationError as error:
        _raise_readable(error, source)


def parse_network(content: Any, source: str) -> NetworkConfig:
    """Check a network given as a mapping; `source` is named in errors.

    Raises
    ------
    ConfigError
        Naming every wrong key and its fix.
    """
    try:
        return NetworkConfig.model_validate(content)
    except ValidationError as error:
        _raise_readable(error, source)


def dump(config: CampaignConfig) -> str:
    """The campaign as YAML with every default filled in; `load` reads it back."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, width=120)


def json_schema() -> str:
    """The JSON schema of a campaign file, for editors and for config/schema.json."""
    return json.dumps(CampaignConfig.model_json_schema(), indent=2) + "\n"


def _raise_readable(error: ValidationError, source: str) -> NoReturn:
    lines = [f"{_key(detail['loc'])}: {_explain(detail)}" for detail in error.errors()]
    raise ConfigError(
        f"{source}: " + (lines[0] if len(lines) == 1 else "".join(f"\n  {line}" for line in lines))
    ) from None


def _key(location: tuple[int | str, ...]) -> str:
    key = ""
    for part in location:
        key += f"[{part}]" if isinstance(part, int) else f".{part}" if key else part
    return key or "config"


def _explain(detail: Any) -> str:
    match detail["type"]:
        case "extra_forbidden":
            known = _known_keys(detail["loc"][:-1])
            close = difflib.get_close_matches(str(detail["loc"][-1]), known, n=1)
            return f"unknown key{f'; did you mean {close[0]!r}?' if close else ''} Known keys here: {', '.join(known)}"
        case "missing":
            return "is missing; see config/README.md"
        case "value_error":
            return str(detail["ctx"]["error"])
        case _:
            message = detail["msg"].removeprefix("Input should be ")
            return f"{detail['input']!r} should be {message}"


def _known_keys(location: tuple[int | str, ...]) -> list[str]:
    """Keys of the model that stands at `location`, found by walking the models."""
    walk: dict[str, type[Model]] = {
        "gpus": GpuConfig, "control": ControlConfig, "slurm": SlurmResources, "networks": NetworkConfig,
        "inputs": InputConfig,
        "training": TrainingConfig, "measurement": MeasurementConfig, "telemetry": TelemetryConfig, "fit": FitConfig,
        "design": DesignConfig, "rounds": DesignRound,
    }  # fmt: skip
    models = [walk[part] for part in location if isinstance(part, str) and part in walk]
    return list((models[-1] if models else CampaignConfig).model_fields)
