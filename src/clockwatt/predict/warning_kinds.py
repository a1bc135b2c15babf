"""Kinds of warnings that commands select by."""

from __future__ import annotations

from enum import Enum, auto


class WarningKind(Enum):
    """What a warning is about, where commands treat it in another way than others."""

    DIFFERENT_HOSTS = auto()
    DOES_NOT_FIT = auto()
    EMULATED_PRECISION = auto()
    NO_HOST_TIME = auto()


class AnswerWarning(str):
    """A sentence for the user, with its kind."""

    kind: WarningKind | None

    def __new__(cls, text: str, kind: WarningKind | None = None) -> AnswerWarning:
        """Return a warning; None is for copies, which get their kind afterwards."""
        warning = super().__new__(cls, text)
        warning.kind = kind
        return warning


def is_of(warning: str, kind: WarningKind) -> bool:
    """Return whether a warning is of a kind."""
    return isinstance(warning, AnswerWarning) and warning.kind is kind
