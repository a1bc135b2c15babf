"""What a pass draws, and what its operations draw alone: clock, throttle reasons, and the effect of data and of caches.

    python benchmarks/power_readings.py measure FILE.json [--seconds 135] [--cpu]
    python benchmarks/power_readings.py report benchmarks/power_readings-h100.json

`measure` needs a GPU and `nvidia-ml-py`, and only reads: no clock and no power limit is set. Networks run in float32
with and without TF32, in inference and training:

- `whole`: passes that follow each other. Where the constructor leaves a matrix of zeros, such as the head of ViT, once
  with it and once with random values in it: behind zeros all gradients are zero.
- `replay`: the operations of a training pass in their order, each with one set of tensors: as captured within the
  network, random (normal), or zeros.
- `alone`: the most expensive operations, one after another back to back, with the same three kinds of values. Also
  `cold`: in turn on copies with random values that exceed the cache. Also `paused`: bursts of random values with pauses
  between, which keep the card below its power limit.

Operations are ATen calls, so forward and backward are apart. Another process reads NVML. `--cpu` runs the same code on
small shapes without NVML, as a test. `report` writes the results of `docs/results/composition.md`.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torchvision
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

SEED = 0
LOGGER = Path(__file__).with_name("nvml_log.py")
PRECISIONS = {"fp32": False, "tf32": True}
NETWORK, RANDOM, ZEROS, COLD, PAUSED = "network", "random", "zeros", "cold", "paused"
ALONE_MOST, PAUSED_MOST = 8, 4
"""Operations of a pass that are measured alone, and those of them that are measured with pauses too."""
_WHOLE_S, _REPLAY_S, _ALONE_S, _RAMP_S = 2.3, 1.4, 1.0, 0.25
"""Seconds of load; the first ones, until power is steady, do not count."""
_CHUNK_S = 0.02
_BURST_S, _PAUSE_SHARE = 0.005, 1.0
_COPIES_MOST, _CACHE_TIMES = 64, 2.0
_AS_THEY_ARE = {"logsumexp", "philox_seed", "philox_offset", "rng_state", "reserve", "dropout_state", "reserveSpace"}
"""Arguments that only the operation before can give."""
_POSITIVE = {"running_var", "save_invstd", "save_var", "rstd", "invstd"}
_NO_WORK = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "_unsafe_view", "detach",
            "lift_fresh", "set_", "_cudnn_init_dropout_state"}  # fmt: skip


class Sequences(torch.nn.Module):
    """Two LSTM layers and a linear one, of batches with the time first."""

    def __init__(self, inputs: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.lstm = torch.nn.LSTM(inputs, hidden, num_layers=2)
        self.head = torch.nn.Linear(hidden, classes)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Classify the last step; shape (batch, classes)."""
        scores: torch.Tensor = self.head(self.lstm(values)[0][-1])
        return scores


@dataclass
class Network:
    """A network, the shape of its input and the number of samples in it."""

    name: str
    make: Callable[[], torch.nn.Module]
    shape: tuple[int, ...]
    batch: int


def networks(*, small: bool) -> list[Network]:
    """Return the networks, or small ones of the same kinds."""
    models = torchvision.models
    if small:
        tiny = {"patch_size": 16, "num_layers": 2, "num_heads": 2, "hidden_dim": 32, "mlp_dim": 64, "num_classes": 10}
        return [
            Network("vit", lambda: models.VisionTransformer(image_size=32, **tiny), (2, 3, 32, 32), 2),
            Network("resnet18", models.resnet18, (2, 3, 32, 32), 2),
            Network("lstm", lambda: Sequences(8, 16, 10), (5, 2, 8), 2),
        ]
    return [
        Network("vit_b_16", models.vit_b_16, (16, 3, 224, 224), 16),
        Network("resnet50", models.resnet50, (32, 3, 224, 224), 32),
        Network("lstm", lambda: Sequences(512, 1024, 1000), (128, 64, 512), 64),
    ]


class Passes:
    """Both passes of a network; steps of the optimizer have no length, so that values stay as they are."""

    def __init__(self, network: Network, device: torch.device) -> None:
        torch.manual_seed(SEED)
        with device:
            self.module = network.make()
            self.values = torch.randn(network.shape)
        self._zeros = [one for one in self.module.parameters() if one.dim() > 1 and not one.any()]
        self.optimizer = torch.optim.SGD(self.module.parameters(), lr=0.0)
        self.batch, self.device = network.batch, device
        self.labels: torch.Tensor | None = None

    @property
    def has_zeros(self) -> bool:
        """Whether a matrix was constructed of zeros alone."""
        return bool(self._zeros)

    def fill(self) -> Passes:
        """Give matrices of zeros random values."""
        for parameter in self._zeros:
            torch.nn.init.normal_(parameter, std=0.02)
        return self

    def call(self, pass_: str) -> Callable[[], None]:
        """Return a function that makes one pass."""
        self.module.train(pass_ == "training")
        return self._train if pass_ == "training" else self._infer

    def _infer(self) -> None:
        with torch.inference_mode():
            self.module(self.values)

    def _train(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        scores = self.module(self.values)
        if self.labels is None:
            self.labels = torch.randint(scores.shape[-1], (self.batch,), device=self.device)
        torch.nn.functional.cross_entropy(scores, self.labels).backward()
        self.optimizer.step()


Key = tuple[str, str]


@dataclass
class Call:
    """One ATen operation with its arguments as they were within the network."""

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    count: int
    time_s: float = 0.0

    def with_values(self, values: str, seed: int = SEED) -> Call:
        """Return the same call on tensors of its own, with other values."""
        generator = torch.Generator(_first_tensor(self).device).manual_seed(seed)
        named = zip([argument.name for argument in self.function._schema.arguments], self.args, strict=False)
        args = tuple(self._filled(arg, name, values, generator) for name, arg in named)
        kwargs = {name: self._filled(arg, name, values, generator) for name, arg in self.kwargs.items()}
        return Call(self.function, args, kwargs, self.count, self.time_s)

    def _filled(self, arg: Any, name: str, values: str, generator: torch.Generator) -> Any:
        recurrent = "rnn" in self.function.name() and name.startswith("weight")

        def other(given: Any) -> Any:
            if not isinstance(given, torch.Tensor):
                return given
            copy = copied(given)
            if values == NETWORK or not given.is_floating_point() or name in _AS_THEY_ARE:
                return copy
            storage = copy.as_strided((_extent(copy),), (1,), 0)
            if values == ZEROS:
                storage.zero_()
            elif name in _POSITIVE:
                storage.uniform_(0.25, 0.75, generator=generator)
            else:
                # as PyTorch starts recurrent weights: larger ones saturate the gates
                storage.normal_(std=0.018 if recurrent else 1.0, generator=generator)
            return copy

        return tree_map(other, arg)

    def __call__(self) -> None:
        """Make the call once."""
        self.function(*self.args, **self.kwargs)


def _first_tensor(call: Call) -> torch.Tensor:
    return next(leaf for leaf in tree_flatten((call.args, call.kwargs))[0] if isinstance(leaf, torch.Tensor))


def _extent(tensor: torch.Tensor) -> int:
    if tensor.numel() == 0:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def copied(tensor: torch.Tensor) -> torch.Tensor:
    """Copy what a tensor spans, with its strides."""
    span = tensor.detach().as_strided((_extent(tensor),), (1,), tensor.storage_offset()).clone()
    return span.as_strided(tensor.shape, tensor.stride(), 0)


class Capture(TorchDispatchMode):
    """Records the operations of a pass; keeps the arguments of one occurrence of each, or counts only."""

    def __init__(self, wanted: dict[Key, int] | None = None) -> None:
        super().__init__()
        self.order: list[Key] = []
        self.calls: dict[Key, Call] = {}
        self._wanted = wanted
        self._seen: collections.Counter[Key] = collections.Counter()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Record one operation and make it."""
        kwargs = kwargs or {}
        tensors = [leaf for leaf in tree_flatten((args, kwargs))[0] if isinstance(leaf, torch.Tensor)]
        if tensors and _works(function):
            key = function.name(), _described((args, kwargs))
            self.order.append(key)
            if self._wanted is not None and self._seen[key] == self._wanted[key] // 2:
                kept = tree_map(lambda leaf: copied(leaf) if isinstance(leaf, torch.Tensor) else leaf, (args, kwargs))
                self.calls[key] = Call(function, *kept, self._wanted[key])
            self._seen[key] += 1
        return function(*args, **kwargs)


def _works(function: Any) -> bool:
    """Return whether an operation has work for a device: it is no view and no allocation."""
    name = function.name().partition("::")[2].partition(".")[0]
    views = any(out.alias_info is not None and not out.alias_info.is_write for out in function._schema.returns)
    return name not in _NO_WORK and not views


def _described(given: Any) -> str:
    return str(tree_map(lambda leaf: (tuple(leaf.shape), leaf.stride(), str(leaf.dtype))
                        if isinstance(leaf, torch.Tensor) else leaf, given))  # fmt: skip


def captured(call: Callable[[], None]) -> tuple[list[Key], dict[Key, Call]]:
    """Return the operations of a pass in their order, and each with the values of its middle occurrence."""
    with Capture() as counted:
        call()
    with Capture(dict(collections.Counter(counted.order))) as kept:
        call()
    return kept.order, kept.calls


@dataclass
class Load:
    """What was run in a stretch of time; monotonic seconds."""

    what: dict[str, Any]
    start_s: float
    end_s: float
    calls: int
    more: dict[str, Any] = field(default_factory=dict)


class Runner:
    """Runs loads on a device until the time is over."""

    def __init__(self, device: torch.device, ends_s: float) -> None:
        self.device, self.ends_s = device, ends_s
        self.loads: list[Load] = []
        self.skipped: list[dict[str, Any]] = []
        self.scale = 1.0 if device.type == "cuda" else 0.02

    def synchronise(self) -> None:
        """Wait for the device."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def once_s(self, call: Callable[[], Any], times: int = 3) -> float:
        """Return the time in s of a call among a few, after as many to warm up."""
        for _ in range(2):
            self.synchronise()
            start_s = time.monotonic()
            for _ in range(times):
                call()
            self.synchronise()
        return (time.monotonic() - start_s) / times

    def run(self, what: dict[str, Any], calls: list[Callable[[], None]], seconds: float, **more: Any) -> None:
        """Make calls in turn for so many seconds, with at most two chunks queued."""
        seconds *= self.scale
        if time.monotonic() + seconds > self.ends_s:
            self.skipped.append(what)
            return
        per_call_s = self.once_s(lambda: [call() for call in calls], 1) / len(calls)
        rounds = max(1, round(_CHUNK_S / (per_call_s * len(calls))))
        self.synchronise()
        start_s, made, last = time.monotonic(), 0, None
        while time.monotonic() - start_s < seconds:
            for _ in range(rounds):
                for call in calls:
                    call()
            made += rounds * len(calls)
            if self.device.type == "cuda":
                event = torch.cuda.Event()
                event.record()
                if last is not None:
                    last.synchronize()
                last = event
        self.synchronise()
        self.loads.append(Load(what, start_s, time.monotonic(), made, more))

    def run_paused(self, what: dict[str, Any], call: Callable[[], None], seconds: float) -> None:
        """Make bursts of calls with pauses between."""
        seconds *= self.scale
        if time.monotonic() + seconds > self.ends_s:
            self.skipped.append(what)
            return
        burst = max(1, round(_BURST_S / self.once_s(call)))
        start_s, made, bursts_s = time.monotonic(), 0, 0.0
        while time.monotonic() - start_s < seconds:
            began_s = time.monotonic()
            for _ in range(burst):
                call()
            self.synchronise()
            took_s = time.monotonic() - began_s
            time.sleep(_PAUSE_SHARE * took_s)
            made, bursts_s = made + burst, bursts_s + took_s
        self.loads.append(Load(what, start_s, time.monotonic(), made, {"burst_calls": burst, "busy_s": bursts_s}))

    def idle(self, seconds: float) -> None:
        """Do nothing, with a context."""
        self.synchronise()
        start_s = time.monotonic()
        time.sleep(seconds * self.scale)
        self.loads.append(Load({"kind": "idle"}, start_s, time.monotonic(), 0))


def _released(runner: Runner) -> None:
    if runner.device.type == "cuda":
        torch.cuda.empty_cache()


def use(precision: str) -> None:
    """Switch TF32."""
    torch.backends.cuda.matmul.allow_tf32 = PRECISIONS[precision]
    torch.backends.cudnn.allow_tf32 = PRECISIONS[precision]


def measure_all(runner: Runner, *, small: bool) -> None:
    """Run all loads, the most telling ones first."""
    chosen = networks(small=small)
    for network in chosen:
        passes = Passes(network, runner.device)
        if passes.has_zeros:
            for precision in PRECISIONS:
                use(precision)
                what = {"kind": "whole", "network": network.name, "precision": precision, "pass": "training",
                        "weights": "as constructed"}  # fmt: skip
                runner.run(what, [passes.call("training")], _WHOLE_S)
            passes.fill()
        for precision in PRECISIONS:
            use(precision)
            for pass_ in ("inference", "training"):
                what = {"kind": "whole", "network": network.name, "precision": precision, "pass": pass_}
                runner.run(what, [passes.call(pass_)], _WHOLE_S)
        del passes
        _released(runner)
    for precision in PRECISIONS:
        use(precision)
        for network in chosen:
            _operations(runner, network, precision)
            _released(runner)


def _operations(runner: Runner, network: Network, precision: str) -> None:
    """Replay a training pass of a network, then run its most expensive operations alone."""
    order, calls = captured(Passes(network, runner.device).fill().call("training"))
    base = {"network": network.name, "precision": precision, "pass": "training"}
    for call in calls.values():
        call.time_s = runner.once_s(call)
    for values in (NETWORK, RANDOM, ZEROS) if precision == "fp32" else (NETWORK, RANDOM):
        others = {key: call.with_values(values) for key, call in calls.items()}

        def replay(others: dict[Key, Call] = others) -> None:
            for key in order:
                others[key]()

        with torch.no_grad():
            runner.run({"kind": "replay", **base, "values": values}, [replay], _REPLAY_S, operations=len(order))
        del others, replay
    ranked = sorted(calls, key=lambda key: -calls[key].count * calls[key].time_s)
    with torch.no_grad():
        for place, key in enumerate(ranked[: ALONE_MOST if precision == "fp32" else ALONE_MOST // 2]):
            _alone(runner, calls[key], {"kind": "alone", **base, "operation": key[0], "arguments": key[1][:400],
                                        "count": calls[key].count, "place": place})  # fmt: skip


def _alone(runner: Runner, call: Call, what: dict[str, Any]) -> None:
    every = what["precision"] == "fp32"
    for values in (RANDOM, NETWORK, ZEROS) if every else (RANDOM, NETWORK):
        one = call.with_values(values)
        described = {"tensors": _values_of(one)} if values != ZEROS else {}
        runner.run({**what, "values": values}, [one], _ALONE_S, **described)
    if not every:
        return
    copies = [call.with_values(RANDOM, seed) for seed in range(_copies(call, runner.device))]
    if len(copies) > 1:
        runner.run({**what, "values": COLD}, list(copies), _ALONE_S, copies=len(copies))
    if what["place"] < PAUSED_MOST:
        runner.run_paused({**what, "values": PAUSED}, copies[0], _ALONE_S)


def _copies(call: Call, device: torch.device) -> int:
    """Return how many copies of a call's tensors exceed the cache; 1 where one does."""
    cache = torch.cuda.get_device_properties(device).L2_cache_size if device.type == "cuda" else 1 << 16
    leaves = tree_flatten((call.args, call.kwargs))[0]
    own = sum(leaf.numel() * leaf.element_size() for leaf in leaves if isinstance(leaf, torch.Tensor))
    return 1 if own > _CACHE_TIMES * cache else min(_COPIES_MOST, 1 + int(_CACHE_TIMES * cache // own))


def _values_of(call: Call) -> list[dict[str, Any]]:
    """Share of zeros and root mean square of each floating-point tensor."""
    found = []
    for leaf in tree_flatten((call.args, call.kwargs))[0]:
        if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and leaf.numel():
            zeros = float((leaf == 0).float().mean())
            found.append({"shape": list(leaf.shape), "zeros": zeros, "rms": float(leaf.float().square().mean().sqrt())})
    return found


@contextlib.contextmanager
def readings(device: torch.device, rows: list[list[float]]) -> Iterator[None]:
    """Read NVML beside, and fill `rows` at the end; nothing without a GPU."""
    if device.type != "cuda":
        yield
        return
    uuid = f"GPU-{torch.cuda.get_device_properties(device).uuid}"
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "readings.csv"
        with subprocess.Popen([sys.executable, str(LOGGER), uuid, str(output)], stdin=subprocess.PIPE) as process:
            assert process.stdin is not None
            while not (output.exists() and output.stat().st_size):
                if process.poll() is not None:
                    raise SystemExit("error: NVML cannot be read (see above). Install nvidia-ml-py, or give --cpu.")
                time.sleep(0.01)
            try:
                yield
            finally:
                process.stdin.close()
                process.wait(timeout=20)
        rows += [[float(value) for value in line.split(",")] for line in output.read_text().splitlines()]


def summarised(load: Load, rows: list[list[float]]) -> dict[str, Any]:
    """Return time and energy of a call of a load, with clock, throttle reasons and temperature while it ran."""
    seconds = load.end_s - load.start_s
    found = {**load.what, **load.more, "seconds": seconds, "calls": load.calls}
    if load.calls:
        found["time_s"] = seconds / load.calls
    steady = [row for row in rows if load.start_s + min(_RAMP_S, seconds / 3) <= row[0] <= load.end_s]
    ticks = [row for before, row in itertools.pairwise(steady) if row[1] > before[1]]
    if len(steady) < 3 or len(ticks) < 2:
        return found
    power_w = (ticks[-1][1] - ticks[0][1]) / 1e3 / (ticks[-1][0] - ticks[0][0])
    clocks = sorted(row[4] for row in steady)
    reasons = collections.Counter(int(row[5]) for row in steady)
    found |= {
        "power_w": power_w,
        "counter_ticks": len(ticks),
        "instant_w": sum(row[2] for row in steady) / len(steady),
        "average_w": steady[-1][3],
        "sm_clock_mhz": [clocks[0], clocks[len(clocks) // 2], clocks[-1]],
        "throttle_reasons": {hex(reason): count / len(steady) for reason, count in reasons.items()},
        "temperature_c": steady[-1][6],
    }
    if load.calls:
        found["energy_j"] = power_w * seconds / load.calls
    return found


def measure(output: Path, seconds: float, *, cpu: bool) -> None:
    """Run all loads and write what was read."""
    ends_s = time.monotonic() + seconds
    device = torch.device("cpu" if cpu else "cuda")
    rows: list[list[float]] = []
    runner = Runner(device, ends_s)
    with readings(device, rows):
        if not cpu:
            runner.once_s(lambda: torch.randn(1024, 1024, device=device) @ torch.randn(1024, 1024, device=device))
        runner.idle(2.0)
        try:
            measure_all(runner, small=cpu)
        except torch.OutOfMemoryError as error:
            runner.skipped.append({"error": str(error)[:300]})
        runner.idle(1.5)
    found = {
        "gpu": None if cpu else torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "loads": [summarised(load, rows) for load in runner.loads],
        "skipped": runner.skipped,
    }
    output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(f"{output}: {len(found['loads'])} loads, {len(runner.skipped)} skipped, {len(rows)} readings")


def report(path: Path) -> None:
    """Write a table of passes and one of operations."""
    from result_file import RESULTS, write

    found = json.loads(path.read_text(encoding="utf-8"))
    loads = [load for load in found["loads"] if "energy_j" in load]
    idle_w = min(load["power_w"] for load in found["loads"] if load["kind"] == "idle")
    hardware = f"1 × {found['gpu']}, PyTorch {found['torch']}"
    write(
        "composition",
        "What passes draw, whole and replayed with other values",
        ["network", "precision", "pass", "run", "time", "power", "energy", "against whole", "SM clock", "power-capped"],
        [
            [load["network"], load["precision"], load["pass"], _run(load), f"{load['time_s'] * 1e3:.2f} ms",
             f"{load['power_w']:.0f} W", f"{load['energy_j']:.3g} J", _against(load, loads),
             f"{load['sm_clock_mhz'][1]:.0f} MHz", f"{_capped(load):.0%}"]
            for load in sorted(loads, key=lambda load: (load.get("network", ""), load.get("precision", ""),
                                                        load.get("pass", ""), _run(load) != "whole"))
            if load["kind"] in ("whole", "replay")
        ],
        hardware=hardware,
        file=RESULTS / "power_readings.json",
        notes=[
            "A replay calls the operations of the pass in their order, each with one set of tensors.",
            ("*Head of zeros as constructed*: all gradients before the head are zero, and zeros draw less. *Whole* has "
            "random values there, as after the first steps of training."),
            f"Idle power is {idle_w:.0f} W. Energy of passes that follow each other, from the energy counter.",
            "Power-capped: share of readings in which NVML gives the power limit as the reason for a lower clock.",
        ],
    )  # fmt: skip
    alone: dict[tuple[Any, ...], dict[str, dict[str, Any]]] = {}
    for load in loads:
        if load["kind"] == "alone":
            key = (load["network"], load["precision"], load["place"])
            alone.setdefault(key, {})[load["values"]] = load
    write(
        "composition",
        "What operations of training passes draw alone",
        ["network", "precision", "operation", "calls", "time", "SM clock", *(f"{name}: power" for name in _VALUES),
         "paused: energy above idle", "back to back"],
        [_operation(*key[:2], own, idle_w) for key, own in alone.items() if RANDOM in own],
        hardware=hardware,
        file=RESULTS / "power_readings-operations.json",
        notes=[
            "ATen operations that take most of a pass, each alone and back to back. Time, clock and energies: random.",
            "*Network*: values as captured in the pass. *Cold*: in turn on copies that exceed the cache.",
            "*Paused*: bursts of 5 ms with pauses of equal length, energy of a call above idle power.",
        ],
    )  # fmt: skip


_VALUES = (RANDOM, NETWORK, ZEROS, COLD)


def _run(load: dict[str, Any]) -> str:
    if load["kind"] == "replay":
        return f"replay, {load['values']} values"
    return f"whole, head of zeros {load['weights']}" if "weights" in load else "whole"


def _against(load: dict[str, Any], loads: list[dict[str, Any]]) -> str:
    key = ("network", "precision", "pass")
    whole = [one for one in loads if _run(one) == "whole" and all(one[name] == load[name] for name in key)]
    return "–" if not whole or load is whole[0] else f"{load['energy_j'] / whole[0]['energy_j'] - 1:+.1%}"


def _capped(load: dict[str, Any]) -> float:
    return float(sum(share for reason, share in load["throttle_reasons"].items() if int(reason, 16) & 0x4))


def _operation(network: str, precision: str, own: dict[str, dict[str, Any]], idle_w: float) -> list[Any]:
    random = own[RANDOM]
    above = {name: load["energy_j"] - idle_w * load["time_s"] for name, load in own.items()}
    shapes = " × ".join(str(tensor["shape"]).replace(" ", "") for tensor in random["tensors"][:2])
    return [
        network, precision, f"`{random['operation'].removeprefix('aten::')}` {shapes}", random["count"],
        f"{random['time_s'] * 1e6:.0f} µs", f"{random['sm_clock_mhz'][1]:.0f} MHz",
        *(f"{own[name]['power_w']:.0f} W" if name in own else "–" for name in _VALUES),
        f"{above[PAUSED] * 1e3:.3g} mJ" if PAUSED in own else "–", f"{above[RANDOM] * 1e3:.3g} mJ",
    ]  # fmt: skip


def main() -> None:
    """Measure or report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    measuring = commands.add_parser("measure", help="run all loads and write what was read")
    measuring.add_argument("output", type=Path)
    measuring.add_argument("--seconds", type=float, default=135, help="begin nothing that ends later")
    measuring.add_argument("--cpu", action="store_true", help="small shapes on the processor, without NVML")
    commands.add_parser("report", help="write results").add_argument("output", type=Path, metavar="FILE")
    given = parser.parse_args()
    if given.command == "report":
        report(given.output)
        return
    measure(given.output, given.seconds, cpu=given.cpu)


if __name__ == "__main__":
    main()
