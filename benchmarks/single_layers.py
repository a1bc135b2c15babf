"""Predict the assignment's cases: four single layers, and the network that fills an H100, split over two.

python benchmarks/single_layers.py
"""

from __future__ import annotations

import result_file

import clockwatt
from clockwatt.cli.printing import binary, quantity
from clockwatt.predict.all_gpus import AllGpus
from clockwatt.predict.fit_memory import fit_memory
from clockwatt.predict.request import Request

BATCH = 256
IMAGES, FEATURES = (BATCH, 3, 224, 224), (BATCH, 25_088)
LAYERS = {"conv": IMAGES, "max_pool": IMAGES, "relu": IMAGES, "linear": FEATURES}
COMMAND = "clockwatt predict clockwatt.operations.stacks:NAME --input SHAPE --gpu GPU --pass PASS"


STACK, STACK_INPUT, LINEAR = "clockwatt.operations.stacks:conv_{layers}_linear_2", (16, 64, 112, 112), 2


def main() -> None:
    """Predict, and write both tables."""
    predictors = clockwatt.load()
    write_single_layers(predictors)
    write_stack(predictors)


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
    rows = []
    for layer, shape in LAYERS.items():
        for pass_ in ("inference", "training") if layer in ("conv", "linear") else ("inference",):
            for gpu in ("h100", "h200"):
                name = f"clockwatt.operations.stacks:{layer}"
                answer = predictors.predict(name, shape, gpu=gpu, pass_=pass_)
                expected, memory = answer.expected, answer.memory
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
        ],
    )  # fmt: skip


if __name__ == "__main__":
    main()
