"""The ways of setting operating points, by their names in a config."""

from __future__ import annotations

from clockwatt.control.command import CommandMethod
from clockwatt.control.helper import HelperMethod
from clockwatt.control.methods import Method, NoMethod, NvmlMethod
from clockwatt.control.slurm import SlurmMethod

METHODS: dict[str, type[Method]] = {
    "nvml": NvmlMethod,
    "helper": HelperMethod,
    "command": CommandMethod,
    "slurm": SlurmMethod,
    "none": NoMethod,
}
"""Values of `control.method` in a config."""
