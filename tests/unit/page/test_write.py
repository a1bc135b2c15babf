"""The page of poor and of rich campaigns: it says what it has, and what it left out."""

from __future__ import annotations

import shutil

import pytest

from clockwatt.dataset.build import build_dataset
from clockwatt.errors import DataFileError
from clockwatt.io import files
from clockwatt.page.write import write_page
from clockwatt.predict.fit import fit
from clockwatt.predict.validate import validate
from clockwatt.schema import layout
from clockwatt.schema.flags import Flag
from clockwatt.schema.records import CALL_SCHEMA, NETWORK_SCHEMA, TELEMETRY_SCHEMA, TelemetryRow, table_of
from clockwatt.schema.tables import NETWORKS_SCHEMA
from support import synthetic

LARGEST_BYTES = 4_000_000


def analysed(made):
    build_dataset(made.config, made.measurements, made.catalogue, made.dataset)
    fit(made.config, made.dataset, made.catalogue, made.predictors)
    validate(made.config, made.dataset, made.catalogue, made.predictors, made.validation)
    return made


def written(made, path):
    write_page(made.config, made.dataset, made.predictors, made.validation, path)
    assert path.stat().st_size < LARGEST_BYTES
    return path


def small(tmp_path, **changes):
    quick = {"predictors": ["roofline"], "folds": 3, "trees": 3}
    return synthetic.write_campaign(tmp_path, synthetic.campaign(fit=quick, **changes))


def test_the_same_results_give_the_same_bytes(made, page_of_made, tmp_path):
    assert written(made, tmp_path / "again.html").read_bytes() == page_of_made.read_bytes()


def test_a_page_names_no_other_place_that_a_browser_would_load_from(page_of_made):
    text = page_of_made.read_text(encoding="utf-8")
    markup = text[: text.index('<script type="application/json"')]
    assert "http" not in markup
    assert "src=" not in markup


def test_one_gpu_at_one_clock_with_one_network_and_no_training(tmp_path, open_page):
    made = analysed(small(
        tmp_path, clocks=["default"], networks=1, passes=["inference"], gpus={"a30": {"device": "virtual:a30"}},
    ))  # fmt: skip
    opened = open_page(written(made, tmp_path / "page.html"))
    assert opened.complaints == []
    assert "at its default clock: the only operating point of it that was measured." in opened.text("#answer-sentence")
    assert "a30: one operating point, so no line." in opened.text("#curves-lead")
    left_out = opened.text("#trust-left-out")
    assert "Training was not measured in this campaign." in left_out
    assert "a30 was measured at one operating point: no clock can be chosen there." in left_out


def test_all_rows_flagged(tmp_path, open_page):
    made = small(tmp_path, networks=2, passes=["inference"])

    def flag(rows):
        for row in rows:
            row.flags = [Flag.NOT_STATIONARY]

    for label, gpu in made.config.gpus.items():
        for point in gpu.points:
            for path in (layout.operations_file(label, point, 1), layout.networks_file(label, point, 1)):
                synthetic.change(made, path, flag)
    opened = open_page(written(analysed(made), tmp_path / "page.html"))
    assert opened.complaints == []
    assert opened.text("#trust-flags-lead").startswith("100\u00a0% of")
    assert "None of them excludes a row from training." in opened.text("#trust-flags-lead")
    assert "not stationary" in opened.text("#table-rows")


def test_how_regularly_sensors_were_read(made, tmp_path, open_page):
    readings = [
        TelemetryRow(
            session_id="one", lane=lane, time_us=0, monotonic_ns=int(1e9 * (step * number + late * (number % 10 == 0))),
            power_sample_w=50.0,
        )
        for lane, step, late in (("ring", 0.02, 0.001), ("fast", 0.1, 0.004))
        for number in range(1000)
    ]  # fmt: skip
    for point in ("sm900", "sm1440"):
        path = tmp_path / "a30" / point / "telemetry-networks-1.parquet"
        path.parent.mkdir(parents=True)
        files.write_table(table_of(readings[: 500 if point == "sm900" else None], TELEMETRY_SCHEMA), path)
    page = tmp_path / "page.html"
    write_page(made.config, made.dataset, made.predictors, made.validation, page, measurements_dir=tmp_path)
    opened = open_page(page)
    opened.page.select_option("#method-gpu", label="a30 (virtual)")
    said = opened.text("#method-polling").replace("\u00a0", " ")
    assert said.startswith("While networks ran at sm1440: ring buffer of the driver, every 20 ms, 95 % of 999 within")
    assert "within 1 ms of that; polled by the logger, every 100 ms, 95 % of 999 within 4 ms of that" in said
    drawn = opened.run("Bokeh.documents.map((doc) => doc.get_model_by_name('polling-fast')).find(Boolean).data.y")
    assert len(drawn) == 400, "of 400 stretches of time the reading farthest off"
    assert max(map(abs, drawn)) == pytest.approx(4, rel=1e-3)
    opened.page.select_option("#method-gpu", label="v100 (virtual)")
    assert opened.text("#method-polling") == "No readings of v100 are here."
    assert not opened.page.locator("#plot-polling").is_visible()
    assert opened.complaints == []


def test_no_network_at_all(made, tmp_path, open_page):
    folder = tmp_path / "dataset"
    shutil.copytree(made.dataset, folder)
    for path, schema in (
        (folder / "catalogue" / layout.NETWORKS_FILE, NETWORK_SCHEMA),
        (folder / "catalogue" / layout.CALLS_FILE, CALL_SCHEMA),
        (folder / layout.NETWORKS_FILE, NETWORKS_SCHEMA),
    ):
        path.unlink()
        files.write_table(schema.empty_table(), path)
    write_page(made.config, folder, made.predictors, made.validation, tmp_path / "page.html")
    opened = open_page(tmp_path / "page.html")
    assert opened.complaints == []
    assert opened.text("#answer-sentence").startswith("No network is in this campaign")
    assert "The campaign has no network" in opened.text("#trust-left-out")
    assert opened.text("#table-count") == "0 of 0 rows shown"


def test_without_predictors_it_says_which_stage_to_run_and_writes_nothing(made, tmp_path):
    with pytest.raises(DataFileError, match="Run `clockwatt fit`"):
        write_page(made.config, made.dataset, tmp_path / "none", made.validation, tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_without_a_validation_it_says_which_stage_to_run_and_writes_nothing(made, tmp_path):
    with pytest.raises(DataFileError, match=r"validate|networks\.parquet"):
        write_page(made.config, made.dataset, made.predictors, tmp_path / "none", tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()
