"""Whether every operation of every torchvision classification network can be rebuilt and gives what was recorded.

    python benchmarks/rebuild.py [--batch 2] [--device cpu] [NETWORK ...]

Builds and runs each unique operation of both passes, and prints those that differ in shape, dtype, strides or
requires_grad.
"""

from __future__ import annotations

import argparse
import collections
import time
from collections.abc import Iterator, Sequence

import result_file
import torch

from clockwatt.config import PASSES, NetworkConfig, TrainingConfig
from clockwatt.operations.build.build import build
from clockwatt.operations.constructors import torchvision_models
from clockwatt.operations.spec.encode import dtype_name, tensors_in
from clockwatt.operations.spec.operation import Operation
from clockwatt.operations.trace.trace import trace_network
from clockwatt.schema.records import TRAINING

MODELS = torchvision_models()
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
    rows = [[pass_, len(checked[pass_]), wrong[pass_]] for pass_ in PASSES]
    columns = ["pass", f"unique operations at batch {batch}", "differences"]
    result_file.write("tracing", "Every traced operation rebuilt and run on the CPU", columns, rows,
                      notes=[f"{len(names)} classifiers of torchvision."])  # fmt: skip
    return not wrong


def mismatches(operation: Operation, pass_: str, device: torch.device | str = "cpu") -> list[str]:
    """Build an operation, run one pass of it, and compare every output and gradient with its spec.

    Parameters
    ----------
    operation
        From the catalogue.
    pass_
        `inference` or `training`.
    device
        Where it runs for real.

    Returns
    -------
    list of str
        What differs: shape, dtype, strides (of dimensions longer than 1), requires_grad, a missing gradient.
    """
    trains = pass_ == TRAINING
    with torch.inference_mode(not trains):
        built = build(operation, device, pass_=pass_)
        outputs = built.forward()
        if operation.is_optimizer:
            return []
        given = tensors_in(outputs) or [built.tensors[number] for number in operation.mutates]
        found = [*_outputs_differ(operation, given, trains)]
        gradients = built.backward(outputs)
    leaves = [tensor for tensor in operation.tensors if tensor.grad]
    for number, (leaf, gradient) in enumerate(zip(leaves, gradients, strict=bool(gradients))):
        if gradient is not None and tuple(gradient.shape) != leaf.shape:
            found.append(f"gradient {number}: shape {tuple(gradient.shape)}, not {leaf.shape}")
    if gradients and all(gradient is None for gradient in gradients):
        found.append("no gradient arrives at any tensor")
    return found


def _outputs_differ(operation: Operation, outputs: Sequence[torch.Tensor], trains: bool) -> Iterator[str]:
    if len(outputs) != len(operation.out):
        yield f"{len(outputs)} outputs, not {len(operation.out)}"
    for number, (output, spec) in enumerate(zip(outputs, operation.out, strict=False)):
        if tuple(output.shape) != spec.shape:
            yield f"output {number}: shape {tuple(output.shape)}, not {spec.shape}"
        elif _strides(spec.shape, output.stride()) != _strides(spec.shape, spec.stride):
            yield f"output {number}: stride {output.stride()}, not {spec.stride}, of shape {spec.shape}"
        if dtype_name(output.dtype) != spec.dtype:
            yield f"output {number}: dtype {dtype_name(output.dtype)}, not {spec.dtype}"
        if trains and output.requires_grad != spec.grad:
            yield f"output {number}: requires_grad is {output.requires_grad}, not {spec.grad}"


def _strides(shape: Sequence[int], stride: Sequence[int]) -> list[int]:
    """Strides that decide where an element lies: of no dimension of length 1, of none in an empty tensor."""
    return [step for size, step in zip(shape, stride, strict=True) if size != 1] if 0 not in shape else []


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("networks", nargs="*", default=MODELS.list_models(module=MODELS))
    arguments = parser.parse_args()
    raise SystemExit(0 if rebuild(arguments.networks, arguments.batch, arguments.device) else 1)
