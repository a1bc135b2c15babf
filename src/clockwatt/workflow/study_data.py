"""Data of the user's own that studies read: whether it is there is asked before anything is submitted."""

from __future__ import annotations

import os
from collections.abc import Iterator

from clockwatt.config import CampaignConfig
from clockwatt.errors import ConfigError


def check_study_data(campaign: CampaignConfig, source: str) -> None:
    """Check that the folders of data which programs of studies have yet to read are there.

    Parameters
    ----------
    campaign
        A program whose record is finished needs its data no more.
    source
        File of the campaign, for messages.

    Raises
    ------
    ConfigError
        Naming the file, the key and the folder.
    """
    for study, label, name, folder in _lacking(campaign):
        from clockwatt.workflow.plan_studies import programs  # reads records, and most campaigns lack nothing

        if any(program.name == name and not program.finished for program in programs(campaign, study, label)):
            key = f"studies.{study}.data.{name}"
            raise ConfigError(
                f"{source}: {key}: {folder} is no folder here. Give one with the data, or leave {key} out to have "
                "data made."
            )


def _lacking(campaign: CampaignConfig) -> Iterator[tuple[str, str, str, str]]:
    """Yield study, GPU, program and folder of missing data."""
    power, workloads = campaign.studies.power, campaign.studies.workloads
    asked: list[tuple[str, dict[str, str], list[str]]] = []
    if power:
        asked.append(("power", {str(name): folder for name, folder in power.data.items()}, list(power.gpus)))
    if workloads:
        labels = workloads.gpus or list(campaign.gpus)
        asked.append(("workloads", {str(name): folder for name, folder in workloads.data.items()}, list(labels)))
    for study, folders, gpus in asked:
        for name, folder in folders.items():
            if not os.path.isdir(folder):  # noqa: PTH112  # a path asks, and raises where nobody may look
                yield from ((study, label, name, folder) for label in gpus)
