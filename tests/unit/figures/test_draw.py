import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.image import imread

from clockwatt.dataset.build import build_dataset
from clockwatt.figures import style
from clockwatt.figures.draw import draw_figures
from clockwatt.figures.names import FIGURES, FORMATS
from clockwatt.figures.networks import pareto_front
from clockwatt.predict.fit import fit
from clockwatt.predict.validate import validate
from support import synthetic


def drawn(made, folder):
    draw_figures(made.config, made.dataset, made.predictors, made.validation, folder)
    return folder


@pytest.fixture(scope="module")
def figures(made, tmp_path_factory):
    return drawn(made, tmp_path_factory.mktemp("figures"))


def test_every_figure_is_drawn_in_every_format_and_nothing_else(figures):
    assert {path.name for path in figures.iterdir()} == {f"{name}.{ending}" for name in FIGURES for ending in FORMATS}
    for name in FIGURES:
        pixels = imread(figures / f"{name}.png")
        assert pixels.shape[1] == pytest.approx(style.WIDTH_IN * 200, abs=1)
        assert (pixels[..., :3].min(axis=2) < 0.5).mean() > 0.002, "nothing but paper"


def test_figures_of_virtual_gpus_say_so(figures):
    for name in FIGURES:
        pixels = imread(figures / f"{name}.png")[..., :3]
        red = (pixels[..., 0] > 0.6) & (pixels[..., 1] < 0.2) & (pixels[..., 2] < 0.3)
        assert red[-80:].sum() > 300, name


def test_same_data_give_the_same_bytes(made, figures, tmp_path):
    drawn(made, tmp_path)
    for path in figures.iterdir():
        assert (tmp_path / path.name).read_bytes() == path.read_bytes(), path.name


def test_one_clock_one_network_one_pass_one_predictor(tmp_path):
    settings = synthetic.campaign(
        clocks=["default"], networks=1, passes=["inference"], fit={"predictors": ["roofline"], "folds": 3, "trees": 3},
        gpus={"a30": {"device": "virtual:a30"}},
    )  # fmt: skip
    made = synthetic.write_campaign(tmp_path, settings)
    build_dataset(made.config, made.measurements, made.catalogue, made.dataset)
    fit(made.config, made.dataset, made.catalogue, made.predictors)
    validate(made.config, made.dataset, made.catalogue, made.predictors, made.validation)
    assert len(list(drawn(made, made.figures).iterdir())) == len(FIGURES) * len(FORMATS)


@given(low=st.floats(1e-9, 1e3), span=st.floats(1.2, 1e9), at_most=st.integers(3, 6))
def test_labels_of_logarithmic_axes_are_few_and_inside(low, span, at_most):
    values = style.round_values(low, low * span, at_most)
    assert 1 <= len(values) <= at_most
    assert all(low <= value <= low * span for value in values)
    assert values == sorted(set(values))


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=20))
def test_pareto_front_is_what_no_other_beats(points):
    time, energy = np.array(points, dtype=float).T
    front = {points[position] for position in pareto_front(time, energy)}
    beaten = {p for p in points for q in points if q != p and q[0] <= p[0] and q[1] <= p[1]}
    assert front == set(points) - beaten


def test_analysis_never_imports_torch():
    modules = "clockwatt.dataset.build, clockwatt.predict.recommend, clockwatt.predict.fit, clockwatt.figures.draw"
    program = f"import sys, {modules}; sys.exit('torch' in sys.modules or 'pynvml' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
