"""`clockwatt predict` and `clockwatt recommend`: a network is traced, asked about, and the answer printed."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.compute as pc

from clockwatt.config import NetworkConfig, Pass, TrainingConfig
from clockwatt.errors import ClockwattError, DataFileError
from clockwatt.gpu.specs import UnknownGpuError, find_spec
from clockwatt.io import files
from clockwatt.predict.answer import NetworkPrediction, TracedNetwork
from clockwatt.predict.composition.pipeline import Composition
from clockwatt.predict.description import TRAINING_FILE
from clockwatt.predict.hosts.answer import HostAnswer
from clockwatt.predict.query import NetworkQuery
from clockwatt.predict.recommend import Recommendation
from clockwatt.schema import records
from clockwatt.schema.records import CALL_SCHEMA, NETWORK_SCHEMA, OPERATION_SCHEMA, NetworkRow, column_name

__all__ = [
    "NetworkQuery", "check_fits", "listed_operations", "parse_slowdown", "print_json", "print_prediction",
    "print_recommendation", "quantity", "traced_network", "training_of",
]  # fmt: skip

_PREFIXES = ((1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"))


_INTERVALS = {
    "conformal": "Low to high: 90 %, conformal, from {networks} networks measured whole and left out one by one.",
    "student_t": "Low to high: 90 % if errors are normal, from only {networks} networks measured whole and left out "
    "one by one; conformal intervals need 9.",
    "conformal_of_measured": "Low to high: 90 %, conformal, from {networks} networks whose operations were measured.",
    "student_t_of_measured": "Low to high: 90 % if errors are normal, from only {networks} networks whose operations "
    "were measured; conformal intervals need 9.",
    "operations": "Low to high: every operation at the end of its 90 % interval, as if all errors had one cause.",
    "none": "No interval is known.",
}


def traced_network(network: NetworkConfig, pass_: Pass, training: TrainingConfig, catalogue_dir: Path) -> TracedNetwork:
    """A network's calls in one pass: from the catalogue where it is in it, else traced now, which takes torch.

    Raises
    ------
    DataFileError
        If the catalogue that is there is damaged.
    NetworkError
        If the network cannot be found or traced.
    """
    if (catalogue_dir / "networks.parquet").exists():
        catalogued = _from_catalogue(network, pass_, catalogue_dir)
        if catalogued is not None:
            return catalogued
    from clockwatt.operations.catalogue import trace_rows

    traced = trace_rows(network, pass_, training)
    return TracedNetwork(traced.network, _frame(traced.calls), _frame(traced.operations))


def training_of(predictors_dir: Path) -> TrainingConfig:
    """The training step that the predictors' campaign measured; the usual one where they do not say.

    Raises
    ------
    DataFileError
        If the file that says it is damaged.
    """
    path = predictors_dir / TRAINING_FILE
    try:
        return TrainingConfig.model_validate_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return TrainingConfig()
    except (OSError, ValueError) as error:
        raise DataFileError(f"{path}: holds no training step ({error}). Run `clockwatt fit` again.") from None


def check_fits(traced: TracedNetwork, gpu_names: list[str]) -> set[str]:
    """The GPUs whose memory has room for what a pass needs at least: weights, their gradients, the largest operation.

    Raises
    ------
    ClockwattError
        If none of them has.
    """
    row = traced.network
    states = 0 if row.optimizer is None else 2 if "adam" in row.optimizer else 1
    copies = 1 if row.pass_ != records.TRAINING else 2 + states
    moved = traced.operations["bytes_read"] + traced.operations["bytes_written"]
    largest = int(moved.max()) // (1 if row.pass_ != records.TRAINING else 2)
    needed = max(copies * row.parameter_bytes, largest)
    memory = {}
    for name in gpu_names:
        try:
            memory[name] = find_spec(name).memory_bytes
        except UnknownGpuError:
            memory[name] = needed
    if all(needed > size for size in memory.values()):
        largest_gpu, size = max(memory.items(), key=lambda item: item[1])
        raise ClockwattError(
            f"{row.network_id}: a pass of {row.pass_} needs at least {needed / 2**30:.0f} GiB, more than the "
            f"{size / 2**30:.0f} GiB of {largest_gpu}: choose a smaller batch or network."
        )
    return {name for name, size in memory.items() if needed <= size}


def listed_operations(path: Path, pass_: Pass) -> TracedNetwork:
    """Operations with counts from a file, which takes torch: see `operations.listed`.

    Raises
    ------
    DataFileError
        If the file is missing or a line of it is no operation with a count.
    """
    from clockwatt.operations.listed import read_listed

    listed = read_listed(path, pass_)
    return TracedNetwork(listed.network, _frame(listed.calls), _frame(listed.operations), is_network=False)


def parse_slowdown(text: str) -> float:
    """Read `10%` or `0.1`.

    Raises
    ------
    ClockwattError
        If it is neither.
    """
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not value >= 0:
        raise ClockwattError(f"--max-slowdown {text!r}: write 10% or 0.1.")
    return value


def print_prediction(prediction: NetworkPrediction) -> None:
    """One line per quantity, with its interval."""
    from rich.console import Console  # here, because JSON needs none of it
    from rich.table import Table

    kind = "VIRTUAL, a modelled GPU" if prediction.virtual else prediction.gpu_name
    table = Table(title=f"{prediction.network_id}, {prediction.pass_}, {prediction.gpu} ({kind}) at {prediction.point}")
    for heading in ("", "expected", "low", "high"):
        table.add_column(heading, justify="left" if not heading else "right")
    for name, attribute, unit in (
        ("time", "time_s", "s"),
        ("of it: device", "device_s", "s"),
        ("of it: host", "host_s", "s"),
        ("energy", "energy_j", "J"),
        ("mean power", "power_w", "W"),
    ):
        low, high = prediction.intervals.get(attribute, (None, None))
        expected = _of(prediction.expected, attribute)
        table.add_row(name, quantity(expected, unit), quantity(low, unit), quantity(high, unit))
    console = Console()
    console.print(table)
    if prediction.measured_calls:
        known, calls = prediction.measured_calls, prediction.expected.calls
        console.print(f"Of {calls} calls, {known} are of operations measured there, and looked up.")
    console.print(_INTERVALS[prediction.interval_method].format(networks=prediction.interval_networks))
    if prediction.host is not None:
        console.print(_said_of(prediction.host))
    if not prediction.measured_point:
        console.print("Nothing was measured at this operating point: the law of the clock speaks, from other points.")
    for warning in prediction.warnings:
        console.print(f"Beware: {warning}")


def _said_of(host: HostAnswer) -> str:
    """Which host the answer is for, what paces the pass there, and what a captured graph would save."""
    if host.name is not None:
        where = f"On host {host.name}, whose calls cost {host.factor:.2f} times those of the median host measured on"
    else:
        where = (
            f"On the median host measured on; low to high spans hosts from {host.low:.2f} to {host.high:.2f} times its "
            f"cost of a call ({host.sessions} sessions); --host answers for one"
        )
    paces = {"host": "the host", "device": "the device", "power_limit": "the power limit"}[host.paced_by]
    saved = f"saves {quantity(host.graph_saves_s, 's')}" if host.graph_saves_s > 0 else "saves nothing"
    return f"{where}. {paces.capitalize()} paces the pass; a captured graph {saved} of it."


def print_recommendation(answer: Recommendation, *, rows: int = 20) -> None:
    """The candidates, best first, and what is known of the regret of such choices."""
    from rich.console import Console
    from rich.table import Table

    best = answer.best
    virtual = " (VIRTUAL: modelled GPUs)" if best.virtual else ""
    table = Table(title=f"{best.network_id}, {best.pass_}: least {answer.objective}{virtual}")
    for heading in ("GPU", "point", "time", "energy", "mean power"):
        table.add_column(heading, justify="right" if heading not in ("GPU", "point") else "left")
    for number, candidate in enumerate(answer.candidates[:rows]):
        expected = candidate.expected
        style = "bold" if number == 0 else None if number < answer.allowed else "dim"
        point = candidate.point if candidate.measured_point else f"{candidate.point} (not measured)"
        table.add_row(candidate.gpu, point, quantity(expected.time_s, "s"), quantity(expected.energy_j, "J"),
                      quantity(expected.power_w, "W"), style=style)  # fmt: skip
    console = Console()
    console.print(table)
    if answer.allowed < len(answer.candidates):
        console.print(
            f"{len(answer.candidates) - answer.allowed} of {len(answer.candidates)} are beyond the limits (dim, last)."
        )
    if answer.regret is None:
        console.print(
            f"What such a choice costs over the best one is unknown: no networks measured whole on {best.gpu} at "
            "several operating points were validated (`clockwatt validate`)."
        )
    else:
        known = answer.regret
        console.print(
            f"Of {known['networks']} networks measured whole on {best.gpu} at {known['points']} operating points: such "
            f"a choice costs {known['mean_regret']:.1%} more {answer.objective} than the best point on average; "
            f"{known['fixed_point']} for all of them costs {known['fixed_mean_regret']:.1%} more."
        )


def print_json(answer: NetworkPrediction | Recommendation) -> None:
    """The answer as one JSON document."""
    print(json.dumps(answer.to_dict(), indent=2))


def quantity(value: float | None, unit: str) -> str:
    """A value to three digits with an SI prefix; a dash where it is unknown."""
    if value is None:
        return "–"
    scale, prefix = next(((scale, prefix) for scale, prefix in _PREFIXES if abs(value) >= scale), _PREFIXES[-1])
    return f"{value / scale:.3g} {prefix}{unit}"


def _of(composition: Composition, attribute: str) -> float | None:
    value: float | None = getattr(composition, attribute)
    return value


def _from_catalogue(network: NetworkConfig, pass_: Pass, catalogue_dir: Path) -> TracedNetwork | None:
    def chosen(name: str, schema: Any) -> Any:
        table = files.read_table(catalogue_dir / name, schema)
        return table.filter(pc.and_(pc.equal(table["network_id"], network.network_id), pc.equal(table["pass"], pass_)))

    found = chosen("networks.parquet", NETWORK_SCHEMA).to_pylist()
    if not found:
        return None
    calls = chosen("calls.parquet", CALL_SCHEMA).sort_by("position").to_pandas()
    operations = files.read_table(catalogue_dir / "operations.parquet", OPERATION_SCHEMA).to_pandas()
    mine = operations["operation_id"].isin(calls["operation_id"]) & (operations["pass"] == pass_)
    return TracedNetwork(records.row_of(NetworkRow, found[0]), calls, operations[mine].reset_index(drop=True))


def _frame(rows: list[Any]) -> pd.DataFrame:
    """Rows as a frame with the columns' names."""
    names = [entry.name for entry in dataclasses.fields(rows[0])]
    return pd.DataFrame({column_name(name): [getattr(row, name) for row in rows] for name in names})
