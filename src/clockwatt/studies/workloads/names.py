"""The workloads by name, in the order in which they are recorded; each is a module of this package."""

from __future__ import annotations

NAMES = (
    "matmul", "question_answering", "fine_tuning", "classifier", "black_scholes", "monte_carlo", "distance", "kmeans",
    "fft", "spectrogram", "sepia",
)  # fmt: skip


def module_of(name: str) -> str:
    """Module of a workload, as `python -m` takes it."""
    return f"clockwatt.studies.workloads.{name}"
