"""The largest batch, sequence or number of layers whose pass fits the memory of a GPU."""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from clockwatt.config import NetworkConfig
from clockwatt.errors import ClockwattError, RequestError
from clockwatt.gpu.specs import find_spec
from clockwatt.predict.all_gpus import AllGpus
from clockwatt.predict.memory import CONTEXT_BYTES, PassMemory, pass_memory
from clockwatt.predict.request import Request
from clockwatt.predict.tracing import with_batch

Dimension = Literal["batch", "sequence", "layers"]
LAYERS = "{layers}"
"""Stands in a network's name for the number of layers."""
_LAYER_KEYS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
_MOST = 2**40
"""More than fits any GPU at a byte each."""
_EXACT = 256
"""Sizes are searched to one part in so many."""


@dataclass(frozen=True)
class Largest:
    """The largest size that fits.

    Attributes
    ----------
    dimension, size
        What was varied, and the largest that fits.
    safe_size
        The largest of which the upper end of the 90 % interval fits.
    memory
        Of the pass at `size`.
    used_bytes
        Of the GPU's memory, what is not PyTorch's.
    source
        `predicted` or `measured`.
    """

    dimension: Dimension
    size: int
    safe_size: int
    memory: PassMemory
    used_bytes: int
    source: str = "predicted"

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(replace(self, memory=replace(self.memory, modules={}))), "memory": self.memory.to_dict()}


def search(fits: Callable[[int], bool], guess: int = 1) -> int:
    """Return the largest size that fits, to one part in `_EXACT`; 0 if none does.

    Parameters
    ----------
    fits
        Whether a size fits; it must fit if a larger one does.
    guess
        Where to begin.
    """
    low, high = 0, guess
    while fits(high):
        low, high = high, 2 * high
        if high > _MOST:
            return low
    while high - low > max(1, low // _EXACT):
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low


def fit_memory(
    predictors: AllGpus, request: Request, dimension: Dimension, *, other_bytes: int = 0
) -> tuple[Largest, Callable[[int], NetworkConfig]]:
    """Predict the largest size of a request's network that fits its GPU.

    Parameters
    ----------
    predictors
        For the campaign's training step, and the cache of what passes allocate.
    request
        Its GPU may be any of `resources/gpus.yaml`.
    dimension
        What is varied.
    other_bytes
        Memory that other processes hold.

    Returns
    -------
    Largest and callable
        The largest, and the network of a size.

    Raises
    ------
    ClockwattError
        If not even the least fits, or the network has no such dimension.
    """
    if len(request.gpus) != 1:
        raise RequestError("{gpu}: give one GPU.")
    spec, used = find_spec(request.gpus[0]), CONTEXT_BYTES + other_bytes
    with tempfile.TemporaryDirectory() as folder:
        sized = functools.cache(functools.partial(_sized, predictors, request, dimension, Path(folder)))

        @functools.cache
        def memory(size: int) -> PassMemory:
            network = sized(size)
            tracer = predictors.tracer.trained(request.training)
            events = tracer.memory(network, request.pass_)
            execution = request.execution(network.variant)
            return pass_memory(events, pass_=request.pass_, execution=execution, spec=spec, used_bytes=used)

        size = search(lambda one: bool(memory(one).fits), _guess(memory, spec.memory_bytes - used))
        if size == 0:
            needed, there = memory(1).allocated_bytes / 2**30, max(0, spec.memory_bytes - used) / 2**30
            raise ClockwattError(
                f"{request.network}: {request.pass_} with {dimension} 1 needs {needed:.1f} GiB, and {spec.name} has "
                f"{there:.1f} GiB for it. Choose a smaller network{', or leave it more memory' * bool(used)}."
            )
        if size > _MOST // 4:
            raise ClockwattError(
                f"{request.network}: its memory does not depend on the {dimension}. Vary another size."
            )
        return Largest(dimension, size, _safe(memory, size), memory(size), used), sized


def _guess(memory: Callable[[int], PassMemory], capacity: int) -> int:
    """Extrapolate linearly from two small sizes, to what takes less than there is."""
    small, large = (memory(size).allocated_bytes for size in (1, 2))
    slope = max(large - small, 1)
    return max(1, min(_MOST // 2, int(0.8 * (capacity - small) / slope)))


def _safe(memory: Callable[[int], PassMemory], size: int) -> int:
    """Return the size of which the upper end of the interval takes what `size` is expected to."""
    least, largest = memory(1), memory(size)
    slope = (largest.allocated_bytes - least.allocated_bytes) / max(size - 1, 1)
    over = largest.allocated_high_bytes - largest.allocated_bytes
    return max(0, size - int(-(-over // slope))) if slope > 0 else size


def _sized(predictors: AllGpus, request: Request, dimension: Dimension, folder: Path, size: int) -> NetworkConfig:
    """Return the network of a request with a size."""
    if dimension == "layers":
        return predictors.network(request.model_copy(update={"network": _with_layers(request.network, size, folder)}))
    network = predictors.network(request)
    return with_batch(network, size) if dimension == "batch" else _with_sequence(network, size)


def _with_layers(name: str | None, layers: int, folder: Path) -> str:
    if name is not None and LAYERS in name:
        return name.replace(LAYERS, str(layers))
    if name is not None and name.startswith("hf:"):
        path = Path(name.removeprefix("hf:"))
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise RequestError(f"network {name}: cannot be read ({error}). Give a configuration in JSON.") from None
        keys = [key for key in _LAYER_KEYS if key in content]
        if keys:
            changed = folder / f"{path.stem}-{layers}.json"
            changed.write_text(json.dumps(content | dict.fromkeys(keys, layers)), encoding="utf-8")
            return f"hf:{changed}"
    raise RequestError(
        f"{{layers}}: network {name} names no number of layers. Write layers, in braces, in the place of the number in "
        "`package.module:callable`, or give `hf:CONFIG.json` with `num_hidden_layers`."
    )


def _with_sequence(network: NetworkConfig, length: int) -> NetworkConfig:
    """Change the second size of every input that has the first input's."""
    first = network.first_input.shape
    if len(first) not in (2, 3):
        raise RequestError(f"{{sequence}}: the input {first} of {network.name} is no sequence (batch, length, …).")

    def sized(shape: list[int]) -> list[int]:
        return [shape[0], length, *shape[2:]] if len(shape) > 1 and shape[1] == first[1] else shape

    if network.inputs is not None:
        inputs = {name: one.model_copy(update={"shape": sized(one.shape)}) for name, one in network.inputs.items()}
        return network.model_copy(update={"inputs": inputs})
    return network.model_copy(update={"input": sized(first)})
