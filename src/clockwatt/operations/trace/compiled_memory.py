"""What a compiled pass allocates: the code that TorchInductor generates for a GPU, run on meta without its kernels.

AOTAutograd traces on meta, and TorchInductor gets its graphs with tensors of a GPU that need not be there. It generates
the code that allocates, frees and reuses buffers and calls libraries; of its own kernels the source is left out.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
import torch._inductor.lowering  # what decompositions look up
from torch._dynamo import device_interface
from torch._functorch.aot_autograd import aot_function
from torch._guards import TracingContext, tracing
from torch._inductor import compile_fx, config, scheduler
from torch._inductor.codegen.triton import TritonKernel, TritonScheduling
from torch._inductor.codegen.wrapper import PythonWrapperCodegen
from torch._inductor.debug import DebugContext
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.fx_passes import pad_mm
from torch._inductor.fx_passes.joint_graph import UniformValueConstantFolder
from torch._inductor.graph import GraphLowering
from torch._inductor.output_code import set_tracing_context_output_strides
from torch._inductor.utils import BoxedBool
from torch._inductor.virtualized import V
from torch._subclasses import FakeTensorMode
from torch.fx import GraphModule, Node
from torch.utils._python_dispatch import TorchDispatchMode

from clockwatt.operations.trace.fusion import padding
from clockwatt.operations.trace.meta import convolution_format

Function = Callable[..., list[torch.Tensor]]

_META, _GPU = torch.device("meta"), torch.device("cuda", 0)
_PROPERTIES = SimpleNamespace(
    name="NVIDIA H100 80GB HBM3", major=9, minor=0, multi_processor_count=132, warp_size=32, total_memory=80 * 2**30,
    max_threads_per_multi_processor=2048, max_threads_per_block=1024, regs_per_multiprocessor=65536,
    shared_memory_per_block=49152, shared_memory_per_block_optin=232448, shared_memory_per_multiprocessor=233472,
    L2_cache_size=50 * 2**20,
)  # fmt: skip
"""Of the GPU that code is generated for; they decide how reductions are split."""
_LAYOUTS: Any = {"_conv_determine_backend_memory_format": convolution_format}


def compiled(function: Function, tensors: Sequence[torch.Tensor], states: int) -> Function:
    """Compile a function of tensors on meta, of which the first `states` are parameters and buffers.

    What is returned allocates and frees on meta what the compiled function does on a GPU, and its backward pass, too.
    """
    outputs: list[int] = []  # their numbers, known once the function is traced

    def counted(*given: torch.Tensor) -> list[torch.Tensor]:
        result = function(*given)
        outputs[:] = range(len(result))
        return result

    def compiler(**settings: Any) -> Callable[..., Any]:
        return functools.partial(_generated, outputs=outputs, **settings)

    found: Function = aot_function(
        counted, compiler(), compiler(is_backward=True), _partitioned, select_decomp_table(), states, True,
        compiler(is_inference=True),
    )  # fmt: skip
    layouts = mock.patch.multiple(torch._C, **_LAYOUTS)
    with tracing(TracingContext(FakeTensorMode(allow_non_fake_inputs=True))), layouts:
        found(*tensors)
    return found


def _mode() -> FakeTensorMode:
    mode = TracingContext.get().fake_mode
    assert mode is not None
    return mode


def _on_gpu(graph: GraphModule, given: Sequence[Any]) -> list[Any]:
    """Give the tensors that a graph makes to the GPU, and return what it is given there."""
    mode = _mode()

    def moved(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        with mode:
            return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=_GPU)

    for node in graph.graph.nodes:
        if node.kwargs.get("device") is not None:
            node.update_kwarg("device", _GPU)
        if node.op == "get_attr":
            setattr(graph, node.target, moved(getattr(graph, node.target)))
    return [moved(one) for one in given]


def _partitioned(joint: GraphModule, _given: object, **settings: Any) -> Any:
    given = _on_gpu(joint, [node.meta["val"] for node in joint.graph.find_nodes(op="placeholder")])
    with _generating():
        compile_fx.fake_tensor_prop(joint, given)
        return compile_fx.partition_fn(joint, given, **settings)


def _generated(
    graph: GraphModule,
    given: Sequence[Any],
    *,
    outputs: list[int],
    is_inference: bool = False,
    is_backward: bool = False,
) -> Any:
    """Return the code that TorchInductor generates for a graph."""
    given = _on_gpu(graph, given)
    (output,) = graph.graph.find_nodes(op="output")
    with _generating():
        if is_inference:
            compile_fx.fake_tensor_prop(graph, given)
            compile_fx._recursive_joint_graph_passes(graph, input_device=_GPU)
        seen = [] if is_backward else outputs  # what the caller sees keeps its layout
        output.meta["user_visible_output_idxs"] = [place for place in seen if isinstance(output.args[0][place], Node)]
        settings: Any = {"cudagraphs": BoxedBool(False), "is_inference": is_inference, "is_backward": is_backward}
        found = compile_fx._InProcessFxCompile().codegen_and_compile(graph, given, (), settings)
    set_tracing_context_output_strides(given, found)
    return found


class _Constants(TorchDispatchMode):
    """Makes the constants whose values TorchInductor reads on the CPU."""

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        return func(*args, **(kwargs | {"device": "cpu"} if "device" in kwargs else kwargs))


def _deduced(
    self: UniformValueConstantFolder, node: Node, deduce: Any = UniformValueConstantFolder._deduce_value
) -> Any:
    with _Constants():  # type: ignore[no-untyped-call]  # as PyTorch declares it
        return deduce(self, node)


def _always(value: Any) -> Callable[..., Any]:
    return lambda *_given, **_named: value


@contextlib.contextmanager
def _generating() -> Iterator[None]:
    """Let TorchInductor generate code for a GPU that need not be there."""
    where: Any
    replaced: dict[str, Any]
    with contextlib.ExitStack() as stack:
        for where, replaced in (
            (torch.cuda, {"get_device_properties": _always(_PROPERTIES),
                          "get_device_capability": _always((_PROPERTIES.major, _PROPERTIES.minor)),
                          "current_device": _always(0), "device_count": _always(1),
                          "is_available": _always(False)}),
            (device_interface.CudaInterface, {"get_device_properties": _always(_PROPERTIES),
                                              "get_compute_capability": _always("90"),
                                              "is_bf16_supported": _always(True)}),
            (torch._C, _LAYOUTS),
            (scheduler, {"has_triton": _always(True)}),
            (pad_mm, {"has_triton": _always(True), "_should_pad": _should_pad}),
            (TritonKernel, {"codegen_kernel": _always(""), "call_kernel": _call_kernel}),
            (TritonScheduling, {"define_kernel": _always("kernel")}),
            (PythonWrapperCodegen, {"codegen_device_guard_enter": _always(None),
                                    "codegen_device_guard_exit": _always(None)}),
            (UniformValueConstantFolder, {"_deduce_value": _deduced}),
            (GraphLowering, {"compile_to_module": _module}),
        ):  # fmt: skip
            stack.enter_context(mock.patch.multiple(where, **replaced))
        stack.enter_context(mock.patch.dict(device_interface.caching_worker_device_properties, {"cuda": [_PROPERTIES]}))
        stack.enter_context(config.patch(size_asserts=False, alignment_asserts=False))
        stack.enter_context(V.set_debug_handler(DebugContext()))
        stack.enter_context(V.set_fake_mode(_mode()))
        stack.enter_context(torch.no_grad())
        yield


def _should_pad(_match: object, left: torch.Tensor, right: torch.Tensor, *_given: object) -> bool:
    return padding(left.shape[-2], right.shape[-1], left.element_size()) > 0


def _call_kernel(self: TritonKernel, *_given: object, deallocate_ws: bool = True) -> None:
    """Allocate and free what a kernel needs beside its inputs and outputs."""
    for workspace in self.args.workspace_args:
        V.graph.wrapper_code.generate_workspace_allocation(workspace)
    if deallocate_ws:
        self.deallocate_workspaces()


def _module(self: GraphLowering) -> SimpleNamespace:
    """Return a module of the generated code, whose buffers lie on meta."""
    text = self.codegen()[0]
    names: dict[str, Any] = {"__name__": __name__}
    exec(getattr(text, "value", text), names)  # noqa: S102  # what TorchInductor generates
    names |= {
        "empty_strided_cuda": lambda size, stride, dtype: torch.empty_strided(size, stride, dtype=dtype, device=_META),
        "device": _always(_META),
    }
    names |= {name: torch.empty_like(value, device=_META) for name, value in self.constants.items()}
    return SimpleNamespace(call=names["call"], __file__="")
