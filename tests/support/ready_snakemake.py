"""A Python that has imported Snakemake, and runs it in a fork of itself for each order: the import is most of a start.

    python ready_snakemake.py < ORDERS

An order is a line of JSON with the command line's `arguments`, its `environment`, the folder `cwd` and the file
`output`; for each the exit status is printed. Nothing of the project is imported before the fork: a Snakefile brings
its own.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any


def run(arguments: Sequence[str], *, cwd: Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run Snakemake in a folder; standard error goes to standard output."""
    server = _server()
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
    server = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(server.communicate)
    return server


def _serve() -> None:
    from snakemake.cli import main

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
