"""`clockwatt recommend`: on which GPU, at which operating point and in which precision a network costs least."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clockwatt.cli.options import AsJson, InSlurmJob, Verbose
from clockwatt.cli.predict import check_measures, loaded, on_demand, on_node
from clockwatt.cli.request_options import COUNTS, FOLDERS, NETWORK, TRAINING, check_folder, request_command
from clockwatt.cli.run_choice import Run, lines_of, run_choice
from clockwatt.errors import RequestError

if TYPE_CHECKING:
    from clockwatt.measure.on_demand import OnDemand
    from clockwatt.predict.all_gpus import AllGpus
    from clockwatt.predict.recommend import Recommendation
    from clockwatt.predict.request import Request


_RecordFolder = Annotated[Path, typer.Option(metavar="DIR", help="Folder of the program's record.", hidden=True)]
_Passes = Annotated[
    int | None,
    typer.Option(min=1, help="Passes that the program computes, to compare.", hidden=True),
]

_Command = Annotated[list[str] | None, typer.Argument(help="The program to run, after --.", hidden=True)]


@request_command(
    *(
        "network",
        "objective",
        "max_slowdown",
        "power_cap",
        "gpus",
        *NETWORK[1:],
        "points",
        "pass_",
        "precisions",
        *TRAINING,
    ),
    *COUNTS,
    *("host", "relative_to", "measure_missing", "run", "config_file", "store_dir", *FOLDERS),
    examples=(
        "clockwatt recommend resnet50 --precision all --max-slowdown 10%",
        "clockwatt recommend vgg16 --pass training --gpus-per-node 2 --links links.json",
        "clockwatt recommend resnet50 --gpu a30 --run -- python train.py",
    ),
)
def recommend(
    request: Request,
    *,
    pareto: Annotated[Path | None, typer.Option(help="Draw time against energy of all candidates (PNG).")] = None,
    slurm: InSlurmJob = False,
    output: _RecordFolder = Path("record"),
    passes: _Passes = None,
    command: _Command = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Find GPU, clock and precision of least cost; run there."""
    from clockwatt.cli import printing

    if pareto is not None and pareto.suffix.lower() != ".png":
        raise RequestError(f"{{pareto}} {pareto}: it is a picture in PNG: give a file ending in .png.")
    check_folder("pareto", pareto)
    program = Run(tuple(command or ()), output, passes, slurm)
    if request.counts and (pareto is not None or slurm or request.run):
        raise RequestError("{pareto}, {run} and {slurm} are for one GPU: leave them out, or {counts}.")
    if request.run:
        program.check(request.config_file)
    elif command:
        raise RequestError(f"{shlex.join(command)}: nothing runs without {{run}}. Write {{run}} before --.")
    elif slurm:
        check_measures(request)
    predictors = loaded(request)
    if request.counts:
        from clockwatt.cli.parallel_text import print_parallel_recommendation
        from clockwatt.predict.parallel.choice import recommend_parallel

        tracer = predictors.tracer.trained(request.training)
        choice = recommend_parallel(predictors, request, predictors.network(request), tracer.trace)
        printing.print_json(choice) if as_json else print_parallel_recommendation(choice)
        return
    if request.measure_missing is None:
        answer, more = predictors.recommendation(request), dict[str, Any]()
    else:
        answer, more = _measured(predictors, request, slurm=slurm)
    status = 0
    if request.run:
        if not as_json:
            printing.print_recommendation(answer, more, verbose=verbose)
            sys.stdout.flush()
        more["run"], status = run_choice(answer.best, program, request.config_file, quiet=as_json)
    if pareto is not None:
        from clockwatt.figures.pareto import draw_pareto

        draw_pareto(answer, pareto)
    if as_json:
        printing.print_json(answer, more)
    elif request.run:
        print("\n".join(lines_of(more["run"])))
    else:
        printing.print_recommendation(answer, more, verbose=verbose)
    if status:
        raise typer.Exit(status)


def _measured(predictors: AllGpus, request: Request, *, slurm: bool) -> tuple[Recommendation, dict[str, Any]]:
    """The choice, measured where it is least certain, and made again."""
    from clockwatt.predict.measure_missing import Stop, choose_measured

    traced = predictors.traced(request)
    on_nodes: dict[str, Any] = {}

    def demand_at(gpu: str, point: str) -> OnDemand:
        demand = on_demand(request, gpu, point, traced, predictors.execution(request, traced))
        if slurm:  # what is measured there is in the store, and found there
            there = request.model_copy(update={"points": (point,)})
            on_nodes[gpu] = json.loads(on_node(there, gpu, ["--json"]))["measured_now"]
        return demand

    assert request.measure_missing is not None
    stop = Stop(operations=0) if slurm else Stop.parse(request.measure_missing)
    answer, now = choose_measured(predictors, traced, stop, demand_at, **predictors.choices(request, traced))
    return answer, {"measured_now": {label: one.to_dict() for label, one in now.items()} | on_nodes}
