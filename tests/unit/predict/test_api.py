"""The public Python API: typed answers, the same as the command line's, and the examples of its page."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import clockwatt
from clockwatt.cli.main import app
from clockwatt.config import OperatingPoint

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "predict-from-python.md"
INPUT = (8, 3, 64, 64)


@pytest.fixture(scope="module")
def predictors(made):
    return clockwatt.load(made.predictors, catalogue_dir=made.catalogue, validation_dir=made.validation)


def test_the_examples_of_the_page_run(made, predictors, capsys):
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 5
    blocks[0] = blocks[0].replace('clockwatt.load("results/predictors")', "loaded")
    names = {"loaded": predictors}
    for block in blocks:
        exec(compile(block, PAGE.name, "exec"), names)
    assert names["answer"].expected.time_s > 0
    assert names["choice"].best.expected.energy_j > 0
    assert names["compared"].relative_to.power_ratio > 1
    assert "gpu a31" in capsys.readouterr().out


def test_the_command_line_says_the_same(made, predictors, capsys):
    options = ["--predictors-dir", made.predictors, "--catalogue-dir", made.catalogue, "--json"]
    with pytest.raises(SystemExit):
        app(["predict", "net24", "--input", "8,3,64,64", "--gpu", "a30", "--point", "sm1200", *map(str, options)])
    printed = json.loads(capsys.readouterr().out)
    answer = predictors.predict("net24", input=INPUT, gpu="a30", point=OperatingPoint(sm_clock_mhz=1200))
    assert json.loads(json.dumps(answer.to_dict())) == printed


def test_one_input_or_several_by_keyword(predictors):
    with pytest.raises(clockwatt.ClockwattError, match="one or the other"):
        predictors.predict("net24", input=INPUT, inputs={"x": INPUT}, gpu="a30")


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda p: clockwatt.Limits(max_slowdown="10%"), "max_slowdown is a number .* not '10%'"),
        (lambda p: clockwatt.Limits(max_slowdown=-1), "max_slowdown is a number of 0 or more"),
        (lambda p: clockwatt.Limits(power_cap_w=float("nan")), "power_cap_w is a number of 0 or more"),
        (
            lambda p: p.recommend("net24", input=INPUT, objective="joule"),
            "objective joule: choose time, energy or edp",
        ),
        (
            lambda p: p.predict("net24", input=INPUT, gpu="a30", pass_="train"),
            "pass_ train: choose inference or training",
        ),
    ],
)
def test_what_cannot_be_asked_is_refused_by_name(predictors, ask, message):
    with pytest.raises(clockwatt.ClockwattError, match=message):
        ask(predictors)


def test_a_training_pass_says_by_which_optimizer(predictors):
    of_net = {"network": "support.small_networks:deep", "input": (8, 16), "gpu": "a30", "point": "sm1200"}
    passes = {pass_: predictors.predict(**of_net, pass_=pass_) for pass_ in ("inference", "training")}
    assert passes["inference"].optimizer is None
    assert passes["training"].to_dict()["optimizer"]["optimizer"] == "sgd"


def test_importing_clockwatt_imports_no_predictors():
    code = "import sys, clockwatt; print(*({'clockwatt.predict', 'torch'} & set(sys.modules)), 'nothing')"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["nothing"]
    assert {"load", "Predictors", "OperatingPoint", "Limits"} <= set(dir(clockwatt))
