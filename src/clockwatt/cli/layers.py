"""`clockwatt layers`: time, energy, power and memory of each module of a network."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clockwatt.cli.options import AsJson
from clockwatt.cli.predict import loaded
from clockwatt.cli.request_options import FOLDERS, NETWORK, check_folder, request_command

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

    from clockwatt.predict.module_times import ModuleTimes
    from clockwatt.predict.request import Request

_OUTSIDE = "(outside modules)"


@request_command(
    *("network", "gpu", *(name for name in NETWORK[1:] if name != "operations"), "point", "pass_", "precision"),
    *("optimizer", "host", *FOLDERS),
    examples=(
        "clockwatt layers vgg16 --input 32,3,224,224 --gpu h200 --pass training",
        "clockwatt layers resnet50 --gpu h200 --depth 1",
        "clockwatt layers vit_b_16 --gpu h100 --csv layers.csv",
        "clockwatt layers resnet18 --input 8,3,224,224 --gpu h200 --trace trace.json.gz",
    ),
)
def layers(
    request: Request,
    *,
    depth: Annotated[int | None, typer.Option(min=1, help="Show modules down to this level; 1 is the top.")] = None,
    csv: Annotated[Path | None, typer.Option(help="Write the table to this file too.")] = None,
    trace: Annotated[Path | None, typer.Option(help="Compare with device times of this torch.profiler trace.")] = None,
    as_json: AsJson = False,
) -> None:
    """Report time, energy and memory of a network's modules."""
    from clockwatt.cli.answer_text import headline
    from clockwatt.cli.printing import binary, memory_words, warnings_of
    from clockwatt.io.files import write_text

    check_folder("csv", csv)
    predictors = loaded(request)
    answer, table = predictors.ask_layers(request, depth=depth)
    profiled = None
    if trace is not None:
        from clockwatt.operations.trace.trace import called_modules
        from clockwatt.predict.all_gpus import with_measured
        from clockwatt.predict.module_times import module_times

        profiled = module_times(trace, called_modules(predictors.network(request), request.pass_))
        table = with_measured(table, profiled.seconds, depth)
    if csv is not None:
        write_text(table.to_csv(), csv)
    if as_json:
        rows = table.reset_index().astype(object)
        print(json.dumps(rows.where(rows.notna(), None).to_dict("records"), indent=2))
        return
    print(headline(answer))
    print_layers(table)
    host_bound = answer.host is not None and answer.host.paced_by == "host"
    shared = "host time" if host_bound else "device time" if answer.expected.device_s else "back-to-back time"
    print(f"In brackets: 90 % intervals. The time of the pass is divided in proportion to the modules' {shared}.")
    if any(f"{name}." in other for name in table.index if name for other in table.index):
        print("A module's row excludes the modules inside it: they have their own rows.")
    print("memory: what a module holds at the peak of the pass.")
    if profiled is not None:
        _print_measured(table, profiled)
    if answer.memory is not None:
        print(memory_words(answer.memory, verbose=True))
        rest = answer.memory.allocated_bytes - table["memory_bytes"].sum()
        print(f"About {binary(rest)} are workspaces and temporary tensors, which belong to no module.")
    for warning in warnings_of([answer]):
        print(f"Warning: {warning}")


def _print_measured(table: pd.DataFrame, profiled: ModuleTimes) -> None:
    """Print device times of modules, predicted and measured."""
    from rich.console import Console

    from clockwatt.cli.printing import quantity
    from clockwatt.cli.tables import table_of

    measured = f"measured{'' if profiled.on_device else ' (CPU)'}"
    columns = "predicted", measured, "ratio"
    shown = table_of("module", *columns, right=columns)
    both = table[["device_s", "measured_device_s"]].fillna(0.0)
    for name, (predicted, took) in [*both.iterrows(), ("sum", both.sum())]:
        if name == "sum":
            shown.add_section()
        if predicted or took:
            ratio = f"{took / predicted:.2f}" if predicted and took else "–"
            shown.add_row(str(name) or _OUTSIDE, quantity(predicted, "s"), quantity(took, "s"), ratio)
    print(f"Device time, predicted and measured (mean of {profiled.passes} passes of the trace):")
    Console().print(shown)
    if not profiled.on_device:
        print("The trace has no kernels of a GPU, so measured times are those of the CPU's operations.")


def print_layers(table: pd.DataFrame) -> None:
    """Print a row for each module and their sum; leave out modules without device work, and an empty backward.

    A narrow terminal has no columns of phases, power and FLOP.
    """
    from clockwatt.cli.tables import fits, print_whole

    shown = _layers(table, [name for name in ("forward", "backward") if table[f"{name}_s"].any()], rates=True)
    whole = fits(shown)
    print_whole(shown if whole else _layers(table, [], rates=False))
    if not whole:
        print("Phases, power and FLOP of each module: --csv FILE, --json, or a wider terminal.")


def _layers(table: pd.DataFrame, phases: Sequence[str], *, rates: bool) -> Table:
    """Modules and their sum, with times of phases, and power and FLOP as `rates`."""
    from clockwatt.cli.printing import binary, quantity, with_ends
    from clockwatt.cli.tables import table_of

    rate_units = {"power": ("power_w", "W"), "FLOP": ("flops", "FLOP")} if rates else {}
    numbers = ("time (90 %)", *phases, "energy (90 %)", *rate_units, "memory")
    shown = table_of("module", *numbers, right=numbers)
    shown.columns[0].overflow, shown.columns[0].no_wrap = "fold", False

    def known(value: float) -> float | None:
        return None if value != value else value  # nan is not itself

    total = table.sum(min_count=1)
    total["power_w"] = total["energy_j"] / total["time_s"]
    for name, row in [*table.iterrows(), ("sum", total)]:
        if row["time_s"] > 0 or row["memory_bytes"] > 0:
            ends = dict.fromkeys(("time_s", "energy_j"))
            if row is total:
                shown.add_section()
            else:
                ends = {one: (row[f"{one}_low"], row[f"{one}_high"]) for one in ends}
            memory = known(row["memory_bytes"])
            shown.add_row(
                str(name) or _OUTSIDE, with_ends(row["time_s"], ends["time_s"], "s"),
                *(quantity(row[f"{phase}_s"], "s") for phase in phases),
                with_ends(known(row["energy_j"]), ends["energy_j"], "J"),
                *(quantity(known(row[column]), unit) for column, unit in rate_units.values()),
                "–" if memory is None else binary(memory),
            )  # fmt: skip
    return shown
