"""A GPU is kept within what its twin, with the same chip and another memory, allows."""

import numpy as np
import pytest

from clockwatt.gpu.specs import find_spec
from clockwatt.predict.costs import BesideTwin, Costs
from clockwatt.predict.models.predictors import TARGETS

DEVICE, HOST, DYNAMIC = (
    TARGETS.index(name) for name in ("time_device_corrected_s", "time_host_corrected_s", "energy_dynamic_corrected_j")
)


class Source:
    def __init__(self, device_s, measured=False):
        mean = np.ones((len(device_s), len(TARGETS)))
        mean[:, DEVICE] = device_s
        known = np.ones(len(device_s), dtype=bool)
        self.costs = Costs(mean, np.full((*mean.shape, 2), (0.9, 1.1)), known, known & measured)

    def at(self, points):
        return dict.fromkeys(points, self.costs)


def beside(device_s, twin_s, measured=False, known_at=lambda point: point == "default"):
    return BesideTwin(Source(device_s, measured), Source(twin_s), 1.4, known_at)


def test_times_and_energies_stay_within_the_ratio_of_bandwidths():
    source = beside([2.0, 1.2, 0.5, 0.0], [1.0, 1.0, 1.0, 0.0])
    costs = source.at(["default"])["default"]
    assert costs.mean[:, DEVICE] == pytest.approx([1.4 * 1.012, 1.2, 1 / 1.012, 0.0])
    assert costs.mean[:, DYNAMIC] == pytest.approx([1.4 * 1.012 / 2, 1.0, 2 / 1.012, 1.0])
    assert (costs.mean[:, HOST] == 1.0).all()
    assert costs.end(1)[0, DEVICE] == pytest.approx(1.1 * 2.0), "the interval keeps what was predicted"
    assert costs.end(0)[2, DEVICE] == pytest.approx(0.9 * 0.5)


def test_what_was_measured_and_points_that_the_twin_lacks_stay():
    assert beside([2.0], [1.0], measured=True).at(["default"])["default"].mean[0, DEVICE] == 2.0
    assert beside([2.0], [1.0]).at(["sm900"])["sm900"].mean[0, DEVICE] == 2.0


def test_twins_have_the_same_chip():
    h100, h200, a30 = (find_spec(name) for name in ("NVIDIA H100 80GB HBM3", "NVIDIA H200", "a30"))
    assert h100.is_twin_of(h200)
    assert not any(one.is_twin_of(other) for one, other in ((h200, h200), (a30, h200), (find_spec("h100-pcie"), h200)))
