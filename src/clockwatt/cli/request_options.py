"""Options of commands that ask predictors: each is a field of a request."""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from clockwatt.cli import app as cli
from clockwatt.cli.options import DEFAULT_CONFIG, MEASURE
from clockwatt.errors import ClockwattError, RequestError
from clockwatt.schema.execution import MODES, PRECISIONS
from clockwatt.schema.optimizers import LOSSES

_CHOICE, _NETWORK, _RUN = "Choice", "Network", "How it runs"
_PARALLEL = "Several GPUs"


def _option(*names: str, help: str, panel: str | None = None, **more: Any) -> Any:  # noqa: A002  # as typer names it
    return typer.Option(*names, help=help, rich_help_panel=panel, show_default=more.pop("show_default", False), **more)


_OPTIONS: dict[str, tuple[Any, Any, str]] = {
    "network": (
        Annotated[
            str | None,
            typer.Argument(help="resnet50, timm:NAME, hf:CONFIG.json, module:callable.", rich_help_panel=_NETWORK),
        ],
        None,
        "network",
    ),
    "inputs": (
        Annotated[
            list[str] | None,
            _option(
                "--input",
                metavar="SHAPE",
                help="32,3,224,224; token ids: [NAME=]8,128:int64:30522.",
                panel=_NETWORK,
            ),
        ],
        None,
        "inputs",
    ),
    "operations": (
        Annotated[
            Path | None,
            _option(help="File of printed modules with shapes, or specs.", panel=_NETWORK),
        ],
        None,
        "operations",
    ),
    "input_dtype": (
        Annotated[str | None, _option(help="float, or int64 for token ids.", hidden=True)],
        None,
        "input_dtype",
    ),
    "input_below": (
        Annotated[int | None, _option(min=1, help="Vocabulary size: token ids are below this.", hidden=True)],
        None,
        "input_below",
    ),
    "assume_branch": (
        Annotated[str | None, _option(help="Outcome of branches on data: true or false.", panel=_NETWORK)],
        None,
        "assume_branch",
    ),
    "cache_length": (
        Annotated[int | None, _option(min=1, help="Decode one step after N tokens (hf: decoders).", panel=_NETWORK)],
        None,
        "cache_length",
    ),
    "gpu": (
        Annotated[list[str] | None, _option("--gpu", help="Label (h200) or product name (NVIDIA H200).", panel=_RUN)],
        None,
        "gpus",
    ),
    "gpus": (
        Annotated[list[str] | None, _option("--gpu", help="Only this GPU; repeat for several.", panel=_RUN)],
        None,
        "gpus",
    ),
    "point": (
        Annotated[
            list[str] | None,
            _option(
                "--point",
                help="SM clock in MHz (sm1440), power limit in W (pl150) …",
                panel=_RUN,
            ),
        ],
        None,
        "points",
    ),
    "points": (
        Annotated[list[str] | None, _option("--point", help="Consider this operating point too.", panel=_RUN)],
        None,
        "points",
    ),
    "pass_": (
        Annotated[str, _option("--pass", help="inference (default) or training.", panel=_RUN)],
        "inference",
        "pass_",
    ),
    "passes": (
        Annotated[str | None, _option("--pass", help="inference or training; else both.", panel=_RUN)],
        None,
        "pass_",
    ),
    "precision": (
        Annotated[
            str | None,
            _option(
                help=f"{', '.join(PRECISIONS)}; append +channels_last, +{', +'.join(MODES[1:])}.",
                panel=_RUN,
            ),
        ],
        None,
        "precision",
    ),
    "precisions": (
        Annotated[
            list[str] | None,
            _option("--precision", help="tf32, bf16-mixed …; repeat for several, or all.", panel=_RUN),
        ],
        None,
        "precisions",
    ),
    "optimizer": (
        Annotated[
            str | None,
            _option(help="Of training: adamw …; else as in the campaign (sgd).", panel=_RUN),
        ],
        None,
        "optimizer",
    ),
    "accumulate": (
        Annotated[int | None, _option(min=1, help="Batches of one training step.", panel=_RUN)],
        None,
        "accumulate",
    ),
    "clip_norm": (
        Annotated[float | None, _option(help="Clip the norm of the gradients to N.", panel=_RUN)],
        None,
        "clip_norm",
    ),
    "loss": (
        Annotated[str | None, _option(help=f"Of training: {', '.join(LOSSES)}.", panel=_RUN)],
        None,
        "loss",
    ),
    "host": (
        Annotated[
            str | None,
            _option(help="Host calibrated with `clockwatt calibrate --host`.", panel=_RUN),
        ],
        None,
        "host",
    ),
    "relative_to": (
        Annotated[
            str | None,
            _option(metavar="GPU", help="Report ratios to this GPU, or GPU@POINT.", panel=_RUN),
        ],
        None,
        "relative_to",
    ),
    "gpus_per_node": (
        Annotated[int | None, _option(min=2, help="Train on N GPUs of one node.", panel=_PARALLEL)],
        None,
        "gpus_per_node",
    ),
    "strategy": (
        Annotated[str | None, _option(help="ddp, fsdp (FSDP2) or pipeline.", panel=_PARALLEL)],
        None,
        "strategy",
    ),
    "counts": (
        Annotated[
            list[int] | None,
            _option(
                "--gpus-per-node", metavar="N", help="Consider training on this many GPUs; repeat.", panel=_PARALLEL
            ),
        ],
        None,
        "counts",
    ),
    "strategies": (
        Annotated[
            list[str] | None,
            _option("--strategy", help="ddp, fsdp (FSDP2) or pipeline; repeat, else all.", panel=_PARALLEL),
        ],
        None,
        "strategies",
    ),
    "links": (
        Annotated[
            str | None,
            _option(help="File of `calibrate --links`, or h100-nvlink.", panel=_PARALLEL),
        ],
        None,
        "links",
    ),
    "stages": (
        Annotated[
            list[str] | None,
            _option("--stage", help="Module where a pipeline stage begins; repeat.", panel=_PARALLEL),
        ],
        None,
        "stages",
    ),
    "microbatches": (
        Annotated[int | None, _option(min=1, help="Parts of a pipeline's batch.", panel=_PARALLEL)],
        None,
        "microbatches",
    ),
    "schedule": (
        Annotated[str | None, _option(help="Order of a pipeline: 1f1b or gpipe.", panel=_PARALLEL)],
        None,
        "schedule",
    ),
    "measure_missing": (
        Annotated[
            str | None,
            _option(help="Measure 20 uncertain operations, for 30s, or to 5%.", metavar="LIMIT", panel=MEASURE),
        ],
        None,
        "measure_missing",
    ),
    "measure_whole": (
        Annotated[bool, _option("--measure-whole", help="Measure the pass itself.", panel=MEASURE)],
        False,
        "measure_whole",
    ),
    "run": (
        Annotated[
            bool,
            _option("--run", help="Run COMMAND at the choice; see --output, --passes.", panel=MEASURE),
        ],
        False,
        "run",
    ),
    "config_file": (
        Annotated[Path, _option("--config", help="Campaign with the settings to measure or run.", panel=MEASURE)],
        DEFAULT_CONFIG,
        "config_file",
    ),
    "store_dir": (
        Annotated[Path | None, _option(help="Store of measurements; else the campaign's.", hidden=True)],
        None,
        "store_dir",
    ),
    "predictors_dir": (
        Annotated[
            Path | None,
            _option(help="Folder of `fit`; else results/predictors or shipped."),
        ],
        None,
        "predictors_dir",
    ),
    "catalogue_dir": (
        Annotated[Path | None, _option(help="Folder of a catalogue; else that of the predictors.", hidden=True)],
        None,
        "catalogue_dir",
    ),
    "validation_dir": (
        Annotated[
            Path | None,
            _option(help="Folder of `validate`; else next to the predictors.", hidden=True),
        ],
        None,
        "validation_dir",
    ),
    "objective": (
        Annotated[str, _option(help="Minimise time, energy or edp (their product).", panel=_CHOICE)],
        "energy",
        "objective",
    ),
    "max_slowdown": (
        Annotated[str | None, _option(help="Allowed against the fastest choice: 10% or 0.1.", panel=_CHOICE)],
        None,
        "max_slowdown",
    ),
    "power_cap": (
        Annotated[float | None, _option(min=1, help="Highest mean power over a pass, in W.", panel=_CHOICE)],
        None,
        "power_cap_w",
    ),
    "request": (
        Annotated[
            str | None,
            _option(help="Whole request as JSON: text, file; -: stdin."),
        ],
        None,
        "",
    ),
}
"""Parameter of a command to its option, its default, and the field of `Request` that it is."""

_SILENCE_S = 2.0
"""After which a command says that it is at work."""

TRAINING = ("optimizer", "accumulate", "clip_norm", "loss")
NETWORK = ("network", "inputs", "operations", "input_dtype", "input_below", "assume_branch", "cache_length")
PARALLEL = ("gpus_per_node", "strategy", "links", "stages", "microbatches", "schedule")
COUNTS = ("counts", "strategies", "links")
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
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            for name, (annotation, default, _) in ((name, _OPTIONS[name]) for name in names)
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
        for name in [name for name, value in given.items() if (value or None) != (_OPTIONS[name][1] or None)]:
            raise RequestError(
                f"{{request}} is the whole request: leave {{{_OPTIONS[name][2]}}} out, or write it there."
            )
        return Request.from_json(_json_text(text))
    if (slowdown := given.get("max_slowdown")) is not None:
        given["max_slowdown"] = parse_slowdown(slowdown)
    fields = {field: given[name] for name in given if (field := _OPTIONS[name][2])}
    return Request.of(**{name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()})


def _json_text(text: str) -> str:
    if text == "-":
        return sys.stdin.read()
    if text.lstrip().startswith("{"):
        return text
    try:
        return Path(text).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise RequestError(f"{{request}} {text}: cannot be read ({error}). Give JSON, or a file of it.") from None


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


def parse_slowdown(text: str) -> float:
    """Read `10%` or `0.1`.

    Raises
    ------
    RequestError
        If it is neither, or a number above 1 without a percent sign, by which percents are meant.
    """
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not value >= 0:
        raise RequestError(f"{{max_slowdown}} {text!r}: write 10% or 0.1.")
    if value > 1 and not text.endswith("%"):
        raise RequestError(
            f"{{max_slowdown}} {text!r}: would be {100 * value:g} %: write {text}%, or a number up to 1."
        )
    return value
