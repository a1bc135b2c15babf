"""What studies are called, by the name of their package."""

from __future__ import annotations

TITLES = {"power": "Training under power limits and clocks", "workloads": "A dozen programs by all sensors"}
