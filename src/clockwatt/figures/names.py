"""The figures of a campaign, by file name. Without imports, so that the workflow can declare them cheaply."""

from __future__ import annotations

QUESTIONS = {
    "network_energy": "How much energy does a pass of each network take, and do its operations add up to it?",
    "network_time": "How long does a pass of each network take, and do its operations add up to it?",
    "network_clock": "What do clock and power limit do to time, power and energy, and is it predicted?",
    "network_optimum": "Which clock or power limit is best for time, energy and their product?",
    "energy_time": "Which GPU at which clock gives the least energy for the time?",
    "regret": "How much more does a predicted clock cost than the best one, and than a fixed one?",
    "composed_vs_measured": "How large are the errors of networks composed from their operations?",
    "operations": "What do the ten operations that take most energy cost?",
    "predicted_vs_measured_time": "How well is the time of held-out operations predicted?",
    "predicted_vs_measured_power": "How well is their power predicted?",
    "predicted_vs_measured_energy": "How well is their energy predicted?",
    "error_by_class": "Which classes of operations are predicted well?",
    "coverage_by_class": "Do intervals have their stated coverage, class by class?",
    "learning_curve": "Would more measured operations make predictions better?",
    "importance": "Which features do predictions depend on?",
    "time_against_duration": "How long must calls run back to back until their time is right?",
    "power_transient": "How long until power is steady after a load begins?",
    "power_traces": "What do the power sensors say while networks run at several clocks?",
    "sampling_interval": "How regularly were the sensors read?",
    "cumulative_energy": "Do the energy counter and the power readings agree over time?",
    "clock_seen": "Did the GPU run at the requested clock?",
    "cards": "How much do cards of one model differ?",
    "quality": "How much was measured, and how much of it is doubtful?",
}
"""Question that each family of figures answers, in the order of display."""

PER_PASS = ("network_energy", "network_time", "network_clock", "network_optimum", "energy_time")
"""Families with a figure for each pass."""


def figures(passes: list[str]) -> dict[str, tuple[str, str]]:
    """Return file names without their endings to family and pass; figures of all passes have an empty one."""
    found = {}
    for family in QUESTIONS:
        for pass_ in passes if family in PER_PASS else [""]:
            name = f"{family}_{pass_}".rstrip("_")
            found[name] = (family, str(pass_))
    return found
