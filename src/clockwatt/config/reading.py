"""Reading and writing a campaign's file. Errors name the key and the fix."""

from __future__ import annotations

import difflib
import json
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import yaml
from pydantic import BaseModel, ValidationError

from clockwatt.config.campaign import CampaignConfig
from clockwatt.config.networks import NetworkConfig
from clockwatt.errors import ConfigError


def load(path: Path) -> CampaignConfig:
    """Read and check a campaign's YAML file.

    Raises
    ------
    ConfigError
        Naming the file, every wrong key and its fix.
    """
    return parse(read_yaml(path), source=str(path))


def read_yaml(path: Path) -> Any:
    """Read a YAML file in which no key stands twice.

    Raises
    ------
    ConfigError
        Naming the file and what is wrong.
    """
    try:
        return yaml.load(path.read_text(encoding="utf-8"), _UniqueKeyLoader)  # noqa: S506  # a safe loader
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file. Give the campaign's file with --config.") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}).") from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ConfigError(f"{path}: line {line} is not UTF-8. Save the file in UTF-8.") from None
    except yaml.MarkedYAMLError as error:
        where = "" if error.problem_mark is None else f": line {error.problem_mark.line + 1}"
        raise ConfigError(f"{path}{where} is not valid YAML ({error.problem}). Correct it.") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from error
    except _DuplicateKeyError as error:
        raise ConfigError(f"{path}: {error}") from None


class _DuplicateKeyError(Exception):
    """A mapping has a key twice."""


class _UniqueKeyLoader(yaml.SafeLoader):
    """YAML allows no key twice in a mapping; the library keeps the last one without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        lines: dict[str, int] = {}
        for key_node, _ in node.value:
            key, line = str(key_node.value), key_node.start_mark.line + 1
            if key in lines:
                raise _DuplicateKeyError(
                    f"key {key!r} is in line {lines[key]} and in line {line}. Rename or remove one."
                )
            lines[key] = line
        return super().construct_mapping(node, deep)


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
        _raise_readable(error, source, NetworkConfig)


def dump(config: CampaignConfig) -> str:
    """Return the campaign as YAML with every default filled in; `load` reads it back."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, width=120)


def json_schema() -> str:
    """Return the JSON schema of a campaign file, for editors and for config/schema.json."""
    return json.dumps(CampaignConfig.model_json_schema(), indent=2) + "\n"


def _raise_readable(error: ValidationError, source: str, model: type[BaseModel] = CampaignConfig) -> NoReturn:
    lines = [f"{_key(detail['loc'])}: {_explain(detail, model)}" for detail in error.errors()]
    raise ConfigError(
        f"{source}: " + (lines[0] if len(lines) == 1 else "".join(f"\n  {line}" for line in lines))
    ) from None


def _key(location: tuple[int | str, ...]) -> str:
    key = ""
    for part in location:
        key += f"[{part}]" if isinstance(part, int) else f".{part}" if key else part
    return key or "config"


def _explain(detail: Any, model: type[BaseModel]) -> str:
    match detail["type"]:
        case "extra_forbidden":
            known = _known_keys(detail["loc"][:-1], model)
            close = difflib.get_close_matches(str(detail["loc"][-1]), known, n=1)
            return f"unknown key{f'; did you mean {close[0]!r}?' if close else '.'} Known keys here: {', '.join(known)}"
        case "missing":
            return "is missing; see config/README.md"
        case "too_short":
            return f"{detail['input']!r} has too few entries: give at least {detail['ctx']['min_length']}"
        case "string_pattern_mismatch":
            return f"{detail['input']!r} is empty, or has characters that paths here may not have, as spaces and braces"
        case "value_error":
            return str(detail["ctx"]["error"])
        case _:
            message = detail["msg"].replace("Input should be", "should be")
            return f"{detail['input']!r} {message[0].lower()}{message[1:]}"


def _known_keys(location: tuple[int | str, ...], model: type[BaseModel]) -> list[str]:
    """Keys of the model at `location` below another one, found by walking them; labels and numbers are no keys."""
    for part in location:
        if part in model.model_fields:
            model = next(_models(model.model_fields[str(part)].annotation), model)
    return list(model.model_fields)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield models that a type is made of."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from _models(argument)
