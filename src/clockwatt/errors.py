"""The one family of errors a user is shown as a message instead of a traceback."""

import difflib


class ClockwattError(Exception):
    """Something the user can put right; the message names the file, key or row and the fix."""


class ConfigError(ClockwattError):
    """The configuration says something it may not say."""


class DataFileError(ClockwattError):
    """A data file is missing, damaged, or not of the kind that was expected."""


class DamagedFileError(DataFileError):
    """A data file is not what was written to it: bits flipped, or its end is missing."""


class NetworkError(ClockwattError):
    """A network cannot be found, built or run."""


class OutputError(ClockwattError):
    """A result could not be written (full disk, unwritable folder).

    Parameters
    ----------
    what
        What could not be written and why, a sentence; kept as an attribute.
    fix
        What to do; a caller that knows better says so itself.
    """

    def __init__(self, what: str, fix: str = "") -> None:
        super().__init__(f"{what} {fix}".rstrip())
        self.what = what


def did_you_mean(name: str, known: list[str]) -> str:
    """Return the end of a sentence about an unknown name."""
    close = difflib.get_close_matches(name, known, n=3)
    return f"; did you mean {', '.join(close)}?" if close else "."
