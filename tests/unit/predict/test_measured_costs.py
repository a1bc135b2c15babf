"""What was measured is looked up, the rest predicted."""

import numpy as np
import pandas as pd
import pytest

from clockwatt.dataset.build import build_dataset
from clockwatt.dataset.corrections import WITHOUT_WORK
from clockwatt.errors import DataFileError
from clockwatt.gpu.specs import find_spec
from clockwatt.io import files
from clockwatt.predict.costs import MEASURED, ByClock, FirstKnown, Learnt
from clockwatt.predict.features import operation_features
from clockwatt.predict.fit import fit
from clockwatt.predict.gpu_predictor import GpuPredictor
from clockwatt.predict.measured_costs import LookedUp, MeasuredCosts, write_measured
from clockwatt.predict.models.clock_law import CostLaw
from clockwatt.predict.models.predictors import TARGETS
from clockwatt.predict.models.training_data import error_of, read_samples
from clockwatt.schema import layout, records
from clockwatt.schema.costs import COSTS
from clockwatt.schema.execution import FP32, TF32
from support import synthetic

NORMAL_90, UNKNOWN_ERROR = 1.645, 0.05
CLOCKS, BETWEEN = (900, 1200, 1440), "sm1050"
LOOKED_UP = [target for target in TARGETS if target != "time_host_corrected_s"]
"""Host times are those of all calls of a kind."""
EXCLUDED, CERTAIN = 0, 1
"""Operations of the first file that one may not learn from, and whose standard errors are known: 2 % of all costs."""


def fitted(folder, edit):
    """A fitted campaign whose operations of the first file were changed by `edit`."""
    made = synthetic.write_campaign(
        folder,
        synthetic.campaign(
            clocks=CLOCKS, networks=2, passes=["inference"], fit={"predictors": ["roofline"], "folds": 2, "trees": 4}
        ),
    )
    synthetic.change_operations(made, layout.operations_file("a30", "sm900", 1), edit)
    build_dataset(made.config, made.measurements, made.catalogue, made.dataset)
    fit(made.config, made.dataset, made.catalogue, made.predictors)
    return made


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A fitted campaign with one excluded operation, and one whose errors are known."""

    def edit(operations):
        operations[EXCLUDED].flags = ["interrupted"]
        certain = operations[CERTAIN]
        for cost in COSTS:
            value, _ = cost.measured.of(certain)
            cost.measured.put(certain, value, 0.02 * value)

    return fitted(tmp_path_factory.mktemp("measured"), edit)


@pytest.fixture(scope="module")
def samples(made):
    return read_samples(made.dataset, "a30")


@pytest.fixture(scope="module")
def model(made):
    return GpuPredictor.load(made.predictors / "a30")


@pytest.fixture(scope="module")
def ids(made):
    """Of the operations in the order in which they were measured."""
    table = files.read_table(
        made.measurements / layout.operations_file("a30", "sm900", 1), records.MEASUREMENT_SCHEMA
    ).to_pandas()
    return table.loc[table["kind"] == records.OPERATION, "subject_id"].tolist()


def at(samples, point):
    rows = samples.rows[samples.rows["point"] == point].set_index("operation_id")
    return rows.loc[samples.operations["operation_id"]]


@pytest.mark.parametrize("point", ["sm900", "sm1200", "sm1440"])
def test_what_was_measured_is_answered_as_measured(model, samples, point):
    answered = model.predict(samples.operations, "inference", point, execution=TF32)
    rows = at(samples, point)
    usable = rows["excluded"].isin(["", WITHOUT_WORK])
    assert answered[MEASURED].tolist() == usable.tolist()
    assert (~usable).sum() == (1 if point == "sm900" else 0)
    np.testing.assert_array_equal(answered.loc[usable.to_numpy(), LOOKED_UP], rows.loc[usable, LOOKED_UP].astype(float))


def test_an_excluded_row_is_predicted_and_not_looked_up(model, samples, ids):
    looked_up = model.predict(samples.operations, "inference", "sm900", execution=TF32)
    predicted = model.predict(samples.operations, "inference", "sm900", execution=TF32, look_up=False)
    one = ids[EXCLUDED]
    assert not looked_up.loc[one, MEASURED]
    pd.testing.assert_series_equal(looked_up.loc[one], predicted.loc[one])


def test_a_measured_cost_has_the_interval_of_its_own_error(model, samples, ids):
    answered = model.predict(samples.operations, "inference", "sm900", execution=TF32)
    works = samples.operations.set_index("operation_id")["device_work"].astype(bool)
    for target in LOOKED_UP:
        cost, lower, upper = (answered[f"{side}{target}"] for side in ("", "lower_", "upper_"))
        certain = ids[CERTAIN]
        assert upper[certain] / cost[certain] == pytest.approx(1 + NORMAL_90 * 0.02)
        assert lower[certain] / cost[certain] == pytest.approx(1 - NORMAL_90 * 0.02)
        others = [one for one in ids if one not in (certain, ids[EXCLUDED]) and works[one]]
        assert (upper[others] / cost[others]).to_numpy() == pytest.approx(1 + NORMAL_90 * UNKNOWN_ERROR)
        assert (lower[others] / cost[others]).to_numpy() == pytest.approx(1 - NORMAL_90 * UNKNOWN_ERROR)


@pytest.mark.parametrize("point", ["sm900", BETWEEN])
def test_all_is_predicted_where_that_is_asked_for(model, samples, point):
    predicted = model.predict(samples.operations, "inference", point, execution=TF32, look_up=False)
    assert not predicted[MEASURED].any()
    widths = predicted["upper_time_device_corrected_s"] / predicted["time_device_corrected_s"]
    assert not np.isclose(widths, 1 + NORMAL_90 * UNKNOWN_ERROR).any(), "intervals are those of predictions"


def test_what_was_measured_with_tf32_is_not_looked_up_without(model, samples):
    answered = model.predict(samples.operations, "inference", "sm900", execution=FP32)
    assert not answered[MEASURED].any()
    predicted = model.predict(samples.operations, "inference", "sm900", execution=FP32, look_up=False)
    pd.testing.assert_frame_equal(answered, predicted)


def test_at_a_clock_never_measured_nothing_is_measured_and_the_law_leads_through_what_was(model, samples, ids):
    works = samples.operations[samples.operations["device_work"].astype(bool)]
    asked = works[works["operation_id"] != ids[EXCLUDED]]
    through = model.predict(asked, "inference", BETWEEN, execution=TF32)
    assert not through[MEASURED].any()
    law = CostLaw({clock: at(samples, f"sm{clock}").loc[asked["operation_id"]].astype({"power_corrected_w": float})
                   for clock in CLOCKS})  # fmt: skip
    pd.testing.assert_frame_equal(through[LOOKED_UP], law.at(1050)[LOOKED_UP], check_names=False)


class Forest:
    """Says the same of every operation at every clock."""

    def predict_with_spread(self, features):
        twos = pd.DataFrame(2.0, index=features.index, columns=list(TARGETS))
        return twos, 0 * twos


def test_the_law_prefers_what_was_measured_to_what_the_forest_says(samples, ids):
    works = samples.operations[samples.operations["device_work"].astype(bool)]
    features = operation_features(works)
    points = [f"sm{clock}" for clock in CLOCKS]
    kept = samples.rows[samples.rows["operation_id"] != ids[CERTAIN]].set_index("operation_id")
    for measured, known in ((None, []), (MeasuredCosts(kept), [one for one in features.index if one != ids[CERTAIN]])):
        at_clocks = {}
        for clock, point in zip(CLOCKS, points, strict=True):
            at_clocks[clock] = pd.DataFrame(2.0, index=features.index, columns=list(TARGETS))
            at_clocks[clock].loc[known] = at(samples, point).loc[known, list(TARGETS)].astype(float)
        factors = np.ones((len(features), len(TARGETS), 2))
        through = Learnt(Forest(), find_spec("a30"), features, factors, execution=TF32)
        if measured is not None:
            through = FirstKnown(LookedUp(measured, features.index, execution=TF32, positive=True), through)
        found = ByClock(through, points, find_spec("a30")).at([BETWEEN])
        np.testing.assert_allclose(found[BETWEEN].mean, CostLaw(at_clocks).at(1050)[list(TARGETS)])


def test_operations_without_device_work_are_looked_up_too(model, samples):
    views = samples.operations[~samples.operations["device_work"].astype(bool)]
    answered = model.predict(views, "inference", "sm1200", execution=TF32)
    assert answered[MEASURED].all()
    measured = at(samples, "sm1200").loc[views["operation_id"], "time_host_corrected_s"].astype(float)
    assert answered["time_host_corrected_s"].tolist() == measured.tolist()
    assert (answered["time_device_corrected_s"] == 0).all()


def test_an_operation_never_measured_is_predicted_beside_those_that_were(model, samples):
    known = samples.operations[samples.operations["device_work"].astype(bool)].head(3)
    new = synthetic.row_of_operation(synthetic.operation_of("relu", [8, 20, 64, 64]), "inference")
    described = {name: getattr(new, name) for name in known.columns if hasattr(new, name)}
    asked = pd.concat([pd.DataFrame([{**described, "pass": "inference"}]), known], ignore_index=True)
    answered = model.predict(asked, "inference", "sm1440", execution=TF32)
    assert answered[MEASURED].tolist() == [False, True, True, True]
    assert answered.index.tolist() == asked["operation_id"].tolist()
    alone = model.predict(asked.head(1), "inference", "sm1440", execution=TF32, look_up=False)
    pd.testing.assert_series_equal(answered.iloc[0], alone.iloc[0])


def rows_of(**columns):
    """Rows of samples, one operation each."""
    count = len(columns["operation_id"])
    values = {target: np.arange(1.0, count + 1) for target in TARGETS}
    errors = {error_of(target): np.full(count, 0.1) for target in TARGETS}
    defaults = {"point": "default", "execution": "tf32", "excluded": ""}
    return pd.DataFrame(values | errors | defaults | columns)


def looked_up(tmp_path, rows, asked, point="default", *, execution=TF32):
    write_measured(rows, tmp_path / "measured.parquet")
    return MeasuredCosts.read(tmp_path / "measured.parquet").look_up(pd.Index(asked), point, execution=execution)


def test_costs_come_in_the_order_in_which_they_are_asked_for(tmp_path):
    found = looked_up(tmp_path, rows_of(operation_id=["a", "b", "c"]), ["c", "unknown", "a"])
    assert found.known.tolist() == [True, False, True]
    assert found.mean[found.known].tolist() == [[3.0] * len(TARGETS), [1.0] * len(TARGETS)]
    assert found.factors.shape == (3, len(TARGETS), 2)
    assert np.isnan(found.factors[1]).all()


def test_only_the_operating_point_and_setting_asked_for_is_looked_up(tmp_path):
    rows = rows_of(operation_id=["a"] * 3, point=["default", "sm900", "default"], execution=["tf32", "tf32", "fp32"])
    assert looked_up(tmp_path, rows, ["a"], "sm900").mean[0, 0] == 2.0
    assert looked_up(tmp_path, rows, ["a"], execution=FP32).mean[0, 0] == 3.0
    assert not looked_up(tmp_path, rows, ["a"], "sm900", execution=FP32).known.any()


def test_what_may_not_be_learnt_from_is_not_kept_and_calls_without_device_work_are(tmp_path):
    rows = rows_of(
        operation_id=["learnt", "view", "flagged", "failed", "untimed"],
        excluded=["", WITHOUT_WORK, "flag interrupted", "status failed", WITHOUT_WORK],
        time_host_corrected_s=[1.0, 1.0, 1.0, 1.0, np.nan],
    )
    found = looked_up(tmp_path, rows, rows["operation_id"])
    assert found.known.tolist() == [True, True, False, False, False]


def test_an_interval_never_reaches_below_zero_and_one_of_unknown_error_is_of_usual_width(tmp_path):
    rows = rows_of(operation_id=["vague", "unknown"], time_device_relative_error=[2.0, np.nan])
    factors = looked_up(tmp_path, rows, ["vague", "unknown"]).factors[:, TARGETS.index("time_device_corrected_s")]
    assert factors[0].tolist() == pytest.approx([0.0, 1 + NORMAL_90 * 2])
    assert factors[1].tolist() == pytest.approx([1 - NORMAL_90 * UNKNOWN_ERROR, 1 + NORMAL_90 * UNKNOWN_ERROR])


def test_a_folder_without_what_was_measured_is_named(tmp_path):
    with pytest.raises(DataFileError, match=r"measured\.parquet: no such file"):
        MeasuredCosts.read(tmp_path / "measured.parquet")


def test_what_drew_less_than_idle_power_is_looked_up_and_no_law_goes_through_it(tmp_path):
    at_rest = []

    def edit(operations):
        row = next(row for row in operations if row.power_w is not None)
        row.energy_dynamic_j = -1e-5
        at_rest.append(row.subject_id)

    made = fitted(tmp_path, edit)
    model, operations = GpuPredictor.load(made.predictors / "a30"), read_samples(made.dataset, "a30").operations
    found = model.predict(operations, "inference", "sm900", execution=TF32).loc[at_rest[0]]
    assert found[MEASURED]
    assert found["energy_dynamic_corrected_j"] == pytest.approx(-1e-5)
    for clock_mhz in (950, 1050, 1300):
        costs = model.predict(operations, "inference", f"sm{clock_mhz}", execution=TF32)[list(TARGETS[:-1])]
        assert np.isfinite(costs.to_numpy()).all()


def test_the_power_limit_is_that_of_the_point_asked_for(model):
    limit_w = find_spec(model.description.gpu_name).power_w.default
    assert model.description.overheads("sm1050").power_limit_w == limit_w
    assert model.description.overheads("sm1050-pl120").power_limit_w == 120
