"""The command line: one file per command, each a call of one function.

Stages are imported where they are called: `clockwatt plan` must not wait for torch.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import signal
import sys
from types import FrameType
from typing import NoReturn

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

_files = {module.name for module in pkgutil.iter_modules(cli.__path__)} - {"main"}
_rest = sorted(_files.difference(*_PANELS.values()))
for _panel, _names in (_PANELS | {"Studies": tuple(_rest)}).items():
    for _name in _names:
        importlib.import_module(f"clockwatt.cli.{_name}")
    for _command in app.registered_commands:
        _command.rich_help_panel = _command.rich_help_panel or _panel
    for _group in app.registered_groups:
        _group.rich_help_panel = _group.rich_help_panel if isinstance(_group.rich_help_panel, str) else _panel


def _terminate(number: int, _frame: FrameType | None) -> NoReturn:
    """Turn a signal into an exception, so that clocks are released and files closed on the way out."""
    raise SystemExit(128 + number)


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    """Interrupt once: a second Ctrl-C must not disturb clocks being released."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


def main() -> NoReturn:
    """Run the command line; a `ClockwattError` is shown as one message."""
    signal.signal(signal.SIGTERM, _terminate)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not where it is ignored, as after nohup
        signal.signal(signal.SIGINT, _interrupt)
    try:
        app(prog_name="clockwatt")
    except Answered:
        os._exit(0)
    except ClockwattError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("error: interrupted. Finished work is kept; run the same command to continue.", file=sys.stderr)
        sys.exit(130)
    sys.exit(0)


if __name__ == "__main__":
    main()
