import copy
import itertools

import numpy as np
import pandas as pd
import pytest

from clockwatt.figures import draw, style
from clockwatt.figures.gpus import Gpu, Gpus


def telemetry(gpus=("a30", "v100"), points=("sm900", "sm1440"), seconds=6.0):
    """Readings of a load that comes and goes, a pause in the middle, as `load.telemetry` gives them."""
    parts = []
    for gpu, point in itertools.product(gpus, points):
        for lane, step in (("ring", 0.02), ("fast", 0.1)):
            time = np.arange(0, seconds, step) + 1e-4 * np.sin(np.arange(0, seconds, step))
            time += np.where(time > seconds / 2, 2.0, 0.0)
            power = np.where(time % 2 < 1, 200.0, 40.0)
            rows = {
                "gpu": gpu,
                "point": point,
                "lane": lane,
                "time_s": time,
                "monotonic_ns": (1e9 * time).astype("int64"),
            }
            polled = lane == "fast"
            nothing = np.full_like(time, np.nan)
            rows |= {
                "power_sample_w": nothing if polled else power,
                "power_instant_w": power if polled else nothing,
                "power_average_w": power if polled else nothing,
                "energy_counter_j": 120.0 * time if polled else nothing,
            }
            parts.append(pd.DataFrame(rows))
    return pd.concat(parts, ignore_index=True)


@pytest.fixture(scope="session")
def _read(made):
    """Results of the synthetic campaign, with telemetry; one of its GPUs passes for a real one."""
    read = draw.Results(made.config, made.measurements, made.dataset, made.predictors, made.validation)
    read.gpus = Gpus([Gpu("a30", virtual=True), Gpu("v100", virtual=False)])
    read.telemetry = telemetry()
    for name in ("compositions", "whole_errors", "calls", "catalogue", "operations", "held_out"):
        getattr(read, name)
    return read


@pytest.fixture
def results(_read):
    """The same, to be changed."""
    changed = copy.copy(_read)
    changed.quality = copy.deepcopy(_read.quality)
    return changed


@pytest.fixture(autouse=True)
def styled():
    with style.styled():
        yield
