"""`clockwatt thermal`: models of a GPU's temperature, fitted to records, and what a scheduler asks of them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clockwatt.cli.app import App, app, examples
from clockwatt.cli.options import AsJson
from clockwatt.errors import ClockwattError

if TYPE_CHECKING:
    from clockwatt.studies.thermal.answers import Crossing, Forecast, Place
    from clockwatt.studies.thermal.fit import Result

thermal_app = App(
    no_args_is_help=True,
    help="Model and forecast the temperature of recorded GPUs.",
    epilog=examples("clockwatt thermal fit records/monday records/tuesday --output thermal"),
)
app.add_typer(thermal_app, name="thermal")

RC = "rc"
"""The model that answers about throttling, rest and jobs."""

Records = Annotated[list[Path], typer.Argument(help="Folders that `clockwatt record` wrote.")]


@thermal_app.command("fit", epilog=examples("clockwatt thermal fit records/monday records/tuesday --output thermal"))
def thermal_fit(
    records: Records,
    output: Annotated[Path, typer.Option("--output", help="Folder of the fit.")],
    model: Annotated[
        list[str] | None,
        typer.Option(help="persistence, linear, polynomial, rc, trees, lstm or gru; repeat it."),
    ] = None,
    horizon: Annotated[list[str] | None, typer.Option(help="How far ahead, such as 30s; repeat it.")] = None,
    as_json: AsJson = False,
) -> None:
    """Fit and evaluate models of recorded temperatures."""
    from clockwatt.io.progress import say
    from clockwatt.studies.thermal.fit import Settings, fit_study
    from clockwatt.studies.thermal.inputs import HORIZONS_S
    from clockwatt.studies.thermal.models.registry import MODELS, WITHOUT_TORCH

    unknown = [name for name in model or [] if name not in MODELS]
    if unknown:
        raise ClockwattError(f"--model {unknown[0]}: choose {', '.join(MODELS)}.")
    horizons = tuple(sorted({_seconds("--horizon", text) for text in horizon or []})) or HORIZONS_S
    settings = Settings(models=tuple(dict.fromkeys(model or WITHOUT_TORCH)), horizons_s=horizons)
    result = fit_study(records, output, settings, say=say)
    if as_json:
        print(json.dumps(_fit_as_json(result), indent=2, allow_nan=False))
    else:
        show_fit(result)
        print(f"Models, scores and figures: {output}")


@thermal_app.command(
    "forecast",
    epilog=examples(
        "clockwatt thermal forecast thermal records/today --horizon 5min",
        "clockwatt thermal forecast thermal records/today --throttle-at 87C --rest-to 35C --job 250W",
    ),
)
def thermal_forecast(
    fit: Annotated[Path, typer.Argument(help="Folder that `clockwatt thermal fit` wrote.")],
    record: Annotated[Path, typer.Argument(help="Record to forecast from.")],
    horizon: Annotated[str, typer.Option(help="Forecast horizon: 30s, 5min.")] = "30s",
    model: Annotated[str, typer.Option(help="rc takes any horizon; others those that they were fitted for.")] = RC,
    run: Annotated[str | None, typer.Option(help="Which run, such as run-2; else the last.")] = None,
    at: Annotated[
        str | None, typer.Option(help="Time to forecast from, after the program's start: 60s; else its end.")
    ] = None,
    throttle_at: Annotated[str | None, typer.Option(help="Temperature at which the GPU throttles: 87C.")] = None,
    rest_to: Annotated[str | None, typer.Option(help="Temperature to cool down to: 35C.")] = None,
    job: Annotated[str | None, typer.Option(help="Power of a job (250W): find its coolest GPU.")] = None,
    as_json: AsJson = False,
) -> None:
    """Forecast how warm each GPU of a record gets."""
    from clockwatt.studies.thermal import answers
    from clockwatt.studies.thermal.stored import load_study
    from clockwatt.studies.thermal.traces import read_traces

    horizon_s = _seconds("--horizon", horizon)
    at_s = None if at is None else _seconds("--at", at, least=-math.inf)
    limit_c = None if throttle_at is None else _quantity("--throttle-at", throttle_at, "C", "87C")
    rest_c = None if rest_to is None else _quantity("--rest-to", rest_to, "C", "35C")
    job_w = None if job is None else _quantity("--job", job, "W", "250W")
    study = load_study(fit, only=model)
    chosen = study.fitted[model]
    node = answers.node_at(read_traces([record], step_s=chosen.model.task.step_s).traces, run, at_s)
    forecasts = [answers.forecast(chosen, trace, horizon_s) for trace in node]
    if model != RC and any(each is not None for each in (limit_c, rest_c, job_w)):
        study = load_study(fit, only=RC)  # no other answers the rest
    asked = model == RC or limit_c is not None
    throttling = [answers.time_until_throttling(study, node, t.gpu, limit_c) for t in node] if asked else []
    rests = [] if rest_c is None else [answers.time_of_rest(study, node, trace.gpu, rest_c) for trace in node]
    places = [] if job_w is None else answers.coolest_places(study, node, job_w, horizon_s)
    if as_json:
        content = {
            "virtual": study.virtual or any(trace.virtual for trace in node),
            "forecasts": [each.to_dict() for each in forecasts],
            "throttling": [each.to_dict() for each in throttling], "rest": [each.to_dict() for each in rests],
            "places": [each.to_dict() for each in places],
        }  # fmt: skip
        print(json.dumps(content, indent=2, allow_nan=False))
    else:
        _print_forecast(forecasts, throttling, rests, places, horizon_s)


@thermal_app.command(
    "influence", epilog=examples("clockwatt thermal influence records/monday records/tuesday --output figures")
)
def thermal_influence(
    records: Records,
    permutations: Annotated[int, typer.Option(min=19, help="How many shifts a test draws.")] = 499,
    output: Annotated[Path | None, typer.Option("--output", help="Folder of the figure influence, if wanted.")] = None,
    as_json: AsJson = False,
) -> None:
    """Test which neighbouring GPU and which socket warm which GPU."""
    from clockwatt.studies.thermal.influence import influences, untold
    from clockwatt.studies.thermal.traces import read_traces

    read = read_traces(records)
    table = influences(read.traces, permutations=permutations)
    notes, virtual = untold(read.traces), any(trace.virtual for trace in read.traces)
    if output is not None:
        from clockwatt.studies.thermal.influence_figure import draw_influence

        draw_influence(table, output, virtual=virtual, notes=notes)
    notes += read.notes
    if as_json:
        rows = [{str(key): _known(value) for key, value in row.items()} for row in table.to_dict("records")]
        print(json.dumps({"virtual": virtual, "influences": rows, "notes": notes}, indent=2, allow_nan=False))
        return
    print("What warms which GPU" + (" (VIRTUAL GPUs)" if virtual else ""))
    for row in table.to_dict("records"):
        print(
            f"{row['gpu']} by {row['source']}: {row['effect']:.4f} {row['unit']} (95 %: {row['low']:.4f} … "
            f"{row['high']:.4f}), p {row['p_value']:.3f}, adjusted {row['p_adjusted']:.3f}; at low load "
            f"{row['effect_low_load']:.4f}, at high load {row['effect_high_load']:.4f}, p that they differ "
            f"{row['p_more']:.3f}"
        )
    print(*notes, sep="\n")
    if output is not None:
        print(f"Figure: {output / 'influence.png'}")


def _seconds(option: str, text: str, *, least: float = 0.0) -> float:
    for unit, seconds in (("min", 60.0), ("h", 3600.0), ("s", 1.0), ("", 1.0)):
        number = text.strip().removesuffix(unit).strip()
        if text.strip().endswith(unit) and _is_number(number) and float(number) > least:
            return float(number) * seconds
    raise ClockwattError(f"{option} {text!r}: write a time such as 30s or 5min.")


def _quantity(option: str, text: str, unit: str, example: str) -> float:
    number = text.strip().removesuffix(unit).removesuffix("°").strip()
    if not _is_number(number) or float(number) <= 0:
        raise ClockwattError(f"{option} {text!r}: write a value such as {example}.")
    return float(number)


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _known(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _fit_as_json(result: Result) -> dict[str, Any]:
    rows = [{str(key): _known(value) for key, value in row.items()} for row in result.scores.to_dict("records")]
    return {
        "virtual": result.study.virtual, "records": result.study.records, "scores": rows, "cards": _constants(result),
        "notes": result.study.notes,
    }  # fmt: skip


def _constants(result: Result) -> dict[str, Any]:
    """Constants of each card, with their intervals."""
    from clockwatt.studies.thermal.models.rc import RcNetworks

    fitted = result.study.fitted.get(RcNetworks.name)
    if fitted is None or not isinstance(fitted.model, RcNetworks):
        return {}
    return {
        uuid: {
            name: {"value": value, "interval": network.intervals.get(name)}
            for name, value in network.constants().items()
        }
        for uuid, network in fitted.model.cards_.items()
    }


def show_fit(result: Result) -> None:
    """Print scores, constants and notes of a fit."""
    from rich.console import Console
    from rich.table import Table

    from clockwatt.studies.thermal.evaluation import FLOOR_C, SPLITS

    console = Console()
    virtual = " (VIRTUAL GPUs)" if result.study.virtual else ""
    for split, words in SPLITS.items():
        part = result.scores[result.scores["split"] == split] if len(result.scores) else result.scores
        if part.empty:
            continue
        table = Table(title=f"RMSE in °C, {words}{virtual}")
        horizons = sorted(set(part["horizon_s"]))
        for heading in ("model", "inputs", "load to come", *(f"{horizon:g} s" for horizon in horizons)):
            table.add_column(heading)
        for (name, inputs, load), rows in part.groupby(["model", "inputs", "load"], sort=False):
            told = rows.set_index("horizon_s")["rmse_c"]
            values = (f"{told[horizon]:.2f}" if math.isfinite(told[horizon]) else "–" for horizon in horizons)
            given = ("–", "–") if name == "persistence" else (str(inputs), "known" if load == "known" else "unknown")
            table.add_row(str(name), *given, *values)
        console.print(table)
    console.print(f"Whole degrees alone: {FLOOR_C:.2f} °C.")
    for uuid, constants in _constants(result).items():
        for name, one in constants.items():
            low, high = one["interval"] or (None, None)
            interval = "" if low is None else f"  (95 %: {low:.4g} … {high:.4g})"
            console.print(f"{uuid}  {name} = {one['value']:.4g}{interval}", soft_wrap=True, highlight=False)
    for note in result.study.notes:
        console.print(note, soft_wrap=True)


def _print_forecast(
    forecasts: list[Forecast], throttling: list[Crossing], rests: list[Crossing], places: list[Place], horizon_s: float
) -> None:
    for one in forecasts:
        virtual = " (VIRTUAL)" if one.virtual else ""
        around = "" if one.low_c is None else f" ({one.level:.0%}: {one.low_c:.1f} … {one.high_c:.1f} °C)"
        load = "" if one.load_w is None else f" at an expected {one.load_w:.0f} W"
        print(
            f"{one.gpu}{virtual}: {one.now_c:.0f} °C at {one.power_w:.0f} W; in {one.horizon_s:g} s "
            f"{one.temperature_c:.1f} °C{around}{load}, by {one.model}, given {one.given}"
        )
    for crossing in throttling:
        print(f"{crossing.gpu}: until it throttles: {_told(crossing)}")
    for crossing in rests:
        print(f"{crossing.gpu}: rest until {crossing.limit_c:g} °C: {_told(crossing)}")
    for number, place in enumerate(places, 1):
        busy = ", busy now" if place.busy else ""
        print(
            f"{number}. {place.gpu}: {place.temperature_c:.1f} °C after {horizon_s:g} s, settles at "
            f"{place.settles_at_c:.1f} °C, warmest of the node {place.warmest_c:.1f} °C{busy}"
        )


def _told(crossing: Crossing) -> str:
    time = "unknown" if crossing.limit_c is None else "–" if crossing.time_s is None else f"{crossing.time_s:.0f} s"
    return f"{time}; {crossing.why}" if crossing.time_s is not None or crossing.limit_c is None else crossing.why
