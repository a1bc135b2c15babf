"""Which subjects a shard measures, and in which order. Known before anything runs."""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from clockwatt.config import CampaignConfig, GpuConfig, OperatingPoint
from clockwatt.errors import ConfigError
from clockwatt.io import files
from clockwatt.measure.bench.interface import Subject
from clockwatt.measure.store import Key
from clockwatt.schema import layout
from clockwatt.schema.records import ENERGY, NETWORK, NETWORK_SCHEMA, OPERATION, OPERATION_SCHEMA


@dataclass(frozen=True)
class Shard:
    """One of several jobs that share the subjects of a GPU at an operating point; `number` counts from 1."""

    number: int
    of: int
    networks: bool

    @classmethod
    def parse(cls, text: str, *, networks: bool) -> Shard:
        """Read `3/8`.

        Raises
        ------
        ConfigError
            If `text` is no shard.
        """
        match = re.fullmatch(r"(\d+)/(\d+)", text)
        if not match or not 1 <= int(match[1]) <= int(match[2]):
            raise ConfigError(f"--shard {text!r}: write K/N with 1 <= K <= N, such as 3/8.")
        return cls(int(match[1]), int(match[2]), networks)

    def __str__(self) -> str:
        return f"{'networks-' if self.networks else ''}{self.number}/{self.of}"

    def holds(self, subject_id: str) -> bool:
        """Return whether a subject belongs to this shard: its hash modulo the number of shards."""
        return shard_number(subject_id, self.of) == self.number


def shard_number(subject_id: str, of: int) -> int:
    """Return the shard of a subject: its hash modulo the number of shards, counted from 1."""
    return 1 + int.from_bytes(hashlib.sha256(subject_id.encode()).digest()[:8]) % of


def subjects(config: CampaignConfig, gpu: GpuConfig, shard: Shard, catalogue_dir: Path) -> list[Subject]:
    """Return all subjects of a shard in the order of the catalogue, all execution settings and repetitions of each.

    Raises
    ------
    DataFileError
        If the catalogue is missing or damaged.
    """
    kind = NETWORK if shard.networks else OPERATION
    return [
        Subject(
            kind,
            subject_id,
            pass_,
            execution,
            dtype,
            repetition,
            device_work,
            energy=ENERGY in (config.quantities if quantities is None else quantities),
        )
        for subject_id, pass_, dtype, operation_class, device_work, wanted, quantities in _catalogued(
            catalogue_dir, networks=shard.networks
        )
        if shard.holds(subject_id) and pass_ in config.passes
        for execution in gpu.execution_of(wanted, None if operation_class is None else (operation_class, dtype))
        for repetition in range(config.measurement.repetitions)
    ]


def shuffled(pending: list[Subject], config: CampaignConfig, label: str, point: OperatingPoint) -> list[Subject]:
    """Subjects in an order that the seed, GPU and operating point decide: repetition after repetition, each shuffled.

    Drift of a card during a shard then does not look like a property of one class of operations.
    """
    rng = random.Random(f"{config.seed}/{label}/{point}")  # noqa: S311  # an order, not a secret
    ordered = sorted(
        pending, key=lambda subject: (subject.repetition, subject.subject_id, subject.pass_, subject.execution)
    )
    return sorted(ordered, key=lambda subject: (subject.repetition, rng.random()))


def key(subject: Subject) -> Key:
    """Return the key of a subject in the store."""
    return Key(subject.kind, subject.subject_id, subject.pass_, subject.execution, subject.repetition)


def specs(catalogue_dir: Path, operation_ids: set[str]) -> dict[str, str]:
    """Return canonical JSON of the wanted operations by id.

    Raises
    ------
    DataFileError
        If the catalogue is missing or damaged.
    """
    table = files.read_table(catalogue_dir / layout.OPERATIONS_FILE, OPERATION_SCHEMA, ["operation_id", "spec"])
    wanted = table.filter(pc.is_in(table["operation_id"], value_set=pa.array(sorted(operation_ids), pa.string())))
    return dict(zip(wanted["operation_id"].to_pylist(), wanted["spec"].to_pylist(), strict=True))


def _catalogued(
    catalogue_dir: Path, *, networks: bool
) -> Iterator[tuple[str, str, str, str | None, bool, list[str] | None, list[str] | None]]:
    if networks:
        columns = ["network_id", "pass", "dtype", "measured_execution", "measured_quantities"]
        for row in files.read_table(catalogue_dir / layout.NETWORKS_FILE, NETWORK_SCHEMA, columns).to_pylist():
            name, pass_, dtype, settings, quantities = (row[column] for column in columns)
            yield name, pass_, dtype, None, True, settings, quantities
    else:
        columns = ["operation_id", "pass", "dtype", "operation_class", "device_work"]
        columns += ["measured_execution", "measured_quantities"]
        for row in files.read_table(catalogue_dir / layout.OPERATIONS_FILE, OPERATION_SCHEMA, columns).to_pylist():
            name, pass_, dtype, operation_class, work, settings, quantities = (row[column] for column in columns)
            yield name, pass_, dtype, operation_class, work, settings, quantities
