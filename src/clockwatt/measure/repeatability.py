"""How much measurements of one and the same operation differ beyond their own errors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from clockwatt.measure.statistics import Estimate
from clockwatt.records import MeasurementRow


def between_measurements(rows: Sequence[MeasurementRow], quantity: str, unit: str) -> Estimate | None:
    """Relative standard deviation between measurements of the same operation, pooled over operations.

    The variance that the rows' own errors explain is taken off, as between groups in a one-way analysis of variance.

    Parameters
    ----------
    rows
        Several of each operation.
    quantity, unit
        Column without and with its unit: `time_host` and `s`, or `power` and `w`.

    Returns
    -------
    Estimate or None
        None if no operation was measured twice. The error is that of a standard deviation of normal samples.
    """
    by_subject: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in rows:
        value = getattr(row, f"{quantity}_{unit}")
        error = getattr(row, f"{quantity}_standard_error_{unit}")
        if value is not None and error is not None:
            by_subject[row.subject_id].append((value, error / value))
    squares, explained, freedom = 0.0, [], 0
    for measured in by_subject.values():
        values = np.array([value for value, _ in measured])
        relative = values / values.mean() - 1
        squares += float(relative @ relative)
        freedom += values.size - 1
        explained += [error**2 for _, error in measured]
    if freedom == 0:
        return None
    deviation = float(np.sqrt(max(0.0, squares / freedom - float(np.mean(explained)))))
    return Estimate(deviation, deviation / float(np.sqrt(2 * freedom)), freedom + len(by_subject))
