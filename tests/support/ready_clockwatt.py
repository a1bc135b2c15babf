"""A Python that has imported the libraries of clockwatt, and runs its commands in forks of itself.

    python ready_clockwatt.py SOCKET

Importing PyTorch, scikit-learn and the like is most of what a short job of a workflow takes. A command that is started
as `python -m clockwatt` in an environment from `environment` is handed to such a process by `served/sitecustomize.py`,
and so are the processes that it spawns. Nothing of the project is imported before the fork: what the command says it
is, and its sources, are found on the path of the process that handed it over.

What is not as in a process of its own: libraries are loaded before the environment is known (threads of PyTorch and
BLAS are those of the tests, not of the rule), all of them though the command needs few, with one seed of hashes;
and namespaces and limits are not those of the process that handed it over; and where the process group of that one is
killed, what the command had started lives on. Tests about these don't use it.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import functools
import gc
import importlib
import json
import multiprocessing
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

_LIBRARIES = (
    "concurrent.futures.process", "concurrent.futures.thread", "matplotlib.backends.backend_agg",
    "matplotlib.backends.backend_pdf", "matplotlib.figure", "multiprocessing.pool", "pandas", "psutil",
    "pyarrow.compute", "pyarrow.csv", "pyarrow.parquet", "pydantic", "rich.console", "rich.table", "scipy.optimize",
    "scipy.stats", "sklearn.ensemble", "torch._dynamo", "torch.distributed.fsdp", "torchvision.models", "typer", "yaml",
)  # fmt: skip
OF_RUN = "READY_CLOCKWATT_OF_RUN"
"""Socket of the one that all processes of a test run share."""
_NVML = "libnvidia-ml.so.1"
_SERVED = Path(__file__).with_name("served")
_LENGTH = 8
"""Bytes that say how long an order is."""


def share() -> None:
    """Start one for all processes that run tests, before them: it alone compiles the libraries where nobody has yet."""
    os.environ[OF_RUN] = str(_server())


def environment(*, alone: bool = False) -> dict[str, str]:
    """What to add to the environment of a process, so that commands which it or its children start are served.

    `alone` leaves out where else the tests' own Python looks for modules.
    """
    given = None if alone else os.environ.get("PYTHONPATH")
    path = os.pathsep.join(filter(None, [str(_SERVED), given]))
    return {"READY_CLOCKWATT": str(_server()), "PYTHONPATH": path}


@functools.cache
def _server() -> Path:
    """Socket of that of the run, or else of one that ends with this process: its input ends then."""
    if address := os.environ.get(OF_RUN):
        return Path(address)
    folder = tempfile.TemporaryDirectory(prefix="ready-")
    address = Path(folder.name) / "socket"
    server = subprocess.Popen(
        [sys.executable, __file__, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    assert server.stdout is not None
    assert server.stdout.readline() == b"ready\n"
    atexit.register(_end, server, folder)
    return address


def _end(server: subprocess.Popen[bytes], folder: tempfile.TemporaryDirectory[str]) -> None:
    """End it as the one that has imported Snakemake; with it end commands that nobody waited for."""
    from support.ready_snakemake import end  # the server itself has no such package on its path

    end(server)
    folder.cleanup()


def _serve(address: str) -> NoReturn:
    for name in _LIBRARIES:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # else the first collection in each fork writes to all pages of these libraries
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(address)
    listening.listen(64)
    print("ready", flush=True)
    running: dict[int, _Command] = {}  # by the descriptor of its process, and of its connection
    while True:
        readable, _, _ = select.select([listening, 0, *running], [], [])
        for file in readable:
            if file in running:
                _end_of(running[file], running, left=file == running[file].connection.fileno())
        if listening in readable and (command := _begun(listening.accept()[0])) is not None:
            running |= {command.ended: command, command.connection.fileno(): command}
        if 0 in readable:  # the tests are through
            for command in {*running.values()}:
                _end_of(command, running, left=True)
            _end_with(0)


@dataclass(frozen=True)
class _Command:
    process: int
    ended: int
    connection: socket.socket


def _begun(connection: socket.socket) -> _Command | None:
    """Read an order and run it in a fork; None where who gave it was killed before all of it had come."""
    files: list[int] = []
    try:
        length, files, _, _ = socket.recv_fds(connection, _LENGTH, 250)
        length += _all_of(connection, _LENGTH - len(length))
        order = json.loads(_all_of(connection, int.from_bytes(length, "little")))
    except (OSError, EOFError):
        for file in files:
            os.close(file)
        connection.close()
        return None
    process = os.fork()
    if process == 0:
        _become(order, files)
        _end_with(_run(order["arguments"]))
    for file in files:
        os.close(file)
    with contextlib.suppress(OSError):  # killed meanwhile: its connection has ended, and so will the command
        connection.sendall(f"{process}\n".encode())
    return _Command(process, os.pidfd_open(process), connection)


def _all_of(connection: socket.socket, count: int) -> bytes:
    """So many bytes; EOFError where fewer come."""
    text = b""
    while len(text) < count:
        part = connection.recv(min(count - len(text), 1 << 20))
        if not part:
            raise EOFError
        text += part
    return text


def _end_of(command: _Command, running: dict[int, _Command], *, left: bool) -> None:
    """Tell how a command ended; `left` by the process that stood for it, which was killed, it is killed too."""
    if command.ended not in running:
        return  # both at once
    if left:
        os.kill(command.process, signal.SIGKILL)
    _, status = os.waitpid(command.process, 0)
    with contextlib.suppress(OSError):
        command.connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
    del running[command.ended], running[command.connection.fileno()]
    os.close(command.ended)
    command.connection.close()


def _become(order: dict[str, Any], files: Sequence[int]) -> None:
    """Be what gave the order."""
    os.chdir(order["cwd"])
    os.umask(order["umask"])
    os.environ.clear()
    os.environ.update(order["environment"])
    for folder in os.environ.get("LD_LIBRARY_PATH", "").split(
        os.pathsep
    ):  # the dynamic linker has read that of the server
        if folder and (library := Path(folder, _NVML)).is_file():
            ctypes.CDLL(str(library))  # who asks for it by its name is given the one that is loaded
    aside = [fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, 1000) for file in files]
    os.closerange(0, 1000)
    for number, file in zip(order["files"], aside, strict=True):
        os.dup2(file, number)
        os.close(file)
    for number in order["ignored"]:
        signal.signal(number, signal.SIG_IGN)
    sys.executable = order["executable"]  # that of another environment, which its children are to be of, too
    multiprocessing.set_executable(sys.executable)
    sys.orig_argv[:] = [sys.executable, *order["arguments"]]
    sys.path[:] = ["" if order["arguments"][0] == "-c" else order["cwd"], *order["path"]]


def _run(arguments: list[str]) -> int:
    """What Python does with these arguments, and the status that it ends with."""
    option, what, *rest = arguments
    sys.argv[:] = [option, *rest]
    try:
        if option == "-m":
            runpy.run_module(what, run_name="__main__", alter_sys=True)
        else:
            exec(what, {"__name__": "__main__"})
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return ended.code or 0
        print(ended.code, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        traceback.print_exc()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:  # noqa: BLE001  # as an interpreter does
        traceback.print_exc()
        return 1
    return 0


def _end_with(status: int) -> NoReturn:
    """End as an interpreter does, but for freeing a thousand modules."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(ValueError):  # closed already
            stream.flush()
    os._exit(status & 0xFF)


if __name__ == "__main__":
    _serve(sys.argv[1])
