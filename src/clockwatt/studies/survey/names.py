"""Names of figures, without anything that takes long to import: each job of a workflow reads them."""

from __future__ import annotations

FIGURES = ("cards", "positions", "temperature", "programs", "placement")
