"""The figures of the study by name, each with the question that it answers; the workflow reads them here."""

from __future__ import annotations

TABLES = ("summary", "fits")
TABLE_FILES = tuple(f"{name}.{suffix}" for name in TABLES for suffix in ("parquet", "csv"))

MAIN = {"power_limits_w": "optimum_power_limit", "clocks_mhz": "optimum_clock"}
"""Main figure of each kind of operating points, by their key in the campaign."""

FIGURES = {
    "optimum_power_limit": "Which power limit is best for energy, time and energy-delay product of training?",
    "optimum_clock": "Which SM clock is best for them?",
    "front": "Does a power limit or a clock give less energy for the time?",
    "epochs": "How much do epochs differ in energy and time?",
    "power": "What do the power sensors say while a network is trained?",
    "cumulative_energy": "How does energy add up, and how much do repetitions differ?",
    "sampling_interval": "How regularly was power read, by the ring and by polling?",
    "jitter": "Does that change over time, or with the load of the host?",
}
"""In the order in which they are shown."""
