"""The columns of a dataset: those of the measurement, those of the catalogue, and what is derived from them.

Measured columns stay as they are. Beside them stand the effects of card and host, and corrected costs, which
predictors learn and figures show: on the median card and host, in a pass, not slowed by the power limit.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from clockwatt.schema import costs
from clockwatt.schema.records import MEASUREMENT_SCHEMA, NETWORK_SCHEMA, OPERATION_SCHEMA, SCHEMA_VERSION

_CATALOGUE_NAMES = {"kind": "operation_kind"}  # in a measurement, `kind` is operation, network or anchor
_ONLY_IN_CATALOGUE = {"operation_id", "network_id", "measured_execution", "measured_quantities", "spec"}


@dataclass(frozen=True)
class Column:
    """A column that the dataset adds to those of the measurement and of the catalogue."""

    name: str
    type: pa.DataType
    meaning: str
    nullable: bool = True

    @property
    def field(self) -> pa.Field:
        """It, for an Arrow schema."""
        return pa.field(self.name, self.type, nullable=self.nullable)


LEVEL_COLUMNS = (
    Column(
        "anchor_time_factor",
        pa.float64(),
        "time of the reference operations on this card over the median card's, same GPU and operating point",
    ),
    Column("anchor_power_factor", pa.float64(), "likewise, power"),
    Column(
        "anchor_host_factor",
        pa.float64(),
        "host time of the reference operations in this session over the median session's, same GPU and point",
    ),
    Column(
        "drift_time_per_hour",
        pa.float64(),
        "relative change of the reference operations' time in this row's session, per hour",
    ),
    Column("drift_power_per_hour", pa.float64(), "likewise, power"),
)
"""Effects of card, host and session, from reference operations; null where there are none."""

COST_COLUMNS = (
    Column("time_device_corrected_s", pa.float64(), "`time_device_s` on the median card"),
    Column("time_device_corrected_standard_error_s", pa.float64(), "its standard error"),
    Column(
        "time_host_corrected_s",
        pa.float64(),
        "host time on the median host: of a call among others that share its backward pass (`time_host_in_pass_s`) "
        "where that was measured, else `time_host_s`",
    ),
    Column("time_host_corrected_standard_error_s", pa.float64(), "its standard error"),
    Column(costs.TIME_HOST_FROM, pa.string(), f"`{costs.MEASURED_IN_PASS}` or `{costs.MEASURED}`"),
    Column("time_eager_corrected_s", pa.float64(), "`time_eager_s` on the median card"),
    Column("time_eager_corrected_standard_error_s", pa.float64(), "its standard error"),
    Column("power_corrected_w", pa.float64(), "`power_w` on the median card"),
    Column("power_corrected_standard_error_w", pa.float64(), "its standard error"),
    Column(
        costs.ENERGY_CORRECTED, pa.float64(), "`energy_j` on the median card; at the power limit, at the lower clock"
    ),
    Column(
        "energy_dynamic_corrected_j",
        pa.float64(),
        "dynamic energy on the median card, unthrottled: `energy_dynamic_unthrottled_j` where that was measured, else "
        "`energy_dynamic_j` times a factor that other operations give for the lower clock",
    ),
    Column("energy_dynamic_corrected_standard_error_j", pa.float64(), "its standard error"),
    Column(
        costs.ENERGY_DYNAMIC_FROM,
        pa.string(),
        f"`{costs.MEASURED_UNTHROTTLED}`, `{costs.ESTIMATED_FROM_CLOCK}` or `{costs.MEASURED}`",
    ),
)
"""The costs of a call or pass; null where they are not known. A card or host whose level is not known is the median."""

_EXCLUDED = Column(
    costs.EXCLUDED, pa.string(), "why predictors do not learn from this operation; empty where they do", nullable=False
)


def dataset_name(catalogue_column: str) -> str:
    """Return the name in the dataset of a column of the catalogue."""
    return _CATALOGUE_NAMES.get(catalogue_column, catalogue_column)


def joined_columns(catalogue: pa.Schema) -> list[str]:
    """Return the columns of a catalogue table that a measurement does not have itself and therefore gets from it."""
    own = {*MEASUREMENT_SCHEMA.names, *_ONLY_IN_CATALOGUE} - set(_CATALOGUE_NAMES)
    return [name for name in catalogue.names if name not in own]


def _dataset_schema(kind: str, catalogue: pa.Schema | None, derived: tuple[Column, ...]) -> pa.Schema:
    joined = []
    if catalogue is not None:
        # nullable: a row whose subject has left the catalogue is kept, flagged `not_in_catalogue`
        joined = [
            pa.field(dataset_name(name), catalogue.field(name).type, nullable=True)
            for name in joined_columns(catalogue)
        ]
    metadata = {"kind": kind, "schema_version": str(SCHEMA_VERSION)}
    return pa.schema([*MEASUREMENT_SCHEMA, *joined, *(column.field for column in derived)], metadata=metadata)


OPERATIONS_SCHEMA = _dataset_schema("dataset operation", OPERATION_SCHEMA, (*LEVEL_COLUMNS, *COST_COLUMNS, _EXCLUDED))
NETWORKS_SCHEMA = _dataset_schema("dataset network", NETWORK_SCHEMA, (*LEVEL_COLUMNS, *COST_COLUMNS))
ANCHORS_SCHEMA = _dataset_schema("dataset anchor", None, LEVEL_COLUMNS)
DERIVED_COLUMNS = (*LEVEL_COLUMNS, *COST_COLUMNS, _EXCLUDED)
"""What the dataset adds to measurements of operations."""
