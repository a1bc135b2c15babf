"""Rows of the catalogue from operations."""

from __future__ import annotations

from clockwatt.config import Pass
from clockwatt.operations.cost import cost
from clockwatt.operations.spec.operation import Operation
from clockwatt.schema.records import OperationRow


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
