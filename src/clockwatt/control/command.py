"""The site's own script, as a template: one command to set and one to reset, or one that holds while it runs."""

from __future__ import annotations

import os
import shlex
import subprocess

from clockwatt.config import OperatingPoint, placeholders
from clockwatt.control.lock_process import HeldCommand
from clockwatt.control.methods import Advice, ControlError, Method, ReleaseError

_HELD_AFTER_S = 0.3
"""Time, in s, after which a command that has not failed is assumed to hold the clocks; `verify` checks it."""


class CommandMethod(Method):
    """Runs `control.set_command`, and then `control.reset_command` or ends it."""

    _held: HeldCommand | None = None
    _reset: list[str] | None = None

    @property
    def stays_set(self) -> bool:
        """See `Method`."""
        return self._control.reset_command is not None

    @classmethod
    def advice(cls) -> Advice:
        """See `Method`."""
        return Advice(
            False, "needs a program of your site that sets clocks",
            "name it in control.set_command: config/README.md",
        )  # fmt: skip

    def apply(self, point: OperatingPoint) -> None:
        """See `Method`."""
        if point.is_default:
            return
        words = self._words(self._control.set_command or "", point)
        if self._control.reset_command is not None:
            self._reset = self._words(self._control.reset_command, point)
            _run(words)
            return
        self._held = HeldCommand(words, os.environ)
        self._held.wait_until_held(_HELD_AFTER_S)

    def release(self) -> None:
        """See `Method`."""
        reset, self._reset = self._reset, None
        held, self._held = self._held, None
        if held is not None:
            held.stop()
        if reset is not None:
            try:
                _run(reset)
            except ControlError as error:
                raise ReleaseError(f"THE GPU IS NOT AS IT WAS. {error}") from error

    def _words(self, template: str, point: OperatingPoint) -> list[str]:
        """Return the template's words, filled in one by one: what a value contains is never split or run by a shell."""
        uuid = self._gpu.identity.uuid
        values: dict[str, object] = {"uuid": uuid, **point.settings}
        wanted = placeholders(template)
        if "index" in wanted:
            values["index"] = self._gpu.index()
        missing = sorted(wanted - values.keys())
        if missing:
            raise ControlError(
                f"control: `{template}` needs {{{missing[0]}}}, which {point} does not set: give every operating point "
                "one, or measure the others under another GPU label with a command that does not need it."
            )
        return [word.format(**values) for word in shlex.split(template)]


def _run(words: list[str]) -> None:
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    except OSError as error:
        raise ControlError(f"control: `{' '.join(words)}` cannot be run ({error.strerror}).") from error
    if done.returncode != 0:
        complaint = " ".join((done.stderr or done.stdout).split())[-300:]
        raise ControlError(f"control: `{' '.join(words)}` ended with {done.returncode}: {complaint or 'no message'}")


METHOD = CommandMethod
