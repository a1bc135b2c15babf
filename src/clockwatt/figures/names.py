"""The figures of a campaign, by file name. Without imports, so that the workflow can declare them cheaply."""

from __future__ import annotations

FIGURES = (
    "predicted_vs_measured_time",
    "predicted_vs_measured_power",
    "predicted_vs_measured_energy",
    "error_by_class",
    "network_clock",
    "energy_time_pareto",
    "composed_vs_measured",
    "time_against_iterations",
    "power_transient",
    "quality",
)
"""File names without their ending, in the order in which a reader wants them."""

FORMATS = ("png", "pdf")
"""Endings that each figure is written with."""
