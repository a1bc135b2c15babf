"""Shared parts of workloads: options, device, data, cycles and steps as phases, the final line."""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch

import clockwatt
from clockwatt.errors import ClockwattError
from clockwatt.gpu.interface import Gpu, GpuError
from clockwatt.gpu.registry import open_installed, visible_gpus
from clockwatt.studies.options import positive_number, scale_factor
from clockwatt.studies.workloads.data import read_arrays
from clockwatt.studies.workloads.inputs import Array, Size
from clockwatt.telemetry.injected.clockwatt_injected.marks import told

Item = TypeVar("Item")
Figures = dict[str, float]
"""Results of a workload, by name."""
MADE = "made"
"""Value in place of a data folder: the workload generated its data."""

_LOOK_EVERY_S = 1.0
_BLOCK_S = 0.1


@dataclass(frozen=True)
class Workload:
    """A workload of the study.

    Attributes
    ----------
    name
        The name of the workload and of its module.
    title
        What it does, in a line.
    sizes
        Beside these every workload has `cycles`, how often all of it is done.
    arrays
        What it computes on.
    run
        Does it once and says what came out.
    cycles
        As in the study.
    rest_to_c
        Temperature that the GPU rests to between cycles; None: no rest.
    """

    name: str
    title: str
    sizes: tuple[Size, ...]
    arrays: tuple[Array, ...]
    run: Callable[[Session], Figures]
    cycles: int = 1
    rest_to_c: float | None = None


class Session:
    """A workload at work.

    Parameters
    ----------
    workload
        The workload.
    sizes
        By name, `cycles` among them.
    device
        That computes.
    data
        Folder with the user's own arrays; None: they are made.
    seed
        The seed of what is made.
    seconds
        How long it goes on: cycles are repeated or cut short. None: all cycles, once.
    rest_to_c, rest_max_s
        Rest between cycles; None: none.
    now_s
        The clock by which `seconds` and blocks are timed.
    """

    def __init__(
        self, workload: Workload, sizes: Mapping[str, int], device: torch.device, *, data: Path | None = None,
        seed: int = 0, seconds: float | None = None, rest_to_c: float | None = None, rest_max_s: float = 600.0,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self.workload, self.device, self.seconds = workload, device, seconds
        self._rest_to_c, self._rest_max_s = rest_to_c, rest_max_s
        self._now_s = now_s
        self._arrays: dict[str, torch.Tensor] = {}
        self.sizes = dict(sizes)
        self.data = MADE
        if data is not None:
            self._arrays, self.sizes = read_arrays(workload.arrays, workload.sizes, data, sizes)
            self.data = str(data.resolve())
        self.generator = torch.Generator().manual_seed(seed)
        torch.manual_seed(seed)
        self.steps_done = 0
        self._began_s = now_s()

    def size(self, name: str) -> int:
        """Return a size by its name."""
        return self.sizes[name]

    def array(self, name: str, make: Callable[[], torch.Tensor], *, anew: bool = False) -> torch.Tensor:
        """An array on the host: the user's, else what `make` gave the first time, or gives now if it is made `anew`."""
        if name not in self._arrays or (anew and self.data == MADE):
            with clockwatt.phase("make data"):
                self._arrays[name] = make()
        return self._arrays[name]

    def normal(self, *shape: int) -> torch.Tensor:
        """Return the numbers drawn from the standard normal distribution, on the host."""
        return torch.randn(shape, generator=self.generator)

    def uniform(self, low: float, high: float, *shape: int) -> torch.Tensor:
        """Return the numbers drawn evenly between two ends, on the host."""
        return torch.rand(shape, generator=self.generator) * (high - low) + low

    def indices(self, low: int, high: int, *shape: int) -> torch.Tensor:
        """Draw integers from `low` to below `high`, on the host."""
        return torch.randint(low, high, shape, generator=self.generator)

    def to_device(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Copy from the host."""
        with clockwatt.phase("copy"):
            copied = tuple(tensor.to(self.device) for tensor in tensors)
            self.synchronize()
        return copied

    def steps(self, items: Iterable[Item], name: str = "steps") -> Iterator[Item]:
        """Go through items, in blocks; ends early when the time is up.

        A block is a phase, with the number of its first item, and ends when the device has finished. It begins with one
        item and grows until it takes `_BLOCK_S`: marks and waiting cost short steps nothing, and power has readings in
        each phase.
        """
        numbered, most = enumerate(items), 1
        for first, item in numbered:
            began_s, done = self._now_s(), 1
            with clockwatt.phase(name, first):
                yield item
                for _, another in itertools.islice(numbered, most - 1):
                    yield another
                    done += 1
                self.synchronize()
            self.steps_done += done
            if self.time_is_up:
                return
            took_s = self._now_s() - began_s
            most = 2 * most if took_s < _BLOCK_S else max(1, most // 2) if took_s > 4 * _BLOCK_S else most

    @property
    def time_is_up(self) -> bool:
        """Whether `--seconds` have passed."""
        return self.seconds is not None and self._now_s() - self._began_s >= self.seconds

    def synchronize(self) -> None:
        """Wait until the device has finished."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def run(self) -> Figures:
        """Run all cycles of the workload, with rests between; return the result of the last."""
        told("note", text=f"{self.workload.name} on {self.device.type}: {self._in_words()}")
        cycles = range(self.size("cycles")) if self.seconds is None else itertools.count()
        found: Figures = {}
        for cycle in cycles:
            if cycle:
                self._rest(cycle)
            with clockwatt.phase("cycle", cycle):
                found = self.workload.run(self)
                self.synchronize()
            if self.time_is_up:
                break
        return found

    def _in_words(self) -> str:
        data = "data of the study's shapes was made" if self.data == MADE else f"data from {self.data}"
        return f"{data}; {', '.join(f'{name} {value:,}' for name, value in self.sizes.items())}"

    def _rest(self, cycle: int) -> None:
        """Let the GPU cool down, where its temperature can be read."""
        if self._rest_to_c is None or self.device.type != "cuda":
            return
        try:
            gpu = open_installed(visible_gpus()[self.device.index or 0])
        except GpuError as error:
            print(f"No rest between cycles: {error}", file=sys.stderr)
            return
        until_s = time.monotonic() + self._rest_max_s
        with clockwatt.phase("rest", cycle):
            while time.monotonic() < until_s and not self.time_is_up and _warmer(gpu, self._rest_to_c):
                time.sleep(_LOOK_EVERY_S)
        gpu.close()


def main(workload: Workload, arguments: Sequence[str] | None = None) -> int:
    """Run a workload as a program: prints what it did as a line of JSON; the exit status.

    Parameters
    ----------
    workload
        The workload.
    arguments
        The arguments of the command line; None: the program's own.
    """
    given = vars(_parser(workload).parse_args(arguments))
    try:
        device = chosen_device(given["device"])
        sizes = _sizes(workload, given)
        session = Session(
            workload, sizes, device, data=given["data"], seed=given["seed"], seconds=given["seconds"],
            rest_to_c=given["rest_to"], rest_max_s=given["rest_max_s"],
        )  # fmt: skip
        began_s = time.monotonic()
        found = session.run()
    except ClockwattError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except RuntimeError as error:
        if not isinstance(error, torch.OutOfMemoryError) and "allocate memory" not in str(error):
            raise
        print("error: there is too little memory for these sizes: give a smaller --scale.", file=sys.stderr)
        return 1
    told_all = {
        "workload": workload.name, "device": device.type, "data": session.data, "sizes": session.sizes,
        "steps": session.steps_done, "time_s": round(time.monotonic() - began_s, 3), "found": found,
    }  # fmt: skip
    print(json.dumps(told_all))
    return 0


def chosen_device(name: str | None) -> torch.device:
    """Return the device `cuda` or `cpu`; for None a GPU if there is one.

    Raises
    ------
    ClockwattError
        If there is no such device here.
    """
    usable = torch.cuda.is_available()
    if name == "cuda" and not usable:
        raise ClockwattError("--device cuda: PyTorch finds no GPU here. Leave --device out, or give cpu.")
    return torch.device("cuda" if usable and name != "cpu" else "cpu")


def _parser(workload: Workload) -> argparse.ArgumentParser:
    arrays = "; ".join(array.in_words for array in workload.arrays)
    parser = argparse.ArgumentParser(
        prog=f"python -m clockwatt.studies.workloads.{workload.name}", description=workload.title, allow_abbrev=False
    )
    for size in (*workload.sizes, _cycles(workload)):
        scaled = ", scaled" if size.scaled else ""
        parser.add_argument(
            f"--{size.name.replace('_', '-')}", type=int, metavar="N", help=f"{size.meaning} ({size.value:,}{scaled})"
        )
    parser.add_argument("--scale", type=scale_factor, default=1.0, help="factor of the sizes that are scaled (1)")
    parser.add_argument(
        "--seconds", type=positive_number, help="run for this many seconds instead of a number of cycles"
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), help="else the GPU if there is one")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help=f"with {arrays}; else data is made")
    parser.add_argument("--seed", type=int, default=0, help="of what is made (0)")
    rest = "none" if workload.rest_to_c is None else f"{workload.rest_to_c:g}"
    parser.add_argument(
        "--rest-to", type=positive_number, default=workload.rest_to_c, metavar="°C",
        help=f"between cycles let the GPU cool down to this ({rest})",
    )  # fmt: skip
    parser.add_argument("--rest-max-s", type=positive_number, default=600.0, help="longest rest, in s (600)")
    return parser


def _sizes(workload: Workload, given: Mapping[str, int | float | None]) -> dict[str, int]:
    """Return sizes as given, else those of the study, scaled."""
    sizes = {}
    for size in (*workload.sizes, _cycles(workload)):
        value = given[size.name]
        option = f"--{size.name.replace('_', '-')}"
        sizes[size.name] = size.at(given["scale"] or 1.0) if value is None else size.checked(int(value), option)
    return sizes


def _cycles(workload: Workload) -> Size:
    return Size("cycles", workload.cycles, "how often all of it is done", scaled=False)


def _warmer(gpu: Gpu, than_c: float) -> bool:
    try:
        return gpu.temperature_c() > than_c
    except GpuError:
        return False
