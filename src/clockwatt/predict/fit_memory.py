"""The largest batch, sequence or number of layers whose pass fits the memory of a GPU."""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from clockwatt.config import NetworkConfig
from clockwatt.errors import ClockwattError, IndexBeyondEndError, NetworkError, RequestError
from clockwatt.gpu.specs import find_spec
from clockwatt.io.folders import temporary_folder
from clockwatt.predict.all_gpus import AllGpus
from clockwatt.predict.memory import CONTEXT_BYTES, PassMemory, pass_memory
from clockwatt.predict.request import Request
from clockwatt.predict.tracing import with_batch
from clockwatt.schema.execution import ExecutionSettings
from clockwatt.schema.records import GRADIENTS, OPTIMIZER_STATE, PARAMETERS, TRAINING, MemoryRow

if TYPE_CHECKING:
    from clockwatt.operations.instances import Instance

Dimension = Literal["batch", "sequence", "layers"]
DIMENSIONS = get_args(Dimension)
LAYERS = "{layers}"
"""Stands in a network's name for the number of layers."""
_LAYER_KEYS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
_MOST = 2**40
"""More than fits any GPU at a byte each."""
_EXACT = 256
"""Sizes are searched to one part in so many."""
_ROUNDS = 8
"""Sizes that are scaled before all are recorded one by one."""
_FIXED = frozenset({PARAMETERS, GRADIENTS, OPTIMIZER_STATE})
"""What does not grow with the batch or the sequence."""


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
    refused, refusal
        The smallest larger size that was tried, and why the network cannot run with it; None: it does not fit.
    optimizer
        Whose state is part of the memory; None in inference.
    source
        `predicted` or `measured`.
    """

    dimension: Dimension
    size: int
    safe_size: int
    memory: PassMemory
    used_bytes: int
    refused: int
    refusal: str | None = None
    optimizer: str | None = None
    source: str = "predicted"

    def __repr__(self) -> str:
        """Return a line: the sizes."""
        return f"<Largest {self.dimension}: size={self.size}, safe_size={self.safe_size}, {self.source}>"

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(replace(self, memory=replace(self.memory, modules={}))), "memory": self.memory.to_dict()}


def search(fits: Callable[[int], bool], guess: int = 1) -> tuple[int, int]:
    """Return the largest size that fits, to one part in `_EXACT`, 0 if none does; and the next that was refused.

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
            return low, high
    while high - low > max(1, low // _EXACT):
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low, high


def fit_memory(
    predictors: AllGpus,
    request: Request,
    dimension: Dimension,
    *,
    other_bytes: int = 0,
    instance: Instance | None = None,
) -> tuple[Largest, Callable[[int], NetworkConfig]]:
    """Predict the largest size of a request's network that fits its GPU.

    Parameters
    ----------
    predictors
        For the campaign's training step, and the cache of what passes allocate.
    request
        Its GPU may be one of the predictors, or any of `resources/gpus.yaml`.
    dimension
        What is varied: one of `DIMENSIONS`.
    other_bytes
        Memory that other processes hold.
    instance
        The network, where the request names none.

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
    (gpu,) = request.gpus
    known = predictors.model(gpu).description.gpu_name if gpu in predictors.gpus else gpu
    spec, used = find_spec(known), CONTEXT_BYTES + other_bytes
    tracer = predictors.tracer.trained(request.training)
    memory = tracer.memory if instance is None else functools.partial(tracer.memory_now, build=instance.on_meta)
    with tempfile.TemporaryDirectory(dir=temporary_folder()) as folder:

        def network(asked: Request) -> NetworkConfig:
            return predictors.network(asked) if instance is None else instance.config

        sized = functools.cache(functools.partial(_sized, network, request, dimension, Path(folder)))
        name = request.network or sized(1).name

        def sizes_of(execution: ExecutionSettings) -> Sizes:
            def recorded(size: int) -> list[MemoryRow]:
                try:
                    return memory(sized(size).model_copy(update={"precision": [execution]}), request.pass_)
                except IndexBeyondEndError:
                    raise
                except NetworkError as error:
                    raise NetworkError(f"with {dimension} {size}, {error}") from error

            def replayed(events: list[MemoryRow]) -> PassMemory:
                return pass_memory(events, pass_=request.pass_, execution=execution, spec=spec, used_bytes=used)

            return Sizes(recorded, replayed)

        execution, capacity = request.execution(sized(1).variant), spec.memory_bytes - used
        sizes = sizes_of(execution)
        if execution.compiled and dimension != "layers":  # recording compiles, which takes seconds
            size, refused = _near(sizes, capacity, _largest(sizes_of(execution.eager), capacity)[0])
        else:
            size, refused = _largest(sizes, capacity)
        if size == 0:
            needed, there = sizes.at(1).allocated_bytes / 2**30, max(0, capacity) / 2**30
            raise ClockwattError(
                f"{name}: {request.pass_} with {dimension} 1 needs {needed:.1f} GiB, and {spec.name} has "
                f"{there:.1f} GiB for it. Choose a smaller network{', or leave it more memory' * bool(used)}."
            )
        if size > _MOST // 4:
            raise ClockwattError(f"{name}: its memory does not depend on the {dimension}. Vary another size.")
        optimizer = tracer.training.optimizer if request.pass_ == TRAINING else None
        safe, refusal = _safe(sizes, dimension, size), sizes.refusals.get(refused)
        return Largest(dimension, size, safe, sizes.at(size), used, refused, refusal, optimizer), sized


class Sizes:
    """Memory of a network's pass at several sizes, recorded or scaled from a recorded size.

    Parameters
    ----------
    recorded
        Records what the pass of a size allocates.
    replayed
        Replays that.
    """

    def __init__(
        self, recorded: Callable[[int], list[MemoryRow]], replayed: Callable[[list[MemoryRow]], PassMemory]
    ) -> None:
        self._events, self._replayed = functools.cache(recorded), replayed
        self.at = functools.cache(lambda size: replayed(self._events(size)))
        self.refusals: dict[int, str] = {}

    def fits(self, size: int) -> bool:
        """Return whether a size fits; one with which the network fails, though not with others, is in `refusals`."""
        try:
            return bool(self.at(size).fits)
        except NetworkError as error:
            if not self._events.cache_info().currsize:
                raise
            self.refusals[size] = str(error)
            return False

    def scaled(self, known: int, size: int) -> PassMemory:
        """Return the memory of a size if what a known size allocates, but for parameters and their like, grows so."""
        return self._replayed([
            row if row.bytes is None or row.kind in _FIXED else replace(row, bytes=row.bytes * size // known)
            for row in self._events(known)
        ])  # fmt: skip


def _largest(sizes: Sizes, capacity: int) -> tuple[int, int]:
    """Return the largest size that fits, and the next that was refused; each that is tried is recorded."""
    return search(sizes.fits, _guess(sizes, capacity))


def _near(sizes: Sizes, capacity: int, guess: int) -> tuple[int, int]:
    """Return the largest size that fits, of few recorded ones, and the next that was refused.

    It is searched among sizes scaled from a recorded one, which is recorded next, until both are the same.
    """
    for _ in range(_ROUNDS):
        if guess > _MOST // 4:
            return guess, guess
        known = max(1, guess)
        sizes.fits(known)
        if known in sizes.refusals:
            break
        scaled = functools.cache(functools.partial(sizes.scaled, known))
        guess, refused = search(lambda size, scaled=scaled: bool(scaled(size).fits), known)  # type: ignore[misc]
        if known <= guess <= known + known // _EXACT:
            return known, refused
    return _largest(sizes, capacity)


def _guess(sizes: Sizes, capacity: int) -> int:
    """Extrapolate linearly from two small sizes, to what takes less than there is."""
    try:
        small, large = (sizes.at(size).allocated_bytes for size in (1, 2))
    except NetworkError:  # BatchNorm1d, for one, trains with no batch of 1
        small, large = (sizes.at(size).allocated_bytes for size in (2, 3))
    return max(1, min(_MOST // 2, int(0.8 * (capacity - small) / max(large - small, 1))))


def _safe(sizes: Sizes, dimension: Dimension, size: int) -> int:
    """Return the largest size, up to one that fits, that still does at the upper end of its interval."""
    memory = sizes.at if dimension == "layers" else functools.partial(sizes.scaled, size)
    return search(lambda smaller: smaller <= size and bool((one := memory(smaller)).fits) and not one.close, size)[0]


def _sized(
    network: Callable[[Request], NetworkConfig], request: Request, dimension: Dimension, folder: Path, size: int
) -> NetworkConfig:
    """Return the network of a request with a size."""
    if dimension == "layers":
        return network(request.model_copy(update={"network": _with_layers(request.network, size, folder)}))
    return with_batch(network(request), size) if dimension == "batch" else _with_sequence(network(request), size)


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
    what = "is a module, which" if name is None else name
    raise RequestError(
        f"{{layers}}: network {what} names no number of layers. Write layers, in braces, in the place of the number in "
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
