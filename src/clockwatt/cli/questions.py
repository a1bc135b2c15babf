"""`clockwatt predict` and `clockwatt recommend`: what is asked, put to the predictors. See `questions` for the answers.

Predictors are imported where they are called: the command line must not wait for them.
"""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clockwatt import config
from clockwatt.cli.app import Answered, app
from clockwatt.cli.options import (
    RESULTS,
    AsJson,
    CatalogueDir,
    Dtype,
    InputShape,
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
    from clockwatt.predict.ask import NetworkPrediction, TracedNetwork


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
    gpu: Annotated[
        str,
        typer.Option(
            "--gpu", help="Label of a GPU that predictors were fitted for; or, with `fit.unseen_gpu`, any GPU's name."
        ),
    ],
    network: NetworkName = None,
    input_shape: InputShape = None,
    operations: Operations = None,
    point: Point = "default",
    pass_: PassName = "inference",
    dtype: Dtype = "float32",
    tf32: Tf32 = True,
    predictors_dir: PredictorsDir = RESULTS / "predictors",
    catalogue_dir: CatalogueDir = RESULTS / "dataset" / "catalogue",
    as_json: AsJson = False,
) -> None:
    """Say what a pass of a network, or listed operations, cost on a GPU at an operating point, without running it."""
    from clockwatt.predict import questions
    from clockwatt.predict.ask import load_models, predict_network

    models = load_models(predictors_dir)
    answer: Callable[..., NetworkPrediction]
    if gpu in models:
        answer = functools.partial(predict_network, models[gpu])
    else:
        from clockwatt.predict.unseenask import load_unseen, predict_unseen

        answer = functools.partial(predict_unseen, *load_unseen(predictors_dir, gpu, models))
    traced = _asked(network, input_shape, operations, dtype, _pass(pass_), catalogue_dir)
    prediction = answer(traced, str(OperatingPoint.parse(point)), tf32=tf32)
    (questions.print_json if as_json else questions.print_prediction)(prediction)


@app.command()
@_answers_once
def recommend(
    network: NetworkName = None,
    input_shape: InputShape = None,
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
    tf32: Tf32 = True,
    predictors_dir: PredictorsDir = RESULTS / "predictors",
    validation_dir: ValidationDir = RESULTS / "validation",
    catalogue_dir: CatalogueDir = RESULTS / "dataset" / "catalogue",
    pareto: Annotated[Path | None, typer.Option(help="Draw time against energy of all candidates as PNG.")] = None,
    as_json: AsJson = False,
) -> None:
    """Say on which GPU and at which operating point a network takes least time or energy."""
    from clockwatt.predict import questions
    from clockwatt.predict import recommend as stage
    from clockwatt.predict.ask import load_models

    if objective not in ("time", "energy", "edp"):
        raise ClockwattError(f"--objective {objective}: choose time, energy or edp.")
    models = load_models(predictors_dir)
    unknown = sorted(set(gpu or []) - set(models))
    if unknown:
        raise ClockwattError(f"--gpu {unknown[0]}: {predictors_dir} has predictors for {', '.join(models)}.")
    traced = _asked(network, input_shape, operations, dtype, _pass(pass_), catalogue_dir)
    limits = stage.Limits(
        max_slowdown=questions.parse_slowdown(max_slowdown) if max_slowdown is not None else float("inf"),
        power_cap_w=power_cap if power_cap is not None else float("inf"),
    )
    measured = [label for label, model in models.items() if not model.description.virtual]
    answer = stage.recommend(
        {label: models[label] for label in gpu or measured or models},
        traced,
        objective=objective,
        limits=limits,
        points=[str(OperatingPoint.parse(text)) for text in point or []],
        tf32=tf32,
        validation_dir=validation_dir,
    )
    if pareto is not None:
        from clockwatt.figures.pareto import draw_pareto

        draw_pareto(answer, pareto)
    (questions.print_json if as_json else questions.print_recommendation)(answer)


def _asked(
    name: str | None,
    input_shape: str | None,
    operations: Path | None,
    dtype: str,
    pass_: config.Pass,
    catalogue_dir: Path,
) -> TracedNetwork:
    """What a question is about: a network with its input, or operations from a file."""
    from clockwatt.predict import questions

    if operations is not None:
        if name is not None or input_shape is not None:
            raise ClockwattError("--operations stands in place of a network and its --input: give one or the other.")
        return questions.listed_operations(operations, pass_)
    if name is None or input_shape is None:
        raise ClockwattError("give a network and its --input (resnet50 --input 32,3,224,224), or --operations FILE.")
    network = _network(name, input_shape, dtype)
    return questions.traced_network(network, pass_, config.TrainingConfig(), catalogue_dir)


def _network(name: str, input_shape: str, dtype: str) -> config.NetworkConfig:
    from clockwatt.predict.questions import parse_shape

    content = {"name": name, "input": parse_shape(input_shape), "dtype": dtype}
    return config.parse_network(content, source="command line")


def _pass(name: str) -> config.Pass:
    for known in config.PASSES:
        if name == known:
            return known
    raise ClockwattError(f"--pass {name}: choose {' or '.join(config.PASSES)}.")
