"""How long predictors take to fit, and how long an answer takes.

    python benchmarks/predict_speed.py [--folder DIR]

Traces 39 torchvision networks, costs their operations in inference at 40 SM clocks of a modelled A100 (100,000 rows)
and the networks whole, fits the default predictor to them with 15 folds and each network left out in a process of its
own, and asks: one network at one operating point, once loaded and from a cold shell; and where it costs least, among
8 GPUs (eight copies of the predictor) and 40 clocks.
A folder that is given is kept, and what lies there already is not made again. CPU time stands beside the time by the
clock: on a machine that others use too it says more.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from clockwatt import config
from clockwatt.gpu.specs import find_spec
from clockwatt.gpu.virtual.model import CardModel, Work
from clockwatt.io import files
from clockwatt.operations.spec.operation import MATRIX_CLASSES
from clockwatt.predict.answerer import predict_network
from clockwatt.predict.gpu_predictor import GpuPredictor, load_models
from clockwatt.predict.recommend import recommend
from clockwatt.predict.tracing import NetworkTracer, TracedNetwork
from clockwatt.schema import costs, layout, records, tables
from clockwatt.schema.execution import TF32

GPU, GPUS = "a100", 8
ROWS, CLOCKS = 100_000, 40
NETWORKS = (
    *("alexnet", "convnext_tiny", "convnext_base", "densenet121", "densenet169", "efficientnet_b0", "efficientnet_b2"),
    *("efficientnet_b4", "efficientnet_b5", "efficientnet_v2_s", "googlenet", "inception_v3", "maxvit_t", "mnasnet0_5"),
    *("mnasnet1_0", "mnasnet1_3", "mobilenet_v2", "mobilenet_v3_large", "mobilenet_v3_small", "regnet_x_1_6gf"),
    *("regnet_x_400mf", "regnet_y_3_2gf", "regnet_y_400mf", "regnet_y_8gf", "resnet18", "resnet34", "resnet50"),
    *("resnet101", "resnext50_32x4d", "shufflenet_v2_x0_5", "shufflenet_v2_x1_0", "shufflenet_v2_x2_0", "swin_t"),
    *("squeezenet1_1", "swin_v2_t", "vgg16", "vgg16_bn", "vit_b_32", "wide_resnet50_2"),
)
ASKED = config.parse_network({"name": "resnet50", "input": [32, 3, 224, 224]}, source="benchmark")
UNKNOWN_INPUT = "16,3,192,192"
NOISE = 0.01
HOST_S = 8e-6


def main() -> None:
    """Make what is missing, then time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        if not (folder / "catalogue" / "networks.parquet").exists():
            write_campaign(folder)
            run_clockwatt(folder, "catalogue", "--output-dir", "catalogue")
        if not (folder / "dataset" / layout.NETWORKS_FILE).exists():
            write_dataset(folder)
        if not (folder / "predictors").exists():
            taken = timed(lambda: run_clockwatt(
                folder, "fit", "--dataset-dir", "dataset", "--catalogue-dir", "catalogue", "--output-dir", "predictors"
            ))  # fmt: skip
            peak_gib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
            print(f"fit: {taken}, at most {peak_gib:.2f} GiB resident (catalogue included)")
        for number in range(1, GPUS):
            shutil.copytree(folder / "predictors" / GPU, folder / "predictors" / f"{GPU}-{number}", dirs_exist_ok=True)
        time_loaded(folder)
        time_cold(folder)


def run_clockwatt(folder: Path, *arguments: str) -> None:
    """Run a stage as a user would."""
    command = [sys.executable, "-m", "clockwatt", arguments[0], "--config", "config.yaml", *arguments[1:]]
    subprocess.run(command, cwd=folder, check=True)


def write_campaign(folder: Path) -> None:
    """Write the campaign whose networks are traced."""
    spec = find_spec(GPU)
    clocks = np.linspace(spec.sm_clock_mhz.min, spec.boost_clock_mhz, CLOCKS).round().astype(int).tolist()
    content = {
        "campaign": "speed",
        "gpus": {GPU: {"device": f"virtual:{GPU}", "clocks_mhz": clocks}},
        "networks": [{"name": name, "input": [32, 3, 224, 224]} for name in NETWORKS],
        "passes": ["inference"],
        "fit": {"predictors": ["roofline"]},
    }
    files.write_text(json.dumps(content), folder / "config.yaml")


def write_dataset(folder: Path) -> None:
    """Write what a campaign would have measured, one row group for each clock."""
    spec = find_spec(GPU)
    card = CardModel(spec, seed=0, card=0)
    catalogue = files.read_table(folder / "catalogue" / "operations.parquet", records.OPERATION_SCHEMA).to_pylist()
    works = [row for row in catalogue if row["device_work"]][: ROWS // CLOCKS]
    print(f"{len(works)} operations with device work at {CLOCKS} clocks: {len(works) * CLOCKS} rows")
    rng = np.random.default_rng(0)
    clocks = config.load(folder / "config.yaml").gpus[GPU].clocks_mhz
    measured = [operation_rows(card, works, int(clock or 0), rng) for clock in clocks]
    whole = [network_rows(folder / "catalogue", table, rng) for table in measured]
    shutil.copytree(folder / "catalogue", folder / "dataset" / layout.CATALOGUE, dirs_exist_ok=True)
    files.write_table(pa.concat_tables(measured), folder / "dataset" / layout.OPERATIONS_FILE)
    calibration = pa.Table.from_pylist([], schema=records.CALIBRATION_SCHEMA)
    files.write_table(calibration, folder / "dataset" / layout.CALIBRATION_FILE)
    files.write_table(pa.concat_tables(whole), folder / "dataset" / layout.NETWORKS_FILE)


def operation_rows(card: CardModel, operations: list[dict], clock: int, rng: np.random.Generator) -> pa.Table:
    """Rows of the dataset at one clock, by the model of the virtual card with noise."""
    memory_mhz = card.spec.memory_clocks_mhz[-1]
    idle_w = card.power_w(None, 0.0, clock, memory_mhz)
    rows = []
    for row in operations:
        matrix = row["operation_class"] in MATRIX_CLASSES
        work = Work(row["flops"], row["bytes_read"] + row["bytes_written"], row["dtype"], tf32=True, matrix=matrix)
        noise = 1 + NOISE * rng.standard_normal(3)
        time_s = card.activity(work, clock, memory_mhz).time_s * noise[0]
        power_w = card.power_w(work, 1.0, clock, memory_mhz) * noise[1]
        host_s = HOST_S * noise[2]
        eager_s = max(time_s, host_s)
        measured = records.MeasurementRow(
            kind=records.OPERATION, subject_id=row["operation_id"], pass_=records.INFERENCE, gpu=GPU,
            point=f"sm{clock}", execution=TF32, dtype=row["dtype"], virtual=True, gpu_name=f"virtual {card.spec.name}",
            time_device_s=time_s, time_host_s=host_s, time_eager_s=eager_s, power_w=power_w, power_idle_w=idle_w,
            energy_j=power_w * eager_s, energy_dynamic_j=(power_w - idle_w) * time_s,
        )  # fmt: skip
        columns = {records.column_name(name): value for name, value in asdict(measured).items()}
        described = {tables.dataset_name(name): row[name] for name in tables.joined_columns(records.OPERATION_SCHEMA)}
        rows.append(columns | described | corrected(measured) | {costs.EXCLUDED: ""})
    return pa.Table.from_pylist(rows, schema=tables.OPERATIONS_SCHEMA)


def corrected(row: records.MeasurementRow) -> dict[str, float | None]:
    """Corrected costs of a measurement on the one card and host that there is."""
    found = {cost.corrected: getattr(row, cost.measured.column) for cost in costs.COSTS}
    return found | {costs.ENERGY_CORRECTED: row.energy_j}


def network_rows(catalogue: Path, operations: pa.Table, rng: np.random.Generator) -> pa.Table:
    """The networks measured whole where `operations` were: what the device and the host need for their calls."""
    networks = files.read_table(catalogue / "networks.parquet", records.NETWORK_SCHEMA).to_pylist()
    calls = files.read_table(catalogue / "calls.parquet", records.CALL_SCHEMA).to_pandas()
    measured_costs = operations.to_pandas().set_index("subject_id")
    of_calls = measured_costs[["time_device_s", "energy_dynamic_j"]].reindex(calls["operation_id"])
    sums = of_calls.groupby(calls["network_id"].to_numpy()).sum()
    at = operations.slice(0, 1).to_pylist()[0]
    where = {name: at[name] for name in ("gpu", "point", "execution", "dtype", "virtual", "gpu_name", "power_idle_w")}
    rows = []
    for network in networks:
        device_s, dynamic_j = sums.loc[network["network_id"]]
        time_s = max(device_s, HOST_S * network["calls"]) * (1 + NOISE * rng.standard_normal())
        energy_j = dynamic_j + where["power_idle_w"] * time_s
        measured = records.MeasurementRow(
            kind=records.NETWORK, subject_id=network["network_id"], pass_=network["pass"], **where,
            time_eager_s=time_s, power_w=energy_j / time_s, energy_j=energy_j, energy_dynamic_j=dynamic_j,
        )  # fmt: skip
        columns = {records.column_name(name): value for name, value in asdict(measured).items()}
        described = {name: network[name] for name in tables.joined_columns(records.NETWORK_SCHEMA)}
        rows.append(columns | described | corrected(measured))
    return pa.Table.from_pylist(rows, schema=tables.NETWORKS_SCHEMA)


def time_loaded(folder: Path) -> None:
    """Print how long answers take in one process."""
    training = config.TrainingConfig()

    def first_answer() -> tuple[dict[str, GpuPredictor], TracedNetwork]:
        models = load_models(folder / "predictors")
        traced = NetworkTracer(folder / "catalogue", training).trace(ASKED, "inference")
        predict_network(models[GPU], traced, next(iter(models[GPU].description.points)))
        return models, traced

    print(f"first answer, reading the predictor and the catalogue included: {timed(first_answer)}")
    models, traced = first_answer()
    description = models[GPU].description
    learnt = description.passes["inference"].learnt_points
    others = [point for point in description.points if point not in learnt]
    for where, points in (("at a clock learnt from", learnt), ("at another, by the law", others)):
        times = [timed(lambda point=point: predict_network(models[GPU], traced, point)) for point in points]
        print(f"predict, once loaded, {where}: median {median(times)}, most {max(times)}")
    models = load_models(folder / "predictors")
    for when in ("first", "again"):
        print(f"recommend, {GPUS} GPUs x {CLOCKS} clocks, {when}: {timed(lambda: recommend(models, traced))}")


@dataclass(frozen=True, order=True)
class Taken:
    """Seconds by the clock, and of CPU time of this process and those it waited for."""

    clock_s: float
    cpu_s: float

    def __str__(self) -> str:
        return f"{self.clock_s:.3g} s ({self.cpu_s:.3g} s CPU)"


def timed(call: Callable[[], object]) -> Taken:
    """What a call takes."""
    start = _now()
    call()
    end = _now()
    return Taken(end.clock_s - start.clock_s, end.cpu_s - start.cpu_s)


def _now() -> Taken:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Taken(time.perf_counter(), time.process_time() + children.ru_utime + children.ru_stime)


def median(times: list[Taken]) -> Taken:
    """Of the clock's seconds and of CPU seconds."""
    return Taken(statistics.median(one.clock_s for one in times), statistics.median(one.cpu_s for one in times))


def time_cold(folder: Path) -> None:
    """Print how long answers take from a shell, the median of three, asked in turns."""
    predict = ["-m", "clockwatt", "predict", ASKED.name, "--gpu", GPU, "--point", "sm1000", "--json"]
    predict += ["--predictors-dir", "predictors", "--catalogue-dir", "catalogue", "--input"]
    commands = {
        "import torch, torchvision": ["-c", "import torch, torchvision"],
        "predict, network in the catalogue": [*predict, "32,3,224,224"],
        "predict, network traced anew": [*predict, UNKNOWN_INPUT],
    }
    times: dict[str, list[Taken]] = {name: [] for name in commands}
    for _ in range(3):
        for name, arguments in commands.items():
            run = [sys.executable, *arguments]
            times[name].append(timed(lambda run=run: subprocess.run(run, cwd=folder, check=True, capture_output=True)))
    for name, taken in times.items():
        print(f"{name}: {median(taken)}")


if __name__ == "__main__":
    main()
