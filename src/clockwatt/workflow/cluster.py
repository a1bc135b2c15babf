"""Query Slurm for the cluster's partitions and GPUs, and for the status of jobs; cancel those of a run."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from clockwatt.errors import ClockwattError
from clockwatt.io.progress import say

SUBMITTED = "CLOCKWATT_SUBMITTED"
"""Environment variable with the file in which `workflow/slurm/submit/sbatch` records the jobs of a run."""
PROCESS = "CLOCKWATT_PROCESS"
"""Environment variable with the number of the process whose end ends the run."""
TIMEOUT_S = 20
SHORTEST_JOB_AGE_S = 120
"""Below this, squeue may forget an ended job before the workflow checks its status."""
_LOOKS_EVERY_S = 5
_SILENT_TIMEOUT_S = 5
_CHANGE_ANSWERS = re.compile(r"(?:SACCT|SCANCEL|SCONTROL|SINFO|SQUEUE)_|SBATCH_(?:ARRAY_INX|WAIT)$")


class SlurmUnavailableError(ClockwattError):
    """Slurm is not installed here, or its controller does not answer."""


@dataclass(frozen=True)
class GpuPartition:
    """GPUs of one type in one partition."""

    partition: str
    gpu_type: str | None  # as in GRES, None where the cluster names no types
    gpus_per_node: int
    cpus: int  # of the smallest such node

    @property
    def gres(self) -> str:
        """GRES that a job requests for one such GPU."""
        return f"gpu:{self.gpu_type}:1" if self.gpu_type else "gpu:1"


@dataclass(frozen=True)
class Node:
    """Resources that a job can get on one kind of node of one partition."""

    partition: str
    is_default: bool  # of the partition
    cpus: int
    memory_mb: int
    gpus: tuple[tuple[str | None, int], ...]  # type and count


@dataclass(frozen=True)
class QueuedJob:
    """A job that Slurm holds: its comment says the rule and wildcards, the reason why it waits, where it runs."""

    state: str
    reason: str
    folder: str
    comment: str


@dataclass(frozen=True)
class JobStatus:
    """Command for the status of ended jobs."""

    accounting: bool
    min_job_age_s: int | None

    @property
    def command(self) -> str | None:
        """`sacct`, `squeue`, or None if neither can be relied on."""
        if self.accounting:
            return "sacct"
        return "squeue" if (self.min_job_age_s or 0) >= SHORTEST_JOB_AGE_S else None


@contextlib.contextmanager
def optional(what: str) -> Iterator[None]:
    """Suppress errors of a Slurm that is not installed; of one that does not answer, print that `what` is unknown."""
    try:
        yield
    except SlurmUnavailableError as error:
        if shutil.which("sinfo") is not None:
            print(f"{what}: unknown. {error}")


def version() -> str:
    """Return Slurm's version.

    Raises
    ------
    SlurmUnavailableError
        If it is not installed.
    """
    return _output(["sbatch", "--version"]).strip()


def gpu_partitions() -> list[GpuPartition]:
    """Return GPU types by partition, each pair once, in Slurm's order.

    Raises
    ------
    SlurmUnavailableError
        If Slurm does not answer.
    """
    fewest: dict[tuple[str, str | None, int], int] = {}
    for partition, cpus, gres in _sinfo("%P", "%c", "%G"):
        for gpu_type, count in parse_gres(gres):
            key = partition.rstrip("*"), gpu_type, count
            fewest[key] = min(int(cpus), fewest.get(key, int(cpus)))
    return [GpuPartition(*key, cpus) for key, cpus in fewest.items()]


def nodes() -> list[Node]:
    """Return the resources of nodes, each kind once per partition.

    Raises
    ------
    SlurmUnavailableError
        If Slurm does not answer.
    """
    found: dict[Node, None] = {}
    for partition, cpus, memory, gres in _sinfo("%P", "%c", "%m", "%G"):
        node = Node(
            partition.rstrip("*"),
            partition.endswith("*"),
            int(cpus.rstrip("+")),
            int(memory.rstrip("+")),
            tuple(parse_gres(gres)),
        )
        found[node] = None
    return list(found)


def _sinfo(*fields: str) -> Iterator[list[str]]:
    """Yield these fields of each node and partition."""
    for line in _output(["sinfo", "--noheader", "--Node", f"--format={'|'.join(fields)}"]).splitlines():
        values = line.strip().split("|", len(fields) - 1)
        if len(values) != len(fields):
            raise SlurmUnavailableError(f"`sinfo` ignores --format: it prints {line!r}. Is another program called so?")
        yield values


def my_jobs() -> list[QueuedJob]:
    """Return the caller's jobs that run or wait.

    Raises
    ------
    SlurmUnavailableError
        If Slurm does not answer.
    """
    listed = _output(["squeue", "--noheader", f"--user={os.getuid()}", "--format=%T|%r|%Z|%k"]).splitlines()
    return [QueuedJob(*line.strip().split("|", 3)) for line in listed]


def job_states(jobs: Iterable[str]) -> dict[str, str]:
    """Return how jobs ended, in a word each, by their numbers.

    Raises
    ------
    SlurmUnavailableError
        If there is no accounting.
    """
    listed = _output(
        ["sacct", "-X", "--noheader", "--parsable2", "--format=JobIDRaw,State", f"--jobs={','.join(jobs)}"]
    )
    pairs = (line.partition("|") for line in listed.splitlines())
    return {job: state.split()[0] for job, _, state in pairs if state}


def end_with(submitted: Path) -> None:
    """Have no job of a run submitted from its first interrupt on, and cancel those that Slurm holds when it exits.

    Parameters
    ----------
    submitted
        Its record of jobs, missing if there were none.
    """

    def end(number: int, frame: FrameType | None) -> None:
        _mark_ended(submitted)
        logging.lastResort = logging.NullHandler()  # refused submissions, once Snakemake has closed its log
        signal.default_int_handler(number, frame)

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not ignored, as in the background of a script
        signal.signal(signal.SIGINT, end)
    atexit.register(cancel_jobs, submitted)


def cancel_jobs(submitted: Path) -> None:
    """Cancel the jobs of a run that Slurm still holds: Snakemake forgets jobs while it asks for their states."""
    _mark_ended(submitted)
    file = submitted.with_name(f"{submitted.name}.name")
    name = file.read_text(encoding="utf-8") if file.exists() else ""
    if not name:  # without one, scancel cancels all jobs of the user
        return
    command = ["scancel", f"--user={os.getuid()}", f"--name={name}"]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # for scancel too
    try:
        _output(command, _SILENT_TIMEOUT_S if _silence(submitted).exists() else TIMEOUT_S)
    except SlurmUnavailableError as error:
        say(f"error: jobs of this run may go on. {error} Once it answers, cancel them: {' '.join(command)}")


def _mark_ended(submitted: Path) -> None:
    with contextlib.suppress(OSError):
        submitted.with_name(f"{submitted.name}.ended").touch()  # for `sbatch` programs


def _silence(submitted: Path) -> Path:
    return submitted.with_name(f"{submitted.name}.unanswered")


def report_silence(submitted: Path, warn: Callable[[str], None]) -> None:
    """Warn when Slurm stops answering the programs in `workflow/slurm`, and when it answers again; never return."""
    note, warned = _silence(submitted), False
    while True:
        said = ""
        with contextlib.suppress(OSError):
            said = note.read_text(encoding="utf-8", errors="replace").rstrip("\n")
        if said and not warned:
            since, command, message = said.split("\t", 2)
            warn(
                f"Slurm has not answered since {since} (`{command}`: {message or 'no message'}). "
                "The run waits, and asks again. To stop it, press Ctrl-C."
            )
        elif warned and not said:
            warn("Slurm answers again.")
        warned = bool(said)
        time.sleep(_LOOKS_EVERY_S)


def parse_gres(gres: str) -> list[tuple[str | None, int]]:
    """Return GPU types and counts in a GRES string such as `gpu:a30:2(S:0-1),gpu:rtx2080ti:1` or `gpu:4`."""
    found: list[tuple[str | None, int]] = []
    for resource in re.sub(r"\([^)]*\)", "", gres).split(","):
        match resource.strip().split(":"):
            case ["gpu", count] if count.isdecimal():
                found.append((None, int(count)))
            case ["gpu", gpu_type, count] if count.isdecimal():
                found.append((gpu_type, int(count)))
    return found


def job_status() -> JobStatus:
    """Return how ended jobs can be asked after on this cluster.

    Raises
    ------
    SlurmUnavailableError
        If Slurm does not answer.
    """
    settings = _output(["scontrol", "show", "config"])
    storage = re.search(r"^AccountingStorageType\s*=\s*(\S+)", settings, re.MULTILINE)
    age = re.search(r"^MinJobAge\s*=\s*(\d+)", settings, re.MULTILINE)
    return JobStatus(
        accounting=storage is not None and storage[1].endswith("slurmdbd"),
        min_job_age_s=int(age[1]) if age is not None else None,
    )


def environment() -> dict[str, str]:
    """Return the environment without a user's settings of what Slurm's programs select, print or wait for."""
    return {name: value for name, value in os.environ.items() if not _CHANGE_ANSWERS.match(name)}


def _output(command: Sequence[str], timeout_s: float = TIMEOUT_S) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_s, check=False, env=environment()
        )
    except FileNotFoundError:
        raise SlurmUnavailableError(f"Slurm is not installed here (no `{command[0]}` in PATH).") from None
    except subprocess.TimeoutExpired:
        raise SlurmUnavailableError(f"Slurm does not answer: `{' '.join(command)}` took over {timeout_s} s.") from None
    if done.returncode != 0:
        complaint = (done.stderr.strip().splitlines() or [""])[-1]
        if "configuration source" in complaint:
            raise SlurmUnavailableError("Slurm finds no slurm.conf. Set SLURM_CONF to its path.")
        said = f"says {complaint!r}" if complaint else f"ended with status {done.returncode}"
        raise SlurmUnavailableError(f"Slurm does not answer: `{' '.join(command)}` {said}.")
    return done.stdout
