from pathlib import Path

import pytest

from clockwatt import config
from clockwatt.config import CampaignConfig
from support.handmade import operation, write_catalogue


@pytest.fixture
def catalogue(tmp_path: Path) -> Path:
    """Twelve operations: from host-bound to power-capped, a view, one that fits on no GPU, in both passes."""
    operations = [
        row
        for pass_ in ("inference", "training")
        for row in (
            operation(256, pass_=pass_),
            operation(10**6, pass_=pass_),
            operation(10**8, pass_=pass_),
            operation(10**7, function="torch.nn.functional.linear", pass_=pass_, flops=10**13),
            operation(10**6, function="torch.Tensor.view", pass_=pass_, work=False),
            operation(10**11, pass_=pass_),
        )
    ]
    write_catalogue(tmp_path / "catalogue", operations)
    return tmp_path / "catalogue"


@pytest.fixture
def campaign() -> CampaignConfig:
    return config.parse(
        {
            "campaign": "test",
            "gpus": {"a30": {"device": "virtual:a30", "clocks_mhz": ["default", 900]}},
            "networks": [{"name": "toy", "input": [8, 64]}],
        }
    )
