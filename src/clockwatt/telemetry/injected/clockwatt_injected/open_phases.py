"""Phases that a framework's callback has begun and not ended."""

from __future__ import annotations

from typing import Any

from clockwatt_injected import marks


class OpenPhases:
    """A pile of phases, the innermost on top."""

    def __init__(self) -> None:
        self._open: list[tuple[str, Any]] = []

    def begin(self, name: str, index: int | None = None) -> None:
        """Begin a phase within those that are open."""
        opened = marks.phase(name, index)
        opened.__enter__()
        self._open.append((name, opened))

    def end(self, name: str) -> None:
        """End the innermost phase of this name, and whatever was left open within it; without one, nothing."""
        if all(known != name for known, _ in self._open):
            return
        while self._open:
            known, opened = self._open.pop()
            opened.__exit__(None, None, None)
            if known == name:
                return
