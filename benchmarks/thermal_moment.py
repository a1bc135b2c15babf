"""A GPU's temperature from what else is read at that moment: the regressions of the temperature study, and its goal.

    python benchmarks/thermal_moment.py [RECORD …] [--keep FILE]

Estimates temperature from power alone and from all sensors by linear regression and XGBoost, and forecasts the next
second with an LSTM. Root mean square errors are of shuffled rows within each workload and of all, of held-out runs, and
of held-out workloads. Data: recorded workloads (RECORD, or `workloads-h100.parquet` beside this script, which `--keep`
writes), operations measured on 14 H100 and 23 H200, and five patterns of load on a virtual A30.

A second table shows what the recorded workloads are. A third one answers the study's goal of 0.1 °C: errors against
the true temperature of the virtual A30, read by sensors of several resolutions.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import result_file
import workload_traces
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from virtual_records import PATTERNS, ExactGpu, write_virtual_record
from xgboost import XGBRegressor

from clockwatt.io.resources import resource
from clockwatt.studies.thermal.errors import ThermalError
from clockwatt.studies.thermal.evaluation import FOLDS, judge
from clockwatt.studies.thermal.inputs import Inputs, Task
from clockwatt.studies.thermal.models.base import truth
from clockwatt.studies.thermal.models.registry import MODELS
from clockwatt.studies.thermal.traces import Trace, read_traces

RECORDED = Path(__file__).with_name("workloads-h100.parquet")
SPLITS = ("rows, one workload", "rows, all workloads", "run held out", "workload held out")
NOT_SENSORS = ("run", "workload", "host", "gpu", "gpu_name", "virtual", "step_s", "time_s", "temperature_c")
MEMORY = "memory_temperature_c"
ROWS_PER_INPUT = 10
"""Readings for each input that a regression of one workload needs."""
STUDY = [
    ["study", "regression", "power", "2.64", "7.92", "–", "–"],
    ["study", "regression", "all sensors", "0.80", "5.22", "–", "–"],
    ["study", "LSTM, next reading", "either", "0.42", "–", "–", "–"],
]
STEPS_C = (1.0, 0.5, 0.25, 0.125)
"""Resolutions of sensors: NVML's, and finer ones; 0.125 °C is that of AMD's processors (k10temp)."""


def main() -> None:
    """Write both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", nargs="*", type=Path)
    parser.add_argument("--keep", type=Path, help="write the records as one table")
    given = parser.parse_args()
    rows: list[list[Any]] = []
    recorded = workload_traces.read_records(given.records) if given.records else []
    if recorded and given.keep:
        workload_traces.write(recorded, given.keep)
    if not recorded and RECORDED.exists():
        recorded = workload_traces.read(RECORDED)
    if recorded:
        write_workloads(recorded)
        rows += of_traces(f"workloads on {recorded[0].gpu_name}", recorded)
    for gpu in ("h100", "h200"):
        rows += of_moment(f"operations on {gpu.upper()}", operations(gpu))
    with tempfile.TemporaryDirectory() as folder:
        exact = virtual(Path(folder))
    rows += of_traces("loads on a virtual A30", [rounded(trace, 1.0) for trace in exact])
    result_file.write(
        "temperature",
        "Temperature from other sensors at the same moment: RMSE in °C",
        ["data", "model", "inputs", *SPLITS],
        [*STUDY, *rows],
        hardware=hardware(recorded),
        notes=[
            "Study: its RMSE with shuffled rows, on one workload and on several.",
            "All sensors: without temperatures of the GPU; XGBoost with the memory temperature has its own row.",
            "Held-out runs of operations are sessions, held-out workloads are classes of operations.",
            "Next reading: the forecast of the reading one second later; persistence repeats the last one.",
            f"One workload: those with {ROWS_PER_INPUT} readings for each input. –: there are none.",
            "Workloads on the H100 ran for 6 s at a time: a forecast knows 5 s at most, and a held-out run is a turn.",
        ],
    )
    write_goal(exact)


def write_workloads(recorded: Sequence[Trace]) -> None:
    """Write how long each workload was recorded, and what its sensors read."""
    frame = workload_traces.to_frame(recorded)
    rows = [
        [
            name, own["run"].nunique(), len(own), f"{own['gpu_utilization_percent'].mean():.0f}",
            f"{own['power_w'].mean():.0f}", f"{own['temperature_c'].min():.0f}–{own['temperature_c'].max():.0f}",
        ]
        for name, own in frame.groupby("workload")
    ]  # fmt: skip
    result_file.write(
        "temperature",
        "Recorded workloads of the temperature study",
        ["workload", "repetitions", "readings", "GPU busy (%)", "mean power (W)", "temperature (°C)"],
        rows,
        file=result_file.RESULTS / "thermal_moment-workloads.json",
        hardware=recorded[0].gpu_name,
        notes=[
            "A reading is of one second. Making data on the host is included.",
            f"{len(frame)} s in all, in turns of 6 s in random order: each begins with the heat of the one before.",
            "The temperature follows power within seconds here. How a card warms up over minutes was not recorded.",
        ],
    )


def hardware(recorded: Sequence[Trace]) -> str:
    real = f"{recorded[0].gpu_name}, " if recorded else ""
    return f"{real}14 H100 and 23 H200 (shipped measurements), virtual A30"


def operations(gpu: str) -> pd.DataFrame:
    """Return operations that were measured with power: the temperature at the end of each, and its sensors."""
    folder = resource(f"reference/{gpu}")
    table = pq.read_table(folder / f"measurements/{gpu}/default/1.parquet").to_pandas()
    classes = pq.read_table(folder / "catalogue/operations.parquet", columns=["operation_id", "operation_class"])
    class_of = classes.to_pandas().drop_duplicates("operation_id").set_index("operation_id")["operation_class"]
    table = table[table["temperature_end_c"].notna() & table["power_w"].notna()]
    sensors = ["power_w", "power_idle_w", "sm_clock_median_mhz", "sm_clock_min_mhz", "working_set_bytes", "window_s"]
    return table[sensors].assign(
        temperature_c=table["temperature_end_c"], run=table["session_id"], workload=table["subject_id"].map(class_of)
    )


def virtual(folder: Path) -> list[Trace]:
    """Return traces of a virtual A30 under five patterns of load, its temperature unrounded."""
    records = [
        write_virtual_record(folder / pattern, model="a30", pattern=pattern, runs=3, duration_s=600, kind=ExactGpu)
        for pattern in PATTERNS
    ]
    return read_traces(records).traces


def rounded(trace: Trace, step_c: float) -> Trace:
    return replace(trace, temperature_c=np.round(trace.temperature_c / step_c) * step_c)


def of_traces(data: str, traces: Sequence[Trace]) -> list[list[Any]]:
    """Return the rows of recorded workloads."""
    rows = of_moment(data, workload_traces.to_frame(traces))
    for model, inputs, words in (
        ("persistence", "temperature", "temperature"),
        ("lstm", "temperature", "temperature"),
        ("lstm", "sensors", "all sensors"),
    ):
        rows.append([data, f"{model}, next reading", words, *next_reading(traces, model, inputs)])  # type: ignore[arg-type]
        print(*rows[-1], sep=" | ", flush=True)
    return rows


def next_reading(traces: Sequence[Trace], model: str, inputs: Inputs) -> list[str]:
    """Return the error of forecasts of the next second on each split."""
    task = Task(inputs, "history", (traces[0].step_s,), traces[0].step_s)
    apart = [
        missed(group, "rows", model, task)
        for name in sorted({trace.workload for trace in traces})
        if (group := [trace for trace in traces if trace.workload == name])
    ]
    together = [missed(traces, split, model, task) for split in ("rows", "run", "workload")]
    return [rms(np.concatenate(apart)), *map(rms, together)]


def missed(traces: Sequence[Trace], split: Any, model: str, task: Task) -> np.ndarray:
    try:
        errors = judge(traces, split, model, task).misses.errors_c
    except ThermalError:
        return np.zeros(0)  # a workload of a few seconds
    return errors[np.isfinite(errors)]


def of_moment(data: str, frame: pd.DataFrame) -> list[list[Any]]:
    """Return the rows of estimates from the same moment."""
    sensors = [name for name in frame if name not in NOT_SENSORS]
    others = [name for name in sensors if name != MEMORY]
    wanted: list[tuple[str, str, list[str], Callable[[], Any]]] = [
        ("linear", "power", ["power_w"], linear), ("XGBoost", "power", ["power_w"], xgboost),
        ("linear", "all sensors", others, linear), ("XGBoost", "all sensors", others, xgboost),
    ]  # fmt: skip
    if MEMORY in sensors:
        wanted.append(("XGBoost", "and memory temperature", sensors, xgboost))
    rows = []
    for name, words, columns, model in wanted:
        errors = [rms(held_out(frame, columns, model, split)) for split in SPLITS]
        rows.append([data, name, words, *errors])
        print(*rows[-1], sep=" | ", flush=True)
    return rows


def linear() -> Any:
    return make_pipeline(SimpleImputer(), StandardScaler(), Ridge(1e-3))


def xgboost() -> Any:
    return XGBRegressor(n_estimators=200, max_depth=4, learning_rate=0.1, subsample=0.8, n_jobs=1, random_state=0)


def held_out(frame: pd.DataFrame, columns: list[str], model: Callable[[], Any], split: str) -> np.ndarray:
    """Return errors in °C of rows that the model was not fitted to."""
    if split == SPLITS[0]:
        least = max(ROWS_PER_INPUT * len(columns), 2 * FOLDS)
        groups = [group for _, group in frame.groupby("workload") if len(group) >= least]
        return np.concatenate([np.zeros(0), *(_of_folds(group, columns, model, "") for group in groups)])
    by = {"run held out": "run", "workload held out": "workload"}.get(split, "")
    return _of_folds(frame, columns, model, by)


def _of_folds(frame: pd.DataFrame, columns: list[str], model: Callable[[], Any], by: str) -> np.ndarray:
    values, wanted = frame[columns].to_numpy(float), frame["temperature_c"].to_numpy(float)
    errors = [
        model().fit(values[~test], wanted[~test]).predict(values[test]) - wanted[test] for test in _folds(frame, by)
    ]
    return np.concatenate(errors)


def _folds(frame: pd.DataFrame, by: str) -> Iterator[np.ndarray]:
    chance = np.random.default_rng(0)
    if not by:
        fold = chance.permutation(np.arange(len(frame)) % FOLDS)
    else:
        names = frame[by].unique()
        fold_of = dict(zip(names, chance.permutation(np.arange(len(names)) % FOLDS), strict=True))
        fold = frame[by].map(fold_of).to_numpy()
    for number in range(FOLDS):
        yield fold == number


def rms(errors: np.ndarray) -> str:
    return f"{np.sqrt(np.mean(errors**2)):.2f}" if len(errors) else "–"


def write_goal(exact: Sequence[Trace]) -> None:
    """Write errors against the true temperature, by the resolution of the sensor; runs held out, load known."""
    rows = []
    learnt, left_out = [t for t in exact if not t.run.endswith("run-3")], [t for t in exact if t.run.endswith("run-3")]
    for step_c in STEPS_C:
        errors = {}
        for name, horizon_s in (("rc", 1.0), ("rc", 30.0)):
            task = Task("power", "known", (horizon_s,), exact[0].step_s)
            model = MODELS[name](task).fit([rounded(trace, step_c) for trace in learnt])
            pairs = [forecasts(model, trace, step_c, task) for trace in left_out]
            errors[horizon_s] = [rms(np.concatenate([pair[place] for pair in pairs])) for place in (0, 1)]
        rows.append([f"{step_c:g} °C", f"{step_c / np.sqrt(12):.3f}", *errors[1.0], *errors[30.0]])
        print(*rows[-1], sep=" | ", flush=True)
    result_file.write(
        "temperature",
        "The goal of 0.1 °C, by the resolution of the sensor: RMSE in °C on a virtual A30",
        ["sensor reads", "rounding alone", "1 s ahead, against readings", "1 s ahead, against the truth",
         "30 s ahead, against readings", "30 s ahead, against the truth"],
        rows,
        file=result_file.RESULTS / "thermal_moment-goal.json",
        hardware="2 cores, no GPU",
        notes=[
            "Thermal RC network, load known, two runs of each load trained on, a third one held out.",
            "Only a virtual card has a known true temperature. It has no other heat: a real one is forecast less well.",
            "All temperatures of NVML are whole degrees. AMD's processors (k10temp) report steps of 0.125 °C.",
        ],
    )  # fmt: skip


def forecasts(model: Any, trace: Trace, step_c: float, task: Task) -> tuple[np.ndarray, np.ndarray]:
    """Return errors against what the sensor read, and against the true temperature."""
    read = rounded(trace, step_c)
    origins = np.arange(60, len(trace) - task.steps[0])
    forecast = model.forecast(read, origins)
    return (forecast - truth(read, origins, task)).ravel(), (forecast - truth(trace, origins, task)).ravel()


if __name__ == "__main__":
    main()
