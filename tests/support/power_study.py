"""A campaign with a small study of power limits on a virtual GPU."""

from __future__ import annotations

from typing import Any

from clockwatt import config
from clockwatt.config import CampaignConfig

EXAMPLES = {"ecg_resnet": 1600, "dense_512": 64_000, "dense_16384": 1600}


def campaign(**study: Any) -> CampaignConfig:
    """A campaign with a study on one virtual GPU, some of whose keys may differ."""
    asked = {"gpus": {"a30": {"power_limits_w": [100, 120, 140, 165], "clocks_mhz": [600, 1440]}}, "repetitions": 2}
    return config.parse(
        {
            "campaign": "studies",
            "gpus": {"a30": {"device": "virtual:a30"}},
            "networks": [{"name": "resnet18", "input": [1, 3, 64, 64]}],
            "studies": {"power": asked | {"examples": EXAMPLES, "epochs": 4} | study},
        }
    )
