"""Inputs of a workload: its sizes, and the arrays that it computes on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from clockwatt.errors import ClockwattError


@dataclass(frozen=True)
class Size:
    """A size of a workload, which its command takes as an option.

    Attributes
    ----------
    name
        `batch`, `options` …
    value
        As in the study.
    meaning
        For the help.
    scaled
        Whether `--scale` changes it.
    least, most
        What it may be; `most` is None where there is no bound.
    multiple
        It is a multiple of this.
    """

    name: str
    value: int
    meaning: str
    scaled: bool = True
    least: int = 1
    most: int | None = None
    multiple: int = 1

    def at(self, scale: float) -> int:
        """Return the size at a scale: 1 is that of the study."""
        if not self.scaled:
            return self.value
        wanted = max(self.least, round(self.value * scale / self.multiple) * self.multiple)
        return wanted if self.most is None else min(wanted, self.most)

    def checked(self, value: int, what: str) -> int:
        """Return a size that a user gave.

        Parameters
        ----------
        value
            What was given.
        what
            Where, for the message.

        Raises
        ------
        ClockwattError
            If it may not be so.
        """
        if value < self.least or (self.most is not None and value > self.most) or value % self.multiple:
            most = "" if self.most is None else f" and at most {self.most:,}"
            multiple = "" if self.multiple == 1 else f" and a multiple of {self.multiple}"
            raise ClockwattError(
                f"{what}: {self.name} is {value:,}, but must be at least {self.least:,}{most}{multiple}."
            )
        return value


@dataclass(frozen=True)
class Array:
    """Numbers that a workload computes on: made, or read from `NAME.npy` in the folder that a user gives.

    Attributes
    ----------
    name
        Also of the file.
    shape
        A whole number is that length; a name is a size of the workload, which a file's own length stands in for.
    kind
        `float` (read as float32), `index` (whole numbers from 0, read as int64) or `image` (bytes).
    below
        Size that indices stay below.
    """

    name: str
    shape: tuple[str | int, ...]
    kind: Literal["float", "index", "image"] = "float"
    below: str | None = None

    @property
    def in_words(self) -> str:
        """Return the text for `--help`: `images.npy, bytes (images, 3, height, width)`."""
        kinds = {"float": "floating point", "image": "bytes", "index": f"whole numbers below {self.below or 'any'}"}
        return f"{self.name}.npy, {kinds[self.kind]} ({', '.join(map(str, self.shape))})"
