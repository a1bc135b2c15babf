"""Predict the assignment's cases: four single layers, the network that fills an H100, VGG-16 with pooling first.

python benchmarks/single_layers.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import result_file

import clockwatt
from clockwatt.cli.printing import binary, quantity
from clockwatt.figures import style
from clockwatt.predict.all_gpus import AllGpus
from clockwatt.predict.fit_memory import fit_memory
from clockwatt.predict.request import Request

BATCH = 256
IMAGES, FEATURES = (BATCH, 3, 224, 224), (BATCH, 25_088)
LAYERS = {"conv": IMAGES, "max_pool": IMAGES, "relu": IMAGES, "linear": FEATURES}
COMMAND = "clockwatt predict clockwatt.operations.stacks:NAME --input SHAPE --gpu GPU --pass PASS"


VGG_INPUT = (128, 3, 224, 224)
FIGURE = Path(__file__).parents[1] / "docs" / "results" / "single-layers.png"
STACK, STACK_INPUT, LINEAR = "clockwatt.operations.stacks:conv_{layers}_linear_2", (16, 64, 112, 112), 2


def main() -> None:
    """Predict, and write both tables."""
    predictors = clockwatt.load()
    write_single_layers(predictors)
    write_stack(predictors)
    write_vgg(predictors)


def write_vgg(predictors: AllGpus) -> None:
    """Predict VGG-16 with its ReLUs before and behind max-pooling."""
    rows = []
    for pass_ in ("inference", "training"):
        for name in ("vgg16", "clockwatt.operations.stacks:vgg16_pool_first"):
            for gpu in ("h100", "h200"):
                answer = predictors.predict(name, VGG_INPUT, gpu=gpu, pass_=pass_)
                memory = "–" if answer.memory is None else binary(answer.memory.allocated_bytes)
                expected = answer.expected
                rows.append([
                    pass_, name.rpartition(":")[2], gpu, quantity(expected.time_s, "s"),
                    quantity(expected.energy_j, "J"), memory,
                ])  # fmt: skip
    result_file.write(
        "reproductions", f"Assignment: VGG-16, ReLU before and behind max-pooling, batch {VGG_INPUT[0]}, predicted",
        ["pass", "network", "GPU", "time", "energy", "memory"], rows,
        file=result_file.RESULTS / "reproductions-vgg.json", hardware="2 cores, no GPU",
        notes=["ReLUs work in place: pooling first saves time and no memory. The settings are PyTorch's default."],
    )  # fmt: skip


def write_stack(predictors: AllGpus) -> None:
    """Find the deepest network that fits, and split it over two GPUs without pipelining."""
    request = Request.of(network=STACK, inputs=(",".join(map(str, STACK_INPUT)),), gpus=("h100",), pass_="training")
    largest, sized = fit_memory(predictors, request, "layers")
    split = predictors.predict(
        sized(largest.size).name, STACK_INPUT, gpu="h100", training=True, gpus_per_node=2, strategy="pipeline",
        microbatches=1, links="h100-nvlink",
    )  # fmt: skip
    row = [
        f"{largest.size:,}", f"{largest.safe_size:,}", LINEAR, binary(largest.memory.allocated_bytes),
        quantity(split.single.time_s, "s"), quantity(split.time_s, "s"),
        " / ".join(quantity(one, "s") for one in split.busy_s),
        " / ".join(binary(one) for one in split.memory_bytes or ()),
    ]  # fmt: skip
    result_file.write(
        "reproductions", "Assignment: convolutions until the memory of an H100 ends, then split over two, predicted",
        ["convolutions", "with 95 % certainty", "linear layers", "memory", "time, one GPU", "time, two GPUs",
         "kernels of each", "memory of each"], [row],
        file=result_file.RESULTS / "reproductions-stack.json", hardware="2 cores, no GPU",
        notes=[
            f"The network is `{STACK}`, the pass training, its input {'×'.join(map(str, STACK_INPUT))}.",
            "The split has no pipelining: one GPU computes at a time. Links: profile `h100-nvlink`.",
        ],
    )  # fmt: skip


def write_single_layers(predictors: AllGpus) -> None:
    """Predict each layer."""
    rows, drawn = [], {}
    for layer, shape in LAYERS.items():
        for pass_ in ("inference", "training") if layer in ("conv", "linear") else ("inference",):
            for gpu in ("h100", "h200"):
                name = f"clockwatt.operations.stacks:{layer}"
                answer = predictors.predict(name, shape, gpu=gpu, pass_=pass_)
                expected, memory = answer.expected, answer.memory
                allocated = float("nan") if memory is None else memory.allocated_bytes / 2**30
                drawn.setdefault(f"{layer}, {pass_}", {})[gpu] = (allocated, expected.power_w)
                rows.append([
                    layer, "×".join(map(str, shape)), pass_, gpu, quantity(expected.time_s, "s"),
                    quantity(expected.energy_j, "J"), quantity(expected.power_w, "W"),
                    "–" if memory is None else binary(memory.allocated_bytes),
                ])  # fmt: skip
    result_file.write(
        "reproductions", "Assignment: four single layers, predicted",
        ["layer", "input", "pass", "GPU", "time", "energy", "power", "memory"], rows,
        file=result_file.RESULTS / "reproductions-single-layers.json", hardware="2 cores, no GPU",
        notes=[
            f"Each row: `{COMMAND}`.",
            "The settings are PyTorch's default: TensorFloat-32 in cuDNN only. Training is with SGD.",
            "The convolution has 64 filters of 3 × 3, the pooling a window of 2 × 2, the linear layer 4,096 outputs.",
            "Pooling and ReLU have no parameters, so no training pass.",
            "![Memory and power of four single layers on an H100 and an H200, predicted](single-layers.png)",
        ],
    )  # fmt: skip
    draw(drawn)


def draw(layers: dict[str, dict[str, tuple[float, float]]]) -> None:
    """Draw memory in GiB and power in W of each layer on both GPUs."""
    places = np.arange(len(layers))
    with style.styled():
        figure, (line,) = style.panels(1, 2, height_in=2.4)
        for number, (axes, name) in enumerate(zip(line, ("allocated memory (GiB)", "mean power (W)"), strict=True)):
            for shift, gpu, colour in zip((-0.2, 0.2), ("h100", "h200"), style.COLOURS, strict=False):
                axes.barh(places + shift, [of[gpu][number] for of in layers.values()], height=0.36, color=colour)
            axes.set(xlabel=name, yticks=places, yticklabels=list(layers) if number == 0 else [])
            axes.invert_yaxis()
        entries = [style.Entry(gpu, colour, "s") for gpu, colour in zip(("H100", "H200"), style.COLOURS, strict=False)]
        style.legend(figure, entries, "")
        style.footer(figure, "Predicted. Inputs 256×3×224×224, of the linear layer 256×25,088; training with SGD.")
        figure.savefig(FIGURE, dpi=130)


if __name__ == "__main__":
    main()
