"""Within a script that `clockwatt preflight` runs: pretends to have a GPU, and ends the script with a report."""

from __future__ import annotations

import atexit
import json
import os
import re
import sys
import threading
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from clockwatt.cli.pretend import NO_STEP, PretendedRun
from clockwatt.errors import ClockwattError, NetworkError

if TYPE_CHECKING:
    from clockwatt.operations.pretend.tracer import Step

_STEPS = 2
"""Steps after which a script has shown what one costs: the first makes the optimizer's state."""


_FAULTS = {
    True: ("fails by itself, on a GPU too", "Correct it, install what it imports, or give the file that it reads."),
    False: ("fails without a GPU or real data", "Correct it, or leave that part out."),
}
"""What is said of a script that fails, and the fix, by whether the fault is its own."""


def _is_of_the_script(error: BaseException) -> bool:
    """Whether a script would fail with this error on a machine with a GPU."""
    if isinstance(error, AttributeError):
        return isinstance(error.obj, ModuleType) and "cuda" not in error.obj.__name__
    return isinstance(error, ImportError | NameError | SyntaxError | OSError) and "cuda" not in str(error).lower()


class _Script(PretendedRun):
    """The script of this process; what it prints goes to standard error."""

    def __init__(self, asked: dict[str, Any]) -> None:
        from clockwatt.predict.api import load
        from clockwatt.predict.request import Request

        request = Request.of(gpus=(asked["gpu"],), points=(asked["point"],), host=asked["host"])
        super().__init__(_name(), load(), request)
        self._asked = asked
        self._steps = 0
        self._process = os.getpid()
        self._exit = os._exit
        self._output = os.dup(1)
        os.dup2(2, 1)

    def take(self, step: Step) -> None:
        """Keep a step; report after the second."""
        super().take(step)
        self._steps += 1
        if self._steps == _STEPS:
            self.end(at_once=True)

    def end(self, *, at_once: bool = False) -> None:
        """Report; does nothing in a process that the script has started.

        The script has ended, and its exit status stands, unless it is to end `at_once`.
        """
        if os.getpid() != self._process:
            return
        self.__exit__(None, None, None)
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(self._output, 1)
        status = 0
        try:
            if self.step is None:  # the command says so, unless another process of the script reports
                return
            print(file=sys.stderr, flush=True)  # a bar of progress may have left its line open
            if self._asked["json"]:
                from clockwatt.cli.printing import print_json

                print_json(self.answer, {})
            else:
                self.report(verbose=self._asked["verbose"])
        except ClockwattError as error:
            print(f"error: {error}", file=sys.stderr)
            status = 1
        if at_once or status:
            self.leave(status)
        Path(self._asked["told"]).touch()

    def leave(self, status: int) -> NoReturn:
        """End the process at once, without what the script would do at its end."""
        Path(self._asked["told"]).touch()
        sys.stdout.flush()
        sys.stderr.flush()
        self._exit(status)

    def exit(self, status: int) -> NoReturn:
        """Report, and end the process at once, as a script that calls `os._exit` does."""
        self.end()
        self._exit(status)


def begin() -> None:
    """Pretend from now on; called when the script has imported torch."""
    script = _Script(json.loads(os.environ["CLOCKWATT_PREFLIGHT"]))
    script.__enter__()
    atexit.register(script.end)
    os._exit = script.exit
    shown = sys.excepthook

    def failed(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        from clockwatt.operations.constructors import summary
        from clockwatt.operations.trace.refusals import line_of_network

        if os.getpid() != script._process:
            shown(kind, error, trace)
            return
        if isinstance(error, NetworkError):
            print(f"error: {error}", file=sys.stderr)
        else:
            shown(kind, error, trace)
            if not isinstance(error, KeyboardInterrupt):
                where, own = line_of_network(error), _is_of_the_script(error)
                what, fix = _FAULTS[own]
                fix = f"It {NO_STEP}" if script.learns_without_optimizer and not own else fix
                place = f"; {where}" if where else ""
                print(f"error: {script.program}: {what} ({summary(error)}{place}). {fix}", file=sys.stderr)
        script.leave(1)

    sys.excepthook = failed
    shown_of_thread = threading.excepthook

    def failed_in_thread(fault: threading.ExceptHookArgs) -> None:
        shown_of_thread(fault)
        if os.getpid() == script._process and re.search("cuda|nvidia", str(fault.exc_value), re.IGNORECASE):
            name = fault.thread.name if fault.thread else "a thread"
            print(f"error: {script.program}: {name} uses the GPU. Train in the main thread.", file=sys.stderr)
            script.leave(1)

    threading.excepthook = failed_in_thread


def _name() -> str:
    """Name of the script, which Python knows only later if it runs a module."""
    words = sys.orig_argv[1:]
    named = [
        word for before, word in zip([None, *words], words, strict=False) if before == "-m" or word.endswith(".py")
    ]
    return Path(named[0]).name if named else "the script"
