"""`clockwatt predict` and `clockwatt recommend`: what is asked, put to the predictors. See `printing` for the answers.

Predictors are imported where they are called: the command line must not wait for them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clockwatt import config
from clockwatt.cli import printing
from clockwatt.cli.app import answers_once, app
from clockwatt.cli.options import (
    DEFAULT_CONFIG,
    AsJson,
    AssumeBranch,
    CacheLength,
    CampaignFile,
    CatalogueBeside,
    Dtype,
    HostName,
    InputBelow,
    InputDtype,
    Inputs,
    InSlurmJob,
    MeasureMissing,
    MeasureWhole,
    NetworkName,
    Operations,
    OwnOrShipped,
    PassName,
    Point,
    RelativeTo,
    StoreOfCampaign,
    Tf32,
    ValidationBeside,
    point_of,
)
from clockwatt.errors import ClockwattError
from clockwatt.schema import layout

if TYPE_CHECKING:
    from clockwatt.measure.on_demand import OnDemand
    from clockwatt.predict.answer import TracedNetwork
    from clockwatt.predict.library import Predictors
    from clockwatt.predict.query import NetworkQuery


@app.command()
@answers_once
def predict(
    gpu: Annotated[str, typer.Option("--gpu", help="Label of a GPU that predictors were fitted for.")],
    network: NetworkName = None,
    inputs: Inputs = None,
    operations: Operations = None,
    point: Point = "default",
    pass_: PassName = "inference",
    dtype: Dtype = "float32",
    input_dtype: InputDtype = None,
    input_below: InputBelow = None,
    assume_branch: AssumeBranch = None,
    cache_length: CacheLength = None,
    tf32: Tf32 = True,
    host: HostName = None,
    relative_to: RelativeTo = None,
    measure_missing: MeasureMissing = None,
    measure_whole: MeasureWhole = False,
    slurm: InSlurmJob = False,
    config_file: CampaignFile = DEFAULT_CONFIG,
    store_dir: StoreOfCampaign = None,
    predictors_dir: OwnOrShipped = None,
    catalogue_dir: CatalogueBeside = None,
    as_json: AsJson = False,
) -> None:
    """Say what a pass of a network, or listed operations, cost on a GPU at an operating point, without running it.

    With `--measure-missing` or `--measure-whole` it is measured where the answer needs it most.
    """
    typed = dict(locals())
    predictors = _loaded(predictors_dir, catalogue_dir)
    query = _query(network, inputs, dtype, input_dtype, input_below, assume_branch, cache_length)
    traced = _traced(predictors, query, operations, _pass(pass_))
    if operations is not None and measure_whole:
        raise ClockwattError("--measure-whole runs a network; --operations FILE lists operations.")
    if slurm:
        _check_measures(measure_missing, whole=measure_whole)
        print(_predicted_on_node(typed, gpu=gpu, point=point, as_json=as_json), end="")
        return
    more: dict[str, Any] = {}
    if measure_missing is None and not measure_whole:
        prediction = predictors.answer(traced, gpu=gpu, point=point, tf32=tf32, host=host, relative_to=relative_to)
    else:
        from clockwatt.predict.measure_missing import Stop, answer_measured

        demand = _on_demand(config_file, gpu, point, traced, store_dir, tf32=tf32)
        stop = Stop.parse(measure_missing) if measure_missing is not None else Stop(operations=0)
        prediction, measured_now = answer_measured(predictors, traced, stop, demand, host)
        if relative_to is not None:
            prediction = predictors.compared(prediction, relative_to, traced, host=host)
        more["measured_now"] = measured_now.to_dict()
        if measure_whole:
            more["measured_whole"] = demand.measure_whole(predictors.network(query), *traced.tables())
    tokens = traced.network.input_shape[0] if cache_length is not None else None
    (printing.print_json if as_json else printing.print_prediction)(prediction, tokens, more)


@app.command()
@answers_once
def recommend(
    network: NetworkName = None,
    inputs: Inputs = None,
    operations: Operations = None,
    objective: Annotated[str, typer.Option(help="Have least of: time, energy or edp (their product).")] = "energy",
    max_slowdown: Annotated[str | None, typer.Option(help="Against the fastest choice: 10% or 0.1.")] = None,
    power_cap: Annotated[float | None, typer.Option(min=1, help="Highest mean power over a pass, in W.")] = None,
    gpu: Annotated[
        list[str] | None, typer.Option("--gpu", help="Choose among these; else among the measured ones.")
    ] = None,
    point: Annotated[list[str] | None, typer.Option(help="Consider this point too, though never measured.")] = None,
    pass_: PassName = "inference",
    dtype: Dtype = "float32",
    input_dtype: InputDtype = None,
    input_below: InputBelow = None,
    assume_branch: AssumeBranch = None,
    cache_length: CacheLength = None,
    tf32: Tf32 = True,
    host: HostName = None,
    relative_to: RelativeTo = None,
    measure_missing: MeasureMissing = None,
    slurm: InSlurmJob = False,
    config_file: CampaignFile = DEFAULT_CONFIG,
    store_dir: StoreOfCampaign = None,
    predictors_dir: OwnOrShipped = None,
    validation_dir: ValidationBeside = None,
    catalogue_dir: CatalogueBeside = None,
    pareto: Annotated[Path | None, typer.Option(help="Draw time against energy of all candidates as PNG.")] = None,
    as_json: AsJson = False,
) -> None:
    """Say on which GPU and at which operating point a network takes least time or energy.

    With `--measure-missing` the choice is measured where it is least certain, and made again.
    """
    typed = dict(locals())
    from clockwatt.predict.recommend import Limits

    if objective not in ("time", "energy", "edp"):
        raise ClockwattError(f"--objective {objective}: choose time, energy or edp.")
    if pareto is not None and pareto.suffix.lower() != ".png":
        raise ClockwattError(f"--pareto {pareto}: it is a picture in PNG: give a file ending in .png.")
    if slurm:
        _check_measures(measure_missing)
    predictors = _loaded(predictors_dir, catalogue_dir, validation_dir)
    query = _query(network, inputs, dtype, input_dtype, input_below, assume_branch, cache_length)
    traced = _traced(predictors, query, operations, _pass(pass_))
    limits = Limits(
        max_slowdown=printing.parse_slowdown(max_slowdown) if max_slowdown is not None else float("inf"),
        power_cap_w=power_cap if power_cap is not None else float("inf"),
    )
    asked: dict[str, Any] = {
        "objective": objective, "limits": limits, "gpus": gpu, "points": point or [], "tf32": tf32, "host": host,
        "relative_to": relative_to,
    }  # fmt: skip
    more: dict[str, Any] = {}
    if measure_missing is None:
        answer = predictors.choose(traced, **asked)
    else:
        from clockwatt.predict.measure_missing import Stop, choose_measured

        on_nodes: dict[str, Any] = {}

        def demand_at(label: str, where: str) -> OnDemand:
            demand = _on_demand(config_file, label, where, traced, store_dir, tf32=tf32)
            if slurm:  # what is measured there is in the store, and found there
                said = _predicted_on_node(typed, gpu=label, point=where, as_json=True)
                on_nodes[label] = json.loads(said)["measured_now"]
            return demand

        stop = Stop(operations=0) if slurm else Stop.parse(measure_missing)
        answer, now = choose_measured(predictors, traced, stop, demand_at, **asked)
        more["measured_now"] = {label: one.to_dict() for label, one in now.items()} | on_nodes
    if pareto is not None:
        from clockwatt.figures.pareto import draw_pareto

        draw_pareto(answer, pareto)
    if as_json:
        printing.print_json(answer, None, more)
    else:
        printing.print_recommendation(answer, more)


def _loaded(predictors_dir: Path | None, catalogue_dir: Path | None, validation_dir: Path | None = None) -> Predictors:
    from clockwatt.predict.library import load

    return load(predictors_dir, catalogue_dir=catalogue_dir, validation_dir=validation_dir)


def _query(*typed: Any) -> NetworkQuery:
    from clockwatt.predict.query import NetworkQuery

    return NetworkQuery(*typed)


def _traced(predictors: Predictors, query: NetworkQuery, operations: Path | None, pass_: config.Pass) -> TracedNetwork:
    """What a question is about: a network with its input, or operations from a file."""
    if operations is None:
        return predictors.traced(query, pass_)
    if query.name is not None or query.inputs:
        raise ClockwattError("--operations stands in place of a network and its --input: give one or the other.")
    from clockwatt.predict.questions import listed_operations

    return listed_operations(operations, pass_)


def _on_demand(
    config_file: Path, gpu: str, point: str, traced: TracedNetwork, store_dir: Path | None, *, tf32: bool
) -> OnDemand:
    """Where a question is measured: the campaign's GPU, into the campaign's store."""
    from clockwatt.measure.on_demand import OnDemand

    campaign = config.load(config_file)
    store = store_dir or Path(campaign.results_dir) / layout.STORE
    return OnDemand(campaign, gpu, point_of(campaign, gpu, point), traced.network.pass_, tf32, store)


def _check_measures(missing: str | None, *, whole: bool = False) -> None:
    """Refuse a Slurm job that would measure nothing, or a word that it would refuse once it is its turn."""
    from clockwatt.predict.measure_missing import Stop

    if missing is not None:
        Stop.parse(missing)
    elif not whole:
        raise ClockwattError("--slurm says where is measured: give --measure-missing (20, 30s or 5%) too.")


def _predicted_on_node(asked: dict[str, Any], *, gpu: str, point: str, as_json: bool) -> str:
    """What `clockwatt predict` prints in a Slurm job on a node with a GPU, asked as this command was."""
    from clockwatt.workflow.one_job import run_on_node

    campaign = config.load(asked["config_file"])
    point_of(campaign, gpu, point)
    options = {name: value for name, value in asked.items() if name in _ASKED_ON_NODE and value is not None}
    options |= {"gpu": gpu, "point": point}
    words = [] if asked["network"] is None else [asked["network"]]
    words += [f"{_ASKED_ON_NODE[name]}={one}" for name, value in options.items() for one in _each(value)]
    words += ["--tf32" if asked["tf32"] else "--no-tf32"]
    words += ["--measure-whole"] * asked.get("measure_whole", False) + ["--json"] * as_json
    return run_on_node(campaign.gpu(gpu), [sys.executable, "-m", "clockwatt", "predict", *words])


_ASKED_ON_NODE = {
    "gpu": "--gpu", "inputs": "--input", "operations": "--operations", "point": "--point", "pass_": "--pass",
    "dtype": "--dtype", "input_dtype": "--input-dtype", "input_below": "--input-below",
    "assume_branch": "--assume-branch", "cache_length": "--cache-length", "host": "--host",
    "relative_to": "--relative-to", "measure_missing": "--measure-missing", "config_file": "--config",
    "store_dir": "--store-dir", "predictors_dir": "--predictors-dir", "catalogue_dir": "--catalogue-dir",
}  # fmt: skip
"""Options of `predict` with a value, by the names of their parameters."""


def _each(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _pass(name: str) -> config.Pass:
    for known in config.PASSES:
        if name == known:
            return known
    raise ClockwattError(f"--pass {name}: choose {' or '.join(config.PASSES)}.")
