import copy
import functools
from io import StringIO

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg

from clockwatt.dataset.build import build_dataset
from clockwatt.figures import draw, pareto_front, style
from clockwatt.figures.gpus import Gpu, Gpus
from clockwatt.figures.names import PER_PASS, QUESTIONS
from clockwatt.predict.fit import fit
from clockwatt.predict.validate import validate
from support import synthetic
from support.layout import check_layout

FORMATS = ("png", "pdf", "csv")


def test_same_data_give_the_same_bytes(results, tmp_path):
    for folder in ("a", "b"):
        style.save(*draw.DRAWN["composed_vs_measured"](results, ""), tmp_path / folder, "one")
    for ending in FORMATS:
        assert (tmp_path / "a" / f"one.{ending}").read_bytes() == (tmp_path / "b" / f"one.{ending}").read_bytes()


def test_the_data_beside_a_figure_have_six_digits_and_what_is_not_known_is_empty(tmp_path):
    data = pd.DataFrame({"name": ["a", "b", "c"], "time_s": [1.23456789e-5, np.nan, 0.0]})
    style.save(style.nothing("a test."), data, tmp_path, "one")
    text = (tmp_path / "one.csv").read_text()
    read = pd.read_csv(StringIO(text))["time_s"]
    assert read.tolist()[::2] == [1.23457e-5, 0.0]
    assert read.isna().tolist() == [False, True, False]


def test_one_clock_one_network_one_pass_one_predictor(tmp_path):
    settings = synthetic.campaign(
        clocks=["default"], networks=1, passes=["inference"], fit={"predictors": ["roofline"], "folds": 3, "trees": 3},
        gpus={"a30": {"device": "virtual:a30"}},
    )  # fmt: skip
    made = synthetic.write_campaign(tmp_path, settings)
    build_dataset(made.config, made.measurements, made.catalogue, made.dataset)
    fit(made.config, made.dataset, made.catalogue, made.predictors)
    validate(made.config, made.dataset, made.catalogue, made.predictors, made.validation)
    read = draw.Results(made.config, made.measurements, made.dataset, made.predictors, made.validation)
    for family in QUESTIONS:
        figure, _ = drawn_of(family, read)
        check_layout(figure)


def only(**chosen):
    """Keep the rows of every table that have these values, where the table has the column."""

    def change(results):
        for name in ("compositions", "whole_errors", "calls", "operations", "held_out", "catalogue", "telemetry"):
            table = getattr(results, name)
            for column, value in chosen.items():
                table = table[table[column] == value] if column in table else table
            setattr(results, name, table)
        for point in list(results.quality["points"]):
            if any(point.get(column, value) != value for column, value in chosen.items()):
                results.quality["points"].remove(point)

    return change


def empty(results):
    only(gpu="nowhere")(results)
    results.calls, results.catalogue = results.calls.iloc[:0], results.catalogue.iloc[:0]
    results.report = {"gpus": {}}


def nothing_learnt(results):
    """What is left where every row has a flag that keeps it from being learnt from."""
    results.held_out = results.held_out.iloc[:0]
    results.report = {"gpus": {}}
    results.compositions = results.compositions.assign(calls_without_cost=1)


POOR = {
    "all of it": lambda results: None,
    "no rows": empty,
    "one GPU": only(gpu="a30"),
    "all flagged": nothing_learnt,
}


class Watched(draw.Results):
    """Results that know what of them was read."""

    def __init__(self, results):
        self.read = set()
        vars(self).update(vars(results))

    def __getattribute__(self, name):
        if name != "read":
            self.read.add(name)
        return super().__getattribute__(name)


def drawn_of(family, results):
    return draw.DRAWN[family](results, "inference" if family in PER_PASS else "")


@pytest.fixture(scope="module")
def of_everything(_read):
    """Gives the figure of a family where nothing is missing, its data, and what of the results they are made from."""

    @functools.cache
    def of(family):
        watched = Watched(_read)
        return *drawn_of(family, watched), watched.read

    return of


def equal(one, other):
    return one.equals(other) if isinstance(one, pd.DataFrame) else one == other


@pytest.mark.parametrize("poor", POOR)
@pytest.mark.parametrize("family", QUESTIONS)
def test_figures_are_legible_whatever_there_is(results, of_everything, family, poor):
    figure, data, read = of_everything(family)
    if poor != "all of it":
        before = dict(vars(results), quality=copy.deepcopy(results.quality))
        POOR[poor](results)
        if all(equal(before[name], getattr(results, name)) for name in read & before.keys()):
            return  # nothing that it is made from is missing: the figure is the one that is checked as "all of it"
        figure, data = drawn_of(family, results)
    check_layout(figure)
    assert not data.empty or "Nothing to draw" in figure.texts[0].get_text()


@pytest.mark.parametrize("family", PER_PASS)
def test_a_pass_that_was_not_measured_is_told(results, family):
    only(**{"pass": "inference"})(results)
    figure, data = draw.DRAWN[family](results, "training")
    assert data.empty
    assert "this pass" in figure.texts[0].get_text()


@pytest.mark.parametrize("family", QUESTIONS)
def test_the_stamp_is_on_what_is_virtual_and_on_nothing_else(of_everything, family):
    figure, *_ = of_everything(family)
    titles = [axes.get_title(loc) for axes in figure.axes for loc in ("left", "center", "right")]
    for title in titles:
        assert ("a30" in title) <= ("(virtual)" in title), title
        assert ("v100" in title) <= ("(virtual)" not in title), title
    assert not ("a30" in "".join(titles) and "v100" in "".join(titles) and len(figure.axes) == 1)


def test_what_needs_telemetry_says_so_without(results):
    results.telemetry = results.telemetry.iloc[:0]
    for family in ("power_traces", "sampling_interval", "cumulative_energy"):
        figure, data = draw.DRAWN[family](results, "")
        assert data.empty
        assert "no telemetry" in figure.texts[0].get_text()


@given(low=st.floats(1e-9, 1e3), span=st.floats(1.2, 1e9), at_most=st.integers(3, 6))
def test_labels_of_logarithmic_axes_are_few_and_inside(low, span, at_most):
    values = style.round_values(low, low * span, at_most)
    assert 1 <= len(values) <= at_most
    assert all(low <= value <= low * span for value in values)
    assert values == sorted(set(values))


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=20))
def test_pareto_front_is_what_no_other_beats(points):
    time, energy = np.array(points, dtype=float).T
    best = {points[position] for position in pareto_front.front(time, energy)}
    beaten = {p for p in points for q in points if q != p and q[0] <= p[0] and q[1] <= p[1]}
    assert best == set(points) - beaten


def test_labels_of_a_pareto_front_stay_in_their_panels():
    points = [("a30", 1.0, 3.0, "sm1110 to sm1440"), ("a30", 1.1, 2.0, "sm780"), ("rtx2080ti", 2.5, 9.0, "sm1500")]
    data = pd.DataFrame([
        {"kind": "virtual", "gpu": gpu, "network_id": f"resnet{n}-32x3x64x64-float32", "execution": "tf32",
         "compared": "tf32", "time_s": n * time, "energy_j": energy, "time_error_s": 0.0, "energy_error_j": 0.0,
         "points": words, "front": gpu == "a30"}
        for n in (1, 2, 3) for gpu, time, energy, words in points
    ])  # fmt: skip
    gpus = Gpus([Gpu("a30", virtual=True), Gpu("rtx2080ti", virtual=True)])
    with style.styled():
        figure = pareto_front.draw(data, gpus)
        style.settle(figure)
    renderer = FigureCanvasAgg(figure).get_renderer()
    for axes in figure.axes:
        panel = axes.get_window_extent(renderer)
        assert len(axes.texts) == 2
        assert all(label.get_window_extent(renderer).x0 >= panel.x0 for label in axes.texts)


@pytest.mark.parametrize(("value", "words"), [(0, "0 %"), (20, "+20 %"), (-2.5, "\N{MINUS SIGN}2.5 %"), (-1e-12, None)])
def test_percentages_are_signed_and_nothing_is_not(value, words):
    assert style.percent_words(value) == words if words else style.percent_words(value, ".1f") == "0.0 %"
