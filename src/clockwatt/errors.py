"""The one family of errors a user is shown as a message instead of a traceback."""

from __future__ import annotations

import difflib
import re


class ClockwattError(Exception):
    """Something the user can put right; the message names the file, key or row and the fix.

    Parameters
    ----------
    what
        What is wrong, a sentence, with the fix where that is the same everywhere; kept as an attribute.
    fix
        What to do; kept as an attribute. A caller that knows better replaces it.
    """

    def __init__(self, what: str, fix: str = "") -> None:
        super().__init__(f"{what} {fix}".rstrip())
        self.what, self.fix = what, fix


class ConfigError(ClockwattError):
    """The configuration says something it may not say."""


class RequestError(ClockwattError):
    """A request that cannot be answered as it was made.

    Parameters
    ----------
    text
        What is wrong, and the fix. Fields of `predict.request.Request` stand in braces: the message names them as the
        Python API does, `as_options` as the command line does.
    """

    def __init__(self, text: str) -> None:
        super().__init__(_FIELD.sub(lambda field: _IN_PYTHON.get(field[1], field[1]), text))
        self.text = text

    def as_options(self) -> str:
        """The message with `--input-dtype` where Python has `input_dtype`."""
        return _FIELD.sub(lambda field: "--" + _OPTIONS.get(field[1], field[1].strip("_").replace("_", "-")), self.text)


_OPTIONS = {
    "config_file": "config",
    "power_cap_w": "power-cap",
    "inputs": "input",
    "gpus": "gpu",
    "points": "point",
    "precisions": "precision",
    "stages": "stage",
    "counts": "gpus-per-node",
    "node_counts": "nodes",
    "strategies": "strategy",
    "training": "pass training",
}
"""Options of the command line that do not go by the name of their field."""

_IN_PYTHON = {"training": "training=True"}
"""What the Python API takes that is no field."""

_FIELD = re.compile(r"\{([a-z_0-9]+)\}")


class DataFileError(ClockwattError):
    """A data file is missing, damaged, or not of the kind that was expected."""


class DamagedFileError(DataFileError):
    """A data file is not what was written to it: bits flipped, or its end is missing."""


class NetworkError(ClockwattError):
    """A network cannot be found, built or run."""


class IndexBeyondEndError(NetworkError):
    """A network reads beyond the end of a dimension, as a sequence does that is longer than its table of positions."""


class OutputError(ClockwattError):
    """A result could not be written (full disk, unwritable folder)."""


def did_you_mean(name: str, known: list[str]) -> str:
    """Return the end of a sentence about an unknown name."""
    close = difflib.get_close_matches(name, known, n=3)
    return f"; did you mean {', '.join(close)}?" if close else "."
