"""Operations drawn by design, beside those of networks."""

from __future__ import annotations

import math

from pydantic import Field, field_validator

from clockwatt.config.measurement import Quantities
from clockwatt.config.model import Model

FAMILIES = (
    *("convolution", "grouped_convolution", "depthwise_convolution", "convolution_1d", "convolution_3d"),
    *("transposed_convolution", "linear", "product", "attention", "token_normalisation", "picture_normalisation"),
    *("embedding", "softmax", "loss", "recurrent", "activation", "dropout", "pool", "interpolation", "arithmetic"),
    *("broadcast", "copies", "reduction", "picked", "tall", "long_signal", "long_recurrent", "enlarged", "volume"),
    *("narrow_picture", "windowed_attention", "small_batch", "thin_volume", "long_attention", "weight_normalisation"),
    *("laid_out_attention", "doubled_picture"),
    *("patches", "modulated_convolution", "decoding"),
    *("graph", "table", "position_bias", "transform", "modes"),
)
"""What a design draws blocks of."""


class DesignRound(Model):
    """Operations chosen where a fitted predictor is least certain."""

    candidates: str = Field(
        description="Parquet file of candidates: a catalogue's `operations.parquet` with the columns `spread` (of the "
        "predictor, relative) and `weight_s` (time spent in such operations in real networks, in s)",
        examples=["candidates-1.parquet"],
    )
    operations: int = Field(
        gt=0, le=1_000_000, description="number of operations: half by spread times weight, half at random"
    )


class DesignConfig(Model):
    """Operations drawn to fill the space that networks leave empty."""

    operations: int = Field(
        gt=0, le=1_000_000, description="how many are drawn, each pass counted; a larger number keeps the earlier ones"
    )
    seed: int = Field(0, ge=0, description="seed of the draw")
    quantities: Quantities = Field(["time"], description="what is measured of each: time alone is far quicker")
    gpu: str = Field("h200", description="GPU model whose roofline gives the times below; not necessarily one measured")
    min_time_s: float = Field(1e-7, ge=0, description="shortest time, by the roofline")
    max_time_s: float = Field(0.02, gt=0, description="longest time by the roofline")
    max_memory_bytes: float = Field(4e9, gt=0, description="most bytes that one pass of an operation reads and writes")
    families: dict[str, float] | None = Field(
        None,
        description="share of each family of operations. Other families are not drawn, except optimizer steps in "
        "training. Without this key, all families up to `picked` are drawn, most often those with the largest errors. "
        f"Names: {', '.join(FAMILIES)}",
        examples=[{"recurrent": 1, "long_recurrent": 3}],
    )
    rounds: list[DesignRound] = Field([], description="later rounds, beside what was drawn first")

    @field_validator("families")
    @classmethod
    def _known_families(cls, families: dict[str, float] | None) -> dict[str, float] | None:
        if families is None:
            return None
        unknown = sorted(set(families) - set(FAMILIES))
        if unknown:
            raise ValueError(f"has no family {', '.join(unknown)}; there are {', '.join(FAMILIES)}")
        if any(not share >= 0 for share in families.values()) or not 0 < sum(families.values()) < math.inf:
            raise ValueError("are shares: write numbers from 0 on, at least one of them above 0")
        return {name: families[name] for name in FAMILIES if name in families}  # in one order, so that one is drawn
