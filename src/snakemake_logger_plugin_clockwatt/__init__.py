"""A logger of Snakemake for people: a line for each finished job, a bar with the time left, failures in full.

`logger: clockwatt` in a profile, or `snakemake --logger clockwatt`, chooses it. Everything else that Snakemake says of
jobs, such as names of files and resources, is in the log that it writes to `.snakemake/log`.
"""

from __future__ import annotations

import re
import time
from datetime import timedelta
from logging import INFO, WARNING, LogRecord
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text
from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

_NOT_SHOWN = re.compile(
    "Assuming unrestricted|Building DAG|Using shell|host:|Conda environments: ignored|Select jobs|Execute [0-9]+ jobs|"
    "Storing output|SLURM run ID|Job [0-9]+ has been submitted|Some jobs were triggered by provenance|"
    "Rules with provenance triggered|Removing output files of failed job|"
    "Shutting down, this might|Exiting because a job|Elapsed time"
)
_FAILED_COMMAND = "\nCalledProcessError in file"  # its job is shown as failed, with its log
_CANCELLED = "SLURM status is: 'CANCELLED'"
_REFUSED = "was cancelled: it is not submitted again"  # workflow/slurm/submit/sbatch, at each retry


class _TimeLeft(ProgressColumn):
    """At the rate of the whole run: jobs take minutes, and Rich forgets a rate after seconds."""

    def render(self, task: Task) -> Text:
        if not task.completed or task.total is None:
            return Text("")
        left_s = (task.elapsed or 0.0) * (task.total - task.completed) / task.completed
        return Text(f"about {timedelta(seconds=round(left_s))} left", style="progress.remaining")


class LogHandler(LogHandlerBase):
    """Writes to standard error; a bar only where that is a terminal."""

    def __post_init__(self) -> None:
        self._console = Console(stderr=True, highlight=False, soft_wrap=True, no_color=self.common_settings.nocolor)
        self._jobs: dict[int, tuple[str, float]] = {}  # name, and when it began, by number
        self._cancelled: set[str] = set()  # what Snakemake says before it tries such a job again
        self._bar = Progress(
            BarColumn(), MofNCompleteColumn(), TextColumn("jobs,"), TimeElapsedColumn(), _TimeLeft(),
            console=self._console, transient=True, refresh_per_second=1,
        )  # fmt: skip
        self._task = self._bar.add_task("", start=False)

    writes_to_stream = True
    writes_to_file = False
    has_filter = True
    has_formatter = True
    needs_rulegraph = False

    def emit(self, record: LogRecord) -> None:
        """Show a record, or leave it to the log."""
        event = getattr(record, "event", None)
        shows = {
            LogEvent.RUN_INFO: self._show_jobs,
            LogEvent.JOB_INFO: self._note_job,
            LogEvent.JOB_FINISHED: self._show_finished,
            LogEvent.JOB_ERROR: self._show_failed,
            LogEvent.PROGRESS: self._advance,
            LogEvent.ERROR: self._show_message,
        }
        if event in shows:
            shows[event](record)
        elif event is None and record.levelno >= INFO and not _NOT_SHOWN.match(record.getMessage()):
            self._show_message(record)

    def close(self) -> None:
        """Remove the bar."""
        self._bar.stop()
        super().close()

    def _print(self, text: str, style: str = "") -> None:
        self._console.print(Text(text, style))

    def _show_message(self, record: LogRecord) -> None:
        said = record.getMessage()
        if said and _FAILED_COMMAND not in said and _REFUSED not in said and said not in self._cancelled:
            self._print(said, "yellow" if record.levelno >= WARNING else "")

    def _show_jobs(self, record: LogRecord) -> None:
        self._show_message(record)
        if self._console.is_terminal and not self.common_settings.dryrun:
            self._bar.update(self._task, total=record.stats["total"])  # type: ignore[attr-defined]
            self._bar.start_task(self._task)
            self._bar.start()

    def _note_job(self, record: LogRecord) -> None:
        job: Any = record
        name = " ".join([job.rule_name, *map(str, (job.wildcards or {}).values())])
        self._jobs[job.jobid] = name, time.monotonic()
        if self.common_settings.dryrun:
            self._print(name)

    def _show_finished(self, record: LogRecord) -> None:
        name, began_s = self._jobs.get(getattr(record, "job_id", -1), (record.getMessage(), time.monotonic()))
        self._print(f"{_now()}  {name} done in {timedelta(seconds=round(time.monotonic() - began_s))}")

    def _show_failed(self, record: LogRecord) -> None:
        job: Any = record
        name, _ = self._jobs.get(job.jobid, (job.rule_name, 0.0))
        message = job.rule_msg or ""
        if _REFUSED in message:  # its end has been shown
            return
        if _CANCELLED in message:
            self._cancelled.add(f"Trying to restart job {job.jobid}.")
            message += " The next run submits it again."
        lines = [f"{_now()}  {name} failed{f': {message}' if message else ''}"]
        for log in job.log:
            lines += [f"  {log}:", *(_content(Path(str(log))) if self.common_settings.show_failed_logs else ())]
        self._print("\n".join(lines), "red")

    def _advance(self, record: LogRecord) -> None:
        job: Any = record
        self._bar.update(self._task, completed=job.done, total=job.total)
        if job.done == job.total:
            self._bar.stop()


def _now() -> str:
    return time.strftime("%H:%M:%S")


def _content(log: Path) -> list[str]:
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines() or ["(empty)"]
    except OSError as error:
        lines = [f"({error.strerror})"]
    return [f"  | {line}" for line in lines]
