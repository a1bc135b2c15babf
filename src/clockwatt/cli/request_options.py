"""Options of commands that ask predictors: each is a field of a request."""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from clockwatt.cli import app as cli
from clockwatt.cli.options import DEFAULT_CONFIG, MEASURE
from clockwatt.errors import ClockwattError, RequestError
from clockwatt.schema.execution import MODES, PRECISIONS
from clockwatt.schema.optimizers import LOSSES

_CHOICE, _NETWORK, _RUN = "Choice", "Network", "How it runs"
_PARALLEL = "Several GPUs"


class _Option(NamedTuple):
    """How typer reads an option, its default, and its field of `Request` if that has another name."""

    annotation: Any
    default: Any = None
    field: str | None = None


def _option(
    kind: Any, *names: str, panel: str | None = None, default: Any = None, field: str | None = None, **how: Any
) -> _Option:
    option = typer.Option(*names, rich_help_panel=panel, show_default=False, **how)
    return _Option(Annotated[kind, option], default, field)


_OPTIONS: dict[str, _Option] = {
    "network": _Option(
        Annotated[
            str | None,
            typer.Argument(help="resnet50, timm:NAME, hf:CONFIG.json, FILE.py:callable.", rich_help_panel=_NETWORK),
        ]
    ),
    "inputs": _option(
        list[str] | None,
        "--input",
        help="32,3,224,224; token ids: 8,128:int64:VOCABULARY.",
        panel=_NETWORK,
        metavar="SHAPE",
    ),
    "operations": _option(Path | None, help="Instead of a network: lines ReLU() 32x64x56x56 ×2.", panel=_NETWORK),
    "input_dtype": _option(str | None, help="float, or int64 for token ids.", hidden=True),
    "input_below": _option(int | None, help="Vocabulary size: token ids are below this.", min=1, hidden=True),
    "assume_branch": _option(str | None, help="Value of data-dependent conditions: true or false.", hidden=True),
    "cache_length": _option(int | None, help="Decode one step after N tokens (hf: decoders).", panel=_NETWORK, min=1),
    "gpu": _option(
        list[str] | None, "--gpu", help="Label (h200) or product name (NVIDIA H200).", panel=_RUN, field="gpus"
    ),
    "gpus": _option(list[str] | None, "--gpu", help="GPU to consider; repeat for several.", panel=_RUN),
    "point": _option(
        list[str] | None,
        "--point",
        help="SM clock in MHz (sm1440), power limit in W (pl150) …",
        panel=_RUN,
        field="points",
    ),
    "points": _option(list[str] | None, "--point", help="Consider this operating point too.", panel=_RUN),
    "pass_": _option(str, "--pass", help="inference (default) or training.", panel=_RUN, default="inference"),
    "passes": _option(str | None, "--pass", help="inference or training; else both.", panel=_RUN, field="pass_"),
    "precision": _option(
        str | None, help=f"{', '.join(PRECISIONS)}; append +channels_last, +{', +'.join(MODES[1:])}.", panel=_RUN
    ),
    "precisions": _option(
        list[str] | None, "--precision", help="tf32, bf16-mixed …; repeat for several, or all.", panel=_RUN
    ),
    "optimizer": _option(str | None, help="Optimizer, or none; default: campaign's or sgd.", panel=_RUN),
    "accumulate": _option(int | None, help="Batches of one training step.", panel=_RUN, min=1),
    "clip_norm": _option(float | None, help="Clip the norm of the gradients to N.", hidden=True),
    "loss": _option(str | None, help=f"Loss of training: {', '.join(LOSSES)}.", panel=_RUN),
    "host": _option(str | None, help="Host calibrated with `clockwatt calibrate --host`.", panel=_RUN),
    "relative_to": _option(str | None, help="Report ratios to this GPU, or GPU@POINT.", panel=_RUN, metavar="GPU"),
    "gpus_per_node": _option(int | None, help="Train on N GPUs of one node.", panel=_PARALLEL, min=2),
    "nodes": _option(int | None, help="Train on N such nodes (ddp, fsdp).", panel=_PARALLEL, min=2),
    "node_links": _option(
        str | None, help="Network of each GPU between nodes: 50GB/s,5us.", panel=_PARALLEL, metavar="LINKS"
    ),
    "strategy": _option(str | None, help="ddp, fsdp (FSDP2) or pipeline.", panel=_PARALLEL),
    "counts": _option(
        list[int] | None,
        "--gpus-per-node",
        help="Consider training on this many GPUs; repeat.",
        panel=_PARALLEL,
        metavar="N",
    ),
    "node_counts": _option(
        list[int] | None, "--nodes", help="Consider N such nodes (ddp, fsdp); repeat.", panel=_PARALLEL, metavar="N"
    ),
    "strategies": _option(
        list[str] | None, "--strategy", help="ddp, fsdp (FSDP2) or pipeline; repeat, else all.", panel=_PARALLEL
    ),
    "links": _option(str | None, help="File of `calibrate --links`, or h100-nvlink.", panel=_PARALLEL),
    "stages": _option(
        list[str] | None, "--stage", help="Module where a pipeline stage begins; repeat.", panel=_PARALLEL
    ),
    "microbatches": _option(int | None, help="Parts of a pipeline's batch.", hidden=True, min=1),
    "schedule": _option(str | None, help="Order of a pipeline: 1f1b or gpipe.", hidden=True),
    "measure_missing": _option(
        str | None,
        help="Measure uncertain operations: 20, 30s or to ±5%.",
        panel=MEASURE,
        metavar="LIMIT",
    ),
    "measure_whole": _option(bool, "--measure-whole", help="Measure the pass itself.", panel=MEASURE, default=False),
    "run": _option(bool, "--run", help="Run COMMAND at the choice, and record it.", panel=MEASURE, default=False),
    "config_file": _option(
        Path, "--config", help="Campaign whose settings are used.", panel=MEASURE, default=DEFAULT_CONFIG
    ),
    "store_dir": _option(Path | None, help="Store of measurements; else the campaign's.", hidden=True),
    "predictors_dir": _option(Path | None, help="Folder of `fit`; else results/predictors or shipped."),
    "catalogue_dir": _option(Path | None, help="Folder of a catalogue; else that of the predictors.", hidden=True),
    "validation_dir": _option(Path | None, help="Folder of `validate`; else next to the predictors.", hidden=True),
    "objective": _option(
        str, help="Minimise energy (default), time, edp (their product).", panel=_CHOICE, default="energy"
    ),
    "max_slowdown": _option(str | None, help="Most extra time over the fastest choice: 10%.", panel=_CHOICE),
    "power_cap": _option(
        float | None, help="Highest mean power over a pass, in W.", panel=_CHOICE, min=1, field="power_cap_w"
    ),
    "request": _option(str | None, help="Request as JSON: its text, a file, or - for stdin."),
}
"""Parameter of a command to its option."""

_SILENCE_S = 2.0
"""After which a command says that it is at work."""

TRAINING = ("optimizer", "accumulate", "clip_norm", "loss")
NETWORK = ("network", "inputs", "operations", "input_dtype", "input_below", "assume_branch", "cache_length")
PARALLEL = ("gpus_per_node", "nodes", "node_links", "strategy", "links", "stages", "microbatches", "schedule")
COUNTS = ("counts", "node_counts", "node_links", "strategies", "links")
FOLDERS = ("predictors_dir", "catalogue_dir", "validation_dir")


def request_command(*names: str, examples: tuple[str, ...]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add a command whose first parameter is a request; the others are further options of its own.

    Parameters
    ----------
    names
        Of `_OPTIONS`, in the order of the help.
    examples
        Command lines for the help.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        further = [
            parameter.replace(annotation=eval(parameter.annotation, command.__globals__))  # noqa: S307  # as typer does
            for parameter in list(inspect.signature(command).parameters.values())[1:]
        ]
        options = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=one.annotation)
            for name, one in ((name, _OPTIONS[name]) for name in names)
        ]

        def run(**given: Any) -> None:
            rest = {one.name: given.pop(one.name) for one in further}
            waiting = threading.Timer(_SILENCE_S, _say_that_it_takes_time)
            waiting.daemon = True
            if sys.stderr.isatty() or not rest.get("as_json"):
                waiting.start()
            try:
                command(_request(given), **rest)
            except RequestError as error:
                raise ClockwattError(error.as_options()) from error
            finally:
                waiting.cancel()

        parameters = [*options, *further]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # which typer reads
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        run.__name__, run.__doc__ = command.__name__, command.__doc__
        cli.app.command(epilog=cli.examples(*examples))(cli.answers_once(run))
        return command

    return decorate


def _say_that_it_takes_time() -> None:
    print("Loading predictors and tracing the network; this can take a minute.", file=sys.stderr, flush=True)


def _request(given: dict[str, Any]) -> Any:
    from clockwatt.predict.request import Request

    if (text := given.pop("request", None)) is not None:
        for name in [name for name, value in given.items() if (value or None) != (_OPTIONS[name].default or None)]:
            raise RequestError(
                f"{{request}} is the whole request: leave {{{_OPTIONS[name].field or name}}} out, or write it there."
            )
        request = Request.from_json(_json_text(text))
        for field in sorted(request.model_fields_set - {_OPTIONS[name].field or name for name in given}):
            raise RequestError(f"{{{field}}} is no option of this command: leave it out of {{request}}.")
        return request
    fields = {_OPTIONS[name].field or name: value for name, value in given.items()}
    return Request.of(**{name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()})


def _json_text(text: str) -> str:
    if text == "-":
        return sys.stdin.read()
    if text.lstrip().startswith("{"):
        return text
    try:
        return Path(text).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise RequestError(
            f"{{request}} {text}: cannot be read ({error}). Give JSON, or a file that contains it."
        ) from None


def check_folder(option: str, file: Path | None) -> None:
    """Refuse a file to write that is a folder, or in one that does not exist.

    Raises
    ------
    RequestError
        Naming the option and the folder.
    """
    if file is not None and not file.absolute().parent.is_dir():
        raise RequestError(f"{{{option}}} {file}: cannot be written (no folder {file.absolute().parent}). Make it.")
    if file is not None and file.is_dir():
        raise RequestError(f"{{{option}}} {file}: is a folder. Name a file in it.")
