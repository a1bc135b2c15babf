import numpy as np
import pytest

from clockwatt.predict.evaluation.metrics import metrics


def test_metrics():
    values = metrics(np.array([1.0, 2.0, 4.0, np.nan, 0.0]), np.array([1.1, 1.8, 4.0, 1.0, 1.0]))
    assert values["rows"] == 3
    assert values["mape"] == pytest.approx(0.2 / 3)
    assert values["median_ape"] == pytest.approx(0.1)
    assert values["bias"] == pytest.approx(0.0, abs=1e-12)
    assert values["r2"] == pytest.approx(1 - 0.05 / 4.6667, rel=1e-3)
    assert metrics(np.array([]), np.array([]))["mape"] is None
