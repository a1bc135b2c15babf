"""The columns of a dataset: those of the measurement, those of the catalogue, and what the anchors tell."""

from __future__ import annotations

import pyarrow as pa

from clockwatt.schema.records import MEASUREMENT_SCHEMA, NETWORK_SCHEMA, OPERATION_SCHEMA, SCHEMA_VERSION

OPERATIONS_FILE = "operations.parquet"
NETWORKS_FILE = "networks.parquet"
ANCHORS_FILE = "anchors.parquet"
CALIBRATION_FILE = "calibration.parquet"
QUALITY_FILE = "quality.json"

_CATALOGUE_NAMES = {"kind": "operation_kind"}  # a measurement's own `kind` says operation, network or anchor


def dataset_name(catalogue_column: str) -> str:
    """Name in the dataset of a column of the catalogue."""
    return _CATALOGUE_NAMES.get(catalogue_column, catalogue_column)


def joined_columns(catalogue: pa.Schema) -> list[str]:
    """Columns of a catalogue table that a measurement does not have itself and therefore gets from it."""
    own = {*MEASUREMENT_SCHEMA.names, "operation_id", "network_id", "measured_tf32", "measured_quantities"} - set(
        _CATALOGUE_NAMES
    )
    return [name for name in catalogue.names if name not in own]


_CARD_COLUMNS = [
    pa.field(
        "anchor_time_factor", pa.float64()
    ),  # time of this card's anchors over the median card's, same GPU and point
    pa.field("anchor_power_factor", pa.float64()),  # likewise, power
    pa.field("anchor_host_factor", pa.float64()),  # host time of this session's anchors over the median session's
    pa.field(
        "drift_time_per_hour", pa.float64()
    ),  # relative change of the anchors' time in this row's session, per hour
    pa.field("drift_power_per_hour", pa.float64()),  # likewise, power
]


def _dataset_schema(kind: str, catalogue: pa.Schema | None) -> pa.Schema:
    joined = []
    if catalogue is not None:
        # nullable: a row whose subject has left the catalogue is kept, flagged `not_in_catalogue`
        joined = [
            pa.field(dataset_name(name), catalogue.field(name).type, nullable=True)
            for name in joined_columns(catalogue)
        ]
    metadata = {"kind": kind, "schema_version": str(SCHEMA_VERSION)}
    return pa.schema([*MEASUREMENT_SCHEMA, *joined, *_CARD_COLUMNS], metadata=metadata)


OPERATIONS_SCHEMA = _dataset_schema("dataset operation", OPERATION_SCHEMA)
NETWORKS_SCHEMA = _dataset_schema("dataset network", NETWORK_SCHEMA)
ANCHORS_SCHEMA = _dataset_schema("dataset anchor", None)
