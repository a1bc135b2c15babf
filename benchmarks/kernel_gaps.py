"""Where a network's device time goes beyond that of its operations: kernels that take longer, or gaps between them.

    python benchmarks/kernel_gaps.py [NETWORK ...] [--input 32,3,224,224]

Needs a GPU, and only reads. A pass of each torchvision network, and each of its operations alone, are queued behind a
blocking kernel while PyTorch's profiler records kernels: so none of them waits for the host, but for what is beyond
the thousand that a queue holds. Prints kernels, their time, the median gap between the end of all before and the next
one's start, the streams they ran on, and the kernels whose time differs most.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from clockwatt.config import NetworkConfig, Pass, TrainingConfig
from clockwatt.operations import numerics
from clockwatt.operations.build.build import build
from clockwatt.operations.catalogue import trace_rows
from clockwatt.operations.networks import build_network
from clockwatt.operations.spec.operation import Operation
from clockwatt.schema.execution import TF32

_BLOCK_CYCLES = 100_000_000
_MARK_CYCLES = 10_000
_WARM, _TIMED = 3, 4
_ON_DEVICE = {"kernel", "gpu_memcpy", "gpu_memset"}
_BLOCKING = "spin_kernel"
_SHOWN = 8


@dataclass(frozen=True)
class Kernel:
    """One kernel as it ran; times in µs."""

    name: str
    time_us: float
    gap_us: float
    stream: int


def main() -> None:
    """Compare each network with its operations."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=["regnet_y_800mf", "efficientnet_b0", "resnext50_32x4d"])
    parser.add_argument("--input", default="32,3,224,224")
    given = parser.parse_args()
    numerics.apply(TF32)
    shape = [int(size) for size in given.input.split(",")]
    passes: tuple[Pass, ...] = ("inference", "training")
    for name in given.networks:
        for pass_ in passes:
            compare(NetworkConfig(name=name, input=shape), pass_)


def compare(network: NetworkConfig, pass_: Pass) -> None:
    """Print what a network's kernels take, and what those of its operations take alone."""
    device = torch.device("cuda")
    traced = trace_rows(network, pass_, TrainingConfig())
    counts = Counter(call.operation_id for call in traced.calls)
    with torch.inference_mode(pass_ != "training"):
        whole = build_network(network, device, pass_=pass_, training=TrainingConfig())
        (in_network,) = blocks([(whole.call, 1)])
        alone = {
            row.operation_id: block
            for row, block in zip(
                traced.operations,
                blocks(
                    (build(Operation.from_json(row.spec), device, pass_=pass_).call, _TIMED)
                    for row in traced.operations
                ),
                strict=True,
            )
        }
    together: dict[str, list[float]] = defaultdict(list)
    for operation_id, kernels in alone.items():
        for kernel in kernels:
            together[kernel.name].append(kernel.time_us * counts[operation_id] / _TIMED)
    of_network: dict[str, list[float]] = defaultdict(list)
    for kernel in in_network:
        of_network[kernel.name].append(kernel.time_us)
    kernels_alone = [kernel for block in alone.values() for kernel in block]
    print(
        f"\n{network.name} {pass_}: {len(in_network)} kernels, {sum(map(sum, of_network.values())):.0f} µs, median gap "
        f"{statistics.median(kernel.gap_us for kernel in in_network):.2f} µs, streams "
        f"{sorted({kernel.stream for kernel in in_network})}"
    )
    print(
        f"  its operations alone: {sum(map(sum, together.values())):.0f} µs, median gap "
        f"{statistics.median(kernel.gap_us for kernel in kernels_alone):.2f} µs; on several streams: "
        f"{sum(len({kernel.stream for kernel in block}) > 1 for block in alone.values())} operations"
    )
    differences = {name: sum(of_network[name]) - sum(together[name]) for name in {*of_network, *together}}
    for name in sorted(differences, key=lambda name: -abs(differences[name]))[:_SHOWN]:
        print(f"  {differences[name]:+8.1f} µs  {name[:100]}")


def blocks(calls: Iterable[tuple[Callable[[], object], int]]) -> list[list[Kernel]]:
    """Kernels of each call, made so many times behind a blocking kernel."""
    made = 0
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for call, times in calls:
            torch.cuda._sleep(_MARK_CYCLES)
            for _ in range(_WARM):
                call()
            torch.cuda.synchronize()
            torch.cuda._sleep(_BLOCK_CYCLES)
            for _ in range(times):
                call()
            torch.cuda.synchronize()
            torch.cuda._sleep(_MARK_CYCLES)
            made += 1
    found = list(_split(_recorded(profiler)))
    assert len(found) == 3 * made, f"{len(found)} blocking kernels in place of {3 * made}"
    return found[1::3]  # after warm-up and before what builds the next call


def _recorded(profiler: profile) -> list[Kernel]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    kernels, end_us = [], None
    for event in sorted((event for event in events if event.get("cat") in _ON_DEVICE), key=lambda event: event["ts"]):
        gap_us = 0.0 if end_us is None else event["ts"] - end_us
        kernels.append(Kernel(event["name"], event["dur"], gap_us, event["args"]["stream"]))
        end_us = max(end_us or 0.0, event["ts"] + event["dur"])
    return kernels


def _split(kernels: list[Kernel]) -> Iterator[list[Kernel]]:
    """What ran between one blocking kernel and the next."""
    own: list[Kernel] | None = None
    for kernel in kernels:
        if _BLOCKING in kernel.name:
            if own is not None:
                yield own
            own = []
        elif own is not None:
            own.append(kernel)
    if own is not None:
        yield own


if __name__ == "__main__":
    main()
