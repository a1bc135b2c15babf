"""What a question is about: a network traced, or operations from a file, and the GPUs that have room for it."""

from __future__ import annotations

import dataclasses
import functools
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import ValidationError

from clockwatt.config import NetworkConfig, Pass, TrainingConfig
from clockwatt.errors import ClockwattError, DataFileError
from clockwatt.gpu.specs import UnknownGpuError, find_spec
from clockwatt.io import files
from clockwatt.predict.composition.pipeline import Composer
from clockwatt.predict.description import GpuDescription
from clockwatt.predict.evaluation.pass_errors import GAP_S
from clockwatt.predict.features.operations import operation_features
from clockwatt.schema import layout, records
from clockwatt.schema.records import CALL_SCHEMA, NETWORK_SCHEMA, OPERATION_SCHEMA, NetworkRow, column_name, table_of


@dataclass(frozen=True)
class TracedNetwork:
    """A network in one pass, as the catalogue has it.

    Attributes
    ----------
    network
        Its row of the catalogue.
    calls
        Its calls in order, with `operation_id` and `phase`.
    operations
        Its unique operations, with `features.operations.CATALOGUE_COLUMNS` and `device_work`.
    is_network
        False for a list of operations, to which what is known of networks does not apply.
    """

    network: NetworkRow
    calls: pd.DataFrame
    operations: pd.DataFrame
    is_network: bool = True

    @functools.cached_property
    def features(self) -> pd.DataFrame:
        """Features of the operations with device work; the same on every GPU."""
        return operation_features(self.operations[self.operations["device_work"].astype(bool)])

    @property
    def gap_s(self) -> float:
        """What gaps between its calls may take more or less than measured; 0 for a list of operations."""
        return GAP_S[self.network.pass_] if self.is_network else 0.0

    def tables(self) -> tuple[pa.Table, pa.Table, pa.Table]:
        """As tables of a catalogue: the network, its calls, its operations."""
        settings = {"measured_tf32": None, "measured_quantities": None}
        return (
            table_of([replace(self.network, measured_tf32=None, measured_quantities=None)], NETWORK_SCHEMA),
            pa.Table.from_pandas(self.calls.reindex(columns=CALL_SCHEMA.names), CALL_SCHEMA, preserve_index=False),
            pa.Table.from_pandas(
                self.operations.reindex(columns=OPERATION_SCHEMA.names).assign(**settings),
                OPERATION_SCHEMA,
                preserve_index=False,
            ),
        )

    @functools.cached_property
    def composer(self) -> Composer:
        """Composes the pass from costs of `operations`, in their order."""
        return Composer(self.calls, self.network, pd.Index(self.operations["operation_id"]))


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
    from clockwatt.operations.listed import read_listed

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


def check_fits(traced: TracedNetwork, gpu_names: list[str]) -> set[str]:
    """The GPUs whose memory has room for what a pass needs at least: weights, their gradients, the largest operation.

    ClockwattError if none of them has.
    """
    row = traced.network
    states = 0 if row.optimizer is None else 2 if "adam" in row.optimizer else 1
    copies = 1 if row.pass_ != records.TRAINING else 2 + states
    moved = traced.operations["bytes_read"] + traced.operations["bytes_written"]
    largest = int(moved.max()) // (1 if row.pass_ != records.TRAINING else 2)
    needed = max(copies * row.parameter_bytes, largest)
    memory = {}
    for name in gpu_names:
        try:
            memory[name] = find_spec(name).memory_bytes
        except UnknownGpuError:
            memory[name] = needed
    if all(needed > size for size in memory.values()):
        largest_gpu, size = max(memory.items(), key=lambda item: item[1])
        raise ClockwattError(
            f"{row.network_id}: a pass of {row.pass_} needs at least {needed / 2**30:.0f} GiB, more than the "
            f"{size / 2**30:.0f} GiB of {largest_gpu}: choose a smaller batch or network."
        )
    return {name for name, size in memory.items() if needed <= size}
