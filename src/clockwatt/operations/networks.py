"""Networks: found by name, built without computing anything, or built for real with the pass that is measured."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any

import torch
from torch.nn.modules.module import (
    register_module_buffer_registration_hook,
    register_module_parameter_registration_hook,
)
from torch.nn.parameter import is_lazy
from torch.utils.weak import WeakIdKeyDictionary

from clockwatt.config import InputConfig, NetworkConfig, TrainingConfig
from clockwatt.errors import NetworkError
from clockwatt.operations import optimizers
from clockwatt.operations.constructors import FAULTS, Constructor, constructor_of, summary
from clockwatt.operations.known_values import MOST_ELEMENTS, Constructing, KnownValues
from clockwatt.operations.spec.encode import dtype_of
from clockwatt.schema.execution import ExecutionSettings, mode_of_variant
from clockwatt.schema.records import TRAINING

__all__ = [
    "FAULTS",
    "BuiltNetwork",
    "Loss",
    "NetworkError",
    "build_network",
    "construct",
    "construct_on_meta",
    "example_inputs",
    "summary",
]

_USUAL_WEIGHT = 0.02
"""Standard deviation of weights as transformers begin with."""


_PASSES_BEFORE_CAPTURE = 3

_BUFFERS: MutableMapping[torch.Tensor, tuple[int, torch.Tensor]] = WeakIdKeyDictionary()
"""Small buffers that were moved to meta: version and values then, for modules that outlive a trace."""

CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
"""Memory formats by the number of dimensions."""


class BuiltNetwork:
    """A network on a device with an input, ready to be called any number of times.

    Attributes
    ----------
    module
        The network, with the weights that its constructor gives, but no matrix of zeros alone.
    parameter_bytes
        Bytes of its parameters and buffers.
    device
        Where it computes.
    forward
        What a pass calls: the module, its compiled form, or a wrapper around it.
    optimizer
        In training, with steps of no length.
    call
        One pass: forward in inference (under the caller's `torch.inference_mode`); in training forward, loss, backward
        with fresh gradients, and the optimizer's step.
    """

    def __init__(
        self, network: NetworkConfig, device: torch.device, pass_: str, training: TrainingConfig, seed: int
    ) -> None:
        self.device = device
        with device:
            self.module = construct(network, training=pass_ == TRAINING).to(device)
        tensors = example_tensors(network, device, seed)
        materialise(self.module, tensors)
        _fill_zero_weights(self.module)
        fill = getattr(self.module, "fill", None)
        if callable(fill):
            fill()
        self.parameter_bytes = sum(
            t.numel() * t.element_size() for t in (*self.module.parameters(), *self.module.buffers())
        )
        self._positional, self._by_keyword = arranged(tensors)
        autocast = network.execution[0].autocast
        self.forward: Callable[..., Any] = self.module
        mode = mode_of_variant(network.variant)
        if network.execution[0].compiled:
            self.forward = torch.compile(self.module, mode=mode if mode == "reduce-overhead" else "default")
        self._autocast: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext
        if autocast is not None:
            self._autocast = functools.partial(torch.autocast, device.type, dtype_of(autocast))
        self._scaler = torch.amp.GradScaler(device.type, enabled=autocast == "float16")
        self._loss = Loss(network, device, seed, training.loss)
        self.call: Callable[[], Any] = self._infer
        if pass_ == TRAINING:
            self._training = training
            self.make_optimizer()
            self.call = self._train
        if mode == "cuda_graph":
            self.call = _captured(self.call)

    def _infer(self) -> Any:
        with self._autocast():
            return self.forward(*self._positional, **self._by_keyword)

    def loss(self) -> torch.Tensor:
        """Return the loss of a forward pass."""
        with self._autocast():
            return self._loss(self.forward(*self._positional, **self._by_keyword))

    def make_optimizer(self) -> None:
        """Make the optimizer of the parameters that the module has now."""
        self.optimizer = optimizers.make(self._training, self.module.parameters())
        optimizers.hold_still(self.optimizer)

    def _train(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        for _ in range(self._training.accumulate):
            loss = self.loss()
            loss = loss / self._training.accumulate if self._training.accumulate > 1 else loss
            self._scaler.scale(loss).backward()
        if self._training.clip_norm is not None:
            self._scaler.unscale_(self.optimizer)
            torch.nn.utils.clip_grad_norm_(self.module.parameters(), self._training.clip_norm)
        self._scaler.step(self.optimizer)
        self._scaler.update()


def _captured(call: Callable[[], Any]) -> Callable[[], Any]:
    """Return a function that captures a pass as a CUDA graph when it is called first, and replays it."""

    @functools.cache
    def graph() -> torch.cuda.CUDAGraph:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_PASSES_BEFORE_CAPTURE):
                call()
        torch.cuda.current_stream().wait_stream(stream)
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            call()
        return captured

    return lambda: graph().replay()


def build_network(
    network: NetworkConfig, device: torch.device | str, *, pass_: str, training: TrainingConfig, seed: int = 0
) -> BuiltNetwork:
    """Build a network and all that one pass of it needs.

    Raises
    ------
    NetworkError
        If it cannot be found or built.
    torch.OutOfMemoryError
        If the device has too little memory.
    """
    with torch.inference_mode(mode=False):
        return BuiltNetwork(network, torch.device(device), pass_, training, seed)


def _fill_zero_weights(module: torch.nn.Module) -> None:
    """Give weights that are all zero random values, as the first step of training would.

    Some constructors initialise a last layer with zeros. Then all gradients before that layer are zero, and a GPU draws
    less power.
    """
    with torch.no_grad():
        for parameter in module.parameters():
            ordinary = parameter.is_floating_point() and parameter.element_size() > 1
            if ordinary and parameter.dim() > 1 and not parameter.any():
                parameter.normal_(std=_USUAL_WEIGHT)


def with_dtype(module: torch.nn.Module, dtype: torch.dtype) -> torch.nn.Module:
    """Cast a module's floating-point parameters and buffers in place; complex ones, which `Module.to` casts, stay."""
    if any(
        tensor.is_floating_point() and tensor.dtype != dtype for tensor in (*module.parameters(), *module.buffers())
    ):
        module._apply(lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor)
    return module


Change = Callable[[torch.nn.Module], torch.nn.Module]


def construct(
    network: NetworkConfig,
    *,
    training: bool,
    constructor: Constructor | None = None,
    change: Change = lambda same: same,
) -> torch.nn.Module:
    """Call a network's constructor, cast what it gives to the configured dtype and set train or eval mode.

    Parameters
    ----------
    network, training
        What, and whether it is trained.
    constructor
        That of the network, where it is known.
    change
        Takes what the constructor gives.

    Raises
    ------
    NetworkError
        If it cannot be found, or its constructor fails or gives no module.
    """
    constructor = constructor or constructor_of(network)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of initialisers: weights are of no interest
            module = constructor()
        if isinstance(module, torch.nn.Module):
            module = change(module)
            return laid_out(with_dtype(module, dtype_of(network.dtype)), network.execution[0]).train(training)
    except (torch.OutOfMemoryError, NetworkError):
        raise
    except FAULTS as error:
        raise NetworkError(
            f"network {network.name}: its constructor fails ({summary(error)}). Correct it and try again."
        ) from error
    raise NetworkError(
        f"network {network.name}: returns an object of type {type(module).__name__}, not a torch.nn.Module. "
        "Return the module."
    )


def laid_out(module: torch.nn.Module, execution: ExecutionSettings) -> torch.nn.Module:
    """Lay a network's weights out as the settings say."""
    if not execution.channels_last:
        return module
    module._apply(lambda tensor: tensor.to(memory_format=CHANNELS_LAST.get(tensor.dim(), torch.preserve_format)))
    return module


def construct_on_meta(network: NetworkConfig, values: KnownValues, *, training: bool) -> torch.nn.Module:
    """Construct a network on the meta device; in memory first where its constructor computes with its parameters.

    Raises
    ------
    NetworkError
        See `construct`.
    """

    def copied(module: torch.nn.Module) -> torch.nn.Module:
        try:
            return copy_on_meta(module, values)
        except FAULTS as error:
            raise NetworkError(
                f"network {network.name}: cannot be copied ({summary(error)}). Construct it anew in its function."
            ) from error

    try:
        with without_memory(values) as registered:
            constructor = constructor_of(network)
            registered.clear()  # by modules that exist since their file was imported

            def copied_if_older(module: torch.nn.Module) -> torch.nn.Module:
                tensors = [one for one in (*module.parameters(), *module.buffers()) if not is_lazy(one)]
                in_memory = any(not tensor.is_meta for tensor in tensors)
                older = in_memory or (tensors and not any(tensor in registered for tensor in tensors))
                return copied(module) if older else module

            module = construct(network, training=training, constructor=constructor, change=copied_if_older)
        return module.to("meta")
    except NetworkError as error:
        if not isinstance(error.__cause__, NotImplementedError | RuntimeError):
            raise
    return construct(network, training=training, change=copied)


def copy_on_meta(module: torch.nn.Module, values: KnownValues) -> torch.nn.Module:
    """Copy a module to the meta device, without memory for its weights; `values` keeps those of small buffers."""
    memo: dict[int, Any] = {}
    for tensor in (*module.parameters(), *module.buffers()):
        moved = tensor.detach().to("meta", copy=True)
        is_parameter = isinstance(tensor, torch.nn.Parameter)
        memo[id(tensor)] = torch.nn.Parameter(moved, tensor.requires_grad) if is_parameter else moved
        value = None if is_parameter or tensor.numel() > MOST_ELEMENTS else values.of(tensor)
        if value is None and tensor in _BUFFERS:
            version, value = _BUFFERS[tensor]
            value = value if version == tensor._version else None
        if value is not None:
            values.keep(moved, value.detach().to("cpu", copy=True))  # a call may change it in place
    computed = (one for part in module.modules() for one in vars(part).values())  # as by weight_norm
    for tensor in computed:
        if isinstance(tensor, torch.Tensor) and not tensor.is_leaf:
            memo[id(tensor)] = tensor.detach().to("meta")
    return copy.deepcopy(module, memo)


@contextlib.contextmanager
def without_memory(values: KnownValues) -> Iterator[MutableMapping[torch.Tensor, None]]:
    """Within, parameters and buffers of new modules move to the meta device as they are registered.

    The keys of what it gives are those of them that live.

    Initialisers then cost nothing, and constructors that compute with plain tensors still can, which they could not if
    the meta device were the default one.

    Parameters
    ----------
    values
        Keeps the values of buffers that are small.
    """
    registered: MutableMapping[torch.Tensor, None] = WeakIdKeyDictionary()
    with registered_on_meta(values, registered=registered), Constructing(values):
        yield registered


@contextlib.contextmanager
def registered_on_meta(
    values: KnownValues,
    keep_lazy: Callable[[torch.Tensor], None] | None = None,
    registered: MutableMapping[torch.Tensor, None] | None = None,
) -> Iterator[None]:
    """As `without_memory`, for callers that follow the values of calls themselves.

    Parameters
    ----------
    keep_lazy
        Takes each lazy tensor that was moved.
    registered
        Takes each parameter and buffer that is not lazy as a key.
    """
    thread = threading.get_ident()

    def to_meta(module: torch.nn.Module, name: str, tensor: torch.Tensor | None) -> Any:  # noqa: ARG001  # as PyTorch calls it
        if threading.get_ident() != thread:  # another thread builds a network of its own
            return None
        with torch._C.DisableTorchFunction():  # a mode may claim that it is on a GPU
            if tensor is not None and tensor.is_meta and registered is not None:
                registered[tensor] = None
            if tensor is None or tensor.is_meta:
                return None
        if is_lazy(tensor):
            kind: Any = type(tensor)
            lazy: torch.Tensor = kind(tensor.requires_grad, "meta", tensor.dtype)
            if keep_lazy is not None:
                keep_lazy(lazy)
            return lazy
        moved = tensor.detach().to("meta")
        if not isinstance(tensor, torch.nn.Parameter) and tensor.numel() <= MOST_ELEMENTS:
            values.keep(moved, tensor)
            _BUFFERS[moved] = moved._version, tensor
        result = torch.nn.Parameter(moved, tensor.requires_grad) if isinstance(tensor, torch.nn.Parameter) else moved
        if registered is not None:
            registered[result] = None
        return result

    hooks = (register_module_parameter_registration_hook(to_meta), register_module_buffer_registration_hook(to_meta))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def materialise(module: torch.nn.Module, tensors: Mapping[str, torch.Tensor]) -> None:
    """Give lazy parameters the shapes that follow from the inputs, by a forward pass.

    NetworkError if that fails.
    """
    if any(is_lazy(tensor) for tensor in (*module.parameters(), *module.buffers())):
        given, by_keyword = arranged(tensors)
        try:
            with torch.no_grad():
                module(*given, **by_keyword)
        except FAULTS as error:
            raise NetworkError(
                f"its lazy parameters get no shape ({summary(error)}). Check that it takes the input that is given."
            ) from error


def example_inputs(network: NetworkConfig, device: torch.device, seed: int) -> tuple[list[Any], dict[str, Any]]:
    """Inputs of the configured shapes, those by position and those by keyword."""
    return arranged(example_tensors(network, device, seed))


def example_tensors(network: NetworkConfig, device: torch.device, seed: int) -> dict[str, torch.Tensor]:
    """Every input of the configured shapes by its name."""
    generator = None if device.type == "meta" else torch.Generator(device).manual_seed(seed)
    tensors = {name: example(given, network.dtype, device, generator) for name, given in network.by_keyword.items()}
    if not network.execution[0].channels_last:
        return tensors
    return {
        name: tensor.contiguous(memory_format=CHANNELS_LAST.get(tensor.dim(), torch.contiguous_format))
        for name, tensor in tensors.items()
    }


def arranged(tensors: Mapping[str, torch.Tensor]) -> tuple[list[Any], dict[str, Any]]:
    """Arguments of a network, by position and by keyword: `images.0` is an entry of a list, `batch.mask` of a dict."""
    nested: dict[str, Any] = {}
    for name, tensor in tensors.items():
        *outer, last = name.split(".")
        inner = nested
        for part in outer:
            inner = inner.setdefault(part, {})
        inner[last] = tensor
    given = {name: _entries(value) for name, value in nested.items()}
    positions = sorted((name for name in given if not name or name.isdecimal()), key=lambda name: int(name or 0))
    return [given.pop(name) for name in positions], given


def _entries(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    entries = {name: _entries(entry) for name, entry in value.items()}
    return list(entries.values()) if all(name.isdecimal() for name in entries) else entries


_VALUES = {"bool": 2, "uint8": 256}
"""Dtypes of inputs that are neither indices nor floating-point numbers, and how many values each has."""


def example(given: InputConfig, dtype: str, device: torch.device, generator: torch.Generator | None) -> torch.Tensor:
    """One input: standard normal, uniform indices, ones, or ones up to a length of each row's own."""
    wanted = dtype_of(dtype if given.dtype == "float" else given.dtype)
    if given.values == "ones":
        return torch.ones(given.shape, dtype=wanted, device=device)
    if given.values == "lengths":
        longest = given.shape[-1]
        rows = [*given.shape[:-1], 1]
        lengths = torch.randint(longest // 2, longest, rows, device=device, generator=generator)
        return (torch.arange(longest, device=device) <= lengths).to(wanted)
    below = given.below or _VALUES.get(given.dtype)
    if below is not None:
        return torch.randint(below, given.shape, device=device, generator=generator).to(wanted)
    return torch.randn(given.shape, device=device, generator=generator).to(wanted)


_TARGETED: dict[str, Callable[..., torch.Tensor]] = {
    "cross_entropy": torch.nn.functional.cross_entropy,
    "mse": torch.nn.functional.mse_loss,
}


class Loss:
    """The loss of a training pass, by the shape of what the network gives.

    - Class scores, (batch, classes), of one or several heads: the sum of their cross-entropies with class indices.
    - Scores of the next index, (*shape of an input of indices, its bound): the cross-entropy over all positions.
    - Anything else: the sum of the means of all floating-point outputs.

    Another `kind` than `auto` is taken of each floating-point output by itself.
    """

    def __init__(self, network: NetworkConfig, device: torch.device, seed: int, kind: str = "auto") -> None:
        self._network = network
        self._kind = kind
        self._of_outputs: list[torch.Tensor] = []
        self._device = device
        self._generator = None if device.type == "meta" else torch.Generator(device).manual_seed(seed)
        self._targets: torch.Tensor | None = None

    def prepare(self, outputs: Any) -> None:
        """Make the targets that outputs of these shapes need."""
        if self._kind in _TARGETED:
            self._of_outputs = [self._target(output) for output in floating_outputs(outputs)]
            return
        scores = self._scores(floating_outputs(outputs))
        if scores:
            classes = min(score.shape[-1] for score in scores)
            rows = scores[0].numel() // scores[0].shape[-1]
            self._targets = torch.randint(classes, (rows,), device=self._device, generator=self._generator)

    def __call__(self, outputs: Any) -> torch.Tensor:
        """The loss, a scalar; targets are made on the first call."""
        given = floating_outputs(outputs)
        if not given:
            raise NetworkError(
                f"network {self._network.name}: returns no floating-point tensor to compute a loss from."
            )
        if self._kind in _TARGETED:
            if not self._of_outputs:
                self.prepare(outputs)
            pairs = zip(given, self._of_outputs, strict=True)
            return _total([_TARGETED[self._kind](output, target) for output, target in pairs])
        scores = self._scores(given) if self._kind == "auto" else []
        if not scores:
            return _total([output.mean() for output in given])
        if self._targets is None:
            self.prepare(outputs)
        assert self._targets is not None
        flat = [score if score.dim() == 2 else score.flatten(0, -2) for score in scores]
        return _total([torch.nn.functional.cross_entropy(score, self._targets) for score in flat])

    def _target(self, output: torch.Tensor) -> torch.Tensor:
        if self._kind == "mse":
            return torch.randn(output.shape, dtype=output.dtype, device=self._device, generator=self._generator)
        if output.dim() < 2:
            raise NetworkError(
                f"network {self._network.name}: returns an output without classes (dimension 1). Choose another loss."
            )
        shape = (output.shape[0], *output.shape[2:])
        return torch.randint(output.shape[1], shape, device=self._device, generator=self._generator)

    def _scores(self, given: list[torch.Tensor]) -> list[torch.Tensor]:
        batch = self._network.first_input.shape[0]
        if given and all(output.dim() == 2 and output.shape[0] == batch for output in given):
            return given
        indices = [one for one in self._network.by_keyword.values() if one.below is not None]
        if given and any(list(given[0].shape) == [*one.shape, one.below] for one in indices):
            return given[:1]
        return []


def floating_outputs(outputs: Any) -> list[torch.Tensor]:
    """Floating-point tensors of a network's output: itself, or the entries of a tuple, mapping or dataclass."""
    if isinstance(outputs, Mapping):
        entries = list(outputs.values())
    elif isinstance(outputs, list | tuple):
        entries = list(outputs)
    elif dataclasses.is_dataclass(outputs):
        entries = [getattr(outputs, field.name) for field in dataclasses.fields(outputs)]
    else:
        entries = [outputs]
    return [entry for entry in entries if isinstance(entry, torch.Tensor) and entry.is_floating_point()]


def _total(losses: list[torch.Tensor]) -> torch.Tensor:
    total = losses[0]
    for loss in losses[1:]:
        total = total + loss
    return total
