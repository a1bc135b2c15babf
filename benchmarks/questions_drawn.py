"""Networks and flaws that `questions.py` draws its questions from."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

IMAGES = (
    "alexnet", "mnasnet1_0", "mobilenet_v2", "resnet18", "resnet50", "shufflenet_v2_x1_0", "squeezenet1_1", "vgg11",
    "vit_b_16",
)  # fmt: skip
"""Of torchvision."""


@dataclass(frozen=True)
class Stack:
    """A network drawn by a seed: linear layers, convolutions, a transformer's encoder or recurrent layers."""

    seed: int

    @classmethod
    def named(cls, name: str) -> Stack:
        """Return the stack that `name` names."""
        return cls(int(name.removeprefix("stack_")))

    @property
    def name(self) -> str:
        """Return its name in this module."""
        return f"stack_{self.seed}"

    def module(self) -> nn.Module:
        """Build it."""
        layers, _ = self._drawn()
        return nn.Sequential(*layers)

    def text(self, batch: int) -> str:
        """Return the shape of its input as it is typed."""
        return ",".join(map(str, (batch, *self._drawn()[1])))

    def _drawn(self) -> tuple[list[nn.Module], tuple[int, ...]]:
        rng = random.Random(self.seed)
        width, depth = rng.choice((32, 64, 200, 512)), rng.randint(1, 4)
        match rng.choice(("linear", "convolution", "encoder", "recurrent")):
            case "linear":
                layers = [
                    part for _ in range(depth) for part in (nn.Linear(width, width), rng.choice((nn.ReLU(), nn.GELU())))
                ]
                return [*layers, nn.Linear(width, 10)], (width,)
            case "convolution":
                kernel = rng.choice((1, 3, 5))
                layers = [nn.Conv2d(3, width, 3, stride=2)]
                for _ in range(depth):
                    layers += [nn.Conv2d(width, width, kernel, padding=kernel // 2), nn.BatchNorm2d(width), nn.ReLU()]
                return [*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10)], (
                    3,
                    *[rng.choice((64, 96, 224))] * 2,
                )
            case "encoder":
                width = rng.choice((64, 256, 768))
                layer = nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True)
                return [nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)], (
                    rng.choice((16, 100, 197)),
                    width,
                )
        return [nn.LSTM(width, width, depth, batch_first=True), _First(), nn.Linear(width, 10)], (
            rng.choice((5, 50)),
            width,
        )


class _First(nn.Module):
    """The first of several outputs."""

    def forward(self, outputs: Sequence[torch.Tensor]) -> torch.Tensor:
        return outputs[0]


class _Flawed(nn.Module):
    """A linear layer and a forward that cannot be traced."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.linear = kind, nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> Any:
        y = self.linear(x)
        match self.kind:
            case "to_cpu":
                return y.cpu() + 1
            case "item":
                return y * y.sum().item()
            case "numpy":
                return torch.from_numpy(y.detach().numpy())
            case "branch":
                return y if y.sum() > 0 else -y
            case "endless":
                return self.forward(x)
            case "exits":
                sys.exit(3)
            case "no_tensor":
                return 3
            case "raises":
                raise KeyError("a key of the network")
            case "wrong_width":
                return nn.functional.linear(y, torch.empty(8, 9, device=y.device))
            case "nonzero":
                return y[y > 0].sum()
            case "cuda":
                return y + torch.ones(8, device="cuda")
            case "double":
                return y.double().matmul(y.double().t())
            case "complex":
                return torch.fft.fft(y).abs()
            case "print":
                print("a network that prints")
                return y
            case "backward":
                y.sum().backward()
                return y
        raise AssertionError(self.kind)


def __getattr__(name: str) -> Any:
    """Give what `questions_drawn:stack_7` and `questions_drawn:flawed_item` name."""
    if name.startswith("stack_"):
        return Stack.named(name).module
    if name.startswith("flawed_"):
        return lambda: _Flawed(name.removeprefix("flawed_"))
    raise AttributeError(name)


@dataclass(frozen=True)
class Flaw:
    """What is wrong with a question: what it changes, and a pattern of what a refusal must say.

    `without` are fields that it leaves out. Not all flaws can be given in Python; some may be answered all the same.
    """

    why: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    command: str = "predict"
    more: Mapping[str, Any] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    may_be_answered: bool = False
    in_python: bool = True


_NO_NETWORK = ("network", "inputs")
_IMAGE = {"network": "resnet18", "pass_": "inference"}
_TRAINED = ("optimizer", "accumulate", "clip_norm", "loss")


def _network(name: str, why: str, shape: str = "4,8") -> Flaw:
    return Flaw(why, {"network": name, "inputs": (shape,), "pass_": "inference"}, without=_TRAINED)


def _shape(shape: str, why: str, command: str = "predict") -> Flaw:
    return Flaw(why, {**_IMAGE, "inputs": (shape,)}, command, without=_TRAINED)


def _training(why: str, **fields: Any) -> Flaw:
    return Flaw(why, {"pass_": "training", "gpus": ("h200",), **fields}, without=("points",))


def _operations(text: str, why: str) -> Flaw:
    return Flaw(why, {"operations": Path(text), "pass_": "inference"}, without=(*_NO_NETWORK, *_TRAINED))


FLAWS = [
    *(
        Flaw(f"{gpu}.*no predictors", {"gpus": (gpu,)}, command)
        for gpu, command in (
            ("a100", "predict"),
            ("h2000", "show"),
            ("cpu", "recommend"),
            ("h200,h100", "layers"),
        )
    ),
    Flaw("NVIDIA.*no predictors", {"gpus": ("NVIDIA",)}, "compare", {"to_precision": "fp32"}),
    Flaw("a1000.*no specifications", {"gpus": ("a1000",)}, "fit-memory"),
    *(Flaw(f"{point}.*no operating point", {"points": (point,)}) for point in ("fast", "1440", "sm", "sm1e3", "pl-5")),
    Flaw("cannot run at sm9999", {"points": ("sm9999",)}),
    Flaw("cannot run at pl1", {"points": ("pl1",)}, "layers"),
    *(
        Flaw(f"{re}.*(choose|precision)", {"precision": given})
        for given, re in (
            ("float8", "float8"),
            ("TF32 ", "TF32"),
            ("int8", "int8"),
            ("bf16+nchw", "nchw"),
            ("bf16 mixed", "bf16 mixed"),
            ("+", ""),
        )
    ),
    Flaw("bf16 and fp16|both a precision", {"precision": "bf16+fp16"}, "recommend"),
    *(
        Flaw(f"{given}.*(choose|inference)", {"pass_": given}, without=_TRAINED)
        for given in ("train", "backward", "Inference")
    ),
    _shape("0,3,224,224", "0,3,224,224.*shape"),
    _shape("-1,3,224,224", "-1,3,224,224.*shape"),
    _shape("32;3;224;224", "32;3;224;224.*shape"),
    _shape("32,3,224,224,", "32,3,224,224,.*shape"),
    _shape("32,3.5,224,224", "3.5.*shape"),
    _shape("32,4,224,224", "32, 4, 224, 224"),
    _shape("32,3,224", "32, ?3, ?224", "layers"),
    _shape("32", "32", "recommend"),
    _shape("100000000,3,224,224", "GiB|fit", "recommend"),
    Flaw("GiB|fit", {**_IMAGE, "inputs": ("10000000,3,224,224",)}, without=_TRAINED, may_be_answered=True),
    _shape("1,3,224,99999999999999999999", "more elements", "predict"),
    *(
        Flaw(f"{name.replace('_', '.')}.*(training|pass)", {"pass_": "inference", name: value}, without=_TRAINED)
        for name, value in (("optimizer", "adamw"), ("accumulate", 2), ("clip_norm", 1.0), ("loss", "cross_entropy"))
    ),
    _training("adamx.*optimizer", optimizer="adamx"),
    _training("lbfgs", optimizer="lbfgs"),
    _training("rprop-fused|fused", optimizer="rprop-fused"),
    _training("accumulate.*(1|greater)", accumulate=0),
    _training("accumulate.*(256|less)", accumulate=100000),
    _training("clip.norm.*(greater|0)", clip_norm=0.0),
    _training("clip.norm.*(greater|0|finite)", clip_norm=float("nan")),
    _training("hinge.*(choose|loss)", loss="hinge"),
    Flaw(
        "nothing was fitted for training",
        {"pass_": "training", "gpus": ("rtx2080ti",)},
        without=("points", "precision"),
    ),
    Flaw("resnet81.*(did you mean|not|unknown|no)", {**_IMAGE, "network": "resnet81"}, without=("inputs", *_TRAINED)),
    _network("resnet81", "resnet81.*(did you mean|no)", "4,3,224,224"),
    _network("torch.nn:Lineer", "Lineer"),
    _network("nosuch.module:x", "nosuch"),
    _network("json:loads", "json:loads"),
    _network("os:getcwd", "os:getcwd"),
    _network("questions_drawn:nothing", "nothing"),
    _network("questions_drawn:", "questions_drawn:"),
    _network("torch.nn:Linear", "torch.nn:Linear.*arguments"),
    _network("hf:nowhere.json", "nowhere.json"),
    _network("hf:broken.json", "broken.json"),
    _network("timm:nothing", "timm.*nothing|nothing.*timm"),
    *(
        _network(f"questions_drawn:flawed_{kind}", why)
        for kind, why in {
            "to_cpu": "CPU",
            "item": "values of data",
            "numpy": "numpy|values|CPU",
            "branch": "branch",
            "endless": "without end",
            "exits": "ends the process|exit",
            "no_tensor": "no tensor",
            "raises": "a key of the network",
            "wrong_width": "9",
            "nonzero": "values of data|data",
            "cuda": "GPU",
            "backward": "backward",
        }.items()
    ),
    *(
        replace(_network(f"questions_drawn:flawed_{kind}", why), may_be_answered=True)
        for kind, why in (("print", ""), ("double", "float64"), ("complex", "complex|fft"))
    ),
    Flaw("b300.*no predictors", {"relative_to": "b300"}),
    Flaw("h100@sm9999.*(cannot run|no)", {"relative_to": "h100@sm9999"}, "show"),
    Flaw("h100@.*no operating point", {"relative_to": "h100@"}, "recommend"),
    Flaw("nowhere.*does not exist", {"host": "nowhere"}),
    Flaw(
        "back-to-back|nowhere", {"host": "nowhere", "gpus": ("a30",), "pass_": "inference"}, "layers", without=_TRAINED
    ),
    Flaw("input.dtype.*input.below", {"input_dtype": "int64"}),
    Flaw("float32.*(float|int64)", {"input_dtype": "float32"}),
    Flaw("input.below.*(0|greater)", {"input_dtype": "int64", "input_below": 0}),
    Flaw("assume.branch.*maybe", {"assume_branch": "maybe"}),
    Flaw("cache.length.*hf:", {**_IMAGE, "cache_length": 8}, without=_TRAINED),
    *(
        _operations(name, f"{name}.*{why}")
        for name, why in (
            ("missing.jsonl", "exist|no such|missing"),
            ("empty.jsonl", "no|empty"),
            ("binary.jsonl", ""),
            ("count.jsonl", "count"),
            ("unknown.jsonl", "spec|operation|function"),
            ("list.jsonl", "line 1|spec|object"),
        )
    ),
    Flaw(
        "operations.*(network|one or the other)",
        {"operations": Path("count.jsonl"), "pass_": "inference"},
        without=_TRAINED,
    ),
    Flaw("predictors", {"predictors_dir": Path("nowhere")}),
    Flaw("predictors", {"predictors_dir": Path("broken")}, "layers"),
    Flaw("catalogue", {"catalogue_dir": Path("nowhere")}),
    Flaw("max.slowdown.*-0.1", {"max_slowdown": -0.1}, "recommend"),
    Flaw("max.slowdown", {"max_slowdown": float("nan")}, "recommend"),
    Flaw("power|cap|limit", {"power_cap_w": 1.0}, "recommend"),
    Flaw("power.cap", {"power_cap_w": float("nan")}, "recommend"),
    Flaw("cheapest.*(time|energy)", {"objective": "cheapest"}, "recommend"),
    Flaw("depth", {"pass_": "inference"}, "layers", {"depth": 0}, without=_TRAINED),
    Flaw("int4.*(choose|precision)", {}, "compare", {"to_precision": "int4"}),
    Flaw("a100.*no predictors", {}, "compare", {"to_gpu": "a100"}),
    Flaw("quick.*no operating point", {}, "compare", {"to_point": "quick"}),
    Flaw("layers.*number", {**_IMAGE, "inputs": ("4,3,224,224",)}, "fit-memory", {"layers": True}, without=_TRAINED),
    Flaw(
        "sequence.*no sequence",
        {**_IMAGE, "inputs": ("4,3,224,224",)},
        "fit-memory",
        {"sequence": True},
        without=_TRAINED,
    ),
    Flaw(
        "input.*(times|one)",
        {**_IMAGE, "inputs": ("x=4,3,224,224", "x=4,3,224,224")},
        without=_TRAINED,
        in_python=False,
    ),
    Flaw("y", {**_IMAGE, "inputs": ("y=4,3,224,224",)}, without=_TRAINED),
    Flaw("measure|config", {"config_file": Path("config.yaml")}, without=_TRAINED),
    Flaw("measure.missing", {"measure_missing": "lots"}, without=_TRAINED),
]


def write_files(folder: Path) -> None:
    """Write the files that flaws name."""
    (folder / "broken.json").write_text("{")
    (folder / "empty.jsonl").write_text("")
    (folder / "binary.jsonl").write_bytes(bytes(range(256)))
    spec = {"function": "torch.relu", "tensors": [{"shape": [8], "dtype": "float32"}]}
    (folder / "count.jsonl").write_text(json.dumps({"spec": spec, "count": -1}))
    (folder / "unknown.jsonl").write_text(json.dumps({"spec": {**spec, "function": "os.system"}, "count": 1}))
    (folder / "list.jsonl").write_text("[1, 2]")
    (folder / "broken").mkdir()
    (folder / "broken" / "metrics.json").write_text("{}")
