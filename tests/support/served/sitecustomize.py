"""Python reads this at its start where its folder is on PYTHONPATH: a command of clockwatt is handed to a ready Python.

See `support/ready_clockwatt.py`. This process hands over its arguments, environment, folder and open files, then stands
for the one that runs: it passes signals on, and ends as that one ends, which is killed with it.
"""

import contextlib
import os
import sys


def _hand_over(address: str) -> None:
    import json
    import signal
    import socket

    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(address)
    except OSError:  # its tests have ended, or it is another user's
        return
    with os.scandir("/proc/self/fd") as listed:
        files = [int(entry.name) for entry in listed]
    numbers = [file for file in sorted(files) if file != connection.fileno() and _is_open(file)]  # not that of the list
    mask = os.umask(0)
    os.umask(mask)
    order = {
        "executable": sys.executable,
        "arguments": _arguments(),
        "environment": dict(os.environ),
        "cwd": os.getcwd(),  # noqa: PTH109  # pathlib would have to be imported
        "path": sys.path,
        "umask": mask,
        "files": numbers,
    }
    signals = {signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2}
    order["ignored"] = [number for number in signals if signal.getsignal(number) == signal.SIG_IGN]
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)  # until it is known to whom they go
    text = json.dumps(order).encode()
    socket.send_fds(connection, [len(text).to_bytes(8, "little")], numbers)
    connection.sendall(text)
    answers = connection.makefile("r")
    process = int(answers.readline())
    for number in signals - {*order["ignored"]}:
        signal.signal(number, lambda got, _: _pass_on(process, got))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
    code = int(answers.readline() or -signal.SIGKILL)
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _is_open(file: int) -> bool:
    try:
        os.fstat(file)
    except OSError:
        return False
    return True


def _pass_on(process: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # its end is on the way here
        os.kill(process, number)


def _arguments() -> list[str]:
    # multiprocessing repeats -B where the Python that spawns was started with PYTHONDONTWRITEBYTECODE
    return sys.orig_argv[2:] if sys.orig_argv[1:2] == ["-B"] else sys.orig_argv[1:]


def _is_served() -> bool:
    # not what is read before any line of Python, nor a program that is recorded, nor what Slurm limits and watches
    kept = {"LD_PRELOAD", "PYTHONHASHSEED", "PYTHONWARNINGS", "SLURM_JOB_ID"}
    if kept & os.environ.keys() or "clockwatt_injected" in sys.modules:
        return False
    option, what, *_ = [*_arguments(), "", ""]
    own = option == "-m" and what.split(".")[0] in ("clockwatt", "standin_measure")
    return own or (option == "-c" and what.startswith("from multiprocessing.spawn import spawn_main"))


if "READY_CLOCKWATT" in os.environ and _is_served():
    _hand_over(os.environ["READY_CLOCKWATT"])
