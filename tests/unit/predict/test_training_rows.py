"""Measured costs as predictors see them: on the median host, and as a call costs that the power limit does not slow."""

import pyarrow.parquet as pq
import pytest

from clockwatt.dataset.build import build_dataset
from clockwatt.dataset.unthrottled import ERROR_BELOW, FEWEST
from clockwatt.errors import DataFileError
from clockwatt.io import files
from clockwatt.predict.models.predictors import TARGETS
from clockwatt.predict.models.training_data import error_of, read_samples
from clockwatt.schema import layout, records
from clockwatt.schema.costs import BY_CORRECTED
from clockwatt.schema.records import MeasurementRow
from support import synthetic

PATH = layout.operations_file("a30", "sm900", 1)


def measured(tmp_path, edit):
    """Samples of a campaign whose operations and anchors were changed by `edit`, and its rows as `edit` left them."""
    made = synthetic.write_campaign(
        tmp_path, synthetic.campaign(clocks=[900], networks=2, passes=["inference", "training"])
    )
    table = files.read_table(made.measurements / PATH, records.MEASUREMENT_SCHEMA)
    rows = [records.row_of(MeasurementRow, values) for values in table.to_pylist()]
    rows = edit(rows) or rows
    synthetic.write_rows(made, rows, PATH)
    build_dataset(made.config, made.measurements, made.catalogue, made.dataset)
    samples = read_samples(made.dataset, "a30")
    return samples.rows.set_index(["operation_id", "pass"]), rows


def working(rows):
    """Operations with device work."""
    return [row for row in rows if row.kind == records.OPERATION and row.power_w is not None]


def key(row):
    return row.subject_id, row.pass_


def test_energy_with_pauses_below_that_of_idling_does_not_count(tmp_path):
    def edit(rows):
        row = working(rows)[0]
        row.energy_dynamic_j, row.energy_dynamic_standard_error_j = 3.0, 0.03
        row.energy_dynamic_unthrottled_j, row.energy_dynamic_unthrottled_standard_error_j = -1.0, 5.0

    samples, rows = measured(tmp_path, edit)
    assert samples.loc[key(working(rows)[0])]["energy_dynamic_corrected_j"] == 3.0


@pytest.mark.parametrize(
    ("error", "taken"),
    [(0.0, True), (0.09, True), (ERROR_BELOW, True), (0.11, False), (None, False)],
    ids=["exact", "certain", "just certain enough", "vague", "of unknown error"],
)
def test_energy_with_pauses_counts_where_it_is_certain(tmp_path, error, taken):
    paced_j, back_to_back_j = 4.0, 3.0

    def edit(rows):
        row = working(rows)[0]
        row.energy_dynamic_j, row.energy_dynamic_standard_error_j = back_to_back_j, 0.01 * back_to_back_j
        row.energy_dynamic_unthrottled_j = paced_j
        row.energy_dynamic_unthrottled_standard_error_j = None if error is None else error * paced_j

    samples, rows = measured(tmp_path, edit)
    own = samples.loc[key(working(rows)[0])]
    assert own["energy_dynamic_corrected_j"] == (paced_j if taken else back_to_back_j)
    assert own[error_of("energy_dynamic_corrected_j")] == pytest.approx(error if taken else 0.01)


def test_energy_with_pauses_changes_no_other_cost_and_no_other_row(tmp_path):
    before, rows = measured(tmp_path / "before", lambda rows: None)
    changed = key(working(rows)[0])

    def edit(rows):
        row = working(rows)[0]
        row.energy_dynamic_unthrottled_j, row.energy_dynamic_unthrottled_standard_error_j = 4.0, 0.1

    after, _ = measured(tmp_path / "after", edit)
    differs = (after != before) & ~(after.isna() & before.isna())
    assert differs.loc[changed][lambda one: one].index.tolist() == [
        "energy_dynamic_corrected_j",
        error_of("energy_dynamic_corrected_j"),
    ]
    assert not differs.drop(changed).any(axis=None)


def test_energy_with_pauses_is_levelled_as_all_energies_of_its_card_are(tmp_path):
    def edit(rows):
        other = [synthetic.again(row, gpu_uuid="GPU-slow", session_id="slow", repetition=1) for row in rows]
        for row in other:
            row.time_device_s *= 1.2
        for row in (working(rows)[0], working(other)[0]):
            row.energy_dynamic_unthrottled_j, row.energy_dynamic_unthrottled_standard_error_j = 4.0, 0.1
        return rows + other

    samples, rows = measured(tmp_path, edit)
    levelled = [4.0 / factor for factor in (1 / 1.1, 1.2 / 1.1)]
    assert samples.loc[key(working(rows)[0]), "energy_dynamic_corrected_j"] == pytest.approx(sum(levelled) / 2)


def test_energy_that_the_limit_lowered_is_told_from_the_clock_where_it_was_not_measured_with_pauses(tmp_path):
    ratio, told = 1.25, FEWEST

    def edit(rows):
        slowed = [row for row in working(rows) if row.pass_ == records.INFERENCE][: told + 2]
        for row in slowed:
            row.sm_clock_median_mhz *= 0.9
            row.throttle_reasons = ["sw_power_cap"]
            row.energy_dynamic_standard_error_j = 0.01 * row.energy_dynamic_j
        for row in slowed[:told]:
            row.energy_dynamic_unthrottled_j = ratio * row.energy_dynamic_j
            row.energy_dynamic_unthrottled_standard_error_j = 0.0
        slowed[-1].throttle_reasons = []

    samples, rows = measured(tmp_path, edit)
    *_, capped, free = [row for row in rows if row.kind == records.OPERATION and row.sm_clock_median_mhz == 810.0]
    assert samples.loc[key(capped), "energy_dynamic_corrected_j"] == pytest.approx(ratio * capped.energy_dynamic_j)
    assert samples.loc[key(capped), error_of("energy_dynamic_corrected_j")] == pytest.approx(0.01)
    assert samples.loc[key(free), "energy_dynamic_corrected_j"] == free.energy_dynamic_j
    assert samples.loc[key(capped), "energy_corrected_j"] == capped.energy_j, "what it took is not changed"


def test_host_times_are_those_of_the_median_host(tmp_path):
    def edit(rows):
        for row in working(rows):
            if row.pass_ == records.TRAINING:
                row.time_host_in_pass_s = 0.5 * row.time_host_s
        slow = [synthetic.again(row, session_id="slow", repetition=1) for row in rows]
        for row in slow:
            row.time_host_s *= 1.5
            if row.time_host_in_pass_s is not None:
                row.time_host_in_pass_s *= 1.5
        return rows + slow

    samples, rows = measured(tmp_path, edit)
    operations = [row for row in rows if row.kind == records.OPERATION and row.session_id != "slow"]
    assert len(operations) == len(samples)
    # two sessions: the median one lies between them
    for row in operations:
        alone = row.time_host_s if row.time_host_in_pass_s is None else row.time_host_in_pass_s
        assert samples.loc[key(row), "time_host_corrected_s"] == pytest.approx(1.25 * alone)
        assert samples.loc[key(row), "time_device_corrected_s"] == pytest.approx(row.time_device_s)
        assert samples.loc[key(row), "time_eager_corrected_s"] == pytest.approx(row.time_eager_s)


def test_of_repetitions_those_on_steady_hosts_count(tmp_path):
    def edit(rows):
        again = [synthetic.again(row, session_id="varying", repetition=1) for row in rows]
        for number, row in enumerate(again):
            row.time_host_s *= 4.0 if number % 2 else 1.0
            row.time_device_s = None if row.time_device_s is None else 9.0 * row.time_device_s
        return rows + again

    samples, rows = measured(tmp_path, edit)
    for row in working(rows):
        if row.session_id != "varying":
            assert samples.loc[key(row), "time_device_corrected_s"] == pytest.approx(row.time_device_s, rel=0.2)


def test_hosts_are_levelled_one_by_one(tmp_path):
    def edit(rows):
        here = [row for row in rows if row.kind == records.ANCHOR or row is not working(rows)[0]]
        there = [synthetic.again(row, session_id="slow") for row in rows if row.kind == records.ANCHOR]
        moved = synthetic.again(working(rows)[0], session_id="slow")
        for row in (*there, moved):
            row.time_host_s *= 1.5
        return [*here, *there, moved]

    samples, rows = measured(tmp_path, edit)
    moved, stayed = rows[-1], working(rows)[0]
    assert samples.loc[key(moved), "time_host_corrected_s"] == pytest.approx(moved.time_host_s / 1.2)
    assert samples.loc[key(stayed), "time_host_corrected_s"] == pytest.approx(stayed.time_host_s / 0.8)


def test_without_anchors_host_times_stay_as_they_were_measured(tmp_path):
    samples, rows = measured(tmp_path, lambda rows: [row for row in rows if row.kind == records.OPERATION])
    for row in rows:
        assert samples.loc[key(row), "time_host_corrected_s"] == pytest.approx(row.time_host_s)


def test_errors_come_along_relative_to_their_costs(tmp_path):
    relative = dict(zip(TARGETS, (0.01, 0.02, 0.03, 0.04, 0.05), strict=True))

    def edit(rows):
        row = working(rows)[0]
        for target, error in relative.items():
            measured = BY_CORRECTED[target].measured
            setattr(row, measured.standard_error, error * getattr(row, measured.column))

    samples, rows = measured(tmp_path, edit)
    known, unknown = (samples.loc[key(row)] for row in working(rows)[:2])
    assert [known[error_of(target)] for target in TARGETS] == pytest.approx([*relative.values()])
    assert unknown[[error_of(target) for target in TARGETS]].isna().all()


def test_the_error_of_a_host_time_is_that_of_a_call_among_others_of_its_pass(tmp_path):
    def edit(rows):
        row = next(row for row in working(rows) if row.pass_ == records.TRAINING)
        row.time_host_standard_error_s = 0.3 * row.time_host_s
        row.time_host_in_pass_s, row.time_host_in_pass_standard_error_s = 1e-5, 2e-7

    samples, rows = measured(tmp_path, edit)
    row = next(row for row in working(rows) if row.pass_ == records.TRAINING)
    assert samples.loc[key(row), "time_host_corrected_s"] == pytest.approx(1e-5)
    assert samples.loc[key(row), error_of("time_host_corrected_s")] == pytest.approx(0.02)


def test_a_dataset_of_before_costs_were_corrected_is_refused_with_what_to_do(tmp_path):
    made = synthetic.write_campaign(
        tmp_path, synthetic.campaign(clocks=[900], networks=2, passes=["inference", "training"])
    )
    build_dataset(made.config, made.measurements, made.catalogue, made.dataset)
    path = made.dataset / "operations.parquet"
    table = pq.read_table(path)
    old = table.schema.metadata | {b"schema_version": b"1"}
    pq.write_table(table.replace_schema_metadata(old), path)
    with pytest.raises(DataFileError, match=r"of version 1.* since version 2\. Run the stage that writes it again"):
        read_samples(made.dataset, "a30")
