"""Quality flags: what each means, who raises it, and whether predictors learn from its rows."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    import pandas as pd


class RaisedBy(StrEnum):
    """The stage that raises a flag."""

    MEASURE = "measure"
    DATASET = "dataset"
    IMPORT = "import"


class LearntFrom(StrEnum):
    """Whether predictors learn from rows with a flag."""

    YES = "yes"
    NO = "no"
    INCOMPLETE = "no: a cost is not known"
    IF_POWER_CAPPED = "only with `power_capped`"
    IF_UNTHROTTLED = "only where its energy was measured unthrottled too"


class Flag(StrEnum):
    """A reason to doubt a row. Rows keep the flags that measuring gave them; the dataset adds its own.

    Attributes
    ----------
    meaning
        What it says, in words.
    raised_by
        By which stage.
    learnt_from
        Whether predictors learn from operations that have it.
    """

    meaning: str
    raised_by: RaisedBy
    learnt_from: LearntFrom

    def __new__(cls, name: str, meaning: str, raised_by: RaisedBy, learnt_from: LearntFrom = LearntFrom.YES) -> Self:
        """Return a member that is its name."""
        member = str.__new__(cls, name)
        member._value_ = name
        member.meaning, member.raised_by, member.learnt_from = meaning, raised_by, learnt_from
        return member

    CLOCK_OFF_TARGET = (
        "clock_off_target",
        "the SM clock under load was more than 2 % off the one asked for",
        RaisedBy.MEASURE,
        LearntFrom.IF_POWER_CAPPED,
    )
    MEMORY_CLOCK_OFF_TARGET = (
        "memory_clock_off_target",
        "the memory clock under load was more than 2 % off the one asked for",
        RaisedBy.MEASURE,
    )
    SENSORS_DISAGREE = (
        "sensors_disagree",
        "two estimates of power differ by more than 3 % and more than their errors explain",
        RaisedBy.MEASURE,
    )
    NO_POWER = (
        "no_power",
        "power could not be read during the measurement",
        RaisedBy.MEASURE,
        LearntFrom.INCOMPLETE,
    )
    NOT_STATIONARY = (
        "not_stationary",
        "time or power still changed when measuring began, or by more than 2 % within the window",
        RaisedBy.MEASURE,
    )
    TEMPERATURE_DRIFT = (
        "temperature_drift",
        "the card's temperature changed by more than 5 K within the measurement",
        RaisedBy.MEASURE,
    )
    INTERRUPTED = (
        "interrupted",
        "the process or the card stood still for half a second or more within the window",
        RaisedBy.MEASURE,
        LearntFrom.NO,
    )
    COUNTER_WRAPPED = (
        "counter_wrapped",
        "the energy counter went backwards; it was not used",
        RaisedBy.MEASURE,
    )
    NOT_QUEUEABLE = (
        "not_queueable",
        "the call waits for the device, or is too long for the launch queue: its device time is not known",
        RaisedBy.MEASURE,
        LearntFrom.INCOMPLETE,
    )
    POWER_CAPPED = (
        "power_capped",
        "slowed by the power limit: what this operation always does at this operating point",
        RaisedBy.DATASET,
    )
    HARDWARE_THROTTLED = (
        "hardware_throttled",
        "slowed by temperature or by the board (see throttle_reasons): cannot be repeated at will",
        RaisedBy.DATASET,
        LearntFrom.NO,
    )
    NO_DYNAMIC_ENERGY = (
        "no_dynamic_energy",
        "power under load was not above idle power: predictors learn no dynamic energy from it",
        RaisedBy.DATASET,
        LearntFrom.IF_UNTHROTTLED,
    )
    CARD_DIFFERS = (
        "card_differs",
        "reference operations on this card are more than 2 % off the median card",
        RaisedBy.DATASET,
    )
    CARD_DRIFT = ("card_drift", "reference operations changed by more than 2 % within the session", RaisedBy.DATASET)
    HOST_UNSTEADY = (
        "host_unsteady",
        "reference operations disagree about the host's speed by more than 10 %: host-bound times cannot be repeated",
        RaisedBy.DATASET,
    )
    NOT_IN_CATALOGUE = (
        "not_in_catalogue",
        "the catalogue no longer has what was measured",
        RaisedBy.DATASET,
        LearntFrom.NO,
    )
    GRADIENT_ACCUMULATED = (
        "gradient_accumulated",
        "each training iteration was added to the same gradient of the input, which takes longer than a fresh one",
        RaisedBy.IMPORT,
    )
    HOST_BOUND = ("host_bound", "the time is that of issuing the call, not of executing it", RaisedBy.IMPORT)
    REPETITIONS_DISAGREE = (
        "repetitions_disagree",
        "repetitions differ by more than 20 % in time or power",
        RaisedBy.IMPORT,
    )
    DOUBTFUL = (
        "doubtful",
        "its source doubts the value, or repetitions differ more than fivefold in time",
        RaisedBy.IMPORT,
        LearntFrom.NO,
    )


NEVER_LEARNT_FROM = tuple(flag for flag in Flag if flag.learnt_from is LearntFrom.NO)
"""Flags of rows that say what cannot be repeated, or of which nothing more is known."""


def flagged(rows: pd.DataFrame, *names: str) -> pd.Series:
    """Return which rows have one of these flags; boolean, with the index of `rows`."""
    return rows["flags"].map(lambda own: not set(names).isdisjoint(() if own is None else own)).astype(bool)
