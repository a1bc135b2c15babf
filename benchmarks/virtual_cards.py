"""How near the virtual A30 and RTX 2080 Ti are to the networks that a thesis measured on the real cards.

    python benchmarks/virtual_cards.py

Opens each network that C. Nicolai measured on the virtual card, as a campaign does, with the settings of the
thesis: TensorFloat-32 in convolutions or nowhere, and default limits. Time is that of a pass back to back, energy its
time times mean power.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import others
import pandas as pd
import pyarrow.parquet as pq
import result_file
from thesis_left_out import GPUS, traces

from clockwatt.config import TelemetryConfig
from clockwatt.gpu.virtual.card import VirtualGpu
from clockwatt.measure.bench.interface import Subject
from clockwatt.measure.bench.virtual import VirtualBench, VirtualWorkload
from clockwatt.predict.tracing import TracedNetwork
from clockwatt.schema import layout
from clockwatt.schema.execution import DEFAULT, FP32, ExecutionSettings
from clockwatt.schema.records import NETWORK
from clockwatt.telemetry.logger import virtual_logger

CONFIGURATIONS = (("a30", True), ("rtx2080ti", False), ("a30", False))
SETTLED_S, SEEN_S = 60.0, 2.0
KEY = ["model", "input_shape", "mode"]
TARGET = 20.0


def main() -> None:
    """Write errors of each card and the order of the three configurations."""
    networks = pd.concat(
        [others.read(f"thesis-{gpu}-networks.parquet").assign(label=gpu) for gpu in GPUS], ignore_index=True
    )
    shapes = networks[KEY].drop_duplicates(ignore_index=True)
    traced = dict(zip(shapes.itertuples(index=False, name=None), traces(shapes), strict=True))
    rows = pd.DataFrame([costs(row, traced[tuple(row[name] for name in KEY)]) for row in networks.to_dict("records")])
    networks = pd.concat([networks, rows], axis=1)
    found, targets = errors(networks)
    order, right = orders(networks)
    targets.append(result_file.target("order of the three in energy", right, at_least=90, unit="%"))
    columns = ["GPU", "pass", "precision", "networks", "time", "energy", "mean power, thesis", "mean power, virtual"]
    result_file.write(
        "virtual-gpus", "Virtual cards against the networks of a thesis", columns, found, targets=targets,
        hardware="virtual A30, virtual RTX 2080 Ti; theirs: NVIDIA A30, NVIDIA GeForce RTX 2080 Ti",
        notes=[
            "Errors are the median and the 90th percentile.",
            "The cards were fitted to these networks: these are errors of a fit, not of a prediction.",
            "Inputs of 32 to 56 pixels are host-bound, and the virtual host is two to four times as fast as theirs.",
            "The real RTX 2080 Ti drew 147 W in inference and 230 W in training. The virtual one has a factor for it.",
        ],
    )  # fmt: skip
    columns = ["pass", "network", "thesis: A30 TF32, RTX 2080 Ti, A30 fp32 (J)", "virtual (J)", "same order"]
    result_file.write(
        "virtual-gpus", "Energy of the three configurations", columns, order,
        hardware="virtual A30, virtual RTX 2080 Ti", file=result_file.RESULTS / "virtual_cards-order.json",
        notes=["TF32 means convolutions in TensorFloat-32, and linear layers in float32, as in the thesis."],
    )  # fmt: skip


def costs(row: dict[str, object], traced: TracedNetwork) -> dict[str, float]:
    """Return time, energy and power of a pass on the virtual card."""
    gpu = VirtualGpu(str(row["label"]), seed=0)
    execution = ExecutionSettings(DEFAULT if row["tf32"] else FP32)
    names = (layout.NETWORKS_FILE, layout.CALLS_FILE, layout.OPERATIONS_FILE)
    with tempfile.TemporaryDirectory() as folder, virtual_logger(gpu, "any", Path(folder), TelemetryConfig()) as logger:
        for name, table in zip(names, traced.tables(), strict=True):
            pq.write_table(table, Path(folder) / name)
        subject = Subject(
            NETWORK, traced.network.network_id, str(row["mode"]), execution, "float32", 1, device_work=True
        )
        with VirtualBench(gpu, logger, 0, Path(folder)).open(subject) as workload:
            assert isinstance(workload, VirtualWorkload)
            time_s = max(workload.host_s, workload.device_s)
            gpu.load(workload.load, workload.device_s / time_s)
            gpu.advance(SETTLED_S)
            before_j = gpu.energy_counter_j()
            gpu.advance(SEEN_S)
            power_w = (gpu.energy_counter_j() - before_j) / SEEN_S
    return {"virtual_s": time_s, "virtual_w": power_w, "virtual_j": time_s * power_w}


def errors(networks: pd.DataFrame) -> tuple[list[list[object]], list[dict[str, object]]]:
    """Return a row for each card, pass and precision, and the targets."""
    networks = networks.assign(
        time=(networks["virtual_s"] / networks["time_per_iter_s"] - 1).abs(),
        energy=(networks["virtual_j"] / networks["energy_per_iter_j"] - 1).abs(),
    )
    found = []
    for (label, mode, tf32), own in networks.groupby(["label", "mode", "tf32"]):
        shown = [f"{own[name].median():.0%} / {own[name].quantile(0.9):.0%}" for name in ("time", "energy")]
        powers = [f"{own[name].mean():.0f} W" for name in ("power_w", "virtual_w")]
        found.append([label, mode, DEFAULT if tf32 else FP32, len(own), *shown, *powers])
    targets = [
        result_file.target(
            f"{name} on the virtual {label}, median", 100 * float(own[name].median()), at_most=TARGET, unit="%"
        )
        for label, own in networks.groupby("label")
        for name in ("time", "energy")
    ]  # fmt: skip
    return found, targets


def orders(networks: pd.DataFrame) -> tuple[list[list[object]], float]:
    """Return the energies of networks that all three configurations have, and how many have the same order, in %."""
    rows, same = [], []
    for (model, shape, mode), own in networks.groupby(KEY):
        places = own.set_index(["label", "tf32"])
        if any(key not in places.index for key in CONFIGURATIONS):
            continue
        energies = [[places.loc[key, name] for key in CONFIGURATIONS] for name in ("energy_per_iter_j", "virtual_j")]
        same.append(np.array_equal(*(np.argsort(values) for values in energies)))
        shown = [" · ".join(f"{value:.3g}" for value in values) for values in energies]
        rows.append([mode, f"{model} {shape}", *shown, "yes" if same[-1] else "no"])
    return sorted(rows), 100 * float(np.mean(same))


if __name__ == "__main__":
    main()
