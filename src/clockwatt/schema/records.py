"""The columns: one dataclass and one Arrow schema per kind of row.

Every quantity carries its unit in its name. What could not be read is null, never 0.
A field whose name would be a Python keyword ends in an underscore, its column does not (`pass_` is column `pass`).
"""

from __future__ import annotations

import operator
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import pyarrow as pa

SCHEMA_VERSION = 3
"""Version of the columns below; recorded in every file's metadata and in every measurement."""

MEASUREMENT_VERSION = 4
"""Raised by hand when a change makes older measurements incomparable; recorded in every row.

Refactoring leaves it alone: a change of code must not throw away weeks of GPU time.
"""

FORMER_NAMES = {
    "energy_dynamic_unthrottled_j": "energy_dynamic_paced_j",
    "energy_dynamic_unthrottled_standard_error_j": "energy_dynamic_paced_standard_error_j",
}
"""Columns of files of version 1, by their name of today: such files are read as if they had it."""

READABLE_SINCE = {"dataset operation": 2, "dataset network": 2, "dataset anchor": 2}
"""First version of each kind of rows that is still read; 1 for all others."""

SETTINGS_KEY = b"catalogue_settings"
"""In the metadata of a catalogue's networks: JSON of the `CampaignConfig.catalogue_settings` they were traced from."""

INFERENCE = "inference"
TRAINING = "training"

# phases and kinds of a network's calls
FORWARD = "forward"
LOSS = "loss"
ACCUMULATION = "accumulation"
OPTIMIZER = "optimizer"

# kinds of what a pass allocates
PARAMETERS = "parameters"
INPUTS = "inputs"
GRADIENTS = "gradients"
OPTIMIZER_STATE = "optimizer_state"
ACTIVATIONS = "activations"
TEMPORARY = "temporary"
WORKSPACE = "workspace"
CUBLAS = "cublas"  # a workspace that stays, as the next one
CUBLASLT = "cublaslt"
UNCOMPILED = "uncompiled"  # no allocation: the pass is compiled, but those recorded are of the eager one
STREAM = "stream"  # no allocation: those after it are on another CUDA stream, in a pool of its own
CAPTURE = "capture"  # no allocation: those after it are of a CUDA graph, in a pool of its own
MEMORY_KINDS = (PARAMETERS, GRADIENTS, OPTIMIZER_STATE, ACTIVATIONS, INPUTS, TEMPORARY, WORKSPACE)

OPERATION = "operation"
NETWORK = "network"
ANCHOR = "anchor"

TIME = "time"
ENERGY = "energy"
"""Quantities: what is measured of a subject."""

HOST_LEFT_OUT = "left out"
"""Value in place of a host's name in anonymous data: two of them need not be the same host."""

AT_ONCE, IN_SEGMENTS = "queued", "segments"
"""How a device time was got: of a queue that held all of it, or in parts that the launch queue holds."""

OK = "ok"
OUT_OF_MEMORY = "out_of_memory"
FAILED = "failed"


@dataclass(slots=True, kw_only=True)
class OperationRow:
    """A unique operation of the catalogue, in one pass (a spec traced in both passes has two rows)."""

    operation_id: str  # of the canonical spec; does not depend on device, pass or network
    pass_: str  # inference or training
    function: str  # public name, e.g. torch.nn.functional.conv2d
    operation_class: str  # the last part of the name, without in-place underscore: conv2d, add, relu …
    kind: str  # compute, view, identity, random, loss, accumulation, optimizer or fused (an addition stands for it)
    device_work: bool  # False for views, metadata and identities: nothing runs on the device
    dtype: str  # of the floating-point work: float32, bfloat16 …
    spec: str  # canonical JSON, see operations/operation.py
    flops: int  # of the whole pass (training: forward and backward); a multiply-add counts two
    flops_source: str  # flop_counter, formula or none
    bytes_read: int  # compulsory traffic of the whole pass: each input once
    bytes_written: int  # each output (training: and gradient) once
    parameter_bytes: int  # of the arguments that are parameters of the network
    measured_execution: list[str] | None = None  # settings of what wants it measured; null for all that its GPU has
    measured_quantities: list[str] | None = None  # time, energy; null for what the campaign asks for
    source: str | None = None  # network where one of the campaign calls it, or design
    block: str | None = None  # of a designed operation: the block it was drawn in, `FAMILY-SEED-NUMBER`
    design_round: int | None = None  # of a designed operation: 0 where it was drawn first, by quotas


@dataclass(slots=True, kw_only=True)
class CallRow:
    """One call of an operation by a network, in the order in which the host issues them."""

    network_id: str
    pass_: str
    position: int  # from 0 within network and pass
    phase: str  # forward, loss, accumulation or optimizer
    operation_id: str
    module_path: str  # dotted path of the calling module, empty for the network itself
    tensors_in: list[int]  # ids of the tensors it takes, numbered within network and pass
    tensors_out: list[int]  # ids of the tensors it gives


@dataclass(slots=True, kw_only=True)
class NetworkRow:
    """One configured network in one pass."""

    network_id: str
    network: str  # torchvision name or package.module:callable
    input_shape: list[int]
    dtype: str
    pass_: str
    calls: int
    module_calls: int  # how often any module's forward is entered: each costs host time
    backward_nodes: int  # nodes of autograd's graph, 0 in inference
    parameters: int
    parameter_bytes: int
    optimizer: str | None  # canonical JSON of the configured optimizer, null in inference
    assumed_branches: list[str] = field(default_factory=list)  # of data, each `module path: what`
    measured_execution: list[str] | None = None  # settings of what wants it measured; null for all that its GPU has
    measured_quantities: list[str] | None = None  # time, energy; null for what the campaign asks for
    grouped_convolutions: int | None = None  # calls of convolutions of several groups, those of one channel each aside
    batch_norms: int | None = None  # calls of batch normalisation, before they are fused; each updates its statistics


@dataclass(slots=True)
class MemoryRow:
    """One allocation of a network's pass, or that it is freed, in order."""

    number: int  # of the allocation: its row
    bytes: int | None  # asked for; 0 if it is computed from `call`; null where it is freed
    kind: str  # one of MEMORY_KINDS
    module_path: str  # of the module whose forward pass runs, or that has the parameter
    call: str | None = None  # JSON: what the size depends on, of memory that a CUDA kernel allocates itself


@dataclass(slots=True, kw_only=True)
class MeasurementRow:
    """One operation or network in one pass on one GPU at an operating point: how it was measured, and the result."""

    # what
    kind: str  # `operation`, `network` or `anchor`, a reference operation
    subject_id: str  # operation_id or network_id
    pass_: str
    gpu: str  # the user's label
    point: str  # operating point as in paths: default, sm1440, sm1440-mem5001, pl150
    execution: str  # see schema/execution.py: fp32, tf32, bf16 …
    dtype: str
    repetition: int = 0
    # by which session
    session_id: str = ""
    shard: str = ""  # K/N of the job that measured it
    position: int = 0  # order within the session
    started_us: int = 0  # since the epoch
    ended_us: int = 0
    duration_s: float | None = None  # all in: build, warm-up, all times, power
    schema_version: int = SCHEMA_VERSION
    measurement_version: int = 0
    settings_id: str = (
        ""  # of the device and the settings that change a measurement: rows of another id are measured again
    )
    clockwatt_version: str = ""
    # where
    virtual: bool = False
    gpu_name: str = ""
    gpu_uuid: str = ""
    host: str = ""
    slurm_job_id: str | None = None
    driver_version: str | None = None
    cuda_version: str | None = None
    torch_version: str | None = None
    cudnn_version: str | None = None
    cpu_model: str | None = None
    # what was asked and what ran
    requested_sm_clock_mhz: int | None = None
    requested_memory_clock_mhz: int | None = None
    requested_power_limit_w: float | None = None
    sm_clock_median_mhz: float | None = None  # observed under load
    sm_clock_min_mhz: float | None = None
    sm_clock_max_mhz: float | None = None
    memory_clock_median_mhz: float | None = None
    power_limit_w: float | None = None
    throttle_reasons: list[str] = field(default_factory=list)
    temperature_start_c: float | None = None
    temperature_end_c: float | None = None
    quantities: list[str] | None = None  # measured: time, energy; null in older rows, which have both
    # how it ended
    status: str = OK  # ok, out_of_memory or failed
    error: str | None = None
    flags: list[str] = field(default_factory=list)
    # working set
    working_set: str | None = None  # parameters_cold, all_cold or hot
    instances: int | None = None
    working_set_bytes: int | None = None
    memory_peak_bytes: int | None = None  # most that PyTorch had allocated since the subject was built
    memory_reserved_bytes: int | None = None  # of a network: most that the caching allocator had reserved
    # times, per call
    time_host_s: float | None = None  # to issue the call
    time_host_standard_error_s: float | None = None
    time_device_s: float | None = None  # queued behind a blocking kernel
    time_device_method: str | None = None  # AT_ONCE or IN_SEGMENTS
    time_device_standard_error_s: float | None = None
    time_host_in_pass_s: float | None = None  # training: to issue a call among others that share its backward pass
    time_host_in_pass_standard_error_s: float | None = None
    time_eager_s: float | None = None  # back-to-back calls
    time_eager_standard_error_s: float | None = None
    warm_up_s: float | None = None
    iterations: int | None = None  # calls in the eager loop's window
    blocks: int | None = None
    window_s: float | None = None  # length of the window in which power was read
    stopped_by: str | None = None
    # power and energy of the eager loop
    power_w: float | None = None  # the chosen estimate
    power_standard_error_w: float | None = None
    power_estimator: str | None = None
    power_counter_w: float | None = None
    power_counter_standard_error_w: float | None = None
    power_instant_w: float | None = None
    power_instant_standard_error_w: float | None = None
    power_average_w: float | None = None
    power_average_standard_error_w: float | None = None
    power_trapezoid_w: float | None = None
    power_trapezoid_standard_error_w: float | None = None
    power_samples_w: float | None = None
    power_samples_standard_error_w: float | None = None
    power_thesis_w: float | None = None  # its energy: power_thesis_w · time_eager_s
    power_thesis_deviation_w: float | None = None  # of the readings, which the thesis takes as error
    power_idle_w: float | None = None
    power_idle_standard_error_w: float | None = None
    energy_j: float | None = None  # per call: power_w · time_eager_s
    energy_standard_error_j: float | None = None
    energy_dynamic_j: float | None = None  # per call: (power_w − power_idle_w) · time_eager_s
    energy_dynamic_standard_error_j: float | None = None
    energy_dynamic_unthrottled_j: float | None = None  # with pauses, where back to back the power limit slows calls
    energy_dynamic_unthrottled_standard_error_j: float | None = None


@dataclass(slots=True, kw_only=True)
class TelemetryRow:
    """One reading at one sampling rate: what is not read at that rate is null."""

    session_id: str
    lane: str  # sampling rate: ring and samples (buffers of the driver), fast or slow
    time_us: int  # since the epoch; for rings, the driver's time stamp of the sample
    monotonic_ns: int  # CLOCK_MONOTONIC just before the reading (ring: mapped from the driver's time stamp)
    read_ns: int | None = None  # how long the reading took
    # ring
    power_sample_w: float | None = None
    # samples: the driver's other ring buffers, which `clockwatt record` alone reads; one value a row
    gpu_utilization_sample_percent: float | None = None
    memory_utilization_sample_percent: float | None = None
    encoder_utilization_sample_percent: float | None = None
    decoder_utilization_sample_percent: float | None = None
    sm_clock_sample_mhz: float | None = None
    memory_clock_sample_mhz: float | None = None
    # fast
    power_average_w: float | None = None
    power_instant_w: float | None = None
    energy_counter_j: float | None = None
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    throttle_reasons: int | None = None  # NVML's bit mask
    # slow
    gpu_utilization_percent: int | None = None
    memory_utilization_percent: int | None = None
    performance_state: int | None = None
    temperature_c: float | None = None
    power_limit_w: float | None = None
    memory_used_bytes: int | None = None
    pcie_tx_kib_s: int | None = None
    pcie_rx_kib_s: int | None = None
    memory_temperature_c: float | None = None
    fan_speed_percent: int | None = None
    host_cpu_utilization_percent: list[float] | None = None  # one entry per socket
    host_cpu_energy_j: list[float] | None = None  # counters, one entry per socket
    host_cpu_temperature_c: list[float] | None = None  # one entry per sensor that can be read
    host_memory_used_bytes: int | None = None


@dataclass(slots=True, kw_only=True)
class CalibrationRow:
    """One calibrated quantity of one GPU at one operating point."""

    gpu: str
    point: str
    gpu_name: str
    gpu_uuid: str
    virtual: bool
    host: str
    measured_us: int
    measurement_version: int
    quantity: str  # e.g. power_idle_w, host_time_per_module_s, sensor_period_s
    subject: str | None = None  # which sensor, operation or run the value belongs to
    x: float | None = None  # the independent variable of a curve (iterations, seconds since load)
    value: float | None = None
    standard_error: float | None = None


def column_name(attribute: str) -> str:
    """Return the column that a dataclass attribute is stored in."""
    return attribute.rstrip("_")


def schema_of(row_type: type) -> pa.Schema:
    """Return the Arrow schema of a row dataclass; `X | None` gives a nullable column."""
    hints = typing.get_type_hints(row_type)
    columns = []
    for entry in fields(row_type):
        hint, nullable = _without_none(hints[entry.name])
        columns.append(pa.field(column_name(entry.name), _arrow_type(hint), nullable=nullable))
    kind = row_type.__name__.removesuffix("Row").lower()
    return pa.schema(columns, metadata={"kind": kind, "schema_version": str(SCHEMA_VERSION)})


def table_of(rows: Iterable[Any], schema: pa.Schema) -> pa.Table:
    """Return the Arrow table of row dataclasses of one kind."""
    rows = list(rows)
    attributes = {name: f"{name}_" if name in _KEYWORD_COLUMNS else name for name in schema.names}
    columns = {name: list(map(operator.attrgetter(attribute), rows)) for name, attribute in attributes.items()}
    return pa.Table.from_pydict(columns, schema=schema)


def row_of(row_type: type[Any], values: Mapping[str, Any]) -> Any:
    """Return the row dataclass from a mapping of columns, such as an element of `Table.to_pylist()`."""
    return row_type(
        **{
            entry.name: values[column_name(entry.name)]
            for entry in fields(row_type)
            if column_name(entry.name) in values
        }
    )


def _without_none(hint: Any) -> tuple[Any, bool]:
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        (rest,) = (part for part in typing.get_args(hint) if part is not type(None))
        return rest, True
    return hint, False


def _arrow_type(hint: Any) -> pa.DataType:
    if typing.get_origin(hint) is list:
        return pa.list_(_arrow_type(typing.get_args(hint)[0]))
    return {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}[hint]


_KEYWORD_COLUMNS = frozenset({"pass"})

OPERATION_SCHEMA = schema_of(OperationRow)
CALL_SCHEMA = schema_of(CallRow)
NETWORK_SCHEMA = schema_of(NetworkRow)
MEMORY_SCHEMA = schema_of(MemoryRow)
MEASUREMENT_SCHEMA = schema_of(MeasurementRow)
TELEMETRY_SCHEMA = schema_of(TelemetryRow)
CALIBRATION_SCHEMA = schema_of(CalibrationRow)
