"""Compare what `clockwatt preflight` predicts of public training scripts with their real steps on a GPU.

    python benchmarks/first_steps.py predict SOURCES [--python PYTHON]
    python3 benchmarks/first_steps.py measure SOURCES --output FILE
    python benchmarks/first_steps.py report [FILE]

`predict` needs no GPU and writes first_steps-predicted.json; `measure` runs on the GPU; `report` writes the tables.
SOURCES and PYTHON are those of `public_scripts.py`. Each script that preflight answers runs unchanged, in a process of
its own. All start together; each waits once its optimizer has stepped a few times, and then one after another is
timed. From then on its loaders give one batch again and again, since loading is no part of a prediction.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import itertools
import json
import math
import os
import runpy
import select
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
GPU = "h100"
PREDICTED = HERE / "first_steps-predicted.json"
WARM_STEPS, FILLING_STEPS, LEAST_STEPS, WINDOW_S = 5, 3, 5, 3.0
"""Steps before a script waits; steps from then on until it is timed; of the window, the fewest steps and the length."""
CALLS_WITHOUT_STEP = 16
"""Batches in a row without a step, after which a loader is taken for that of an evaluation and goes on."""
PREPARE_S, TIMED_S = 150.0, 30.0
IMAGES = 10_000
FAR = 30.0
"""Error in % from which its cause is named."""
WANTED = {"time, ms": None, "energy, J": None, "peak allocated, GiB": 2, "peak reserved, GiB": 4}
"""Quantity to the largest median error in % that meets the target, that of all memory; times and energies have none."""
REMARKS = {
    "examples/dcgan/main.py --dataset fake --accel": (
        "The step that preflight follows also saves images, which every hundredth step does."
    ),
    "nanoGPT/train.py config/train_shakespeare_char.py": (
        "It makes its batches in the step, which preflight leaves out. Steps took 9 to 17 ms: the host was unsteady."
    ),
    "examples/mnist/main.py": "Host-bound. Most of the prediction is the fixed host time of a backward pass.",
    "examples/mnist_rnn/main.py --accel": (
        "Host-bound. Most of the prediction is the fixed host time of a backward pass, and of an LSTM. "
        "Memory of cuDNN's LSTM is probably missing."
    ),
    "examples/super_resolution/main.py --upscale_factor 3 --accel": "Not timed: the script ends after four steps.",
    "examples/mnist_forward_forward/main.py": f"Not timed: its first optimizer steps for less than {WINDOW_S:g} s.",
    "examples/word_language_model/main.py --accel --use-optimizer": (
        "Not timed: its loss diverges, and it ends in an OverflowError."
    ),
}
"""Script to why it was not timed, or to the cause of its error."""


class Watch:
    """Count the steps of a script's first optimizer, and time them."""

    def __init__(self, answers: Any) -> None:
        import torch
        from torch.optim.optimizer import register_optimizer_step_post_hook
        from torch.utils.data.dataloader import _BaseDataLoaderIter

        self._torch, self._answers, self._process = torch, answers, os.getpid()
        self._first: Any = None
        self._steps = self._calls = 0
        self._repeats = False
        self._ends: list[float] = []
        self._energy = _energy_counter() if torch.cuda.is_available() else None
        register_optimizer_step_post_hook(self.stepped)
        self._repeat(_BaseDataLoaderIter)

    def _repeat(self, iterators: Any) -> None:
        """Let loaders give one batch again and again once steps are timed."""
        load = iterators.__next__

        def given(iterator: Any) -> Any:
            self._calls += 1
            if not (self._repeats and hasattr(iterator, "_kept")) or self._calls > CALLS_WITHOUT_STEP:
                iterator._kept = load(iterator)
            kept = iterator._kept
            return copy.copy(kept) if isinstance(kept, dict | list) else kept

        iterators.__next__ = given

    def stepped(self, optimizer: Any, *_: object) -> None:
        """An optimizer has stepped."""
        if os.getpid() != self._process or self._first not in (None, optimizer):
            return
        self._first = optimizer
        self._steps += 1
        self._calls = 0
        if self._steps == WARM_STEPS:
            self._wait()
            self._repeats = True
            print("ready", file=self._answers, flush=True)
            sys.stdin.readline()
        elif self._steps == WARM_STEPS + FILLING_STEPS:
            self._wait()
            if self._torch.cuda.is_available():
                self._torch.cuda.reset_peak_memory_stats()
            self._energy_j = self._energy() if self._energy else None
            self._ends.append(time.perf_counter())
        elif self._ends:
            self._ends.append(time.perf_counter())
            if len(self._ends) > LEAST_STEPS and self._ends[-1] - self._ends[0] >= WINDOW_S:
                self._end()

    def _wait(self) -> None:
        if self._torch.cuda.is_available():
            self._torch.cuda.synchronize()

    def _end(self) -> None:
        """Write what was measured, and end the script."""
        self._wait()
        steps, cuda = len(self._ends) - 1, self._torch.cuda
        on_gpu = cuda.is_available()
        window_s = time.perf_counter() - self._ends[0]
        used_j = self._energy() - self._energy_j if self._energy and self._energy_j is not None else None
        row = {
            "time_s": statistics.median(after - before for before, after in itertools.pairwise(self._ends)),
            "mean_s": window_s / steps,
            "steps": steps,
            "energy_j": None if used_j is None else used_j / steps,
            "allocated_bytes": cuda.max_memory_allocated() if on_gpu else None,
            "reserved_bytes": cuda.max_memory_reserved() if on_gpu else None,
            "torch": self._torch.__version__,
            "gpu_name": cuda.get_device_name() if on_gpu else "cpu",
        }
        print(json.dumps(row), file=self._answers, flush=True)
        os._exit(0)


def _energy_counter() -> Any:
    """Return a function that gives the GPU's energy counter in J; None without NVML."""
    try:
        import pynvml
        import torch

        pynvml.nvmlInit()
        uuid = str(torch.cuda.get_device_properties(0).uuid)
        card = pynvml.nvmlDeviceGetHandleByUUID(uuid if uuid.startswith("GPU-") else f"GPU-{uuid}")
        pynvml.nvmlDeviceGetTotalEnergyConsumption(card)
    except Exception:  # noqa: BLE001  # of a machine without it: times are measured
        return None
    return lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(card) / 1e3


def child(file: str, arguments: list[str]) -> None:
    """Run a script until its steps are timed."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what scripts print is not an answer
    Watch(answers)
    sys.argv = [file, *arguments]
    sys.path[0] = str(Path.cwd())
    runpy.run_path(file, run_name="__main__")


def _answered() -> set[str]:
    """Return the names of the scripts that preflight answers, by its table."""
    rows = json.loads((HERE / "results" / "public_scripts.json").read_text(encoding="utf-8"))["rows"]
    return {f"{row[0]} {row[1]}".strip() for row in rows if row[2] == "predicted"}


def _line(process: subprocess.Popen[str], until: float) -> str:
    """Return the next line of a process; empty if it ended or the time is over."""
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], max(0.0, until - time.monotonic()))
    return process.stdout.readline().strip() if ready else ""


def _end(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return f"ended: {lines[-1].strip()[:200]}" if lines else "ended"


def _link_images(sources: Path) -> None:
    """Give each class of images many names of its files, so that no epoch ends while a script is timed."""
    for folder in (sources / "classes" / "train").iterdir():
        files = sorted(folder.glob("*.jpg"))
        for number in range(len(files), IMAGES):
            with contextlib.suppress(FileExistsError):
                os.link(files[number % len(files)], folder / f"link-{number}.jpg")


def measure(sources: Path, output: Path, only: Iterable[str]) -> None:
    """Time the steps of all scripts that preflight answers, one after another."""
    import public_scripts

    if not (sources / "hugging_face" / "entities.json").exists():
        public_scripts.make_data(sources)
    _link_images(sources)
    names, words = _answered(), list(only)
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "4"}
    processes: dict[str, subprocess.Popen[str]] = {}
    rows: dict[str, dict[str, Any]] = {}
    logs: dict[str, Path] = {}
    try:
        for script in public_scripts.SCRIPTS:
            name = public_scripts.called(script)
            if name not in names or (words and not any(word in name for word in words)):
                continue
            arguments = script.arguments.replace("{}", str(sources)).split()
            logs[name] = output.with_suffix(f".{len(processes)}.log")
            with logs[name].open("w", encoding="utf-8") as log:
                processes[name] = subprocess.Popen(
                    [sys.executable, __file__, "child", script.file, *arguments], cwd=sources / script.folder,
                    env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
                    start_new_session=True,
                )  # fmt: skip
        until = time.monotonic() + PREPARE_S
        ready = [name for name, process in processes.items() if _line(process, until) == "ready"]
        for name, process in processes.items():
            if name not in ready:
                late = time.monotonic() > until
                _end(process)
                rows[name] = {"error": f"not ready in {PREPARE_S:g} s" if late else _last_line(logs[name])}
        for name in ready:
            process = processes[name]
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write("go\n")
                process.stdin.flush()
            until = time.monotonic() + TIMED_S
            text = _line(process, until)
            late = time.monotonic() > until
            _end(process)
            fault = f"not timed in {TIMED_S:g} s" if late else _last_line(logs[name])
            rows[name] = json.loads(text) if text else {"error": fault}
            print(name[:80], rows[name], flush=True)
    finally:
        for process in processes.values():
            _end(process)
    output.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def predict(sources: Path, python: Path) -> None:
    """Write what preflight predicts of all scripts that it answers."""
    import public_scripts

    names = _answered()
    answers: dict[str, dict[str, Any]] = {}
    for script in public_scripts.SCRIPTS:
        if public_scripts.called(script) not in names:
            continue
        answer = public_scripts.answer_in(public_scripts.preflight(python, sources, script, GPU))
        if answer is not None:
            kept = ("time_s", "energy_j", "execution", "network", "memory", "intervals")
            answers[public_scripts.called(script)] = {name: answer.get(name) for name in kept}
    PREDICTED.write_text(json.dumps(answers, indent=1) + "\n", encoding="utf-8")


def _quantities(predicted: Mapping[str, Any], measured: Mapping[str, Any]) -> dict[str, tuple[float, ...]]:
    """Return predicted, measured, low and high of each quantity that was measured; no interval is nan."""
    memory, intervals = predicted["memory"] or {}, predicted["intervals"]
    allocated = (memory.get(f"allocated_{end}bytes", math.nan) for end in ("", "low_", "high_"))
    peak, *range_ = allocated
    found = {
        "time, ms": (1e3, predicted["time_s"], "time_s", *intervals["time_s"]),
        "energy, J": (1, predicted["energy_j"], "energy_j", *intervals["energy_j"]),
        "peak allocated, GiB": (2**-30, peak, "allocated_bytes", *range_),
        "peak reserved, GiB": (
            2**-30, memory.get("reserved_bytes", math.nan), "reserved_bytes", math.nan, math.nan,
        ),
    }  # fmt: skip
    return {
        quantity: (value * unit, measured[name] * unit, low * unit, high * unit)
        for quantity, (unit, value, name, low, high) in found.items()
        if measured.get(name)
    }


def report(file: Path) -> None:
    """Write the tables of predicted and measured steps."""
    import numpy as np
    import pandas as pd
    import result_file

    measured: dict[str, dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))
    rows: list[list[Any]] = []
    pairs: list[tuple[Any, ...]] = []
    for name, answer in json.loads(PREDICTED.read_text(encoding="utf-8")).items():
        found = _quantities(answer, measured[name])
        pairs += [(name, quantity, *numbers) for quantity, numbers in found.items()]
        remark = REMARKS.get(name, measured[name].get("error", ""))
        cells = [
            cell
            for value, real, *_ in (found.get(quantity, (np.nan,) * 4) for quantity in WANTED)
            for cell in (f"{value:.3g}", f"{real:.3g}", f"{100 * (value / real - 1):+.0f}")
        ]
        rows.append([name, answer["execution"], *(cell.replace("+nan", "–").replace("nan", "–") for cell in cells),
                     remark])  # fmt: skip
    table = pd.DataFrame(pairs, columns=["script", "quantity", "predicted", "measured", "low", "high"])
    table["error"] = 100 * (table["predicted"] / table["measured"] - 1)
    errors = {quantity: table[table["quantity"] == quantity].set_index("script") for quantity in WANTED}
    there = [row for row in measured.values() if "gpu_name" in row]
    hardware = f"{there[0]['gpu_name']}, PyTorch {there[0]['torch']}; predicted on 2 cores, no GPU"
    result_file.write(
        "preflight", "Errors of first real steps: H100, 1 card",
        ["quantity", "scripts", "median error, %", "median of error with sign, %", "worst, %", "worst script",
         f"off by more than {FAR:g} %", "within the 90 % interval"],
        [
            [
                quantity, len(some), f"{some['error'].abs().median():.1f}", f"{some['error'].median():+.1f}",
                f"{some['error'].loc[some['error'].abs().idxmax()]:+.0f}", some["error"].abs().idxmax()[:60],
                int((some["error"].abs() > FAR).sum()),
                "–" if some["low"].isna().all()
                else f"{int(some['measured'].between(some['low'], some['high']).sum())} of {len(some)}",
            ]
            for quantity, some in errors.items()
        ],
        targets=[
            result_file.target(
                f"H100, first real steps: {quantity.split(',')[0]}, median of {len(errors[quantity])}",
                errors[quantity]["error"].abs().median(), at_most=most, unit="%",
            )
            for quantity, most in WANTED.items() if most
        ],
        notes=[
            "One card and one host, neither calibrated; the card's clock was not recorded.",
            "Times of host-bound steps depend on the host: their intervals cover hosts that differ by a factor of two.",
            "The table of single scripts names causes of large errors where they were found.",
        ],
        file=result_file.RESULTS / "first_steps-errors.json", hardware=hardware,
    )  # fmt: skip
    result_file.write(
        "preflight", "First real steps of these scripts: H100, 1 card",
        ["script", "settings",
         *(cell for quantity in WANTED for cell in (f"{quantity}: predicted", "measured", "error, %")), "remark"],
        rows, hardware=hardware,
        notes=[
            f"No script was edited. After {WARM_STEPS} steps its loaders repeat one batch.",
            "Loading is neither timed nor predicted.",
            f"Time is the median step of {WINDOW_S:g} s. Peak memory is PyTorch's, of these steps.",
            "Energy is that of all these steps, also of those that save or validate, by the card's counter.",
        ],
    )  # fmt: skip


def main() -> None:
    """Run one part."""
    if sys.argv[1:2] == ["child"]:
        child(sys.argv[2], sys.argv[3:])
        return
    parser = argparse.ArgumentParser()
    parts = parser.add_subparsers(dest="part", required=True)
    predicting, measuring, reporting = (parts.add_parser(name) for name in ("predict", "measure", "report"))
    for one in (predicting, measuring):
        one.add_argument("sources", type=Path)
    predicting.add_argument("--python", type=Path, default=Path(sys.executable))
    measuring.add_argument("--output", type=Path, required=True)
    measuring.add_argument("--only", nargs="*", default=[], help="words of the scripts to run")
    reporting.add_argument("file", type=Path, nargs="?", default=HERE / "first_steps-h100.json")
    given = parser.parse_args()
    if given.part == "predict":
        predict(given.sources.resolve(), given.python)
    elif given.part == "measure":
        measure(given.sources.resolve(), given.output.resolve(), given.only)
    else:
        report(given.file)


if __name__ == "__main__":
    main()
