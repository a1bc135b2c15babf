"""Whether operations drawn by design can be built and run, and what a draw holds and takes.

    python benchmarks/design.py [--operations 600] [--seed 7] [--largest-bytes 5e7]

Draws operations with bounds that a CPU manages, builds and runs each there, prints those that differ from their spec in
shape, dtype, strides or requires_grad, and how many there are of each family, dtype and pass. Where a CPU's kernels lay
an output out otherwise than a GPU's (attention, normalisations), a difference in strides is no fault.
"""

from __future__ import annotations

import argparse
import collections
import time

import result_file
import torch
from rebuild import mismatches

from clockwatt.config import PASSES, DesignConfig
from clockwatt.operations.design.draw import drawn_operations
from clockwatt.operations.spec.operation import Operation

_NO_FAULTS = (": stride ", "no kernel on a CPU")


def check(design: DesignConfig) -> bool:
    counts: collections.Counter[tuple[str, str]] = collections.Counter()
    differing: collections.Counter[str] = collections.Counter()
    drawing_s = 0.0
    drawn = drawn_operations(design, PASSES)
    while True:
        before = time.process_time()
        row = next(drawn, None)
        drawing_s += time.process_time() - before
        if row is None:
            break
        family = (row.block or "").split("-")[0]
        counts.update([("family", family), ("dtype", row.dtype), ("pass", row.pass_)])
        try:
            found = mismatches(Operation.from_json(row.spec), row.pass_)
        except NotImplementedError as error:
            found = [f"no kernel on a CPU: {str(error).splitlines()[0]}"]
        except (RuntimeError, ValueError) as error:
            found = [f"fails: {str(error).splitlines()[0]}"]
        for difference in found:
            kind = next((kind for kind in _NO_FAULTS if kind in difference), "fault")
            differing[kind] += 1
            print(f"{row.block} {row.pass_} {row.function} {row.dtype}: {difference}", flush=True)
    for (column, name), number in sorted(counts.items()):
        print(f"{column} {name}: {number}")
    row = [design.operations, differing["fault"], differing[": stride "], differing["no kernel on a CPU"]]
    columns = ["operations", "differ from their spec", "other strides on a CPU", "no kernel on a CPU"]
    title = "Operations drawn by design, built and run on the CPU"
    notes = [f"Drawn in {drawing_s:.0f} s of processor time."]
    result_file.write("tracing", title, columns, [row], notes=notes)
    return not differing["fault"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operations", type=int, default=600)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--largest-bytes", type=float, default=5e7)
    parser.add_argument("--longest-s", type=float, default=3e-5, help="by the roofline of an H200")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    bounds = DesignConfig(
        operations=arguments.operations,
        seed=arguments.seed,
        max_memory_bytes=arguments.largest_bytes,
        max_time_s=arguments.longest_s,
    )
    raise SystemExit(0 if check(bounds) else 1)
