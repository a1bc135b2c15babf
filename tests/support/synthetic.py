"""A small campaign without a GPU: a catalogue of convolutional networks, and measurements by a roofline with noise."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from clockwatt import config
from clockwatt.gpu.specs import find_spec
from clockwatt.io import files
from clockwatt.measure.reference_operations import anchors
from clockwatt.operations.spec.operation import MATRIX_CLASSES, Operation, OutputSpec, TensorSpec, contiguous_stride
from clockwatt.schema import layout, records
from clockwatt.schema.records import CalibrationRow, CallRow, MeasurementRow, NetworkRow, OperationRow

HOST_S = {"conv2d": 14e-6, "batch_norm": 12e-6, "relu": 6e-6, "add": 5e-6, "linear": 9e-6, "flatten": 2e-6}
EFFICIENCY = {"conv2d": 0.55, "batch_norm": 0.7, "relu": 0.85, "add": 0.8, "linear": 0.5}
PER_MODULE_S, IDLE_W = 3e-6, 35.0


def campaign(clocks: Any = (900, 1200, 1440), networks: int = 3, **changes: Any) -> config.CampaignConfig:
    """Two virtual GPUs, some networks, both passes."""
    content: dict[str, Any] = {
        "campaign": "synthetic",
        "gpus": {
            "a30": {"device": "virtual:a30", "clocks_mhz": list(clocks)},
            "v100": {"device": "virtual:v100", "clocks_mhz": list(clocks)[:1]},
        },
        "networks": [{"name": f"net{width}", "input": [8, 3, 64, 64]} for width in _widths(networks)],
        "fit": {"predictors": ["roofline", "forest"], "folds": 4, "trees": 12},
    }
    return config.parse(content | changes)


def _widths(networks: int) -> list[int]:
    return [16 + 8 * number for number in range(networks)]


@dataclass
class Campaign:
    """A config, and the folders that its stages read."""

    config: config.CampaignConfig
    root: Path

    def __getattr__(self, name: str) -> Path:
        if name in {"catalogue", "measurements", "dataset", "predictors", "validation", "figures"}:
            return self.root / name
        raise AttributeError(name)


def write_campaign(root: Path, settings: config.CampaignConfig, seed: int = 0) -> Campaign:
    """Write catalogue, measurements and calibrations of a campaign below `root`."""
    made = Campaign(settings, root)
    rng = np.random.default_rng(seed)
    operations, calls, networks = _catalogue(settings)
    files.write_table(
        records.table_of(operations.values(), records.OPERATION_SCHEMA), made.catalogue / "operations.parquet"
    )
    files.write_table(records.table_of(calls, records.CALL_SCHEMA), made.catalogue / "calls.parquet")
    files.write_table(records.table_of(networks, records.NETWORK_SCHEMA), made.catalogue / "networks.parquet")
    for label, gpu in settings.gpus.items():
        for point in gpu.points:
            bench = _Bench(label, gpu.device, str(point), rng)
            rows = [bench.operation(row) for row in operations.values()]
            write_rows(
                made, [*bench.anchors("start"), *rows, *bench.anchors("end")], layout.operations_file(label, point, 1)
            )
            whole = [bench.network(row, operations, calls) for row in networks]
            write_rows(made, whole, layout.networks_file(label, point, 1))
            table = records.table_of(bench.calibration(), records.CALIBRATION_SCHEMA)
            files.write_table(table, made.measurements / layout.calibration_file(label, point))
    return made


def write_rows(made: Campaign, rows: list[MeasurementRow], path: Path) -> None:
    """Write measurements to a file of the campaign."""
    files.write_table(records.table_of(rows, records.MEASUREMENT_SCHEMA), made.measurements / path)


def change(made: Campaign, path: Path, edit: Callable[[list[MeasurementRow]], list[MeasurementRow] | None]) -> None:
    """Rewrite a file of measurements with what `edit` gives of its rows, or has done to them."""
    table = files.read_table(made.measurements / path, records.MEASUREMENT_SCHEMA)
    rows = [records.row_of(MeasurementRow, values) for values in table.to_pylist()]
    edited = edit(rows)
    write_rows(made, rows if edited is None else edited, path)


def change_operations(made: Campaign, path: Path, edit: Callable[[list[MeasurementRow]], None]) -> None:
    """Rewrite a file of measurements with `edit` done to its operations."""
    change(made, path, lambda rows: edit([row for row in rows if row.kind == records.OPERATION]))


def again(row: MeasurementRow, **changes: Any) -> MeasurementRow:
    """The same row, measured elsewhere."""
    return dataclasses.replace(row, **changes)


def _tensor(shape: list[int], **flags: bool) -> TensorSpec:
    return TensorSpec.dense(shape, **flags)


def _out(shape: list[int]) -> tuple[OutputSpec, ...]:
    return (OutputSpec(tuple(shape), "float32", contiguous_stride(shape)),)


def operation_of(
    name: str, shape: list[int], out_channels: int = 0, kernel: int = 1, training: bool = False
) -> Operation:
    """One call of a network; in training its parameters need gradients."""
    function, tensors, args, out = f"torch.nn.functional.{name}", [_tensor(shape)], [{"tensor": 0}], shape
    if name == "conv2d":
        tensors.append(_tensor([out_channels, shape[1], kernel, kernel], parameter=True, grad=training))
        pair = {"tuple": [kernel // 2] * 2}
        args = [{"tensor": 0}, {"tensor": 1}, None, {"tuple": [1, 1]}, pair, {"tuple": [1, 1]}, 1]
        out = [shape[0], out_channels, *shape[2:]]
    elif name == "linear":
        tensors.append(_tensor([out_channels, shape[1]], parameter=True, grad=training))
        args, out = [{"tensor": 0}, {"tensor": 1}], [shape[0], out_channels]
    elif name == "add":
        function, tensors, args = "torch.add", [_tensor(shape), _tensor(shape)], [{"tensor": 0}, {"tensor": 1}]
    elif name == "flatten":
        function, args, out = "torch.flatten", [{"tensor": 0}, 1], [shape[0], int(np.prod(shape[1:]))]
    outputs = _out(out)
    grad_out = (outputs[0].stride,) if training and len(tensors) > 1 else ()
    return Operation(function, tuple(args), {}, tuple(tensors), outputs, grad_out)


def row_of_operation(operation: Operation, pass_: str) -> OperationRow:
    """Its row of the catalogue."""
    times = 3 if pass_ == records.TRAINING else 1
    read, written = sum(t.bytes for t in operation.tensors), sum(o.bytes for o in operation.out)
    out = operation.out[0].elements
    flops = {
        "conv2d": lambda: 2 * out * int(np.prod(operation.tensors[1].shape[1:])),
        "linear": lambda: 2 * out * operation.tensors[1].shape[1],
        "flatten": lambda: 0,
    }.get(operation.operation_class, lambda: out)()
    works = operation.operation_class != "flatten"
    return OperationRow(
        operation_id=operation.operation_id, pass_=pass_, function=operation.function,
        operation_class=operation.operation_class, kind="compute" if works else "view", device_work=works,
        dtype="float32", spec=operation.to_json(), flops=times * flops, flops_source="formula",
        bytes_read=times * read if works else 0, bytes_written=times * written if works else 0,
        parameter_bytes=sum(t.bytes for t in operation.tensors if t.parameter),
    )  # fmt: skip


def _catalogue(
    settings: config.CampaignConfig,
) -> tuple[dict[tuple[str, str], OperationRow], list[CallRow], list[NetworkRow]]:
    operations: dict[tuple[str, str], OperationRow] = {}
    calls: list[CallRow] = []
    networks: list[NetworkRow] = []
    for number, network in enumerate(settings.networks):
        for pass_ in settings.passes:
            sequence = _sequence(network.input, 16 + 8 * number, pass_ == records.TRAINING)
            for position, operation in enumerate(sequence):
                operations.setdefault((operation.operation_id, pass_), row_of_operation(operation, pass_))
                calls.append(CallRow(
                    network_id=network.network_id, pass_=pass_, position=position, phase=records.FORWARD,
                    operation_id=operation.operation_id, module_path="", tensors_in=[], tensors_out=[],
                ))  # fmt: skip
            training = pass_ == records.TRAINING
            networks.append(NetworkRow(
                network_id=network.network_id, network=network.name,
                input_shape=network.first_input.shape, dtype="float32",
                pass_=pass_, calls=len(sequence), module_calls=len(sequence), backward_nodes=30 if training else 0,
                parameters=1, parameter_bytes=4, optimizer=None,
            ))  # fmt: skip
    return operations, calls, networks


def _sequence(shape: list[int], width: int, training: bool) -> list[Operation]:
    sequence, size = [], shape[2]
    current = [shape[0], shape[1], size, size]
    for stage in range(4):
        channels = width * 2**stage
        sequence.append(operation_of("conv2d", current, channels, 3, training))
        current = [shape[0], channels, size, size]
        sequence += [operation_of(name, current, training=training) for name in ("batch_norm", "relu")]
        sequence.append(operation_of("conv2d", current, channels, 1, training))
        sequence.append(operation_of("add", current, training=training))
        size //= 2
        current = [shape[0], channels, size, size]
    sequence.append(operation_of("flatten", [shape[0], current[1], 1, 1], training=training))
    sequence.append(operation_of("linear", [shape[0], current[1]], 1000, training=training))
    return sequence


class _Bench:
    """Costs at one operating point of one GPU."""

    def __init__(self, label: str, device: str, point: str, rng: np.random.Generator) -> None:
        self.spec = find_spec(device)
        self.clock = config.OperatingPoint.parse(point).sm_clock_mhz or self.spec.boost_clock_mhz
        self.ratio = self.clock / self.spec.boost_clock_mhz
        self.rng = rng
        self.where = {
            "gpu": label, "point": point, "execution": "tf32", "dtype": "float32", "virtual": True,
            "gpu_name": f"virtual {self.spec.name}", "gpu_uuid": f"GPU-{label}", "session_id": f"{label}-{point}",
            "requested_sm_clock_mhz": self.clock, "sm_clock_median_mhz": float(self.clock),
        }  # fmt: skip

    def _noise(self) -> float:
        return float(np.exp(0.01 * self.rng.standard_normal()))

    def costs(self, row: OperationRow) -> tuple[float, float, float]:
        """Device time, host time and power under load."""
        host = HOST_S[row.operation_class] * (2 if row.pass_ == records.TRAINING else 1) * self._noise()
        if not row.device_work:
            return 0.0, host, IDLE_W
        peak = self.spec.peak_flops("float32", tf32=True, matrix=row.operation_class in MATRIX_CLASSES) * self.ratio
        compute, memory = row.flops / peak, (row.bytes_read + row.bytes_written) / self.spec.bandwidth_bytes_s
        device = (max(compute, memory) / EFFICIENCY[row.operation_class] + 2e-6) * self._noise()
        full = 0.3 + 0.6 * min(1.0, compute / memory)
        return device, host, IDLE_W + full * (150 - IDLE_W) * (0.4 + 0.6 * self.ratio**3) * self._noise()

    def operation(self, row: OperationRow, **changes: Any) -> MeasurementRow:
        device, host, load_w = self.costs(row)
        eager = max(device, host)
        dynamic = (load_w - IDLE_W) * device
        power = IDLE_W + dynamic / eager
        return MeasurementRow(**{
            "kind": records.OPERATION, "subject_id": row.operation_id, "pass_": row.pass_, **self.where,
            "time_device_s": device, "time_host_s": host, "time_eager_s": eager,
            "power_w": power if row.device_work else None, "power_idle_w": IDLE_W if row.device_work else None,
            "energy_dynamic_j": dynamic, "energy_j": power * eager if row.device_work else None, **changes,
        })  # fmt: skip

    def anchors(self, when: str) -> list[MeasurementRow]:
        started = 0 if when == "start" else 3_600_000_000
        specs = [operation_of("relu", [8, channels, 64, 64]) for channels in (16, 64, 128, 256, 512)]
        rows = [row_of_operation(spec, records.INFERENCE) for spec in specs]
        return [self.operation(row, kind=records.ANCHOR, started_us=started) for row in rows]

    def network(
        self, row: NetworkRow, operations: dict[tuple[str, str], OperationRow], calls: list[CallRow]
    ) -> MeasurementRow:
        ids = [call.operation_id for call in calls if (call.network_id, call.pass_) == (row.network_id, row.pass_)]
        costs = np.array([self.costs(operations[identity, row.pass_]) for identity in ids])
        host = costs[:, 1].sum() + PER_MODULE_S * row.module_calls
        time = max(host, costs[:, 0].sum()) * self._noise()
        energy = float(((costs[:, 2] - IDLE_W) * costs[:, 0]).sum()) + IDLE_W * time
        return MeasurementRow(
            kind=records.NETWORK, subject_id=row.network_id, pass_=row.pass_, **self.where,
            time_eager_s=time, power_w=energy / time, power_idle_w=IDLE_W, energy_j=energy,
            energy_dynamic_j=energy - IDLE_W * time,
        )  # fmt: skip

    def calibration(self) -> list[CalibrationRow]:
        values = [
            ("power_idle_w", None, IDLE_W), ("host_time_per_call_s", records.INFERENCE, 8e-6),
            ("host_time_per_call_s", records.TRAINING, 16e-6),
            *(("host_time_per_module_s", pass_, PER_MODULE_S) for pass_ in (records.INFERENCE, records.TRAINING)),
        ]  # fmt: skip
        about = {name: self.where[name] for name in ("gpu", "point", "gpu_name", "gpu_uuid", "virtual")}
        return [
            CalibrationRow(
                **about,
                host="here",
                measured_us=0,
                measurement_version=1,
                quantity=quantity,
                subject=subject,
                value=value,
            )
            for quantity, subject, value in values
        ] + [CalibrationRow(**about, host="here", measured_us=0, measurement_version=1, **row) for row in self.curves()]

    def curves(self) -> Iterator[dict[str, Any]]:
        """Time against iterations and power from idle to load."""
        for anchor in anchors():
            for calls in (1, 10, 100, 1000):
                time_s = 5e-5 + 1e-5 / calls
                yield {
                    "quantity": "time_per_call_s", "subject": anchor.operation_id, "x": calls, "value": time_s,
                    "standard_error": 1e-7,
                }  # fmt: skip
        for run in (1, 2):
            for lane, step_s in (("ring", 0.02), ("fast", 0.1)):
                for since_s in np.arange(-0.9, 1.5, step_s) + 0.005 * run:
                    yield {
                        "quantity": "power_transient_w", "subject": f"run{run}-{lane}", "x": float(since_s),
                        "value": 250.0 if since_s > 0 else IDLE_W,
                    }  # fmt: skip


def read_json(path: Path) -> Any:
    """What a stage wrote as JSON."""
    return json.loads(path.read_text(encoding="utf-8"))
