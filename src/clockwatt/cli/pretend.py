"""`clockwatt.pretend`: what a training step of the user's own costs on a GPU that this machine lacks."""

from __future__ import annotations

import contextlib
import functools
import sys
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from clockwatt.errors import ClockwattError, RequestError
from clockwatt.schema.execution import COMPILE, DEFAULT, EAGER, FP32, REDUCE_OVERHEAD, TF32, ExecutionSettings

if TYPE_CHECKING:
    import pandas as pd

    from clockwatt.operations.pretend.tracer import Step
    from clockwatt.predict.all_gpus import AllGpus
    from clockwatt.predict.answer import Answer
    from clockwatt.predict.request import Request
    from clockwatt.predict.tracing import TracedNetwork

NO_STEP = "computes gradients, but ends before an optimizer makes a step. Let it reach step() of one of torch.optim."
"""Message for a program that computes gradients alone."""
_SHORT = {"bfloat16": "bf16", "float16": "fp16"}


class PretendedRun:
    """A context within which PyTorch runs as if this machine had a GPU, and what was recorded in it.

    Attributes
    ----------
    step
        The last whole step of the program, None before it has ended.
    """

    def __init__(self, program: str, predictors: AllGpus, request: Request) -> None:
        self.program = program
        self.step: Step | None = None
        self._predictors = predictors
        self._request = request
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        from clockwatt.gpu.specs import find_spec
        from clockwatt.operations.pretend.tracer import PretendTracer, pretending
        from clockwatt.predict.tracing import PRETENDING, TRACING

        spec = find_spec(self._predictors.model(self._predictors.gpu_at(self._request)).description.gpu_name)
        self._tracer = PretendTracer(self.program, self._predictors.tracer.training, self.take)
        gpu = spec.nvml_name, spec.architecture, spec.memory_bytes, spec.sm_count
        with TRACING:
            alone = PRETENDING.acquire(blocking=False)
        if not alone:
            raise ClockwattError(
                f"{self.program}: clockwatt.pretend runs already in this process. End its context before the next one."
            )
        with self._stack:
            self._stack.callback(PRETENDING.release)
            self._stack.enter_context(pretending(self._tracer, gpu))
            self._stack = self._stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
        if kind is None and self.step is None and self._tracer.recorded:
            self.step = self._tracer.taken(None)

    def take(self, step: Step) -> None:
        """Keep a step that has ended."""
        self.step = step

    @property
    def learns_without_optimizer(self) -> bool:
        """Whether gradients were computed and no optimizer has stepped."""
        return self._tracer.steps == 0 and self._tracer.has_gradients

    @functools.cached_property
    def answer(self) -> Answer:
        """What the step costs; a pass of inference where no gradients were computed.

        ClockwattError if nothing ran on the GPU, no optimizer has stepped, or it cannot be predicted.
        """
        step = self.step
        if step is None:
            raise ClockwattError(f"{self.program}: ran no network on the GPU. Move it there with .to('cuda').")
        if self.learns_without_optimizer:
            raise ClockwattError(f"{self.program}: {NO_STEP}")
        from clockwatt.schema.records import INFERENCE, TRAINING

        pass_ = INFERENCE if step.training is None else TRAINING
        request = self._request.model_copy(update={"pass_": pass_, "precision": str(_execution(step))})
        answer = self._predictors.ask(request, trace=lambda wanted: _traced(self.program, step, wanted))
        return answer.with_warnings(_assumed(step))

    def to_frame(self) -> pd.DataFrame:
        """Return the answer as a frame of one row; see `answer.to_frame`."""
        return self.answer.to_frame()

    def report(self, *, verbose: bool = False) -> None:
        """Print the answer as `clockwatt predict` does."""
        from clockwatt.cli.answer_text import print_answer

        print_answer(self.answer, verbose=verbose)


def pretend(gpu: str, **question: Any) -> PretendedRun:
    """Run a training step of your own as if this machine had a GPU, and report what it would cost.

    Parameters
    ----------
    gpu
        As of `predict`.
    question
        `point`, `host` and `relative_to`, as of `predict`.

    Returns
    -------
    PretendedRun
        A context. After it: `report()`, `answer`, `to_frame()`.

    Raises
    ------
    ClockwattError
        If there are no predictors of the GPU; if such a context runs already in this process; within the context, if a
        call needs data or a GPU, with file and line.

    Examples
    --------
    >>> with clockwatt.pretend(gpu="h200") as run:
    ...     model = torch.nn.Linear(8, 8).to("cuda")
    ...     optimizer = torch.optim.AdamW(model.parameters())
    ...     model(torch.randn(4, 8, device="cuda")).sum().backward()
    ...     optimizer.step()
    >>> run.report()
    """
    from clockwatt.predict.api import load
    from clockwatt.predict.request import Request

    if other := sorted(question.keys() - {"point", "host", "relative_to"}):
        raise RequestError(f"{{{other[0]}}} is not of pretend, which takes point, host and relative_to.")
    if not isinstance(gpu, str):
        raise RequestError(f"gpu {gpu!r}: give one as a string.")
    point = question.pop("point", None)
    points = () if point is None else (str(point),)
    program = Path(sys._getframe(1).f_code.co_filename).name
    return PretendedRun(program, load(), Request.of(gpus=(gpu,), points=points, **question))


def _execution(step: Step) -> ExecutionSettings:
    """Return how the step runs: its precision, and its mode."""
    precision = _precision(step)
    return precision if step.mode == EAGER else ExecutionSettings(f"{precision}+{step.mode}")


def _precision(step: Step) -> ExecutionSettings:
    """Return how the step computes, by its parameters, its autocast and PyTorch's switches."""
    import torch

    if step.dtype in _SHORT:
        return ExecutionSettings(_SHORT[step.dtype])
    if step.autocast in _SHORT:
        return ExecutionSettings(f"{_SHORT[step.autocast]}-mixed")
    if torch.backends.cuda.matmul.fp32_precision == "tf32":
        return TF32
    cudnn: Any = torch.backends.cudnn
    return FP32 if cudnn.conv.fp32_precision == "ieee" else DEFAULT


def _traced(program: str, step: Step, pass_: Any) -> TracedNetwork:
    """Return a step, or its forward pass as inference, as a traced network."""
    from dataclasses import replace

    from clockwatt.config import NetworkConfig, TrainingConfig
    from clockwatt.operations.catalogue import rows_of
    from clockwatt.operations.pretend.tracer import without_gradients
    from clockwatt.operations.trace.fusion import fused
    from clockwatt.predict.tracing import traced_of
    from clockwatt.schema.records import FORWARD, INFERENCE, TRAINING

    trace, regions = step.trace, step.regions
    if step.training is not None and pass_ == INFERENCE:
        forward = [(call, region) for call, region in zip(trace.calls, regions, strict=True) if call.phase == FORWARD]
        trace = replace(trace, calls=without_gradients([call for call, _ in forward]), backward_nodes=0)
        regions = [region for _, region in forward]
    if any(regions):
        trace = replace(trace, calls=fused(trace.calls, regions, training=pass_ == TRAINING))
    name = f"{program}:{step.module}" if step.module else program
    network = NetworkConfig(name=name, input=step.input_shape, precision=[_execution(step)])
    traced = traced_of(rows_of(network, pass_, step.training or TrainingConfig(), trace))
    if pass_ == INFERENCE and step.training:
        return traced
    return replace(traced, record_memory=lambda: step.memory)


def _assumed(step: Step) -> list[str]:
    """Say what was left out, and which values are not known."""
    assumed = list(step.remarks)
    if step.mode == COMPILE and any(region.mode == REDUCE_OVERHEAD for region in step.regions if region):
        assumed.append("CUDA graphs are left out: not all of the forward pass runs in one.")
    if step.reads:
        lines = ", ".join(f"{line} ({count}×)" if count > 1 else line for line, count in step.reads.items())
        assumed.append(
            f"Values read at {lines} are unknown without a GPU: floats are read as 1, integers as 0. If the script "
            "branches on them, the real step may differ. The time that the CPU waits there is left out."
        )
    return assumed
