"""Compare the memory that PyTorch's tracker and Accelerate predict with ours, on passes run on an H100.

python benchmarks/memory_trackers.py [--seconds 1200]

`MemTracker` follows each pass under `FakeTensorMode`, twice, as the passes were run. Inference uses fake CUDA tensors.
Training uses fake CPU tensors: without a GPU, PyTorch runs no backward pass of fake CUDA tensors.
"""

from __future__ import annotations

import argparse
import signal
import time
from typing import Any

import memory
import pandas as pd
import result_file
import torch
from accelerate.commands.estimate import estimate_training_usage
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker

from clockwatt.config import NetworkConfig, TrainingConfig
from clockwatt.operations import optimizers
from clockwatt.operations.known_values import KnownValues
from clockwatt.operations.networks import Loss, arranged, construct_on_meta, example_tensors
from clockwatt.predict.memory import CUBLAS_BYTES
from clockwatt.schema.records import TRAINING

_PASSES, _LIMIT_S = 2, 30
_CPU = torch.device("cpu")
_FIELDS = ["estimator", "passes", "answered", "median %", "95th %", "worst %", "bias %", "seconds a pass, median"]


def clockwatt(row: dict[str, Any], network: NetworkConfig) -> int:
    """Return our prediction in bytes."""
    return memory.predicted_run(row, network)[0]


def _hold_on(device: torch.device, module: torch.nn.Module) -> None:
    """Replace the parameters and buffers of a module on meta by those of a device, shared ones by shared ones."""
    replaced: dict[torch.Tensor, torch.Tensor] = {}
    for part in module.modules():
        for held in (part._parameters, part._buffers):
            for name, one in held.items():
                if one is not None and one not in replaced:
                    empty = torch.empty_strided(one.shape, one.stride(), dtype=one.dtype, device=device)
                    replaced[one] = torch.nn.Parameter(empty, one.requires_grad) if held is part._parameters else empty
                held[name] = None if one is None else replaced[one]


def mem_tracker(row: dict[str, Any], network: NetworkConfig) -> int:
    """Return the peak in bytes that `MemTracker` sees."""
    learns = row["pass"] == TRAINING
    device = _CPU if learns else torch.device("cuda")
    module = construct_on_meta(network, KnownValues(), training=learns)  # modules of fake tensors cannot be cast
    with FakeTensorMode():
        _hold_on(device, module)
        tensors = {name: one.to(device) for name, one in example_tensors(network, _CPU, seed=0).items()}
        positional, by_keyword = arranged(tensors)
        loss = Loss(network, _CPU, seed=0)
        optimizer = optimizers.make(TrainingConfig(), module.parameters(), as_on_cuda=True) if learns else None
        (tracker := MemTracker()).track_external(module, positional, by_keyword)
        with torch.inference_mode(mode=not learns), tracker:
            for _ in range(_PASSES):
                if optimizer is None:
                    module(*positional, **by_keyword)
                else:
                    optimizer.zero_grad(set_to_none=True)
                    loss(module(*positional, **by_keyword)).backward()
                    optimizer.step()
                tracker.reset_mod_stats()
        return tracker.get_tracker_snapshot("peak")[torch.device(device.type, None if learns else 0)]["Total"]


def accelerate(row: dict[str, Any], network: NetworkConfig) -> int:
    """Return what `accelerate estimate-memory` reports of a model of this size and dtype."""
    module = construct_on_meta(network, KnownValues(), training=row["pass"] == TRAINING)
    tensors = (*module.parameters(), *module.buffers())
    if row["pass"] == TRAINING:
        return max(estimate_training_usage(4 * sum(one.numel() for one in tensors), network.dtype).values())
    return sum(one.numel() * one.element_size() for one in tensors)


def _too_slow(*_: object) -> None:
    raise TimeoutError(f"no answer within {_LIMIT_S} s")


def answers(seconds: float) -> tuple[pd.DataFrame, list[str]]:
    """Ask each estimator for each pass; return a row for each, and why some were not answered."""
    estimators = {"clockwatt": clockwatt, "MemTracker": mem_tracker, "accelerate estimate-memory": accelerate}
    entries, rows, reasons = memory.passes(), [], []
    ends_at, _ = time.monotonic() + seconds, signal.signal(signal.SIGALRM, _too_slow)
    runs = pd.read_parquet(memory.HERE / "fresh/memory-h100.parquet").sample(frac=1, random_state=0)
    for row in runs.to_dict("records"):
        if time.monotonic() > ends_at:
            break
        network = entries[row["network_id"], row["pass"]]["network"]
        for name, estimator in estimators.items():
            began, predicted = time.perf_counter(), float("nan")
            try:
                signal.alarm(_LIMIT_S)
                predicted = estimator(row, network)
            except Exception as error:  # noqa: BLE001  # whatever an estimator raises, it gives no answer
                reason = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"[:90]
                reasons.append(f"{name} did not answer for {network.name} ({row['pass']}): {reason}.")
            took, _ = time.perf_counter() - began, signal.alarm(0)
            if estimator is clockwatt and memory.construction_bytes(network.network_id, row["pass"]) > predicted:
                break
            rows.append([name, row["pass"], 100 * (predicted / row["allocated_bytes"] - 1), took])
            if estimator is mem_tracker:
                added = 100 * _PASSES * CUBLAS_BYTES["hopper"] / row["allocated_bytes"]
                rows.append([f"{name}, 64 MiB added", row["pass"], rows[-1][2] + added, took])
        print(network.name, rows[-4:], flush=True)
    return pd.DataFrame(rows, columns=["estimator", "pass", "error", "seconds"]), reasons


def main() -> None:
    """Ask the estimators and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1200.0, help="ask for no further pass after so long")
    (table, reasons), rows = answers(parser.parse_args().seconds), []
    for name in table["estimator"].unique():
        for pass_ in ("all", "inference", "training"):
            group = table[(table["estimator"] == name) & ((table["pass"] == pass_) | (pass_ == "all"))]
            error = group["error"].dropna()
            ends = [f"{error.abs().quantile(q):.1f}" for q in (0.5, 0.95, 1.0)]
            seconds = f"{group['seconds'].median():.2g}"
            rows.append([name, pass_, f"{len(error)} of {len(group)}", *ends, f"{error.median():+.1f}", seconds])
    result_file.write(
        "memory", "Peak allocated memory beside other estimators", _FIELDS, rows,
        hardware="passes on NVIDIA H100 (torch 2.11.0); estimators on 2 shared cores, no GPU",
        notes=[
            "Passes are drawn from those of `memory.py --runs`. Errors: of answered ones. Our code builds networks.",
            "MemTracker follows tensors only: no workspaces of cuDNN, cuBLAS and attention; clockwatt estimates them.",
            "The second MemTracker row adds the workspaces of cuBLAS that each measured process holds (2 × 32 MiB).",
            "MemTracker follows inference on fake CUDA tensors, and rounds to 512 bytes as the allocator does.",
            "MemTracker follows training on fake CPU tensors: no rounding, and operations that only the CPU has.",
            "`accelerate estimate-memory` counts weights, in training gradients and Adam's state, and no activations.",
            "The measured optimizer is SGD with momentum.",
            "The CUDA context is in no row: PyTorch does not count it.",
            f"An estimator that takes over {_LIMIT_S} s on this shared machine counts as unanswered.",
            *sorted(reasons),
        ],
    )  # fmt: skip


if __name__ == "__main__":
    main()
