"""Counts of everything that is in a dataset and of everything that is missing from it: nothing is dropped silently."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from clockwatt.schema.flags import Flag
from clockwatt.schema.records import NETWORK, OK, OPERATION

NAMED_AT_MOST = 20
"""Largest number of missing operations or failures that are named; their count is always given."""
_MISSING = {OPERATION: "missing_operations", NETWORK: "missing_networks"}


@dataclass
class _Counts:
    rows: int = 0
    virtual_rows: int = 0
    by_kind: Counter[str] = field(default_factory=Counter)
    by_status: Counter[str] = field(default_factory=Counter)
    by_flag: Counter[str] = field(default_factory=Counter)

    def add(self, table: pa.Table) -> None:
        self.rows += table.num_rows
        self.virtual_rows += sum(table["virtual"].to_pylist())
        self.by_kind.update(table["kind"].to_pylist())
        self.by_status.update(table["status"].to_pylist())
        self.by_flag.update(flag for row in table["flags"].to_pylist() for flag in row or ())

    def report(self) -> dict[str, Any]:
        return {
            "rows": self.rows,
            "virtual_rows": self.virtual_rows,
            "by_kind": dict(sorted(self.by_kind.items())),
            "by_status": dict(sorted(self.by_status.items())),
            "by_flag": dict(sorted(self.by_flag.items())),
        }


class QualityReport:
    """Collects counts while the rows stream by; `report` gives what goes into quality.json."""

    def __init__(self, campaign: str) -> None:
        self._campaign = campaign
        self._all = _Counts()
        self._points: list[dict[str, Any]] = []
        self._counts = _Counts()
        self._failures: list[dict[str, Any]] = []
        self._references: dict[str, dict[str, int]] = {}

    def add(self, table: pa.Table) -> None:
        """Count a batch of rows of the current GPU and operating point."""
        self._all.add(table)
        self._counts.add(table)
        columns = ["kind", "subject_id", "pass", "execution", "status", "error"]
        failed = table.select(columns).filter(pc.field("status") != OK)
        self._failures += failed.slice(0, NAMED_AT_MOST - len(self._failures)).to_pylist()

    def add_reference(self, name: str) -> None:
        """Report that reference data was joined."""
        self._references[name] = {}

    def leave_out(self, reference: str, reason: str, rows: int) -> None:
        """Count rows of reference data that are not in the dataset."""
        if rows:
            left_out = self._references[reference]
            left_out[reason] = left_out.get(reason, 0) + rows

    def close_point(
        self,
        gpu: str,
        point: str,
        factors: pd.DataFrame,
        missing: Mapping[str, Iterable[tuple[str, str]]],
        references: Sequence[str] = (),
    ) -> None:
        """Finish a GPU and operating point.

        Parameters
        ----------
        gpu, point
            GPU and point.
        factors
            The factors of its cards, from `card_host_effects.card_factors`.
        missing
            Kind to what the campaign asks for and has no row, as (id, pass).
        references
            Names of the reference data that the rows are from, none for the campaign's own.
        """
        absent = {kind: sorted(keys) for kind, keys in missing.items()}
        self._points.append(
            {
                "gpu": gpu,
                "point": point,
                "reference": ", ".join(references) or None,
                **self._counts.report(),
                **{
                    _MISSING[kind]: {
                        "count": len(keys),
                        "first": [{"subject_id": key, "pass": name} for key, name in keys[:NAMED_AT_MOST]],
                    }
                    for kind, keys in absent.items()
                },
                "failures": self._failures,
                "cards": {
                    str(uuid): {name: None if pd.isna(value) else round(float(value), 6) for name, value in row.items()}
                    for uuid, row in factors.to_dict("index").items()
                },
            }
        )
        self._counts, self._failures = _Counts(), []

    def report(self) -> dict[str, Any]:
        """Return all counts, ready for JSON."""
        return {
            "campaign": self._campaign,
            **self._all.report(),
            "references": {name: {"rows_left_out": counts} for name, counts in self._references.items()},
            "flag_descriptions": {flag.value: flag.meaning for flag in Flag},
            "points": self._points,
        }
