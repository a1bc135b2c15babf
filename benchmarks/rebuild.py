"""Whether every operation of every torchvision classification network can be rebuilt and gives what was recorded.

    python benchmarks/rebuild.py [--batch 2] [--device cpu] [NETWORK ...]

Builds and runs each unique operation of both passes, and prints those that differ in shape, dtype, strides or
requires_grad.
"""

from __future__ import annotations

import argparse
import collections
import time

import torchvision

from clockwatt.config import PASSES, NetworkConfig, TrainingConfig
from clockwatt.operations.build.verify import mismatches
from clockwatt.operations.trace.trace import trace_network

SIZE = {"inception_v3": 299}


def rebuild(names: list[str], batch: int, device: str) -> bool:
    checked: dict[str, set[str]] = {pass_: set() for pass_ in PASSES}
    wrong: collections.Counter[str] = collections.Counter()
    started = time.monotonic()
    for name in names:
        network = NetworkConfig(name=name, input=[batch, 3, SIZE.get(name, 224), SIZE.get(name, 224)])
        for pass_ in PASSES:
            for call in trace_network(network, pass_, TrainingConfig()).calls:
                operation = call.operation
                if operation.operation_id in checked[pass_]:
                    continue
                checked[pass_].add(operation.operation_id)
                for difference in mismatches(operation, pass_, device):
                    wrong[pass_] += 1
                    print(f"{name} {pass_} {operation.function} {operation.operation_id}: {difference}", flush=True)
        print(f"{name}: {time.monotonic() - started:.0f} s", flush=True)
    for pass_ in PASSES:
        print(f"{pass_}: {len(checked[pass_])} unique operations at batch {batch}, {wrong[pass_]} differences")
    return not wrong


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("networks", nargs="*", default=torchvision.models.list_models(module=torchvision.models))
    arguments = parser.parse_args()
    raise SystemExit(0 if rebuild(arguments.networks, arguments.batch, arguments.device) else 1)
