"""Measure what a prediction lacks: the times of a few operations, or a whole pass of a network.

Through the store of the campaign: what is in the store is not measured again, and what is measured now is there for
the next question and the next shard. All of it is one session: opening the GPU takes seconds.
"""

from __future__ import annotations

import contextlib
import functools
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import pyarrow as pa

from clockwatt.config import CampaignConfig, GpuConfig, NetworkConfig, OperatingPoint
from clockwatt.config.precision import FLOAT_PRECISIONS
from clockwatt.errors import ClockwattError
from clockwatt.gpu.interface import GpuError
from clockwatt.io import files
from clockwatt.measure import session, tasks, watchdog
from clockwatt.measure.calibrate.calibration import Calibration
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
    """A GPU of a campaign, an operating point and a pass to measure; a context manager that holds the GPU once open.

    Attributes
    ----------
    config, label, point
        The campaign, its GPU and the operating point.
    pass_, execution
        The pass and execution of the question.
    store_dir
        The store of the campaign.
    tables
        The network, its calls and operations: tables of a catalogue.
    network
        What `measure_whole` measures.
    """

    config: CampaignConfig
    label: str
    point: OperatingPoint
    pass_: str
    execution: ExecutionSettings
    store_dir: Path
    tables: tuple[pa.Table, pa.Table, pa.Table]
    network: NetworkConfig | None = None
    _held: contextlib.ExitStack = field(default_factory=contextlib.ExitStack, repr=False, compare=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

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
        keys = [
            Key(OPERATION, row["operation_id"], self.pass_, execution, 0)
            for row in operations.select(["operation_id", "operation_class", "dtype"]).to_pylist()
            for execution in self._gpu.execution_of(None, (row["operation_class"], row["dtype"]))
        ]
        rows = self._session.store.rows(keys)
        return {row.subject_id: row for row in rows if row.kind == OPERATION and row.status == OK}

    def measure(self, operations: pa.Table, stop_after_s: float | None = None, *, energy: bool = False) -> None:
        """Measure time alone, or energy too, of what the store lacks of operations, rows of `OPERATION_SCHEMA`.

        Raises
        ------
        ClockwattError
            If the GPU is not here.
        """
        self._measure(set(operations["operation_id"].to_pylist()), stop_after_s, energy=energy)

    def measure_whole(self) -> dict[str, float | None]:
        """Measure the pass of `network`.

        Gives `time_s`, `device_s`, `host_s`, `energy_j` and `power_w`, None where one could not be measured.

        Raises
        ------
        ClockwattError
            If the GPU is not here, or the pass cannot be run.
        """
        assert self.network is not None
        self._measure({self.network.network_id}, None, energy=True)
        key = Key(NETWORK, self.network.network_id, self.pass_, self.execution, 0)
        rows = self._session.store.rows([key])
        found = next((row for row in rows if row.kind == NETWORK), None)
        if found is None or found.status != OK:
            why = found.error if found else "the job's time is up"
            raise ClockwattError(f"{self.network.network_id}: its pass could not be measured ({why}).")
        return {
            "time_s": found.time_eager_s,
            "device_s": found.time_device_s,
            "host_s": found.time_host_s,
            "energy_j": found.energy_j,
            "power_w": found.power_w,
        }

    def _measure(self, names: set[str], stop_after_s: float | None, *, energy: bool) -> None:
        """Measure what the store lacks of operations, or of the network, and put it there."""
        end_s, here = session.end_of(stop_after_s), self._session
        campaign = here.config.model_copy(update={"quantities": [TIME, ENERGY] if energy else [TIME]})
        wanted = [
            subject
            for networks in (False, True)
            for subject in tasks.subjects(campaign, self._gpu, Shard(1, 1, networks=networks), here.catalogue_dir)
            if subject.subject_id in names
        ]
        if pending := session.lacking(here, wanted):
            session.measure_pending(here, self._run, pending, end_s)
            self._run.flush()

    @functools.cached_property
    def _run(self) -> session.Run:
        """What measures on the GPU, opened now and held until the context ends."""
        here = self._session
        self._held.enter_context(watchdog.only_process(here.store.shard_file(here.shard, "lock")))
        operations = set(self.tables[2]["operation_id"].to_pylist())
        try:
            return self._held.enter_context(session.running(here, operations, energy=False))
        except GpuError as error:
            raise ClockwattError(
                f"measuring needs {self.config.gpu(self.label).device} in this machine ({error}). Ask on a node "
                "that has it, inside of a Slurm job for instance, or leave out --measure-missing and "
                "--measure-whole."
            ) from error

    @functools.cached_property
    def _session(self) -> session.Session:
        """The campaign as far as it decides how is measured, with a catalogue of this pass."""
        folder = Path(self._held.enter_context(tempfile.TemporaryDirectory()))
        network, calls, operations = self.tables
        wanted = pa.array([[str(self.execution)]] * network.num_rows, NETWORK_SCHEMA.field("measured_execution").type)
        network = network.set_column(network.column_names.index("measured_execution"), "measured_execution", wanted)
        for name, table, schema in (
            (OPERATIONS_FILE, operations, OPERATION_SCHEMA),
            (CALLS_FILE, calls, CALL_SCHEMA),
            (NETWORKS_FILE, network, NETWORK_SCHEMA),
        ):
            files.write_table(table.cast(schema), folder / name)
        campaign = self.config.model_copy(
            update={
                "gpus": {self.label: self._gpu},
                "networks": [] if self.network is None else [self.network],
                "passes": [self.pass_],
                "measurement": self.config.measurement.model_copy(update={"repetitions": 1}),
            }
        )
        store = Store(self.store_dir, campaign, self.label, self.point)
        return session.Session(
            campaign, self.label, self.point, Shard(1, 1, networks=False), folder, store, Calibration()
        )
