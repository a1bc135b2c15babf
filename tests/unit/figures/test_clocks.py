"""An optimum of a network along its clock is reported only where a curve describes what was measured."""

import numpy as np
import pandas as pd
import pytest

from clockwatt.figures import clocks
from clockwatt.figures.gpus import Gpu, Gpus

GPUS = Gpus([Gpu("a30", virtual=True)])
CLOCKS_MHZ = np.linspace(510, 1410, 7)


def optima(time_s, energy_j):
    """Curves of one network whose time and energy at `CLOCKS_MHZ` are given, by objective."""
    data = pd.DataFrame(
        {
            "gpu": "a30",
            "setting": "sm_clock_mhz",
            "network_id": "resnet18-1x3x224x224",
            "execution": "tf32",
            "compared": "tf32",
            "x": CLOCKS_MHZ,
            "measured_time_s": time_s,
            "measured_energy_j": energy_j,
        }
    )
    return clocks.optima(data)


def optimum(data, objective):
    (found,) = data.loc[data["objective"] == objective, "optimum_x"].unique()
    return found


def stars(data):
    """Abscissas of stars in the panels of time, energy and their product."""
    figure = clocks.draw_optima(data, GPUS, ["a30"])
    drawn = [[line for line in axes.lines if line.get_marker() == "*"] for axes in figure.axes]
    return [[x for line in lines for x in line.get_xdata() if np.isfinite(x)] for lines in drawn]


@pytest.mark.parametrize("noise", [0.0, 1e-15, 1e-3])
def test_constant_time_has_no_best_clock(noise):
    # a trend, so that R² is high: what it gains is too little to choose a clock by
    time_s = 2e-3 * (1 + noise * np.linspace(-1, 1, len(CLOCKS_MHZ)))
    data = optima(time_s, 1e-3 * (CLOCKS_MHZ - 900) ** 2 + 100)
    assert np.isnan(optimum(data, "time_s"))
    assert optimum(data, "energy_j") == pytest.approx(900, abs=5)
    assert stars(data)[0] == []
    assert stars(data)[1] == [pytest.approx(900, abs=5)]


def test_a_curve_that_does_not_hold_has_no_optimum():
    zigzag = 1 + 0.2 * (-1.0) ** np.arange(len(CLOCKS_MHZ))
    data = optima(zigzag, zigzag)
    assert (data["r2"] < 0.5).all()
    assert data["optimum_x"].isna().all()
    assert stars(data) == [[], [], []]


def test_shorter_time_at_a_higher_clock_keeps_its_optimum():
    data = optima(1 / CLOCKS_MHZ, 1 + CLOCKS_MHZ / 1410)
    assert optimum(data, "time_s") > 1300
    assert optimum(data, "energy_j") == 510
