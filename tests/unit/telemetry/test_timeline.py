"""Sensors below a profiler's time line: clocks that meet, kernels that outlast their launch, traces that do not fit."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from clockwatt.cli.main import app
from clockwatt.errors import DataFileError
from clockwatt.io.profiler_trace import read_trace
from clockwatt.io.segments import SegmentWriter
from clockwatt.schema.records import TELEMETRY_SCHEMA, TelemetryRow
from clockwatt.telemetry.recording import kineto
from clockwatt.telemetry.recording.layout import Record, RecordedGpu, Run, telemetry_folder
from support import ready_clockwatt

UUID = "GPU-1"
BASE_NS = 1_790_857_026_000_000_000
TRACE_S = BASE_NS / 1e9 + 100.0
"""UNIX time at which the trace begins."""
STARTED_NS = 5_000_000_000
"""Monotonic time at which the program started, 10 s before the trace."""
SET_BACK_S = 30.0
"""How far the UNIX clock was set back between the program's start and the trace."""
LAG_US = 400_000
"""How long after its launch each kernel runs."""


def write_record(folder: Path) -> None:
    """Write a record of 20 s: 100 W, but 300 W from 12 to 14 s; the UNIX clock was set back after 5 s."""
    start_us = round(1e6 * (TRACE_S - 10 + SET_BACK_S))
    run = Run(
        number=1, idle_start_ns=STARTED_NS, start_ns=STARTED_NS, start_us=start_us, end_ns=STARTED_NS + 20 * 10**9
    )
    Record(
        name="x", command=["x"], folder="/", host="h", point="default", repeat=1, recorder=1, complete=True,
        gpus=[RecordedGpu(uuid=UUID, name="any", virtual=False, computed_on=True)], versions={}, runs=[run],
    ).write(folder)  # fmt: skip
    writer = SegmentWriter(telemetry_folder(folder, 1, UUID), TELEMETRY_SCHEMA, 60)
    times_s = [tick / 50 for tick in range(1001)]
    writer.add(
        [
            TelemetryRow(
                session_id="s", lane="fast", time_us=start_us + round(1e6 * (at_s - SET_BACK_S * (at_s > 5))),
                monotonic_ns=STARTED_NS + round(1e9 * at_s), power_instant_w=300.0 if 12 <= at_s < 14 else 100.0,
                sm_clock_mhz=1400, temperature_c=50.0, gpu_utilization_percent=90,
            )
            for at_s in times_s
        ]
    )  # fmt: skip
    writer.flush()


def span(cat: str, name: str, start_s: float, length_s: float, tid: int = 1, **args: object) -> dict:
    return {
        "ph": "X", "cat": cat, "name": name, "pid": 7, "tid": tid, "ts": 1e6 * (100 + start_s), "dur": 1e6 * length_s,
        "args": args,
    }  # fmt: skip


def write_trace(path: Path, **changes: object) -> Path:
    """Write two steps whose kernels run later than launched; `work` keeps the device busy from 2 to 4 s."""
    events = [
        span("user_annotation", "ProfilerStep#3", 0.0, 6.0),
        span("user_annotation", "load", 0.0, 1.0),
        span("user_annotation", "work", 1.6, 0.5),
        span("user_annotation", "inner", 1.7, 0.1),
        span("cuda_runtime", "cudaLaunchKernel", 1.65, 0.001, correlation=5),
        span("cuda_runtime", "cudaLaunchKernel", 1.75, 0.001, tid=2, correlation=6),  # as a backward pass does
        span("kernel", "gemm", 1.65 + LAG_US / 1e6 - 0.05, 0.9, tid=0, correlation=5),
        span("kernel", "gemm", 3.0, 1.0, tid=0, correlation=6),
        span("user_annotation", "rest", 4.5, 1.0),
    ]
    trace = {"baseTimeNanoseconds": BASE_NS, "traceEvents": events} | changes
    content = json.dumps({key: value for key, value in trace.items() if value is not None}).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def test_clocks_meet_though_one_was_set_and_kernels_give_a_phase_its_time(tmp_path):
    write_record(tmp_path / "record")
    found = kineto.timeline(tmp_path / "record", write_trace(tmp_path / "trace.json"))
    phases = {phase["name"]: phase for phase in found.summary["runs"][0]["phases"]}
    assert list(phases) == ["ProfilerStep", "load", "work", "rest"]
    assert phases["load"]["gpus"][UUID]["power_mean_w"] == pytest.approx(100)
    assert phases["work"]["time_s"] == pytest.approx(2.0)
    assert phases["work"]["gpus"][UUID]["power_mean_w"] == pytest.approx(300, abs=3)
    assert phases["rest"]["gpus"][UUID]["energy_j"] == pytest.approx(100, abs=1)
    counters = [event for event in found.trace["traceEvents"] if event["ph"] == "C"]
    assert {event["name"] for event in counters} == {
        "power (W)", "SM clock (MHz)", "temperature (°C)", "utilisation (%)"
    }  # fmt: skip
    high = [event["ts"] for event in counters if event["args"] == {"W": 300.0}]
    assert (min(high), max(high)) == pytest.approx((102e6, 103.98e6), abs=1)
    assert min(event["ts"] for event in counters) == pytest.approx(99e6, abs=1)  # a second around the trace, no more
    assert (found.short, found.ranges) == (0, 4)


def test_short_ranges_are_counted(tmp_path):
    write_record(tmp_path / "record")
    events = [span("user_annotation", "step", 0.01 * number, 0.009) for number in range(300)]
    found = kineto.timeline(tmp_path / "record", write_trace(tmp_path / "trace.json.gz", traceEvents=events))
    assert (found.short, found.ranges) == (300, 300)
    (phase,) = found.summary["runs"][0]["phases"]
    # together they last 2.7 s, of which 0.9 s at 300 W
    assert phase["gpus"][UUID]["energy_j"] == pytest.approx(0.9 * 300 + 1.8 * 100, rel=0.02)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"baseTimeNanoseconds": None}, "lacks baseTimeNanoseconds"),
        ({"traceEvents": None}, "lacks traceEvents"),
        ({"traceEvents": [{"ph": "i", "ts": 1}, {"ph": "X", "ts": 1, "dur": 2}]}, "holds no event with a duration"),
        ({"baseTimeNanoseconds": BASE_NS + 10**12}, "outside the runs of"),
        ({"traceEvents": [span("cpu_op", "add", 0, 20)]}, "outside the runs of"),
    ],
)
def test_a_trace_that_does_not_fit_is_named(tmp_path, changes, says):
    write_record(tmp_path / "record")
    with pytest.raises(DataFileError, match=f"trace.json: .*{says}"):
        kineto.timeline(tmp_path / "record", write_trace(tmp_path / "trace.json", **changes))


@pytest.mark.parametrize("content", [b"", b"[1]", b"\x1f\x8bno", b"\xff"])
def test_what_is_no_trace_is_named(tmp_path, content):
    (tmp_path / "trace.json").write_bytes(content)
    with pytest.raises(DataFileError, match=r"trace.json: (cannot be read as a trace|lacks)"):
        read_trace(tmp_path / "trace.json")


def test_a_program_that_profiles_itself_is_shown_beside_its_sensors(tmp_path, capsys):
    program = tmp_path / "train.py"
    program.write_text(
        "import json, sys, time, torch\n"
        "from torch.profiler import ProfilerActivity, profile, record_function\n"
        "with profile(activities=[ProfilerActivity.CPU]) as prof:\n"
        "    with record_function('rest'):\n"
        "        before = time.time_ns()\n"
        "        time.sleep(0.5)\n"
        "        after = time.time_ns()\n"
        "    with record_function('work'):\n"
        "        torch.randn(200, 200) @ torch.randn(200, 200)\n"
        "prof.export_chrome_trace('trace.json')\n"
        "json.dump([before, after], open('times.json', 'w'))\n"
    )
    command = [*("record", "--gpu", "virtual:a30", "--idle-s", "0.5", "--output", "record", "--"), sys.executable]
    subprocess.run(
        [sys.executable, "-m", "clockwatt", *command, program], cwd=tmp_path, check=True, capture_output=True,
        env=os.environ | ready_clockwatt.environment(),
    )  # fmt: skip
    trace, before_after = (json.loads((tmp_path / name).read_text()) for name in ("trace.json", "times.json"))
    (rest,) = (event for event in trace["traceEvents"] if event["name"] == "rest")
    start_ns = trace["baseTimeNanoseconds"] + 1000 * rest["ts"]
    before_ns, after_ns = before_after
    assert start_ns <= before_ns < after_ns <= start_ns + 1000 * rest["dur"]
    assert before_ns - start_ns < 50e6
    words = [
        "timeline",
        str(tmp_path / "record"),
        str(tmp_path / "trace.json"),
        "--output",
        str(tmp_path / "new.json.gz"),
    ]
    app(words, prog_name="clockwatt", standalone_mode=False)
    said = capsys.readouterr().out
    assert "VIRTUAL" in said
    assert "rest" in said
    written = json.loads(gzip.decompress((tmp_path / "new.json.gz").read_bytes()))
    assert written["traceEvents"][: len(trace["traceEvents"])] == trace["traceEvents"]
    powers = [event["ts"] for event in written["traceEvents"] if event["name"] == "power (W)"]
    assert min(powers) < rest["ts"] < rest["ts"] + rest["dur"] < max(powers)
