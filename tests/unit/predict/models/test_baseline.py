"""The predictor that the others have to beat."""

import numpy as np
import pandas as pd
import pytest

from clockwatt.predict.features import OPERATION_CLASS, POWER_LIMIT, ROOFLINE_TIME
from clockwatt.predict.models.predictors import BaselinePredictor


def features(classes: list[str]) -> pd.DataFrame:
    count = len(classes)
    return pd.DataFrame(
        {
            OPERATION_CLASS: classes,
            ROOFLINE_TIME: np.geomspace(1e-5, 1e-2, count),
            POWER_LIMIT: 300.0,
            "other": range(count),
        }
    )


def test_each_class_has_the_geometric_mean_of_its_ratios_whatever_else_is_known():
    given = features(["conv2d", "relu"] * 20)
    spread = np.tile([0.5, 0.5, 2.0, 2.0], 10)
    ratio = np.where(given[OPERATION_CLASS] == "conv2d", 3.0, 1.5)
    targets = pd.DataFrame({"time_device_corrected_s": ratio * spread * given[ROOFLINE_TIME]})
    predicted = BaselinePredictor(seed=0).fit(given, targets).predict(given)["time_device_corrected_s"]
    factor = predicted / given[ROOFLINE_TIME]
    long = given[ROOFLINE_TIME] > 1e-3  # beside which the floor of the estimate is nothing
    for name, expected in (("conv2d", 3.0), ("relu", 1.5)):
        own = factor[long & (given[OPERATION_CLASS] == name)]
        assert np.ptp(np.log(own)) < 0.02
        assert own.median() == pytest.approx(expected, rel=0.15)
