"""How operating points are set."""

from __future__ import annotations

import shlex
import string
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from clockwatt.config.model import Model
from clockwatt.config.points import POINT_SETTINGS

ControlMethod = Literal["nvml", "helper", "command", "slurm", "none"]


def placeholders(template: str) -> set[str]:
    """Return the names in braces in a command of the site's own.

    Raises
    ------
    ValueError
        If its braces are not closed.
    """
    return {name for _, name, _, _ in string.Formatter().parse(template) if name is not None}


class ControlConfig(Model):
    """How the operating point is set."""

    method: ControlMethod = Field(
        "nvml",
        description="nvml: directly, as root; helper: with sudo, by the program that an administrator installed from "
        "`privileged/`; command: by a program of your site; slurm: by `srun --gpu-freq` (SM and memory clock); none: "
        "nothing is set, for `default`. `clockwatt doctor` shows which methods work",
    )
    helper: str = Field("/usr/local/sbin/clockwatt-clocks", description="path of the program of method helper")
    set_command: str | None = Field(
        None,
        description="of method command: command that sets an operating point, run without a shell. {index} is the "
        "GPU's number in nvidia-smi, {uuid} its UUID. {sm_clock_mhz}, {memory_clock_mhz} and {power_limit_w} are the "
        "values to set",
        examples=["sudo /opt/site/nvidia-set-clocks.sh -d {index} -c {sm_clock_mhz}"],
    )
    reset_command: str | None = Field(
        None,
        description="of method command: command that resets the operating point. Without it, set_command must run "
        "until clockwatt ends it, and then reset the operating point",
        examples=["sudo /opt/site/nvidia-set-clocks.sh -d {index} -r"],
    )
    settle_timeout_s: float = Field(
        10, gt=0, description="longest time for the SM clock to reach its target under load"
    )
    on_mismatch: Literal["error", "flag"] = Field(
        "flag",
        description="what happens if a clock is not reached: the job ends, or its rows are flagged; with method slurm, "
        "whose clocks new drivers ignore, the job always ends",
    )

    @field_validator("set_command", "reset_command")
    @classmethod
    def _template_is_understood(cls, value: str | None) -> str | None:
        if value is None:
            return None
        try:
            names = placeholders(value)
            words = shlex.split(value)
        except ValueError as error:
            raise ValueError(f"{value!r} cannot be split into words ({error})") from None
        unknown = sorted(names - {"index", "uuid", *POINT_SETTINGS})
        if unknown or not words:
            raise ValueError(f"{value!r} has no command, or {{{(unknown or [''])[0]}}} that is not known")
        return value

    @model_validator(mode="after")
    def _commands_belong_to_their_method(self) -> Self:
        if (self.method == "command") != (self.set_command is not None):
            raise ValueError("method: command and set_command belong together")
        if self.reset_command is not None and self.set_command is None:
            raise ValueError("reset_command needs set_command too")
        return self

    @property
    def settable(self) -> frozenset[str]:
        """Settings of an operating point that the method can set."""
        match self.method:
            case "none":
                return frozenset()
            case "slurm":
                return frozenset({"sm_clock_mhz", "memory_clock_mhz"})
            case "command":
                return frozenset(placeholders(self.set_command or "")) & frozenset(POINT_SETTINGS)
            case "nvml" | "helper":
                return frozenset(POINT_SETTINGS)
