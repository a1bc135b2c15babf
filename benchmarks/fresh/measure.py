"""Measure the fresh set whole on a GPU: one row for each pass, each in a closed file at once: a kill loses one pass.

    PYTHONPATH=src python3 benchmarks/fresh/measure.py --day 3 --output DIR [--seconds 330] [--part K/N] [--window 1.0]
    PYTHONPATH=src python3 benchmarks/fresh/measure.py --day 3 --output DIR --profile [--seconds 90] [--part K/N]

Days 1 and 2 measure their parts of the first set, day 3 all of it; each later set has a day of its own (`draw.SETS`).
Run it again with the same `--output` and it goes on where it stopped. With `--part K/N` several GPUs of one machine
share the passes, the K-th GPU taking the K-th part. Anchors and idle power come first, in between and last.
Nothing is locked: the card runs as it comes.

Device time is that of passes queued behind a blocking kernel. Where the launch queue is too short for a pass, or the
pass waits for the device, `--profile` adds the time of its kernels as the profiler sees them, and the same of every
fifth of the others, from which scoring learns the gaps between kernels. It runs in a process of its own, later, since
a profiler that was on once may slow every launch after it. Host time is that of issuing a pass while nothing blocked:
queued, or with the device idle at the end, which shows that the host was the slower one (`host_method`). Beside each
pass stands the speed of the core at that moment: the time of a loop of plain Python, before and after (`core_loop_s`).
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import hashlib
import importlib.metadata
import json
import os
import platform
import random
import socket
import statistics
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from clockwatt.schema.execution import FP32, TF32, ExecutionSettings

sys.path.insert(
    0, str(Path(__file__).parents[2])
)  # the networks of the set are imported by their place in the checkout

HERE = Path(__file__).parent
POINT = "default"
WHOLE_SET = 3
"""The day on which one machine measures all passes of the first set."""
_FOLDERS = {4: HERE / "second", 5: HERE / "third", 6: HERE / "fourth", 7: HERE / "fifth", 8: HERE / "sixth",
            9: HERE / "seventh", 10: HERE / "eighth", 12: HERE / "ninth", 13: HERE / "tenth",
            14: HERE / "eleventh", 15: HERE / "twelfth",
            17: HERE / "thirteenth", 18: HERE / "fourteenth", 19: HERE / "fifteenth"}  # fmt: skip
"""Of sets that have a day of their own, as in `draw.SETS`."""
PROFILE = "profile"
"""Kind of the rows that say what the profiler saw."""
_CHECK_EVERY_S = 120.0
_IDLE_S = 2.0
_LAST_S = 14.0
"""What the anchors and idle power at the end take, kept back from the time there is."""
_KERNEL_NAMES = 24
_LOOPS = 30
_PROFILED_SHARE = 5
"""Of the passes with a device time, every so many-th is profiled, too."""
_IDLE_AT_THE_END = 0.03
"""Share of a pass that the device may still work after all is issued, for the host to be the slower one."""


def passes_of(day: int, path: Path | None = None) -> list[dict[str, Any]]:
    """The passes of a day, in an order that the seed decides, so that any first part of them is a fair sample."""
    path = path or _FOLDERS.get(day, HERE) / "passes.json"
    chosen = [one for one in json.loads(path.read_text()) if day in one["days"] or day == WHOLE_SET]
    random.Random(f"fresh/{day}").shuffle(chosen)
    return chosen


def campaign_of(passes: list[dict[str, Any]], device: str, window_s: float) -> Any:
    """A campaign of these networks, measured quickly."""
    from clockwatt import config
    from clockwatt.config import NetworkConfig

    networks = {NetworkConfig.model_validate(one["network"]).network_id: one["network"] for one in passes}
    measurement = {"warm_up_min_s": 0.2, "warm_up_max_s": 0.4, "window_min_s": window_s, "window_max_s": window_s,
                   "idle_s": _IDLE_S}  # fmt: skip
    return config.parse({
        "campaign": "fresh",
        "gpus": {"fresh": {"device": device, "precision": ["tf32", "fp32"], "control": {"method": "none"}}},
        "networks": list(networks.values()), "measurement": measurement,
    })  # fmt: skip


@dataclass
class Profile:
    """What the profiler and a run on an idle device saw of a workload."""

    kernels: int | None = None
    kernels_s: float | None = None
    issue_s: float | None = None
    alone_s: float | None = None
    names: str | None = None


@dataclass
class Probe:
    """The profile of the workload opened last."""

    profile: Profile = field(default_factory=Profile)


def make_bench(gpu: Any, logger: Any, specs: dict[str, str], campaign: Any, probe: Probe) -> Any:
    """The project's bench for CUDA, which also runs every network that it opens on an idle device."""
    import torch

    from clockwatt.measure.bench.cuda import CudaBench
    from clockwatt.schema.records import NETWORK

    class FreshBench(CudaBench):
        """Also runs every network that it opens alone."""

        @contextlib.contextmanager
        def open(self, subject: Any) -> Iterator[Any]:
            """See `Bench.open`."""
            probe.profile = Profile()
            with super().open(subject) as workload:
                if subject.kind == NETWORK:
                    probe.profile = run_alone(workload, torch)
                yield workload

    return FreshBench(gpu, logger, specs, campaign)


def run_alone(workload: Any, torch: Any) -> Profile:
    """Issue a pass on an idle device, three times; the one between the others counts."""
    runs = []
    for _ in range(3):
        torch.cuda.synchronize()
        start = time.perf_counter()
        workload.issue(1)
        issued = time.perf_counter()
        torch.cuda.synchronize()
        runs.append((issued - start, time.perf_counter() - start))
    issue_s, alone_s = sorted(runs)[1]
    return Profile(issue_s=issue_s, alone_s=alone_s)


def core_loops() -> list[float]:
    """Return times in s of a loop of plain Python, some in a row."""
    from benchmarks.host_noise import core_loop

    return [core_loop() for _ in range(_LOOPS)]


def profile_kernels(workload: Any, torch: Any) -> Profile:
    """Issue a pass under the profiler, the second of two."""
    profile = Profile()
    for _ in range(2):
        torch.cuda.synchronize()
        with torch.autograd.profiler.profile(use_cpu=False, use_device="cuda", use_kineto=True) as profiler:
            workload.issue(1)
            torch.cuda.synchronize()
    events = profiler.kineto_results.events()
    kernels = [(event.name(), event.duration_ns()) for event in events if is_work(event)]
    profile.kernels, profile.kernels_s = len(kernels), sum(ns for _, ns in kernels) / 1e9
    spent: Counter[str] = Counter()
    for name, ns in kernels:
        spent[name[:120]] += ns
    profile.names = json.dumps({name: round(ns / 1e9, 9) for name, ns in spent.most_common(_KERNEL_NAMES)})
    return profile


def is_work(event: Any) -> bool:
    """Whether an event of the profiler is a kernel, a copy or a fill on the device."""
    return str(event.device_type()).endswith("CUDA") and event.duration_ns() > 0 and "Sync" not in event.name()


def extra_columns(row: Any, profile: Profile) -> dict[str, Any]:
    """What a row says beside what every measurement says."""
    queued = row.time_device_s is not None
    unblocked = (
        profile.issue_s is not None and profile.alone_s is not None
        and profile.alone_s - profile.issue_s < _IDLE_AT_THE_END * profile.alone_s
    )  # fmt: skip
    return {
        "issue_alone_s": profile.issue_s, "time_alone_s": profile.alone_s,
        "device_method": "queued" if queued else None,
        "host_method": "queued" if row.time_host_s is not None else "unblocked" if unblocked else None,
    }  # fmt: skip


def versions() -> str:
    """Versions of the libraries that networks come from, as JSON."""
    found = {}
    for name in ("torch", "torchvision", "transformers", "timm", "numpy"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return json.dumps(found)


def hashed(text: str) -> str:
    """Tells machines and cards apart without naming them."""
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def cpu_model() -> str:
    """Name of the processor."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.is_file() else []
    return next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor()
    )


class Output:
    """Rows in one Parquet file of this process, written anew with each row and renamed when it is whole."""

    def __init__(self, folder: Path, what: str) -> None:
        self._folder = folder
        self._path = folder / f"{what}-{time.time_ns() // 1_000_000}-{os.getpid()}.parquet"
        self._tables: list[Any] = []
        folder.mkdir(parents=True, exist_ok=True)

    def rows(self, kind: str) -> list[dict[str, Any]]:
        """What all processes have written of a kind of rows."""
        import pyarrow.parquet as pq

        from clockwatt.io.former_settings import with_settings

        columns = ["kind", "subject_id", "pass", "execution", "status", "time_device_s"]
        tables = [with_settings(pq.read_table(path)).select(columns) for path in sorted(self._folder.glob("*.parquet"))]
        return [row for table in tables for row in table.to_pylist() if row["kind"] == kind]

    def add(self, row: Any, more: dict[str, Any]) -> None:
        """Write one more row."""
        import pyarrow as pa

        from clockwatt.io import files
        from clockwatt.schema.records import MEASUREMENT_SCHEMA, table_of

        table = table_of([row], MEASUREMENT_SCHEMA)
        for name, kind in EXTRA.items():
            table = table.append_column(pa.field(name, kind()), pa.array([more.get(name)], kind()))
        self._tables.append(table)
        files.write_table(pa.concat_tables(self._tables).combine_chunks(), self._path)


def _execution_of(entry: dict[str, Any]) -> ExecutionSettings:
    from benchmarks.fresh.draw import execution_of

    return execution_of(entry)


def key(row: dict[str, Any]) -> tuple[str, str, str]:
    """What tells passes apart."""
    return row["subject_id"], row["pass"], row["execution"]


def _extra() -> dict[str, Any]:
    import pyarrow as pa

    texts = ("network_kind", "network_name", "days", "kernel_names", "device_method", "host_method",
             "versions", "network")  # fmt: skip
    numbers = ("kernels_s", "issue_alone_s", "time_alone_s", "estimate_s", "core_loop_s")
    return {
        **dict.fromkeys(texts, pa.string),
        **dict.fromkeys(numbers, pa.float64),
        "kernels": pa.int64,
        "day": pa.int64,
    }


EXTRA = _extra()
"""Columns beside those of every measurement."""


def session(arguments: argparse.Namespace, ends_at: float) -> int:
    """Measure what is missing of a part of a day's passes; 3 if the GPU was lost, to go on in a new process."""
    from clockwatt.gpu.registry import open_installed, visible_gpus

    part, parts = arguments.part
    cores = sorted(os.sched_getaffinity(0))
    if parts > 1 and len(cores) >= 2 * parts:
        os.sched_setaffinity(0, set(cores[part - 1 :: parts]))
    cards = visible_gpus()
    card = cards[(part - 1) % len(cards)]
    os.environ["CUDA_VISIBLE_DEVICES"] = card.uuid
    from clockwatt.config import NetworkConfig, TelemetryConfig
    from clockwatt.telemetry.process import logger_process

    passes = passes_of(arguments.day)
    output = Output(
        arguments.output, f"day{arguments.day}-{'profile' if arguments.profile else 'whole'}-{part}of{parts}"
    )
    mine = [one for number, one in enumerate(passes) if number % parts == part - 1]
    wanted = [(one, NetworkConfig.model_validate(one["network"])) for one in mine]
    measured = {key(row): row for row in output.rows("network")}
    if arguments.profile:
        lacking = {place for place, row in measured.items() if row["time_device_s"] is None and row["status"] == "ok"}
        others = [place for place in measured if place not in lacking][::_PROFILED_SHARE]
        done = {key(row) for row in output.rows(PROFILE)}
        needed = (lacking | set(others)) - done
        wanted = [pair for pair in wanted if (pair[1].network_id, pair[0]["pass"], _execution_of(pair[0])) in needed]
    else:
        wanted = [
            pair for pair in wanted if (pair[1].network_id, pair[0]["pass"], _execution_of(pair[0])) not in measured
        ]
    wanted = wanted[: arguments.count]
    print(f"{len(wanted)} passes to measure, {len(measured)} measured", flush=True)
    session_id = uuid.uuid4().hex
    with (
        tempfile.TemporaryDirectory() as telemetry,  # what matters of it is in the rows
        contextlib.closing(open_installed(card)) as gpu,
        logger_process(card, session_id, Path(telemetry), TelemetryConfig()) as logger,
    ):
        campaign = campaign_of(passes, gpu.identity.name, arguments.window)
        run = Run(gpu, logger, campaign, session_id, output, arguments)
        return run.profiles(wanted, ends_at) if arguments.profile else run.all(wanted, ends_at)


class Run:
    """The passes of one session, one after another."""

    def __init__(
        self, gpu: Any, logger: Any, campaign: Any, session_id: str, output: Output, arguments: argparse.Namespace
    ) -> None:
        from clockwatt.measure import reference_operations
        from clockwatt.measure.calibrate import calibration
        from clockwatt.measure.steps.conditions import Surroundings
        from clockwatt.schema.records import MEASUREMENT_VERSION, MeasurementRow

        self._anchors = reference_operations.anchors()
        self._probe = Probe()
        specs = {row.operation_id: row.spec for row in self._anchors}
        self._bench = make_bench(gpu, logger, specs, campaign, self._probe)
        self._campaign, self._output, self._day = campaign, output, arguments.day
        self._around = Surroundings(calibration=calibration.read(arguments.calibration))
        self._versions, self._position = versions(), 0
        import clockwatt

        identity, made = gpu.identity, self._bench.versions
        self._base = MeasurementRow(
            kind="", subject_id="", pass_="", execution=FP32, dtype="", gpu="fresh", point=POINT, session_id=session_id,
            shard=f"{arguments.part[0]}/{arguments.part[1]}", measurement_version=MEASUREMENT_VERSION,
            clockwatt_version=clockwatt.__version__, gpu_name=identity.name, gpu_uuid=hashed(identity.uuid),
            driver_version=identity.driver_version, host=hashed(socket.gethostname()), cpu_model=cpu_model(),
            cuda_version=made.cuda, torch_version=made.torch, cudnn_version=made.cudnn,
        )  # fmt: skip

    def all(self, wanted: list[tuple[dict[str, Any], Any]], ends_at: float) -> int:
        """Measure until all is measured or the time is over."""
        from clockwatt.measure.bench.interface import BenchLostError

        gc.collect()
        gc.freeze()
        gc.disable()
        try:
            self._check()
            checked, began, longest = time.monotonic(), time.monotonic(), 2.0
            for done, (entry, network) in enumerate(wanted, 1):
                if time.monotonic() + longest + _LAST_S > ends_at:
                    break
                if time.monotonic() - checked > _CHECK_EVERY_S:
                    self._check()
                    checked = time.monotonic()
                started = time.monotonic()
                row = self._network(entry, network)
                took = time.monotonic() - started
                longest = max(took, 0.9 * longest)
                print(f"{done}/{len(wanted)} {time.monotonic() - began:6.1f} s ({took:.1f}) {told(row)}", flush=True)
            self._check()
        except BenchLostError as error:
            print(error, flush=True)
            return 3
        return 0

    def profiles(self, wanted: list[tuple[dict[str, Any], Any]], ends_at: float) -> int:
        """Profile until all is profiled or the time is over."""
        import torch

        from clockwatt.measure.bench.interface import BenchLostError, OutOfMemoryError, Subject, SubjectFailedError
        from clockwatt.operations.networks import FAULTS
        from clockwatt.schema.records import FAILED

        for number, (entry, network) in enumerate(wanted, 1):
            if time.monotonic() + 4.0 > ends_at:
                break
            subject = Subject(
                PROFILE, network.network_id, entry["pass"], _execution_of(entry), network.dtype, 0, device_work=True
            )
            row, profile = self._row(subject), Profile()
            try:
                with self._bench.open(replace(subject, kind="network")) as workload:
                    profile = profile_kernels(workload, torch)
            except BenchLostError as error:
                print(error, flush=True)
                return 3
            except (*FAULTS, OutOfMemoryError, SubjectFailedError) as error:
                row.status, row.error = FAILED, f"{type(error).__name__}: {error}"[:500]
            self._output.add(row, {
                "kernels": profile.kernels, "kernels_s": profile.kernels_s, "kernel_names": profile.names,
                "day": self._day, "device_method": "profiler", "network_kind": entry["kind"],
                "versions": self._versions,
            })  # fmt: skip
            print(f"{number}/{len(wanted)} {network.network_id} {entry['pass']}: {profile.kernels} kernels, "
                  f"{profile.kernels_s} s {row.error or ''}", flush=True)  # fmt: skip
        return 0

    def _check(self) -> None:
        """Idle power and the anchors."""
        from clockwatt.measure.session import anchor_subject
        from clockwatt.measure.steps.procedure import measure, measure_idle

        self._around = replace(self._around, idle=measure_idle(self._bench, _IDLE_S, self._around.calibration))
        for anchor in self._anchors:
            subject = anchor_subject(anchor.operation_id, TF32)
            row = self._row(subject)
            measure(self._bench, subject, row, self._campaign.measurement, self._around)
            self._output.add(row, {"day": self._day, "versions": self._versions, "network_name": anchor.function})

    def _network(self, entry: dict[str, Any], network: Any) -> Any:
        from clockwatt.measure.bench.interface import BenchLostError, Subject
        from clockwatt.measure.steps.procedure import measure
        from clockwatt.operations.networks import FAULTS
        from clockwatt.schema.records import FAILED, NETWORK

        subject = Subject(
            NETWORK, network.network_id, entry["pass"], _execution_of(entry), network.dtype, 0, device_work=True
        )
        row = self._row(subject)
        self._probe.profile = Profile()
        loops_s = core_loops()
        try:
            measure(self._bench, subject, row, self._campaign.measurement, self._around)
        except BenchLostError as error:
            row.status, row.error = FAILED, str(error)[:500]
            raise
        except FAULTS as error:
            row.status, row.error = FAILED, f"{type(error).__name__}: {error}"[:500]
        finally:
            loops_s += core_loops()
            more = extra_columns(row, self._probe.profile) | {
                "network_kind": entry["kind"], "network_name": network.name, "day": self._day,
                "days": json.dumps(entry["days"]),
                "versions": self._versions, "network": json.dumps(entry["network"]), "estimate_s": entry["estimate_s"],
                "core_loop_s": statistics.median(loops_s),
            }  # fmt: skip
            self._output.add(row, more)
        return row

    def _row(self, subject: Any) -> Any:
        self._position += 1
        return replace(
            self._base, kind=subject.kind, subject_id=subject.subject_id, pass_=subject.pass_,
            execution=subject.execution, dtype=subject.dtype, position=self._position, flags=[], throttle_reasons=[],
        )  # fmt: skip


def told(row: Any) -> str:
    """A row in a line."""
    if row.status != "ok":
        return f"{row.subject_id} {row.pass_}: {row.status} {row.error}"[:230]
    times = " ".join(
        "-" if one is None else f"{one * 1e3:.3f}" for one in (row.time_device_s, row.time_eager_s, row.time_host_s)
    )
    energy = "-" if row.energy_j is None else f"{row.energy_j:.3g}"
    return f"{row.subject_id} {row.pass_}: device, time, host {times} ms; {energy} J; {' '.join(row.flags)}"


def parsed(text: str) -> tuple[int, int]:
    """Read `1/2`."""
    part, _, parts = text.partition("/")
    return int(part), int(parts)


def build_only(day: int, count: int) -> int:
    """Build and run small passes on the processor, to see that they can be."""
    import torch

    from clockwatt.config import NetworkConfig, TrainingConfig
    from clockwatt.operations.networks import FAULTS, build_network

    failed = 0
    for entry in sorted(passes_of(day), key=lambda one: one["estimate_s"])[:count]:
        network = NetworkConfig.model_validate(entry["network"])
        try:
            with torch.inference_mode(entry["pass"] == "inference"):
                built = build_network(network, "cpu", pass_=entry["pass"], training=TrainingConfig())
                built.call()
            print(f"built and ran {network.network_id} {entry['pass']}", flush=True)
        except FAULTS as error:
            failed += 1
            print(f"FAILED {network.network_id} {entry['pass']}: {type(error).__name__}: {error}"[:300], flush=True)
    return 1 if failed else 0


def main() -> int:
    """Measure what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--day", type=int, choices=(1, 2, WHOLE_SET, *_FOLDERS), required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--part", type=parsed, default=(1, 1), metavar="K/N")
    parser.add_argument("--count", type=int, help="measure at most so many passes")
    parser.add_argument("--profile", action="store_true", help="see which kernels run in what was measured")
    parser.add_argument("--window", type=float, default=1.0, help="s in which power is read")
    parser.add_argument(
        "--calibration",
        type=Path,
        default=HERE.parents[1] / "resources/reference/h200/measurements/h200/default/calibration.parquet",
    )
    parser.add_argument(
        "--build-only", type=int, metavar="COUNT", help="build and run so many small passes on the processor"
    )
    arguments = parser.parse_args()
    arguments.output = arguments.output.resolve()
    arguments.calibration = arguments.calibration.resolve()
    os.chdir(HERE.parents[1])  # configurations are named from the checkout's root
    if arguments.build_only:
        return build_only(arguments.day, arguments.build_only)
    ends_at = time.monotonic() + arguments.seconds
    code = session(arguments, ends_at)
    if code == 3 and time.monotonic() + 3 * _LAST_S < ends_at:
        left = ends_at - time.monotonic()
        again = [sys.executable, str(HERE / "measure.py"), "--day", str(arguments.day),
                 "--output", str(arguments.output), "--window", str(arguments.window),
                 "--part", "/".join(map(str, arguments.part)),
                 "--calibration", str(arguments.calibration)]  # fmt: skip
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
        os.execv(
            sys.executable,
            [
                *again,
                *(["--profile"] if arguments.profile else []),
                *(["--seconds", f"{left:.0f}"] if left < 1e9 else []),
            ],
        )  # a new CUDA context
    return code


if __name__ == "__main__":
    sys.exit(main())
