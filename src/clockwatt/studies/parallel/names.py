"""Names of strategies, files and figures, without anything that takes long to import."""

from __future__ import annotations

from clockwatt.config import STRATEGIES

SINGLE = "single"
"""Training on one GPU."""
DDP, FSDP, PIPELINE = STRATEGIES

STEPS, RANKS, SPANS = "steps.parquet", "ranks.parquet", "spans.parquet"
TABLE = "table.csv"
FIGURES = ("speedup", "energy", "timeline")
