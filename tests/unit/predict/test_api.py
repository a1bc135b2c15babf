"""The public Python API: typed answers, the same as the command line's."""

import copy
import json
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torchvision

import clockwatt
from clockwatt.cli.main import app
from clockwatt.cli.printing import print_recommendation
from clockwatt.config import OperatingPoint
from clockwatt.predict.warning_kinds import WarningKind, is_of

README = Path(__file__).parents[3] / "README.md"
INPUT = (8, 3, 64, 64)


@pytest.fixture(scope="module")
def predictors(made):
    return clockwatt.load(made.predictors, catalogue_dir=made.catalogue, validation_dir=made.validation)


def test_the_first_example_of_the_readme_runs():
    (block,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(block, "README.md", "exec"), {})


class Doubled(torch.nn.Module):
    """Takes its inputs by position, and has a weight on the CPU."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(16, 16)

    def forward(self, x, scale):
        return self.linear(x) * scale


def test_precisions_are_chosen_among_with_ratios_to_the_default_and_what_cannot_be_is_named(predictors):
    asked = {"gpus": ["a30"], "points": ["sm1200"], "objective": "time"}
    found = predictors.recommend(Doubled(), [(8, 16), (8, 1)], precisions=["fp32", "bf16", "float32"], **asked)
    assert set(found.execution) == {"tf32", "fp32"}, "one dtype was measured"
    assert found.left_out == ("a30: nothing was measured in bfloat16.",)
    of_default = {(one.execution, one.point): one.relative_to.time_ratio for one in found.candidates}
    assert of_default["tf32", "sm1440"] == 1.0
    assert of_default["fp32", "sm900"] >= 1.0
    assert list(found.to_frame()["time_ratio"]) == [one.relative_to.time_ratio for one in found.candidates]
    alone = predictors.recommend(Doubled(), [(8, 16), (8, 1)], precisions=["fp32"], **asked)
    assert (alone.best.execution, alone.best.relative_to) == ("fp32", None)
    with pytest.raises(clockwatt.ClockwattError, match="'fp8' is not supported"):
        predictors.recommend(Doubled(), [(8, 16), (8, 1)], precisions=["fp8", "tf32"])


def test_a_module_a_class_and_a_function_are_answered(predictors):
    question = {"gpu": "a30", "point": "sm1200"}
    module = Doubled()
    tensors = [torch.zeros(8, 16), torch.ones(8, 1)]
    one = predictors.predict(module, tensors, **question)
    assert one == predictors.predict(Doubled, {"x": (8, 16), "scale": (8, 1)}, **question)
    assert module.linear.weight.device.type == "cpu"
    assert (one.network, one.expected.calls, one.items) == ("Doubled", 2, 8)
    trained = predictors.predict(module, tensors, training=True, **question)
    assert trained.time_s == pytest.approx(sum(trained.phases.values()))
    layers = predictors.layers(module, tensors, training=True, **question)
    assert trained.phases["step"] == pytest.approx(layers.loc["(optimizer)", "time_s"])
    product = predictors.predict(torch.matmul, [(64, 32), (32, 16)], **question)
    assert product.breakdown()["operation"].to_list() == ["matmul 64×32 · 32×16"]


@pytest.mark.parametrize("norm", [torch.nn.utils.weight_norm, torch.nn.utils.spectral_norm])
def test_a_weight_that_hooks_compute_is_no_obstacle(predictors, norm):
    found = predictors.predict(norm(torch.nn.Linear(16, 16)), (8, 16), gpu="a30", point="sm1200")
    assert found.expected.calls > 1


@pytest.mark.parametrize("gpu", ["rtx2080ti", "virtual:rtx2080ti"])
def test_a_gpu_without_bfloat16_is_named(gpu, capsys):
    warning = "RTX 2080 Ti emulates bfloat16, which is slow and was not measured. Choose float16."
    first = clockwatt.predict("resnet18", gpu=gpu, precision="bf16-mixed").warnings[0]
    assert first == warning
    for copied in (first, copy.deepcopy(first), pickle.loads(pickle.dumps(first))):  # own bytes
        assert is_of(copied, WarningKind.EMULATED_PRECISION)
    assert warning not in clockwatt.predict("resnet18", gpu=gpu, precision="fp16").warnings
    others = [gpu.replace("rtx2080ti", "a30"), gpu]
    print_recommendation(clockwatt.recommend("resnet18", gpus=others, precision="bf16-mixed"), {}, verbose=False)
    assert f"Warning: {warning}" in capsys.readouterr().out


class Attention(torch.nn.Linear):
    """Its views lie apart from its other operations where matrix products alone lack TF32."""

    def forward(self, x):
        q, k, v = super().forward(x).view(8, 16, 3, 2, 8).permute(2, 0, 3, 1, 4)
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)


def test_operations_without_device_work_may_have_settings_of_their_own():
    assert clockwatt.predict(Attention(16, 48), (8, 16, 16), gpu="h200", precision="tf32-conv").time_s > 0


def test_a_named_network_and_its_instance_have_the_same_operations(predictors):
    module = torchvision.models.resnet18()
    one = predictors.predict(module, torch.zeros(2, 3, 64, 64), gpu="a30", point="sm1200")
    other = predictors.predict("resnet18", (2, 3, 64, 64), gpu="a30", point="sm1200")
    assert (one.time_s, one.expected.calls) == (other.time_s, other.expected.calls)
    assert set(one.breakdown().index) == set(other.breakdown().index)


@pytest.mark.parametrize(
    ("network", "inputs", "message"),
    [
        ("net24", 5, "input 5: give a shape"),
        (5, (8, 16), "network 5: give a name, a torch.nn.Module, or a callable"),
        (torch.nn.Linear, (8, 16), "network Linear: is a class that needs arguments"),
        (torch.nn.ReLU(), None, "inputs: give an example tensor or a shape"),
        (torch.nn.ReLU(), "8", "inputs '8': give an example tensor or a shape"),
        (torch.nn.ReLU(), [(8, 16), (8, 16)], "inputs: are 2, but the network takes 1 by position"),
    ],
)
def test_what_is_no_network_or_no_input_is_one_message(predictors, network, inputs, message):
    with pytest.raises(clockwatt.ClockwattError, match=message):
        predictors.predict(network, inputs, gpu="a30")


def test_limits_are_limits(predictors):
    with pytest.raises(clockwatt.ClockwattError, match=r"give clockwatt.Limits\(max_slowdown"):
        predictors.recommend("net24", INPUT, limits={"max_slowdown": 0.1})
    of_percents, of_numbers, of_one = (
        predictors.recommend("net24", INPUT, gpu="a30", objective="energy", **limits)
        for limits in (
            {"limits": clockwatt.Limits(max_slowdown="1%")},
            {"limits": clockwatt.Limits(max_slowdown=0.01)},
            {"max_slowdown": "1%", "limits": None},
        )
    )
    assert of_percents == of_numbers == of_one
    assert of_percents.allowed < len(of_percents.candidates)
    slow = predictors.recommend("net24", INPUT, gpu="a30", limits=clockwatt.Limits(max_slowdown="900%"))
    assert slow.allowed == len(slow.candidates)


def test_a_gpu_goes_by_its_product_name(predictors):
    assert predictors.predict("net24", INPUT, gpu="NVIDIA A30", point="sm1200").gpu == "a30"
    assert predictors.predict("net24", INPUT, gpu="A30", point="sm1200").gpu == "a30"


def test_what_has_no_answer_in_a_sweep_is_said_in_its_row(predictors):
    frame = predictors.predict("net24", INPUT, gpu="a30", points=["sm1200", "sm5000"])
    assert list(frame["point"]) == ["sm1200", "sm5000"]
    assert frame.loc[0, "error"] is None or frame.loc[0, "error"] != frame.loc[0, "error"]
    assert "cannot run at sm5000" in frame.loc[1, "error"]


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
        (lambda p: clockwatt.Limits(max_slowdown="10"), "max_slowdown '10': would be 1000 %: write 10%"),
        (lambda p: clockwatt.Limits(max_slowdown=10), "max_slowdown 10: would be 1000 %: write 10%"),
        (lambda p: clockwatt.Limits(max_slowdown=True), "max_slowdown True: write 10% or 0.1"),
        (lambda p: clockwatt.Limits(max_slowdown=-1), "max_slowdown -1: write 10% or 0.1"),
        (lambda p: clockwatt.Limits(power_cap_w=float("nan")), "power_cap_w nan: give a number of 0 or more"),
        (lambda p: clockwatt.Limits(power_cap_w=True), "power_cap_w True: give a number of 0 or more"),
        (lambda p: p.recommend("net24", INPUT, max_slowdown=10), "max_slowdown 10: would be 1000 %: write 10%"),
        (lambda p: p.recommend("net24", INPUT, max_slowdown=True), "max_slowdown True: give a number"),
        (lambda p: p.recommend("net24", INPUT, power_cap_w=True), "power_cap_w True: give a number"),
        (
            lambda p: p.recommend("net24", INPUT, limits=clockwatt.Limits(max_slowdown=0.1), max_slowdown=0.5),
            "limits and max_slowdown: give one or the other",
        ),
        (
            lambda p: p.recommend("net24", input=INPUT, objective="joule"),
            "objective joule: choose time, energy or edp",
        ),
        (
            lambda p: p.predict("net24", input=INPUT, gpu="a30", pass_="train"),
            "pass_ train: choose inference or training",
        ),
        (lambda p: p.show("net24", run=True), "run is for measuring: run `clockwatt predict` or `recommend` with it"),
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


def test_a_forest_that_is_shipped_is_read_once_for_all_that_is_loaded():
    forests = [clockwatt.load().models["h200"].forest("roofline", "inference") for _ in range(2)]
    assert forests[0] is forests[1]
