"""Operations drawn by design, beside those of networks."""

from __future__ import annotations

from pydantic import Field

from clockwatt.config.measurement import Quantities
from clockwatt.config.model import Model


class DesignRound(Model):
    """Operations chosen where a fitted predictor is least sure."""

    candidates: str = Field(
        description="Parquet file of candidates: a catalogue's `operations.parquet` with the columns `spread` (of the "
        "predictor, relative) and `weight_s` (time spent in such operations in real networks, in s)",
        examples=["candidates-1.parquet"],
    )
    operations: int = Field(
        gt=0, le=1_000_000, description="how many of them: half by spread times weight, half evenly"
    )


class DesignConfig(Model):
    """Operations drawn to fill the space that networks leave empty."""

    operations: int = Field(
        gt=0, le=1_000_000, description="how many are drawn, each pass counted; a larger number keeps the earlier ones"
    )
    seed: int = Field(0, ge=0, description="of the draw")
    quantities: Quantities = Field(["time"], description="what is measured of each: time alone is far quicker")
    gpu: str = Field("h200", description="GPU model whose roofline gives the times below; not necessarily one measured")
    min_time_s: float = Field(1e-7, ge=0, description="shortest time by the roofline")
    max_time_s: float = Field(0.02, gt=0, description="longest time by the roofline")
    max_memory_bytes: float = Field(4e9, gt=0, description="most bytes that one pass of an operation reads and writes")
    rounds: list[DesignRound] = Field([], description="later rounds, beside what was drawn first")
