"""Asking the helper that an administrator installed: by sudo, one verb at a time, answered in a line of JSON."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import time
from pathlib import Path
from typing import Any

from clockwatt.config import ControlConfig, OperatingPoint
from clockwatt.control.methods import Advice, ControlError, Method, ReleaseError
from clockwatt.gpu.interface import GpuError, NoPermissionError, NotSupportedError

VERBS = {"memory_clock_mhz": "lock-memory", "sm_clock_mhz": "lock", "power_limit_w": "power-limit"}
"""Verbs in the order of setting: the available SM clocks depend on the memory clock."""


class SlurmAwayError(ControlError):
    """The helper could not ask Slurm's controller whether this job holds the GPU; it may soon be able to."""


_ERRORS: dict[int, type[GpuError]] = {3: NoPermissionError, 4: NotSupportedError, 9: SlurmAwayError}
"""By the helper's exit codes, which its head documents."""

_ASK_AGAIN_AFTER_S = (2, 5, 10)
"""A controller that starts anew answers within seconds. No longer: signals wait while a GPU is being set."""


class HelperMethod(Method):
    """Has the helper set the GPU; it puts everything back when this process ends, however it ends."""

    locks_by_hand = resets_by_hand = True
    _has_set = False

    @classmethod
    def advice(cls) -> Advice:
        """See `Method`: it sets clocks inside a Slurm job."""
        helper = ControlConfig().helper
        if not Path(helper).exists():
            return Advice(
                False,
                f"{helper} is not installed here",
                "an administrator can install it: privileged/README.md",
            )
        if _no_new_privileges():
            return Advice(
                False, "this process may not gain privileges (no_new_privs), so sudo cannot work",
                "run outside of the container, or use the method command or slurm",
            )  # fmt: skip
        try:
            answer = ask(helper, "status")
        except GpuError as error:
            return Advice(False, str(error))
        if answer["job"] is None:
            return Advice(True, "works in Slurm jobs, and outside of them for users that its configuration names")
        return Advice(True, f"works for the GPUs of job {answer['job']}")

    def apply(self, point: OperatingPoint) -> None:
        """See `Method`."""
        for setting, verb in VERBS.items():
            if (value := point.settings.get(setting)) is not None:
                self._set(verb, str(value))
                self._has_set = True

    def _set(self, verb: str, value: str) -> None:
        words = (verb, self._gpu.identity.uuid, value)
        for pause_s in _ASK_AGAIN_AFTER_S:
            with contextlib.suppress(SlurmAwayError):
                ask(self._control.helper, *words)
                return
            time.sleep(pause_s)
        ask(self._control.helper, *words)

    def release(self) -> None:
        """See `Method`."""
        if not self._has_set:
            return
        self._has_set = False
        try:
            ask(self._control.helper, "reset", self._gpu.identity.uuid)
        except GpuError as error:
            raise ReleaseError(
                f"THE GPU MAY NOT BE AS IT WAS: {error} The helper puts it back when this process has ended; if not, "
                f"an administrator does by `{self._control.helper} restore all`."
            ) from error

    def reset(self) -> str:
        """See `Method`: what this job had set."""
        was_set = ask(self._control.helper, "reset", self._gpu.identity.uuid)["reset"]
        return "put back" if was_set else "nothing of this job's was set"


def _no_new_privileges() -> bool:
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return re.search(r"^NoNewPrivs:\s*1$", status, re.MULTILINE) is not None


def ask(helper: str, *words: str) -> dict[str, Any]:
    """Return the helper's answer.

    The process that calls this is the one whose end the helper waits for.

    Raises
    ------
    NoPermissionError, NotSupportedError, ControlError
        With the helper's reason, or sudo's.
    """
    if not helper.startswith("/"):
        raise ControlError(
            f"control.helper {helper}: sudo needs an absolute path. Write {ControlConfig().helper}, or where it is."
        )
    command = ["sudo", "-n", helper, *words]
    try:
        # in a session of its own, so that Ctrl-C does not reach sudo in the middle of a setting
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, start_new_session=True
        )
    except FileNotFoundError:
        raise ControlError("control.method helper needs sudo, which is not installed here.") from None
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        complaint = (done.stderr.strip().splitlines() or ["nothing"])[-1]
        raise ControlError(
            f"`{' '.join(command)}` says {complaint!r}: the helper is not installed here, or you may not use it. Ask "
            "the administrator (privileged/README.md), or choose another control.method (`clockwatt doctor`)."
        ) from None
    if done.returncode != 0:
        raise _ERRORS.get(done.returncode, ControlError)(f"control.method helper: {answer['error']}.")
    return answer


METHOD = HelperMethod
