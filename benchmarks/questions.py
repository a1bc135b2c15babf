"""Ask commands and the Python API questions that are drawn at random, two of three with a flaw, and judge the answers.

    python benchmarks/questions.py [--questions 150] [--seed 0]

Questions are about the shipped predictors and those of a small virtual campaign. Each goes to a command, as JSON and as
text, and to the API. An answer must be the same from all of them, within physics, and consistent with that for twice
the batch. A refusal must be one message that names the flaw and ends with exit status 1 or 2. The script fails if a
question breaks a rule; it lists all that did.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import os
import random
import re
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPOSITORY / "tests"), str(Path(__file__).parent)]

import result_file  # noqa: E402
import torch  # noqa: E402
from questions_drawn import FLAWS, IMAGES, Flaw, Stack, write_files  # noqa: E402
from typer.main import get_command  # noqa: E402

import clockwatt  # noqa: E402
from clockwatt.cli.main import app  # noqa: E402
from clockwatt.cli.printing import binary, quantity  # noqa: E402
from clockwatt.errors import ClockwattError  # noqa: E402
from clockwatt.gpu.specs import GpuSpec, find_spec  # noqa: E402
from clockwatt.predict import api  # noqa: E402
from clockwatt.predict.api import Predictors  # noqa: E402
from clockwatt.predict.fit_memory import fit_memory  # noqa: E402
from clockwatt.predict.request import Request  # noqa: E402
from clockwatt.schema.execution import PRECISIONS, ExecutionSettings  # noqa: E402
from support.workdir import MEASURED_ALL, METRICS, Workdir  # noqa: E402

COMMANDS = ("predict", "predict", "recommend", "show", "compare", "layers", "fit-memory")
CAMPAIGN = {"gpus": {"v100": {"device": "virtual:v100", "clocks_mhz": [900, 1200, 1530]}}}
POINTS = {"v100": ("sm900", "sm1000", "sm1530")}
INFERENCE_ALONE = ("a30", "rtx2080ti")
WINOGRAD = 2.25
"""By how much a convolution may take fewer products than its definition."""
CARDS = 1.05
"""Power of a measured pass relative to the limit of the median card."""
FALLS, RISES, RISES_S = 0.97, 2.6, 50e-6
"""Least ratio of a device time to that of half the batch, largest one, and what may come on top."""
SLOWEST_S, SLOWEST = 300e-6, 60.0
"""Largest time of a call, beside so many times that of its bytes and FLOPs at peak."""
WAITING = "Loading predictors and tracing the network; this can take a minute."
LONGEST = 900
"""Characters of a message."""
OF_ONE_COMMAND = (*("objective", "max_slowdown", "relative_to"), *("optimizer", "accumulate", "clip_norm", "points"))
"""Fields that not all commands take."""
JARGON = re.compile(r"Traceback|<class|object at 0x|NoneType|pydantic|\{[a-z_]+\}")
OF_PYTHON = re.compile(
    r"\b(input_(dtype|below)|assume_branch|cache_length|relative_to|max_slowdown|clip_norm|power_cap_w)\b"
)
OF_COMMANDS = re.compile("--[a-z]")


@dataclass
class Question:
    """A command, the fields of its request, its further options, and the flaw that it has."""

    command: str
    fields: dict[str, Any]
    more: dict[str, Any] = field(default_factory=dict)
    flaw: Flaw | None = None

    def words(self) -> list[str]:
        """Return the command line."""
        words = [self.command, *([self.fields["network"]] if "network" in self.fields else [])]
        words += [self.more["other"]] if "other" in self.more else []
        for name, value in {**self.fields, **self.more}.items():
            option = {
                "inputs": "input",
                "gpus": "gpu",
                "points": "point",
                "pass_": "pass",
                "power_cap_w": "power-cap",
                "config_file": "config",
            }
            if name in ("network", "other"):
                continue
            for one in value if isinstance(value, tuple) else (value,):
                words += [f"--{option.get(name, name).replace('_', '-')}", *([] if one is True else [str(one)])]
        return words

    def from_python(self, predictors: Predictors) -> Any:
        """Ask the API, of a drawn network with the module itself."""
        if self.command == "fit-memory":
            return fit_memory(predictors, Request.of(**self.fields), next(iter(self.more), "batch"))[0]
        asked = {**self.fields}
        network, inputs = asked.pop("network", None), asked.pop("inputs", None)
        if inputs is not None:
            inputs = tuple(map(int, inputs[0].split(","))) if re.fullmatch(r"\d+(,\d+)+", inputs[0]) else inputs[0]
        if network is not None and network.startswith("questions_drawn:stack_") and isinstance(inputs, tuple):
            network = Stack.named(network.partition(":")[2]).module()
        if asked.get("pass_") in ("inference", "training"):
            asked["training"] = asked.pop("pass_") == "training"
        if self.command in ("predict", "compare", "layers"):
            for several, one in (("gpus", "gpu"), ("points", "point")):
                if several in asked:
                    (asked[one],) = asked.pop(several)
        if self.command == "recommend":
            limits = {name: asked.pop(name) for name in ("max_slowdown", "power_cap_w") if name in asked}
            asked["limits"] = clockwatt.Limits(**limits)
        if self.command == "compare":
            to = {"gpu": "to_gpu", "point": "to_point", "precision": "to_precision"}
            changed = {name: self.more[option] for name, option in to.items() if option in self.more}
            other = self.more.get("other")
            if other is not None and other.startswith("questions_drawn:"):
                other = Stack.named(other.partition(":")[2]).module()
            return predictors.compare(network, other, inputs, to=changed, **asked)
        return getattr(predictors, self.command)(network, inputs, **asked, **self.more)


@dataclass
class Asked:
    """What a question gave: the answer or the message, the exit status, what went to standard error."""

    answer: Any = None
    message: str = ""
    status: int = 0
    aside: str = ""


def draw(rng: random.Random, gpus: tuple[str, ...]) -> Question:
    """A question without a flaw."""
    command = rng.choice(COMMANDS)
    training = rng.random() < 0.4
    gpu = rng.choice([one for one in gpus if not (training and one in INFERENCE_ALONE)])
    fields: dict[str, Any] = {}
    if rng.random() < 0.5:
        fields |= {"network": rng.choice(IMAGES), "inputs": (f"{rng.choice((1, 2, 8, 24, 64))},3,224,224",)}
    else:
        stack = Stack(rng.randrange(10**6))
        fields |= {"network": f"questions_drawn:{stack.name}", "inputs": (stack.text(rng.choice((2, 7, 16, 64))),)}
    fields["gpus"] = (gpu,)
    if command != "show" or rng.random() < 0.5:
        fields["pass_"] = "training" if training else "inference"
    if rng.random() < 0.6:
        fields["precision"] = rng.choice([*PRECISIONS]) + ("+channels_last" if rng.random() < 0.15 else "")
    if training and "pass_" in fields and command != "layers":
        fields |= rng.choice(
            ({}, {"optimizer": rng.choice(("adamw", "sgd", "rmsprop"))}, {"accumulate": 4}, {"clip_norm": 1.0})
        )
    if gpu in POINTS and command not in ("compare", "fit-memory") and rng.random() < 0.5:
        fields["points"] = (rng.choice(POINTS[gpu]),)
    if command in ("predict", "recommend", "show") and rng.random() < 0.2:
        fields["relative_to"] = rng.choice(("h200", "h100"))
    more: dict[str, Any] = {}
    if command == "compare":
        more = rng.choice(
            ({"to_precision": "bf16-mixed"}, {"to_gpu": rng.choice(("h100", "h200"))}, {"other": fields["network"]})
        )
    if command == "layers" and rng.random() < 0.5:
        more = {"depth": rng.choice((1, 2))}
    if command == "recommend":
        fields["objective"] = rng.choice(("time", "energy", "edp"))
        if rng.random() < 0.5:
            fields["max_slowdown"] = rng.choice((0.0, 0.1, 0.5))
    return Question(command, fields, more)


def flawed(question: Question, flaw: Flaw) -> Question:
    """The question with a flaw; of another command where its own has no such option."""
    same = flaw.command == question.command
    without = flaw.without if same else (*flaw.without, *OF_ONE_COMMAND)
    fields = {name: value for name, value in question.fields.items() if name not in without}
    return Question(flaw.command, {**fields, **flaw.fields}, {**(question.more if same else {}), **flaw.more}, flaw)


def command(words: list[str]) -> Asked:
    """Run a command in this process."""
    out, aside = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(aside), warnings.catch_warnings():
        warnings.simplefilter("always")
        try:
            get_command(app)(words, prog_name="clockwatt")
            status: Any = 0
        except ClockwattError as error:  # as `cli.main.main` does
            return Asked(message=str(error), status=1, aside=aside.getvalue())
        except SystemExit as ended:
            status = ended.code or 0
        except Exception:  # noqa: BLE001  # whatever it is, it is a finding
            return Asked(message=traceback.format_exc(), status=-1)
    if status:
        return Asked(message=re.sub(r"[╭╮╰╯│─\s]+", " ", aside.getvalue() + out.getvalue()), status=int(status))
    return Asked(out.getvalue(), aside=aside.getvalue())


def python(question: Question, predictors: Predictors) -> Asked:
    """Ask the API."""
    aside = io.StringIO()
    with contextlib.redirect_stdout(aside), contextlib.redirect_stderr(aside), warnings.catch_warnings():
        warnings.simplefilter("always")
        try:
            return Asked(question.from_python(predictors), aside=aside.getvalue())
        except ClockwattError as error:
            return Asked(message=str(error), status=1, aside=aside.getvalue())
        except (Exception, SystemExit):  # noqa: BLE001
            return Asked(message=traceback.format_exc(), status=-1)


def judge(question: Question, predictors: Predictors) -> tuple[str, list[str]]:
    """Ask a question in three ways; return whether it was answered or refused, and the rules that were broken."""
    as_json, as_text = command([*question.words(), "--json"]), command(question.words())
    from_python = python(question, predictors)
    ways = {"--json": as_json, "text": as_text, "Python": from_python}
    broken = [f"{way}: {one.message}" for way, one in ways.items() if one.status == -1]
    if broken:
        return "traceback", broken
    if question.flaw is None:
        rest = {way: one.aside.replace(WAITING, "").strip() for way, one in ways.items()}
        broken += [f"{way} prints aside: {text}" for way, text in rest.items() if text]
    if question.flaw is not None and not question.flaw.in_python:
        del ways["Python"]
        from_python = as_json
    statuses = {way: one.status for way, one in ways.items()}
    if len({bool(status) for status in statuses.values()}) > 1:
        return "disagree", [*broken, f"{statuses}: {as_json.message} | {from_python.message}"]
    if as_json.status:
        return "refused", broken + _refusal(question, as_json, as_text, from_python)
    if question.flaw is not None and not question.flaw.may_be_answered:
        return "answered", [*broken, f"was answered in spite of its flaw {question.flaw.why}: {as_text.answer}"]
    if question.flaw is not None and not re.search(question.flaw.why, as_text.answer):
        broken.append(f"does not say {question.flaw.why}: {as_text.answer}")
    try:
        content = json.loads(as_json.answer)
    except ValueError as error:
        return "answered", [*broken, f"--json: {error}: {as_json.answer[:200]}"]
    return "answered", broken + _answers(question, content, as_text.answer, from_python.answer, predictors)


def _refusal(question: Question, as_json: Asked, as_text: Asked, from_python: Asked) -> list[str]:
    """What is wrong with a refusal."""
    broken = (
        [] if as_json.message == as_text.message else [f"text and JSON differ: {as_json.message} | {as_text.message}"]
    )
    cause = "(?!)" if question.flaw is None else question.flaw.why  # without a flaw there is none
    for way, message in (("--json", as_json.message), ("Python", from_python.message)):
        if not re.search(cause, message, re.IGNORECASE | re.DOTALL):
            broken.append(f"{way}: no cause {cause!r} in: {message}")
        if JARGON.search(message) or "\n" in message.strip() or len(message) > LONGEST:
            broken.append(f"{way}: not one readable message: {message}")
    if OF_PYTHON.search(re.sub("`.*?`", "", as_json.message)):
        broken.append(f"--json: names of Python: {as_json.message}")
    if from_python is not as_json and OF_COMMANDS.search(re.sub("`.*?`", "", from_python.message)):
        broken.append(f"Python: names of options: {from_python.message}")
    return broken


def _answers(question: Question, as_json: Any, text: str, answer: Any, predictors: Predictors) -> list[str]:
    """What is wrong with an answer."""
    match question.command:
        case "predict":
            return (
                _same(as_json, answer.to_dict())
                + _printed(answer, text)
                + physics(question, answer)
                + _doubled(question, answer, predictors)
            )
        case "compare":
            ratio = answer[1].relative_to.time_ratio
            off = [] if math.isclose(ratio, answer[1].time_s / answer[0].time_s, rel_tol=1e-9) else [f"ratio {ratio}"]
            return (
                off
                + [one for each, other in zip(as_json, answer, strict=True) for one in _same(each, other.to_dict())]
                + physics(question, answer[0])
            )
        case "recommend":
            best = min(one.time_s for one in answer.candidates[: answer.allowed])
            slow = answer.best.time_s / best - 1 > question.fields.get("max_slowdown", math.inf) + 1e-9
            return (
                _same(as_json["best"], answer.best.to_dict())
                + ["slower than allowed"] * slow
                + _as_predicted(question, answer.best, predictors)
            )
        case "show":
            first = answer.gpus[0].points[0]
            told = next(one for one in as_json if one["pass"] == answer.pass_)
            return _same(told["gpus"][0]["points"][0], first.to_dict()) + _as_predicted(question, first, predictors)
        case "layers":
            whole = _predicted(question, predictors)
            sums = {  # GPUs with back-to-back times alone have no energy of modules
                name: math.fsum(row[name] for row in as_json if row[name] is not None)
                for name in ("time_s", "energy_j")
                if any(row[name] is not None for row in as_json)
            }
            return [
                f"layers add up to {total} of {getattr(whole, name)} {name}"
                for name, total in sums.items()
                if not math.isclose(total, getattr(whole, name), rel_tol=1e-3)
            ]
    fits = {size: _fits(question, size, predictors) for size in (answer.size, 2 * answer.size)}
    broken = [] if answer.size == as_json["size"] and f"{answer.size:,}" in text else ["sizes differ"]
    return broken + (
        [] if fits[answer.size] and not fits[2 * answer.size] else [f"largest {answer.size}, fits: {fits}"]
    )


NUMBERS = ("time_s", "energy_j", "power_w", "intervals", "sources", "memory", "warnings", "source", "in_tf32", "phases")


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """What two answers differ in; a drawn network goes by two names."""
    plain = json.loads(json.dumps(other))
    return [
        f"JSON and Python differ in {name}: {one[name]} | {plain[name]}"
        for name in NUMBERS
        if not _close(one[name], plain[name])
    ]


def _close(one: Any, other: Any) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_close(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_close, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-6) or one == other
    return bool(one == other)


def _printed(answer: Any, text: str) -> list[str]:
    values = {
        "time": quantity(answer.time_s, "s"),
        "power": quantity(answer.power_w, "W"),
        "energy": quantity(answer.energy_j, "J"),
    }
    if answer.memory is not None:
        values["memory"] = binary(answer.memory.allocated_bytes)
    return [f"text lacks {name} {value}: {text}" for name, value in values.items() if value not in text]


def _predicted(question: Question, predictors: Predictors, **other: Any) -> Any:
    """The answer of `predict` in Python."""
    names = ("network", "inputs", "gpus", "pass_", "precision", "points", "optimizer", "accumulate", "clip_norm")
    fields = {name: question.fields[name] for name in names if name in question.fields} | other
    return Question("predict", fields).from_python(predictors)


def _as_predicted(question: Question, answer: Any, predictors: Predictors) -> list[str]:
    same = _predicted(question, predictors, gpus=(answer.gpu,), points=(answer.point,))
    numbers = {"time_s", "energy_j", "power_w", "intervals", "sources", "memory", "source"}
    if answer.memory is None:  # `show` has none
        numbers.remove("memory")
    one, other = ({name: json.loads(json.dumps(each.to_dict()))[name] for name in numbers} for each in (answer, same))
    return ([] if _close(one, other) else [f"{question.command} differs from predict: {one} | {other}"]) + physics(
        question, answer
    )


def _fits(question: Question, size: int, predictors: Predictors) -> bool:
    shape = ",".join([str(size), *question.fields["inputs"][0].split(",")[1:]])
    return bool(_predicted(question, predictors, inputs=(shape,)).memory.fits)


def physics(question: Question, answer: Any) -> list[str]:
    """What of an answer is against physics."""
    spec = find_spec(answer.gpu_name)
    broken = []
    for name in ("time_s", "power_w", "energy_j"):
        value, (low, high) = getattr(answer, name), answer.intervals.get(name, (0.0, math.inf))
        if value is None:
            continue
        if not (0 < value < math.inf and low <= value * (1 + 1e-9) and value <= high * (1 + 1e-9)):
            broken.append(f"{name} {value} of {low} to {high}")
    if answer.power_w is not None:
        most_w = spec.power_w.max * (CARDS if answer.sources["power_w"] == "measured" else 1)
        if not 0.3 * spec.power_w.idle <= answer.power_w <= most_w:
            broken.append(f"power {answer.power_w} W of {spec.power_w.idle} to {most_w} W")
        if answer.energy_j is not None and not math.isclose(
            answer.energy_j, answer.power_w * answer.time_s, rel_tol=0.02
        ):
            broken.append(f"energy {answer.energy_j} J of {answer.power_w * answer.time_s} J")
    if question.flaw is not None:
        return broken
    least_s, most_s, parameter_bytes = _bounds(question, answer, spec)
    if not least_s <= answer.time_s <= most_s:
        broken.append(f"time {answer.time_s} s outside {least_s} to {most_s} s")
    if answer.memory is not None and not answer.memory.allocated_bytes >= parameter_bytes:
        broken.append(f"memory {answer.memory.allocated_bytes} below the parameters' {parameter_bytes}")
    if answer.items != _items(question):
        broken.append(f"{answer.items} items")
    return broken


def _bounds(question: Question, answer: Any, spec: GpuSpec) -> tuple[float, float, int]:
    """Least and largest time of a pass from products counted here, and the bytes of its parameters."""
    training, batches = answer.pass_ == "training", question.fields.get("accumulate", 1)
    shape = tuple(map(int, question.fields["inputs"][0].split(",")))
    products, parameters = _products(question.fields["network"], shape)
    execution = ExecutionSettings(answer.execution)
    kind = PRECISIONS[execution.precision]
    peak = spec.peak_flops(kind.autocast or kind.dtype, tf32=kind.cudnn_tf32, matrix=True)
    peak *= spec.sm_clock_mhz.max / spec.sm_clock_mhz.boost
    flops = 2 * products * batches * (2 if training else 1)
    slowest = 2 * flops / spec.fp32_flops / (answer.expected.calls and 1) * (2100 / 900 if "sm" in answer.point else 1)
    of_bytes = answer.detail.traced.operations["bytes_read"] + answer.detail.traced.operations["bytes_written"]
    moved = float((of_bytes * answer.detail.traced.composer.times_called).sum()) / spec.bandwidth_bytes_s
    steps = shape[1] if len(shape) == len(("batch", "sequence", "width")) else 1  # of a recurrent layer
    size = 4 if kind.dtype == "float32" else 2
    return (
        flops / peak,
        SLOWEST * (slowest + moved) + SLOWEST_S * answer.expected.calls * steps,
        parameters * size * (2 if training else 1),
    )


_counted: dict[tuple[str, tuple[int, ...]], tuple[float, int]] = {}


def _products(network: str, shape: tuple[int, ...]) -> tuple[float, int]:
    """Products of the linear layers and convolutions of a forward pass, and the number of parameters."""
    if (network, shape) not in _counted:
        import torchvision

        with torch.device("meta"):
            stack = network.partition(":")[2]
            module = Stack.named(stack).module() if stack else torchvision.models.get_model(network, weights=None)
        total = 0.0

        def count(layer: torch.nn.Module, _inputs: Any, output: torch.Tensor) -> None:
            nonlocal total
            if isinstance(layer, torch.nn.Linear):
                total += output.numel() * layer.in_features
            elif isinstance(layer, torch.nn.Conv2d):
                fewer = WINOGRAD if max(layer.kernel_size) > 1 else 1
                total += output.numel() * layer.weight[0].numel() / fewer

        for layer in module.modules():
            layer.register_forward_hook(count)
        module.eval()(torch.empty(shape, device="meta"))
        _counted[network, shape] = total, sum(one.numel() for one in module.parameters())
    return _counted[network, shape]


def _items(question: Question) -> int:
    return int(question.fields["inputs"][0].split(",")[0]) * question.fields.get("accumulate", 1)


def _doubled(question: Question, answer: Any, predictors: Predictors) -> list[str]:
    """What is wrong with the answer for twice the batch."""
    first, *rest = question.fields["inputs"][0].split(",")
    larger = _predicted(question, predictors, inputs=(",".join([str(2 * int(first)), *rest]),))
    one, other = answer.expected.device_s, larger.expected.device_s
    broken = []
    if one is not None and int(first) > 1 and not FALLS * one <= other <= RISES * one + RISES_S:
        broken.append(f"device time {one} s, of twice the batch {other} s")
    if answer.memory is not None and answer.memory.allocated_bytes > larger.memory.allocated_bytes:
        broken.append("memory falls with the batch")
    return broken


def main() -> None:
    """Ask, judge and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    rng = random.Random(given.seed)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        Path("results").mkdir()
        campaign = Workdir(Path(folder))
        campaign.configure(CAMPAIGN)
        campaign.run(*MEASURED_ALL, METRICS)
        write_files(Path(folder))
        predictors = api.load()
        load = api.load
        # commands load predictors anew each time: only those of other folders here
        api.load = lambda *where, **folders: load(*where, **folders) if any((*where, *folders.values())) else predictors
        flaws = rng.sample(FLAWS, len(FLAWS)) * (1 + given.questions // len(FLAWS))
        outcomes: Counter[tuple[str, str, str]] = Counter()
        bad = []
        for number in range(given.questions):
            question = draw(rng, predictors.gpus)
            if number % 3:
                question = flawed(question, flaws.pop())
            outcome, broken = judge(question, predictors)
            outcomes[question.command, "flawed" if question.flaw else "sound", outcome if not broken else "broken"] += 1
            print(f"{number}: {' '.join(question.words())}: {outcome}", *broken, sep="\n    ", flush=True)
            bad += [question] if broken else []
    kinds = sorted({key[:2] for key in outcomes})
    rows = [[*kind, *(outcomes[*kind, one] for one in ("answered", "refused", "broken"))] for kind in kinds]
    result_file.write(
        "questions",
        "Questions drawn at random",
        ["command", "kind", "answered", "refused", "broke a rule"],
        rows,
        targets=[
            result_file.target("questions", given.questions, at_least=150),
            result_file.target("questions that broke a rule", len(bad), at_most=0),
        ],
        notes=["Each question went to a command, as JSON and as text, and to the Python API."],
    )
    sys.exit(bool(bad))


if __name__ == "__main__":
    os.environ["COLUMNS"] = "200"
    main()
