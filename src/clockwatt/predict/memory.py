"""Which GPUs have room in their memory for a pass."""

from __future__ import annotations

from clockwatt.errors import ClockwattError
from clockwatt.gpu.specs import UnknownGpuError, find_spec
from clockwatt.predict.answer import TracedNetwork
from clockwatt.schema import records


def check_fits(traced: TracedNetwork, gpu_names: list[str]) -> set[str]:
    """The GPUs whose memory has room for what a pass needs at least: weights, their gradients, the largest operation.

    Raises
    ------
    ClockwattError
        If none of them has.
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
