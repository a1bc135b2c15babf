"""Estimate how far short measurements deviate from a sustained one, beyond their own errors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from clockwatt.measure.statistics import NORMAL_95, Estimate
from clockwatt.schema.costs import Measured
from clockwatt.schema.records import MeasurementRow


def deviation_from(
    sustained: Mapping[str, MeasurementRow], short: Sequence[MeasurementRow], measured: Measured
) -> Estimate | None:
    """Return relative deviation of short measurements from sustained ones, pooled over operations, as a standard error.

    Root mean square, of which for each operation the variance that the measurements' own errors explain is taken off,
    as between groups in a one-way analysis of variance; where they explain more than there is, none is left. Deviations
    of one operation share its sustained measurement, so operations are what is sampled: with few of them the deviation
    is widened as Student's t distribution with as many degrees of freedom is wider than a normal one.

    Parameters
    ----------
    sustained
        One measurement of each operation, by subject.
    short
        Several of each.
    measured
        What is compared.

    Returns
    -------
    Estimate or None
        None if nothing can be compared. The error is that of a standard deviation of normal samples.
    """
    squares: dict[str, list[float]] = defaultdict(list)
    for row in short:
        if row.subject_id not in sustained:
            continue
        value, error = measured.of(row)
        reference, reference_error = measured.of(sustained[row.subject_id])
        if value is not None and error is not None and reference and reference_error is not None:
            squares[row.subject_id].append(
                (value / reference - 1) ** 2 - (error / reference) ** 2 - (reference_error / reference) ** 2
            )
    if not squares:
        return None
    variances = [max(0.0, float(np.mean(of_one))) for of_one in squares.values()]
    number = sum(len(of_one) for of_one in squares.values())
    deviation = float(np.sqrt(np.mean(variances)))
    from scipy.special import stdtrit  # a third of a second that a finished shard does not need

    wider = float(stdtrit(len(variances), 0.975)) / NORMAL_95
    return Estimate(wider * deviation, wider * deviation / float(np.sqrt(2 * number)), number)
