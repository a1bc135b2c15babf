"""The stage `clockwatt catalogue`: every configured network traced, designed operations drawn, with what each costs.

One process does it all: over all networks of torchvision two were a tenth faster and took two and a half times the
memory.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from clockwatt.config import CampaignConfig, DesignConfig, NetworkConfig, Pass, TrainingConfig
from clockwatt.errors import NetworkError
from clockwatt.io import files
from clockwatt.io.progress import progress
from clockwatt.operations import optimizers
from clockwatt.operations.design.rounds import designed_operations
from clockwatt.operations.rows import operation_row
from clockwatt.operations.trace.trace import Build, Trace, trace_network
from clockwatt.schema import layout
from clockwatt.schema.records import (
    CALL_SCHEMA,
    NETWORK_SCHEMA,
    OPERATION_SCHEMA,
    SETTINGS_KEY,
    TRAINING,
    CallRow,
    NetworkRow,
    OperationRow,
    table_of,
)

SOURCE_NETWORK = "network"


@dataclass(frozen=True, slots=True)
class Traced:
    """What one network in one pass adds to the catalogue."""

    network: NetworkRow
    calls: list[CallRow]
    operations: list[OperationRow]


def write_catalogue(
    config: CampaignConfig,
    output_dir: Path,
    ended: Mapping[str, str] | None = None,
    begin: Callable[[str], None] = lambda _: None,
) -> None:
    """Trace a campaign's networks and write operations.parquet, calls.parquet and networks.parquet.

    Parameters
    ----------
    config
        Names the networks and passes.
    output_dir
        Made if it does not exist.
    ended
        Networks that must not be traced, by id, and why.
    begin
        Called with the id of each network before it is traced.

    Raises
    ------
    NetworkError
        Naming every network that cannot be found, built or traced; nothing is written.
    OutputError
        If a file cannot be written.
    """
    operations: dict[tuple[str, str], OperationRow] = {}
    calls: list[CallRow] = []
    networks: list[NetworkRow] = []
    entries: dict[str, list[NetworkConfig]] = {}
    for network in config.networks:
        entries.setdefault(network.network_id, []).append(network)
    refused: dict[str, str] = dict(ended or {})
    with progress("catalogue", len(entries) * len(config.passes)) as advance:
        for network_id, same in entries.items():
            for pass_ in config.passes:
                if network_id in refused:
                    break
                begin(network_id)
                try:
                    traced = trace_rows(same[0], pass_, config.training)
                except NetworkError as error:
                    refused[network_id] = str(error)
                    break
                whole = [entry for entry in same if entry.whole]
                traced.network.measured_execution = _wanted_by(whole)
                traced.network.measured_quantities = list(config.quantities_of(whole))
                networks.append(traced.network)
                calls.extend(traced.calls)
                for row in traced.operations:
                    known = operations.setdefault((row.operation_id, row.pass_), row)
                    known.source = SOURCE_NETWORK
                    wanting = [entry for entry in same if sampled(row.operation_id, entry.sample)]
                    known.measured_execution = sorted({*_wanted_by(wanting), *(known.measured_execution or ())})
                    quantities = {*config.quantities_of(wanting), *(known.measured_quantities or ())}
                    known.measured_quantities = sorted(quantities, reverse=True)  # time first
                advance(f"{network_id} {pass_}")
    if refused:
        raise NetworkError(" ".join(dict.fromkeys(refused.values())))
    if config.design is not None:
        _add_designed(config.design, config.passes, operations)
    files.write_table(table_of(operations.values(), OPERATION_SCHEMA), output_dir / layout.OPERATIONS_FILE)
    files.write_table(table_of(calls, CALL_SCHEMA), output_dir / layout.CALLS_FILE)
    table = table_of(networks, NETWORK_SCHEMA)
    settings = {SETTINGS_KEY: json.dumps(config.catalogue_settings(), sort_keys=True).encode()}
    files.write_table(
        table.replace_schema_metadata((table.schema.metadata or {}) | settings), output_dir / layout.NETWORKS_FILE
    )


def _wanted_by(entries: Sequence[NetworkConfig]) -> list[str]:
    return sorted({name for entry in entries for name in entry.precision})


def _add_designed(
    design: DesignConfig, passes: Sequence[Pass], operations: dict[tuple[str, str], OperationRow]
) -> None:
    """Add what is drawn by design; an operation that a network calls too is measured for both."""
    with progress("design", design.operations + sum(entry.operations for entry in design.rounds)) as advance:
        for row in designed_operations(design, passes):
            known = operations.setdefault((row.operation_id, row.pass_), row)
            known.measured_execution = sorted({*(known.measured_execution or ()), *(row.measured_execution or ())})
            if known.measured_quantities is not None:  # null: what the campaign asks for, which is all there is
                wanted = {*known.measured_quantities, *(row.measured_quantities or ())}
                known.measured_quantities = sorted(wanted, reverse=True)  # time first
            advance(row.block or "")


def sampled(operation_id: str, share: float) -> bool:
    """Whether an operation belongs to a sample of this share: its hash, so that larger samples include smaller ones."""
    digest = hashlib.sha256(f"sample/{operation_id}".encode()).digest()
    return int.from_bytes(digest[:8]) < share * 2**64


def trace_rows(network: NetworkConfig, pass_: Pass, training: TrainingConfig, build: Build | None = None) -> Traced:
    """Trace one network in one pass, into rows; `build` as `trace_network` takes it.

    Raises
    ------
    NetworkError
        See `write_catalogue`.
    """
    return rows_of(network, pass_, training, trace_network(network, pass_, training, build))


def rows_of(network: NetworkConfig, pass_: Pass, training: TrainingConfig, trace: Trace) -> Traced:
    """Return the rows of a traced pass.

    Raises
    ------
    NetworkError
        If it does no work on a device.
    """
    # in reverse, so that the first call of each operation decides its kind
    unique = {call.operation.operation_id: call for call in reversed(trace.calls)}
    operations = [operation_row(call.operation, call.kind, pass_) for call in reversed(unique.values())]
    if not any(row.device_work for row in operations):
        raise NetworkError(f"network {network.name}: computes nothing on a GPU. Give another network.")
    return Traced(
        _network_row(network, pass_, training, trace),
        [
            CallRow(
                network_id=network.network_id,
                pass_=pass_,
                position=position,
                phase=call.phase,
                operation_id=call.operation.operation_id,
                module_path=call.module_path,
                tensors_in=call.tensors_in,
                tensors_out=call.tensors_out,
            )
            for position, call in enumerate(trace.calls)
        ],
        operations,
    )


def _network_row(network: NetworkConfig, pass_: Pass, training: TrainingConfig, trace: Trace) -> NetworkRow:
    return NetworkRow(
        network_id=network.network_id,
        network=network.name,
        input_shape=network.first_input.shape,
        dtype=network.variant,
        pass_=pass_,
        calls=len(trace.calls),
        module_calls=trace.module_calls,
        backward_nodes=trace.backward_nodes,
        parameters=trace.parameters,
        parameter_bytes=trace.parameter_bytes,
        optimizer=optimizers.described(training) if pass_ == TRAINING else None,
        assumed_branches=trace.assumed_branches,
        grouped_convolutions=sum(call.operation.is_grouped_convolution for call in trace.calls),
        batch_norms=trace.batch_norms,
    )
