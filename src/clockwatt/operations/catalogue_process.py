"""Write a campaign's catalogue in a process of its own, which a network's code may end.

The process that waits for it holds no PyTorch, names the network, and has the others traced.
"""

from __future__ import annotations

import contextlib
import signal
from multiprocessing.connection import Connection
from pathlib import Path

from clockwatt.config import CampaignConfig
from clockwatt.errors import ClockwattError, NetworkError
from clockwatt.threads import start_method


def write_catalogue_apart(config: CampaignConfig, output_dir: Path) -> None:
    """Call `write_catalogue` in another process, and again without each network that ends it.

    Raises
    ------
    NetworkError
        Naming every network that cannot be found, built or traced; nothing is written.
    OutputError
        If a file cannot be written.
    """
    ended: dict[str, str] = {}
    while True:
        here, there = start_method().Pipe(duplex=False)
        process = start_method().Process(target=_write, args=(config, output_dir, ended, there))
        process.start()
        there.close()
        network, outcome = "", None
        try:
            with contextlib.suppress(EOFError):
                while isinstance(outcome := here.recv(), str):
                    network = outcome
            process.join()
        finally:
            process.terminate()
        if isinstance(outcome, ClockwattError):
            raise outcome
        if outcome is True:
            return
        how = _how(process.exitcode or 0)
        if not network or network in ended:
            raise NetworkError(f"catalogue: the tracing process ended: {how}. Try again.")
        ended[network] = f"network {network}: ends the process that traces it ({how}). Correct it, or leave it out."


def _write(config: CampaignConfig, output_dir: Path, ended: dict[str, str], there: Connection) -> None:
    """Send each network as it is begun, then True or the error."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    from clockwatt.operations.catalogue import write_catalogue

    try:
        write_catalogue(config, output_dir, ended, there.send)
        there.send(True)
    except ClockwattError as error:
        there.send(error)


def _how(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    memory = ", perhaps for lack of memory" if -code == signal.SIGKILL else ""
    return f"signal {signal.Signals(-code).name}{memory}"
