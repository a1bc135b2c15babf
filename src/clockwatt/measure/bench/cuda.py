"""The bench of a real GPU: CUDA events, a blocking kernel, PyTorch."""

from __future__ import annotations

import contextlib
import functools
import gc
import time
import warnings
from collections import deque
from collections.abc import Generator, Iterator, Mapping

import torch

from clockwatt.config import CampaignConfig, MeasurementConfig, Pass
from clockwatt.gpu.interface import Gpu
from clockwatt.measure.bench import split_pass
from clockwatt.measure.bench.blocking import BlockingKernel, Parts
from clockwatt.measure.bench.cuda_workload import MEMORY_SHARE, Call, CudaWorkload
from clockwatt.measure.bench.interface import (
    BLOCKS_AHEAD,
    BenchLostError,
    HostClockBench,
    OutOfMemoryError,
    QueuedBlock,
    Subject,
    SubjectFailedError,
    Versions,
    Workload,
)
from clockwatt.measure.calibrate.call_costs import CallTimer, call_costs
from clockwatt.measure.statistics import Estimate
from clockwatt.measure.steps.times import LEAST, host_time_in_pass, queued_times
from clockwatt.operations import numerics
from clockwatt.operations.build.build import BuiltOperation, build
from clockwatt.operations.build.shared_backward import SharedBackward
from clockwatt.operations.networks import BuiltNetwork, NetworkError, build_network
from clockwatt.operations.spec.operation import Operation
from clockwatt.schema.records import NETWORK, TRAINING
from clockwatt.telemetry.logger import Logger

_MAX_INSTANCES = 64
_CACHE_MARGIN = 1.25
_QUEUE_TRIES = 4
_LONGEST_ISSUE_S = 0.25
"""Longest time, in s, to issue a block: longer ones fill the launch queue or wait for the device."""
_WARM_CALLS = 3
_LONG_CALL_S = 5e-3
"""An operation that takes so long is warm after its second call."""
_SLOW_COLLECTION_S = 3e-3
_LEADING_CALLS = 2
"""Calls queued in front of the timed ones: the first ones after a wait find threads asleep and caches cold."""


class CudaBench(HostClockBench):
    """The current CUDA device.

    Parameters
    ----------
    gpu, logger
        The same card, for its identity and its telemetry.
    specs
        Canonical JSON of every operation that may be measured, by operation id.
    campaign
        For networks and the training step.
    """

    def __init__(self, gpu: Gpu, logger: Logger, specs: Mapping[str, str], campaign: CampaignConfig) -> None:
        super().__init__(gpu, logger)
        self._specs = specs
        self._campaign = campaign
        self._networks = {network.network_id: network for network in campaign.networks}
        self._settings: MeasurementConfig = campaign.measurement
        self._device = torch.device("cuda", torch.cuda.current_device())
        properties = torch.cuda.get_device_properties(self._device)
        self._cache_bytes, self._memory_bytes = int(properties.L2_cache_size), int(properties.total_memory)
        self._blocking = BlockingKernel()
        _start_autograd(self._device)
        cudnn = torch.backends.cudnn.version()
        self.versions = Versions(torch.__version__, torch.version.cuda, str(cudnn) if cudnn else None)

    def idle(self, seconds: float) -> None:
        """See `Bench.idle`."""
        torch.cuda.synchronize()
        time.sleep(seconds)

    @contextlib.contextmanager
    def open(self, subject: Subject) -> Iterator[Workload]:
        """See `Bench.open`."""
        _collect_garbage()
        numerics.apply(subject.execution)
        torch.manual_seed(self._campaign.seed)
        if subject.kind == NETWORK or torch.cuda.memory_reserved() > MEMORY_SHARE * self._memory_bytes:
            torch.cuda.empty_cache()
        with _errors(subject), torch.inference_mode(subject.pass_ != TRAINING):
            workload = self._build(subject)
            if subject.kind == NETWORK:
                torch.cuda.empty_cache()  # of construction, which may take more than a pass
            torch.cuda.reset_peak_memory_stats()
            _warm_up(workload)
            yield workload

    def host_block(self, workload: Workload, calls: int) -> float:
        """See `Bench.host_block`."""
        assert isinstance(workload, CudaWorkload)
        start = time.perf_counter()
        workload.issue(calls)
        return (time.perf_counter() - start) / calls

    def queued_block(self, workload: Workload, calls: int) -> QueuedBlock | None:
        """See `Bench.queued_block`."""
        assert isinstance(workload, CudaWorkload)
        # the time to issue a call was a guess, or the host was held up: the blocking kernel may have been too short
        for _ in range(_QUEUE_TRIES):
            if calls == 1 and workload.issue_s > _LONGEST_ISSUE_S:
                break
            if block := self._queued(workload, calls):
                return block
        return None

    def _queued(self, workload: CudaWorkload, calls: int) -> QueuedBlock | None:
        leading = min(_LEADING_CALLS, calls - 1)
        issued_s, device_s = self._blocking.times(
            functools.partial(workload.issue, leading),
            functools.partial(workload.issue, calls),
            (leading + calls) * workload.issue_s,
        )
        # once the launch queue is full, issuing waits for the blocking kernel: that says nothing of the next block
        if device_s is not None or calls == 1:
            workload.issue_s = issued_s / calls
        return None if device_s is None else QueuedBlock(host_s=issued_s / calls, device_s=device_s / calls)

    def cut_block(self, workload: Workload) -> QueuedBlock | None:
        """See `Bench.cut_block`. What the cutting breaks costs this block alone."""
        assert isinstance(workload, CudaWorkload)
        issue = functools.partial(workload.issue, 1)
        try:
            if workload.cuts is None:
                workload.cuts = split_pass.find_cuts(issue, torch.cuda.synchronize)
            guess_s = workload.cuts.longest_s
            for _ in range(_QUEUE_TRIES):
                parts = Parts(self._blocking, guess_s)
                with split_pass.cut_at(workload.cuts, parts.cut):
                    parts.begin()
                    issue()
                    parts.end()
                if parts.all_were_queued:
                    return QueuedBlock(parts.host_s, parts.device_s)
                guess_s *= 2
        except RuntimeError:
            torch.cuda.synchronize()  # raises if the context is lost
        return None

    def pass_block(self, workload: Workload, calls: int) -> float | None:
        """See `Bench.pass_block`."""
        assert isinstance(workload, CudaWorkload)
        assert workload.pass_of is not None
        if not workload.has_room_for_pass(calls):
            return None
        guess_s = (1 + calls) * workload.issue_s
        for _ in range(_QUEUE_TRIES):
            issued_s, device_s = self._blocking.times(workload.pass_of(1), workload.pass_of(calls), guess_s)
            if device_s is not None:
                return issued_s
            guess_s = max(guess_s, issued_s * (1 + calls) / calls)
        return None

    def eager_blocks(self, workload: Workload, calls: int, *, ahead: int = BLOCKS_AHEAD) -> Generator[float]:
        """See `Bench.eager_blocks`."""
        assert isinstance(workload, CudaWorkload)

        def issue() -> torch.cuda.Event:
            workload.issue(calls)
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            return event

        before = torch.cuda.Event(enable_timing=True)
        before.record()
        under_way = deque(issue() for _ in range(ahead))
        try:
            while True:
                under_way.append(issue())
                done = under_way.popleft()
                done.synchronize()
                yield before.elapsed_time(done) / 1e3
                before = done
        finally:
            torch.cuda.synchronize()

    def timed_run(self, workload: Workload, calls: int) -> float:
        """See `Bench.timed_run`."""
        assert isinstance(workload, CudaWorkload)
        torch.cuda.synchronize()
        start = time.perf_counter()
        workload.issue(calls)
        torch.cuda.synchronize()
        return time.perf_counter() - start

    def call_costs(self) -> dict[tuple[str, str | None], Estimate | None]:
        """See `Bench.call_costs`."""
        return call_costs(self._device, CallTimer(self._host_time, self._device_time, self._pass_times))

    def _host_time(self, operation: Operation, pass_: Pass) -> float | None:
        """Return host time in s of a call of an operation among others of a pass."""
        with torch.inference_mode(pass_ != TRAINING):
            workload = self._of_operation(operation, pass_)
            workload.issue(_WARM_CALLS)
            if workload.has_backward:
                estimate = host_time_in_pass(self, workload, None, LEAST.in_pass)
                return estimate.value if estimate else None
            times = self._queued_times(workload)
        return times[0] if times else None

    def _device_time(self, operation: Operation, pass_: Pass) -> float | None:
        """Return device time in s of a call of an operation."""
        with torch.inference_mode(pass_ != TRAINING):
            times = self._queued_times(self._of_operation(operation, pass_))
        return times[1] if times else None

    def _pass_times(self, call: Call) -> tuple[float, float] | None:
        """Return host and device time in s of a network's pass."""
        return self._queued_times(CudaWorkload([call], "hot", 0))

    def _queued_times(self, workload: CudaWorkload) -> tuple[float, float] | None:
        workload.issue(max(_WARM_CALLS, workload.instances))
        times = queued_times(self, workload, LEAST.queued)
        return (times.host.value, times.device.value) if times and times.host and times.device else None

    def memory_peak_bytes(self) -> int | None:
        """See `Bench.memory_peak_bytes`."""
        return int(torch.cuda.max_memory_allocated())

    def memory_reserved_bytes(self) -> int | None:
        """See `Bench.memory_reserved_bytes`; of a network alone, since cached segments of earlier ones are freed."""
        return int(torch.cuda.max_memory_reserved())

    def _build(self, subject: Subject) -> CudaWorkload:
        if subject.kind == NETWORK:
            network: BuiltNetwork = build_network(
                self._networks[subject.subject_id], self._device, pass_=subject.pass_, training=self._campaign.training
            )
            return CudaWorkload([network.call], "hot", network.parameter_bytes, has_modules=True)
        return self._of_operation(Operation.from_json(self._specs[subject.subject_id]), subject.pass_)

    def _of_operation(self, operation: Operation, pass_: str) -> CudaWorkload:
        first = build(operation, self._device, pass_=pass_)
        copies = [first]
        share = first if self._settings.working_set == "parameters_cold" else None
        wanted, bytes_each = self._copies(first)
        copies.extend(build(operation, self._device, pass_=pass_, share_inputs_with=share) for _ in range(wanted - 1))
        chosen = self._settings.working_set if wanted > 1 else "hot"
        with_backward = pass_ == TRAINING and operation.has_backward
        make_pass = functools.partial(SharedBackward, first) if with_backward else None
        return CudaWorkload([copy.call for copy in copies], chosen, bytes_each * wanted, make_pass)

    def _copies(self, first: BuiltOperation) -> tuple[int, int]:
        """Return how many copies exceed the cache, and the bytes of each that are not shared.

        Fewer than that would all stay in the cache, so if memory or the limit forbids them one copy is used.
        """
        cold = self._settings.working_set
        bytes_each = first.parameter_bytes if cold == "parameters_cold" else first.tensor_bytes
        if cold == "hot" or bytes_each == 0:
            return 1, bytes_each
        wanted = -(-int(_CACHE_MARGIN * self._cache_bytes) // bytes_each)
        if wanted > _MAX_INSTANCES or wanted * bytes_each > MEMORY_SHARE * torch.cuda.mem_get_info()[0]:
            return 1, bytes_each
        return wanted, bytes_each


def _collect_garbage() -> None:
    """Give back what cycles still hold. What is left after a slow collection is there to stay and not looked at again.

    Modules that are imported late and what they hold would be looked through before every subject, for 0.1 s.
    """
    start = time.perf_counter()
    gc.collect()
    if time.perf_counter() - start > _SLOW_COLLECTION_S:
        gc.freeze()


def _warm_up(workload: CudaWorkload) -> None:
    """Call until kernels are loaded, algorithms chosen and memory is found."""
    workload.issue(1)
    torch.cuda.synchronize()
    start = time.perf_counter()
    workload.issue(1)
    torch.cuda.synchronize()
    if workload.has_modules or time.perf_counter() - start < _LONG_CALL_S:
        workload.issue(max(_WARM_CALLS, workload.instances) - 2)
        torch.cuda.synchronize()


def _start_autograd(device: torch.device) -> None:
    """Attach autograd's thread to the CUDA context before anything is timed; PyTorch prints a warning then."""
    matrix = torch.ones(8, 8, device=device, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        torch.autograd.grad((matrix @ matrix).sum(), matrix)


@contextlib.contextmanager
def _errors(subject: Subject) -> Iterator[None]:
    """Translate PyTorch's errors, after making sure that the GPU is still usable."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        message = str(error)
        del error
        torch.cuda.empty_cache()
        raise OutOfMemoryError(message) from None
    except (RuntimeError, ValueError, TypeError, NotImplementedError, NetworkError) as error:
        try:
            torch.cuda.synchronize()
        except RuntimeError as lost:
            raise BenchLostError(
                f"{subject.kind} {subject.subject_id} ({subject.pass_}) broke the CUDA context: {error}. "
                "Its row says so; run the same command again to measure the rest."
            ) from lost
        raise SubjectFailedError(f"{type(error).__name__}: {error}") from error
