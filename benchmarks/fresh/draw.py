"""Draw the fresh set: passes of networks that the shipped data never saw. A seed decides all of it.

    python benchmarks/fresh/draw.py [--set sixth] [--cache DIR] [--part K/N] [--collect | --trace]

The sets after the first are other draws by the same rule, a half and four times a quarter as large, without the
networks of those before and of `other_networks.py`: for a day on which nobody has seen yet what is asked. The seventh
draws from other kinds, those that predictors missed (`rare_kinds.py`), the eighth from kinds that are run under
autocast and with channels last, the ninth to the fourteenth from the kinds of the first again.

Every place of a kind is drawn by itself, traced, and drawn again where it cannot be traced, its roofline lies outside
0.2 to 90 ms (real passes take up to twice as long), it needs more than 40 GiB, or the shipped data or the set has it.
Places go to `--cache`; `--collect` makes of them `passes.json`, the configurations that it names under `configs/`, and
the traces under `catalogue/`, for scoring; of later sets in a folder of their own. `--trace` traces the passes of
`passes.json` again: the operations of a network of transformers depend on its version, which should be the one measured
(`versions` of the measured rows).
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import math
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from clockwatt.config import NetworkConfig, Pass, TrainingConfig
from clockwatt.errors import ClockwattError
from clockwatt.gpu.specs import GpuSpec, find_spec
from clockwatt.io import files
from clockwatt.io.resources import resource
from clockwatt.operations.catalogue import Traced, trace_rows
from clockwatt.schema import records
from clockwatt.schema.execution import TF32, ExecutionSettings, of_tf32

sys.path.insert(
    0, str(Path(__file__).parents[2])
)  # the networks of the set are imported by their place in the checkout

from benchmarks.fresh.kinds import KINDS, LAID_OUT_KINDS, Drawn
from benchmarks.fresh.rare_kinds import RARE_KINDS

HERE = Path(__file__).parent


@dataclass(frozen=True)
class FreshSet:
    """A draw: its seed, where it lies, how much of every kind it has, and the one day on which it is measured.

    With `executions`, every network is drawn twice: in one of these settings and, to compare it with, in eager TF32.
    """

    seed: int
    folder: Path
    share: float
    day: int | None = None
    kinds: Mapping[str, tuple[int, Callable[[random.Random, frozenset[str]], Drawn]]] = field(
        default_factory=lambda: KINDS
    )
    executions: tuple[str, ...] = ()

    @property
    def passes(self) -> Path:
        """The passes, in the order of their kinds."""
        return self.folder / "passes.json"

    @property
    def configs(self) -> Path:
        """Configurations of models of transformers."""
        return self.folder / "configs"

    @property
    def catalogue(self) -> Path:
        """The traces."""
        return self.folder / "catalogue"

    def count(self, kind: str) -> int:
        """How many passes of a kind are drawn."""
        return max(2, round(self.share * self.kinds[kind][0]))


SETS = {
    "first": FreshSet(14, HERE, 1.0),
    "second": FreshSet(41, HERE / "second", 0.5, day=4),
    "third": FreshSet(67, HERE / "third", 0.25, day=5),
    "fourth": FreshSet(83, HERE / "fourth", 0.25, day=6),
    "fifth": FreshSet(101, HERE / "fifth", 0.25, day=7),
    "sixth": FreshSet(127, HERE / "sixth", 0.25, day=8),
    "seventh": FreshSet(149, HERE / "seventh", 1.0, day=9, kinds=RARE_KINDS),
    "eighth": FreshSet(163, HERE / "eighth", 1.0, day=10, kinds=LAID_OUT_KINDS, executions=(
        "bf16-mixed", "bf16-mixed", "fp16-mixed", "tf32+channels_last", "bf16-mixed+channels_last",
    )),
    "ninth": FreshSet(181, HERE / "ninth", 0.5, day=12),
    "tenth": FreshSet(199, HERE / "tenth", 0.5, day=13),
    "eleventh": FreshSet(211, HERE / "eleventh", 0.25, day=14),
    "twelfth": FreshSet(223, HERE / "twelfth", 0.25, day=15),
    "thirteenth": FreshSet(229, HERE / "thirteenth", 0.25, day=17),
    "fourteenth": FreshSet(241, HERE / "fourteenth", 0.25, day=18),
    "fifteenth": FreshSet(251, HERE / "fifteenth", 0.25, day=19),
}  # fmt: skip
"""In the order in which they were drawn; the parts of the first are measured on days 1 and 2."""
GPU = "NVIDIA H200"
ATTEMPTS = 12
_PER_KERNEL_S = 2.5e-6
_MATRIX = (
    "conv",
    "linear",
    "matmul",
    "bmm",
    "baddbmm",
    "addmm",
    "scaled_dot_product_attention",
    "einsum",
    "lstm",
    "gru",
)
_DAYS = ((1, 2),) * 6 + ((1,),) * 5 + ((2,),) * 5
"""Of sixteen passes of a kind, the days on which each is measured."""


def known_to(chosen: FreshSet) -> tuple[frozenset[str], frozenset[str]]:
    """Names of networks, and ids of networks, that a set may not have."""
    shipped = pd.read_parquet(resource("reference") / "h200" / "catalogue" / "networks.parquet")
    names, ids = set(shipped["network"]), set(shipped["network_id"])
    before = list(SETS.values())[: list(SETS.values()).index(chosen)]
    if before:
        from benchmarks.other_networks import TIMM, TORCHVISION  # which leaves the first set out, and reads this module

        drawn = [one["network"] for each in before for one in json.loads(each.passes.read_text())]
        names |= {f"timm:{name}" for name in TIMM} | set(TORCHVISION)
        ids |= {NetworkConfig.model_validate(network).network_id for network in drawn}
    return frozenset(names), frozenset(ids)


def described(drawn: Drawn, batch: int, numbers: Mapping[str, Any], configs: Path) -> NetworkConfig:
    """The network as a campaign would have it; `numbers` is its `dtype` or `precision`."""
    inputs = {keyword: {"shape": [batch, *sizes], **more} for keyword, (sizes, more) in drawn.inputs.items()}
    network: dict[str, Any] = {"name": drawn.name, **numbers, **drawn.more}
    if drawn.config is not None:
        text = json.dumps(drawn.config, indent=1, sort_keys=True) + "\n"
        path = configs / f"{drawn.config['model_type']}-{hashlib.sha256(text.encode()).hexdigest()[:8]}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        network["name"] = f"hf:{path.relative_to(HERE.parents[1])}"
    if "" not in inputs:
        return NetworkConfig.model_validate(network | {"inputs": inputs})
    only = inputs[""]
    network["input"] = only["shape"]
    if "below" in only:
        network |= {"input_dtype": "int64", "input_below": only["below"]}
    return NetworkConfig.model_validate(network)


def execution_of(entry: dict[str, Any]) -> ExecutionSettings:
    """Return the settings under which a drawn pass is measured."""
    if "execution" in entry:
        return ExecutionSettings(entry["execution"])
    dtype = entry["network"].get("dtype", "float32")
    return of_tf32(entry["tf32"]) if dtype == "float32" else ExecutionSettings(dtype)


def estimate(traced: Traced, spec: GpuSpec, *, tf32: bool) -> tuple[float, float]:
    """About how long a pass takes on the device at least (s), and the memory that it needs (bytes)."""
    counts = pd.Series([call.operation_id for call in traced.calls]).value_counts()
    seconds = kept = largest = 0.0
    training = traced.network.pass_ == records.TRAINING
    for row in traced.operations:
        count = int(counts[row.operation_id])
        matrix = any(part in row.operation_class for part in _MATRIX)
        peak = spec.peak_flops(row.dtype, tf32=tf32, matrix=matrix)
        moved = row.bytes_read + row.bytes_written
        if row.device_work:
            seconds += count * (max(row.flops / peak, moved / spec.bandwidth_bytes_s) + _PER_KERNEL_S)
            kept += count * row.bytes_written / 2
        largest = max(largest, moved)
    held = 3 * traced.network.parameter_bytes + kept if training else traced.network.parameter_bytes
    return seconds, held + largest


@dataclass(frozen=True)
class Sized:
    """A network with a batch within bounds, its trace, and what `estimate` says of it."""

    network: NetworkConfig
    traced: Traced
    seconds: float
    bytes: float


@dataclass(frozen=True)
class Bounds:
    """Bounds of the passes of a set, and how the batch is changed: how often, and by which factor if too short."""

    shortest_s: float
    longest_s: float
    most_bytes: int
    rescaled: int
    larger: int
    most_calls: float = math.inf

    def sized(
        self, network_of: Callable[[int], NetworkConfig], batch: int, pass_: Pass, *, spec: GpuSpec, tf32: bool,
        place: str,
    ) -> Sized | None:  # fmt: skip
        """Trace a network at a batch within the bounds; None if it cannot be traced or there is no such batch."""
        for _ in range(self.rescaled):
            network = network_of(batch)
            print(f"{place}: {network.network_id} {pass_}", flush=True)
            try:
                traced = trace_rows(network, pass_, TrainingConfig())
            except (ClockwattError, RuntimeError) as error:
                print(f"    {str(error)[:200]}", flush=True)
                return None
            seconds, needed = estimate(traced, spec, tf32=tf32)
            if len(traced.calls) > self.most_calls:
                return None
            if needed > self.most_bytes or seconds > self.longest_s:
                if batch == 1:
                    return None
                batch = max(1, batch // 4)
            elif seconds < self.shortest_s:
                batch *= self.larger
            else:
                return Sized(network, traced, seconds, needed)
        return None


BOUNDS = Bounds(0.2e-3, 90e-3, 40 * 2**30, rescaled=3, larger=8)


def draw_one(
    chosen: FreshSet, kind: str, index: int, known: tuple[frozenset[str], frozenset[str]]
) -> tuple[dict[str, Any], Traced] | None:
    """One pass of a kind, with its trace; None if nothing could be drawn."""
    names, ids = known
    spec = find_spec(GPU)
    for attempt in range(ATTEMPTS):
        rng = random.Random(f"{chosen.seed}/{kind}/{index // 2 if chosen.executions else index}/{attempt}")
        drawn = chosen.kinds[kind][1](rng, names)
        if kind != "shipped, other shape" and drawn.name in names:
            continue
        pass_, dtype, tf32 = rng.choice(drawn.passes), rng.choice(drawn.dtypes), rng.random() < 0.6
        if dtype == "float16" and pass_ == records.TRAINING:
            dtype = "bfloat16"
        batch = rng.choice(drawn.batches)
        execution = None
        if chosen.executions:
            dtype, tf32, execution = "float32", True, TF32 if index % 2 else rng.choice(chosen.executions)
        numbers = {"dtype": dtype} if execution is None else {"precision": [execution]}
        network_of = functools.partial(described, drawn, numbers=numbers, configs=chosen.configs)
        sized = BOUNDS.sized(network_of, batch, pass_, spec=spec, tf32=tf32, place=f"{kind} {index}.{attempt}")
        if sized is not None and sized.network.network_id not in ids:
            entry = {"kind": kind, "index": index, "pass": pass_, "tf32": tf32, "estimate_s": round(sized.seconds, 6),
                     "estimate_bytes": int(sized.bytes),
                     "network": sized.network.model_dump(mode="json", exclude_defaults=True)}  # fmt: skip
            if execution is not None:
                entry["execution"] = execution
            return entry, sized.traced
    return None


def collect(chosen: FreshSet, cache: Path) -> None:
    """Write `passes.json` from the places that were drawn, without those that came twice."""
    places: dict[str, list[dict[str, Any]]] = {}
    seen: set[tuple[str, str, bool]] = set()
    for path in sorted(cache.glob("*.json")):
        entry = json.loads(path.read_text())
        if entry:
            places.setdefault(entry["kind"], []).append(entry)
    passes, first = [], 0
    for kind in chosen.kinds:
        for entry in sorted(places.get(kind, []), key=lambda one: one["index"]):
            key = (NetworkConfig.model_validate(entry["network"]).network_id, entry["pass"], execution_of(entry))
            if key not in seen:
                seen.add(key)
                days = _DAYS[((first + entry["index"]) * 7) % len(_DAYS)]
                passes.append(entry | {"days": list(days) if chosen.day is None else [chosen.day]})
        first += chosen.count(kind)
    chosen.passes.write_text("[\n" + ",\n".join(json.dumps(one) for one in passes) + "\n]\n")
    used = {one["network"]["name"].rpartition("/")[2] for one in passes}
    for path in chosen.configs.glob("*.json"):
        if path.name not in used:
            path.unlink()
    pack_traces(cache, passes, chosen.catalogue)
    on = Counter(day for one in passes for day in one["days"])
    print(f"{len(passes)} passes; " + ", ".join(f"day {day}: {on[day]}" for day in sorted(on)))


def trace_again(chosen: FreshSet, cache: Path) -> None:
    """Trace the passes of a set that was drawn, and write its catalogue anew."""
    passes = json.loads(chosen.passes.read_text())
    for entry in passes:
        network = NetworkConfig.model_validate(entry["network"])
        save(trace_rows(network, entry["pass"], TrainingConfig()), place_of(cache, entry["kind"], entry["index"]))
    pack_traces(cache, passes, chosen.catalogue)


def place_of(cache: Path, kind: str, index: int) -> Path:
    """File of a place that was drawn."""
    return cache / f"{kind.replace(' ', '-').replace(',', '')}-{index:02d}.json"


def pack_traces(cache: Path, passes: list[dict[str, Any]], catalogue: Path) -> None:
    """Write the traces of the set as one catalogue, without what composing them does not need."""
    for name, schema in (
        ("operations", records.OPERATION_SCHEMA), ("calls", records.CALL_SCHEMA), ("networks", records.NETWORK_SCHEMA),
    ):  # fmt: skip
        places = [place_of(cache, one["kind"], one["index"]).with_suffix(f".{name}.parquet") for one in passes]
        rows = pa.concat_tables([files.read_table(path, schema) for path in places]).to_pylist()
        if name == "calls":
            rows = [row | {"module_path": "", "tensors_in": [], "tensors_out": []} for row in rows]
        keys = {"operations": ("operation_id", "pass"), "networks": ("network_id", "pass"),
                "calls": ("network_id", "pass", "position")}[name]  # fmt: skip
        unique = {tuple(row[key] for key in keys): row for row in rows}
        path = catalogue / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(
            pa.Table.from_pylist(list(unique.values()), schema), path, compression="zstd", compression_level=22
        )


def main() -> int:
    """Draw what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", choices=SETS, default="first")
    parser.add_argument("--cache", type=Path, help="default: results/fresh-SET")
    parser.add_argument("--part", default="1/1", help="K/N: draw every N-th place, from the K-th")
    parser.add_argument("--only", help="draw this kind alone")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--collect", action="store_true", help="write passes.json from what was drawn")
    instead.add_argument("--trace", action="store_true", help="write the catalogue from passes.json")
    arguments = parser.parse_args()
    chosen, cache = SETS[arguments.set], arguments.cache or Path(f"results/fresh-{arguments.set}")
    cache.mkdir(parents=True, exist_ok=True)
    if arguments.collect:
        collect(chosen, cache)
        return 0
    if arguments.trace:
        trace_again(chosen, cache)
        return 0
    part, parts = map(int, arguments.part.split("/"))
    known = known_to(chosen)
    counts = {kind: chosen.count(kind) for kind in chosen.kinds}
    places = sorted((index / count, kind, index) for kind, count in counts.items() for index in range(count))
    for _, kind, index in places[part - 1 :: parts]:
        path = place_of(cache, kind, index)
        if path.exists() or arguments.only not in (None, kind):
            continue
        began = time.monotonic()
        drawn = draw_one(chosen, kind, index, known)
        if drawn is not None:
            save(drawn[1], path)
        path.write_text(json.dumps(drawn[0] if drawn else None))
        print(f"    {'drawn' if drawn else 'nothing'} in {time.monotonic() - began:.1f} s", flush=True)
    return 0


def save(traced: Traced, path: Path) -> None:
    """Keep a trace beside its place, so that scoring need not make it again."""
    for name, rows, schema in (
        ("operations", traced.operations, records.OPERATION_SCHEMA),
        ("calls", traced.calls, records.CALL_SCHEMA),
        ("networks", [traced.network], records.NETWORK_SCHEMA),
    ):
        files.write_table(records.table_of(rows, schema), path.with_suffix(f".{name}.parquet"))


if __name__ == "__main__":
    sys.exit(main())
