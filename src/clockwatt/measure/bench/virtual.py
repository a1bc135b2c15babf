"""The bench of a virtual GPU: the same procedure, in the GPU's own time, without torch.

The host is modelled too: every call costs it a time that depends on the operation's class and pass. A network's pass is
the host issuing its calls and the device executing them, whichever is slower, with costs per module and backward pass
that the predictors have to find from the calibration.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.compute as pc

from clockwatt.gpu.virtual.card import VirtualGpu
from clockwatt.gpu.virtual.model import Mixture, Work
from clockwatt.io import files
from clockwatt.measure import reference_operations
from clockwatt.measure.bench.interface import (
    BLOCKS_AHEAD,
    Bench,
    OutOfMemoryError,
    QueuedBlock,
    Subject,
    Versions,
    Workload,
)
from clockwatt.measure.statistics import Estimate, median_estimate
from clockwatt.operations.spec.operation import MATRIX_CLASSES
from clockwatt.schema import layout
from clockwatt.schema.execution import ExecutionSettings
from clockwatt.schema.quantities import CalibrationQuantity
from clockwatt.schema.records import (
    ACCUMULATION,
    CALL_SCHEMA,
    INFERENCE,
    NETWORK,
    NETWORK_SCHEMA,
    OPERATION_SCHEMA,
    OPTIMIZER,
    TRAINING,
    OperationRow,
)
from clockwatt.telemetry.logger import VirtualLogger

_BUILD_S = 0.05
_QUEUE_CALLS = 1000
"""Kernels that fit into the launch queue."""
_JITTER = 0.004
"""Standard deviation of a block's time, relative."""
_HOST_FORWARD_S = 5e-6
_HOST_SPREAD_S = 8e-6
_HOST_BACKWARD_SHARE = 1.2
_HOST_NO_DEVICE_S = 2e-6
_HOST_PER_MODULE_S = 3e-6
_HOST_ADDED_PER_CALL_S = 1.5e-6
_HOST_PER_BACKWARD_CALL_S = 40e-6
_DEVICE_ADDED_PER_CALL_S = 0.4e-6
_COST_SAMPLES = 20


@dataclass(frozen=True)
class VirtualCall:
    """One call: seconds it costs the host, and what the device then does (None: nothing)."""

    host_s: float
    work: Work | None


@dataclass(frozen=True)
class _Model:
    """A subject as the virtual machine sees it."""

    calls: Sequence[VirtualCall]
    host_extra_s: float
    device_extra_s: float
    memory_bytes: int
    has_backward: bool
    has_modules: bool


class VirtualWorkload(Workload):
    """A subject's calls and the times they take at the present operating point, power cap included."""

    def __init__(self, model: _Model, gpu: VirtualGpu) -> None:
        self.instances, self.working_set, self.working_set_bytes = 1, "hot", model.memory_bytes
        self.model = model
        self.has_backward, self.has_modules = model.has_backward, model.has_modules
        self.host_s = sum(call.host_s for call in model.calls) + model.host_extra_s
        counts = Counter(call.work for call in model.calls if call.work is not None)
        self.load = Mixture(tuple(counts.items())) if counts else None
        self.device_s = (gpu.device_time_s(self.load) if self.load else 0.0) + model.device_extra_s


class VirtualBench(Bench):
    """A virtual GPU with its logger.

    Parameters
    ----------
    gpu, logger
        The card, and the logger that moves its time.
    seed
        The seed of the jitter.
    catalogue_dir
        Folder with operations.parquet, calls.parquet and networks.parquet.
    """

    versions = Versions(torch=None, cuda=None, cudnn=None)
    gpu: VirtualGpu
    _logger: VirtualLogger

    def __init__(self, gpu: VirtualGpu, logger: VirtualLogger, seed: int, catalogue_dir: Path) -> None:
        super().__init__(gpu, logger)
        self._seed = seed
        self._catalogue_dir = catalogue_dir
        self._operations = _read_operations(catalogue_dir)
        self._rng = np.random.default_rng(seed)
        self._memory_peak: int | None = None

    def now_ns(self) -> int:
        """See `Bench.now_ns`."""
        return self.gpu.monotonic_ns

    def now_us(self) -> int:
        """See `Bench.now_us`."""
        return self.gpu.epoch_us

    def idle(self, seconds: float) -> None:
        """See `Bench.idle`."""
        self.gpu.load(None)
        self._logger.advance(seconds)

    @contextlib.contextmanager
    def open(self, subject: Subject) -> Iterator[Workload]:
        """See `Bench.open`."""
        # the same draw whichever subjects were measured before: a resumed campaign equals one that was never stopped
        self._rng = np.random.default_rng([self._seed, _number(f"{subject}")])
        self.gpu.load(None)
        self._logger.advance(_BUILD_S)
        model = self._network(subject) if subject.kind == NETWORK else self._operation(subject)
        if model.memory_bytes > self.gpu.spec.memory_bytes:
            raise OutOfMemoryError(
                f"{subject.kind} {subject.subject_id} needs {model.memory_bytes / 1e9:.1f} GB, "
                f"{self.gpu.identity.name} has {self.gpu.spec.memory_bytes / 1e9:.1f} GB"
            )
        self._memory_peak = model.memory_bytes
        try:
            yield VirtualWorkload(model, self.gpu)
        finally:
            self.gpu.load(None)

    def host_block(self, workload: Workload, calls: int) -> float:
        """See `Bench.host_block`."""
        assert isinstance(workload, VirtualWorkload)
        self._logger.advance(calls * workload.host_s)
        return self._jittered(workload.host_s)

    def queued_block(self, workload: Workload, calls: int) -> QueuedBlock | None:
        """See `Bench.queued_block`."""
        assert isinstance(workload, VirtualWorkload)
        if calls * len(workload.model.calls) > _QUEUE_CALLS:
            return None
        return self._queued(workload, calls)

    def cut_block(self, workload: Workload) -> QueuedBlock | None:
        """See `Bench.cut_block`: a pass of any length can be cut."""
        assert isinstance(workload, VirtualWorkload)
        return self._queued(workload, 1)

    def _queued(self, workload: VirtualWorkload, calls: int) -> QueuedBlock:
        host_s, device_s = self._jittered(workload.host_s), self._jittered(workload.device_s)
        self.gpu.load(None)
        self._logger.advance(calls * host_s)
        self.gpu.load(workload.load)
        self._logger.advance(calls * device_s)
        return QueuedBlock(host_s, device_s)

    def pass_block(self, workload: Workload, calls: int) -> float | None:
        """See `Bench.pass_block`."""
        assert isinstance(workload, VirtualWorkload)
        start_s = workload.model.host_extra_s
        seconds = self._jittered(start_s + calls * (workload.host_s - start_s))
        self.gpu.load(None)
        self._logger.advance(seconds)
        return seconds

    def eager_blocks(
        self,
        workload: Workload,
        calls: int,
        *,
        ahead: int = BLOCKS_AHEAD,  # noqa: ARG002  # a virtual device is never kept waiting
    ) -> Generator[float]:
        """See `Bench.eager_blocks`. In steady state, the slower of host and device is the bottleneck."""
        assert isinstance(workload, VirtualWorkload)
        slower_s = max(workload.host_s, workload.device_s)
        self.gpu.load(workload.load, workload.device_s / slower_s)
        try:
            while True:
                duration_s = self._jittered(calls * slower_s)
                self._logger.advance(duration_s)
                yield duration_s
        finally:
            self.gpu.load(None)

    def timed_run(self, workload: Workload, calls: int) -> float:
        """See `Bench.timed_run`. The first call has to reach the device before anything runs."""
        assert isinstance(workload, VirtualWorkload)
        slower_s = max(workload.host_s, workload.device_s)
        seconds = self._jittered(min(workload.host_s, workload.device_s) + calls * slower_s)
        self.gpu.load(workload.load, workload.device_s / slower_s)
        self._logger.advance(seconds)
        self.gpu.load(None)
        return seconds

    def call_costs(self) -> dict[tuple[str, str | None], Estimate | None]:
        """See `Bench.call_costs`: the model's constants, seen through its jitter."""

        def seen(cost_s: float) -> Estimate | None:
            return median_estimate([self._jittered(cost_s) for _ in range(_COST_SAMPLES)])

        call_s = _HOST_FORWARD_S + _HOST_SPREAD_S / 2
        return {
            (CalibrationQuantity.HOST_PER_CALL, INFERENCE): seen(call_s),
            (CalibrationQuantity.HOST_PER_CALL, TRAINING): seen(call_s * (1 + _HOST_BACKWARD_SHARE)),
            (CalibrationQuantity.HOST_PER_MODULE, INFERENCE): seen(_HOST_PER_MODULE_S),
            (CalibrationQuantity.HOST_PER_MODULE, TRAINING): seen(_HOST_PER_MODULE_S),
            (CalibrationQuantity.HOST_ADDED_PER_CALL, INFERENCE): seen(_HOST_ADDED_PER_CALL_S),
            (CalibrationQuantity.HOST_ADDED_PER_CALL, TRAINING): seen(_HOST_ADDED_PER_CALL_S),
            (CalibrationQuantity.HOST_PER_BACKWARD_CALL, None): seen(_HOST_PER_BACKWARD_CALL_S),
            (CalibrationQuantity.DEVICE_ADDED_PER_CALL, INFERENCE): seen(_DEVICE_ADDED_PER_CALL_S),
            (CalibrationQuantity.DEVICE_ADDED_PER_CALL, TRAINING): seen(_DEVICE_ADDED_PER_CALL_S),
        }

    def memory_peak_bytes(self) -> int | None:
        """See `Bench.memory_peak_bytes`."""
        return self._memory_peak

    def _jittered(self, seconds: float) -> float:
        return float(seconds * (1 + _JITTER * abs(self._rng.standard_normal())))

    def _operation(self, subject: Subject) -> _Model:
        row = self._operations[subject.subject_id, subject.pass_]
        start_s = _HOST_PER_BACKWARD_CALL_S if _has_backward(row) else 0.0
        return _Model(
            [_call(row, subject.execution)], start_s, 0.0, row.bytes_read + row.bytes_written,
            has_backward=_has_backward(row), has_modules=False,
        )  # fmt: skip

    def _network(self, subject: Subject) -> _Model:
        calls, forward_calls, peak = [], 0, 0
        for operation_id in self._call_ids(subject):
            row = self._operations[operation_id, subject.pass_]
            calls.append(_call(row, subject.execution))
            forward_calls += row.kind not in (ACCUMULATION, OPTIMIZER)
            peak = max(peak, row.bytes_read + row.bytes_written)
        table = files.read_table(self._catalogue_dir / layout.NETWORKS_FILE, NETWORK_SCHEMA)
        chosen = pc.and_(pc.equal(table["network_id"], subject.subject_id), pc.equal(table["pass"], subject.pass_))
        (network,) = table.filter(chosen).to_pylist()
        start_s = _HOST_PER_BACKWARD_CALL_S if subject.pass_ == TRAINING else 0.0
        extra_s = _HOST_PER_MODULE_S * network["module_calls"] + _HOST_ADDED_PER_CALL_S * forward_calls + start_s
        device_s = _DEVICE_ADDED_PER_CALL_S * sum(call.work is not None for call in calls)
        memory_bytes = peak + network["parameter_bytes"]
        return _Model(calls, extra_s, device_s, memory_bytes, has_backward=False, has_modules=True)

    def _call_ids(self, subject: Subject) -> list[str]:
        columns = ["network_id", "pass", "position", "operation_id"]
        table = files.read_table(self._catalogue_dir / layout.CALLS_FILE, CALL_SCHEMA, columns)
        chosen = pc.and_(pc.equal(table["network_id"], subject.subject_id), pc.equal(table["pass"], subject.pass_))
        ids: list[str] = table.filter(chosen).sort_by("position")["operation_id"].to_pylist()
        return ids


def _read_operations(catalogue_dir: Path) -> dict[tuple[str, str], OperationRow]:
    """Return the operations of the catalogue and the reference operations, without their specs."""
    columns = [name for name in OPERATION_SCHEMA.names if name != "spec"]
    rows = {}
    for values in files.read_table(catalogue_dir / layout.OPERATIONS_FILE, OPERATION_SCHEMA, columns).to_pylist():
        pass_ = values.pop("pass")
        rows[values["operation_id"], pass_] = OperationRow(**values, pass_=pass_, spec="")
    return rows | {(row.operation_id, row.pass_): row for row in reference_operations.anchors()}


def _call(row: OperationRow, execution: ExecutionSettings) -> VirtualCall:
    if not row.device_work:
        return VirtualCall(_HOST_NO_DEVICE_S, None)
    host_s = _HOST_FORWARD_S + _HOST_SPREAD_S * (_number(row.operation_class) % 1000) / 1000
    if _has_backward(row):
        host_s *= 1 + _HOST_BACKWARD_SHARE
    work = Work(
        flops=row.flops,
        bytes_moved=row.bytes_read + row.bytes_written,
        dtype=row.dtype,
        tf32=execution.of_operation(row.operation_class, row.dtype).matrix_tf32,
        matrix=row.operation_class in MATRIX_CLASSES,
        backward=_has_backward(row),
    )
    return VirtualCall(host_s, work)


def _has_backward(row: OperationRow) -> bool:
    return row.pass_ == TRAINING and row.kind not in (ACCUMULATION, OPTIMIZER)


def _number(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4])
