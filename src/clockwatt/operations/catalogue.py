"""The stage `clockwatt catalogue`: every configured network traced, and its unique operations with what they cost.

One process does it all: over all networks of torchvision two were a tenth faster and took two and a half times the
memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from clockwatt import files
from clockwatt.config import CampaignConfig, NetworkConfig, Pass, TrainingConfig
from clockwatt.operations import optimizers
from clockwatt.operations.cost import cost
from clockwatt.operations.operation import Operation
from clockwatt.operations.trace import Trace, trace_network
from clockwatt.progress import progress
from clockwatt.records import (
    CALL_SCHEMA,
    NETWORK_SCHEMA,
    OPERATION_SCHEMA,
    TRAINING,
    CallRow,
    NetworkRow,
    OperationRow,
    table_of,
)

OPERATIONS_FILE = "operations.parquet"
CALLS_FILE = "calls.parquet"
NETWORKS_FILE = "networks.parquet"


@dataclass(frozen=True, slots=True)
class Traced:
    """What one network in one pass adds to the catalogue."""

    network: NetworkRow
    calls: list[CallRow]
    operations: list[OperationRow]


def write_catalogue(config: CampaignConfig, output_dir: Path) -> None:
    """Trace a campaign's networks and write operations.parquet, calls.parquet and networks.parquet.

    Parameters
    ----------
    config
        Names the networks and passes.
    output_dir
        Made if it does not exist.

    Raises
    ------
    NetworkError
        If a network cannot be found, built or traced; nothing is written.
    OutputError
        If a file cannot be written.
    """
    operations: dict[tuple[str, str], OperationRow] = {}
    calls: list[CallRow] = []
    networks: list[NetworkRow] = []
    jobs = [(network, pass_) for network in config.networks for pass_ in config.passes]
    with progress("catalogue", len(jobs)) as advance:
        for network, pass_ in jobs:
            traced = trace_rows(network, pass_, config.training)
            networks.append(traced.network)
            calls.extend(traced.calls)
            for row in traced.operations:
                operations.setdefault((row.operation_id, row.pass_), row)
            advance(f"{traced.network.network_id} {traced.network.pass_}")
    files.write_table(table_of(operations.values(), OPERATION_SCHEMA), output_dir / OPERATIONS_FILE)
    files.write_table(table_of(calls, CALL_SCHEMA), output_dir / CALLS_FILE)
    files.write_table(table_of(networks, NETWORK_SCHEMA), output_dir / NETWORKS_FILE)


def trace_rows(network: NetworkConfig, pass_: Pass, training: TrainingConfig) -> Traced:
    """Trace one network in one pass, into rows.

    Raises
    ------
    NetworkError
        See `write_catalogue`.
    """
    trace = trace_network(network, pass_, training)
    # in reverse, so that the first call of each operation decides its kind
    unique = {call.operation.operation_id: call for call in reversed(trace.calls)}
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
        [operation_row(call.operation, call.kind, pass_) for call in reversed(unique.values())],
    )


def operation_row(operation: Operation, kind: str, pass_: Pass) -> OperationRow:
    """An operation's row, with what it costs; a `compute` that turns out random or without work is said to be so.

    Raises
    ------
    OperationSpecError
        If it cannot be built.
    """
    costs = cost(operation, pass_)
    if kind == "compute" and costs.random:
        kind = "random"
    elif kind == "compute" and not costs.device_work:
        kind = "view"
    return OperationRow(
        operation_id=operation.operation_id,
        pass_=pass_,
        function=operation.function,
        operation_class=operation.operation_class,
        kind=kind,
        device_work=costs.device_work,
        dtype=operation.dtype,
        spec=operation.to_json(),
        flops=costs.flops,
        flops_source=costs.flops_source,
        bytes_read=costs.bytes_read,
        bytes_written=costs.bytes_written,
        parameter_bytes=sum(tensor.bytes for tensor in operation.tensors if tensor.parameter),
    )


def _network_row(network: NetworkConfig, pass_: Pass, training: TrainingConfig, trace: Trace) -> NetworkRow:
    return NetworkRow(
        network_id=network.network_id,
        network=network.name,
        input_shape=network.input,
        dtype=network.dtype,
        pass_=pass_,
        calls=len(trace.calls),
        module_calls=trace.module_calls,
        backward_nodes=trace.backward_nodes,
        parameters=trace.parameters,
        parameter_bytes=trace.parameter_bytes,
        optimizer=optimizers.described(training) if pass_ == TRAINING else None,
        assumed_branches=trace.assumed_branches,
    )
