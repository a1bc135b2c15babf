"""What a question says of a network, in words of the command line, made into a network of a campaign."""

from __future__ import annotations

import difflib
import json
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from clockwatt import config
from clockwatt.config import NetworkConfig
from clockwatt.errors import ClockwattError
from clockwatt.io import files
from clockwatt.schema import layout
from clockwatt.schema.records import CALL_SCHEMA, NETWORK_SCHEMA, OPERATION_SCHEMA

Shape = Sequence[int]
KeywordInput = Shape | Mapping[str, Any]
"""A shape, or `{"shape": …, "dtype": "int64", "below": 30522}`."""

_DTYPES = typing.get_args(NetworkConfig.model_fields["dtype"].annotation)
_SHAPE = "write the shape of the input, batch first, such as 32,3,224,224"


@dataclass(frozen=True)
class NetworkQuery:
    """A network as it was typed; what was not is None.

    Attributes
    ----------
    inputs
        Each a shape, or `NAME=SHAPE[:dtype[:below]]`; without any, the input that the network was measured with.
    """

    name: str | None
    inputs: list[str] | None
    dtype: str
    input_dtype: str | None = None
    input_below: int | None = None
    assume_branch: str | None = None
    cache_length: int | None = None

    def network(self, catalogue_dir: Path, shipped_catalogue_dir: Path | None = None) -> NetworkConfig:
        """The network; one of the campaign may go by the last part of its name, and takes the indices it takes there.

        Parameters
        ----------
        catalogue_dir
            Of the campaign; it need not be there.
        shipped_catalogue_dir
            Of networks that the campaign does not know.

        Raises
        ------
        ConfigError
            Naming every wrong key and its fix.
        ClockwattError
            If something is missing, or an input is none.
        """
        if self.name is None:
            raise ClockwattError(
                "give a network and its --input (resnet50 --input 32,3,224,224), or --operations FILE."
            )
        self._check_words()
        known = _Known.read(catalogue_dir)
        if shipped_catalogue_dir is not None and not known.has(self.name):
            known = _Known.read(shipped_catalogue_dir)
        name = known.full_name(self.name)
        if not self.inputs:
            return self._as_measured(name, known)
        content: dict[str, Any] = {"name": name, "dtype": self.dtype, **self._input(name, known)}
        if self.assume_branch is not None:
            content["data_dependent_branch"] = self.assume_branch
        if self.cache_length is not None:
            content["cache_length"] = self.cache_length
        return config.parse_network(content, source="command line")

    def _check_words(self) -> None:
        """Refuse words that no network takes, by the names of their options."""
        for option, given, choices in (
            ("--dtype", self.dtype, _DTYPES),
            ("--input-dtype", self.input_dtype, (None, "float", "int64")),
            ("--assume-branch", self.assume_branch, (None, "true", "false")),
        ):
            if given not in choices:
                words = [word for word in choices if word is not None]
                raise ClockwattError(f"{option} {given}: choose {', '.join(words[:-1])} or {words[-1]}.")
        if self.input_dtype == "int64" and self.input_below is None:
            raise ClockwattError("--input-dtype int64: give --input-below too, which token ids are below.")
        if self.input_dtype == "float" and self.input_below is not None:
            raise ClockwattError(
                "--input-below is for token ids, and --input-dtype float is for none: give one of both."
            )
        if self.cache_length is not None and not str(self.name).startswith("hf:"):
            raise ClockwattError("--cache-length is for decoders given as hf:CONFIG.json.")

    def _as_measured(self, name: str, known: _Known) -> NetworkConfig:
        """With the input that the network was measured with first."""
        measured = known.first_input(name, self.dtype)
        network = None
        if measured is not None:
            network = replace(self, inputs=[measured[1]]).network(known.folder)
        if not known.has(name):
            close = ", ".join(difflib.get_close_matches(name, known.networks["network"].unique(), n=3))
            raise ClockwattError(
                f"no network {name} was measured{f' (did you mean {close}?)' if close else ''}, so its input is not "
                "known: give a network and its --input, batch first, such as --input 32,3,224,224."
            )
        if measured is None or network is None or network.network_id != measured[0]:
            raise ClockwattError(
                f"{name} in {self.dtype} was not measured with one input: give a network and its --input, batch first, "
                "such as --input 32,3,224,224."
            )
        return network

    def _input(self, name: str, known: _Known) -> dict[str, Any]:
        assert self.inputs
        if any("=" in text for text in self.inputs):
            if self.input_dtype is not None or self.input_below is not None:
                raise ClockwattError(
                    "--input-dtype and --input-below go with one --input SHAPE; write NAME=SHAPE:int64:BELOW instead."
                )
            given = [_keyword_input(text) for text in self.inputs]
            keywords = [keyword for keyword, _ in given]
            for keyword in keywords:
                if keywords.count(keyword) > 1:
                    raise ClockwattError(f"--input {keyword}=…: is given {keywords.count(keyword)} times.")
            return {"inputs": dict(given)}
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
        columns = ["network", "network_id", "dtype", "input_shape"]
        there = path.exists()
        table = files.read_table(path, NETWORK_SCHEMA, columns).to_pandas() if there else pd.DataFrame(columns=columns)
        return cls(folder, table)

    def full_name(self, name: str) -> str:
        """A network of the campaign by the last part of its name, where there is one such; else as it was given."""
        full = {one for one in self.networks["network"] if one.endswith(f":{name}")}
        return full.pop() if len(full) == 1 and ":" not in name else name

    def has(self, name: str) -> bool:
        """Whether a network goes by this name, or ends with it."""
        return self.full_name(name) in set(self.networks["network"])

    def first_input(self, name: str, dtype: str) -> tuple[str, str] | None:
        """Id of a network where it stands first, and the shape of its first input as it is typed; None if nowhere."""
        own = self.networks[(self.networks["network"] == name) & (self.networks["dtype"] == dtype)]
        if own.empty:
            return None
        return str(own["network_id"].iloc[0]), _text(own["input_shape"].iloc[0])

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


def parse_shape(text: str, typed: str | None = None) -> list[int]:
    """Read `32,3,224,224`; `typed` is all that was written for it.

    ClockwattError if it is no shape.
    """
    try:
        shape = [int(size) for size in text.split(",")]
    except ValueError:
        shape = []
    if not shape or min(shape) < 1:
        raise ClockwattError(f"--input {text if typed is None else typed!r}: {_SHAPE}.")
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
    given: dict[str, Any] = {"shape": parse_shape(shape, text)}
    if dtype:
        given["dtype"] = dtype
    if below:
        given["below"] = int(below)
    return keyword, given


def typed_inputs(only: Shape | None, inputs: Mapping[str, KeywordInput] | None) -> list[str]:
    """Inputs as the command line writes them."""
    if only is not None and inputs:
        raise ClockwattError("input is a network's only one, inputs are several by keyword: give one or the other.")
    return (
        [_text(only)] if only is not None else [f"{name}={_keyword(given)}" for name, given in (inputs or {}).items()]
    )


def _keyword(given: KeywordInput) -> str:
    if not isinstance(given, Mapping):
        return _text(given)
    more = [str(given[key]) for key in ("dtype", "below") if key in given]
    return ":".join([_text(given["shape"]), *more])


def _text(shape: Iterable[int]) -> str:
    return ",".join(map(str, shape))
