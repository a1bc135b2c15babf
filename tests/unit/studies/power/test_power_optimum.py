"""The fits of a study on a virtual GPU against a fine sweep of the card's own model."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from clockwatt.measure.bench.interface import Subject
from clockwatt.measure.bench.virtual import VirtualBench, VirtualWorkload
from clockwatt.schema.execution import TF32
from clockwatt.schema.records import NETWORK, TRAINING
from clockwatt.studies.power import analysis, tables
from clockwatt.studies.power.measure import measure_study
from clockwatt.studies.power.steps import steps_dir
from clockwatt.studies.power.tables import CLOCK, POWER_LIMIT
from clockwatt.studies.power.tasks import TASKS
from clockwatt.studies.power.virtual import StudyGpu
from clockwatt.telemetry.logger import virtual_logger
from support.power_study import campaign

LIMITS_W = list(range(100, 165, 10))
CLOCKS_MHZ = list(range(510, 1411, 90))
SETTLED_S, SEEN_S = 0.2, 3.0


def sweep(network: str, setting: str, folder: Path) -> pd.DataFrame:
    """Time and energy of a training step along a setting, in fine steps, read off a card that was at rest."""
    fine = np.arange(LIMITS_W[0], LIMITS_W[-1] + 1, 2) if setting == POWER_LIMIT else np.arange(510, 1411, 30)
    subject = Subject(NETWORK, TASKS[network].network.network_id, TRAINING, TF32, "float32", 1, device_work=True)
    # what is trained is the same wherever the card runs
    idle = StudyGpu("a30", seed=0)
    with (
        virtual_logger(idle, "sweep", folder, campaign().telemetry) as logger,
        VirtualBench(idle, logger, 0, steps_dir()).open(subject) as workload,
    ):
        assert isinstance(workload, VirtualWorkload)
        assert workload.load is not None
        load, host_s, extra_s = workload.load, workload.host_s, workload.model.device_extra_s
    rows = []
    for asked in fine:
        gpu = StudyGpu("a30", seed=0)
        if setting == POWER_LIMIT:
            gpu.set_power_limit(float(asked))
        else:
            gpu.lock_sm_clock(int(asked))
        step_s, busy = gpu.paced(load, host_s, extra_s)
        gpu.load(load, busy)
        gpu.advance(SETTLED_S)
        before_j = gpu.energy_counter_j()
        gpu.advance(SEEN_S)
        energy_j = (gpu.energy_counter_j() - before_j) / SEEN_S * step_s
        rows.append({"x": float(asked), "time_s": step_s, "energy_j": energy_j})
    found = pd.DataFrame(rows)
    return found.assign(energy_delay_product_j_s=found["energy_j"] * found["time_s"])


@pytest.fixture(scope="module")
def fits(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    folder = tmp_path_factory.mktemp("fits")
    gpus = {"a30": {"power_limits_w": LIMITS_W, "clocks_mhz": CLOCKS_MHZ}}
    networks = ["ecg_resnet", "dense_16384"]
    measure_study(campaign(gpus=gpus, networks=networks, epochs=8, repetitions=1), "a30", folder)
    runs, _, _ = tables.read(folder)
    return analysis.fits(runs, analysis.summary(runs)).set_index(["network", "setting", "objective"])


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], pd.DataFrame]:
    """Sweeps, each made once for all objectives."""
    return functools.cache(lambda network, setting: sweep(network, setting, tmp_path_factory.mktemp("sweep")))


@pytest.mark.parametrize("network", ["ecg_resnet", "dense_16384"])
@pytest.mark.parametrize("setting", [POWER_LIMIT, CLOCK])
@pytest.mark.parametrize("objective", ["energy_j", "energy_delay_product_j_s"])
def test_a_fit_recovers_the_optimum_of_the_model(
    fits: pd.DataFrame, swept: Callable[[str, str], pd.DataFrame], network: str, setting: str, objective: str
) -> None:
    model = swept(network, setting)
    least = model[objective].min()
    # the card's own curve is flat in places, and has a kink where bandwidth saturates (576 MHz)
    best = model.loc[model[objective] <= 1.001 * least, "x"]
    fit = fits.loc[network, setting, objective]
    assert (fit["optimum_x"] / best - 1).abs().min() <= 0.1
    there = np.interp(fit["optimum_x"], model["x"], model[objective])
    assert there == pytest.approx(least, rel=0.03), "what the fit chooses costs no more"


def test_a_limit_that_does_not_slow_a_network_costs_it_nothing(tmp_path: Path) -> None:
    found = sweep("dense_512", POWER_LIMIT, tmp_path)
    found = found[found["x"] > 130]  # it draws less
    assert np.ptp(found["time_s"]) == 0
    assert found["energy_j"].to_numpy() == pytest.approx(found["energy_j"].iloc[-1], rel=2e-3)
