"""A Python that has imported Snakemake, and runs it in a fork of itself for each order: the import is most of a start.

    python ready_snakemake.py < ORDERS

An order is a line of JSON with the command line's `arguments`, its `environment`, the folder `cwd` and the file
`output`; for each the exit status is printed. Before the fork Snakemake has found its plugins, and
libraries that it, or our Snakefile, imports as it goes have been imported; nothing of the project has: a Snakefile
brings its own.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

_LIBRARIES = (
    "pydantic",
    "rich.console",
    "rich.progress",
    "rich.table",
    "smart_open",
    "snakemake.report",
    "yaml",
    "yte",
)
_one_at_a_time = threading.Lock()


def run(arguments: Sequence[str], *, cwd: Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run Snakemake in a folder; standard error goes to standard output."""
    with _one_at_a_time:
        server = _server()
        try:
            return _ordered(server, arguments, cwd, environment)
        except BaseException:
            # what was ordered ends with the test that waits for it, and what it would have printed with it
            with contextlib.suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGTERM)
            _server.cache_clear()
            raise


def _ordered(
    server: subprocess.Popen[str], arguments: Sequence[str], cwd: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    assert server.stdin is not None
    assert server.stdout is not None
    with NamedTemporaryFile("r", suffix=".log") as output:
        order = {"arguments": [*arguments], "cwd": str(cwd), "environment": dict(environment), "output": output.name}
        server.stdin.write(json.dumps(order) + "\n")
        server.stdin.flush()
        status = int(server.stdout.readline())
        return subprocess.CompletedProcess([*arguments], status, output.read())


@functools.cache
def _server() -> subprocess.Popen[str]:
    """The one of this process, which ends with it: its input ends then."""
    server = subprocess.Popen(
        [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    atexit.register(end, server)
    return server


def end(server: subprocess.Popen[Any]) -> None:
    """End it by ending its input; a process that waits longer is killed."""
    assert server.stdin is not None
    with contextlib.suppress(OSError):
        server.stdin.close()
    try:
        server.wait(timeout=20)
    except subprocess.TimeoutExpired:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def _serve() -> None:
    from snakemake.cli import get_argument_parser, main

    get_argument_parser()  # finds the plugins that are installed, for which it lists all folders of packages
    for name in _LIBRARIES:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # else the first collection in each fork writes to all pages of these libraries
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _become(json.loads(line))
            main()
            sys.exit()
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _become(order: Mapping[str, Any]) -> None:
    """Be what `python -m snakemake` would be there, for an hour at most."""
    signal.alarm(3600)
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["environment"])
    nothing, output = os.open(os.devnull, os.O_RDONLY), os.open(order["output"], os.O_WRONLY | os.O_APPEND)
    for number, file in ((0, nothing), (1, output), (2, output)):
        os.dup2(file, number)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115  # the orders are not its to read
    sys.path[0] = order["cwd"]
    sys.argv[:] = [sys.modules["snakemake"].__path__[0] + "/__main__.py", *order["arguments"]]


if __name__ == "__main__":
    _serve()
