"""The reference operations: a fixed few, from host-bound to power-capped, measured first and last in every shard.

`dataset` computes a factor per card and a drift per hour from them.
"""

from __future__ import annotations

from typing import Any

from clockwatt.operations.spec.operation import Operation, OutputSpec, TensorSpec
from clockwatt.schema.records import INFERENCE, OperationRow


def anchors() -> list[OperationRow]:
    """Return the reference operations as rows of a catalogue in the inference pass."""
    return [
        _elementwise("torch.nn.functional.relu", (256,)),  # host-bound
        _elementwise("torch.nn.functional.relu", (64, 64, 112, 112)),  # memory-bound
        _elementwise("torch.nn.functional.softmax", (4096, 4096), {"dim": -1}, flops_per_element=5),
        _linear(32, 2048, 1000),  # a small matrix product
        _linear(8192, 4096, 4096),  # power-capped on most cards
    ]


def matrix_product(size: int, dtype: str) -> OperationRow:
    """Return the product of two square matrices as a row of a catalogue in the inference pass."""
    x, y = TensorSpec.dense((size, size), dtype), OutputSpec((size, size), dtype, (size, 1))
    return _row(Operation("torch.matmul", ({"tensor": 0}, {"tensor": 1}), {}, (x, x), (y,)), 2 * size**3)


def memory_copy(elements: int) -> OperationRow:
    """Return a copy of float32 within the memory of the GPU, as `matrix_product` does."""
    x = TensorSpec.dense((elements,))
    return _row(Operation("torch.clone", ({"tensor": 0},), {}, (x,), (OutputSpec((elements,), x.dtype, (1,)),)), 0)


def _elementwise(
    function: str, shape: tuple[int, ...], kwargs: dict[str, Any] | None = None, flops_per_element: int = 1
) -> OperationRow:
    x = TensorSpec.dense(shape)
    out = OutputSpec(shape, x.dtype, x.stride)
    return _row(Operation(function, ({"tensor": 0},), kwargs or {}, (x,), (out,)), flops_per_element * x.elements)


def _linear(batch: int, inputs: int, outputs: int) -> OperationRow:
    x, bias = TensorSpec.dense((batch, inputs)), TensorSpec.dense((outputs,), parameter=True)
    weight = TensorSpec.dense((outputs, inputs), parameter=True)
    out = OutputSpec((batch, outputs), x.dtype, (outputs, 1))
    arguments = ({"tensor": 0}, {"tensor": 1}, {"tensor": 2})
    operation = Operation("torch.nn.functional.linear", arguments, {}, (x, weight, bias), (out,))
    return _row(operation, 2 * batch * inputs * outputs)


def _row(operation: Operation, flops: int) -> OperationRow:
    return OperationRow(
        operation_id=operation.operation_id,
        pass_=INFERENCE,
        function=operation.function,
        operation_class=operation.operation_class,
        kind="compute",
        device_work=True,
        dtype=operation.dtype,
        spec=operation.to_json(),
        flops=flops,
        flops_source="formula",
        bytes_read=sum(tensor.bytes for tensor in operation.tensors),
        bytes_written=sum(output.bytes for output in operation.out),
        parameter_bytes=sum(tensor.bytes for tensor in operation.tensors if tensor.parameter),
    )
