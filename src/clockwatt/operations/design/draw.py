"""Which operations are drawn: quotas of families, bounds in time and memory, a seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from clockwatt.config import PASSES, DesignConfig, Pass
from clockwatt.errors import ConfigError
from clockwatt.gpu.specs import GpuSpec, find_spec
from clockwatt.operations import numerics
from clockwatt.operations.design import convolutions, extremes, indexed, memory, recurrent, spectral, tokens
from clockwatt.operations.design.block import Block, trace_block
from clockwatt.operations.design.sizes import Sizes
from clockwatt.operations.networks import FAULTS
from clockwatt.operations.rows import operation_row
from clockwatt.operations.spec.operation import MATRIX_CLASSES, Operation
from clockwatt.schema.execution import TF32, ExecutionSettings
from clockwatt.schema.records import OPTIMIZER, TRAINING, OperationRow

DESIGN = "design"
"""Source of an operation that no network of the campaign calls."""

QUOTAS: dict[str, tuple[float, Callable[[Sizes], Block]]] = {
    "convolution": (17, convolutions.dense),
    "grouped_convolution": (12, convolutions.grouped),
    "depthwise_convolution": (6, convolutions.depthwise),
    "convolution_1d": (3, convolutions.signal),
    "convolution_3d": (5, convolutions.volume),
    "transposed_convolution": (7, convolutions.transposed),
    "linear": (10, tokens.linear),
    "product": (7, tokens.product),
    "attention": (11, tokens.attention),
    "token_normalisation": (3, tokens.token_norm),
    "picture_normalisation": (5, tokens.picture_norm),
    "embedding": (1.5, tokens.embedding),
    "softmax": (2, tokens.softmax),
    "loss": (2, tokens.loss),
    "recurrent": (2.5, recurrent.recurrent),
    "activation": (2, memory.activation),
    "dropout": (0.7, memory.dropout),
    "pool": (4, memory.pool),
    "interpolation": (5, memory.interpolation),
    "arithmetic": (2, memory.arithmetic),
    "broadcast": (4, memory.broadcast),
    "copies": (6, memory.copies),
    "reduction": (3.5, memory.reduction),
    "picked": (1.5, memory.picked),
    "tall": (0, extremes.tall),
    "long_signal": (0, extremes.long_signal),
    "long_recurrent": (0, extremes.long_recurrent),
    "enlarged": (0, extremes.enlarged),
    "volume": (0, extremes.volume),
    "narrow_picture": (0, extremes.narrow_picture),
    "windowed_attention": (0, extremes.windowed_attention),
    "small_batch": (0, extremes.small_batch),
    "thin_volume": (0, extremes.thin_volume),
    "long_attention": (0, extremes.long_attention),
    "weight_normalisation": (0, extremes.weight_normalisation),
    "laid_out_attention": (0, extremes.laid_out_attention),
    "doubled_picture": (0, extremes.doubled_picture),
    "patches": (0, extremes.patches),
    "modulated_convolution": (0, extremes.modulated_convolution),
    "decoding": (0, extremes.decoding),
    "graph": (0, indexed.graph),
    "table": (0, indexed.table),
    "position_bias": (0, indexed.position_bias),
    "transform": (0, spectral.transform),
    "modes": (0, spectral.modes),
}
"""Share of each family in the blocks of the first round, and what draws a block: most where predictions failed.

Those with no share are drawn where a campaign names them, so that a seed draws what it always drew.
"""

_OPTIMIZER_SHARE = 0.012
_BARREN = 3000
"""So many blocks in turn without a new operation say that there are no more."""
_RECURRENT = frozenset({"lstm", "gru"})
_NOT_MEASURED = frozenset({"zeros", "ones", "empty", "arange"})
"""Classes that only prepare what a block takes."""


@dataclass(frozen=True)
class Bounds:
    """What may be drawn: the time of the roofline on a GPU, and bytes moved."""

    gpu: GpuSpec
    min_time_s: float
    max_time_s: float
    max_memory_bytes: float

    @classmethod
    def of(cls, design: DesignConfig) -> Bounds:
        """The bounds that a campaign sets."""
        return cls(find_spec(design.gpu), design.min_time_s, design.max_time_s, design.max_memory_bytes)

    def exceeded(self, row: OperationRow) -> bool:
        """Whether an operation takes too long or moves too much under one of its precisions."""
        settings = map(ExecutionSettings, row.measured_execution or [TF32])
        longest = max(roofline_time_s(row, self.gpu, one) for one in settings)
        return longest > self.max_time_s or row.bytes_read + row.bytes_written > self.max_memory_bytes

    def reached(self, row: OperationRow) -> bool:
        """Whether an operation takes at least the shortest time."""
        return roofline_time_s(row, self.gpu, TF32) >= self.min_time_s


def roofline_time_s(row: OperationRow, gpu: GpuSpec, execution: ExecutionSettings) -> float:
    """FLOPs over the peak plus bytes over the bandwidth at boost clock; grouped convolutions on the ordinary units."""
    matrix = row.operation_class in MATRIX_CLASSES | _RECURRENT
    if matrix and Operation.from_json(row.spec).is_grouped_convolution:
        matrix = False
    peak = gpu.peak_flops(row.dtype, tf32=execution.matrix_tf32, matrix=matrix)
    return row.flops / peak + (row.bytes_read + row.bytes_written) / gpu.bandwidth_bytes_s


def drawn_operations(design: DesignConfig, passes: Sequence[Pass]) -> Iterator[OperationRow]:
    """Operations of the first round, each once, in the order of the draw.

    Parameters
    ----------
    design
        Seed and bounds; its number of operations decides only where to stop, so that a larger one keeps the earlier.
    passes
        In which blocks are drawn.

    Yields
    ------
    OperationRow
        With its block, precisions and quantities.

    Raises
    ------
    ConfigError
        If families, passes and bounds leave nothing more to draw.
    """
    numerics.apply(TF32)
    bounds = Bounds.of(design)
    seen: set[tuple[str, str]] = set()
    number = last = 0
    while number - last < _BARREN:
        for row in _block_rows(design, number, passes, bounds):
            key = row.operation_id, row.pass_
            if key in seen:
                continue
            seen.add(key)
            last = number if row.kind != OPTIMIZER else last
            yield row
            if len(seen) == design.operations:
                return
        number += 1
    raise ConfigError(
        f"design: {_BARREN} blocks in turn gave no operation that is new and within the bounds, after {len(seen)} of "
        f"{design.operations}. Lower `operations`, widen the bounds in time and memory, or name other families."
    )


def _block_rows(design: DesignConfig, number: int, passes: Sequence[Pass], bounds: Bounds) -> list[OperationRow]:
    """Rows of one block in one pass; none if PyTorch refuses it, or if one of its operations exceeds a bound."""
    sizes = Sizes(f"{design.seed}/{number}")
    pass_ = sizes.one_of([pass_ for pass_ in PASSES if pass_ in passes])
    if pass_ == TRAINING and sizes.chance(_OPTIMIZER_SHARE):
        label = f"optimizer-{design.seed}-{number}"
        found = [operation_row(recurrent.optimizer_step(sizes), OPTIMIZER, pass_)]
    else:
        shares = design.families or {name: share for name, (share, _) in QUOTAS.items()}
        family = sizes.one_of(list(shares), list(shares.values()))
        label = f"{family}-{design.seed}-{number}"
        try:
            with torch.device("meta"):
                block = QUOTAS[family][1](sizes)
            calls = trace_block(block, label, learns=pass_ == TRAINING)
        except FAULTS:
            return []
        found = [
            operation_row(call.operation, call.kind, pass_)
            for call in calls
            if call.kind == "compute" and call.operation.operation_class not in _NOT_MEASURED
        ]
    rows = []
    for row in found:
        row.source, row.block, row.design_round = DESIGN, label, 0
        row.measured_quantities = list(design.quantities)
        row.measured_execution = _precisions(sizes, row)
        if bounds.exceeded(row):
            return []
        if row.device_work and bounds.reached(row):
            rows.append(row)
    return rows


def _precisions(sizes: Sizes, row: OperationRow) -> list[str]:
    """Precisions to measure in: without TF32 more often than with it, both at times, one where it makes no odds."""
    drawn = sizes.one_of((["fp32"], ["tf32"], ["fp32", "tf32"]), (46, 34, 20))
    matters = row.dtype == "float32" and row.operation_class in MATRIX_CLASSES | _RECURRENT
    return drawn if matters else ["tf32"]
