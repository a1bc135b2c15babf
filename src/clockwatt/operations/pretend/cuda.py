"""Replacements of PyTorch's functions that need a CUDA device, for a GPU that this machine lacks."""

from __future__ import annotations

import contextlib
import functools
from collections import defaultdict
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
import torch.utils.checkpoint

try:
    import safetensors.torch as safetensors
except ImportError:
    safetensors = None  # type: ignore[assignment]

CUDA = torch.device("cuda", 0)
_CAPABILITIES = {"volta": (7, 0), "turing": (7, 5), "ampere": (8, 6), "ga100": (8, 0), "ada": (8, 9), "hopper": (9, 0)}
_NEWEST = (10, 0)
_RNG_STATE_BYTES = 16
_CHECKPOINT_CHECKS: dict[str, Any] = getattr(torch.utils.checkpoint, "_allowed_determinism_checks_to_fns", {})
"""By which checkpointing compares devices, among others, of what it computes again."""
_NOTHING = (
    *("_lazy_init", "init", "set_device", "synchronize", "empty_cache", "ipc_collect", "set_stream"),
    *("reset_peak_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached", "set_rng_state"),
    *("reset_accumulated_memory_stats", "set_per_process_memory_fraction", "set_rng_state_all"),
    *("manual_seed", "manual_seed_all", "seed", "seed_all"),
)
_RANDOM = {name for name in torch.cuda.random.__all__ if name in vars(torch.cuda)}
"""Functions that are in two modules."""
_ZERO = (
    *("current_device", "initial_seed", "memory_allocated", "max_memory_allocated", "memory_reserved"),
    *("max_memory_reserved", "utilization"),
)


class InferenceMode(torch.no_grad):
    """`torch.inference_mode` without inference tensors, whose changes cannot be followed."""

    depth = 0

    def __new__(cls, mode: Any = True) -> Any:
        """A context, or a function that runs within one."""
        return cls()(mode) if callable(mode) else object.__new__(cls)

    def __init__(self, mode: bool = True) -> None:
        super().__init__()
        self.mode = mode

    def __enter__(self) -> None:
        super().__enter__()
        InferenceMode.depth += 1
        torch.set_grad_enabled(self.prev and not self.mode)

    def __exit__(self, *ended: Any) -> None:
        InferenceMode.depth -= 1
        super().__exit__(*ended)

    def clone(self) -> InferenceMode:
        """A context of its own, for each call of a decorated function."""
        return InferenceMode(self.mode)


class _Stream:
    """A stream or an event of no device; a time between two events is 1 ms."""

    def __init__(self, *_: object, **__: object) -> None:
        self.cuda_stream = 0
        self.device = CUDA

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        answers = {"elapsed_time": 1.0, "query": True, "is_capturing": False}
        return lambda *_, **__: answers.get(name)

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def _always(value: Any) -> Callable[..., Any]:
    return lambda *_, **__: value


def _replacements(name: str, architecture: str, memory_bytes: int, sm_count: int) -> list[tuple[Any, str, Any]]:
    capability = _CAPABILITIES.get(architecture, _NEWEST)
    properties = SimpleNamespace(
        name=name, major=capability[0], minor=capability[1], total_memory=memory_bytes,
        multi_processor_count=sm_count, warp_size=32, is_integrated=False,
    )  # fmt: skip
    answers: dict[str, Any] = {
        "is_available": True, "is_initialized": True, "_is_in_bad_fork": False, "device_count": 1,
        "get_device_name": name, "get_device_properties": properties, "get_device_capability": capability,
        "get_arch_list": [f"sm_{capability[0]}{capability[1]}"], "is_bf16_supported": capability >= (8, 0),
        "mem_get_info": (memory_bytes, memory_bytes), "memory_stats": defaultdict(int), "memory_summary": "",
        "get_rng_state": torch.zeros(_RNG_STATE_BYTES, dtype=torch.uint8),
        "get_rng_state_all": [torch.zeros(_RNG_STATE_BYTES, dtype=torch.uint8)],
        "current_stream": _Stream(), "default_stream": _Stream(),
        **dict.fromkeys(_NOTHING), **dict.fromkeys(_ZERO, 0),
    }  # fmt: skip
    of_accelerator = {
        "is_available": True, "device_count": 1, "current_accelerator": torch.device("cuda"),
        "current_device_index": 0, "current_stream": _Stream(), "set_device_index": None,
        "synchronize": None, "empty_cache": None,
        "memory_allocated": 0, "max_memory_allocated": 0, "memory_reserved": 0, "max_memory_reserved": 0,
        "reset_peak_memory_stats": None, "get_device_capability": {},
    }  # fmt: skip
    return [
        *((torch.cuda, key, _always(value)) for key, value in answers.items()),
        *((torch.cuda.random, key, _always(value)) for key, value in answers.items() if key in _RANDOM),
        *((torch.accelerator, key, _always(value)) for key, value in of_accelerator.items()),
        *((torch.cuda, key, _Stream) for key in ("Stream", "Event", "device", "device_of", "stream")),
        (torch.utils.data.DataLoader, "__iter__", _loads_here(torch.utils.data.DataLoader.__iter__)),
        (torch.nn.DataParallel, "scatter", lambda _, given, by_keyword, __: (_moved(given), _moved(by_keyword))),
        (torch, "load", _loads_to_cpu(torch.load)),
        *([(safetensors, "serialize_file", _always(None))] if safetensors else []),
        (torch.UntypedStorage, "data_ptr", _told_apart(torch.UntypedStorage.data_ptr)),
        (torch, "inference_mode", InferenceMode),
        (torch.autograd, "inference_mode", InferenceMode),
        (torch, "set_default_device", _on_meta(torch.set_default_device)),
        (torch.nn.utils.clip_grad, "_has_foreach_support", _always(True)),
    ]


def _loads_here(iterate: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Loaders load in this process, which alone pretends; their batches are those of several workers."""

    @functools.wraps(iterate)
    def without_workers(self: Any) -> Any:
        here = {"num_workers": 0, "pin_memory": False, "timeout": 0}
        before = {name: getattr(self, name) for name in here}
        vars(self).update(here)
        try:
            return iterate(self)
        finally:
            vars(self).update(before)

    return without_workers


def _loads_to_cpu(load: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(load)
    def to_cpu(file: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        return load(file, "cpu" if map_location is None or is_cuda(map_location) else map_location, *args, **kwargs)

    return to_cpu


def _told_apart(address: Callable[[Any], int]) -> Callable[[Any], int]:
    """Give each storage on meta an address of its own, by which checkpoints find parameters that are shared."""
    return lambda storage: storage._cdata if storage.device.type == "meta" else address(storage)


def _on_meta(function: Callable[[Any], None]) -> Callable[[Any], None]:
    return lambda device: function("meta" if is_cuda(device) else device)


def is_cuda(value: object) -> bool:
    """Whether a value names a CUDA device."""
    if isinstance(value, torch.device):
        return value.type == "cuda"
    return isinstance(value, str) and value.partition(":")[0] == "cuda"


def _moved(given: Any) -> list[Any]:
    """Arguments of the only GPU of a DataParallel."""
    return [torch.utils._pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.cuda(), given)]


@contextlib.contextmanager
def pretended(
    name: str,
    architecture: str,
    memory_bytes: int,
    sm_count: int,
    *,
    compiled: Callable[..., Any],
    saved: Callable[..., None],
) -> Iterator[None]:
    """Within, `torch.cuda` answers as where there is one GPU, and loaders of data use no workers.

    Parameters
    ----------
    name, architecture, memory_bytes, sm_count
        Of the GPU.
    compiled
        Stands in place of `torch.compile`.
    saved
        Stands in place of `torch.save`.
    """
    replacements = [
        *_replacements(name, architecture, memory_bytes, sm_count),
        (torch, "save", saved),
        (torch, "compile", compiled),
        (
            torch.nn.Module,
            "compile",
            lambda module, *_, **settings: compiled(module, in_place=True, **settings) and None,
        ),
    ]
    before = [(owner, key, getattr(owner, key)) for owner, key, _ in replacements if hasattr(owner, key)]
    checks = dict(_CHECKPOINT_CHECKS)
    _CHECKPOINT_CHECKS.update(dict.fromkeys(checks, _always(None)))
    try:
        for owner, key, value in replacements:
            setattr(owner, key, value)
        yield
    finally:
        _CHECKPOINT_CHECKS.update(checks)
        for owner, key, value in before:
            setattr(owner, key, value)
