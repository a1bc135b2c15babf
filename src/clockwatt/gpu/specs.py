"""Public specifications of GPUs (`resources/gpus.yaml`): peaks, bandwidth, caches, clocks and power limits."""

from __future__ import annotations

import functools
import math
import re

import yaml
from pydantic import BaseModel, ConfigDict

from clockwatt.errors import did_you_mean
from clockwatt.gpu.interface import GpuError
from clockwatt.io.resources import resource

VIRTUAL_PREFIX = "virtual"
VIRTUAL_DEVICE = f"{VIRTUAL_PREFIX}:"
"""Prefix of the model of a virtual GPU in a config."""


class UnknownGpuError(GpuError):
    """No specifications of such a GPU are shipped."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FlopRates(_Model):
    """Dense floating-point operations of one SM in one cycle; None where there is no such unit."""

    fp32: int
    tf32: int | None = None
    fp16: int | None = None
    bf16: int | None = None


class SmClocks(_Model):
    """SM clocks in MHz: what can be locked, and what the driver gives by itself."""

    min: int
    base: int
    boost: int
    max: int
    step: float


class PowerLimits(_Model):
    """Typical idle power, and the range and default of the power limit, in W."""

    idle: float
    min: float
    default: float
    max: float


class VirtualFit(_Model):
    """What a virtual card of this model reaches and draws.

    Attributes
    ----------
    matrix_units, ordinary_units, memory, memory_of_matrix
        Shares of peak that work on matrix units and on ordinary ones reaches, and of bandwidth that other work and
        matrix work reach.
    half_intensity_matrix_units, half_intensity
        FLOP per byte at which matrix work reaches half of its share of peak, on matrix units and on ordinary ones.
    backward_arithmetic, backward_memory
        Factors of these shares in training.
    issue_power, matrix_units_power, matrix_power, vector_power, memory_power
        Shares of (default limit - idle) at full activity and boost clock: issuing, matrix work on matrix units and on
        ordinary ones, other work, memory. Above 1 in sum, so that dense work is capped.
    backward_power
        Factor of dynamic power in training.
    spread
        Deviation of these shares over operations, in logarithms: what predictors can learn.
    """

    matrix_units: float = 0.62
    ordinary_units: float = 0.8
    memory: float = 0.88
    memory_of_matrix: float = 0.88
    half_intensity_matrix_units: float = 0.0
    half_intensity: float = 0.0
    backward_arithmetic: float = 1.0
    backward_memory: float = 1.0
    issue_power: float = 0.20
    matrix_units_power: float = 0.85
    matrix_power: float = 0.85
    vector_power: float = 0.55
    memory_power: float = 0.42
    backward_power: float = 1.0
    spread: float = 0.12


class GpuSpec(_Model):
    """Public specifications of one GPU model."""

    name: str
    nvml_name: str
    nvml_names: tuple[str, ...]
    architecture: str
    sm_count: int
    flop_per_cycle_per_sm: FlopRates
    bandwidth_gb_s: float
    l2_mib: float
    memory_mib: int
    sm_clock_mhz: SmClocks
    memory_clocks_mhz: tuple[int, ...]
    power_w: PowerLimits
    virtual: VirtualFit = VirtualFit()

    def is_twin_of(self, other: GpuSpec) -> bool:
        """Return whether two models have the same chip, and differ in memory alone."""
        chips = (
            (one.architecture, one.sm_count, one.flop_per_cycle_per_sm, one.boost_clock_mhz) for one in (self, other)
        )
        return len(set(chips)) == 1 and self.name != other.name and self.power_w.default == other.power_w.default

    @property
    def boost_clock_mhz(self) -> int:
        """SM clock at which the peaks hold, in MHz."""
        return self.sm_clock_mhz.boost

    @property
    def fp32_flops(self) -> float:
        """Peak of float32 on the ordinary units at boost clock, in FLOP/s."""
        return self._peak(self.flop_per_cycle_per_sm.fp32)

    @property
    def tf32_flops(self) -> float:
        """Dense peak of TensorFloat-32 at boost clock, in FLOP/s; that of float32 without such units."""
        return self._peak(self.flop_per_cycle_per_sm.tf32)

    @property
    def fp16_flops(self) -> float:
        """Dense peak of float16 on the matrix units at boost clock, in FLOP/s; that of float32 without such units."""
        return self._peak(self.flop_per_cycle_per_sm.fp16)

    @property
    def bf16_flops(self) -> float:
        """Dense peak of bfloat16 on the matrix units at boost clock, in FLOP/s; that of float32 without such units."""
        return self._peak(self.flop_per_cycle_per_sm.bf16)

    @property
    def bandwidth_bytes_s(self) -> float:
        """Device memory bandwidth at the highest memory clock, in bytes/s."""
        return self.bandwidth_gb_s * 1e9

    @property
    def l2_bytes(self) -> int:
        """Size of the L2 cache in bytes."""
        return int(self.l2_mib * 2**20)

    @property
    def memory_bytes(self) -> int:
        """Size of the device memory in bytes."""
        return self.memory_mib * 2**20

    @property
    def supported_sm_clocks_mhz(self) -> list[int]:
        """SM clocks that can be locked, ascending, in MHz."""
        clocks = self.sm_clock_mhz
        steps = round((clocks.max - clocks.min) / clocks.step)
        return [math.floor(clocks.min + i * clocks.step) for i in range(steps + 1)]

    def peak_flops(self, dtype: str, *, tf32: bool, matrix: bool) -> float:
        """Return the peak arithmetic rate at boost clock.

        Parameters
        ----------
        dtype
            PyTorch's name of the floating-point type, e.g. `float32`, `bfloat16`.
        tf32
            Whether float32 matrix products may use TensorFloat-32.
        matrix
            Whether the work runs on the matrix units (matrix products, convolutions, attention).

        Returns
        -------
        float
            In FLOP/s. Other types than float32, float16 and bfloat16 count at the float32 rate.
        """
        if matrix:
            match dtype:
                case "float32" if tf32:
                    return self.tf32_flops
                case "float16":
                    return self.fp16_flops
                case "bfloat16":
                    return self.bf16_flops
        return self.fp32_flops

    def _peak(self, flop_per_cycle: int | None) -> float:
        return (flop_per_cycle or self.flop_per_cycle_per_sm.fp32) * self.sm_count * self.boost_clock_mhz * 1e6


def find_spec(name: str) -> GpuSpec:
    """Return the specifications of a GPU.

    Parameters
    ----------
    name
        NVML name (`NVIDIA A30`) or model (`a30`, `RTX 2080 Ti`), also after `virtual:` or `virtual `; in any case.

    Raises
    ------
    UnknownGpuError
        If the table has no such GPU; the message names those it has.
    """
    wanted = re.sub(rf"^{VIRTUAL_PREFIX}[: ]\s*", "", name.strip(), flags=re.IGNORECASE)
    for model, spec in specs().items():
        if _plain(wanted) in (_plain(model), _plain(spec.name)) or any(
            re.fullmatch(pattern, wanted, re.IGNORECASE) for pattern in spec.nvml_names
        ):
            return spec
    raise UnknownGpuError(
        f"{name!r}: no specifications of this GPU; known are {', '.join(specs())}{did_you_mean(wanted, list(specs()))} "
        "To add one, edit resources/gpus.yaml in a clone of clockwatt, and install the clone."
    )


def spec_or_none(name: str) -> GpuSpec | None:
    """Return the specifications of a GPU, None where they are not known."""
    try:
        return find_spec(name)
    except UnknownGpuError:
        return None


@functools.cache
def specs() -> dict[str, GpuSpec]:
    """Return the whole table: model (as after `virtual:`) to specifications."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # seven times as fast, where PyYAML has it
    content = yaml.load(resource("gpus.yaml").read_text(encoding="utf-8"), loader)  # noqa: S506  # a safe loader
    return {model: GpuSpec.model_validate(entry) for model, entry in content.items()}


def _plain(name: str) -> str:
    """Normalise names of clusters and drivers, such as `nvidia_a30` and `Tesla V100`."""
    return re.sub(r"nvidia|geforce|tesla|[\s_-]", "", name.lower())
