"""Compare predicted steps on two GPUs with steps seen on two H100.

python benchmarks/two_gpus.py

The seen steps do not state precision, optimizer and host. TF32, the H100's usual host, and AdamW for GPT-2 are assumed.
"""

from typing import Any

import result_file

import clockwatt

GPT2 = "clockwatt.operations.transformer_networks:gpt2"
TOKENS = {"shape": (8, 512), "dtype": "int64", "below": 50257}
IMAGES = (64, 3, 224, 224)
SEEN = (
    ("VGG-16", "vgg16", IMAGES, "sgd", None, 52.5, 32.8, 6.5),
    ("VGG-16", "vgg16", IMAGES, "sgd", "ddp", 54.6, 36.0, 7.7),
    ("VGG-16", "vgg16", IMAGES, "sgd", "fsdp", 55.4, 35.6, None),
    ("ResNet-50", "resnet50", IMAGES, "sgd", None, 37.7, 19.6, None),
    ("ResNet-50", "resnet50", IMAGES, "sgd", "ddp", 46.7, 21.5, None),
    ("GPT-2", GPT2, TOKENS, "adamw", None, 46.6, 23.8, None),
    ("GPT-2", GPT2, TOKENS, "adamw", "ddp", 49.1, 27.2, None),
    ("GPT-2", GPT2, TOKENS, "adamw", "fsdp", 117.0, 38.2, None),
)
"""Network, input of a GPU, optimizer, strategy (None: one GPU); milliseconds, joules and gigabytes of one GPU."""


def main() -> None:
    """Predict all and write the table."""
    rows = []
    for title, network, inputs, optimizer, strategy, time_ms, energy_j, memory_gb in SEEN:
        asked: dict[str, Any] = {"gpu": "h100", "training": True, "precision": "tf32", "optimizer": optimizer}
        if strategy is not None:
            asked |= {"gpus_per_node": 2, "strategy": strategy, "links": "h100-nvlink"}
        answer = clockwatt.predict(network, inputs, **asked)
        memory = answer.memory.allocated_bytes if strategy is None else answer.memory_bytes[0]
        energy = answer.energy_j if strategy is None else answer.energies_j[0]
        limited = answer.limited_by
        batch = (64 if inputs is IMAGES else 8) * (2 if strategy else 1)
        rows.append(
            (
                title, batch, "tf32", strategy or "one GPU", time_ms, round(1e3 * answer.time_s, 1),
                off(1e3 * answer.time_s, time_ms),
                energy_j, round(energy, 1), off(energy, energy_j), memory_gb or "–", round(1e-9 * memory, 2), limited,
            )
        )  # fmt: skip
    result_file.write(
        "several-gpus",
        "Steps on two H100, predicted with the shipped profile `h100-nvlink`",
        (
            *("network", "batch of all GPUs", "precision", "strategy"),
            *("seen, ms", "predicted, ms", "off, %", "seen, J", "predicted, J", "off, %"),
            *("seen, GB", "predicted, GB", "predicted limit"),
        ),
        rows,
        notes=(
            "Energy and memory are those of one GPU.",
            "Links and host costs were fitted on another machine, to steps of these networks too.",
            "The values seen are from another report, which does not state precision, optimizer or host.",
            "TF32 is assumed, AdamW for GPT-2, and SGD for the others.",
        ),
        hardware="seen on 2 × NVIDIA H100 of one host",
    )


def off(predicted: float, seen: float) -> str:
    """Return the relative difference in percent."""
    return f"{100 * (predicted / seen - 1):+.1f}"


if __name__ == "__main__":
    main()
