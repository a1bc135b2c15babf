"""What a question says of a network, in words of the command line, made into a network of a campaign."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from clockwatt import config
from clockwatt.config import NetworkConfig
from clockwatt.errors import ClockwattError
from clockwatt.io import files
from clockwatt.schema import layout
from clockwatt.schema.records import CALL_SCHEMA, NETWORK_SCHEMA, OPERATION_SCHEMA

_SHAPE = "write the shape of the input, batch first, such as 32,3,224,224"


@dataclass(frozen=True)
class NetworkQuery:
    """A network as it was typed; what was not is None.

    Attributes
    ----------
    inputs
        Each a shape, or `NAME=SHAPE[:dtype[:below]]`.
    """

    name: str | None
    inputs: list[str] | None
    dtype: str
    input_dtype: str | None = None
    input_below: int | None = None
    assume_branch: str | None = None
    cache_length: int | None = None

    def network(self, catalogue_dir: Path) -> NetworkConfig:
        """The network; one of the campaign may go by the last part of its name, and takes the indices it takes there.

        Raises
        ------
        ConfigError
            Naming every wrong key and its fix.
        ClockwattError
            If something is missing, or an input is none.
        """
        if self.name is None or not self.inputs:
            raise ClockwattError(
                "give a network and its --input (resnet50 --input 32,3,224,224), or --operations FILE."
            )
        known = _Known.read(catalogue_dir)
        name = known.full_name(self.name)
        content: dict[str, Any] = {"name": name, "dtype": self.dtype, **self._input(name, known)}
        if self.assume_branch is not None:
            content["data_dependent_branch"] = self.assume_branch
        if self.cache_length is not None:
            content["cache_length"] = self.cache_length
        return config.parse_network(content, source="command line")

    def _input(self, name: str, known: _Known) -> dict[str, Any]:
        assert self.inputs
        if any("=" in text for text in self.inputs):
            if self.input_dtype is not None or self.input_below is not None:
                raise ClockwattError(
                    "--input-dtype and --input-below go with one --input SHAPE; write NAME=SHAPE:int64:BELOW instead."
                )
            return {"inputs": dict(_keyword_input(text) for text in self.inputs)}
        if len(self.inputs) > 1:
            raise ClockwattError(f"--input {self.inputs[1]!r}: several inputs are given by keyword, NAME=SHAPE.")
        below = self.input_below
        if below is None and self.input_dtype is None:
            below = known.indices_below(name)
        dtype = self.input_dtype or ("float" if below is None else "int64")
        return {"input": parse_shape(self.inputs[0]), "input_dtype": dtype, "input_below": below}


@dataclass(frozen=True)
class _Known:
    """The networks of a campaign."""

    folder: Path
    networks: pd.DataFrame

    @classmethod
    def read(cls, folder: Path) -> _Known:
        path = folder / layout.NETWORKS_FILE
        columns = ["network", "network_id"]
        there = path.exists()
        table = files.read_table(path, NETWORK_SCHEMA, columns).to_pandas() if there else pd.DataFrame(columns=columns)
        return cls(folder, table)

    def full_name(self, name: str) -> str:
        """A network of the campaign by the last part of its name, where there is one such; else as it was given."""
        full = {one for one in self.networks["network"] if one.endswith(f":{name}")}
        return full.pop() if len(full) == 1 and ":" not in name else name

    def indices_below(self, name: str) -> int | None:
        """What the indices that a network of the campaign begins with stay below; None if it takes no indices."""
        ids = self.networks.loc[self.networks["network"] == name, "network_id"]
        if ids.empty:
            return None
        calls = files.read_table(
            self.folder / layout.CALLS_FILE, CALL_SCHEMA, ["network_id", "pass", "position", "operation_id"]
        ).to_pandas()
        operations = files.read_table(
            self.folder / layout.OPERATIONS_FILE, OPERATION_SCHEMA, ["operation_id", "operation_class", "spec"]
        ).to_pandas()
        called = calls[calls["network_id"] == ids.iloc[0]].sort_values("position").merge(operations, on="operation_id")
        embeddings = called[called["operation_class"] == "embedding"]
        if embeddings.empty:
            return None
        indices = json.loads(embeddings["spec"].iloc[0])["tensors"]
        return next((int(tensor["below"]) for tensor in indices if tensor.get("below")), None)


def parse_shape(text: str) -> list[int]:
    """Read `32,3,224,224`.

    Raises
    ------
    ClockwattError
        If it is no shape.
    """
    try:
        shape = [int(size) for size in text.split(",")]
    except ValueError:
        shape = []
    if not shape or min(shape) < 1:
        raise ClockwattError(f"--input {text!r}: {_SHAPE}.")
    return shape


def _keyword_input(text: str) -> tuple[str, dict[str, Any]]:
    """Read `NAME=SHAPE[:dtype[:below]]`."""
    keyword, equals, rest = text.partition("=")
    shape, _, more = rest.partition(":")
    dtype, _, below = more.partition(":")
    if not equals or not keyword.isidentifier() or (below and not below.isdecimal()):
        raise ClockwattError(
            f"--input {text!r}: write NAME=SHAPE[:dtype[:below]], such as input_ids=8,128:int64:30522."
        )
    given: dict[str, Any] = {"shape": parse_shape(shape)}
    if dtype:
        given["dtype"] = dtype
    if below:
        given["below"] = int(below)
    return keyword, given
