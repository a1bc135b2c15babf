"""A command that keeps a GPU as it is asked for as long as it runs."""

from __future__ import annotations

import contextlib
import errno
import os
import pty
import select
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence

from clockwatt.control.methods import ControlError, ReleaseError

_GRACE_S = 5.0
_POLL_S = 0.02
_REMEMBERED_BYTES = 4096


class HeldCommand:
    """Runs on a terminal of its own.

    Below sudo a command belongs to root, and its caller may not send it a signal; but what the terminal sends (Ctrl-C,
    and a hang-up when the caller is gone, however it went) reaches it all the same.

    Parameters
    ----------
    words
        The command and its arguments.
    environment
        Its environment.
    """

    def __init__(self, words: Sequence[str], environment: Mapping[str, str]) -> None:
        self._words = list(words)
        self._said = b""
        self._hung_up = threading.Event()
        self._terminal, end = pty.openpty()
        try:
            self._process = subprocess.Popen(
                ["setsid", "--ctty", *words], stdin=end, stdout=end, stderr=end, env=dict(environment)
            )
        except OSError:
            os.close(self._terminal)
            raise
        finally:
            os.close(end)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_until_held(self, timeout_s: float, mark: str | None = None) -> None:
        """Wait until the command has printed `mark`; without one, until it has run for the whole time.

        Raises
        ------
        ControlError
            If it ends before, or does not print it in time.
        """
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if mark is not None and mark.encode() in self._said:
                return
            if self._process.poll() is not None:
                self._reader.join(_GRACE_S)
                raise ControlError(f"{self} ended at once. It must run for as long as the clock is needed.")
            time.sleep(_POLL_S)
        if mark is not None:
            raise ControlError(f"{self} did not start within {timeout_s:g} s.")

    def stop(self) -> None:
        """End the command: by SIGTERM, by Ctrl-C, by hanging up.

        Raises
        ------
        ReleaseError
            If it runs on regardless.
        """
        # the leader of a session: its group is what a script started as well, such as a `sleep`
        for end in (self._terminate, self._interrupt, self._hang_up):
            with contextlib.suppress(PermissionError, ProcessLookupError):
                end()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(_GRACE_S)
                    break
        self._hang_up()
        if self._process.poll() is None:
            raise ReleaseError(f"THE GPU IS NOT AS IT WAS: {self} does not end. An administrator has to end it.")

    def _terminate(self) -> None:
        os.killpg(self._process.pid, signal.SIGTERM)

    def _interrupt(self) -> None:
        os.write(self._terminal, b"\x03")

    def _hang_up(self) -> None:
        if not self._hung_up.is_set():
            self._hung_up.set()
            self._reader.join()  # a terminal that is being read is not closed
            os.close(self._terminal)

    def _read(self) -> None:
        """Keep the terminal from filling up; remember the last words."""
        poll = select.poll()  # where select.select() refuses a process with a thousand open files
        poll.register(self._terminal, select.POLLIN)
        while not self._hung_up.is_set():
            if poll.poll(1000 * _POLL_S):
                try:
                    self._said = (self._said + os.read(self._terminal, 4096))[-_REMEMBERED_BYTES:]
                except OSError as error:
                    if error.errno == errno.EIO:  # what a terminal says when its other end is closed
                        return
                    raise

    def __str__(self) -> str:
        last_words = " ".join(self._said.decode(errors="replace").split())
        return f"`{' '.join(self._words)}` (last words: {last_words[-300:]!r})"
