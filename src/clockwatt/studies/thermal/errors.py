"""Errors raised when records or a fitted model are not sufficient."""

from clockwatt.errors import ClockwattError


class ThermalError(ClockwattError):
    """The records or the model do not answer this; the message says what to do."""
