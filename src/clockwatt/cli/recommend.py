"""`clockwatt recommend`: on which GPU, at which operating point and in which precision a network costs least.

With `--run` a program runs there, recorded, and is compared with what was predicted.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clockwatt import config
from clockwatt.cli.options import AsJson, InSlurmJob, Verbose
from clockwatt.cli.predict import check_measures, loaded, on_demand, on_node
from clockwatt.cli.request_options import COUNTS, FOLDERS, NETWORK, TRAINING, check_folder, request_command
from clockwatt.config import GpuConfig
from clockwatt.errors import ClockwattError, DataFileError, RequestError
from clockwatt.gpu.specs import VIRTUAL_DEVICE

if TYPE_CHECKING:
    from clockwatt.measure.on_demand import OnDemand
    from clockwatt.predict.all_gpus import AllGpus
    from clockwatt.predict.answer import Answer
    from clockwatt.predict.recommend import Recommendation
    from clockwatt.predict.request import Request


_RecordFolder = Annotated[Path, typer.Option(metavar="DIR", help="Folder of the program's record.", hidden=True)]
_Passes = Annotated[int | None, typer.Option(min=1, help="Passes that the program computes, to compare.", hidden=True)]
_Command = Annotated[list[str] | None, typer.Argument(help="The program to run, after --.", hidden=True)]


@request_command(
    *("network", "objective", "max_slowdown", "power_cap", "gpus", *NETWORK[1:], "points", "pass_", "precisions"),
    *(*TRAINING, *COUNTS, "host", "relative_to", "measure_missing", "run", "config_file", "store_dir", *FOLDERS),
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
    """Find the best GPU, clock and precision for a network."""
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
    answer, now = choose_measured(predictors, request, traced, stop, demand_at)
    return answer, {"measured_now": {label: one.to_dict() for label, one in now.items()} | on_nodes}


@dataclass(frozen=True)
class Run:
    """A program, and how it runs.

    Attributes
    ----------
    command
        The program and its arguments.
    folder
        Of its record.
    passes
        How many passes of the network the program computes; None if unknown.
    slurm
        Whether it is submitted as a Slurm job on a node with the GPU, with the resources of the campaign.
    """

    command: tuple[str, ...]
    folder: Path
    passes: int | None = None
    slurm: bool = False

    def check(self, config_file: Path) -> None:
        """Refuse a run that would fail after the choice was made.

        Raises
        ------
        RequestError
            If there is no program, the folder has content, or this is a job.
        ConfigError
            If the campaign cannot be read.
        ClockwattError
            If no program has this name here, or Slurm is not installed.
        """
        if not self.command:
            raise RequestError("{run} needs a program: write it after --, as in --run -- python train.py.")
        if self.folder.exists() and (not self.folder.is_dir() or any(self.folder.iterdir())):
            raise RequestError(f"{{output}} {self.folder}: exists already. Choose another folder for the record.")
        if self.slurm and "SLURM_JOB_ID" in os.environ:
            raise RequestError("{slurm}: this is a Slurm job already. Leave {slurm} out to run on its own GPU.")
        if self.slurm and shutil.which("srun") is None:
            raise ClockwattError(
                "--slurm: Slurm is not installed here (no `srun` in PATH). Ask on a machine that submits jobs."
            )
        if not self.slurm:  # on the node there may be others
            from clockwatt.telemetry.recording.program import check_program

            check_program(list(self.command))
        config.load(config_file)


def run_choice(best: Answer, run: Run, config_file: Path, *, quiet: bool) -> tuple[dict[str, Any], int]:
    """Run a program at a choice, and return what was predicted beside what it took, and its exit status.

    Parameters
    ----------
    best
        The choice.
    run
        The program.
    config_file
        The campaign, which names the GPU, how its clock is set, and what its jobs ask Slurm for.
    quiet
        Whether the program's standard output goes to standard error.

    Raises
    ------
    ConfigError
        If the campaign lacks the GPU.
    ClockwattError
        If this machine lacks it, or the program could not be recorded.
    """
    gpu = config.load(config_file).gpu(best.gpu)
    command = [
        *(sys.executable, "-m", "clockwatt", "record", "--output", str(run.folder), "--point", best.point),
        *("--method", gpu.control.method),
        *([] if run.slurm and gpu.virtual_model is None else ["--gpu", _here(gpu, best.gpu)]),
        *("--", *run.command),
    ]
    if run.slurm:
        from clockwatt.workflow.one_job import srun_command

        command = srun_command(gpu, command)
    status = _status(subprocess.Popen(command, stdout=sys.stderr if quiet else None))
    return _beside(best, run, _summary(run.folder, status)), status


def _status(process: subprocess.Popen[bytes]) -> int:
    """Return the exit status of what records, which is never killed: it gives the clock back."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches it and the program, too
    try:
        return process.wait()
    finally:
        process.terminate()
        process.wait()
        signal.signal(signal.SIGINT, before)


def _here(gpu: GpuConfig, label: str) -> str:
    """Return the GPU of this machine that a program computes on, for `record`; it must be the one that was chosen."""
    if gpu.device.startswith(VIRTUAL_DEVICE):
        return gpu.device
    from clockwatt.gpu.interface import GpuError
    from clockwatt.gpu.registry import visible_gpus

    try:
        visible = visible_gpus()
    except GpuError:
        visible = []
    if visible and visible[0].name == gpu.device:
        return visible[0].uuid
    there = visible[0].name if visible else "no GPU"
    raise ClockwattError(
        f"--run: {label} was chosen, which is {gpu.device}, and a program started here computes on {there}. Add "
        "--slurm, or --gpu with the label of the GPU here."
    )


def _summary(folder: Path, status: int) -> dict[str, Any]:
    path = folder / "summary.json"
    try:
        summary: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SystemExit(status or 1) from None  # why has been said on standard error
    except (OSError, ValueError) as error:
        raise DataFileError(f"{path}: cannot be read ({error}). Run the program again.") from None
    return summary


def _beside(best: Answer, run: Run, summary: dict[str, Any]) -> dict[str, Any]:
    """Return a choice's estimate of a pass, and time, energy and mean power of the recorded program."""
    (only,) = summary["runs"]
    gpus = list(only["gpus"].values())
    energies = [told["energy_counter_j"] or told["energy_integrated_j"] for told in gpus]
    powers = [told["power_mean_w"] for told in gpus]
    took: dict[str, float | None] = {
        "time_s": only["time_s"],
        "energy_j": sum(energies) if energies and all(energies) else None,
        "power_w": sum(powers) if powers and None not in powers else None,
    }
    passes = run.passes or 1
    predicted = {
        "time_s": passes * best.time_s,
        "energy_j": None if best.energy_j is None else passes * best.energy_j,
        "power_w": best.power_w,
    }
    return {
        "gpu": best.gpu, "point": best.point, "virtual": summary["virtual"], "record": str(run.folder),
        "status": only["status"], "passes": run.passes, "predicted": predicted, "took": took,
    }  # fmt: skip


def lines_of(told: dict[str, Any]) -> Sequence[str]:
    """Return what a run took beside what was predicted, as lines of text."""
    from clockwatt.cli.printing import quantity

    of = "a pass" if told["passes"] is None else f"{told['passes']} passes"
    where = f"{told['gpu']} at {told['point']}{' (VIRTUAL)' * told['virtual']}; record in {told['record']}"
    failed = f"; it ended with status {told['status']}, so times do not compare" if told["status"] else ""
    lines = [f"Ran on {where}{failed}:"]
    for name, words, unit in (("time_s", "time", "s"), ("energy_j", "energy", "J"), ("power_w", "mean power", "W")):
        predicted, took = told["predicted"][name], told["took"][name]
        known = took is not None and predicted and not told["status"]
        comparable = known and (told["passes"] is not None or name == "power_w")
        off = f", {took / predicted - 1:+.0%} from the prediction" if comparable else ""
        lines.append(f"  {words}: {quantity(took, unit)}; predicted for {of}: {quantity(predicted, unit)}{off}")
    return lines
