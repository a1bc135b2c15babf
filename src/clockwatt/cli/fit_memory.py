"""`clockwatt fit-memory`: the largest batch, sequence or number of layers that fits a GPU."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from clockwatt.cli.options import AsJson
from clockwatt.cli.predict import loaded
from clockwatt.cli.request_options import FOLDERS, NETWORK, TRAINING, request_command
from clockwatt.errors import ClockwattError, RequestError

if TYPE_CHECKING:
    from collections.abc import Callable

    from clockwatt.config import NetworkConfig, TrainingConfig
    from clockwatt.predict.fit_memory import Largest
    from clockwatt.predict.request import Request

_LARGEST = {
    "batch": "largest batch that fits",
    "sequence": "longest sequence that fits",
    "layers": "most layers that fit",
}


@request_command(
    *("network", "gpu", *NETWORK[1:], "pass_", "precision", *TRAINING, *FOLDERS),
    examples=(
        "clockwatt fit-memory resnet50 --gpu h200 --pass training",
        "clockwatt fit-memory hf:llama.json --input 4,2048 --gpu h100 --sequence",
        "clockwatt fit-memory 'models:stack_{layers}' --input 8,128 --gpu a30 --layers",
        "clockwatt fit-memory resnet50 --gpu h200 --measure",
    ),
)
def fit_memory(
    request: Request,
    *,
    batch: Annotated[bool, typer.Option("--batch", help="Vary the batch size (default).")] = False,
    sequence: Annotated[bool, typer.Option("--sequence", help="Vary the second size of the inputs.")] = False,
    layers: Annotated[bool, typer.Option("--layers", help="Vary the number of layers.")] = False,
    used: Annotated[float, typer.Option(min=0, max=1024, help="Memory that other processes hold, in GiB.")] = 0.0,
    measure: Annotated[bool, typer.Option("--measure", help="Find the size by trials on this machine's GPU.")] = False,
    as_json: AsJson = False,
) -> None:
    """Find the largest batch, sequence or depth that fits."""
    from clockwatt.cli.printing import binary, memory_words
    from clockwatt.predict.fit_memory import fit_memory as predicted
    from clockwatt.schema.records import OPTIMIZER_STATE

    if batch + sequence + layers > 1:
        raise RequestError("give one of --batch, --sequence and --layers.")
    dimension: Literal["batch", "sequence", "layers"] = "layers" if layers else "sequence" if sequence else "batch"
    predictors = loaded(request)
    free = None
    if measure:
        from clockwatt.measure.fit_memory import free_and_total_bytes
        from clockwatt.predict.memory import CONTEXT_BYTES

        device = _gpu()
        free = free_and_total_bytes(device)
        used = max(0, free[1] - free[0] - CONTEXT_BYTES) / 2**30  # this process has its context
    expected, sized = predicted(predictors, request, dimension, other_bytes=int(used * 2**30))
    largest, others = expected, f"predicted; {expected.safe_size:,} with 95 % certainty"
    if measure:
        others = f"measured; {expected.size:,} predicted"
        training = predictors.tracer.trained(request.training).training
        largest = measured(expected, sized, request.pass_, training, "cuda")
    if as_json:
        print(json.dumps(largest.to_dict() | ({} if free is None else {"free_bytes_at_start": free[0]}), indent=2))
        return
    network = f"{request.network} {_shape(sized(1), dimension)}"
    question = f"{network}, {request.pass_}, {request.execution(sized(1).variant).words}, {request.gpus[0]}"
    print(f"{question}: {_LARGEST[dimension]}: {largest.size:,} {others}.")
    print(memory_words(expected.memory, f"Memory with {dimension} = {expected.size:,}"))
    print(f"Next size tried: {dimension} = {largest.refused:,}: {largest.refusal or 'does not fit.'}")
    if largest.optimizer is not None:
        state = largest.memory.parts.get(OPTIMIZER_STATE, 0)
        print(f"Optimizer: {largest.optimizer}, with {binary(state)} of state.")
    if free is not None:
        print(f"At the start {binary(free[0])} of {binary(free[1])} were free.")


def _shape(network: NetworkConfig, dimension: str) -> str:
    """`batch×3×224×224`: the shape of the first input, with what is varied by its name."""
    shape = list(map(str, network.first_input.shape))
    if dimension != "layers":
        shape[("batch", "sequence").index(dimension)] = dimension
    return "×".join(shape)


def _gpu() -> str:
    import torch

    if not torch.cuda.is_available():
        raise ClockwattError("--measure: this machine has no GPU that PyTorch can use. Leave --measure out.")
    return "cuda"


def measured(
    largest: Largest, sized: Callable[[int], NetworkConfig], pass_: str, training: TrainingConfig, device: str
) -> Largest:
    """Return the largest size that runs on a device, by bisection from the predicted one."""
    import torch

    from clockwatt.measure.fit_memory import run_pass
    from clockwatt.predict.fit_memory import search

    def runs(size: int) -> bool:
        return run_pass(sized(size), pass_, training, torch.device(device)).fits

    size, refused = search(runs, largest.size)
    return replace(largest, size=size, safe_size=size, refused=refused, refusal=None, source="measured")
