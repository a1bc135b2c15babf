"""Interface between the measuring procedure and a machine; CUDA GPUs and virtual GPUs implement it."""

from __future__ import annotations

import abc
import contextlib
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from clockwatt.errors import ClockwattError
from clockwatt.gpu.interface import Gpu
from clockwatt.measure.statistics import Estimate
from clockwatt.schema.execution import ExecutionSettings
from clockwatt.schema.records import TelemetryRow
from clockwatt.telemetry.logger import Logger

_LOAD_CALLS = 2
BLOCKS_AHEAD = 2


class OutOfMemoryError(ClockwattError):
    """The subject of a measurement does not fit into the GPU's memory."""


class SubjectFailedError(ClockwattError):
    """The subject of a measurement raised an error; the GPU can still be used."""


class BenchLostError(ClockwattError):
    """The GPU or its context can no longer be used; the process must end."""


@dataclass(frozen=True)
class Subject:
    """The operation or network of one measurement."""

    kind: str  # operation, network or reference operation (`anchor`)
    subject_id: str
    pass_: str
    execution: ExecutionSettings
    dtype: str
    repetition: int
    device_work: bool  # False: only the time on the host is measured
    energy: bool = field(default=True, repr=False)  # False: time alone, no power; makes no other subject of it


@dataclass(frozen=True)
class QueuedBlock:
    """Calls queued behind blocking kernels: seconds per call to issue them and to execute them."""

    host_s: float
    device_s: float


@dataclass(frozen=True)
class Versions:
    """Software that a measurement depends on; None where it does not apply."""

    torch: str | None
    cuda: str | None
    cudnn: str | None


class Workload(abc.ABC):
    """A subject, built and ready to be called."""

    instances: int
    """Copies whose parameters are distinct memory; calls cycle through them."""
    working_set: str
    """`parameters_cold`, `all_cold` or `hot`: which tensors the copies do not share."""
    working_set_bytes: int
    """Memory that one cycle through the copies touches."""
    has_backward: bool
    """Whether several calls can share a backward pass, as those of a network do."""
    has_modules: bool
    """Whether it is a network, whose pass can be cut where a module ends."""


class Bench(abc.ABC):
    """A GPU on which workloads run, and the clock and logger that go with it."""

    gpu: Gpu
    versions: Versions

    def __init__(self, gpu: Gpu, logger: Logger) -> None:
        self.gpu = gpu
        self._logger = logger

    @abc.abstractmethod
    def now_ns(self) -> int:
        """Return monotonic time in ns, on the clock of the telemetry."""

    @abc.abstractmethod
    def now_us(self) -> int:
        """Return µs since the epoch, on the clock of the telemetry."""

    def take_telemetry(self) -> list[TelemetryRow]:
        """Return the logger's rows since the last call."""
        return self._logger.take()

    def ask_telemetry(self) -> None:
        """Ask for what the logger read since the last call, without waiting."""
        self._logger.ask()

    def telemetry_answer(self) -> list[TelemetryRow] | None:
        """Return the requested rows, or None if they have not arrived yet."""
        return self._logger.answer()

    def flush_telemetry(self) -> None:
        """Write all telemetry so far to closed segments."""
        self._logger.flush()

    @abc.abstractmethod
    def idle(self, seconds: float) -> None:
        """Let the GPU idle with the context alive."""

    @abc.abstractmethod
    def open(self, subject: Subject) -> AbstractContextManager[Workload]:
        """Build a subject and run it once; its memory is given back on leaving.

        Raises
        ------
        OutOfMemoryError, SubjectFailedError, BenchLostError
            Also from the calls below.
        """

    @abc.abstractmethod
    def host_block(self, workload: Workload, calls: int) -> float:
        """Return seconds per call to issue `calls` calls that give the device nothing to do."""

    @abc.abstractmethod
    def queued_block(self, workload: Workload, calls: int) -> QueuedBlock | None:
        """Queue `calls` calls behind a blocking kernel and time them.

        None if the first one ran before all were issued: the queue is too short, or the call waits for the device.
        """

    @abc.abstractmethod
    def cut_block(self, workload: Workload) -> QueuedBlock | None:
        """Time one pass of a network, cut into parts that are each queued behind a blocking kernel of their own.

        None if a part still does not fit into the queue, or waits for the device. Needs a workload with modules.
        """

    @abc.abstractmethod
    def pass_block(self, workload: Workload, calls: int) -> float | None:
        """Return seconds to issue a training pass of `calls` calls: forward each, then one backward pass through all.

        None if it does not fit into memory or the queue. Needs a workload with a backward pass.
        """

    @abc.abstractmethod
    def eager_blocks(self, workload: Workload, calls: int, *, ahead: int = BLOCKS_AHEAD) -> Generator[float]:
        """Run back to back without end; yields the duration in seconds of each block of `calls` calls.

        The next `ahead` blocks are issued before one is waited for, so the device never idles between blocks. Close the
        iterator to stop; what was issued still runs.
        """

    @abc.abstractmethod
    def timed_run(self, workload: Workload, calls: int) -> float:
        """Return seconds that `calls` back-to-back calls take on an idle GPU, all in."""

    @abc.abstractmethod
    def call_costs(self) -> dict[tuple[str, str | None], Estimate | None]:
        """Return the times in s by quantity and subject that the costs of single calls do not show.

        On the host per call, and what calls and modules of a network add, by pass; per backward pass. On the device
        what a network adds to a call, by pass.
        """

    @abc.abstractmethod
    def memory_peak_bytes(self) -> int | None:
        """Return most device memory that was allocated since `open`."""

    def memory_reserved_bytes(self) -> int | None:
        """Return most device memory that the allocator had reserved since `open`; None where it is not known."""
        return None


class HostClockBench(Bench):
    """A bench whose time is that of the host, as is that of a logger in a process of its own."""

    def now_ns(self) -> int:
        """See `Bench.now_ns`."""
        return time.monotonic_ns()

    def now_us(self) -> int:
        """See `Bench.now_us`."""
        return time.time_ns() // 1000


@contextlib.contextmanager
def under_load(
    bench: Bench, workload: Workload, *, calls: int = _LOAD_CALLS, ahead: int = BLOCKS_AHEAD
) -> Iterator[Callable[[float], None]]:
    """Keep a workload running; yields a function that lets so many seconds pass. Nothing is timed meanwhile.

    What is done between two waits must not take longer than `ahead` blocks of `calls` calls, or the device idles.
    """
    with contextlib.closing(bench.eager_blocks(workload, calls, ahead=ahead)) as blocks:

        def wait(seconds: float) -> None:
            end_ns = bench.now_ns() + round(seconds * 1e9)
            while bench.now_ns() < end_ns:
                next(blocks)

        yield wait
