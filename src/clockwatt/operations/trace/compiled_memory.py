"""What a compiled pass allocates: the graphs of AOTAutograd, run kernel by kernel as TorchInductor schedules them.

The min-cut partitioner decides which tensors the backward pass is given. Of the others a kernel writes what a library,
a reduction or an output needs; the rest is computed where it is read. A kernel writes over an input that ends with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch._inductor.lowering  # what decompositions look up
from torch._functorch.aot_autograd import aot_function
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.graph import GraphLowering
from torch.fx import GraphModule, Node

from clockwatt.operations.trace.fusion import padding

_VIEWS = frozenset({
    "view", "permute", "expand", "slice", "select", "unsqueeze", "squeeze", "t", "transpose", "split",
    "as_strided", "alias", "detach", "reshape", "_unsafe_view", "split_with_sizes", "unbind", "diagonal",
    "unfold", "lift_fresh_copy", "getitem",
})  # fmt: skip
_LIBRARY = frozenset({
    "mm", "addmm", "bmm", "baddbmm", "convolution", "convolution_backward", "topk", "sort",
    "_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_flash_attention_backward", "_scaled_dot_product_efficient_attention_backward",
})  # fmt: skip
_REDUCTIONS = frozenset({
    "sum", "mean", "var_mean", "amax", "amin", "max", "min", "argmax", "argmin", "any", "all", "prod", "var",
    "cumsum", "logsumexp",
})  # fmt: skip
_MOST_READS, _MOST_READS_ONCE, _MOST_COMPUTED = 4, 8, 30
"""TorchInductor's `realize_reads_threshold`, `realize_acc_reads_threshold` and `realize_opcount_threshold`."""


@dataclass(eq=False)
class Buffer:
    """Memory that a kernel writes, or that a graph is given; `ends` is the last kernel that reads it."""

    bytes: int
    given: bool = False
    ends: int = -1


@dataclass(eq=False)
class _Computed:
    """What is computed where it is read, until `buffer` holds it."""

    bytes: int
    elements: int
    reads: set[Buffer]
    computed: int
    buffer: Buffer | None = None


@dataclass(frozen=True)
class Kernel:
    """One kernel; `call` is that of a library, `elements` how many an element-wise one computes, else 0.

    It does not write over `kept`, since what it computes of them first has another size.
    """

    reads: frozenset[Buffer]
    writes: tuple[Buffer, ...]
    call: Node | None
    elements: int = 0
    kept: frozenset[Buffer] = frozenset()


@dataclass
class Schedule:
    """Kernels of a graph in their order, what it is given, and what it gives, None where that is no tensor."""

    channels_last: bool = False

    kernels: list[Kernel] = field(default_factory=list)
    given: dict[str, Buffer] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    gives: list[Buffer | None] = field(default_factory=list)
    values: dict[Node, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, graph: GraphModule, *, training: bool) -> Schedule:
        """Schedule a graph of AOTAutograd."""
        self = cls(GraphLowering.decide_layout_opt(graph, is_inference=not training))
        for node in graph.graph.nodes:
            if node.op in ("placeholder", "get_attr"):
                self.values[node] = Buffer(_bytes(node.meta.get("val")), given=True)
                if node.op == "placeholder":
                    self.given[node.name] = self.values[node]
            elif node.op == "output":
                self.names = [getattr(one, "name", "") for one in node.args[0]]
                self.gives = [None if one is None else self._written(self.values[one]) for one in node.args[0]]
            else:
                self.values[node] = self._call(node)
        self._fuse()
        return self

    def _fuse(self) -> None:
        """Leave out what an element-wise kernel writes for one other of its size alone: both are one kernel."""
        readers: dict[Buffer, list[int]] = {}
        for place, kernel in enumerate(self.kernels):
            for buffer in kernel.reads:
                readers.setdefault(buffer, []).append(place)
        fused: dict[int, Kernel] = dict(enumerate(self.kernels))
        for place in range(len(self.kernels)):
            kernel = fused[place]
            reading = readers.get(kernel.writes[0], []) if kernel.elements else []
            if len(reading) != 1 or kernel.writes[0] in self.gives:
                continue
            other = fused[reading[0]]
            if other.elements != kernel.elements:
                continue
            resized = kernel.writes[0].bytes != other.writes[0].bytes
            fused[reading[0]] = replace(
                other,
                reads=other.reads - {*kernel.writes} | kernel.reads,
                kept=other.kept | (kernel.reads - other.reads if resized else kernel.kept),
            )
            for buffer in kernel.reads:
                readers[buffer] = sorted({*readers[buffer], reading[0]} - {place})
            del fused[place]
        self.kernels = list(fused.values())
        for place, kernel in enumerate(self.kernels):
            for buffer in kernel.reads:
                buffer.ends = place

    def _call(self, node: Node) -> Any:
        name, value = _name(node), node.meta.get("val")
        taken = [one for given in node.all_input_nodes for one in _flat(self.values[given])]
        if name == "getitem" and isinstance(self.values[node.args[0]], list):
            return self.values[node.args[0]][node.args[1]]
        if name in _VIEWS and taken:
            return taken[0]
        several = isinstance(value, (tuple, list))
        if name in _LIBRARY:
            reads = _without_none(self._written(one) for one in taken)
            if self.channels_last and name.startswith("convolution"):
                reads |= self._copies(node)
            return self._padded(node, reads, value) if name in ("mm", "addmm") else self._kernel(reads, value, node)
        taken = [_current(one) for one in taken]
        reads = {one for entry in taken for one in ({entry} if isinstance(entry, Buffer) else entry.reads)}
        if name in _REDUCTIONS or several:
            return self._kernel(reads, value, None)
        count = 1 + sum(1 if isinstance(entry, Buffer) else entry.computed for entry in taken)
        found = _Computed(_bytes(value), value.numel() if isinstance(value, torch.Tensor) else 0, reads, count)
        users = list(node.users)
        read_by_library = any(user.op == "call_function" and _name(user) in _LIBRARY for user in users)
        if (
            any(user.op == "output" for user in users)
            or (len(users) > 1 and (read_by_library or len(reads) > _MOST_READS or count > _MOST_COMPUTED))
            or len(reads) > _MOST_READS_ONCE
        ):
            self._written(found)
        return found

    def _padded(self, node: Node, reads: set[Buffer], value: torch.Tensor) -> Any:
        """Add a matrix product, a large one with its number of outputs rounded up so that rows are aligned."""
        (rows, outputs), weight, size = value.shape, node.args[-1], value.element_size()
        more = padding(rows, outputs, size)
        if not more:
            return self._kernel(reads, value, node)
        copy = Buffer(weight.meta["val"].shape[0] * (outputs + more) * size)
        self._add(_without_none([self._written(self.values[weight])]), (copy,), None)
        self._add(reads | {copy}, (made := Buffer(rows * (outputs + more) * size),), node)
        return made

    def _copies(self, node: Node) -> set[Buffer]:
        """Return channels-last copies of what a convolution takes and the graph is given."""
        copies = set()
        for given in node.all_input_nodes:
            buffer, value = self.values[given], given.meta["val"]
            is_given = isinstance(buffer, Buffer) and buffer.given
            if is_given and value.dim() == 4 and value.shape[1] > 1 and math.prod(value.shape[2:]) > 1:
                copies.add(copy := Buffer(buffer.bytes))
                self._add({buffer}, (copy,), None)
        return copies

    def _written(self, value: Any) -> Buffer | None:
        if isinstance(value, _Computed):
            if value.buffer is None:
                value.buffer = Buffer(value.bytes)
                self._add(value.reads, (value.buffer,), None, value.elements)
            return value.buffer
        return value if isinstance(value, Buffer) else None

    def _kernel(self, reads: set[Any], value: Any, call: Node | None) -> Any:
        several = isinstance(value, (tuple, list))
        made = [
            Buffer(_bytes(one)) if isinstance(one, torch.Tensor) else None for one in (value if several else [value])
        ]
        self._add(_without_none(reads), tuple(one for one in made if one is not None), call)
        return made if several else made[0]

    def _add(self, reads: Iterable[Buffer], writes: tuple[Buffer, ...], call: Node | None, elements: int = 0) -> None:
        self.kernels.append(Kernel(frozenset(reads), writes, call, elements))


def _bytes(value: Any) -> int:
    return value.numel() * value.element_size() if isinstance(value, torch.Tensor) else 0


def _without_none(buffers: Iterable[Buffer | None]) -> set[Buffer]:
    return {one for one in buffers if one is not None}


def _flat(value: Any) -> list[Any]:
    return [one for one in (value if isinstance(value, list) else [value]) if one is not None]


def _current(value: Any) -> Any:
    return value.buffer if isinstance(value, _Computed) and value.buffer is not None else value


def _name(node: Node) -> str:
    schema = getattr(node.target, "_schema", None)
    return schema.name.split("::")[1] if schema is not None else getattr(node.target, "__name__", "")


@dataclass(frozen=True)
class Graphs:
    """Schedules of both passes; `outputs` says how many of what the first one gives are the function's own."""

    forward: Schedule
    backward: Schedule | None
    outputs: int
    specs: list[torch.Tensor]

    def run(self, storages: Any, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Allocate and free what the pass does, and that of autograd in its turn; return its outputs."""
        return list(_Run.apply(self, storages, *tensors))


def graphs_of(function: Callable[..., list[torch.Tensor]], tensors: Sequence[torch.Tensor], states: int) -> Graphs:
    """Trace a function of tensors on meta, of which the first `states` are parameters and buffers."""
    found: dict[str, Any] = {}

    def partition(joint: GraphModule, given: Sequence[Any], **settings: Any) -> tuple[GraphModule, GraphModule]:
        forward, backward = min_cut_rematerialization_partition(joint, given, compiler="inductor", **settings)
        found.update(forward=forward, backward=backward, outputs=settings["num_fwd_outputs"])
        return forward, backward

    def keep(graph: GraphModule, _given: object) -> GraphModule:
        found.setdefault("forward", graph)
        return graph

    specs = aot_function(function, keep, keep, partition, select_decomp_table(), num_params_buffers=states)(*tensors)
    learns = "backward" in found
    forward = Schedule.of(found["forward"], training=learns)
    backward = Schedule.of(found["backward"], training=True) if learns else None
    return Graphs(forward, backward, found.get("outputs", len(forward.gives)), [one.detach() for one in specs])


class _Run(torch.autograd.Function):
    """The pass of graphs, which allocates and frees as its kernels do."""

    @staticmethod
    def forward(ctx: Any, graphs: Graphs, storages: Any, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Allocate what the forward pass does; keep what is saved."""
        numbers: dict[Buffer, int] = {}
        _run(graphs.forward, storages, numbers, "activations")
        given, saved = graphs.forward.gives[: graphs.outputs], graphs.forward.gives[graphs.outputs :]
        outputs, kept = [], {}
        for spec, buffer in zip(graphs.specs, given[len(given) - len(graphs.specs) :], strict=True):
            if buffer in numbers:
                storages.freed(numbers.pop(buffer))
            outputs.append(torch.empty_strided(spec.shape, spec.stride(), dtype=spec.dtype, device="meta"))
            if buffer is not None:
                kept[buffer] = outputs[-1]
        for buffer in set(numbers) - set(saved):
            storages.freed(numbers.pop(buffer))
        ctx.graphs, ctx.storages, ctx.numbers, ctx.tensors = graphs, storages, numbers, tensors
        ctx.kept = {one: kept[one].detach() for one in saved if one in kept}
        ctx.mark_non_differentiable(*(one for one in outputs if not one.is_floating_point()))
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *_gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Free what was saved as it is read last; give gradients."""
        graphs, storages, saved = ctx.graphs, ctx.storages, ctx.graphs.forward.gives[ctx.graphs.outputs :]
        assert graphs.backward is not None
        names = graphs.forward.names[graphs.outputs :]
        numbers = {graphs.backward.given[name]: ctx.numbers[buffer] for name, buffer in zip(names, saved, strict=True)
                   if buffer in ctx.numbers}  # fmt: skip
        for number in set(ctx.numbers.values()) - set(numbers.values()):
            storages.freed(number)
        _run(graphs.backward, storages, numbers, "temporary")
        for number in numbers.values():
            storages.freed(number)
        ctx.kept.clear()
        wanted = (torch.empty_like(one) if one.requires_grad else None for one in ctx.tensors)
        return (None, None, *wanted)


def _run(schedule: Schedule, storages: Any, numbers: dict[Buffer, int], kind: str) -> None:
    """Allocate and free what each kernel does, by `numbers`."""
    kept = set(schedule.gives)
    for place, kernel in enumerate(schedule.kernels):
        ends = [one for one in kernel.reads if one.ends == place and one in numbers and one not in kept]
        for buffer in kernel.writes:
            free = [one for one in ends if one not in kernel.kept and not one.given]
            same = [one for one in free if kernel.call is None and one.bytes == buffer.bytes]
            if same:
                numbers[buffer] = numbers.pop(same[0])
                ends.remove(same[0])
            else:
                numbers[buffer] = storages.allocated(buffer.bytes, kind, "")
        if kernel.call is not None:
            values = torch.fx.map_arg(kernel.call.args, lambda node: node.meta["val"])
            storages.takes(kernel.call.target, values, kernel.call.meta["val"], channels_last=schedule.channels_last)
        for buffer in (*ends, *(one for one in kernel.writes if one.ends < 0 and one not in kept)):
            storages.freed(numbers.pop(buffer))
