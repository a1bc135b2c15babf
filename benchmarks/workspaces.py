"""Measure on this machine's GPU what convolutions with channels last allocate beyond their tensors.

    python benchmarks/workspaces.py --seconds 60 --output workspaces-h100.parquet

Shapes are drawn as networks have them, each in TF32 and bfloat16, some in float32 and float16, forward and backward.
`tools/fit_workspaces.py` fits to what is written: the call as `MemoryRow.call` has it, whether TF32 was allowed, bytes.
The file is the same for one seed, but for its length. Without a GPU all bytes are 0.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import torch

ROUND_BYTES, MOST_ELEMENTS, MOST_FLOPS = 512, 2**27, 3e11
CHANNELS = (8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 96, 112, 128, 144, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768,
            1024, 1280, 2048)  # fmt: skip
SIDES = (4, 7, 8, 9, 12, 14, 16, 18, 20, 24, 28, 32, 36, 40, 48, 56, 64, 72, 80, 96, 112, 128, 144, 160)
PICTURES = (32, 64, 96, 112, 128, 160, 192, 224, 240, 256, 288, 320, 384, 448, 512)
BATCHES = (1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
FAMILIES = {"stem": 14, "square": 22, "pointwise": 10, "strided": 16, "grouped": 20, "depthwise": 4, "long": 3,
            "dilated": 2, "transposed": 6, "gate": 3}  # fmt: skip


def drawn(seed: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the family and description of convolutions, without end."""
    draw = random.Random(seed)
    while True:
        family = draw.choices(list(FAMILIES), list(FAMILIES.values()))[0]
        call = _call(draw, family)
        elements = max(math.prod(call[name]) for name in ("x", "y"))
        flops = 2 * math.prod(call["x" if call["transposed"] else "y"]) * math.prod(call["weight"][1:])
        if min(call["y"]) >= 1 and elements <= MOST_ELEMENTS and flops <= MOST_FLOPS:
            yield family, call


def _call(draw: random.Random, family: str) -> dict[str, Any]:
    batch, side = draw.choice(BATCHES), draw.choice(SIDES)
    height = width = side
    inputs, outputs = draw.choice(CHANNELS), draw.choice(CHANNELS)
    groups, kernel, stride, dilation, transposed = 1, (3, 3), draw.choice((1, 1, 2)), 1, False
    padding = None
    if family == "stem":
        height = width = draw.choice(PICTURES)
        inputs, outputs = (
            draw.choice((3, 3, 3, 3, 1, 4)),
            draw.choice((16, 24, 32, 32, 40, 48, 64, 64, 96, 128, 384, 768)),
        )
        size, stride = draw.choice(
            ((7, 2), (7, 2), (3, 2), (3, 2), (3, 1), (5, 1), (4, 4), (7, 4), (8, 8), (16, 16), (14, 14))
        )
        kernel = (size, size)
        padding = 0 if size == stride else size // 2
    elif family == "pointwise":
        kernel, stride = (1, 1), 1
    elif family == "strided":
        kernel, stride = (1, 1), 2
        outputs = draw.choice((2 * inputs, 2 * inputs, outputs))
    elif family == "square":
        outputs = draw.choice((inputs, inputs, inputs // 2, 2 * inputs, outputs))
        kernel = draw.choice(((3, 3), (3, 3), (3, 3), (5, 5), (2, 2), (7, 7)))
        if kernel == (2, 2):
            stride, padding = 2, 0
    elif family == "grouped":
        groups = draw.choice((2, 4, 8, 16, 32, 32, 32, 64))
        inputs = groups * draw.choice((2, 4, 4, 8, 8, 16, 16, 24, 32, 48, 64))
        outputs = draw.choice((inputs, inputs, inputs, 2 * inputs))
        kernel = draw.choice(((3, 3), (3, 3), (3, 3), (1, 1), (5, 5)))
    elif family == "depthwise":
        groups = outputs = inputs
        kernel = draw.choice(((3, 3), (5, 5), (7, 7)))
    elif family == "long":
        kernel, stride = draw.choice(((1, 7), (7, 1), (1, 3), (3, 1))), 1
    elif family == "dilated":
        dilation, stride = draw.choice((2, 4)), 1
        padding = dilation
    elif family == "transposed":
        transposed = True
        outputs = max(1, inputs // 2)
        size, stride, padding = draw.choice(((2, 2, 0), (2, 2, 0), (4, 2, 1)))
        kernel = (size, size)
    elif family == "gate":
        height = width = 1
        kernel, stride, outputs = (1, 1), 1, max(8, inputs // 4)
    paddings = [size // 2 if padding is None else padding for size in kernel]

    def after(length: int, size: int, pad: int) -> int:
        reach = dilation * (size - 1) + 1
        return (length - 1) * stride - 2 * pad + reach if transposed else (length + 2 * pad - reach) // stride + 1

    sides = [after(length, size, pad) for length, size, pad in zip((height, width), kernel, paddings, strict=True)]
    weight = [inputs, outputs] if transposed else [outputs, inputs // groups]
    return {
        "kind": "convolution", "x": [batch, inputs, height, width], "weight": [*weight, *kernel],
        "y": [batch, outputs, *sides], "stride": [stride] * 2, "padding": paddings, "dilation": [dilation] * 2,
        "transposed": transposed, "groups": groups, "channels_last": inputs > 1,
    }  # fmt: skip


class Bench:
    """Runs convolutions and reads the peak of allocated memory of each."""

    def __init__(self) -> None:
        self._on_gpu = torch.cuda.is_available()
        self._device = torch.device("cuda" if self._on_gpu else "meta")

    def _empty(self, shape: list[int], dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device=self._device, memory_format=torch.channels_last)

    def beyond(self, call: dict[str, Any]) -> int:
        """Return the bytes that a call has allocated at its peak beyond arguments and results."""
        dtype = getattr(torch, call["dtype"])
        x, weight = self._empty(call["x"], dtype), self._empty(call["weight"], dtype)
        settings = (call["stride"], call["padding"], call["dilation"], call["transposed"], [0, 0], call["groups"])
        wanted = call["gradients"]
        y = None if wanted is None else self._empty(call["y"], dtype)
        before = self._allocated()
        if y is None:
            results = [torch.ops.aten.convolution(x, weight, None, *settings)]
            assert list(results[0].shape) == call["y"]
        else:
            results = torch.ops.aten.convolution_backward(y, x, weight, None, *settings, [*wanted, False])
        if not self._on_gpu:
            return 0
        torch.cuda.synchronize()
        sizes = [one.untyped_storage().nbytes() for one in results if one is not None]
        return torch.cuda.max_memory_allocated() - before - sum(-(-size // ROUND_BYTES) * ROUND_BYTES for size in sizes)

    def _allocated(self) -> int:
        if not self._on_gpu:
            return 0
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated()


def main() -> None:
    """Measure until the time is over, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--most", type=int, default=1_000_000, help="convolutions to measure")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    ends_at, rows, faults, bench = time.monotonic() + given.seconds, [], 0, Bench()
    chosen = random.Random(given.seed)
    for number, (family, call) in enumerate(drawn(given.seed)):
        if time.monotonic() > ends_at or number == given.most:
            break
        settings = [("float32", True), ("bfloat16", True)]
        settings += [one for one in (("float32", False), ("float16", True)) if chosen.random() < 0.3]
        gradients = [family != "stem" and chosen.random() < 0.95, True]
        for dtype, tf32 in settings:
            torch.backends.cudnn.allow_tf32 = tf32
            for wanted in (None, gradients):
                described = {**call, "dtype": dtype, "gradients": wanted}
                try:
                    size = bench.beyond(described)
                except RuntimeError as error:  # out of memory, or no kernel of cuDNN; the others go on
                    faults += 1
                    print(f"{dtype} {call}: {str(error)[:150]}", flush=True)
                    continue
                text = json.dumps(described, sort_keys=True, separators=(",", ":"))
                rows.append({"family": family, "call": text, "tf32": tf32, "bytes": size})
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    table = pd.DataFrame(rows).assign(gpu_name=name, torch=torch.__version__, cudnn=torch.backends.cudnn.version())
    table.to_parquet(given.output, index=False)
    print(f"{given.output}: {number} convolutions, {len(table)} rows, {faults} faults, {name}")
    print(table.groupby("family")["bytes"].describe().to_string())


if __name__ == "__main__":
    main()
