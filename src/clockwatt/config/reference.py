"""The reference of the campaign's keys, made from the models themselves.

`python -m clockwatt.config.reference` in the checkout rewrites `config/schema.json`, for editors, and the tables of
`config/README.md`, for people.
"""

from __future__ import annotations

import types
import typing
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from clockwatt.config import CampaignConfig, json_schema
from clockwatt.io import files
from clockwatt.schema.reference import write_made

BEGIN = "<!-- made by `python -m clockwatt.config.reference`; change src/clockwatt/config instead -->"
END = "<!-- end of what was made -->"


def reference() -> str:
    """Return tables of all keys in Markdown: one for the campaign, one for each block in it."""
    return "\n".join(_tables(CampaignConfig, prefix=""))


def _tables(model: type[BaseModel], prefix: str) -> list[str]:
    rows, below = [], []
    defaults = model.model_construct().model_dump(mode="json")
    schemas = model.model_json_schema()["properties"]
    for name, field in model.model_fields.items():
        block, key = _block(field, name)
        meaning = _meaning(field)
        if block is not None:
            meaning = f"{meaning} See below.".strip()
            below += ["", *_tables(block, f"{prefix}.{key}" if prefix else key)]
        allowed = "block" if block is not None else _allowed(schemas[name])
        rows.append(f"| `{name}` | {allowed} | {_default(field, defaults.get(name))} | {meaning} |")
    title = [f"### `{prefix}`", ""] if prefix else []
    documentation = [" ".join((model.__doc__ or "").split()), ""]
    return [*title, *documentation, "| key | allowed | default | meaning |", "| --- | --- | --- | --- |", *rows, *below]


def _block(field: FieldInfo, name: str) -> tuple[type[BaseModel] | None, str]:
    """Return the model that stands below a key, if one does, and how it is written in a path of keys."""
    annotation = field.annotation
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is dict and _is_model(arguments[1]):
        return arguments[1], f"{name}.<label>"
    if origin is list and _is_model(arguments[0]):
        return arguments[0], f"{name}[]"
    if origin in (typing.Union, types.UnionType):
        labelled = [typing.get_args(part)[1] for part in arguments if typing.get_origin(part) is dict]
        if labelled and _is_model(labelled[0]):
            return labelled[0], f"{name}.<keyword>"
        return next((part for part in arguments if _is_model(part)), None), name
    return (annotation, name) if _is_model(annotation) else (None, name)


def _is_model(annotation: Any) -> typing.TypeGuard[type[BaseModel]]:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


_TYPES = {"integer": "integer", "number": "number", "boolean": "`true`, `false`", "string": "text", "null": "null"}
_BOUNDS = {"exclusiveMinimum": ">", "minimum": "≥", "exclusiveMaximum": "<", "maximum": "≤"}


def _allowed(schema: dict[str, Any]) -> str:
    """Return the values that a JSON schema allows, in words: `integer ≥ 1`, `list of …`, or each value."""
    if "anyOf" in schema:
        *values, last = [_allowed(part) for part in schema["anyOf"]]
        text = ", ".join(values)
        return f"{text}, or a list" if last == f"list of {text}" else f"{text}, {last}"
    if values := schema.get("enum", [schema["const"]] if "const" in schema else []):
        return ", ".join(f"`{value}`" for value in values)
    if schema.get("type") == "array":
        return f"list of {_allowed(schema['items'])}"
    if schema.get("type") == "object":
        return f"mapping to {_allowed(schema['additionalProperties'])}"
    bounds = [f"{sign} {schema[bound]:,}" for bound, sign in _BOUNDS.items() if bound in schema]
    return " ".join([_TYPES[schema["type"]], *bounds])


def _default(field: FieldInfo, written: Any) -> str:
    if field.is_required():
        return "required"
    if isinstance(field.default, BaseModel):
        return ""
    return "none" if written is None else f"`{_inline(written)}`"


def _meaning(field: FieldInfo) -> str:
    description = field.description or ""
    examples = ", ".join(f"`{_inline(example)}`" for example in field.examples or [])
    text = f"{description}; e.g. {examples}" if examples else description
    return text.replace("|", "\\|") + ("." if text else "")


def _inline(value: Any) -> str:
    return str(yaml.safe_dump(value, default_flow_style=True, width=10_000)).removesuffix("...\n").strip()


def main(folder: Path = Path("config")) -> None:
    """Write `schema.json` and the tables of `README.md` in `folder`."""
    files.write_text(json_schema(), folder / "schema.json")
    write_made(folder / "README.md", BEGIN, END, reference())


if __name__ == "__main__":
    main()
