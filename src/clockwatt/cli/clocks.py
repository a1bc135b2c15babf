"""`clockwatt clocks`: clocks and power limit by hand."""

from __future__ import annotations

from typing import Annotated

import typer

from clockwatt import config
from clockwatt.cli.app import App, app, examples
from clockwatt.cli.options import ClockMethod, OneGpu
from clockwatt.config import OperatingPoint
from clockwatt.errors import ClockwattError

clocks_app = App(
    no_args_is_help=True,
    help="Show, lock or reset the clocks of a GPU by hand.",
    epilog=examples("clockwatt clocks show", "clockwatt clocks lock sm1440 --gpu 0"),
)
app.add_typer(clocks_app, name="clocks")


@clocks_app.command("show", epilog=examples("clockwatt clocks show"))
def clocks_show() -> None:
    """Show clocks and limits, and the values that can be set."""
    from clockwatt.control import manual

    manual.show()


@clocks_app.command(
    "lock",
    epilog=examples("clockwatt clocks lock sm1440 --gpu 0", "clockwatt clocks lock sm1440-mem5001 --method helper"),
)
def clocks_lock(
    point: Annotated[str, typer.Argument(help="Operating point: sm1440, sm1440-mem5001, pl150 …")],
    gpu: OneGpu = None,
    method: ClockMethod = "nvml",
) -> None:
    """Lock a GPU until `reset`; with helper or slurm until Ctrl-C."""
    from clockwatt.control import manual
    from clockwatt.control.registry import NAMES, method_named

    known = [name for name in NAMES if method_named(name).locks_by_hand]
    manual.lock(OperatingPoint.parse(point), gpu=gpu, control=_control(method, known))


@clocks_app.command("reset", epilog=examples("clockwatt clocks reset --gpu 0"))
def clocks_reset(gpu: OneGpu = None, method: ClockMethod = "nvml") -> None:
    """Reset clocks and power limit; with helper, to what the job had."""
    from clockwatt.control import manual
    from clockwatt.control.registry import NAMES, method_named

    known = [name for name in NAMES if method_named(name).resets_by_hand]
    manual.reset(gpu=gpu, control=_control(method, known))


def _control(method: str, known: list[str]) -> config.ControlConfig:
    if method not in known:
        raise ClockwattError(f"--method {method}: choose {', '.join(known)}.")
    return config.ControlConfig.model_validate({"method": method})
