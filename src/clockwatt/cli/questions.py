"""`clockwatt predict` and `clockwatt recommend`: what is asked, put to the predictors. See `questions` for the answers.

Predictors are imported where they are called: the command line must not wait for them.
"""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clockwatt import config
from clockwatt.cli.app import Answered, app
from clockwatt.cli.options import (
    RESULTS,
    AsJson,
    AssumeBranch,
    CacheLength,
    CatalogueDir,
    Dtype,
    HostName,
    InputBelow,
    InputDtype,
    Inputs,
    NetworkName,
    Operations,
    PassName,
    Point,
    PredictorsDir,
    Tf32,
    ValidationDir,
)
from clockwatt.config import OperatingPoint
from clockwatt.errors import ClockwattError

if TYPE_CHECKING:
    from clockwatt.predict.answer import TracedNetwork
    from clockwatt.predict.hosts.profile import HostProfile
    from clockwatt.predict.query import NetworkQuery


def _answers_once(command: Callable[..., None]) -> Callable[..., None]:
    """Make a command end with `Answered`, and keep the collector of reference cycles from it.

    Most of its time goes into importing torch, of which a tenth is the collector's, looking through modules again and
    again that stay until the end; freeing them there takes another tenth.
    """

    @functools.wraps(command)
    def run(**options: Any) -> None:
        gc.disable()
        try:
            command(**options)
        finally:
            gc.enable()
        sys.stdout.flush()
        raise Answered(0)

    return run


@app.command()
@_answers_once
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
    predictors_dir: PredictorsDir = RESULTS / "predictors",
    catalogue_dir: CatalogueDir = RESULTS / "dataset" / "catalogue",
    as_json: AsJson = False,
) -> None:
    """Say what a pass of a network, or listed operations, cost on a GPU at an operating point, without running it."""
    from clockwatt.predict import questions
    from clockwatt.predict.answer import load_models, predict_network

    models = load_models(predictors_dir)
    _check_fitted([gpu], models, predictors_dir)
    profile = _profile(host, predictors_dir)
    query = questions.NetworkQuery(network, inputs, dtype, input_dtype, input_below, assume_branch, cache_length)
    traced = _traced(query, operations, _pass(pass_), catalogue_dir, predictors_dir)
    questions.check_fits(traced, [models[gpu].description.gpu_name])
    prediction = predict_network(models[gpu], traced, str(OperatingPoint.parse(point)), tf32=tf32, host=profile)
    (questions.print_json if as_json else questions.print_prediction)(prediction)


@app.command()
@_answers_once
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
    predictors_dir: PredictorsDir = RESULTS / "predictors",
    validation_dir: ValidationDir = RESULTS / "validation",
    catalogue_dir: CatalogueDir = RESULTS / "dataset" / "catalogue",
    pareto: Annotated[Path | None, typer.Option(help="Draw time against energy of all candidates as PNG.")] = None,
    as_json: AsJson = False,
) -> None:
    """Say on which GPU and at which operating point a network takes least time or energy."""
    from clockwatt.predict import questions
    from clockwatt.predict import recommend as stage
    from clockwatt.predict.answer import load_models

    if objective not in ("time", "energy", "edp"):
        raise ClockwattError(f"--objective {objective}: choose time, energy or edp.")
    models = load_models(predictors_dir)
    _check_fitted(gpu or [], models, predictors_dir)
    profile = _profile(host, predictors_dir)
    query = questions.NetworkQuery(network, inputs, dtype, input_dtype, input_below, assume_branch, cache_length)
    traced = _traced(query, operations, _pass(pass_), catalogue_dir, predictors_dir)
    measured = [label for label, model in models.items() if not model.description.virtual]
    chosen = {label: models[label] for label in gpu or measured or models}
    fitting = questions.check_fits(traced, [model.description.gpu_name for model in chosen.values()])
    limits = stage.Limits(
        max_slowdown=questions.parse_slowdown(max_slowdown) if max_slowdown is not None else float("inf"),
        power_cap_w=power_cap if power_cap is not None else float("inf"),
    )
    answer = stage.recommend(
        {label: model for label, model in chosen.items() if model.description.gpu_name in fitting},
        traced,
        objective=objective,
        limits=limits,
        points=[str(OperatingPoint.parse(text)) for text in point or []],
        tf32=tf32,
        host=profile,
        validation_dir=validation_dir,
    )
    if pareto is not None:
        from clockwatt.figures.pareto import draw_pareto

        draw_pareto(answer, pareto)
    (questions.print_json if as_json else questions.print_recommendation)(answer)


def _check_fitted(labels: Iterable[str], models: Iterable[str], predictors_dir: Path) -> None:
    """Refuse the label of a GPU that no predictors were fitted for."""
    unknown = sorted(set(labels) - set(models))
    if unknown:
        raise ClockwattError(f"--gpu {unknown[0]}: {predictors_dir} has predictors for {', '.join(models)}.")


def _profile(host: str | None, predictors_dir: Path) -> HostProfile | None:
    """The profile of the host that is asked for."""
    from clockwatt.predict.hosts.profile import HostProfile

    return None if host is None else HostProfile.read(predictors_dir, host)


def _traced(
    query: NetworkQuery, operations: Path | None, pass_: config.Pass, catalogue_dir: Path, predictors_dir: Path
) -> TracedNetwork:
    """What a question is about: a network with its input, or operations from a file."""
    from clockwatt.predict import questions

    if operations is not None:
        if query.name is not None or query.inputs:
            raise ClockwattError("--operations stands in place of a network and its --input: give one or the other.")
        return questions.listed_operations(operations, pass_)
    network = query.network(catalogue_dir)
    return questions.traced_network(network, pass_, questions.training_of(predictors_dir), catalogue_dir)


def _pass(name: str) -> config.Pass:
    for known in config.PASSES:
        if name == known:
            return known
    raise ClockwattError(f"--pass {name}: choose {' or '.join(config.PASSES)}.")
