"""Find why jobs failed, from Snakemake's log, Slurm's accounting and the disk."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile

from clockwatt.workflow.cluster import SlurmUnavailableError, job_states

_BLOCK = re.compile(
    r"^Error in rule \S+:\n    message: (.*?)\n    jobid: \d+\n(?:    input: [^\n]*\n)?    output: ([^\n]*)"
    r"(?:\n    log: ([^\n]*) \(check log)?",
    re.MULTILINE | re.DOTALL,
)
_SLURM = re.compile(r"SLURM-job '(?P<job>\d+)'.*SLURM status is: '(?P<state>\w+)'", re.DOTALL)
_REFUSED = re.compile(
    r"sbatch failed\. The error message was '(?:sbatch: error: )?(?:Batch job submission failed: )?(?P<why>.*?)'\.? "
    r"sbatch call: sbatch .*? --comment \S+ (?P<asked>.*?) --wrap="
)
_IN_WORDS = {
    "NODE_FAIL": "its node failed",
    "BOOT_FAIL": "its node failed to boot",
    "TIMEOUT": "its time was up: give it a longer runtime",
    "OUT_OF_MEMORY": "it took more memory than it asked for: give it a larger mem_mb",
    "CANCELLED": "it was cancelled",
    "PREEMPTED": "another job preempted it",
}
_IN_SLURM_LOG = {
    "oom-kill event": "OUT_OF_MEMORY",
    "DUE TO TIME LIMIT": "TIMEOUT",
    "DUE TO PREEMPTION": "PREEMPTED",
    "DUE TO NODE FAILURE": "NODE_FAIL",
}
_UNCLEAR = "FAILED", "CANCELLED"
"""States that Slurm or `workflow/slurm` also gives to jobs that ended in a way of `_IN_SLURM_LOG`."""
_NOT_SUBMITTED = "it is not submitted again"  # workflow/slurm/submit/sbatch: it failed before, or did not begin
_PROBE_BYTES = 2**20
_LITTLE_BYTES = 2**26


@dataclass(frozen=True)
class Disk:
    """Result of writing a megabyte into a folder.

    Attributes
    ----------
    problem
        Why nothing more can be written; empty if it can.
    skew_s
        Clock of the file system minus clock of this machine, in seconds.
    """

    problem: str
    skew_s: float


def probe(folder: Path) -> Disk:
    """Write to a folder: a quota is seen in no other way."""
    try:
        with NamedTemporaryFile(dir=folder) as file:
            file.write(os.urandom(_PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())
            skew_s = Path(file.name).stat().st_mtime - time.time()
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return Disk(f"{folder} cannot be written ({error.strerror}): free some space", 0.0)
    return Disk(f"{folder} has {free / 1e6:.0f} MB left: free some space" if free < _LITTLE_BYTES else "", skew_s)


def reported(logs: Iterable[Path]) -> dict[Path, str]:
    """Return the entries of Snakemake's logs on each failed job, by the output files of the job.

    For a job on Slurm, that is the state that `sacct` reports now, or else the one that Snakemake logged. The job's log
    of Slurm is read where this state leaves the reason open.
    """
    blocks: list[tuple[str, str, str]] = []
    for log in logs:
        with contextlib.suppress(OSError):
            blocks += _BLOCK.findall(log.read_text(encoding="utf-8", errors="replace"))
    blocks = [block for block in blocks if _NOT_SUBMITTED not in block[0]]
    states = _states(message for message, _, _ in blocks)
    return {
        Path(name.partition(" (")[0]): _reason(message, states, job_logs)
        for message, output, job_logs in blocks
        for name in output.split(", ")
    }


def _states(messages: Iterable[str]) -> dict[str, str]:
    jobs = {found["job"]: found["state"] for message in messages if (found := _SLURM.search(message))}
    with contextlib.suppress(SlurmUnavailableError):
        return jobs | (job_states(jobs) if jobs else {})
    return jobs


def _reason(message: str, states: dict[str, str], logs: str) -> str:
    found, words = _SLURM.search(message), " ".join(message.split())
    if refused := _REFUSED.search(words):
        asked = re.sub(r"-D \S+ ?", "", refused["asked"])
        return f"sbatch refused it: {refused['why']} ({asked}). Correct slurm or count of this GPU in the campaign."
    if found is None:
        return "" if message == "None" else words
    state = states[found["job"]]
    if state in _UNCLEAR:
        state = _state_in_log(Path(logs.split(", ")[-1])) or state
    return f"{_IN_WORDS.get(state, 'it ended')} (Slurm job {found['job']}: {state})"


def _state_in_log(log: Path) -> str | None:
    """Return the state of a job whose end its node explained in its log."""
    if not log.is_file():
        return None
    text = log.read_text(encoding="utf-8", errors="replace")
    return next((state for words, state in _IN_SLURM_LOG.items() if words in text), None)
