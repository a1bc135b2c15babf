"""A catalogue made by hand, so that measuring needs no torch."""

from pathlib import Path

from clockwatt.io import files
from clockwatt.operations.spec.operation import Operation, OutputSpec, TensorSpec
from clockwatt.schema import records
from clockwatt.schema.records import CALL_SCHEMA, NETWORK_SCHEMA, OPERATION_SCHEMA, CallRow, NetworkRow, OperationRow

NETWORK = "toy-8x64-float32"


def operation(
    size: int, *, function: str = "torch.relu", pass_: str = "inference", flops: int | None = None, work: bool = True
):
    training = pass_ == "training"
    x = TensorSpec.dense((size,), grad=training)
    out = OutputSpec(x.shape, x.dtype, x.stride, grad=training)
    spec = Operation(function, ({"tensor": 0},), {}, (x,), (out,), grad_out=(x.stride,) if training else ())
    return OperationRow(
        operation_id=spec.operation_id, pass_=pass_, function=function, operation_class=spec.operation_class,
        kind="compute" if work else "view", device_work=work, dtype="float32", spec=spec.to_json(),
        flops=size if flops is None else flops, flops_source="formula", bytes_read=4 * size, bytes_written=4 * size,
        parameter_bytes=0,
    )  # fmt: skip


def write_catalogue(folder: Path, operations: list[OperationRow]) -> None:
    calls = [
        CallRow(
            network_id=NETWORK, pass_=row.pass_, position=i, phase="forward", operation_id=row.operation_id,
            module_path="", tensors_in=[i], tensors_out=[i + 1],
        )
        for pass_ in ("inference", "training")
        for i, row in enumerate(row for row in operations if row.pass_ == pass_)
    ]  # fmt: skip
    networks = [
        NetworkRow(
            network_id=NETWORK, network="toy", input_shape=[8, 64], dtype="float32", pass_=pass_, calls=len(calls) // 2,
            module_calls=3, backward_nodes=4 if pass_ == "training" else 0, parameters=10, parameter_bytes=40,
            optimizer=None,
        )
        for pass_ in ("inference", "training")
    ]  # fmt: skip
    files.write_table(records.table_of(operations, OPERATION_SCHEMA), folder / "operations.parquet")
    files.write_table(records.table_of(calls, CALL_SCHEMA), folder / "calls.parquet")
    files.write_table(records.table_of(networks, NETWORK_SCHEMA), folder / "networks.parquet")
