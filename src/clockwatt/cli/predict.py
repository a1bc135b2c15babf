"""`clockwatt predict`: what a pass of a network, or listed operations, cost on a GPU at an operating point."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from clockwatt import config
from clockwatt.cli.options import AsJson, InSlurmJob, Verbose, point_of
from clockwatt.cli.request_options import FOLDERS, NETWORK, PARALLEL, TRAINING, request_command
from clockwatt.errors import RequestError
from clockwatt.schema import layout

if TYPE_CHECKING:
    from clockwatt.config import NetworkConfig
    from clockwatt.measure.on_demand import OnDemand
    from clockwatt.predict.all_gpus import AllGpus
    from clockwatt.predict.answer import Answer
    from clockwatt.predict.measure_missing import MeasuredNow
    from clockwatt.predict.request import Request
    from clockwatt.predict.tracing import TracedNetwork
    from clockwatt.schema.execution import ExecutionSettings


@request_command(
    *("network", "gpu", *NETWORK[1:], "point", "pass_", "precision", *TRAINING, "host", "relative_to"),
    *PARALLEL,
    *("measure_missing", "measure_whole", "config_file", "store_dir", *FOLDERS, "request"),
    examples=(
        "clockwatt predict resnet50 --gpu h200",
        "clockwatt predict vit_b_16 --gpu h200 --pass training --precision bf16-mixed",
        "clockwatt predict my_package.models:build --input 8,128 --gpu h200",
    ),
)
def predict(request: Request, *, slurm: InSlurmJob = False, as_json: AsJson = False, verbose: Verbose = False) -> None:
    """Predict time, power, energy and memory of a network."""
    from clockwatt.cli.answer_text import print_answer
    from clockwatt.cli.printing import print_json

    predictors = loaded(request)
    if slurm:
        check_measures(request)
        print(on_node(request, predictors.only_gpu(request), ["--json"] * as_json + ["--verbose"] * verbose), end="")
        return
    if request.gpus_per_node is not None:
        from clockwatt.cli.parallel_text import print_parallel
        from clockwatt.predict.parallel.answer import ask_parallel

        tracer = predictors.tracer.trained(request.training)
        parallel = ask_parallel(predictors, request, predictors.network(request), tracer.trace)
        print_json(parallel) if as_json else print_parallel(parallel)
        return
    measured_now = None
    if request.measure_missing is None and not request.measure_whole:
        answer = predictors.ask(request)
    else:
        answer, measured_now = measured_answer(predictors, request)
    more = {} if measured_now is None else {"measured_now": measured_now.to_dict()}
    if as_json:
        print_json(answer, more)
    else:
        print_answer(answer, more, verbose=verbose)


def loaded(request: Request) -> AllGpus:
    """Predictors in the folders of a request."""
    from clockwatt.predict.api import load

    return load(request.predictors_dir, catalogue_dir=request.catalogue_dir, validation_dir=request.validation_dir)


def measured_answer(predictors: AllGpus, request: Request) -> tuple[Answer, MeasuredNow]:
    """The answer with what it lacks measured first, and the pass measured whole if the request says so."""
    from clockwatt.predict.answer import Estimate
    from clockwatt.predict.answerer import measured_whole, with_memory
    from clockwatt.predict.measure_missing import Stop, answer_measured

    stop = Stop(operations=0) if request.measure_missing is None else Stop.parse(request.measure_missing)
    gpu = predictors.gpu_at(request)
    traced = predictors.traced(request)
    execution = predictors.execution(request, traced)
    network = predictors.network(request) if request.measure_whole else None
    with on_demand(request, gpu, request.point, traced, execution, network) as demand:
        answer, now = answer_measured(predictors, traced, stop, demand, request.host, whole=bool(request.measure_whole))
        if request.measure_whole:
            whole = demand.measure_whole()
            measured = Estimate(whole["time_s"], whole["power_w"], whole["energy_j"])
            answer = measured_whole(predictors.model(gpu), answer, measured)
    if request.relative_to is not None:
        answer = predictors.compared(answer, request, traced)
    (answer,) = with_memory(traced, answer)
    return answer, now


def on_demand(
    request: Request,
    gpu: str,
    point: str,
    traced: TracedNetwork,
    execution: ExecutionSettings,
    network: NetworkConfig | None = None,
) -> OnDemand:
    """Where a request is measured: the campaign's GPU, into the campaign's store."""
    from clockwatt.measure.on_demand import OnDemand

    campaign = config.load(request.config_file)
    store = request.store_dir or Path(campaign.results_dir) / layout.STORE
    at = point_of(campaign, gpu, point)
    return OnDemand(campaign, gpu, at, traced.network.pass_, execution, store, traced.tables(), network)


def check_measures(request: Request) -> None:
    """Refuse a Slurm job that would measure nothing, or a word that it would refuse once it is its turn."""
    from clockwatt.predict.measure_missing import Stop

    if request.measure_missing is not None:
        Stop.parse(request.measure_missing)
    elif not request.measure_whole:
        raise RequestError("{slurm} needs a measurement: give {measure_missing} (20, 30s or 5%) too.")


def on_node(request: Request, gpu: str, options: list[str]) -> str:
    """What `clockwatt predict` prints for a request in a Slurm job on a node with the GPU."""
    from clockwatt.workflow.one_job import run_on_node

    campaign = config.load(request.config_file)
    point_of(campaign, gpu, request.point)
    asked = request.model_copy(update={"gpus": (gpu,)}).model_dump_json(exclude_defaults=True)
    command = [sys.executable, "-m", "clockwatt", "predict", "--request", "-", *options]
    return run_on_node(campaign.gpu(gpu), command, asked)
