"""VGG-16 with max-pooling before and behind its ReLUs, measured on an H100, beside what is predicted for it.

    python benchmarks/vgg_measured.py

`vgg-h100.parquet` is what `clockwatt measure --networks` wrote for a campaign with both networks and passes.
"""

from __future__ import annotations

from pathlib import Path

import result_file
from single_layers import VGG_INPUT

import clockwatt
from clockwatt.cli.printing import binary, quantity
from clockwatt.io.files import read_table
from clockwatt.schema.records import MEASUREMENT_SCHEMA, NETWORK, OK

MEASURED = Path(__file__).parent / "vgg-h100.parquet"
BEHIND = {"vgg16": "ReLU first", "clockwatt.operations.stacks:vgg16_pool_first": "max-pool first"}


def main() -> None:
    """Write the table."""
    table = read_table(MEASURED, MEASUREMENT_SCHEMA).to_pandas()
    table = table[(table["kind"] == NETWORK) & (table["status"] == OK)]
    rows = []
    for pass_ in ("inference", "training"):
        for name, words in BEHIND.items():
            own = table[table["subject_id"].str.startswith(f"{name}-") & (table["pass"] == pass_)]
            answer = clockwatt.predict(name, VGG_INPUT, gpu="h100", precision="tf32", pass_=pass_)
            assert answer.memory is not None
            rows.append([
                pass_, words, len(own), quantity(own["time_eager_s"].mean(), "s"), quantity(answer.time_s, "s"),
                quantity(own["energy_j"].mean(), "J"), quantity(answer.energy_j, "J"),
                binary(own["memory_peak_bytes"].mean()), binary(answer.memory.allocated_bytes),
            ])  # fmt: skip
    result_file.write(
        "reproductions", f"Assignment: VGG-16, ReLU before and behind max-pooling, batch {VGG_INPUT[0]}, measured",
        ["pass", "order", "measurements", "time", "time, predicted", "energy", "energy, predicted", "memory",
         "memory, predicted"], rows,
        file=result_file.RESULTS / "reproductions-vgg-measured.json", hardware="NVIDIA H100 80GB HBM3, PyTorch 2.11",
        notes=["All products in TensorFloat-32; training with SGD. Memory is the most that PyTorch allocated."],
    )  # fmt: skip


if __name__ == "__main__":
    main()
