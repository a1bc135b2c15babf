"""Calls that run beside each other, each in a process of its own: most of a fit holds the interpreter's lock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from joblib import Parallel, delayed, parallel_config
from joblib.externals.loky.process_executor import TerminatedWorkerError

from clockwatt.errors import ClockwattError
from clockwatt.threads import usable_threads

T = TypeVar("T")

WORTH_ROWS = range(5_000, 500_000)
"""Of fewer rows starting processes costs more than they save; more may not fit into memory beside each other."""


class ProcessEndedError(ClockwattError):
    """A process that did a part of the work was ended."""


def each(function: Callable[..., T], arguments: Sequence[Iterable[Any]], rows: int) -> Iterator[T]:
    """Results of a function for each tuple of arguments, in their order.

    Parameters
    ----------
    function
        Of a module, as are the types of what it takes and gives: they may go to another process.
    arguments
        Of each call.
    rows
        How many there are in all, which decides whether processes are worth it (see `WORTH_ROWS`); they share the
        usable threads.

    Raises
    ------
    ProcessEndedError
        If a process was killed, as by the kernel where memory runs out.
    """
    threads = usable_threads()
    at_once = min(len(arguments), threads)
    if at_once < 2 or rows not in WORTH_ROWS:
        yield from (function(*one) for one in arguments)
        return
    try:
        with parallel_config("loky", inner_max_num_threads=threads // at_once):
            # no memory maps: they would leave files behind if this process was killed
            parallel = Parallel(at_once, return_as="generator", max_nbytes=None, pre_dispatch="all")
            yield from parallel(delayed(function)(*one) for one in arguments)
    except TerminatedWorkerError:
        raise ProcessEndedError(
            "a process that fitted a GPU was ended, as happens where memory runs out. Give the job more, or "
            "let it use one core (`OMP_NUM_THREADS=1`): then they are fitted one after another."
        ) from None
