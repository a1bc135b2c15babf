"""Fit what compiled passes and CUDA graphs err by beyond their operations, and check the intervals that follow.

    python benchmarks/compiled/intervals.py gap
    python benchmarks/compiled/intervals.py host
    python benchmarks/compiled/intervals.py fit
    python benchmarks/compiled/intervals.py predict [--part K/N] [--cache DIR]
    python benchmarks/compiled/intervals.py score

`gap` prints the `COMPILED_TRAINING_GAP_S` at which `predicted-again-h100.json` errs least, in device time; `host` the
`COMPILED_TRAINING_CALLS` at which it errs least in the time of passes that the host limits, eager and compiled. How
fast the host was, relative to the reference, is taken from the eager pass.
`fit` writes `resources/modes/errors.json` from `predicted-again-h100.json`, made without that file. `predict` predicts
the passes of `earlier-h100.json`, measured on another day, to which the intervals are not fitted. `score`
writes the table.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar, nnls

sys.path.insert(0, str(Path(__file__).parents[2]))  # the folder of this script is what Python looks into
from benchmarks import result_file
from benchmarks.compiled.predict import HERE, MODES
from benchmarks.compiled.score import HARDWARE, compared, coverage

import clockwatt
from clockwatt.config import NetworkConfig
from clockwatt.predict.composition.pipeline import COMPILED_TRAINING_CALLS, COMPILED_TRAINING_GAP_S
from clockwatt.predict.evaluation.errors import Floats, grouped_interval, left_out_inside
from clockwatt.predict.evaluation.pass_errors import MODES_FILE
from clockwatt.schema.execution import COMPILE, CUDA_GRAPH, REDUCE_OVERHEAD

NAMES = {"compiled": (COMPILE, REDUCE_OVERHEAD), "graph": (CUDA_GRAPH,)}
"""Modes of clockwatt whose error each measured one gives; too few passes were measured with `reduce-overhead`."""
HOST_LIMITED = 1.15
"""A pass that takes so many times its device time waits for the host."""
QUANTITIES = {"device_s": "device time", "energy_j": "energy", "time_s": "time"}
EARLIER = HERE / "predicted-earlier-h100.json"


def scores(some: pd.DataFrame) -> Floats:
    """Return the half-width that, added to each pass's interval, would just contain it."""
    residuals = np.log(some["measured"] / some["predicted"]).to_numpy(float)
    low, high = (np.log(some[end] / some["predicted"]).to_numpy(float) for end in ("low", "high"))
    return np.sqrt(np.maximum(0.0, residuals**2 - np.where(residuals < 0, low, high) ** 2))


def gap_s(found: pd.DataFrame) -> float:
    """Return the gap of a call at which device times of compiled training passes err least; s."""
    answers = json.loads((HERE / "predicted-again-h100.json").read_text(encoding="utf-8"))
    chosen = (found["mode"] == "compiled") & (found["pass"] == "training") & (found["quantity"] == "device_s")
    some = found[chosen]
    calls = np.array(
        [answers[len(MODES) * number + list(MODES).index("compiled")]["calls"] for number in some["number"]]
    )
    without = some["predicted"] - COMPILED_TRAINING_GAP_S * calls

    def error(gap: float) -> float:
        return float(np.abs(np.log((without + gap * calls) / some["measured"])).mean())

    return float(minimize_scalar(error, bounds=(0.0, 1e-5), method="bounded", options={"xatol": 1e-9}).x)


def host_calls(found: pd.DataFrame) -> list[float]:
    """Return the host time of a compiled training pass and of each batch normalisation, in times to issue one call."""
    predictors = clockwatt.load()
    model = predictors.model("h100")
    call_s = model.description.points["default"].training.host.call_s
    call_s *= model.hosts_seen.costs("training", is_network=True).overall
    answers = json.loads((HERE / "predicted-again-h100.json").read_text(encoding="utf-8"))
    entries = json.loads((HERE / "passes.json").read_text(encoding="utf-8"))
    times = found[(found["pass"] == "training") & (found["quantity"] == "time_s")].set_index(["mode", "number"])
    counts, needed = [], []
    for number in times.loc["compiled"].index:
        eager, compiled = (answers[len(MODES) * number + list(MODES).index(mode)] for mode in ("eager", "compiled"))
        eager_s, compiled_s = (times["measured"].loc[mode, number] for mode in ("eager", "compiled"))
        if eager_s < HOST_LIMITED * eager["device_s"] or compiled_s < HOST_LIMITED * compiled["device_s"]:
            continue
        network = NetworkConfig.model_validate(entries[number]["network"])
        batch_norms = predictors.tracer.trace(network, "training").network.batch_norms
        own_s = call_s * (COMPILED_TRAINING_CALLS[0] + COMPILED_TRAINING_CALLS[1] * batch_norms)
        reference_s = compiled_s * eager["time_s"] / eager_s
        counts.append([call_s / reference_s, call_s * batch_norms / reference_s])
        needed.append(1 - (compiled["host_s"] - own_s) / reference_s)
    return [float(calls) for calls in nnls(np.array(counts), np.array(needed))[0]]


def parts(found: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Yield mode, quantity and passes of each interval that is fitted."""
    for mode in NAMES:
        for quantity in QUANTITIES:
            yield mode, quantity, found[(found["mode"] == mode) & (found["quantity"] == quantity)]


def fit(found: pd.DataFrame) -> None:
    """Write the errors of each mode: the conformal quantile over networks."""
    errors: dict[str, dict[str, float]] = {}
    for mode, quantity, some in parts(found):
        error = float(np.log(grouped_interval(scores(some), some["number"].to_numpy(object)).upper))
        for name in NAMES[mode]:
            errors.setdefault(name, {})[quantity] = round(error, 4)
    for of_mode in errors.values():
        of_mode["power_w"] = of_mode["energy_j"]
    path = HERE.parents[1] / "resources" / MODES_FILE
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(errors, indent=1) + "\n", encoding="utf-8")


def left_out(some: pd.DataFrame) -> tuple[float, float]:
    """Return coverage where the other networks fit the interval, and the median half-width."""
    values, numbers = scores(some), some["number"].to_numpy(object)

    def of_others(rows: NDArray[np.bool_]) -> dict[str, Any]:
        return {"": grouped_interval(values[rows], numbers[rows])}

    error = np.log(grouped_interval(values, numbers).upper)
    half = np.hypot(np.log(some["width"]) / 2, error)
    return float(np.nanmean(left_out_inside(values, numbers, of_others))), float(np.expm1(half).median())


def earlier() -> list[dict[str, Any]]:
    """Return the passes that were measured on another day."""
    rows: list[dict[str, Any]] = json.loads((HERE / "earlier-h100.json").read_text(encoding="utf-8"))
    return rows


def predict(part: int, every: int, cache: Path) -> None:
    """Predict a part of the earlier passes; the last part to end writes the file."""
    cache.mkdir(parents=True, exist_ok=True)
    predictors = clockwatt.load()
    paths = [cache / f"earlier-{number:02d}.json" for number in range(len(earlier()))]
    for row, path in list(zip(earlier(), paths, strict=True))[part - 1 :: every]:
        if path.exists():
            continue
        found = {}
        with tempfile.TemporaryDirectory() as folder:
            name, given = row["network"], tuple(row["shape"])
            if row["config"]:
                (config := Path(folder) / "config.json").write_text(json.dumps(row["config"]), encoding="utf-8")
                name = f"hf:{config}"
                tokens = {"shape": row["shape"], "dtype": "int64", "below": row["config"]["vocab_size"]}
                given = {"input_ids": tokens}
            for mode in NAMES:
                try:
                    answer = predictors.predict(
                        name, given, gpu="h100", pass_=row["pass"], precision=row["precision"] + MODES[mode]
                    )
                except clockwatt.ClockwattError as error:
                    found[mode] = {"error": str(error)}
                else:
                    found[mode] = {"device_s": answer.expected.device_s, "interval": answer.intervals["device_s"]}
        path.write_text(json.dumps(found))
        print(path.name, found, flush=True)
    if all(path.exists() for path in paths):
        rows = [path.read_text() for path in paths]
        EARLIER.write_text("[\n" + ",\n".join(rows) + "\n]\n", encoding="utf-8")


def compared_earlier() -> pd.DataFrame:
    """Return a row for each earlier pass and mode that was measured and predicted."""
    predicted = json.loads(EARLIER.read_text(encoding="utf-8"))
    rows = [
        {"mode": mode, "measured": row[f"{mode}_device_s"], "low": answer["interval"][0], "high": answer["interval"][1]}
        for row, answers in zip(earlier(), predicted, strict=True)
        for mode, answer in answers.items()
        if row.get(f"{mode}_device_s") and "interval" in answer
    ]
    found = pd.DataFrame(rows)
    return found.assign(held=found["measured"].between(found["low"], found["high"]), width=found["high"] / found["low"])


def score(found: pd.DataFrame) -> None:
    """Write coverage and width, before and after."""
    rows, targets = [], []
    other_day = compared_earlier()
    for mode, quantity, some in parts(found):
        share, half = left_out(some)
        there = other_day[other_day["mode"] == mode] if quantity == "device_s" else other_day[:0]
        rows.append([
            mode, QUANTITIES[quantity], len(some), coverage(some), f"{100 * share:.0f} % / ±{100 * half:.0f} %",
            *((len(there), coverage(there)) if len(there) else ("–", "–")),
        ])  # fmt: skip
        if quantity != "time_s":
            name = f"first set, {mode}, networks left out: coverage of {QUANTITIES[quantity]}"
            targets.append(result_file.target(name, 100 * share, at_least=85, at_most=95, unit="%"))
    result_file.write(
        "compiled-passes",
        "Intervals with networks left out: first set, H100, 2 cards",
        [
            "mode",
            "quantity",
            "passes",
            "from operations alone",
            "networks left out",
            "passes of another day",
            "coverage there",
        ],
        rows,
        targets=targets,
        notes=[
            "Networks left out: the error of a mode is fitted to all other networks of the first set.",
            "On the other day, other networks were measured, device time only.",
            "Those networks were used to develop the fusion of operations, not for intervals.",
        ],
        file=result_file.RESULTS / "compiled-intervals.json",
        hardware=HARDWARE,
    )


def main() -> None:
    """Fit, predict or score."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["gap", "host", "fit", "predict", "score"])
    parser.add_argument("--cache", type=Path, default=Path("results/compiled"))
    parser.add_argument("--part", default="1/1", help="K/N: predict every N-th pass, from the K-th")
    arguments = parser.parse_args()
    if arguments.what == "predict":
        predict(*map(int, arguments.part.split("/")), arguments.cache)
        return
    found = compared(predictions="predicted-again-h100.json")
    if arguments.what == "gap":
        print(f"{gap_s(found):.2e} s")
        return
    if arguments.what == "host":
        print(host_calls(found))
        return
    (fit if arguments.what == "fit" else score)(found)


if __name__ == "__main__":
    main()
