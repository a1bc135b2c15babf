"""Measure training steps on one and two GPUs, and how GPUs and programs influence each other.

    python benchmarks/parallel_truth.py --seconds 420 --output FILE.jsonl

One JSON line for each case. Two processes, one for each GPU, run all cases; a case that hangs or fails ends them, and
two others go on. Nothing sets a clock, a power limit or another state of a GPU. `--cpu` runs the same code with gloo
on CPU processes and small inputs, as a test. `several_gpus.py predict` predicts the same. `--set further` and
`--set third` measure steps of other networks instead, and nothing else; `parallel_draw.py` drew the third.
"""

import argparse
import contextlib
import datetime
import gc
import importlib.metadata
import itertools
import json
import multiprocessing
import os
import statistics
import subprocess
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import distributed

from clockwatt.operations import networks
from clockwatt.studies.parallel import kernels
from clockwatt.studies.parallel.cases import Case
from clockwatt.studies.parallel.rank import Worker

STRATEGIES = ("one", "ddp", "fsdp", "pipeline")
MICROBATCHES = 4
_TRANSFORMERS = "clockwatt.operations.transformer_networks"
_IMAGES, _FEWER_IMAGES = ((64, 3, 224, 224), None), ((32, 3, 224, 224), None)
NETWORKS: dict[str, tuple[str, tuple[tuple[int, ...], int | None], str, str, str]] = {
    "resnet50": ("resnet50", _IMAGES, "tf32", "sgd", "layer3"),
    "gpt2": (f"{_TRANSFORMERS}:gpt2", ((8, 512), 50257), "tf32", "adamw", "model.transformer.h.5"),
    "vgg16": ("vgg16", _IMAGES, "tf32", "sgd", "features.7"),
    "llama_300m": ("parallel_truth:llama_300m", ((8, 512), 32000), "bf16-mixed", "adamw", "model.model.layers.9"),
    "vit_b_16": ("vit_b_16", _FEWER_IMAGES, "tf32", "adamw", "encoder.layers.encoder_layer_6"),
    "bert_base": (
        f"{_TRANSFORMERS}:bert_base", ((32, 128), 30522), "bf16-mixed", "adamw", "model.bert.encoder.layer.5"
    ),
    "mlp": ("parallel_truth:mlp", ((4096, 4096), None), "tf32", "sgd", "8"),
    "convnext_tiny": ("convnext_tiny", _FEWER_IMAGES, "tf32", "adamw", "features.4"),
    "efficientnet_b0": ("efficientnet_b0", _IMAGES, "tf32", "sgd", "features.3"),
    "gpt2_medium": (f"{_TRANSFORMERS}:gpt2_medium", ((8, 256), 50257), "tf32", "adamw", "model.transformer.h.11"),
}  # fmt: skip
"""Constructor, shape of a rank's input (of all ranks for a pipeline) and bound of indices, precision, optimizer, and
the module with which the second stage of a pipeline begins."""
FIRST = tuple(NETWORKS)
NETWORKS |= {
    "resnet101": ("resnet101", _FEWER_IMAGES, "tf32", "sgd", "layer3"),
    "mobilenet_v3_large": ("mobilenet_v3_large", _IMAGES, "tf32", "sgd", "features.7"),
    "vit_b_32": ("vit_b_32", _IMAGES, "tf32", "adamw", "encoder.layers.encoder_layer_6"),
    "bert_large": (
        f"{_TRANSFORMERS}:bert_large", ((16, 128), 30522), "bf16-mixed", "adamw", "model.bert.encoder.layer.11"
    ),
    "convnext_small": ("convnext_small", _FEWER_IMAGES, "tf32", "adamw", "features.5"),
}  # fmt: skip
FURTHER = tuple(NETWORKS)[len(FIRST) :]
NETWORKS |= {
    name: (one["constructor"], tuple(one["input"]), one["precision"], one["optimizer"], one["begins"])
    for name, one in json.loads((Path(__file__).parent / "parallel" / "drawn.json").read_text(encoding="utf-8")).items()
}
THIRD = tuple(NETWORKS)[len(FIRST) + len(FURTHER) :]
SETS = {"first": FIRST, "further": FURTHER, "third": THIRD}

_CASE_S, _START_S = 25.0, 90.0
_WINDOW_S, _BLOCK_S, _WARM_S = 1.6, 0.1, 0.4
_PHASE_S = 1.0
_PROFILED = 3
_MATRIX = 8192
_EVERY = 13
"""Cases after which both GPUs are compared."""


def llama_300m() -> torch.nn.Module:
    """A decoder of Llama's kind with 0.3 billion parameters: 18 layers, width 1024, 16 heads."""
    from clockwatt.operations.hugging_face import UNMASKED, library
    from clockwatt.operations.transformer_networks import LanguageModel

    transformers = library()
    shape = transformers.LlamaConfig(
        vocab_size=32000, hidden_size=1024, intermediate_size=2816, num_hidden_layers=18, num_attention_heads=16,
        num_key_value_heads=16, max_position_embeddings=1024, attn_implementation=UNMASKED,
    )  # fmt: skip
    return LanguageModel(transformers.LlamaForCausalLM(shape))


def mlp() -> torch.nn.Module:
    """Eight wide layers, with much to communicate for their FLOPs."""
    layers = [(torch.nn.Linear(4096, 4096), torch.nn.ReLU()) for _ in range(8)]
    return torch.nn.Sequential(*itertools.chain.from_iterable(layers), torch.nn.Linear(4096, 1000))


# ranks


class Rank:
    """One process: builds, runs and times what the parent asks for."""

    def __init__(self, rank: int, *, cpu: bool, store: str) -> None:
        self.rank, self.cpu = rank, cpu
        if not cpu:
            torch.cuda.set_device(rank)
        limit = datetime.timedelta(seconds=600)  # the parent's limits come first
        distributed.init_process_group(
            "gloo" if cpu else "nccl", init_method=f"file://{store}", rank=rank, world_size=2, timeout=limit
        )
        self.worker = Worker()
        self.device, self.synchronize = self.worker.device, self.worker.synchronize

    def run(self, kind: str, *arguments: Any) -> dict[str, Any]:
        """Run one case and leave nothing on the GPU."""
        try:
            return {"step": self.step, "cards": self.cards, "shared": self.shared}[kind](*arguments)
        finally:
            gc.collect()
            if not self.cpu:
                torch.cuda.empty_cache()
                torch._C._cuda_clearCublasWorkspaces()

    def step(self, name: str, strategy: str) -> dict[str, Any]:
        """Measure the training step of one network and strategy."""
        if strategy == "one" and self.rank:
            return {}
        before = 0 if self.cpu else torch.cuda.memory_allocated()
        begun_s = time.monotonic()
        call = self.worker.step(case_of(name, strategy, cpu=self.cpu))
        if not self.cpu:
            torch.cuda.reset_peak_memory_stats()
        together = strategy != "one"
        result = {"build_s": time.monotonic() - begun_s, **self.timed(call, together=together)}
        if not self.cpu:
            result |= {
                "baseline_bytes": before,
                "allocated_bytes": torch.cuda.max_memory_allocated(),
                "reserved_bytes": torch.cuda.max_memory_reserved(),
            }
        hosts = []
        for _ in range(5):
            self.barrier(together=together)
            hosts.append(-time.perf_counter())
            call()
            hosts[-1] += time.perf_counter()
            self.synchronize()
        result["issue_s"] = statistics.median(hosts)
        if not self.cpu:
            self.barrier(together=together)
            result["profile"] = profile(call, self.device)
        return result

    def barrier(self, *, together: bool) -> None:
        """Wait for the GPU, and for the other rank."""
        self.synchronize()
        if together:
            distributed.barrier(self.worker.control)

    def timed(self, call: Callable[[], Any], *, together: bool, window_s: float = _WINDOW_S) -> dict[str, Any]:
        """Return `blocks_s` (each of a step), `steps` in all and `window`, the clock at its begin and end."""
        self.barrier(together=together)
        begun_s, warm = time.monotonic(), 0
        window_s *= 0.1 if self.cpu else 1
        while True:
            call()
            self.synchronize()
            warm += 1
            agreed = torch.tensor([time.monotonic() - begun_s])
            if together:
                distributed.broadcast(agreed, 0, group=self.worker.control)
            elapsed_s = float(agreed)
            if self.cpu or (elapsed_s > _WARM_S and warm > 1):
                break
        each_s = elapsed_s / warm
        repeated = max(1, round(_BLOCK_S / each_s))
        blocks = max(1 if self.cpu else 8, round(window_s / (repeated * each_s)))
        blocks_s = []
        self.barrier(together=together)
        start_s = time.monotonic()
        for _ in range(blocks):
            block_s = time.perf_counter()
            for _ in range(repeated):
                call()
            self.synchronize()
            blocks_s.append((time.perf_counter() - block_s) / repeated)
        return {"blocks_s": blocks_s, "steps": blocks * repeated, "window": (start_s, time.monotonic())}

    def cards(self) -> dict[str, Any]:
        """Run the same work on each GPU alone, and on both at once."""
        calls = {"sgemm": sgemm(self.device, cpu=self.cpu), "resnet50": self.resnet50(self.device)}
        result = {}
        for name, ranks in itertools.product(calls, ((0,), (1,), (0, 1))):
            distributed.barrier(self.worker.control)
            if self.rank in ranks:
                timed = self.timed(calls[name], together=len(ranks) > 1, window_s=_PHASE_S)
                result[f"{name} on {' and '.join(map(str, ranks))}"] = timed
        distributed.barrier(self.worker.control)
        return result

    def shared(self) -> dict[str, Any]:
        """Run two programs on the first GPU: each alone, and all pairs at once."""
        device = self.device if self.cpu else torch.device("cuda", 0)
        with contextlib.nullcontext() if self.cpu else torch.cuda.device(device):
            calls = {"sgemm": sgemm(device, cpu=self.cpu), "resnet50": self.resnet50(device)}
            result = {}
            pairs = [("sgemm", None), (None, "resnet50"), *itertools.product(calls, calls)]
            for repetition, pair in itertools.product(range(3), pairs):
                distributed.barrier(self.worker.control)
                if pair[self.rank] is not None:
                    title = " beside ".join(name for name in pair if name)
                    result[f"{title} {repetition}"] = self.during(calls[pair[self.rank]])
            distributed.barrier(self.worker.control)
        return result

    def during(self, call: Callable[[], Any]) -> dict[str, Any]:
        """Run for a phase's time, however many steps that are."""
        blocks_s, start_s, steps = [], 0.0, 0
        begun_s = time.monotonic()
        while (now_s := time.monotonic() - begun_s) < 0.2 + _PHASE_S:
            if now_s > 0.2 and not start_s:
                start_s, blocks_s, steps = time.monotonic(), [], 0
            block_s = time.perf_counter()
            for _ in range(3):
                call()
            self.synchronize()
            blocks_s.append((time.perf_counter() - block_s) / 3)
            steps += 3
        return {"blocks_s": blocks_s, "steps": steps, "window": (start_s or begun_s, time.monotonic())}

    def resnet50(self, device: torch.device) -> Callable[[], None]:
        """Return its training step."""
        case = case_of("resnet50", "one", cpu=self.cpu)
        built = networks.build_network(case.network, device, pass_="training", training=case.training)
        call: Callable[[], None] = built.call
        for _ in range(3):
            call()
        return call


def sgemm(device: torch.device, *, cpu: bool) -> Callable[[], Any]:
    """Return a product of float32 matrices without TF32."""
    size = 256 if cpu else _MATRIX
    one, other = (torch.randn(size, size, device=device) for _ in range(2))
    out = torch.empty_like(one)

    def call() -> None:
        before = torch.backends.cuda.matmul.fp32_precision
        torch.backends.cuda.matmul.fp32_precision = "ieee"
        torch.mm(one, other, out=out)
        torch.backends.cuda.matmul.fp32_precision = before

    call()
    return call


def network_config(name: str, *, batch: int | None = None, cpu: bool = False) -> Any:
    """Return a network as clockwatt configures it."""
    from clockwatt import config

    constructor, (shape, below), precision, _, _ = NETWORKS[name]
    if cpu:
        of_any_size = len(shape) > 2 and "vit" not in name and name not in THIRD
        shape = (4, 8) if below else (8, 3, 32, 32) if of_any_size else (4, *shape[1:])
    content: dict[str, Any] = {"name": constructor, "input": [batch or shape[0], *shape[1:]], "precision": precision}
    if below:
        content |= {"input_dtype": "int64", "input_below": below}
    return config.parse_network(content, source="benchmark")


def case_of(name: str, strategy: str, *, cpu: bool) -> Case:
    """Return a case of the package's study; the input is one microbatch for a pipeline."""
    from clockwatt.config import TrainingConfig

    parts = MICROBATCHES if strategy == "pipeline" else 1
    network = network_config(name, cpu=cpu, batch=network_config(name, cpu=cpu).input[0] // parts)
    _, _, _, optimizer, begins = NETWORKS[name]
    return Case(name, network, strategy, MICROBATCHES, TrainingConfig(optimizer=optimizer), (begins,))


def profile(call: Callable[[], Any], device: torch.device) -> dict[str, Any]:
    """Return times of kernels and of communications of a step, from the profiler."""
    spans, _ = kernels.profile(call, _PROFILED, device)
    found = kernels.summary(spans, _PROFILED)
    kinds: dict[str, tuple[float, float]] = {}
    for span in spans:
        if span.communication:
            count, total_s = kinds.get(span.name[:60], (0.0, 0.0))
            kinds[span.name[:60]] = count + 1 / _PROFILED, total_s + 1e-6 * (span.end_us - span.start_us) / _PROFILED
    kernel_sum_s = sum(1e-6 * (span.end_us - span.start_us) for span in spans if not span.communication) / _PROFILED
    overlap_s = (found["overlap"] or 0.0) * found["communication_s"]
    of_kernels = {name: found[name] for name in ("kernels", "kernel_s", "busy_s")}
    sums = {"kernel_sum_s": kernel_sum_s, "nccl_s": found["communication_s"], "overlap_s": overlap_s}
    return of_kernels | sums | {"kinds": kinds}


def rank_main(rank: int, connection: Any, store: str, *, cpu: bool) -> None:
    """Answer the parent's cases until it closes the connection."""
    try:
        worker = Rank(rank, cpu=cpu, store=store)
        connection.send({"started": True})
        while True:
            case = connection.recv()
            connection.send(worker.run(*case))
    except EOFError:
        pass
    except BaseException as error:  # noqa: BLE001  # whatever it is, the parent writes it down
        text = f"{type(error).__name__}: {error}"[:500]
        connection.send({"error": text, "trace": traceback.format_exc()[-1500:]})
    os._exit(0)


# parent


class Ranks:
    """The two processes."""

    def __init__(self, *, cpu: bool) -> None:
        self._cpu, self._pairs = cpu, []

    def run(self, case: tuple[Any, ...], limit_s: float) -> list[dict[str, Any]]:
        """Return what both ranks answer; after an error or a hang, both are ended."""
        if not self._pairs:
            self._start()
            started = self._answers(_START_S)
            if any("error" in one for one in started):
                self.end()
                return started
        for _, connection in self._pairs:
            connection.send(case)
        answers = self._answers(limit_s)
        if any("error" in one for one in answers):
            self.end()
        return answers

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        store = f"{tempfile.mkdtemp()}/store"
        for rank in range(2):
            here, there = context.Pipe()
            process = context.Process(
                target=rank_main, args=(rank, there, store), kwargs={"cpu": self._cpu}, daemon=True
            )
            process.start()
            there.close()
            self._pairs.append((process, here))

    def _answers(self, limit_s: float) -> list[dict[str, Any]]:
        answers: dict[int, dict[str, Any]] = {}
        deadline_s = time.monotonic() + limit_s
        while len(answers) < 2 and (left_s := deadline_s - time.monotonic()) > 0:
            waiting = {connection: rank for rank, (_, connection) in enumerate(self._pairs) if rank not in answers}
            for connection in wait(list(waiting), left_s):
                rank = waiting[connection]
                try:
                    answers[rank] = connection.recv()
                except EOFError:
                    answers[rank] = {"error": "died"}
                if "error" in answers[rank]:
                    deadline_s = min(deadline_s, time.monotonic() + 3)
        return [answers.get(rank, {"error": f"no answer in {limit_s:.0f} s"}) for rank in range(2)]

    def end(self) -> None:
        """Kill both."""
        for process, connection in self._pairs:
            process.kill()
            process.join()
            connection.close()
        self._pairs = []


class Sensors:
    """Samples energy counters, temperature, clock and power of the GPUs in this process."""

    def __init__(self) -> None:
        import pynvml

        self._nvml = pynvml
        pynvml.nvmlInit()
        self.handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(2)]
        self.uuids = [pynvml.nvmlDeviceGetUUID(handle) for handle in self.handles]
        self._edges: list[list[tuple[float, float]]] = [[], []]
        self._samples: list[list[tuple[float, ...]]] = [[], []]
        threading.Thread(target=self._sample, daemon=True).start()

    def _sample(self) -> None:
        nvml, slow_s = self._nvml, 0.0
        while True:
            for gpu, handle in enumerate(self.handles):
                energy_j = 1e-3 * nvml.nvmlDeviceGetTotalEnergyConsumption(handle)
                if not self._edges[gpu] or energy_j != self._edges[gpu][-1][1]:
                    self._edges[gpu].append((time.monotonic(), energy_j))
            if time.monotonic() - slow_s > 0.1:
                slow_s = time.monotonic()
                for gpu, handle in enumerate(self.handles):
                    self._samples[gpu].append((
                        time.monotonic(),
                        nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
                        nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
                        1e-3 * nvml.nvmlDeviceGetPowerUsage(handle),
                        nvml.nvmlDeviceGetCurrentClocksEventReasons(handle),
                    ))  # fmt: skip
            time.sleep(0.004)

    def during(self, start_s: float, end_s: float, gpu: int) -> dict[str, float]:
        """Return energy and the means of the other sensors between two times; the counter is interpolated."""
        time.sleep(max(0.0, end_s + 0.15 - time.monotonic()))
        times, energies = np.array(self._edges[gpu][-20000:]).T
        joules = np.interp([start_s, end_s], times, energies)
        within = [one for one in self._samples[gpu][-600:] if start_s + 0.1 <= one[0] <= end_s]
        means = np.mean([one[1:4] for one in within], axis=0) if within else (float("nan"),) * 3
        return {
            "energy_j": float(joules[1] - joules[0]), "power_w": float(joules[1] - joules[0]) / (end_s - start_s),
            "temperature_c": float(means[0]), "sm_clock_mhz": float(means[1]), "instant_power_w": float(means[2]),
            "throttle": int(np.bitwise_or.reduce([int(one[4]) for one in within])) if within else 0,
            "edges": int(((times >= start_s) & (times <= end_s)).sum()),
        }  # fmt: skip

    def machine(self) -> dict[str, Any]:
        """Return what the machine is."""
        nvml = self._nvml
        gpus = [
            {
                "name": nvml.nvmlDeviceGetName(handle), "uuid": uuid,
                "power_limit_w": 1e-3 * nvml.nvmlDeviceGetEnforcedPowerLimit(handle),
                "max_sm_clock_mhz": nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM),
            }
            for handle, uuid in zip(self.handles, self.uuids, strict=True)
        ]  # fmt: skip
        shown = subprocess.run(["nvidia-smi", "topo", "-m"], capture_output=True, text=True, timeout=20, check=False)
        return {"gpus": gpus, "driver": nvml.nvmlSystemGetDriverVersion(), "topology": shown.stdout}


def with_sensors(result: dict[str, Any], gpu: int, sensors: Sensors | None) -> dict[str, Any]:
    """Add what the sensors saw in the window of a result, and energy of a step."""
    if "window" not in result or sensors is None:
        return result
    seen = sensors.during(*result["window"], gpu)
    return result | {"sensors": seen, "energy_j": seen["energy_j"] / result["steps"]}


def line_of(case: tuple[Any, ...], answers: list[dict[str, Any]], sensors: Sensors | None) -> dict[str, Any]:
    """Return the line that is written for a case."""
    if any("error" in one for one in answers):
        return {"error": [one.get("error", "") for one in answers], "trace": [one.get("trace", "") for one in answers]}
    if case[0] != "step":
        ranks = [
            {title: with_sensors(one, 0 if case[0] == "shared" else rank, sensors) for title, one in answer.items()}
            for rank, answer in enumerate(answers)
        ]
        return {"ranks": ranks}
    ranks = [with_sensors(one, rank, sensors) for rank, one in enumerate(answers)]
    blocks = zip(*(one["blocks_s"] for one in ranks if one), strict=True)
    line = {"time_s": statistics.median(max(block) for block in blocks), "ranks": [one for one in ranks if one]}
    if case[2] == "one" and sensors is not None:
        line["other_gpu"] = sensors.during(*ranks[0]["window"], 1)
    return line


def plan(names: Sequence[str], *, more: bool) -> Iterator[tuple[Any, ...]]:
    """Yield steps of some networks; `more` adds comparisons of GPUs and programs, and the first step at the end.

    The first steps already hold every network and every strategy.
    """
    turns = itertools.product(range(len(STRATEGIES)), enumerate(names))
    steps = [("step", name, STRATEGIES[(place + turn) % len(STRATEGIES)]) for turn, (place, name) in turns]
    for place, case in enumerate(steps, 1):
        yield case
        if not more:
            continue
        if place % _EVERY == 4:
            yield ("cards",)
        if place == 20 or place == len(steps) < 20:
            yield ("shared",)
    if more:
        yield steps[0]


def main() -> None:
    """Run all cases until the time is over."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=420)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--only", help="networks, with commas between them")
    parser.add_argument("--set", choices=SETS, default="first")
    parser.add_argument("--cpu", action="store_true")
    options = parser.parse_args()
    begun_s = time.monotonic()
    os.environ["NCCL_NVLS_ENABLE"] = "0"
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    sensors = None
    if options.cpu:
        os.environ["OMP_NUM_THREADS"] = "1"
    else:
        sensors = Sensors()
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(sensors.uuids)
    versions = {name: importlib.metadata.version(name) for name in ("torch", "torchvision", "transformers", "numpy")}
    head = {
        "kind": "machine",
        "versions": versions,
        "cpus": os.cpu_count(),
        "date": str(datetime.datetime.now(datetime.UTC)),
    }
    if sensors is not None:
        cpu = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line), "")
        head |= sensors.machine() | {"cpu": cpu.partition(":")[2].strip()}
    ranks = Ranks(cpu=options.cpu)
    with options.output.open("w", encoding="utf-8") as file:
        print(json.dumps(head), file=file, flush=True)
        names = options.only.split(",") if options.only else SETS[options.set]
        for case in plan(names, more=options.set == "first"):
            left_s = options.seconds - (time.monotonic() - begun_s)
            if left_s < 10:
                break
            case_s = time.monotonic()
            limit_s = 600.0 if options.cpu else min(left_s, 2 * _CASE_S if case[0] == "shared" else _CASE_S)
            line: dict[str, Any] = {"kind": case[0], "gpus": 1 if case[-1] == "one" else 2}
            if case[0] == "step":
                _, _, precision, optimizer, begins = NETWORKS[case[1]]
                line |= {"network": case[1], "strategy": case[2], "precision": precision, "optimizer": optimizer}
                line |= {"stages": [begins], "microbatches": MICROBATCHES} if case[2] == "pipeline" else {}
            line |= line_of(case, ranks.run(case, limit_s), sensors)
            line |= {"at_s": case_s - begun_s, "case_s": time.monotonic() - case_s}
            print(json.dumps(line), file=file, flush=True)
            shown = line.get("error") or f"{1e3 * line.get('time_s', 0):.2f} ms"
            print(*case, shown, f"{line['case_s']:.1f} s", flush=True)
    ranks.end()


if __name__ == "__main__":
    main()
