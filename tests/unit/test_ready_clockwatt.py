"""Commands that tests hand to a ready Python: they end as commands of their own would."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

TELL = """
import os, pathlib, sys, time
pathlib.Path(sys.argv[1]).write_text(str(os.getppid()))
time.sleep(float(sys.argv[2]))
"""


def recorder(folder: Path, seconds: float, **environment: str) -> tuple[subprocess.Popen[bytes], Path]:
    """A command whose program tells by which process it was started."""
    told = folder / "told"
    process = subprocess.Popen(
        [sys.executable, "-m", "clockwatt", "record", "--idle-s", "0.3", "--output", folder / "record", "--",
         sys.executable, "-c", TELL, told, str(seconds)],
        env=os.environ | environment,
    )  # fmt: skip
    wait_for(lambda: process.poll() is not None or (told.exists() and told.read_text()))
    return process, told


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 600
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.usefixtures("ready")
def test_what_stands_for_a_command_takes_it_along_when_it_is_killed(tmp_path: Path) -> None:
    process, told = recorder(tmp_path, 60)
    served = int(told.read_text())
    assert served != process.pid
    process.kill()
    assert process.wait() == -signal.SIGKILL
    wait_for(lambda: not Path(f"/proc/{served}").exists())


@pytest.mark.usefixtures("ready")
@pytest.mark.parametrize("said", [b"", b"\x10\0\0", (1000).to_bytes(8, "little"), (1000).to_bytes(8, "little") + b"{"])
def test_who_is_killed_while_it_hands_over_costs_nobody_else(tmp_path: Path, said: bytes) -> None:
    process, told = recorder(tmp_path, 1)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(os.environ["READY_CLOCKWATT"])
        if said:
            connection.sendall(said)
    assert process.wait() == 0
    assert int(told.read_text()) != process.pid
    (tmp_path / "next").mkdir()
    following, _ = recorder(tmp_path / "next", 0)
    assert following.wait() == 0


@pytest.mark.usefixtures("ready")
def test_what_python_reads_before_it_starts_is_heeded(tmp_path: Path) -> None:
    process, told = recorder(tmp_path, 0, PYTHONHASHSEED="1")
    assert process.wait() == 0
    assert int(told.read_text()) == process.pid
