"""The figures of the study by name, each with the question that it answers; the workflow reads them here."""

from __future__ import annotations

SUMMARY, FITS = "summary", "fits"
"""Tables, as Parquet and as CSV."""

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
"""In the order in which they are shown; the first is the main one."""
