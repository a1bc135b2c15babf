"""Measure what a prediction lacks: the times of a few operations, or a whole pass of a network.

Through the session and the store of the campaign: what is in the store is not measured again, and what is measured now
is there for the next question and the next shard.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from clockwatt.config import CampaignConfig, GpuConfig, NetworkConfig, OperatingPoint
from clockwatt.config.precision import FLOAT_PRECISIONS
from clockwatt.errors import ClockwattError
from clockwatt.gpu.interface import GpuError
from clockwatt.io import files
from clockwatt.measure.session import measure_shard
from clockwatt.measure.store import Key, Store
from clockwatt.measure.tasks import Shard
from clockwatt.schema.execution import FP32, TF32, ExecutionSettings
from clockwatt.schema.layout import CALLS_FILE, NETWORKS_FILE, OPERATIONS_FILE
from clockwatt.schema.records import (
    CALL_SCHEMA,
    ENERGY,
    NETWORK,
    NETWORK_SCHEMA,
    OK,
    OPERATION,
    OPERATION_SCHEMA,
    TIME,
    MeasurementRow,
)


@dataclass(frozen=True)
class OnDemand:
    """A GPU of a campaign, an operating point and a pass to measure missing operations in.

    Attributes
    ----------
    config, label, point
        The campaign, its GPU and the operating point.
    pass_, execution
        The pass and execution of the question.
    store_dir
        The store of the campaign.
    """

    config: CampaignConfig
    label: str
    point: OperatingPoint
    pass_: str
    execution: ExecutionSettings
    store_dir: Path

    @property
    def _gpu(self) -> GpuConfig:
        """The GPU with the precision that the question's operations are measured in."""
        gpu = self.config.gpu(self.label)
        of_half = TF32 if TF32 in gpu.execution else FP32
        precision = self.execution.precision if self.execution.precision in FLOAT_PRECISIONS else of_half
        return gpu.model_copy(update={"precision": [str(precision)]})

    def stored(self, operations: pa.Table) -> dict[str, MeasurementRow]:
        """Return the store's rows of operations by id, without reference operations and failed rows.

        `operations` are rows of `OPERATION_SCHEMA`.
        """
        gpu = self._gpu
        keys = [
            Key(OPERATION, row["operation_id"], self.pass_, execution, 0)
            for row in operations.select(["operation_id", "operation_class", "dtype"]).to_pylist()
            for execution in gpu.execution_of(None, (row["operation_class"], row["dtype"]))
        ]
        rows = Store(self.store_dir, self.config, self.label, self.point).rows(keys)
        return {row.subject_id: row for row in rows if row.kind == OPERATION and row.status == OK}

    def measure(self, operations: pa.Table, stop_after_s: float | None = None, *, energy: bool = False) -> None:
        """Measure time alone, or energy too, of what the store lacks of operations, rows of `OPERATION_SCHEMA`.

        Raises
        ------
        ClockwattError
            If the GPU is not here.
        """
        calls, networks = CALL_SCHEMA.empty_table(), NETWORK_SCHEMA.empty_table()
        self._run(operations, calls, networks, [], stop_after_s, energy=energy)

    def measure_whole(
        self, network: NetworkConfig, row: pa.Table, calls: pa.Table, operations: pa.Table
    ) -> dict[str, float | None]:
        """Measure a network's pass; its row, as `NETWORK_SCHEMA` has one, comes with its calls and operations.

        Gives `time_s`, `device_s`, `host_s`, `energy_j` and `power_w`, None where one could not be measured.

        Raises
        ------
        ClockwattError
            If the GPU is not here, or the pass cannot be run.
        """
        wanted = pa.array([[str(self.execution)]] * row.num_rows, NETWORK_SCHEMA.field("measured_execution").type)
        row = row.set_column(row.column_names.index("measured_execution"), "measured_execution", wanted)
        self._run(operations, calls, row, [network], None, energy=True)
        key = Key(NETWORK, network.network_id, self.pass_, self.execution, 0)
        rows = Store(self.store_dir, self.config, self.label, self.point).rows([key])
        found = next(row for row in rows if row.kind == NETWORK)
        if found.status != OK:
            raise ClockwattError(f"{network.network_id}: its pass could not be measured ({found.error}).")
        return {
            "time_s": found.time_eager_s,
            "device_s": found.time_device_s,
            "host_s": found.time_host_s,
            "energy_j": found.energy_j,
            "power_w": found.power_w,
        }

    def _run(
        self,
        operations: pa.Table,
        calls: pa.Table,
        networks: pa.Table,
        configured: Sequence[NetworkConfig],
        stop_after_s: float | None,
        *,
        energy: bool,
    ) -> None:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            for name, table, schema in (
                (OPERATIONS_FILE, operations, OPERATION_SCHEMA),
                (CALLS_FILE, calls, CALL_SCHEMA),
                (NETWORKS_FILE, networks, NETWORK_SCHEMA),
            ):
                files.write_table(table.cast(schema), folder / name)
            try:
                measure_shard(
                    self._campaign(configured, energy=energy), label=self.label, point=self.point,
                    shard=Shard(1, 1, networks=bool(configured)), catalogue_dir=folder, store_dir=self.store_dir,
                    output=folder / "measured.parquet", stop_after_s=stop_after_s, quick=True,
                )  # fmt: skip
            except GpuError as error:
                raise ClockwattError(
                    f"measuring needs {self.config.gpu(self.label).device} in this machine ({error}). Ask on a node "
                    "that has it, inside of a Slurm job for instance, or leave out --measure-missing and "
                    "--measure-whole."
                ) from error

    def _campaign(self, networks: Sequence[NetworkConfig], *, energy: bool) -> CampaignConfig:
        """Return the campaign as far as it decides how is measured, and what of it is asked for now."""
        return self.config.model_copy(
            update={
                "gpus": {self.label: self._gpu},
                "networks": list(networks),
                "passes": [self.pass_],
                "quantities": [TIME, ENERGY] if energy else [TIME],
                "measurement": self.config.measurement.model_copy(update={"repetitions": 1}),
            }
        )
