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
from clockwatt.measure.statistics import Estimate, median_estimate
from clockwatt.measure.steps.procedure import host_time_in_pass, queued_blocks
from clockwatt.operations import numerics
from clockwatt.operations.build.build import BuiltOperation, build
from clockwatt.operations.build.shared_backward import SharedBackward
from clockwatt.operations.networks import BuiltNetwork, NetworkError, build_network
from clockwatt.operations.spec.operation import Operation
from clockwatt.schema.records import NETWORK, TRAINING
from clockwatt.telemetry.logger import Logger

_MAX_INSTANCES = 64
_CACHE_MARGIN = 1.25
_SLEEP_MARGIN = 1.5
_SLEEP_FLOOR_S = 200e-6
_SLEEP_TRIAL_CYCLES = 20_000_000
_QUEUE_TRIES = 4
_LONGEST_ISSUE_S = 0.25
"""What takes longer to issue fills the launch queue or waits for the device: no wait in front of it is long enough."""
_WARM_CALLS = 3
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
        self._cache_bytes = int(torch.cuda.get_device_properties(self._device).L2_cache_size)
        self._cycles_per_s = self._blocking_kernel_rate()
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
        gc.collect()
        numerics.apply(tf32=subject.tf32)
        torch.manual_seed(self._campaign.seed)
        if torch.cuda.memory_reserved() > MEMORY_SHARE * torch.cuda.get_device_properties(self._device).total_memory:
            torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        with _errors(subject), torch.inference_mode(subject.pass_ != TRAINING):
            workload = self._build(subject)
            workload.issue(max(_WARM_CALLS, workload.instances))
            torch.cuda.synchronize()
            yield workload

    def host_block(self, workload: Workload, calls: int) -> float:
        """See `Bench.host_block`."""
        assert isinstance(workload, CudaWorkload)
        start = time.perf_counter()
        workload.issue(calls)
        return (time.perf_counter() - start) / calls

    def queued_block(self, workload: Workload, calls: int, *, forward: bool = False) -> QueuedBlock | None:
        """See `Bench.queued_block`. The technique is that of NVIDIA's nvbench."""
        assert isinstance(workload, CudaWorkload)
        # the time to issue a call was a guess, or the host was held up: the blocking kernel may have been too short
        for _ in range(_QUEUE_TRIES):
            if calls == 1 and workload.issue_s[forward] > _LONGEST_ISSUE_S:
                break
            if block := self._queued(workload, calls, forward=forward):
                return block
        return None

    def _queued(self, workload: CudaWorkload, calls: int, *, forward: bool) -> QueuedBlock | None:
        leading = min(_LEADING_CALLS, calls - 1)
        issued_s, device_s = self._behind_blocking_kernel(
            functools.partial(workload.issue, leading, forward=forward),
            functools.partial(workload.issue, calls, forward=forward),
            (leading + calls) * workload.issue_s[forward],
        )
        # once the launch queue is full, issuing waits for the blocking kernel: that says nothing of the next block
        if device_s is not None or calls == 1:
            workload.issue_s[forward] = issued_s / calls
        return None if device_s is None else QueuedBlock(host_s=issued_s / calls, device_s=device_s / calls)

    def pass_block(self, workload: Workload, calls: int) -> float | None:
        """See `Bench.pass_block`."""
        assert isinstance(workload, CudaWorkload)
        assert workload.pass_of is not None
        if not workload.has_room_for_pass(calls):
            return None
        guess_s = (1 + calls) * workload.issue_s[False]
        for _ in range(_QUEUE_TRIES):
            issued_s, device_s = self._behind_blocking_kernel(workload.pass_of(1), workload.pass_of(calls), guess_s)
            if device_s is not None:
                return issued_s
            guess_s = max(guess_s, issued_s * (1 + calls) / calls)
        return None

    def _behind_blocking_kernel(self, leading: Call, timed: Call, guess_s: float) -> tuple[float, float | None]:
        """Host and device time of `timed` when both are issued behind a blocking kernel that outlasts `guess_s`.

        No device time if the kernel ended before all was issued.
        """
        torch.cuda.synchronize()
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        released = torch.cuda.Event()
        torch.cuda._sleep(int((_SLEEP_FLOOR_S + _SLEEP_MARGIN * guess_s) * self._cycles_per_s))
        released.record()
        leading()
        first.record()
        start = time.perf_counter()
        timed()
        issued_s = time.perf_counter() - start
        last.record()
        all_were_queued = not released.query()
        last.synchronize()
        return issued_s, first.elapsed_time(last) / 1e3 if all_were_queued else None

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
        """Host time in s of a call of an operation among others of a pass."""
        with torch.inference_mode(pass_ != TRAINING):
            workload = self._of_operation(operation, pass_)
            workload.issue(_WARM_CALLS)
            if workload.has_forward:
                estimate = host_time_in_pass(self, workload, None, budget_s=0.0)
            else:
                estimate = median_estimate([block.host_s for block in queued_blocks(self, workload, budget_s=0.0)])
        return estimate.value if estimate else None

    def _device_time(self, operation: Operation, pass_: Pass) -> float | None:
        """Device time in s of a call of an operation."""
        with torch.inference_mode(pass_ != TRAINING):
            times = self._queued_times(self._of_operation(operation, pass_))
        return times[1] if times else None

    def _pass_times(self, call: Call) -> tuple[float, float] | None:
        """Host and device time in s of a network's pass."""
        return self._queued_times(CudaWorkload([call], [], "hot", 0))

    def _queued_times(self, workload: CudaWorkload) -> tuple[float, float] | None:
        workload.issue(max(_WARM_CALLS, workload.instances))
        blocks = queued_blocks(self, workload, budget_s=0.0)
        host = median_estimate([block.host_s for block in blocks])
        device = median_estimate([block.device_s for block in blocks])
        return (host.value, device.value) if host and device else None

    def memory_peak_bytes(self) -> int | None:
        """See `Bench.memory_peak_bytes`."""
        return int(torch.cuda.max_memory_allocated())

    def _build(self, subject: Subject) -> CudaWorkload:
        if subject.kind == NETWORK:
            network: BuiltNetwork = build_network(
                self._networks[subject.subject_id], self._device, pass_=subject.pass_, training=self._campaign.training
            )
            return CudaWorkload([network.call], [], "hot", network.parameter_bytes)
        return self._of_operation(Operation.from_json(self._specs[subject.subject_id]), subject.pass_)

    def _of_operation(self, operation: Operation, pass_: str) -> CudaWorkload:
        first = build(operation, self._device, pass_=pass_)
        copies = [first]
        share = first if self._settings.working_set == "parameters_cold" else None
        wanted, bytes_each = self._copies(first)
        copies.extend(build(operation, self._device, pass_=pass_, share_inputs_with=share) for _ in range(wanted - 1))
        chosen = self._settings.working_set if wanted > 1 else "hot"
        with_backward = pass_ == TRAINING and operation.has_backward
        forwards = [copy.forward for copy in copies] if with_backward else []
        make_pass = functools.partial(SharedBackward, first) if with_backward else None
        return CudaWorkload([copy.call for copy in copies], forwards, chosen, bytes_each * wanted, make_pass)

    def _copies(self, first: BuiltOperation) -> tuple[int, int]:
        """How many copies exceed the cache, and the bytes of each that are not shared.

        Fewer than that would all stay in the cache, so if memory or the limit forbids them one copy is used.
        """
        cold = self._settings.working_set
        bytes_each = first.parameter_bytes if cold == "parameters_cold" else first.tensor_bytes
        if cold == "hot" or bytes_each == 0:
            return 1, bytes_each
        wanted = -(-int(_CACHE_MARGIN * self._cache_bytes) // bytes_each)
        free, _ = torch.cuda.mem_get_info()
        if wanted > _MAX_INSTANCES or wanted * bytes_each > MEMORY_SHARE * free:
            return 1, bytes_each
        return wanted, bytes_each

    def _blocking_kernel_rate(self) -> float:
        """Cycles that the blocking kernel spins per second, at the present clock."""
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        for _ in range(2):  # the first run loads the kernel
            start.record()
            torch.cuda._sleep(_SLEEP_TRIAL_CYCLES)
            end.record()
            end.synchronize()
        return _SLEEP_TRIAL_CYCLES / (float(start.elapsed_time(end)) / 1e3)


def _start_autograd(device: torch.device) -> None:
    """Have autograd's thread make the CUDA context its own before anything is timed; it warns that it does."""
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
