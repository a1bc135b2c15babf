"""The command line: one file per command, each a call of one function.

Stages are imported where they are called: `clockwatt plan` must not wait for torch.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import pkgutil
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from clockwatt import cli
from clockwatt.cli.app import Answered, app
from clockwatt.errors import ClockwattError

_PANELS = {
    "Predict, without a GPU": (
        "predict", "recommend", "show", "compare", "layers", "fit_memory", "preflight",
    ),
    "Look at this machine": ("doctor", "card", "record", "timeline", "clocks", "thermal"),
    "Measure a campaign": (
        "init", "plan", "status", "catalogue", "calibrate", "measure", "importing", "dataset", "fit", "validate",
        "figures", "page",
    ),
}  # fmt: skip
"""Headings of the help, and the files whose commands stand below them; those of other files of this folder follow."""

_INTERRUPTED = 130
"""Status that typer makes of a KeyboardInterrupt."""

_files = {module.name for module in pkgutil.iter_modules(cli.__path__)} - {"main"}
_rest = sorted(_files.difference(*_PANELS.values()))
for _panel, _names in (_PANELS | {"Studies": tuple(_rest)}).items():
    for _name in _names:
        importlib.import_module(f"clockwatt.cli.{_name}")
    for _command in app.registered_commands:
        _command.rich_help_panel = _command.rich_help_panel or _panel
    for _group in app.registered_groups:
        _group.rich_help_panel = _group.rich_help_panel if isinstance(_group.rich_help_panel, str) else _panel


_OBJECTS = 50_000
"""New objects after which the collector of reference cycles looks for some: libraries have a million that stay."""


def _terminate(number: int, _frame: FrameType | None) -> NoReturn:
    """Turn a signal into an exception, so that clocks are released and files closed on the way out."""
    raise SystemExit(128 + number)


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    """Interrupt once: a second Ctrl-C must not disturb clocks being released."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


def _usage(error: Any) -> str:
    """Return what is wrong with the words of a command line, in a line."""
    near = getattr(error, "possibilities", None)  # the nearest option first
    text = f"{error.message}. Did you mean {near[0]}?" if near else error.format_message()
    text = text.partition(", unable to parse")[0]  # pydantic says the same twice
    see = f" See `{error.ctx.command_path} --help`." if error.ctx else ""
    return f"error: {text[0].lower()}{text[1:]}{'' if text[-1] in '.?' else '.'}{see}"


def main() -> NoReturn:
    """Run the command line; what a user can mend is shown as one message."""
    signal.signal(signal.SIGTERM, _terminate)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not where it is ignored, as after nohup
        signal.signal(signal.SIGINT, _interrupt)
    try:
        Path.cwd()
    except FileNotFoundError:
        print("error: the working directory was removed. Change to another one.", file=sys.stderr)
        sys.exit(1)
    if not os.access(".", os.X_OK):
        print("error: this user may not enter the working directory. Change to another one.", file=sys.stderr)
        sys.exit(1)
    try:
        status = app(prog_name="clockwatt", standalone_mode=False)
    except Answered:
        os._exit(0)
    except ClockwattError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    except Exception as error:
        if not hasattr(error, "format_message"):  # typer's class of wrong usage is private
            raise
        print(error if error.__class__.__name__ == "NoArgsIsHelpError" else _usage(error), file=sys.stderr)
        sys.exit(2)
    if status == _INTERRUPTED and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # by `_interrupt`
        print("error: interrupted. Finished work is kept; run the same command to continue.", file=sys.stderr)
    sys.exit(status)


def run() -> NoReturn:
    """Run the command line in a process of its own, which ends without freeing a thousand modules."""
    gc.set_threshold(_OBJECTS)
    statuses = list[int]()
    if "multiprocessing.util" not in sys.modules:  # what is registered later is called before
        atexit.register(_leave, statuses)
    try:
        main()
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            statuses.append(ended.code or 0)
        raise


def _leave(statuses: list[int]) -> None:
    """End at once with this status; without one, as an interpreter does."""
    if statuses:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:  # closed before the start
                stream.flush()
        os._exit(statuses[0])


if __name__ == "__main__":
    run()
