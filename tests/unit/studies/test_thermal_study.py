"""The thermal study from records to answers: what is read, what leaks, what is stored, and what is said."""

import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner
from virtual_records import write_virtual_record

from clockwatt.cli.main import app
from clockwatt.errors import ClockwattError, DataFileError
from clockwatt.studies.thermal import answers
from clockwatt.studies.thermal.errors import ThermalError
from clockwatt.studies.thermal.evaluation import FLOOR_C, cross_coverage, judge, parts, possible_splits, scores
from clockwatt.studies.thermal.figures import draw_forecast, forecast_over_time
from clockwatt.studies.thermal.fit import Result, Settings, fit_study
from clockwatt.studies.thermal.influence_figure import _figure, short_names
from clockwatt.studies.thermal.inputs import Task, decayed, mean_over
from clockwatt.studies.thermal.intervals import Intervals, Misses, coverage
from clockwatt.studies.thermal.models import recurrent_net
from clockwatt.studies.thermal.models.base import truth
from clockwatt.studies.thermal.models.rc import RcNetworks
from clockwatt.studies.thermal.models.registry import MODELS
from clockwatt.studies.thermal.models.table import Scaling
from clockwatt.studies.thermal.stored import Fitted, Study, load_study, save_study
from clockwatt.studies.thermal.traces import Trace, _stretches, read_traces
from support.shared import made_once
from support.thermal_nodes import made_node

PATTERNS = ("epochs", "bursts", "steps")
HORIZONS_S = (1.0, 30.0, 60.0, 300.0)
SHORT = ("persistence", "linear", "rc")


@pytest.fixture(scope="session")
def records(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Records of a virtual card under three patterns of load, two runs each."""

    def make(folder: Path) -> None:
        for pattern in PATTERNS:
            write_virtual_record(folder / pattern, model="a30", pattern=pattern, runs=2, duration_s=420)

    folder = made_once(tmp_path_factory, "thermal-records", make)
    return [folder / pattern for pattern in PATTERNS]


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A record of two virtual cards beside each other, two runs."""

    def make(folder: Path) -> None:
        write_virtual_record(folder / "pair", model="a30", pattern="epochs", runs=2, duration_s=220, cards=(0, 1))

    return made_once(tmp_path_factory, "thermal-pair", make) / "pair"


@pytest.fixture(scope="session")
def result(records: list[Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Path]:
    output = tmp_path_factory.mktemp("thermal") / "fit"
    return fit_study(records, output, Settings(SHORT, ("power",), horizons_s=HORIZONS_S)), output


def clockwatt(*words: object) -> tuple[int, str, str]:
    """Exit status, output and the error in words of the command line."""
    done = CliRunner().invoke(app, [str(word) for word in words])
    said = str(done.exception) if isinstance(done.exception, ClockwattError) else done.stderr
    return done.exit_code, done.stdout, said


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train recurrent networks for a moment, where what they may see matters and not how well they forecast."""
    monkeypatch.setattr(recurrent_net, "EPOCHS", 1)


@pytest.mark.usefixtures("quickly")
@pytest.mark.parametrize("name", ["linear", "lstm"])
def test_a_model_of_temperature_alone_does_not_see_power(records: list[Path], name: str) -> None:
    traces = read_traces(records).traces
    model = MODELS[name](Task("temperature", "history", (1.0,))).fit(traces)
    origins = np.arange(60, 90)
    other = replace(traces[0], power_w=traces[0].power_w[::-1])
    np.testing.assert_array_equal(model.forecast(traces[0], origins), model.forecast(other, origins))


def test_a_trace_without_rows_of_a_fold_and_without_features_scales_to_nothing() -> None:
    assert Scaling.of({"power_limit_w": np.full(3, 700.0)}).matrix({"power_limit_w": np.zeros(0)}, 0).shape == (0, 0)


def test_a_record_is_read_onto_an_even_grid(pair: Path) -> None:
    traces = read_traces([pair]).traces
    assert [(trace.gpu[-5:], trace.run.rpartition("/")[2]) for trace in traces] == [
        ("card0", "run-1"), ("card1", "run-1"), ("card0", "run-2"), ("card1", "run-2"),
    ]  # fmt: skip
    for trace in traces:
        assert trace.workload == "epochs"
        assert trace.virtual
        assert trace.start_s == pytest.approx(-20, abs=1)
        assert len(trace) == pytest.approx(260, abs=3)
        assert (trace.temperature_c == np.round(trace.temperature_c)).all()
        assert trace.idle_w == pytest.approx(trace.power_w[5:15].mean(), rel=0.02)
        assert trace.neighbours == tuple({each.gpu for each in traces} - {trace.gpu})
        assert np.isnan(trace.slowed_from_c)
    neighbour = next(each for each in traces if each.run == traces[0].run and each.gpu != traces[0].gpu)
    assert traces[0].neighbours_w[:, 0] == pytest.approx(neighbour.power_w)


def test_gaps_of_two_sensors_that_overlap_are_one() -> None:
    long = pd.Series(1.0, index=np.concatenate([np.arange(0, 11.0), np.arange(40, 61.0)]))
    short = pd.Series(1.0, index=np.concatenate([np.arange(0, 13.0), np.arange(20, 61.0)]))
    for sensors in ([long, short], [short, long]):
        assert [(grid[0], grid[-1]) for grid in _stretches(sensors, 1.0)] == [(0, 10), (40, 60)]


def test_stretches_of_one_run_are_left_out_together() -> None:
    node = made_node(np.zeros((2, 2)), steps=300)
    traces = [replace(trace, part=part) for trace in node for part in (0, 1)]
    assert possible_splits(traces)["run"] == "there is one run only"
    assert {trace.part for trace in answers.node_at(traces)} == {1}
    late = [replace(trace, start_s=1000.0) if trace.part else trace for trace in traces]
    assert {trace.part for trace in answers.node_at(late, at_s=100)} == {0}


def test_a_load_that_never_changes_costs_one_model_not_the_fit(records: list[Path], tmp_path: Path) -> None:
    shutil.copytree(records[0], tmp_path / "steady")
    for path in (tmp_path / "steady").rglob("*.parquet"):
        table = pq.read_table(path)
        rows = table.to_pandas()
        for column, value in {"temperature_c": 40, "power_instant_w": 100, "power_average_w": 100}.items():
            rows.loc[rows[column].notna(), column] = value
        pq.write_table(pa.Table.from_pandas(rows, schema=table.schema, preserve_index=False), path)
    words = ("--model", "rc", "--model", "linear", "--horizon", "30s", "--output", tmp_path / "fit")
    status, _, said = clockwatt("thermal", "fit", tmp_path / "steady", *words)
    assert status == 0, said
    notes = json.loads((tmp_path / "fit" / "thermal.json").read_text())["notes"]
    assert any(note.startswith("rc is not among the models: ") and "hardly changed" in note for note in notes)
    status, _, said = clockwatt("thermal", "forecast", tmp_path / "fit", tmp_path / "steady")
    assert (status, "has no model 'rc'" in said) == (1, True)


def test_sensors_that_nobody_has_are_named(records: list[Path]) -> None:
    (note,) = read_traces(records[:1]).notes
    assert "memory_temperature_c" in note
    assert "processor temperature_c" in note
    assert "sm_clock_mhz" not in note


@given(st.lists(st.floats(0, 500), min_size=1, max_size=60), st.floats(1, 100), st.integers(1, 70))
def test_filters_stay_within_what_they_saw_and_look_back_only(values: list[float], tau: float, window: int) -> None:
    watts = np.array(values)
    for found in (decayed(watts, tau, 1.0), mean_over(watts, window)):
        assert found.shape == watts.shape
        assert found.min() >= watts.min() - 1e-6
        assert found.max() <= watts.max() + 1e-6
        changed = np.append(watts, 1000.0)
        again = decayed(changed, tau, 1.0) if found[-1] == decayed(watts, tau, 1.0)[-1] else mean_over(changed, window)
        assert again[:-1] == pytest.approx(found)


@pytest.mark.usefixtures("quickly")
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("load", ["history", "known"])
def test_no_forecast_depends_on_what_it_may_not_see(name: str, load: str) -> None:
    node = made_node([[0, 0.02], [0.01, 0]], steps=700, seed=4)
    task = Task("sensors", load, (1.0, 10.0, 60.0))
    model = MODELS[name](task).fit(node)
    trace, origin = node[0], 400
    later = np.arange(700) > origin + (60 if load == "known" else 0)
    changed = replace(
        trace, temperature_c=np.where(np.arange(700) > origin, 99.0, trace.temperature_c),
        power_w=np.where(later, 999.0, trace.power_w),
        neighbours_w=np.where(later[:, None], 999.0, trace.neighbours_w),
        neighbours_c=np.where(np.arange(700)[:, None] > origin, 99.0, trace.neighbours_c),
    )  # fmt: skip
    found = model.forecast(trace, np.array([origin]))
    assert np.isfinite(found).all()
    assert model.forecast(changed, np.array([origin])) == pytest.approx(found, abs=1e-4)


@pytest.mark.parametrize("split", ["rows", "run", "workload"])
def test_everything_is_left_out_once_and_gpus_of_a_run_together(split: str) -> None:
    traces = made_node(np.zeros((2, 2)), steps=300, runs=6, workloads=3)
    left_out = [np.zeros(300) for _ in traces]
    for learnt, out in parts(traces, split):
        held: set[str] = set()
        for number, (trace, one, other) in enumerate(zip(traces, learnt, out, strict=True)):
            assert (one ^ other).all()
            left_out[number] += other
            if split != "rows" and other.any():
                assert other.all()
                held.add(getattr(trace, split))
        if split != "rows":
            kept = {getattr(t, split) for t, one in zip(traces, learnt, strict=True) if one.any()}
            assert not kept & held
    assert all((count == 1).all() for count in left_out)


def test_rc_beats_persistence_on_workloads_left_out(result: tuple[Result, Path]) -> None:
    table = result[0].scores
    far = table[(table["split"] == "workload") & (table["model"] == "rc") & (table["horizon_s"] >= 30)]
    assert set(far["horizon_s"]) == {30.0, 60.0, 300.0}
    assert (far["rmse_c"] < far["persistence_rmse_c"]).all()
    known = far[far["load"] == "known"]
    assert (known["rmse_c"] < 1.3 * FLOOR_C).all()  # physics alone forecasts what it is told of


def test_shuffled_rows_flatter_what_can_remember_them(result: tuple[Result, Path]) -> None:
    task = Task("power", "history", (60.0,))
    judged = [judge(result[0].traces, split, "trees", task) for split in ("rows", "workload")]
    shuffled, left_out = scores(judged)["rmse_c"]
    assert shuffled < 0.85 * left_out


def test_intervals_hold_about_what_they_promise(result: tuple[Result, Path]) -> None:
    judged = next(one for one in result[0].judged if (one.split, one.model, one.task.load) == ("run", "rc", "history"))
    assert cross_coverage(judged)[:3] == pytest.approx(0.9, abs=0.12)


def misses_of(errors: Sequence[float], runs: int) -> Misses:
    rows = np.array(errors)[:, None]
    return Misses(rows, np.zeros(len(rows), bool), np.arange(len(rows)) % runs)


@given(st.lists(st.floats(-50, 50), min_size=40, max_size=200), st.integers(2, 9))
def test_an_interval_holds_at_least_its_share_of_what_it_was_made_of(errors: list[float], runs: int) -> None:
    misses = misses_of(errors, runs)
    intervals = Intervals.of(misses)
    assert coverage(misses, intervals)[0] >= 0.85
    assert Intervals.from_json(json.loads(json.dumps(intervals.to_json())), 1).half_widths_k == pytest.approx(
        intervals.half_widths_k
    )


def test_what_one_run_missed_says_nothing_of_others() -> None:
    assert np.isnan(Intervals.of(misses_of([1.0] * 100, 1)).half_widths_k).all()


def test_a_study_is_stored_whole(result: tuple[Result, Path]) -> None:
    made, output = result
    names = {path.name for path in output.iterdir()}
    drawn = {f"{name}.{kind}" for name in ("rmse", "forecast") for kind in ("png", "pdf", "csv")}
    assert names == drawn | {"thermal.json", "scores.csv"}
    assert pd.read_csv(output / "scores.csv").shape == made.scores.shape
    again = load_study(output)
    trace = made.traces[0]
    origins = np.arange(50, 300, 10)
    for name, fitted in made.study.fitted.items():
        other = again.fitted[name]
        assert other.model.task == fitted.model.task
        assert other.model.forecast(trace, origins) == pytest.approx(fitted.model.forecast(trace, origins))


def test_trees_and_recurrent_networks_are_stored_as_plain_arrays(tmp_path: Path) -> None:
    node = made_node(np.zeros((2, 2)), steps=400)
    task = Task("sensors", "history", (1.0, 30.0))
    made = {name: MODELS[name](task).fit(node) for name in ("trees", "lstm", "gru")}
    save_study(Study({name: Fitted(model, None) for name, model in made.items()}, [], virtual=True), tmp_path)
    origins = np.arange(0, 350, 50)
    for name, fitted in load_study(tmp_path).fitted.items():
        found = fitted.model.forecast(node[0], origins)
        assert found == pytest.approx(made[name].forecast(node[0], origins))
        missed = found - truth(node[0], origins, task)
        assert np.sqrt(np.nanmean(missed[:, 0] ** 2)) < 5
        # far beyond what was learnt from, as the sensors of another workload may be
        far = replace(node[0], power_w=node[0].power_w * 100, neighbours_w=node[0].neighbours_w * 100)
        change = fitted.model.forecast(far, origins) - far.temperature_c[origins][:, None]
        assert np.nanmax(np.abs(change)) < np.ptp(node[0].temperature_c) + np.ptp(node[1].temperature_c)
    (tmp_path / "arrays-gru.npz").write_bytes((tmp_path / "arrays-lstm.npz").read_bytes())
    with pytest.raises(DataFileError, match="not those of such a network"):
        load_study(tmp_path, only="gru")
    (tmp_path / "arrays-trees.npz").unlink()
    with pytest.raises(DataFileError, match=r"arrays-trees\.npz: no such file"):
        load_study(tmp_path, only="trees")


def damaged(path: Path, change: str) -> None:
    content = json.loads(path.read_text())
    match change:
        case "no JSON":
            path.write_text("{")
            return
        case "format":
            content["format"] = 99
        case "a weight too few":
            next(iter(content["models"]["linear"]["state"]["fits"].values()))["weights"].pop()
        case "a model that is none":
            content["models"]["oracle"] = content["models"].pop("linear")
        case "a resistance below 0":
            next(iter(content["models"]["rc"]["state"]["cards"].values()))["modes"][0]["resistance_k_per_w"] = -1
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    "change",
    ["no JSON", "format", "a weight too few", "a model that is none", "a resistance below 0"],
)
def test_a_damaged_fit_is_refused_in_one_line(result: tuple[Result, Path], tmp_path: Path, change: str) -> None:
    for path in result[1].iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    damaged(tmp_path / "thermal.json", change)
    with pytest.raises(DataFileError, match="clockwatt thermal fit") as error:
        load_study(tmp_path)
    assert "\n" not in str(error.value)


def test_answers_follow_from_the_constants(result: tuple[Result, Path]) -> None:
    made, _ = result
    node = answers.node_at(made.traces, run=None, at_s=200.0)
    trace = node[0]
    network = made.study.fitted["rc"].model.cards_[trace.gpu]
    now = trace.temperature_c[-1]
    load_w = trace.power_w[-10:].mean()
    settles = network.ambient_c + network.resistance_k_per_w * load_w
    for limit in (now - 5, settles - 1, settles + 1):
        told = answers.time_until_throttling(made.study, node, trace.gpu, limit)
        assert told.settles_at_c == pytest.approx(settles, abs=2)
        if limit < min(now, settles) - 3:
            assert told.time_s == 0
    assert answers.time_until_throttling(made.study, node, trace.gpu, 150.0).time_s is None
    unknown = answers.time_until_throttling(made.study, node, trace.gpu, None)
    assert (unknown.limit_c, unknown.time_s) == (None, None)
    assert "--throttle-at" in unknown.why


def test_a_rest_is_as_long_as_it_takes(result: tuple[Result, Path]) -> None:
    made, _ = result
    node = answers.node_at(made.traces)
    trace = node[0]
    worked = np.flatnonzero(trace.temperature_c >= 60)[-1]
    hot = [answers.until(each, int(worked) + 1) for each in node]
    told = answers.time_of_rest(made.study, hot, trace.gpu, 45.0)
    rise, idle = 60 - 30, trace.idle_w * 45 / 165
    expected = 12 * np.log((rise - idle) / (15 - idle))
    assert told.time_s == pytest.approx(expected, abs=4)
    assert answers.time_of_rest(made.study, hot, trace.gpu, 20.0).time_s is None


def test_a_job_goes_where_it_stays_coolest() -> None:
    # GPU-1 and GPU-2 idle; GPU-0 works beside GPU-1, which it warms
    node = made_node([[0, 0, 0], [0.04, 0, 0], [0, 0, 0]], steps=2000, seed=2)
    model = RcNetworks(Task()).fit(node)
    ends = [replace(t, power_w=t.power_w.copy(), neighbours_w=t.neighbours_w.copy()) for t in node]
    for own, trace in enumerate(ends):
        now = np.array([400.0, 50.0, 50.0])
        trace.power_w[-400:] = now[own]
        trace.neighbours_w[-400:] = np.delete(now, own)
        trace.temperature_c[-400:] = np.round(28 + 0.15 * now[own] + (0.04 * 400 if own == 1 else 0))
    places = answers.coolest_places(Study({"rc": Fitted(model, None)}, [], virtual=True), ends, 200.0, 300.0)
    assert [place.gpu for place in places] == ["GPU-2", "GPU-1", "GPU-0"]
    assert [place.busy for place in places] == [False, False, True]
    assert places[1].temperature_c - places[0].temperature_c == pytest.approx(16, abs=2)
    limited = [replace(trace, sensors={"power_limit_w": np.full(len(trace), 165.0)}) for trace in ends]
    with pytest.raises(ThermalError, match="200W: is above the power limit of all GPUs, 165 W"):
        answers.coolest_places(Study({"rc": Fitted(model, None)}, [], virtual=True), limited, 200.0, 300.0)


def test_influence_is_told_and_drawn(pair: Path, tmp_path: Path) -> None:
    words = ("--permutations", "19", "--output", tmp_path)
    status, told, said = clockwatt("thermal", "influence", pair, *words)
    assert status == 0, said
    assert told.startswith("What warms which GPU (VIRTUAL GPUs)\nvirtual-a30-seed0-card0 by ")
    drawn = pd.read_csv(tmp_path / "influence.csv")
    assert drawn[["gpu", "source"]].to_numpy().tolist() == [
        ["virtual-a30-seed0-card0", "virtual-a30-seed0-card1"], ["virtual-a30-seed0-card1", "virtual-a30-seed0-card0"],
    ]  # fmt: skip
    assert (tmp_path / "influence.png").read_bytes().startswith(b"\x89PNG")
    figure = _figure(drawn, virtual=True, notes=[])
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["…card1 → …card0", "…card0 → …card1"]
    assert "virtual" in figure.axes[0].get_title(loc="left")


def test_cards_are_named_by_what_tells_them_apart() -> None:
    assert short_names(["GPU-0a30beef-1111", "GPU-0b30beef-1111"]) == {
        "GPU-0a30beef-1111": "GPU-0a30beef", "GPU-0b30beef-1111": "GPU-0b30beef",
    }  # fmt: skip
    assert short_names(["GPU-1"]) == {"GPU-1": "GPU-1"}


def test_a_forecast_of_virtual_gpus_is_not_called_measured(result: tuple[Result, Path]) -> None:
    over_time = forecast_over_time(result[0].judged, result[0].traces)
    for virtual in (True, False):
        (shown,) = draw_forecast(over_time, virtual=virtual).legends
        assert ("measured" in [text.get_text() for text in shown.get_texts()]) is not virtual


def test_the_command_line_fits_and_forecasts(records: list[Path], pair: Path, tmp_path: Path) -> None:
    words = ("--model", "persistence", "--model", "rc", "--horizon", "30s", "--output", tmp_path / "fit", "--json")
    status, told, said = clockwatt("thermal", "fit", *records[2:], *words)
    assert status == 0, said
    content = json.loads(told[told.index("{") :])
    assert content["virtual"]
    (card,) = {tuple(card) for card in content["cards"].values()}
    assert {"ambient_c", "resistance_k_per_w", "mode1_time_constant_s"} <= set(card)
    words = ("--horizon", "45s", "--rest-to", "40C", "--throttle-at", "60C", "--job", "150W", "--at", "200s", "--json")
    status, told, said = clockwatt("thermal", "forecast", tmp_path / "fit", pair, *words)
    assert status == 0, said
    content = json.loads(told)
    assert {len(content[name]) for name in ("forecasts", "throttling", "rest", "places")} == {2}
    first = content["forecasts"][0]
    assert first["given"] == "history only; a steady load stays as it is"
    assert first["temperature_c"] == pytest.approx(first["now_c"], abs=40)
    assert first["low_c"] is None  # the intervals end at 30 s
    status, told, said = clockwatt("thermal", "forecast", tmp_path / "fit", records[0])
    assert status == 0, said
    assert "VIRTUAL" in told
    assert "90%" in told
    assert re.search(r" °C at \d+ W; in 30 s .* at an expected \d+ W, by rc", told)


def test_bad_input_gets_one_clear_line(records: list[Path], result: tuple[Result, Path], tmp_path: Path) -> None:
    _, fit = result
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("mine")
    (tmp_path / "empty").mkdir()
    wrong = {
        "holds no record": ("fit", tmp_path / "empty", "--output", tmp_path / "o"),
        "given twice": ("fit", records[0], records[0], "--output", tmp_path / "o"),
        "--model oracle: choose": ("fit", records[0], "--output", tmp_path / "o", "--model", "oracle"),
        "--horizon 'soon'": ("fit", records[0], "--output", tmp_path / "o", "--horizon", "soon"),
        "contains other files": ("fit", records[0], "--output", tmp_path / "mine"),
        "no such file": ("forecast", tmp_path / "empty", records[0]),
        "has no model 'lstm'": ("forecast", fit, records[0], "--model", "lstm"),
        "linear forecasts 1s, 30s": ("forecast", fit, records[0], "--model", "linear", "--horizon", "45s"),
        "--rest-to 'cold'": ("forecast", fit, records[0], "--rest-to", "cold"),
        "--run run-9: the record has run-1, run-2": ("forecast", fit, records[0], "--run", "run-9"),
        "was recorded from": ("forecast", fit, records[0], "--at", "9999s"),
    }
    for words, command in wrong.items():
        status, _, said = clockwatt("thermal", *command)
        assert status != 0
        assert words in said
        assert "\n" not in said.strip()
    assert not (tmp_path / "o").exists()
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.tex"]


def test_one_run_is_enough_for_constants_but_not_for_intervals(records: list[Path], tmp_path: Path) -> None:
    single = write_virtual_record(tmp_path / "record", model="a30", pattern="steps", runs=1, duration_s=300)
    made = fit_study([single], tmp_path / "fit", Settings(models=SHORT))
    assert any("one run only" in note for note in made.study.notes)
    assert all(fitted.intervals is None for fitted in made.study.fitted.values())
    assert set(made.scores["split"]) == {"rows"}
    assert scores([]).empty
    with pytest.raises(ClockwattError, match="one workload only"):
        judge(made.traces, "workload", "rc", Task())


def test_another_gpu_gets_the_network_of_its_model_and_an_unknown_model_is_named(result: tuple[Result, Path]) -> None:
    made, _ = result
    trace: Trace = made.traces[0]
    sister = replace(trace, gpu="another card")
    told = answers.forecast(made.study.fitted["rc"], sister, 30.0)
    assert told.temperature_c == pytest.approx(
        answers.forecast(made.study.fitted["rc"], trace, 30.0).temperature_c, abs=1
    )
    with pytest.raises(ClockwattError, match="no such GPU was fitted; the fit knows virtual A30"):
        answers.forecast(made.study.fitted["rc"], replace(sister, gpu_name="NVIDIA B300"), 30.0)
