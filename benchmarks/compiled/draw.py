"""Draw the passes of `score.py`: a seed decides all of it.

    python benchmarks/compiled/draw.py [--set second] [--cache DIR] [--part K/N]

Every place of a kind is drawn by itself and traced eager. It is drawn again where it cannot be traced, its roofline
lies outside 0.7 to 15 ms, it needs more than 5 GiB or makes more than 500 calls (it would compile for minutes), or the
network is shipped, one of `earlier-h100.json`, or named in an earlier set. Networks of transformers are drawn without
masks.
"""

from __future__ import annotations

import argparse
import functools
import json
import random
import sys
from pathlib import Path
from typing import Any

import pandas as pd

from clockwatt.gpu.specs import find_spec
from clockwatt.io.resources import resource

sys.path.insert(0, str(Path(__file__).parents[2]))  # the folder of this script is what Python looks into
from benchmarks.fresh.draw import ATTEMPTS, Bounds, described
from benchmarks.fresh.kinds import KINDS

HERE = Path(__file__).parent
SEEDS = {"first": 211, "second": 239, "third": 271, "fourth": 307}
COUNTS = {"torchvision": 11, "timm": 13, "encoder": 8, "decoder": 8, "vision transformer": 4, "u-net": 2}
PRECISIONS = ("tf32", "bf16", "bf16-mixed")
BOUNDS = Bounds(0.7e-3, 15e-3, 5 * 2**30, rescaled=4, larger=6, most_calls=500)


def folder_of(chosen: str) -> Path:
    """Return the folder with the passes of a set."""
    return HERE if chosen == "first" else HERE / chosen


def excluded(chosen: str) -> frozenset[str]:
    """Return the names of networks that may not be drawn for a set."""
    shipped = pd.read_parquet(resource("reference") / "h200" / "catalogue" / "networks.parquet")["network"]
    seen = json.loads((HERE / "earlier-h100.json").read_text(encoding="utf-8"))
    before = list(SEEDS)[: list(SEEDS).index(chosen)]
    drawn = [
        one["network"]["name"] for name in before for one in json.loads((folder_of(name) / "passes.json").read_text())
    ]
    return frozenset({*shipped, *(row["network"] for row in seen), *drawn})


def draw_one(chosen: str, kind: str, index: int, names: frozenset[str]) -> dict[str, Any] | None:
    """Return one pass of a kind; None if nothing could be drawn."""
    spec = find_spec("NVIDIA H100")
    for attempt in range(ATTEMPTS):
        rng = random.Random(f"{SEEDS[chosen]}/{kind}/{index}/{attempt}")
        drawn = KINDS[kind][1](rng, names)
        pass_, precision, batch = rng.choice(drawn.passes), rng.choice(PRECISIONS), rng.choice(drawn.batches)
        if drawn.name in names or "attention_mask" in drawn.inputs:
            continue
        numbers = {"precision": [precision]}
        network_of = functools.partial(described, drawn, numbers=numbers, configs=folder_of(chosen) / "configs")
        sized = BOUNDS.sized(network_of, batch, pass_, spec=spec, tf32=True, place=f"{kind} {index}.{attempt}")
        if sized is not None:
            return {"kind": kind, "index": index, "pass": pass_, "precision": precision,
                    "network": sized.network.model_dump(mode="json", exclude_defaults=True)}  # fmt: skip
    return None


def main() -> None:
    """Draw a part of the places; the last part to end writes the set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", choices=SEEDS, default="first")
    parser.add_argument("--cache", type=Path, help="default: results/compiled-SET")
    parser.add_argument("--part", default="1/1", help="K/N: draw every N-th place, from the K-th")
    arguments = parser.parse_args()
    chosen, cache = arguments.set, arguments.cache or Path(f"results/compiled-{arguments.set}")
    cache.mkdir(parents=True, exist_ok=True)
    part, parts = map(int, arguments.part.split("/"))
    names = excluded(chosen)
    places = sorted((index / count, kind, index) for kind, count in COUNTS.items() for index in range(count))
    paths = [cache / f"{kind.replace(' ', '-')}-{index:02d}.json" for _, kind, index in places]
    for (_, kind, index), path in list(zip(places, paths, strict=True))[part - 1 :: parts]:
        if not path.exists():
            path.write_text(json.dumps(draw_one(chosen, kind, index, names)))
    if all(path.exists() for path in paths):
        drawn = [json.loads(path.read_text()) for path in paths]
        rows = [json.dumps(one) for one in drawn if one]
        (folder_of(chosen) / "passes.json").write_text("[\n" + ",\n".join(rows) + "\n]\n", encoding="utf-8")
        used = {one["network"]["name"].rpartition("/")[2] for one in drawn if one}
        for path in (folder_of(chosen) / "configs").glob("*.json"):
            if path.name not in used:
                path.unlink()


if __name__ == "__main__":
    main()
