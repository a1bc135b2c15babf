"""What the user is told when records or a fitted model do not say enough."""

from clockwatt.errors import ClockwattError


class ThermalError(ClockwattError):
    """The records or the model do not answer this; the message says what to do."""
