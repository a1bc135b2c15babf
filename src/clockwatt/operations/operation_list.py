"""Operations with counts from a file: a network's work without the network.

Lines of JSON, `{"spec": {"fn": "torch.relu", …}, "count": 3}`, or of a printed module, the shape of its input and a
count, `Conv2d(3, 8, kernel_size=(3, 3), stride=(1, 1)) 32x3x224x224 ×3`; or Parquet with the columns `spec` (canonical
JSON) and `count`. A missing count is 1.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from clockwatt.config import Pass
from clockwatt.errors import DataFileError
from clockwatt.io import files
from clockwatt.operations.catalogue import Traced
from clockwatt.operations.printed_modules import UnknownModuleError, operation_of
from clockwatt.operations.rows import operation_row
from clockwatt.operations.spec.operation import Operation, OperationSpecError
from clockwatt.schema.records import FORWARD, OPTIMIZER, TRAINING, CallRow, NetworkRow, OperationRow

LISTED_SCHEMA = pa.schema(
    [pa.field("spec", pa.string()), pa.field("count", pa.int64())], metadata={"kind": "operation with count"}
)

COUNT_AT_MOST = 1_000_000

_PRINTED = re.compile(r"(?P<module>[A-Za-z]\w*\(.*\))\s+(?P<shape>\d+(?:x\d+)*)(?:\s+[×x](?P<count>\d+))?")
_WRITE = (
    'write {"spec": {…}, "count": 1}, the spec as an object, or a printed module with the shape of its input and a '
    "count: ReLU() 32x64x56x56 ×2."
)


def read_listed(path: Path, pass_: Pass) -> Traced:
    """Read operations with counts, as if a network of that name called each so often.

    Parameters
    ----------
    path
        `*.parquet`, or lines of JSON or printed modules.
    pass_
        `inference` or `training`. Specs from a training pass say which gradients arrive.

    Raises
    ------
    DataFileError
        Naming the file and the line that is no operation with a count, or if it holds none.
    """
    rows: dict[str, OperationRow] = {}
    calls: list[CallRow] = []
    grouped = 0
    for line, spec, count in _lines(path, pass_):
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= COUNT_AT_MOST:
            raise DataFileError(f"{path}:{line}: count {count!r} is not a whole number from 1 to {COUNT_AT_MOST}.")
        try:
            operation = Operation.from_json(spec)
            if operation.operation_id not in rows:
                kind = OPTIMIZER if operation.is_optimizer else "compute"
                rows[operation.operation_id] = operation_row(operation, kind, pass_)
        except OperationSpecError as error:
            raise DataFileError(f"{path}:{line}: {error}") from None
        phase = OPTIMIZER if operation.is_optimizer else FORWARD
        first = len(calls)
        grouped += count * operation.is_grouped_convolution
        calls += [
            CallRow(
                network_id=path.stem, pass_=pass_, position=first + number, phase=phase,
                operation_id=operation.operation_id, module_path="", tensors_in=[], tensors_out=[],
            )
            for number in range(count)
        ]  # fmt: skip
    if not calls:
        raise DataFileError(f"{path}: holds no operation. Write a line for each.")
    return Traced(_network(path.stem, pass_, len(calls), grouped, rows), calls, list(rows.values()))


def _lines(path: Path, pass_: Pass) -> Iterator[tuple[int, str, object]]:
    """Number from 1, spec as JSON text and count of each line."""
    if path.suffix == ".parquet":
        with files.named_by_user("Give Parquet with the columns spec and count, or lines of text."):
            rows = files.read_table(path, LISTED_SCHEMA).to_pylist()
        for number, row in enumerate(rows, 1):
            yield number, row["spec"] or "", 1 if row["count"] is None else row["count"]
        return
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataFileError(
            f"{path}: cannot be read ({error}). Give lines of text, or Parquet ending in .parquet."
        ) from None
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        if printed := _PRINTED.fullmatch(line.strip()):
            shape = [int(size) for size in printed["shape"].split("x")]
            try:
                operation = operation_of(printed["module"], shape, pass_)
            except UnknownModuleError as error:
                raise DataFileError(f"{path}:{number}: {error}") from None
            yield number, operation.to_json(), int(printed["count"] or 1)
            continue
        try:
            entry = json.loads(line)
        except ValueError as error:
            raise DataFileError(f"{path}:{number}: not JSON ({error}); {_WRITE}") from None
        if not isinstance(entry, dict) or not isinstance(entry.get("spec"), dict) or not {*entry} <= {"spec", "count"}:
            raise DataFileError(f"{path}:{number}: {_WRITE}")
        yield number, json.dumps(entry["spec"]), entry.get("count", 1)


def _network(name: str, pass_: Pass, calls: int, grouped: int, rows: dict[str, OperationRow]) -> NetworkRow:
    parameter_bytes = sum(row.parameter_bytes for row in rows.values())
    return NetworkRow(
        network_id=name,
        network=name,
        input_shape=[],
        dtype=next(iter(rows.values())).dtype,
        pass_=pass_,
        calls=calls,
        module_calls=0,
        backward_nodes=calls if pass_ == TRAINING else 0,
        parameters=0,
        parameter_bytes=parameter_bytes,
        optimizer=None,
        grouped_convolutions=grouped,
    )
