"""`clockwatt record` from outside: programs that end in every way, on the stand-in NVML, a virtual GPU, or no GPU."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import psutil
import pytest

from clockwatt.cli.main import main
from support import ready_clockwatt

RECORD = [sys.executable, "-m", "clockwatt", "record", "--idle-s"]
VIRTUAL = ("--gpu", "virtual:a30")


def environment(**changes: str) -> dict[str, str]:
    """That of a recorder which is served by a ready Python."""
    return {**os.environ, **ready_clockwatt.environment(), **changes}


def recorded(
    output: Path, *words: str, options: tuple[str, ...] = VIRTUAL, status: int = 0, idle_s: float = 0.3,
    environ: dict[str, str] | None = None,
    stdin: bytes = b"",
) -> tuple[dict[str, Any], subprocess.CompletedProcess[bytes]]:  # fmt: skip
    done = subprocess.run(
        [*RECORD, str(idle_s), *options, "--output", str(output), "--", *words], input=stdin, capture_output=True,
        check=False, env=environ or environment(), timeout=600,
    )  # fmt: skip
    assert done.returncode == status, done.stderr.decode()
    (summary,) = output.rglob("summary.json")
    return json.loads(summary.read_text()), done


def say_of(words: list[str]) -> tuple[object, str]:
    """Exit status and standard error of the command line, in a process that need not start Python anew for it."""
    said = io.StringIO()
    with mock.patch.object(sys, "argv", ["clockwatt", "record", *words]), contextlib.redirect_stderr(said):
        try:
            main()
        except SystemExit as ended:
            return ended.code, said.getvalue()


def wait_for(condition: Callable[[], bool], seconds: float = 600) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.05)


def begun(tmp_path: Path, output: Path, *options: str, first: str = "") -> Any:
    """A recorder whose program is through with `first` and waits for signals, and the program's process."""
    ready = tmp_path / "ready"
    code = f"""{first}
import os, pathlib, signal
pathlib.Path({str(ready)!r} + ".part").write_text(str(os.getpid()))
os.rename({str(ready)!r} + ".part", {str(ready)!r})
while True: signal.pause()"""
    recorder = subprocess.Popen(
        [*RECORD, "0.3", *VIRTUAL, *options, "--output", str(output), "--", sys.executable, "-c", code],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        env=environment(),
    )  # fmt: skip
    wait_for(ready.exists)
    return recorder, psutil.Process(int(ready.read_text()))


def test_status_input_and_binary_output_pass_through(tmp_path: Path) -> None:
    every_byte = bytes(range(256)) * 50
    program = "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read()); sys.stderr.write('said'); sys.exit(3)"
    summary, done = recorded(tmp_path, sys.executable, "-c", program, status=3, stdin=every_byte)
    assert done.stdout == every_byte
    assert done.stderr.startswith(b"said")
    (run,) = summary["runs"]
    assert (run["status"], run["ending"]) == (3, "ended with status 3")
    assert summary["complete"]
    assert summary["virtual"]
    assert b"VIRTUAL" in done.stderr
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_energy_phases_and_versions_of_a_program_on_a_virtual_gpu(tmp_path: Path) -> None:
    program = """if True:
        import clockwatt, numpy, time
        for epoch in range(3):
            with clockwatt.phase("epoch", epoch):
                end = time.process_time() + 0.4
                while time.process_time() < end: pass
        time.sleep(1)
    """
    summary, done = recorded(
        tmp_path, sys.executable, "-c", program, options=(*VIRTUAL, "--repeat", "2", "--json", "--name", "a")
    )
    assert json.loads(done.stdout) == summary  # nothing else was printed
    assert summary["name"] == "a"
    for run in summary["runs"]:
        (told,) = run["gpus"].values()
        assert told["energy_difference"] == pytest.approx(0, abs=0.3)  # a counter that was read late tells less
        assert told["power_mean_w"] == pytest.approx(told["energy_integrated_j"] / run["time_s"])
        assert told["power_max_w"] > told["power_mean_w"] > 20
        assert told["integrated_from"] == "power_sample_w"
        assert told["memory_temperature_max_c"] is None  # it has no such sensor
        (epochs,) = run["phases"]
        assert (epochs["name"], epochs["count"], epochs["unfinished"]) == ("epoch", 3, 0)
        (on,) = epochs["gpus"].values()
        assert 0 < on["energy_j"] < told["energy_integrated_j"]
        assert on["power_mean_w"] > told["power_idle_before_w"]
    assert summary["over_runs"]["virtual-a30-seed0-card0"]["energy_j"]["runs"] == 2
    assert summary["versions"]["numpy"].count(".") == 2
    assert {"clockwatt", "kernel", "Python of the program"} <= set(summary["versions"])


def test_a_program_that_is_killed_is_told(tmp_path: Path) -> None:
    program = "import clockwatt, os; p = clockwatt.phase('epoch'); p.__enter__(); os.kill(os.getpid(), 9)"
    summary, _ = recorded(tmp_path, sys.executable, "-c", program, status=128 + 9)
    (run,) = summary["runs"]
    assert run["ending"] == "killed by SIGKILL"
    assert [(phase["name"], phase["unfinished"]) for phase in run["phases"]] == [("epoch", 1)]


def test_a_daemon_that_outlives_the_program_is_told(tmp_path: Path) -> None:
    program = """if True:
        import os, sys, time
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                for each in range(3): os.close(each)
                time.sleep(600)
            os._exit(0)
    """
    summary, _ = recorded(tmp_path, sys.executable, "-c", program)
    (run,) = summary["runs"]
    (left,) = run["left_running"]
    os.kill(int(left.split()[0]), signal.SIGKILL)
    assert any("outlived the program" in note for note in run["notes"])


def test_children_are_waited_for_if_that_is_wanted(tmp_path: Path) -> None:
    program = "import subprocess; subprocess.Popen(['sleep', '2'], start_new_session=True)"
    summary, _ = recorded(tmp_path, sys.executable, "-c", program, options=(*VIRTUAL, "--wait-for-children"))
    (run,) = summary["runs"]
    assert run["time_s"] > 1.9
    assert run["left_running"] == []


def test_a_signal_after_the_program_ends_the_wait_and_the_record_is_complete(tmp_path: Path) -> None:
    ended = "while kill -0 $$; do sleep 0.1; done; sleep 1"
    program = f"({ended}; kill -INT $PPID; exec sleep 600) >/dev/null 2>&1 &"
    summary, _ = recorded(tmp_path, "sh", "-c", program, options=(*VIRTUAL, "--wait-for-children"))
    assert summary["complete"]
    left = summary["runs"][0]["left_running"]
    assert left
    for process in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(process.split()[0]), signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGUSR1])
def test_signals_reach_the_program_which_makes_of_them_what_it_likes(tmp_path: Path, number: int) -> None:
    first = f"import signal, sys; signal.signal({int(number)}, lambda *_: sys.exit(9))"
    recorder, _ = begun(tmp_path, tmp_path / "out", first=first)
    recorder.send_signal(number)
    assert recorder.wait(600) == 9
    (run,) = json.loads((tmp_path / "out" / "summary.json").read_text())["runs"]
    assert run["ending"] == "ended with status 9"


def test_a_signal_that_ends_the_program_ends_the_repetitions(tmp_path: Path) -> None:
    recorder, _ = begun(tmp_path, tmp_path / "out", "--repeat", "5")
    recorder.terminate()
    assert recorder.wait(600) == 128 + signal.SIGTERM
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert [run["ending"] for run in summary["runs"]] == ["killed by SIGTERM"]
    assert "1 of 5 runs: a signal ended them" in summary["notes"]


def test_a_record_whose_recorder_was_killed_can_be_shown(tmp_path: Path) -> None:
    recorder, program = begun(tmp_path, tmp_path / "out")
    wait_for(lambda: len(list((tmp_path / "out").rglob("run-1/telemetry/virtual*/*.parquet"))) > 0)
    recorder.kill()
    recorder.wait()
    program.kill()
    shown = subprocess.run(
        [*RECORD, "0.3", "--show", "--output", str(tmp_path / "out"), "--json"], capture_output=True, check=True,
        env=environment(),
    )  # fmt: skip
    summary = json.loads(shown.stdout)
    (run,) = summary["runs"]
    assert not summary["complete"]
    assert (run["ending"], run["status"]) == (None, None)
    assert any("cut off" in note for note in run["notes"])
    (told,) = run["gpus"].values()
    assert told["energy_integrated_j"] > 0


def test_the_host_alone_is_recorded_and_that_is_said(tmp_path: Path) -> None:
    summary, done = recorded(tmp_path, "sleep", "2.5", options=())
    assert b"the host is recorded" in done.stderr
    assert summary["gpus"] == []
    assert any("no GPU was recorded" in note for note in summary["notes"])
    assert summary["runs"][0]["host"]["memory_max_bytes"] > 0
    assert (tmp_path / "figure.png").is_file()


def test_cards_are_recorded_by_their_uuid_neighbours_too(nvml, tmp_path: Path) -> None:
    nvml.card(1).power_mw = 100_000
    environ = environment(**nvml.environ, CUDA_VISIBLE_DEVICES=nvml.uuid(1))
    summary, done = recorded(tmp_path, "sleep", "2", idle_s=1, options=("--all-gpus",), environ=environ)
    assert [gpu["computed_on"] for gpu in summary["gpus"]] == [False, True, False]
    told = summary["runs"][0]["gpus"][nvml.uuid(1)]
    assert told["power_mean_w"] == pytest.approx(100, rel=0.01)
    assert told["energy_difference"] == pytest.approx(0, abs=0.3)  # a counter that was read late tells less
    assert told["power_idle_before_w"] == pytest.approx(100, rel=0.01)
    assert told["contexts_before"] == 0
    clocks = told["rings"]["sm_clock_sample_mhz"]
    assert clocks["samples"] + clocks["lost"] > 100
    assert summary["versions"]["driver of NVIDIA A30"] == "580.1.2"
    said = " ".join(done.stderr.decode().split())  # wherever lines were broken
    assert f"Neighbours, which the program could not compute on: {nvml.uuid(0)}, {nvml.uuid(2)}." in said


def test_an_operating_point_is_held_on_the_visible_card_while_the_program_runs(nvml, tmp_path: Path) -> None:
    environ = environment(**nvml.environ, CUDA_VISIBLE_DEVICES=nvml.uuid(0))
    summary, _ = recorded(tmp_path, "sleep", "1.5", options=("--point", "sm900-pl120"), environ=environ)
    assert [gpu["uuid"] for gpu in summary["gpus"]] == [nvml.uuid(0)]
    told = summary["runs"][0]["gpus"][nvml.uuid(0)]
    assert (told["sm_clock_median_mhz"], told["power_limit_w"]) == (900, 120)
    assert (nvml.card(0).locked_sm_mhz, nvml.card(0).limit_mw) == (0, 165_000)


def test_a_card_that_falls_off_the_bus_costs_its_readings_not_the_program(nvml, tmp_path: Path) -> None:
    fallen = tmp_path / "fallen"
    program = f"""if True:
        import os, time
        while not os.path.exists({str(fallen)!r}): time.sleep(0.05)
        time.sleep(1.5)
    """
    recorder = subprocess.Popen(
        [*RECORD, "0.3", "--gpu", "0", "--output", str(tmp_path / "out"), "--", sys.executable, "-c", program],
        env=environment(**nvml.environ), stderr=subprocess.PIPE,
    )  # fmt: skip
    wait_for(lambda: (tmp_path / "out" / "record.json").is_file() and "start_ns" in _first_run(tmp_path / "out"))
    nvml.card(0).lost = 1
    fallen.touch()
    assert recorder.wait(600) == 0
    (run,) = json.loads((tmp_path / "out" / "summary.json").read_text())["runs"]
    assert run["gpus"][nvml.uuid(0)]["failed_readings"] > 0


def _first_run(folder: Path) -> dict[str, Any]:
    runs = json.loads((folder / "record.json").read_text())["runs"]
    return {name: value for name, value in (runs or [{}])[0].items() if value is not None}


def test_it_rests_before_each_run(nvml, tmp_path: Path) -> None:
    nvml.card(0).temperature_c = 60
    options = ("--gpu", "0", "--rest-to", "35C", "--rest-max-s", "1")
    summary, done = recorded(tmp_path, "true", options=options, environ=environment(**nvml.environ))
    assert b"still warmer than 35" in done.stderr
    assert b"Resting until 35 \xc2\xb0C, at most 1 s (--rest-max-s): GPU-0a30beef" in done.stderr
    assert done.stderr.count(b"Resting until") == 1
    assert any("still warmer" in note for note in summary["notes"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--output", "{out}"), "no command. Write it after --"),
        (("--output", "{out}", "--", "no-such-program"), "no-such-program: no such program. Check its name"),
        (("--output", "{out}", "--", "{file}"), "is no program that may be run. Make it executable"),
        (("--output", "{out}", "--", __file__), "Write `python /"),
        (("--output", "{out}", "--gpu", "7", "--", "true"), "--gpu 7: there is no such GPU. Here are 0 (GPU-0a30beef"),
        (("--output", "{out}", "--gpu", "0", "--gpu", "GPU-0", "--", "true"), "named twice"),
        (("--output", "{out}", "--gpu", "virtual:z9", "--", "true"), "z9"),
        (("--output", "{out}", "--gpu", "0", "--all-gpus", "--", "true"), "give one or the other"),
        (("--output", "{out}", "--rest-to", "warm", "--", "true"), "--rest-to 'warm': write a temperature"),
        (("--output", "{out}", "--point", "fast", "--", "true"), "'fast' is no operating point"),
        (("--output", "{out}", "--gpu", "0", "--point", "sm901", "--", "true"), "900"),
        (("--output", "{out}", "--method", "magic", "--", "true"), "--method magic: choose"),
        (("--output", "{out}", "--name", "a/b", "--", "true"), "a word without slashes"),
        (("--output", "{file}/x", "--gpu", "0", "--", "true"), "cannot be written"),
        (("--output", "{out}", "--show"), "holds no record. Give a folder that"),
    ],
)
def test_bad_input_gets_one_clear_line(nvml, in_worker, tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    (tmp_path / "file").write_text("")
    filled = [word.format(out=tmp_path / "out", file=tmp_path / "file") for word in words]
    status, said = in_worker(say_of, filled)
    assert status == 1
    assert message in said
    assert len(said.splitlines()) == 1
    assert said.startswith("error: ")
    assert not (tmp_path / "out").exists()


def test_a_record_is_not_written_over_and_a_damaged_one_is_named(in_worker, tmp_path: Path) -> None:
    (tmp_path / "record.json").write_text('{"format": 1}')
    status, said = in_worker(say_of, [*VIRTUAL, "--output", str(tmp_path), "--", "true"])
    assert (status, said.count("\n")) == (1, 1)
    assert "holds a record already. Choose another --output, or another --name." in said
    status, said = in_worker(say_of, ["--show", "--output", str(tmp_path)])
    assert (status, said.count("\n")) == (1, 1)
    assert "record.json: name: Field required" in said
