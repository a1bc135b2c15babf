"""Compare predicted with measured peak memory, of networks that no workspace was fitted to.

python benchmarks/memory.py [--passes 200] [--write-errors]
python benchmarks/memory.py --runs benchmarks/fresh/memory-h100.parquet [--write-errors]
python benchmarks/memory.py --captured
python benchmarks/memory.py --compiled [--write-errors]

Measured peaks begin with the network's construction on the GPU, in float32 before it is cast. Passes whose construction
takes more than they do are left out: their measurement does not show the pass. Reserved memory depends on the segments
that the construction leaves, so predictions of it replay the construction too. `--runs` takes what `memory_on_gpu.py`
wrote on an H100, and the eager passes of `compiled/measure.py`; half of both give the intervals of reserved memory, and
the other half is scored. `--captured` scores CUDA graphs that `compiled/measure.py` captured, but those that were
looked at during development. `--compiled` scores passes that it compiled in three sets; predictions were developed on
the first. The intervals of a set come from the other two.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import os
import random
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import result_file
import torch
import torch._dynamo  # which fails where it is imported first while a network is constructed on meta

sys.path.insert(0, str(Path(__file__).parents[1]))  # networks of the zoo are imported by their place in the checkout

from clockwatt.config import NetworkConfig, TrainingConfig
from clockwatt.errors import ClockwattError
from clockwatt.gpu.specs import find_spec
from clockwatt.operations.known_values import KnownValues
from clockwatt.operations.networks import construct_on_meta, example_tensors
from clockwatt.operations.trace.memory import Storages, record_memory
from clockwatt.predict.memory import (
    CUBLAS_BYTES,
    CUBLASLT_BYTES,
    CachingAllocator,
    PassMemory,
    allocation_bytes,
    error_group,
    pass_memory,
    replay,
    reserved_group,
)
from clockwatt.schema.execution import COMPILE, CUDA_GRAPH, EAGER, FP32, TF32, ExecutionSettings, mode_of_variant
from clockwatt.schema.records import GRADIENTS, INPUTS, PARAMETERS, MemoryRow

HERE = Path(__file__).parent
ERRORS = HERE.parent / "resources/memory/errors.json"
"""Ends of the intervals that predictions use."""
LOOKED_AT = 7
"""The first passes of `compiled/measured-h100.jsonl`, whose memory was known during development."""
LIBRARIES = {'{"kind":"cublas"}': CUBLAS_BYTES["hopper"], '{"kind":"cublaslt"}': CUBLASLT_BYTES}
"""Workspaces that stay, by the call that makes them."""
RESIDENT = 2 * CUBLAS_BYTES["hopper"] + CUBLASLT_BYTES
"""Alive in every measurement that follows another: the workspaces of both threads."""


class Peaks(NamedTuple):
    """Most bytes that were allocated and reserved."""

    allocated: int
    reserved: int


def measured() -> dict[tuple[str, str, str], float]:
    """Return the median measured peak in bytes of each held-out pass, by network id, pass and GPU."""
    tables = []
    for path in sorted((HERE / "fresh").glob("measured-*.parquet")):
        table = pd.read_parquet(path, columns=["kind", "subject_id", "pass", "status", "memory_peak_bytes"])
        tables.append(
            table[(table["kind"] == "network") & (table["status"] == "ok")].assign(gpu=path.name.split("-")[1])
        )
    rows = pd.concat(tables)
    peaks: dict[Any, float] = rows.groupby(["subject_id", "pass", "gpu"])["memory_peak_bytes"].median().to_dict()
    return peaks


@functools.cache
def passes() -> dict[tuple[str, str], dict[str, Any]]:
    """Return the held-out passes by network id and pass."""
    found = {}
    for path in (HERE / "fresh/passes.json", *sorted((HERE / "fresh").glob("*/passes.json"))):
        for entry in json.loads(path.read_text(encoding="utf-8")):
            network = NetworkConfig.model_validate(entry["network"])
            found[network.network_id, entry["pass"]] = {**entry, "network": network}
    return found


def construction(network: NetworkConfig, pass_: str) -> list[MemoryRow]:
    """Record what constructing a network on a GPU, casting it and drawing its inputs allocates and frees."""
    storages = Storages()
    with torch.random.fork_rng(devices=[]), storages:
        module = construct_on_meta(network, KnownValues(), training=pass_ == "training")
        inputs = example_tensors(network, torch.device("meta"), 0)
    events = storages.events[:]
    del module, inputs  # which had to be alive until then
    return events


@functools.cache
def construction_bytes(network_id: str, pass_: str) -> int:
    """Return the peak of constructing a network, casting it and drawing its inputs, in a process that ran another."""
    built, allocator = construction(passes()[network_id, pass_]["network"], pass_), CachingAllocator()
    replay(allocator, built, [row.bytes or 0 for row in built], {})
    return allocator.peak_allocated + RESIDENT


@functools.cache
def recorded(network_id: str, pass_: str) -> list[MemoryRow]:
    """Return what a held-out pass allocates and frees."""
    return record_memory(passes()[network_id, pass_]["network"], pass_, TrainingConfig())


def predicted(key: tuple[str, str, str]) -> dict[str, Any] | None:
    """Return what is predicted of a pass on a GPU; None where its construction takes more."""
    network_id, pass_, gpu = key
    entry = passes()[network_id, pass_]
    row = {"network": network_id, "pass": pass_, "gpu": gpu, "kind": entry["kind"]}
    try:
        events = recorded(network_id, pass_)
        execution = TF32 if entry["tf32"] else FP32
        memory = pass_memory(events, pass_=pass_, execution=execution, spec=find_spec(gpu))
        built = construction_bytes(network_id, pass_)
    except ClockwattError as error:
        print(f"{network_id} {pass_}: {error}", file=sys.stderr)
        return row
    of_pass = memory.allocated_bytes - sum(LIBRARIES.get(event.call, 0) for event in events) + RESIDENT
    if built > of_pass:
        return None
    return row | {"predicted": of_pass, "tf32": entry["tf32"] or entry["network"].dtype != "float32"}


def score(chosen: list[tuple[str, str, str]], peaks: dict[Any, float]) -> pd.DataFrame:
    """Predict passes and compare them with what was measured."""
    rows = []
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for key, row in zip(chosen, pool.map(predicted, chosen, chunksize=16), strict=True):
            if row is not None:
                rows.append(row | {"measured": peaks[key]})
                if len(rows) % 100 == 0:
                    print(f"{len(rows)} of {len(chosen)}", file=sys.stderr, flush=True)
    return pd.DataFrame(rows)


def as_measured(network: NetworkConfig, pass_: str, events: list[MemoryRow], *, follows: bool = False) -> Peaks:
    """Return the peaks of a measurement, which constructs the network in float32 and casts it before its passes.

    Those of eager passes begin with the construction where other passes ran before in the process (`follows`), which
    leave the workspaces of libraries; else after it. Those of compiled passes begin once unused segments were given
    back. Before a CUDA graph the network was constructed for its compiled passes, and is kept.
    """
    execution = network.execution[0]
    mode = mode_of_variant(network.variant)
    built = construction(network, pass_)
    built_sizes = [row.bytes or 0 for row in built]
    first = next(place for place, row in enumerate(events) if row.kind not in (PARAMETERS, INPUTS))
    sizes = allocation_bytes(events, execution, find_spec("h100"))
    allocator, blocks = CachingAllocator(), {}
    before = Peaks(0, 0)
    if follows:
        for size in (CUBLAS_BYTES["hopper"], CUBLAS_BYTES["hopper"], CUBLASLT_BYTES):
            allocator.allocate(size)
        sizes = [0 if row.call in LIBRARIES else size for row, size in zip(events, sizes, strict=True)]
    if mode == CUDA_GRAPH:
        replay(allocator, built, built_sizes, {})
        allocator.empty_cache()
        before = Peaks(allocator.allocated, allocator.reserved)
    replay(allocator, built, built_sizes, {})
    if not follows:
        allocator.peak_allocated, allocator.peak_reserved = allocator.allocated, allocator.reserved
    replay(allocator, events[first:], sizes[first:], blocks)
    if mode == COMPILE:
        for number in [one for one in blocks if events[one].kind == GRADIENTS]:
            allocator.release(blocks.pop(number))
        allocator.empty_cache()
        allocator.peak_reserved = allocator.reserved
        replay(allocator, events[first:], sizes[first:], blocks)
    return Peaks(allocator.peak_allocated - before.allocated, allocator.peak_reserved - before.reserved)


def ratios_of_run(row: dict[str, Any]) -> dict[str, Any]:
    """Return the ratios of measured to predicted memory of a pass that `memory_on_gpu.py` ran; its construction too."""
    network = passes()[row["network_id"], row["pass"]]["network"]
    execution = ExecutionSettings(row["execution"])
    run = network.model_copy(update={"precision": [execution]})
    events = record_memory(run, row["pass"], TrainingConfig())
    peaks = as_measured(run, row["pass"], events, follows=True)
    without = pass_memory(events, pass_=row["pass"], execution=execution, spec=find_spec("h100")).allocated_bytes
    return {
        "network": network.network_id, "pass": row["pass"], "run": True,
        "shows": construction_bytes(network.network_id, row["pass"]) <= without + RESIDENT,
        "allocated": row["allocated_bytes"] / peaks.allocated,
        "reserved": row["reserved_bytes"] / peaks.reserved,
    }  # fmt: skip


def develops(network: str, pass_: str) -> bool:
    """Return whether a pass is of the half that predictions of reserved memory were developed on."""
    return int(hashlib.sha256(f"{network} {pass_}".encode()).hexdigest(), 16) % 2 == 0


def score_runs(path: Path, *, write_errors: bool) -> None:
    """Compare eager passes with what is predicted, write the JSON, and the intervals of reserved memory if wanted."""
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        runs = pd.DataFrame(pool.map(ratios_of_run, pd.read_parquet(path).to_dict("records")))
    alone, _ = compared_in_mode("eager", EAGER)
    for folder in ("compiled/second", "compiled/third"):
        alone = pd.concat([alone, compared_in_mode("eager", EAGER, folder=folder)[0]])
    every = pd.concat([runs[runs["shows"]], alone.assign(run=False)])
    every["developed"] = [develops(*of) for of in zip(every["network"], every["pass"], strict=True)]
    ends = {
        reserved_group(str(pass_), TF32): _ends(part["reserved"])
        for pass_, part in every[every["developed"]].groupby("pass")
    }
    if write_errors:
        _write_ends(ends)
    used = json.loads(ERRORS.read_text(encoding="utf-8"))
    limits = [used[reserved_group(str(pass_), TF32)] for pass_ in every["pass"]]
    every["held"] = [low <= ratio <= high for (low, high), ratio in zip(limits, every["reserved"], strict=True)]
    table, targets = [], []
    for name, of_run in (("runs of many passes in a process", True), ("one pass in a process", False)):
        for quantity, most in (("allocated", (2, 6)), ("reserved", (4, 10))):
            for half, developed in (("development", True), ("held out", False)):
                part = every[(every["run"] == of_run) & (every["developed"] == developed)]
                error = 100 * (1 / part[quantity] - 1)
                found = [error.abs().quantile(q) for q in (0.5, 0.9, 0.95)]
                inside = f"{100 * part['held'].mean():.0f}" if quantity == "reserved" else "–"
                table.append([name, quantity, half, len(part), *(f"{one:.1f}" for one in found),
                              f"{error.median():+.1f}", inside])  # fmt: skip
                if not developed:
                    targets += [
                        result_file.target(f"{name}: {quantity}, {of}", value, at_most=limit, unit="%")
                        for of, value, limit in zip(("median", "95th"), (found[0], found[2]), most, strict=True)
                    ]
    result_file.write(
        "memory", "Allocated and reserved memory of eager passes of held-out networks",
        ["passes", "quantity", "half", "n", "median %", "90th %", "95th %", "bias %",
         "coverage of 90 % intervals, %"], table,
        file=result_file.RESULTS / "memory-runs.json", hardware="NVIDIA H100, PyTorch 2.11", targets=targets,
        notes=[
            f"{(~runs['shows']).sum()} of {len(runs)} runs are left out: their construction takes more memory.",
            "Networks were constructed and inputs drawn in float32 on the GPU, then cast; predictions replay that.",
            "The installed transformers keeps two activations less in DINOv2 than the one that was measured.",
            "A hash of the network's name and pass chooses the half. Intervals come from the development half.",
        ],
    )  # fmt: skip


def predicted_in_mode(line: dict[str, Any], mode: str) -> PassMemory | str:
    """Return the memory predicted for a pass that `compiled/measure.py` ran in a mode, or why there is none."""
    execution = ExecutionSettings("+".join([line["precision"], *([mode] if mode != EAGER else [])]))
    network = NetworkConfig.model_validate(line["network"] | {"precision": [execution]})
    try:
        events = record_memory(network, line["pass"], TrainingConfig())
        memory = pass_memory(events, pass_=line["pass"], execution=execution, spec=find_spec("h100"))
        peaks = as_measured(network, line["pass"], events)
        return replace(memory, allocated_bytes=peaks.allocated, reserved_bytes=peaks.reserved)
    except ClockwattError as error:
        return str(error)


def compared_in_mode(
    measured_as: str, mode: str, first: int = 0, folder: str = "compiled"
) -> tuple[pd.DataFrame, list[str]]:
    """Return the ratio of measured to predicted memory of each pass, and notes on passes without a prediction."""
    lines = map(json.loads, (HERE / folder / "measured-h100.jsonl").read_text(encoding="utf-8").splitlines())
    chosen = [line for line in lines if line["number"] >= first and measured_as in line.get("memory", {})]
    found, refused = [], []
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for line, memory in zip(chosen, pool.map(predicted_in_mode, chosen, [mode] * len(chosen)), strict=True):
            if isinstance(memory, str):
                refused.append(f"{line['network']['name']} is left out: {memory}")
                continue
            measured = line["memory"][measured_as]
            held = memory.allocated_low_bytes <= measured["allocated_bytes"] <= memory.allocated_high_bytes
            named = line["network"]["name"] + str(line["network"].get("inputs"))[:60]
            found.append({"network": named, "pass": line["pass"], "held": held} | {
                name: measured[f"{name}_bytes"] / getattr(memory, f"{name}_bytes") for name in ("allocated", "reserved")
            })  # fmt: skip
            print(line["number"], line["network"]["name"], found[-1], file=sys.stderr, flush=True)
    return pd.DataFrame(found), refused


def write_in_mode(
    table: pd.DataFrame, name: str, title: str, file: str, notes: list[str], cards: str = "2 cards"
) -> None:
    """Write errors and coverage of passes in a mode, from the ratios of `compared_in_mode`."""
    rows, targets = [], []
    for quantity, most in (("allocated", (2, 6)), ("reserved", (4, 10))):
        for pass_, part in (("both", table), *table.groupby("pass")):
            error = 100 * (1 / part[quantity] - 1)
            ends = [error.abs().quantile(q) for q in (0.5, 0.9, 0.95)]
            coverage = f"{100 * part['held'].mean():.0f}" if quantity == "allocated" else "–"
            rows.append([
                quantity, pass_, len(part), *(f"{end:.1f}" for end in ends), f"{error.median():+.1f}", coverage,
            ])  # fmt: skip
            if pass_ == "both":
                targets += [
                    result_file.target(f"{name}: {quantity}, {of}", value, at_most=limit, unit="%")
                    for of, value, limit in zip(("median", "95th"), (ends[0], ends[2]), most, strict=True)
                ]
    result_file.write(
        "memory", f"Allocated and reserved memory of {title}",
        ["quantity", "pass", "n", "median %", "90th %", "95th %", "bias %", "coverage of 90 % intervals, %"], rows,
        file=result_file.RESULTS / file, hardware=f"NVIDIA H100, {cards}", targets=targets, notes=notes,
    )  # fmt: skip


def score_captured() -> None:
    """Compare captured passes with what is predicted, and write the JSON."""
    table, refused = compared_in_mode("graph", CUDA_GRAPH, LOOKED_AT)
    notes = [
        f"The first {LOOKED_AT} drawn passes were looked at during development, and are left out.",
        "Intervals are those of eager passes. Peaks include the passes before the capture, on another stream.",
        "Each process held the same network, compiled; predictions replay its construction.",
    ]
    write_in_mode(table, "CUDA graphs", "passes captured as CUDA graphs", "memory-captured.json", [*notes, *refused])


def _write_ends(ends: dict[str, list[float]]) -> None:
    """Write the ends of intervals that predictions use, by group of errors."""
    known = json.loads(ERRORS.read_text(encoding="utf-8"))
    ERRORS.write_text(json.dumps(known | ends, indent=1) + "\n", encoding="utf-8")


def _ends(ratios: pd.Series) -> list[float]:
    """Return the conformal ends of a 90 % interval."""
    ordered, beyond = sorted(ratios), max(1, int(0.05 * (len(ratios) + 1)))
    return [round(float(ordered[place]), 4) for place in (beyond - 1, -beyond)]


def score_compiled(*, write_errors: bool) -> None:
    """Compare compiled passes of all sets with what is predicted, and write the JSON."""
    folders = {"first": "compiled", "second": "compiled/second", "third": "compiled/third"}
    compared = {name: compared_in_mode("compiled", COMPILE, folder=folder) for name, folder in folders.items()}
    tables = {name: table for name, (table, _) in compared.items()}
    if write_errors:
        _write_ends(_ends_of_passes(pd.concat(tables)))
    for name, (table, refused) in compared.items():
        ends = _ends_of_passes(pd.concat([other for of, other in tables.items() if of != name]))
        limits = [ends[error_group(str(pass_), tf32=True, compiled=True)] for pass_ in table["pass"]]
        table["held"] = [low <= ratio <= high for (low, high), ratio in zip(limits, table["allocated"], strict=True)]
        title, suffix = ("compiled", "") if name == "first" else (f"compiled, {name} set", f"-{name}")
        notes = ["Coverage is that of intervals from the errors of the other sets; predictions use those of all sets."]
        notes += ["Predictions were developed on these passes."] if name == "first" else []
        cards = {} if name == "first" else {"cards": "1 card"}
        of = "compiled passes" if name == "first" else f"a {name} set of compiled passes"
        write_in_mode(table, title, of, f"memory-compiled{suffix}.json", [*notes, *refused], **cards)


def _ends_of_passes(table: pd.DataFrame) -> dict[str, list[float]]:
    """Return the ends of the intervals of compiled passes, by group of errors."""
    groups = table.groupby("pass")
    return {error_group(str(of), tf32=True, compiled=True): _ends(part["allocated"]) for of, part in groups} | {
        reserved_group(str(of), ExecutionSettings(f"tf32+{COMPILE}")): _ends(part["reserved"]) for of, part in groups
    }


def main() -> None:
    """Score and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--passes", type=int, default=240, help="passes to draw")
    parser.add_argument("--write-errors", action="store_true", help="write the intervals that predictions use")
    parser.add_argument("--runs", type=Path, help="file of `memory_on_gpu.py` to score instead")
    parser.add_argument("--captured", action="store_true", help="score CUDA graphs instead")
    parser.add_argument("--compiled", action="store_true", help="score compiled passes instead")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if arguments.compiled:
        score_compiled(write_errors=arguments.write_errors)
        return
    if arguments.captured:
        score_captured()
        return
    if arguments.runs:
        score_runs(arguments.runs, write_errors=arguments.write_errors)
        return
    peaks = measured()
    keys = sorted(key for key in peaks if key[:2] in passes())
    random.Random(0).shuffle(keys)
    drawn = min(arguments.passes, len(keys))
    table = score(sorted(keys[:drawn]), peaks)
    known = table.dropna(subset="predicted").astype({"tf32": bool})
    error = known["predicted"] / known["measured"] - 1
    rows = []
    for name, group in (
        ("all", known), *known.groupby("pass"), *((f"{gpu.upper()}", part) for gpu, part in known.groupby("gpu")),
        ("TF32, float16 and bfloat16", known[known["tf32"]]), ("float32 without TF32", known[~known["tf32"]]),
    ):  # fmt: skip
        of_group = error[group.index]
        rows.append([name, len(group), *(f"{100 * np.quantile(of_group.abs(), q):.1f}" for q in (0.5, 0.9, 0.95)),
                     f"{100 * of_group.median():+.1f}"])  # fmt: skip
        print(rows[-1])
    result_file.write(
        "memory", "Peak allocated memory of held-out networks",
        ["passes", "n", "median %", "90th %", "95th %", "bias %"],
        rows,
        targets=[
            result_file.target("peak allocated, median error", 100 * error.abs().median(), at_most=2, unit="%"),
            result_file.target("peak allocated, 95th", 100 * error.abs().quantile(0.95), at_most=6, unit="%"),
            result_file.target("passes", len(known), at_least=120),
        ],
        notes=[
            f"{drawn - len(table)} of {drawn} drawn passes are left out: their construction takes more memory.",
            f"{len(table) - len(known)} of the others could not be recorded.",
            "Workspaces were fitted to single operations; intervals of predictions to the errors of this table.",
        ],
    )  # fmt: skip
    if arguments.write_errors:
        groups = known.groupby(["pass", "tf32"])
        _write_ends({error_group(str(pass_), tf32=bool(tf32)): _ends(1 / (1 + error[group.index]))
                     for (pass_, tf32), group in groups})  # fmt: skip


if __name__ == "__main__":
    main()
