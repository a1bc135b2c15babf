"""Measure the drawn passes eager, compiled and as captured graphs, in turn, on all GPUs of this machine.

    PYTHONPATH=src python3 benchmarks/compiled/measure.py --gpus 0,1 --seconds 420 --output measured-h100.jsonl
    PYTHONPATH=src python3 benchmarks/compiled/measure.py --folder benchmarks/compiled/reduced \
        --modes eager,compiled,reduced --seconds 84 --compile-seconds 50 --output measured-h200.jsonl

Each pass has a process of its own. All compile at the same time; those that have not at `--compile-seconds` are ended.
Then one process a GPU measures at a time and all others wait, so that the host is quiet. Memory is that of a process
with one network: the peaks of two calls once it is compiled. A line is written as soon as a pass is measured.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import functools
import gc
import itertools
import json
import os
import select
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

HERE = Path(__file__).parent
MODES = {"eager": "", "compiled": "+compile", "reduced": "+reduce-overhead", "graph": "+cuda_graph"}
CALLS, ROUNDS, TURNS = 2, 7, 2
WARM_CALLS = {"compiled": CALLS, "reduced": 4}
"""Those of a graph of TorchInductor run once, capture, and replay."""
BLOCK_S, WARM_S, WINDOW_S, READ_EVERY_S = 0.04, 0.1, 0.5, 0.02
"""Of pass time, and of energy."""
QUEUED = 2
"""Passes that the host may be ahead while energy is read, so that it stops in time."""
LONGEST_S = 50.0
OF_LOAD = {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1", "HF_HUB_OFFLINE": "1"}

Call = Callable[[], Any]


class Measurer:
    """One pass in all modes."""

    def __init__(self, entry: Mapping[str, Any], modes: Sequence[str], lock: Path, *, on_gpu: bool) -> None:
        import torch

        self._entry, self._torch, self._on_gpu = entry, torch, on_gpu
        self._device = torch.device("cuda" if on_gpu else "cpu")
        self._lock = lock.open("a")
        self.memory: dict[str, Any] = {}
        self.faults: dict[str, str] = {}
        self._ready: dict[str, Call] = {}
        self._modes = [mode for mode in MODES if mode in modes and (on_gpu or mode != "graph")]
        torch._dynamo.config.cache_size_limit = 64
        self._tune_alone()

    def _tune_alone(self) -> None:
        """Let TorchInductor's choice among the settings of a kernel be timed by one process at a time."""
        from torch._inductor.runtime.triton_heuristics import CachingAutotuner

        benchmark = CachingAutotuner.benchmark_all_configs

        def alone(tuner: Any, *given: Any, **named: Any) -> Any:
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            try:
                return benchmark(tuner, *given, **named)
            finally:
                fcntl.flock(self._lock, fcntl.LOCK_UN)

        CachingAutotuner.benchmark_all_configs = alone

    def _within(self) -> contextlib.AbstractContextManager[object]:
        return self._torch.inference_mode(self._entry["pass"] == "inference")

    def _build(self, mode: str) -> Call:
        from clockwatt.config import NetworkConfig, TrainingConfig
        from clockwatt.operations import numerics
        from clockwatt.operations.networks import build_network
        from clockwatt.predict.tracing import with_batch

        content = self._entry["network"] | {"precision": [self._entry["precision"] + MODES[mode]]}
        network = NetworkConfig.model_validate(content)
        if not self._on_gpu:
            network = with_batch(network, 2)
        numerics.apply(network.execution[0])
        return build_network(network, self._device, pass_=self._entry["pass"], training=TrainingConfig()).call

    def _wait(self) -> None:
        if self._on_gpu:
            self._torch.cuda.synchronize()

    def _free(self) -> None:
        gc.collect()
        if self._on_gpu:
            self._torch.cuda.empty_cache()

    def _held(self) -> tuple[int, int]:
        cuda = self._torch.cuda
        return (cuda.memory_allocated(), cuda.memory_reserved()) if self._on_gpu else (0, 0)

    def _peaks(self, mode: str, call: Call, before: tuple[int, int]) -> None:
        cuda = self._torch.cuda
        if self._on_gpu:
            cuda.reset_peak_memory_stats()
        for _ in range(CALLS):
            call()
        self._wait()
        if self._on_gpu:
            peaks = (cuda.max_memory_allocated() - before[0], cuda.max_memory_reserved() - before[1])
            self.memory[mode] = dict(zip(("allocated_bytes", "reserved_bytes"), peaks, strict=True))

    def _tried(self, mode: str, what: Callable[[], None]) -> None:
        """Do something that may fail, again where other processes hold the memory."""
        for wait_s in (10.0, 20.0, 0.0):
            try:
                with self._within():
                    what()
            except self._torch.OutOfMemoryError as error:
                self.faults[mode] = f"out of memory: {str(error)[:100]}"
                self._free()
                time.sleep(wait_s)
            except Exception as error:  # noqa: BLE001  # of any network; the others go on
                self.faults[mode] = f"{type(error).__name__}: {str(error)[:400]}"
                return
            else:
                self.faults.pop(mode, None)
                return

    def prepare(self) -> float:
        """Compile; return how long it took in s."""
        self._tried("eager", lambda: self._peaks("eager", self._build("eager"), (0, 0)))
        self._free()
        start = time.monotonic()

        for mode in [one for one in WARM_CALLS if one in self._modes]:
            self._tried(mode, functools.partial(self._compile, mode))
            self._free()
        took = time.monotonic() - start
        if "graph" in self._modes:  # last: a capture that fails may leave the process unable to capture
            before = self._held()
            self._tried("graph", lambda: self._peaks("graph", self._build("graph"), before))
            self._free()
        return took

    def _compile(self, mode: str) -> None:
        before = self._held() if self._ready else (0, 0)
        call = self._build(mode)
        for _ in range(WARM_CALLS[mode]):
            call()
        self._wait()
        self._free()
        self._peaks(mode, call, before)
        self._ready[mode] = call

    def measure(self) -> dict[str, Any]:
        """Return times and energies by mode; the host should be quiet."""
        calls: dict[str, Call] = {}
        with self._within():
            for mode in [one for one in self._modes if one not in self.faults]:
                try:
                    calls[mode] = self._ready.get(mode) or self._build(mode)
                    for _ in range(3):
                        calls[mode]()
                    self._wait()
                except Exception as error:  # noqa: BLE001  # of any network; the other modes go on
                    calls.pop(mode, None)
                    self.faults[mode] = f"{type(error).__name__}: {str(error)[:400]}"
            gc.collect()
            gc.freeze()
            gc.disable()
            found = self._times(calls)
            try:
                for mode, energy in self._energies(calls).items():
                    found[mode] |= energy
            except Exception as error:  # noqa: BLE001  # times are kept
                self.faults["energy"] = f"{type(error).__name__}: {str(error)[:400]}"
            return found

    def _elapsed(self, call: Call, count: int) -> float:
        self._wait()
        start = time.perf_counter()
        for _ in range(count):
            call()
        self._wait()
        return (time.perf_counter() - start) / count

    def _times(self, calls: Mapping[str, Call]) -> dict[str, dict[str, Any]]:
        once = {mode: min(self._elapsed(call, 1) for _ in range(3)) for mode, call in calls.items()}
        found = {mode: {"time_s": [], "issue_s": [], "device_s": []} for mode in calls}
        for _ in range(ROUNDS):
            for mode, call in calls.items():
                count = max(1, min(200, round(BLOCK_S / once[mode])))
                found[mode]["time_s"].append(self._elapsed(call, count))
        if self._on_gpu:
            from clockwatt.measure.bench.blocking import BlockingKernel

            kernel = BlockingKernel()
            for _, (mode, call) in itertools.product(range(ROUNDS), calls.items()):
                issued, device = kernel.times(lambda: None, call, once[mode])
                found[mode]["issue_s"].append(issued)
                if device is not None:
                    found[mode]["device_s"].append(device)
        return {
            mode: {name: statistics.median(values) if values else None for name, values in one.items()}
            for mode, one in found.items()
        }

    def _energies(self, calls: Mapping[str, Call]) -> dict[str, dict[str, Any]]:
        if not self._on_gpu:
            return {}
        import pynvml

        pynvml.nvmlInit()
        uuid = str(self._torch.cuda.get_device_properties(0).uuid)
        card = pynvml.nvmlDeviceGetHandleByUUID(uuid if uuid.startswith("GPU-") else f"GPU-{uuid}")
        turns: dict[str, list[tuple[float, float]]] = {mode: [] for mode in calls}
        for _ in range(TURNS):
            for mode, call in calls.items():
                self._elapsed(call, max(1, round(WARM_S / self._elapsed(call, 1))))
                turns[mode].append(self._window(call, lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(card) / 1e3))
        return {
            mode: {
                "power_w": statistics.mean(power for power, _ in found),
                "energy_j": statistics.mean(power * took for power, took in found),
                "energy_pass_s": statistics.mean(took for _, took in found),
            }
            for mode, found in turns.items()
        }  # fmt: skip

    def _window(self, call: Call, counter_j: Callable[[], float]) -> tuple[float, float]:
        """Return mean power between two steps of the energy counter, and the time of a pass."""
        steps: list[tuple[float, float]] = []
        queued: list[Any] = []
        start, read, count = time.perf_counter(), 0.0, 0
        while (elapsed := time.perf_counter() - start) < WINDOW_S or (len(steps) < 4 and elapsed < 4 * WINDOW_S):
            call()
            count += 1
            queued.append(self._torch.cuda.Event())
            queued[-1].record()
            if len(queued) > QUEUED:
                queued.pop(0).synchronize()
            if time.perf_counter() - read >= READ_EVERY_S:
                energy, read = counter_j(), time.perf_counter()
                if not steps or energy != steps[-1][1]:
                    steps.append((read, energy))
        self._wait()
        took = (time.perf_counter() - start) / count
        (began, first), (ended, last) = steps[1], steps[-1]  # nobody knows when the first step was
        return (last - first) / (ended - began), took


def child(drawn: Path, number: int, modes: Sequence[str], lock: Path, *, on_gpu: bool) -> None:
    """Compile a pass, wait until told to go on, measure it, and print its line."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is not an answer
    entry = passes(drawn)[number]
    import torch

    torch.set_num_threads(1)
    measurer = Measurer(entry, modes, lock, on_gpu=on_gpu)
    compile_s = measurer.prepare()
    counters = torch._dynamo.utils.counters
    line = {
        **{name: entry[name] for name in ("network", "pass", "precision")}, "number": number, "compile_s": compile_s,
        "graph_breaks": sum(counters["graph_break"].values()), "graphs": counters["stats"].get("unique_graphs"),
        "torch": torch.__version__, "gpu_name": torch.cuda.get_device_name() if on_gpu else "cpu",
    }  # fmt: skip
    print("compiled", file=answers, flush=True)
    sys.stdin.readline()
    line |= {"modes": measurer.measure(), "memory": measurer.memory, "faults": measurer.faults}
    print(json.dumps(line), file=answers, flush=True)
    os._exit(0)


def passes(folder: Path) -> list[dict[str, Any]]:
    """Return the drawn passes of a set's folder."""
    drawn: list[dict[str, Any]] = json.loads((folder / "passes.json").read_text(encoding="utf-8"))
    return drawn


def line_of(process: subprocess.Popen[str], until: float) -> str:
    """Return the next line of a process; empty if it ended or the time is over."""
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], max(0.0, until - time.monotonic()))
    return process.stdout.readline() if ready else ""


class Output:
    """Lines of JSON, written by several threads."""

    def __init__(self, path: Path) -> None:
        self._stream, self._lock = path.open("a", encoding="utf-8"), threading.Lock()

    def add(self, line: Mapping[str, Any]) -> None:
        """Write one."""
        with self._lock:
            self._stream.write(json.dumps(line) + "\n")
            self._stream.flush()
        times = {mode: one["device_s"] for mode, one in line.get("modes", {}).items()}
        print(line["number"], line["network"]["name"], line.get("error", times), line.get("faults", ""), flush=True)


def measured(
    drawn: Path,
    waiting: list[tuple[int, subprocess.Popen[str]]],
    compiled: Mapping[int, bool],
    ends_at: float,
    output: Output,
) -> None:
    """Let the passes of one GPU measure one after another."""
    for number, process in waiting:
        entry = {name: passes(drawn)[number][name] for name in ("network", "pass", "precision")} | {"number": number}
        if not compiled[number]:
            output.add(entry | {"error": "not compiled in time, or failed"})
            continue
        if time.monotonic() + 5 > ends_at:
            output.add(entry | {"error": "no time was left"})
            continue
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write("go\n")
            process.stdin.flush()
        text = line_of(process, min(ends_at, time.monotonic() + LONGEST_S))
        process.kill()
        process.wait()
        output.add(json.loads(text) if text else entry | {"error": "failed, or took too long"})


@contextlib.contextmanager
def started(given: argparse.Namespace, folder: Path) -> Iterator[dict[str, list[tuple[int, subprocess.Popen[str]]]]]:
    """Start a process for each pass, by GPU; all have ended on leaving."""
    gpus = given.gpus.split(",")
    drawn = passes(given.folder)
    chosen = range(len(drawn)) if given.only is None else map(int, given.only.split(","))
    processes: dict[str, list[tuple[int, subprocess.Popen[str]]]] = {gpu: [] for gpu in gpus}
    logs: list[TextIO] = []
    try:
        for number, gpu in zip(chosen, itertools.cycle(gpus)):
            logs.append((given.output.with_suffix(".log")).open("a", encoding="utf-8"))
            nice = 0 if drawn[number]["pass"] == "training" else 5  # training compiles longer
            command = ["nice", f"-n{nice}", sys.executable, __file__, "--device", given.device,
                       "--folder", str(given.folder), "--modes", given.modes, "--child", str(number),
                       "--lock", str(folder / f"gpu-{gpu}")]  # fmt: skip
            environment = os.environ | OF_LOAD | {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": gpu}
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=logs[-1], text=True, env=environment
            )
            processes[gpu].append((number, process))
        yield processes
    finally:
        for _, process in itertools.chain(*processes.values()):
            process.kill()
            process.wait()
        for log in logs:
            log.close()


def main() -> None:
    """Compile and measure all passes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", default="0", help="their numbers")
    parser.add_argument("--seconds", type=float, default=420.0)
    parser.add_argument("--compile-seconds", type=float, default=190.0)
    parser.add_argument("--output", type=Path, default=Path("measured-h100.jsonl"))
    parser.add_argument("--folder", type=Path, default=HERE, help="with the set's passes.json")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: only tries whether it runs")
    parser.add_argument("--modes", default="eager,compiled,graph", help=f"of {', '.join(MODES)}")
    parser.add_argument("--only", help="numbers of passes")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--lock", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.output, given.folder = given.output.resolve(), given.folder.resolve()
    os.chdir(HERE.parents[1])  # configurations are named from the checkout's root
    sys.path.insert(0, str(HERE.parents[1]))  # networks of the zoo are imported by their place in the checkout
    if given.child is not None:
        child(given.folder, given.child, given.modes.split(","), given.lock, on_gpu=given.device == "cuda")
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, started(given, Path(folder)) as processes:
        compiled = {
            number: line_of(process, start + given.compile_seconds) == "compiled\n"
            for number, process in itertools.chain(*processes.values())
        }
        for number, process in itertools.chain(*processes.values()):
            if not compiled[number]:
                process.kill()
        print(f"{sum(compiled.values())} of {len(compiled)} compiled in {time.monotonic() - start:.0f} s", flush=True)
        output = Output(given.output)
        threads = [
            threading.Thread(target=measured, args=(given.folder, waiting, compiled, start + given.seconds, output))
            for waiting in processes.values()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    print(f"{given.output}: after {time.monotonic() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
