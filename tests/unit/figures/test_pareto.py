import dataclasses

import pytest

from clockwatt.figures.pareto import draw_pareto, pareto_figure
from clockwatt.predict.answer import Answer
from clockwatt.predict.composition.pipeline import Composition
from clockwatt.predict.recommend import Recommendation
from clockwatt.schema.execution import FP32, TF32


def candidate(gpu, point, time_s, energy_j):
    composition = Composition(
        time_s=time_s, latency_s=None, device_s=time_s, host_s=0.0, energy_dynamic_j=0.0, energy_j=energy_j,
        power_w=None, plain_time_s=time_s, plain_energy_j=0.0, calls=1, calls_without_cost=0,
    )  # fmt: skip
    return Answer(
        gpu=gpu, gpu_name="NVIDIA A30", virtual=True, point=point, execution=TF32, pass_="inference", network_id="net",
        network="net", input_shape=[8, 16], dtype="float32",
        sources={"time_s": "predicted"}, measured_point=True, expected=composition, intervals={},
        interval_method="none", interval_networks=0,
    )  # fmt: skip


@pytest.fixture
def answer():
    candidates = [
        candidate("a30", "sm900", 2e-3, 0.2),
        candidate("v100", "sm900", 1e-3, 0.4),
        candidate("a30", "sm1440", 1.5e-3, 0.5),
        candidate("a30", "sm500", 4e-3, None),
    ]
    return Recommendation(objective="energy", best=candidates[0], candidates=candidates, allowed=2, regret=None)


def test_front_choice_and_limits_are_drawn(answer):
    (axes,) = pareto_figure(answer).axes
    markers = [line for line in axes.lines if line.get_linestyle() == "None" and line.get_markersize() < 10]
    assert [line.get_markerfacecolor() == "none" for line in markers] == [False, False, True]
    (front,) = [line for line in axes.lines if line.get_linestyle() == "-"]
    assert front.get_xdata().tolist() == [1e-3, 2e-3]
    assert front.get_ydata().tolist() == [0.4, 0.2]
    assert [text.get_text() for text in axes.texts] == ["a30 (virtual), sm900"]


def test_of_several_settings_the_best_and_those_on_the_front_are_named(answer):
    others = [dataclasses.replace(one, execution=FP32) for one in answer.candidates[1:]]
    several = dataclasses.replace(answer, candidates=[answer.best, *others])
    (axes,) = pareto_figure(several).axes
    assert [text.get_text() for text in axes.texts] == ["fp32", "a30 (virtual), sm900, tf32"]


def test_equal_answers_give_equal_bytes(answer, tmp_path):
    draw_pareto(answer, tmp_path / "a.png")
    draw_pareto(dataclasses.replace(answer), tmp_path / "b.png")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
