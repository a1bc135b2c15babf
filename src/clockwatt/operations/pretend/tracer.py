"""The mode under which a program of the user's own runs: CUDA tensors are meta tensors that claim to be on a GPU.

Tensors on the CPU stay real, so that data are loaded as ever. Values that are not known are given as plausible ones.
"""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakSet

import torch
import torch.utils.checkpoint
from torch.nn.parameter import UninitializedTensorMixin, is_lazy  # type: ignore[attr-defined]
from torch.utils._pytree import tree_map, tree_map_only
from torch.utils.weak import WeakIdKeyDictionary

from clockwatt.config import NetworkConfig, TrainingConfig
from clockwatt.operations.known_values import KnownValues
from clockwatt.operations.networks import CHANNELS_LAST, FAULTS, laid_out, registered_on_meta
from clockwatt.operations.pretend.cuda import CUDA, InferenceMode, is_cuda, pretended
from clockwatt.operations.spec import functions
from clockwatt.operations.spec.encode import tensors_in
from clockwatt.operations.trace.autocast import contexts_followed
from clockwatt.operations.trace.call import InterceptedCall, TracedCall, storage_of
from clockwatt.operations.trace.fusion import is_laid_out_channels_last
from clockwatt.operations.trace.gradients import Accumulation, GradientGraph
from clockwatt.operations.trace.memory import Storages, dropout
from clockwatt.operations.trace.meta import MetaLayouts
from clockwatt.operations.trace.refusals import cause, line_of_network, mixture
from clockwatt.operations.trace.trace import (
    ACCUMULATION,
    OPTIMIZER,
    Trace,
    accumulation,
    count_batch_norms,
    module_paths,
    optimizer_step,
    stance,
    traced_call,
)
from clockwatt.operations.trace.tracer import FORWARD, LOSS, Tracer, UntraceableError
from clockwatt.schema.execution import COMPILE, EAGER, REDUCE_OVERHEAD, ExecutionSettings
from clockwatt.schema.optimizers import BY_CLASS, FUSED, OPTIMIZERS
from clockwatt.schema.records import ACTIVATIONS, GRADIENTS, INPUTS, OPTIMIZER_STATE, PARAMETERS, TEMPORARY, MemoryRow

_META = torch.device("meta")
_SAVE = torch.save
_FITTING = "Correct it, or leave it out: real data, or a GPU, may be needed."
_T = torch.Tensor
_MOVES = (_T.to, _T.cuda)
_UPLOADS = (*_MOVES, torch.tensor, torch.as_tensor, torch.asarray)
_READS = {
    *(_T.item, _T.tolist, _T.__int__, _T.__float__, _T.__index__, _T.__complex__, _T.numpy, _T.__array__, _T.cpu),
    *(_T.__format__, _T.__repr__, _T.__contains__, torch.equal, torch.allclose, _T.equal, _T.allclose),
    *(_T.__bool__, _T.is_nonzero, torch.is_nonzero, _T.__reduce_ex__, torch._is_all_true),
}
_CHECKS = {"all": True, "any": False}
"""What a test of all elements is taken to give, so that checks of data pass."""
_STEPS_OF_LIGHTNING = ("forward", "training_step", "validation_step", "test_step", "predict_step")
"""Methods of a LightningModule that Lightning compiles."""
_WITH_GRAPHS = (REDUCE_OVERHEAD, "max-autotune")
_INDEXED = (_T.__getitem__, _T.index_put, _T.index_put_, torch.index_put, torch.index_put_)
"""Calls of a tensor on the GPU whose indices may be on the CPU."""
_ACROSS = {
    *(_T.to, _T.type_as, _T.copy_, _T.__setitem__, _T.set_, _T.expand_as, _T.view_as, _T.reshape_as, _T.resize_as_),
    *(torch.broadcast_tensors, torch.tensor_split, _T.tensor_split, torch.nn.functional.ctc_loss, torch.ctc_loss),
}
"""Calls that may take tensors on the CPU and on the GPU at once."""
_FEW = 0.01
"""Share of a step's operations below which work between two steps is not worth a message."""
_LAID_OUT = ExecutionSettings("tf32+channels_last")
_UNSCALING = torch._amp_foreach_non_finite_check_and_unscale_


@dataclass(frozen=True)
class Step:
    """What a program did between two steps of an optimizer, or in a pass without one.

    Attributes
    ----------
    trace
        Its calls.
    module
        Class of the first module that was called; `""` for none.
    input_shape
        Shape of its first input.
    dtype, autocast
        Of most parameters; of the first autocast, None without.
    training
        The optimizer; None without.
    uploaded_bytes
        Bytes copied to the GPU.
    reads
        Lines that read values which are not known, with the number of reads.
    memory
        What was allocated and freed from the start of the program to the end of the step.
    regions
        For each call the region that `torch.compile` makes the kernels of; None for calls outside of regions.
    remarks
        Messages on work that is left out, or that only some steps may do.
    """

    trace: Trace
    module: str
    input_shape: list[int]
    dtype: str
    autocast: str | None
    training: TrainingConfig | None
    uploaded_bytes: int
    reads: Mapping[str, int]
    memory: list[MemoryRow]
    regions: Sequence[Region | None]
    remarks: Sequence[str]

    @property
    def mode(self) -> str:
        """How it runs: with CUDA graphs only where all of the forward pass is in regions with them."""
        pairs = zip(self.trace.calls, self.regions, strict=True)
        modes = {EAGER if region is None else region.mode for call, region in pairs if call.phase == FORWARD}
        return modes.pop() if len(modes) == 1 else COMPILE if modes else EAGER


@dataclass(eq=False)
class Region:
    """What one call of a compiled module or function runs.

    Attributes
    ----------
    mode
        One of `schema.execution.MODES`.
    line
        Where it was compiled.
    modules
        The outermost modules in it.
    """

    mode: str
    line: str
    modules: list[torch.nn.Module] = field(default_factory=list)


@dataclass
class _Seen:
    """What a step has shown so far, beside its calls."""

    regions: list[Region | None] = field(default_factory=list)
    extra: list[TracedCall] = field(default_factory=list)
    roots: dict[int, torch.nn.Module] = field(default_factory=dict)
    input_shape: list[int] = field(default_factory=list)
    other_shape: list[int] = field(default_factory=list)  # where no network shows its input: of what comes first
    batches: set[int] = field(default_factory=set)  # numbers of the tensors that the first network was given
    awaits_batch: bool = False
    backward_passes: int = 0
    learns: bool = False
    autocast: str | None = None
    backward_nodes: int = 0
    uploaded_bytes: int = 0
    reads: dict[str, int] = field(default_factory=dict)
    breaks: dict[str, None] = field(default_factory=dict)
    retained: dict[str, None] = field(default_factory=dict)
    evaluated: dict[str, int] = field(default_factory=dict)
    between: dict[str, int] = field(default_factory=dict)


class PretendTracer(Tracer):
    """Records the calls of a program, step by step.

    Parameters
    ----------
    name
        Of the program, for messages.
    training
        The campaign's; what costs nothing, such as the learning rate, is taken from it.
    stepped
        Called with each step of the first optimizer, once it has ended.
    """

    def __init__(self, name: str, training: TrainingConfig, stepped: Callable[[Step], None]) -> None:
        network = NetworkConfig(name=name, input=[1])
        super().__init__(torch.nn.Module(), network, KnownValues(), grad=True)
        self.values = self._values
        self.storages = Storages()
        self.storages.kind = ACTIVATIONS
        self.storages.module = lambda: self._stack[-1] if self._stack else ""
        self.fitting, self.named = _FITTING, name
        self.steps = 0
        self._compiled: dict[int, Region] = {}  # by the id of the module, which the region keeps alive
        self._region: Region | None = None
        self._outside = -1  # depth of the stack at which a compiled module ends
        self._channels_last: Any = WeakIdKeyDictionary()
        self._uncompiled: dict[str, None] = {}
        self._learnt: WeakSet[torch.nn.Module] = WeakSet()
        self._evaluates = False  # a network that learns is called without gradients, between two steps
        self._training, self._stepped = training, stepped
        self._process = os.getpid()
        self._optimizer: object = None
        self._stepping = False
        self._uploaded: Any = WeakIdKeyDictionary()
        self._on_cpu: Any = WeakIdKeyDictionary()  # storages on meta of parameters, and their like, that were not moved
        self._lazy_on_cpu: Any = WeakIdKeyDictionary()
        self._off_gpu = False  # such tensors alone are computed with
        self._owners: dict[int, str] = {}  # path of the module that each parameter, by its id, belongs to
        self._begin()

    def _begin(self) -> None:
        """A step begins."""
        self.recorded.clear()
        self.graph = GradientGraph()
        self.module_calls = 0
        self.assumed_branches.clear()
        self._weak_numbers: Any = WeakIdKeyDictionary()
        self._new_numbers = itertools.count()  # a number is never given again
        self._alive.clear()
        self._seen = _Seen()
        for dtype in self.autocast:  # entered before
            self._see_autocast(dtype)
        self.phase = LOSS if self._state_storages else FORWARD  # until a network runs, where one is known

    def compiled(
        self, function: Any = None, *, backend: Any = "inductor", in_place: bool = False, **settings: Any
    ) -> Any:
        """In place of torch.compile, and of Module.compile `in_place`: a module, or a function whose calls are regions.

        Lightning compiles the steps of its modules, but not if a module is compiled in place.
        """
        if function is None:
            return functools.partial(self.compiled, backend=backend, **settings)
        if settings.get("disable"):
            return function
        line, name = line_of_network() or self.name, settings.get("mode")
        if backend != "inductor":
            self._uncompiled[f"{line}: torch.compile(backend={backend!r}) is left out: that part is eager."] = None
            return function
        graphed = name in _WITH_GRAPHS or (settings.get("options") or {}).get("triton.cudagraphs")
        mode = REDUCE_OVERHEAD if graphed else COMPILE
        if name not in (None, "default", REDUCE_OVERHEAD):
            self._uncompiled[f"{line}: torch.compile(mode={name!r}) is predicted as {mode}."] = None
        if isinstance(function, torch.nn.Module):
            if in_place or not hasattr(function, "training_step"):
                self._compiled[id(function)] = Region(mode, line, [function])
                return function
            for method in filter(lambda name: hasattr(function, name), _STEPS_OF_LIGHTNING):
                setattr(function, method, self._in_region(getattr(function, method), mode, line))
            return function
        return self._in_region(function, mode, line)

    def _in_region(self, function: Callable[..., Any], mode: str, line: str) -> Callable[..., Any]:
        @functools.wraps(function)
        def region(*args: Any, **kwargs: Any) -> Any:
            if self._region is not None:
                return function(*args, **kwargs)
            self._region, self.phase = Region(mode, line), FORWARD
            try:
                return function(*args, **kwargs)
            finally:
                self._region = None
                if not self._stack:
                    self.phase = LOSS

        return region

    def saved(self, data: Any, file: Any, *args: Any, **kwargs: Any) -> None:
        """In place of torch.save: writes no checkpoint, whose values are not known."""
        content = io.BytesIO()
        before = dict(self._seen.reads)
        try:
            _SAVE(data, content, *args, **kwargs)
        except FAULTS:
            return
        if self._seen.reads == before:
            _SAVE(data, file, *args, **kwargs)
        self._seen.reads = before

    @property
    def has_gradients(self) -> bool:
        """Whether the step so far has run a backward pass."""
        return self._seen.backward_nodes > 0

    def number_of(self, tensor: torch.Tensor) -> int:
        """Number of a tensor within the step, which is not kept alive."""
        if tensor not in self._weak_numbers:
            self._weak_numbers[tensor] = next(self._new_numbers)
        return self._weak_numbers[tensor]  # type: ignore[no-any-return]

    @contextlib.contextmanager
    def _without_memory(self) -> Iterator[None]:
        """Within, what is allocated stands for nothing that the program allocates."""
        before, self.storages.paused = self.storages.paused, True
        try:
            yield
        finally:
            self.storages.paused = before

    def _run(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return super()._run(dropout if func is torch.nn.functional.dropout else func, args, kwargs)

    def place(self) -> str:
        """The module that is running, for messages."""
        return super().place() if self._stack else ""

    def enter(self, module: torch.nn.Module, args: Any = ()) -> Any:
        """A module's forward begins; that of an outermost one is a pass, or part of one."""
        if os.getpid() != self._process:
            return None
        if not self._stack:
            with torch._C.DisableTorchFunction():
                self._enter_root(module, args)
        compiled = self._compiled.get(id(module)) or _compiled_before(module)
        if self._region is None and compiled is not None:
            self._region, self._outside = replace(compiled), len(self._stack)
        elif self._region is not None and not self._stack:
            self._region.modules.append(module)
        super().enter(module)
        return tree_map_only(torch.Tensor, self._as_laid_out, args) if module in self._channels_last else None

    def leave(self) -> None:
        """The innermost module's forward ends."""
        if self._stack:
            super().leave()
        if len(self._stack) == self._outside:
            self._region, self._outside = None, -1
        if not self._stack and self._region is None:
            self.phase = LOSS

    @property
    def _in_training(self) -> bool:
        """Whether a network has been called with gradients."""
        return self.steps > 0 or self._seen.learns

    def _enter_root(self, module: torch.nn.Module, args: Any) -> None:
        self.phase = FORWARD
        if all(map(self._is_on_cpu, module.parameters())):
            return  # a transform of data, or a loss
        learns = torch.is_grad_enabled()
        self._evaluates = False
        if learns:
            self._learnt.add(module)
        elif self._in_training and (InferenceMode.depth or (module in self._learnt and not module.training)):
            self._evaluates = True
            if not self._seen.learns:
                self._seen.input_shape = self._seen.other_shape = []  # it was the evaluation's
            line = line_of_network() or self.name
            self._seen.evaluated[line] = self._seen.evaluated.get(line, 0) + 1
            return
        if self.steps == 0 and not self._seen.learns:  # what came before was no part of a step
            self._lay_out()
            self._begin()
            self.phase = FORWARD
        self._seen.learns |= learns
        if id(module) not in self._seen.roots:
            self._seen.roots[id(module)] = module
            for path, part in module.named_modules():
                self._paths[id(part)] = path
                state = (*part.parameters(recurse=False), *part.buffers(recurse=False))
                self._owners |= {id(tensor): path for tensor in state}
                self.storages.relabel(state, PARAMETERS, path)
            every = (*module.parameters(), *module.buffers())
            self._state_storages |= {storage_of(tensor) for tensor in every}
        self._seen.awaits_batch = learns and id(module) == next(iter(self._seen.roots))
        if not self._seen.input_shape:  # a module may first compute something of its parameters, as spectral_norm does
            given = [tensor for tensor in tensors_in(args) if tensor.dim()]
            self._seen.input_shape = _first_shape([tensor for tensor in given if tensor in self._uploaded] or given)

    def _to_lay_out(self) -> list[torch.nn.Module]:
        """Modules of regions that TorchInductor would lay out channels last, and that are not."""
        calls: dict[Region, list[TracedCall]] = {}
        for entry, region in zip(self.recorded, self._seen.regions, strict=True):
            if region is not None:
                calls.setdefault(region, []).append(traced_call(entry))
        return [
            module for region, within in calls.items() if is_laid_out_channels_last(within, training=self._seen.learns)
            for module in region.modules if module not in self._channels_last and not _is_channels_last(module)
        ]  # fmt: skip

    def _lay_out(self) -> None:
        """Lay modules out as TorchInductor does, for the passes to come."""
        self.storages.kind = PARAMETERS
        for module in self._to_lay_out():
            self._state_storages -= {storage_of(parameter) for parameter in module.parameters()}
            laid_out(module, _LAID_OUT)
            self._channels_last[module] = True
            self._state_storages |= {storage_of(parameter) for parameter in module.parameters()}
            for parameter in module.parameters():
                self.storages.relabel([parameter], PARAMETERS, self._owners.get(id(parameter), ""))
        self.storages.kind = ACTIVATIONS

    def _as_laid_out(self, tensor: torch.Tensor) -> torch.Tensor:
        with torch._C.DisableTorchFunction():
            if tensor.dim() not in CHANNELS_LAST or not tensor.is_meta or tensor.requires_grad:
                return tensor
            given = tensor.contiguous(memory_format=CHANNELS_LAST[tensor.dim()])
        if tensor in self._uploaded:
            self._uploaded[given] = True
        return given

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run a call; write it down if it would run on the GPU."""
        kwargs = dict(kwargs or {})
        if func is torch.device or os.getpid() != self._process:  # in a process that the program has forked
            return func(*args, **kwargs)
        if func is torch._C._nn._parse_to:  # of a module, whose tensors are moved one by one
            device, *others = func(*args, **kwargs)
            return CUDA if device == _META else device, *others
        if func in _CLAIMS and args and isinstance(args[0], torch.Tensor) and args[0].is_meta:
            claims = _CLAIMS | _CLAIMS_ON_CPU if not is_lazy(args[0]) and self._is_on_cpu(args[0]) else _CLAIMS
            return claims[func](args[0], *args[1:])
        if func in (_T.pin_memory, _T.share_memory_):
            return args[0]
        args, kwargs, moved = _on_meta(func, args, kwargs)
        func = _T.to if func is _T.cuda else func
        given = tensors_in((args, kwargs))
        if any(map(is_lazy, given)):  # no storage as yet
            for tensor in given if moved else ():
                self._lazy_on_cpu.pop(tensor, None)
            return func(*args, **kwargs)
        on_gpu = [tensor for tensor in given if tensor.is_meta]
        if not moved and not on_gpu:
            result = func(*args, **kwargs)
            if func is _T.to:  # a module registers a parameter, which lies on meta from then on
                self._keep_on_cpu(tensors_in(result))
            return result
        if func in (_T.backward, torch.autograd.backward):
            return self._backward(func, *args, **kwargs)
        if moved and not on_gpu and func in _UPLOADS:
            return self._upload(func, args, kwargs)
        if self._reads(func, args, kwargs):
            return self._read(func, args, kwargs)
        if (flat := self._on_lists(func, args, kwargs)) is not None:
            return flat[0]
        self._check_devices(func, args, given)
        before, self._off_gpu = self._off_gpu, not moved and all(map(self._is_on_cpu, given))
        try:
            if self._off_gpu:
                func = _T.to if func is _T.cpu else func
                args, kwargs = tree_map(_as_parameter, (args, kwargs))
            elif func is _T.to and (moved or args[0] is not given[-1]) and self._is_on_cpu(args[0]):
                self._on_cpu.pop(args[0].untyped_storage(), None)
            result = super().__torch_function__(func, types, args, kwargs)
            if self._off_gpu:
                self._keep_on_cpu(tensors_in(result))
        finally:
            self._off_gpu = before
        return result

    def _is_on_cpu(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor would be on the CPU: real, or of a module that was not moved."""
        return not tensor.is_meta or tensor.untyped_storage() in self._on_cpu

    def _keep_on_cpu(self, tensors: Sequence[torch.Tensor]) -> None:
        self._on_cpu.update((one.untyped_storage(), None) for one in tensors if one.is_meta)

    @contextlib.contextmanager
    def lazy_on_cpu(self) -> Iterator[None]:
        """Within, lazy tensors that were not moved get their shape on the CPU."""
        own = UninitializedTensorMixin.materialize

        def materialize(lazy: Any, *args: Any, **kwargs: Any) -> None:
            own(lazy, *args, **kwargs)
            if self._lazy_on_cpu.pop(lazy, False):
                with torch._C.DisableTorchFunction():  # this mode claims that it is on the GPU
                    self._keep_on_cpu([lazy])

        UninitializedTensorMixin.materialize = materialize
        try:
            yield
        finally:
            UninitializedTensorMixin.materialize = own

    def keep_lazy(self, lazy: torch.Tensor) -> None:
        """Remember that a lazy tensor was not moved."""
        self._lazy_on_cpu[lazy] = True

    def _check_devices(self, func: Callable[..., Any], args: tuple[Any, ...], given: Sequence[torch.Tensor]) -> None:
        """Refuse a call that takes tensors on the CPU and on the GPU at once, though CUDA cannot."""
        sized = [tensor for tensor in given if tensor.dim()]
        here = [tensor for tensor in sized if self._is_on_cpu(tensor)]
        legal = func in _ACROSS or (func in _INDEXED and not self._is_on_cpu(args[0]))
        if 0 < len(here) < len(sized) and not legal and functions.name_of(func) is not None:
            what = mixture(f"that of shape {tuple(here[0].shape)}")
            raise self.refusal(f"{functions.described(func)} {what[0]}", what[1])

    def _upload(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
        """A tensor of the CPU, copied to the GPU: its values stay known, unless it is a parameter."""
        self.storages.kind = INPUTS
        if func is _T.to:
            here = args[0]
            result = func(*args, **kwargs)
        else:
            here = func(*args, **kwargs | {"device": "cpu"})
            result = here.to(_META).requires_grad_(here.requires_grad)
        self.storages.kind = ACTIVATIONS
        if not isinstance(here, torch.nn.Parameter) and not here.requires_grad:
            self._values.keep(result, here.detach().to(result.dtype))
        self._seen.uploaded_bytes += result.nbytes
        self._uploaded[result] = True
        return result

    def _reads(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether a call brings values to the CPU."""
        if func in _READS:
            return func is not _T.cpu or not self._is_on_cpu(args[0])
        if func in (_T.copy_, _T.__setitem__):
            return not args[0].is_meta and args[0].dim() > 0
        if func is _T.to and not self._is_on_cpu(args[0]):
            targets = [*args[1:], *kwargs.values()]
            return any(
                (isinstance(one, torch.Tensor) and one.device.type == "cpu")
                or (isinstance(one, torch.device | str) and torch.device(one).type == "cpu")
                for one in targets
            )
        return False

    def _read(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a call with the values of its tensors; unknown ones are 1, or 0 if they are indices, or False."""

        def value_of(tensor: torch.Tensor) -> torch.Tensor:
            if (known := self._values.of(tensor)) is not None:
                return known.clone() if tensor.is_meta else tensor
            line = line_of_network() or self.name
            if self._region is not None:
                self._seen.breaks[line] = None
            self._seen.reads[line] = self._seen.reads.get(line, 0) + 1
            floating = tensor.is_floating_point() or tensor.is_complex()
            return torch.full(tensor.shape, 1 if floating else 0, dtype=tensor.dtype)

        if func is torch._is_all_true and self._values.of(args[0]) is None:
            return torch.tensor(True)
        args, kwargs = tree_map_only(torch.Tensor, value_of, (args, kwargs))
        return func(*args, **kwargs)

    def _on_lists(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any] | None:
        """Run a call on lists of tensors, which is one operation on all their elements; None for any other call."""
        name = getattr(func, "__name__", "")
        if func is torch._amp_update_scale_:
            return (args[0],)
        if func is not _UNSCALING and not name.startswith("_foreach_"):
            return None
        with self._without_memory():
            self._record_flat(func, name, args, kwargs)
        return (None if func is _UNSCALING else func(*args, **kwargs),)

    def _record_flat(self, func: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        elements = sum(tensor.numel() for tensor in args[0])
        flat = [
            torch.empty(elements, dtype=one[0].dtype, device=_META)
            if isinstance(one, list | tuple) and one and isinstance(one[0], torch.Tensor) and one[0].dim()
            else one[0]
            if isinstance(one, list | tuple) and one
            else one
            for one in args
        ]
        with self, torch.no_grad(), contextlib.suppress(*FAULTS):
            if func is _UNSCALING:
                flat[0].mul_(args[2])
            elif name == "_foreach_norm":
                torch.linalg.vector_norm(flat[0], *flat[1:])
            else:
                getattr(flat[0], name.removeprefix("_foreach_"))(*flat[1:], **kwargs)

    def _run_unlisted(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a call that no operation stands for; those that do work on a GPU are said to be left out."""
        if func is torch.autograd.grad:
            self._retains(kwargs.get("retain_graph") or kwargs.get("create_graph"))
        result = self._run(func, args, kwargs)
        if type(func).__name__ in ("OpOverload", "OpOverloadPacket"):
            self._note([f"{functions.described(func)} is left out: it is no public function of PyTorch"])
        return result

    def _retains(self, retain: Any) -> None:
        if retain:
            self._seen.retained[line_of_network() or self.name] = None

    def _record(self, call: InterceptedCall, outputs: list[torch.Tensor], changed: list[int]) -> None:
        if not self._stack and torch.is_grad_enabled():
            self._evaluates = False  # until then, losses and scores of the evaluation are computed
        if self._off_gpu or self._evaluates or (InferenceMode.depth and self._in_training):
            return
        outside = not self._stack and self.steps == 0 and not self._seen.roots
        learns = torch.is_grad_enabled() and any(one.requires_grad and not one.is_leaf for one in outputs)
        if outside and not learns:
            return  # initialises parameters
        if not self._seen.input_shape or self._seen.awaits_batch:
            given = [tensor for tensor in call.given if tensor.dim() and not self._is_state(tensor)]
            uploaded = [one for one in given if one in self._uploaded and not isinstance(one, torch.nn.Parameter)]
            if uploaded and self._stack and self._seen.awaits_batch:
                self._seen.batches.add(self.number_of(uploaded[0]))
                self._seen.awaits_batch = False
            if uploaded and self._stack and not self._seen.input_shape:
                self._seen.input_shape = _first_shape(uploaded)
            elif not self._seen.other_shape:  # outside modules, averages of parameters are computed, among others
                self._seen.other_shape = _first_shape(
                    uploaded or (given if self._stack or not self._state_storages else [])
                )
        if self.steps and not (self._stack or self._seen.learns or torch.is_grad_enabled()):
            line = line_of_network() or self.name
            self._seen.between[line] = self._seen.between.get(line, 0) + 1
        super()._record(call, outputs, changed)
        self._seen.regions.append(self._region if self.phase == FORWARD else None)
        function = self.recorded[-1].operation.function.rpartition(".")[2]
        if (check := _CHECKS.get(function)) is not None and len(outputs) == 1:
            value = torch.full(outputs[0].shape, check, dtype=outputs[0].dtype)
            if self._values.of(outputs[0]) is None:
                self._values.keep(outputs[0], value, [f"`{function}` gives {check}"])

    def enter_autocast(self, dtype: torch.dtype | None) -> None:
        """Autocast to `dtype` begins; None: it is disabled."""
        super().enter_autocast(dtype)
        self._see_autocast(dtype)

    def _see_autocast(self, dtype: torch.dtype | None) -> None:
        if dtype is not None and self._seen.autocast is None:
            self._seen.autocast = str(dtype).removeprefix("torch.")

    def _backward(
        self, func: Callable[..., Any], tensors: Any, gradient: Any = None, retain_graph: bool | None = None,
        create_graph: bool = False, inputs: Any = None, **named: Any,
    ) -> None:  # fmt: skip
        """Run the backward pass of a loss, and record what it adds up."""
        self._retains(retain_graph or create_graph)
        losses = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        given = named.get("grad_tensors", gradient)
        seeds = [given] if isinstance(given, torch.Tensor) or given is None else list(given)
        nodes = [node for loss in losses if loss.grad_fn is not None for node in self.graph.reachable(loss)]
        leaves = [node.variable for node in nodes if hasattr(node, "variable")]
        accumulated = [leaf for leaf in leaves if leaf.grad is not None]
        phase, self.phase = self.phase, LOSS
        passes = self._seen.backward_passes
        self.storages.kind = TEMPORARY
        wanted = () if inputs is None else tuple(tensors_in(inputs))
        try:
            with self:
                ones = [torch.ones_like(loss) for loss in losses] if given is None else seeds
                self.phase = ACCUMULATION
                # torch.autograd.backward, were it called, would leave the mode for as long as it runs
                torch.autograd.Variable._execution_engine.run_backward(
                    tuple(losses), tuple(ones), bool(create_graph if retain_graph is None else retain_graph),
                    create_graph, wanted, allow_unreachable=True, accumulate_grad=True,
                )  # fmt: skip
        except UntraceableError:
            raise
        except FAULTS as error:
            what, fix = cause(error, func, _FITTING)
            raise self.refusal(f"its backward pass {what}", fix, error) from error
        finally:
            self.phase = phase
            self.storages.kind = ACTIVATIONS
        self._seen.backward_passes = passes + 1  # those of checkpoints within are no passes of their own
        self._seen.backward_nodes += len(nodes)
        entries = [*self.graph.accumulations(nodes), *(Accumulation(None, 0, leaf, 1) for leaf in accumulated)]
        for leaf in leaves:
            if leaf.grad is not None:
                self.storages.relabel([leaf.grad], GRADIENTS, self._owners.get(id(leaf), ""))
        with self._without_memory():
            self._seen.extra += [call for entry in entries for call in accumulation(self, entry)]

    def optimizer_step(self, optimizer: Any, step: Callable[..., Any], closure: Callable[[], Any] | None) -> Any:
        """Record the step of an optimizer of PyTorch as one operation, and let it make its state."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with torch._C.DisableTorchFunction(), torch.no_grad():
            learnt = [one for group in optimizer.param_groups for one in group["params"] if one.grad is not None]
            if os.getpid() != self._process:
                step(optimizer)
                return loss
            if learnt and all(map(self._is_on_cpu, learnt)):
                raise self.refusal("trains on the CPU", "Move the network and its data to the GPU.")
            if self._region is not None:
                self._uncompiled[f"{self._region.line}: a compiled step of an optimizer is predicted as eager."] = None
            self._seen.extra.append(optimizer_step(self, learnt, self._training_of(optimizer)))
            before = [{key: group.get(key) for key in ("fused", "foreach")} for group in optimizer.param_groups]
            self._stepping, self.storages.kind = True, TEMPORARY
            try:
                for group in optimizer.param_groups:
                    group |= {"fused": None, "foreach": type(optimizer) is not torch.optim.Adafactor}
                with contextlib.suppress(*FAULTS):
                    step(optimizer)
            finally:
                self._stepping, self.storages.kind = False, ACTIVATIONS
                for group, own in zip(optimizer.param_groups, before, strict=True):
                    group |= own
            for parameter, state in optimizer.state.items():
                path = self._owners.get(id(parameter), "")
                self.storages.relabel(tensors_in(list(state.values())), OPTIMIZER_STATE, path)
        self.end_step(optimizer)
        return loss

    def _training_of(self, optimizer: Any) -> TrainingConfig:
        """The optimizer's settings, as far as they cost something."""
        group, known = optimizer.param_groups[0], self._training
        name = next((one for one, kind in OPTIMIZERS.items() if kind.class_name == type(optimizer).__name__), "sgd")
        fused = FUSED if group.get("fused") and OPTIMIZERS[name].fused else ""
        decay = group.get("weight_decay", 0.0) if OPTIMIZERS[name].decays else 0.0
        return known.model_copy(
            update={
                "optimizer": f"{name}{fused}",
                "accumulate": max(1, min(len(self._seen.batches), self._seen.backward_passes)),
                "momentum": (known.momentum or group["momentum"]) if group.get("momentum") else 0.0,
                "weight_decay": (known.weight_decay or float(decay)) if decay else 0.0,
            }
        )

    def begin_step(self, *_: object) -> None:
        """The step of an optimizer begins that PyTorch does not have: its calls are operations."""
        if not self._stepping:
            self.phase = OPTIMIZER

    def end_step(self, optimizer: Any, *_: object) -> None:
        """An optimizer has stepped; with the first one's step, a step of the program ends."""
        self.phase = LOSS
        if self._stepping:
            return
        if self._optimizer is None:
            self._optimizer = optimizer
        if self._optimizer is optimizer:
            self.steps += 1
            with torch._C.DisableTorchFunction():
                step = self.taken(self._training_of(optimizer))
                self._lay_out()
                self._begin()
            self._stepped(step)

    def taken(self, training: TrainingConfig | None) -> Step:
        """The step as it was recorded."""
        seen = self._seen
        roots = list(seen.roots.values())
        state = {id(one): one for root in roots for one in root.parameters()}
        sizes: dict[str, int] = {}
        for one in state.values():
            name = str(one.dtype).removeprefix("torch.")
            sizes[name] = sizes.get(name, 0) + one.numel()
        calls = [*(traced_call(entry) for entry in self.recorded), *seen.extra]
        trace = Trace(
            calls=calls if training is not None else without_gradients(calls),
            module_calls=self.module_calls,
            backward_nodes=seen.backward_nodes,
            parameters=sum(one.numel() for one in state.values()),
            parameter_bytes=sum(one.numel() * one.element_size() for one in state.values()),
            assumed_branches=list(self.assumed_branches),
            batch_norms=count_batch_norms(calls),
        )
        if any(seen.regions):
            self.storages.uncompiled()
        return Step(
            trace,
            module=type(max(roots, key=_size)).__name__ if roots else "",
            input_shape=seen.input_shape or seen.other_shape or [1],
            dtype=max(sizes, key=lambda name: sizes[name]) if sizes else "float32",
            autocast=seen.autocast,
            training=training,
            uploaded_bytes=seen.uploaded_bytes,
            reads=dict(seen.reads),
            memory=self.storages.events[:],
            regions=[*seen.regions, *(None for _ in seen.extra)],
            remarks=[*self._uncompiled, *self._remarks()],
        )

    def _remarks(self) -> Iterator[str]:
        """Say which evaluations are left out, what only some steps may do, and what of compiling is not followed."""
        if self._seen.evaluated:
            lines = ", ".join(f"{line} ({count}×)" for line, count in self._seen.evaluated.items())
            yield f"Evaluation between two steps is left out: {lines}."
        if sum(self._seen.between.values()) > _FEW * len(self.recorded):
            lines = ", ".join(f"{line} ({count}×)" for line, count in self._seen.between.items())
            yield f"The answer contains operations between two steps: {lines}. Steps without them cost less."
        regions = {region for region in self._seen.regions if region is not None}
        for line in {one.line: None for one in self._compiled.values()}:
            if line not in {region.line for region in regions}:
                yield f"{line}: what torch.compile compiles is not called as a module: that part is eager."
        if self._seen.retained:
            lines = ", ".join(self._seen.retained)
            yield f"Graphs are retained at {lines}: further backward passes through them are left out."
        if self._seen.breaks:
            yield f"A compiled graph breaks at {', '.join(self._seen.breaks)}; what that costs is left out."
        if self._to_lay_out():
            yield "torch.compile lays convolutions out channels last, which is followed from the second step on."


def _compiled_before(module: torch.nn.Module) -> Region | None:
    """What a module is that was compiled before the context; None for any other."""
    if type(module).__name__ == "OptimizedModule":
        graphed = (module.dynamo_ctx.compiler_config or {}).get("triton.cudagraphs")  # type: ignore[union-attr,operator]
        return Region(REDUCE_OVERHEAD if graphed else COMPILE, "", [module._orig_mod])  # type: ignore[list-item]
    return None if module._compiled_call_impl is None else Region(COMPILE, "", [module])


def _is_channels_last(module: torch.nn.Module) -> bool:
    weights = [one for one in module.parameters() if one.dim() in CHANNELS_LAST and not one.is_contiguous()]
    return any(one.is_contiguous(memory_format=CHANNELS_LAST[one.dim()]) for one in weights)


def _size(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def without_gradients(calls: Sequence[TracedCall]) -> list[TracedCall]:
    """Return calls of a forward pass as inference makes them."""
    return [replace(call, operation=_forward_only(call)) for call in calls]


def _forward_only(call: TracedCall) -> Any:
    operation = call.operation
    return replace(
        operation,
        tensors=tuple(replace(one, grad=False) for one in operation.tensors),
        out=tuple(replace(one, grad=False) for one in operation.out),
        grad_out=(),
        no_grad=False,
    )


_CLAIMS: dict[Any, Callable[..., Any]] = {
    _T.device.__get__: lambda *_: CUDA,
    _T.is_cuda.__get__: lambda *_: True,  # type: ignore[attr-defined]
    _T.is_meta.__get__: lambda *_: False,  # type: ignore[attr-defined]
    _T.get_device: lambda *_: 0,
    _T.is_pinned: lambda *_: False,
    _T.record_stream: lambda *_: None,
}
"""What a tensor on meta says of itself."""
_CLAIMS_ON_CPU: dict[Any, Callable[..., Any]] = {
    _T.device.__get__: lambda *_: torch.device("cpu"),
    _T.is_cuda.__get__: lambda *_: False,  # type: ignore[attr-defined]
    _T.get_device: lambda *_: -1,
}
"""What it says if it was not moved to the GPU."""


def _on_meta(
    func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any], bool]:
    """Arguments with meta in place of CUDA, and whether one was."""
    kwargs.pop("pin_memory", None)
    if func is _T.cuda:
        return (args[0], _META), {}, True
    if func is _T.to and len(args) > 1 and isinstance(args[1], int) and not isinstance(args[1], bool):
        return (args[0], _META, *args[2:]), kwargs, True
    device = kwargs.get("device")
    if is_cuda(device) or (isinstance(device, int) and not isinstance(device, bool)):
        return args, kwargs | {"device": _META}, True
    if any(is_cuda(one) for one in args):
        return tuple(_META if is_cuda(one) else one for one in args), kwargs, True
    return args, kwargs, False


def _as_parameter(argument: Any) -> Any:
    """A tensor of the CPU, or that device, on meta, where parameters lie that were not moved."""
    if isinstance(argument, torch.Tensor):
        return argument if argument.is_meta else argument.to(_META)
    return _META if isinstance(argument, torch.device | str) and str(argument) == "cpu" else argument


@contextlib.contextmanager
def pretending(tracer: PretendTracer, gpu: tuple[str, str, int, int]) -> Iterator[None]:
    """Within, this thread's PyTorch runs as if there were a GPU, and `tracer` records.

    Parameters
    ----------
    gpu
        As `cuda.pretended` takes it.
    """
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    classes = [getattr(torch.optim, name) for name in BY_CLASS]
    steps = {kind: kind.step for kind in classes}
    fast_path = torch.backends.mha.get_fastpath_enabled()
    hooks = [
        register_optimizer_step_pre_hook(tracer.begin_step),
        register_optimizer_step_post_hook(tracer.end_step),
    ]
    try:
        for kind, own in steps.items():
            kind.step = _step(tracer, own)
        torch.backends.mha.set_fastpath_enabled(False)  # no trace sees it
        with (
            pretended(*gpu, compiled=tracer.compiled, saved=tracer.saved),
            registered_on_meta(tracer.values, tracer.keep_lazy),
            tracer.lazy_on_cpu(),
            MetaLayouts(),
            tracer.storages,
            torch.utils.checkpoint.set_checkpoint_early_stop(False),
            stance("force_eager"),
            module_paths(tracer),
            contexts_followed(tracer.enter_autocast, tracer.leave_autocast),
            tracer,
        ):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast_path)
        for kind, own in steps.items():
            kind.step = own
        for hook in hooks:
            hook.remove()


def _step(tracer: PretendTracer, own: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(own)
    def step(self: Any, closure: Callable[[], Any] | None = None) -> Any:
        return tracer.optimizer_step(self, own, closure)

    step.hooked = True  # type: ignore[attr-defined]
    return step


def _first_shape(tensors: Sequence[torch.Tensor]) -> list[int]:
    return list(tensors[0].shape) if tensors else []
