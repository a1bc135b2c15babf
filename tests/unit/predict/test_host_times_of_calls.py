"""Host times depend on what is called, not on sizes, dtypes or the GPU."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from clockwatt.predict.costs import unknown
from clockwatt.predict.features import operation_features
from clockwatt.predict.measured_costs import OfCalls, call_times, host_ratio, host_s_of
from clockwatt.predict.models.predictors import TARGETS
from support import synthetic

HOST = "time_host_corrected_s"


def features_of(*operations):
    rows = [dataclasses.asdict(synthetic.row_of_operation(operation, "inference")) for operation in operations]
    return operation_features(pd.DataFrame(rows).assign(parameter_bytes=0))


RELU = features_of(*(synthetic.operation_of("relu", [8, width, 32, 32]) for width in (8, 16, 32)))
CONV = features_of(*(synthetic.operation_of("conv2d", [8, width, 32, 32], width, 3) for width in (8, 16, 32)))


def measured(features, host_s):
    return pd.DataFrame({"operation_id": features.index, HOST: host_s})


def test_calls_of_a_kind_share_the_median():
    rows = pd.concat([measured(RELU, [5e-6, 6e-6, 9e-6]), measured(CONV, [1e-5, 2e-5, 4e-5])])
    times = call_times(rows, pd.concat([RELU, CONV]))
    large = features_of(synthetic.operation_of("relu", [512, 64, 64, 64]), synthetic.operation_of("add", [2, 2]))
    assert host_s_of(CONV, times).tolist() == [2e-5] * 3
    assert host_s_of(large, times).tolist() == [6e-6, 2e-5], "of a class without any, the nearest kind of all"
    assert np.isnan(host_s_of(large, {})).all()


def test_depthwise_convolutions_have_a_time_of_their_own():
    grouped = CONV.assign(groups=2.0, log_group_channels=[1.0, 1.0, 1.0])
    several = CONV.assign(groups=2.0, log_group_channels=[3.0, 2.0, 5.0])
    rows = [measured(kind, [host_s] * 3) for kind, host_s in ((CONV, 2e-5), (grouped, 1e-5), (several, 5e-5))]
    times = {"conv2d": [each for kind, row in zip((CONV, grouped, several), rows, strict=True)
                        for each in call_times(row, kind)["conv2d"]]}  # fmt: skip
    assert [host_s_of(kind, times)[0] for kind in (CONV, grouped, several)] == [2e-5, 1e-5, 5e-5]


def test_a_kind_with_too_few_measurements_has_none():
    assert call_times(measured(RELU.iloc[:2], [5e-6, 6e-6]), RELU) == {}
    assert call_times(measured(RELU, [5e-6, 6e-6, np.nan]), RELU) == {}


def test_hosts_are_compared_by_the_calls_that_both_know():
    own = {"inference": {"add": [[1.0, 4e-6], [2.0, 6e-6]], "mul": [[1.0, 9e-6]]}, "training": {"add": [[1.0, 8e-6]]}}
    other = {"inference": {"add": [[1.0, 2.5e-6]], "relu": [[1.0, 1e-6]]}, "training": {"add": [[1.0, 4e-6]]}}
    assert host_ratio(own, other) == pytest.approx(2.0)
    assert host_ratio(own, {}) == 1.0


def test_other_costs_stay_as_they_are():
    class Source:
        def at(self, points):
            costs = unknown(2)
            costs.mean[:] = 1.0
            costs.factors[:] = (0.5, 2.0)
            return dict.fromkeys(points, costs)

    found = OfCalls(Source(), np.array([3e-6, np.nan])).at(["default"])["default"]
    column = TARGETS.index(HOST)
    assert found.mean[:, column].tolist() == [3e-6, 1.0]
    assert (found.factors == (0.5, 2.0)).all()
    assert (np.delete(found.mean, column, axis=1) == 1.0).all()


def test_a_campaign_predicts_one_host_time_for_all_sizes(made):
    import clockwatt

    loaded = clockwatt.load(made.predictors, catalogue_dir=made.catalogue, validation_dir=made.validation)
    batches = [2, 8, 64, 512]
    frame = loaded.predict("resnet18", input=(8, 3, 64, 64), batch=batches, gpu="a30", points=["sm1200"])
    assert frame["host_s"].to_numpy() == pytest.approx(frame["host_s"].iloc[0], rel=1e-9)
