"""What a question is about: a network traced, or operations from a file."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.compute as pc
from pydantic import ValidationError

from clockwatt.config import NetworkConfig, Pass, TrainingConfig
from clockwatt.errors import ClockwattError, DataFileError
from clockwatt.gpu.specs import find_spec
from clockwatt.io import files
from clockwatt.predict.answer import TracedNetwork
from clockwatt.predict.description import GpuDescription
from clockwatt.schema import layout, records
from clockwatt.schema.records import CALL_SCHEMA, NETWORK_SCHEMA, OPERATION_SCHEMA, NetworkRow, column_name


def traced_network(network: NetworkConfig, pass_: Pass, training: TrainingConfig, catalogue_dir: Path) -> TracedNetwork:
    """A network's calls in one pass: from the catalogue where it is in it, else traced now, which takes torch.

    Raises
    ------
    DataFileError
        If the catalogue that is there is damaged.
    NetworkError
        If the network cannot be found or traced.
    """
    if (catalogue_dir / layout.NETWORKS_FILE).exists():
        catalogued = _from_catalogue(network, pass_, catalogue_dir)
        if catalogued is not None and not _ids_above(network, catalogued):
            return catalogued
    from clockwatt.operations.catalogue import trace_rows

    traced = trace_rows(network, pass_, training)
    return TracedNetwork(traced.network, _frame(traced.calls), _frame(traced.operations))


def training_of(predictors_dir: Path) -> TrainingConfig:
    """The training step that the predictors' campaign measured; the usual one where they do not say.

    DataFileError if the file that says it is damaged.
    """
    path = predictors_dir / layout.TRAINING_FILE
    try:
        return TrainingConfig.model_validate_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return TrainingConfig()
    except ValidationError as error:
        what = error.errors()[0]["msg"]
    except (OSError, ValueError) as error:
        what = str(error)
    raise DataFileError(f"{path}: holds no training step ({what}). Run `clockwatt fit` again.")


def check_same_gpu(device: str, label: str, description: GpuDescription) -> None:
    """Refuse to measure on a GPU for predictors of another one, as shipped ones may be.

    ClockwattError if the campaign's label stands for another model, or the one is virtual and the other is not.
    """
    same = device.startswith("virtual:") == description.virtual and find_spec(device) == find_spec(description.gpu_name)
    if not same:
        raise ClockwattError(
            f"--gpu {label}: is {device} in the campaign, but these predictors are of {description.gpu_name}. Give the "
            "campaign's GPU another label, or fit predictors of it."
        )


def listed_operations(path: Path, pass_: Pass) -> TracedNetwork:
    """Operations with counts from a file, which takes torch: see `operations.listed`.

    DataFileError if the file is missing or a line of it is no operation with a count.
    """
    from clockwatt.operations.operation_list import read_listed

    listed = read_listed(path, pass_)
    return TracedNetwork(listed.network, _frame(listed.calls), _frame(listed.operations), is_network=False)


def _from_catalogue(network: NetworkConfig, pass_: Pass, catalogue_dir: Path) -> TracedNetwork | None:
    def chosen(name: str, schema: Any) -> Any:
        table = files.read_table(catalogue_dir / name, schema)
        return table.filter(pc.and_(pc.equal(table["network_id"], network.network_id), pc.equal(table["pass"], pass_)))

    found = chosen(layout.NETWORKS_FILE, NETWORK_SCHEMA).to_pylist()
    if not found:
        return None
    calls = chosen(layout.CALLS_FILE, CALL_SCHEMA).sort_by("position").to_pandas()
    operations = files.read_table(catalogue_dir / layout.OPERATIONS_FILE, OPERATION_SCHEMA).to_pandas()
    mine = operations["operation_id"].isin(calls["operation_id"]) & (operations["pass"] == pass_)
    return TracedNetwork(records.row_of(NetworkRow, found[0]), calls, operations[mine].reset_index(drop=True))


def _ids_above(network: NetworkConfig, catalogued: TracedNetwork) -> bool:
    """Whether an input's indices may be larger than any that the network indexes with; tracing tells what is wrong."""
    below = max((one.below or 0 for one in network.by_keyword.values()), default=0)
    if below == 0:
        return False
    own = catalogued.operations
    indexed = own.loc[own["operation_class"] == "embedding", "spec"]
    bounds = [tensor.get("below") or 0 for spec in indexed for tensor in json.loads(spec)["tensors"]]
    return below > max(bounds, default=below)


def _frame(rows: list[Any]) -> pd.DataFrame:
    """Rows as a frame with the columns' names."""
    names = [entry.name for entry in dataclasses.fields(rows[0])]
    return pd.DataFrame({column_name(name): [getattr(row, name) for row in rows] for name in names})
