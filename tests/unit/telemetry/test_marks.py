"""Marks of a program, made by the library and read from the record."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from clockwatt.telemetry.recording.layout import Run
from clockwatt.telemetry.recording.marks import read_marks

RUN = Run(number=1, start_us=1_000_000, start_ns=0)


def run_program(program: str, folder: Path | None, *, status: int = 0) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if name != "CLOCKWATT_MARKS"}
    if folder is not None:
        environ["CLOCKWATT_MARKS"] = str(folder)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == status, done.stderr
    return done


def marks_of(folder: Path, end_s: float = 1e9):
    return read_marks(folder, RUN, os.uname().nodename, end_s)


def test_phases_and_moments_are_read_as_they_were_marked(tmp_path: Path) -> None:
    run_program(
        """
        import clockwatt, numpy, time
        with clockwatt.phase("epoch", index=numpy.int64(3)):
            with clockwatt.phase('a "step"\\n'):
                time.sleep(0.05)
            clockwatt.mark("saved", 7)
        """,
        tmp_path,
    )
    marks = marks_of(tmp_path)
    assert marks.phases[["name", "index"]].values.tolist()[0] == ["epoch", 3]
    assert marks.phases["name"].tolist()[1] == 'a "step"\n'
    epoch, step = marks.phases.itertuples()
    assert epoch.start_s <= step.start_s <= step.end_s - 0.05 <= epoch.end_s
    assert marks.phases["complete"].all()
    assert marks.moments[["name", "index"]].values.tolist() == [["saved", 7]]
    assert not marks.notes


def test_a_killed_program_leaves_its_open_phases(tmp_path: Path) -> None:
    program = """
        import clockwatt, os, signal
        with clockwatt.phase("epoch"):
            with clockwatt.phase("step"):
                pass
            os.kill(os.getpid(), signal.SIGKILL)
    """
    run_program(program, tmp_path, status=-9)
    phases = marks_of(tmp_path, end_s=1e9).phases
    assert dict(zip(phases["name"], phases["complete"], strict=True)) == {"epoch": False, "step": True}
    assert phases.loc[phases["name"] == "epoch", "end_s"].tolist() == [1e9]


def test_a_forked_child_marks_in_a_file_of_its_own(tmp_path: Path) -> None:
    program = """
        import clockwatt, os
        with clockwatt.phase("both"):
            child = os.fork()
            with clockwatt.phase("child" if child == 0 else "parent"):
                pass
            if child == 0:
                os._exit(0)
            os.waitpid(child, 0)
    """
    run_program(program, tmp_path)
    phases = marks_of(tmp_path).phases
    assert sorted(phases["name"]) == ["both", "child", "parent"]
    assert phases["complete"].all()
    assert phases.groupby("pid")["name"].apply(sorted).tolist() in (
        [["both", "parent"], ["child"]], [["child"], ["both", "parent"]],
    )  # fmt: skip


def test_phases_of_threads_that_begin_together_end(tmp_path: Path) -> None:
    run_program(
        """
        import clockwatt, socket, threading, time
        gethostname = socket.gethostname
        socket.gethostname = lambda: time.sleep(0.05) or gethostname()  # all threads mark while one opens the file
        def work(index):
            with clockwatt.phase("work", index):
                time.sleep(0.1)
        threads = [threading.Thread(target=work, args=(index,)) for index in range(3)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        """,
        tmp_path,
    )
    marks = marks_of(tmp_path)
    assert len(marks.phases) == 3
    assert marks.phases["complete"].all()
    assert marks.phases["pid"].notna().all()


def test_nothing_happens_and_nothing_fails_when_not_recorded(tmp_path: Path) -> None:
    program = """
        import clockwatt, sys
        clockwatt.mark(object(), index="x")
        with clockwatt.phase(None):
            pass
        assert not {"torch", "numpy", "pandas"} & set(sys.modules), "importing clockwatt is cheap"
    """
    done = run_program(program, None)
    assert done.stderr == ""
    run_program(program, tmp_path / "gone")  # a record that was deleted


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ("clockwatt.mark(3)", "its name must be text"),
        ("clockwatt.mark('')", "its name must be text of 1 to 200"),
        ("clockwatt.phase('x', index='3').__enter__()", "must be a whole number, not str"),
        ("clockwatt.mark('x', index=1.5)", "must be a whole number, not float"),
        ("clockwatt.phase('x', index=2**63).__enter__()", "must be a whole number of 64 bits"),
    ],
)
def test_a_mark_of_a_foreign_type_gets_one_line_and_the_program_goes_on(tmp_path: Path, call: str, why: str) -> None:
    done = run_program(f"import clockwatt\nfor _ in range(3): {call}\nclockwatt.mark('good')", tmp_path)
    (line,) = done.stderr.splitlines()
    assert why in line
    assert marks_of(tmp_path).moments["name"].tolist() == ["good"]


def test_lines_of_others_are_left_out_and_told(tmp_path: Path) -> None:
    good = {"event": "mark", "name": "by hand", "time_ns": 3_000_000_000}
    foreign = [b"\xff\xfe binary", b"[]", b'{"event": "mark"}', json.dumps(good | {"index": "3"}).encode(), b"{"]
    (tmp_path / "other.jsonl").write_bytes(b"\n".join([*foreign, json.dumps(good).encode(), b""]))
    marks = marks_of(tmp_path)
    assert marks.moments[["name", "time_s"]].values.tolist() == [["by hand", 2.0]]
    (note,) = marks.notes
    assert note.startswith("5 lines are no marks and left out: other.jsonl:1, other.jsonl:2")


def test_a_name_that_no_file_can_hold_does_not_cost_the_record(tmp_path: Path) -> None:
    # names of files that are no UTF-8 look like this in Python
    program = "import clockwatt; clockwatt.mark('read a\\udc80b', 1); clockwatt.phase('p\\ud800').__enter__()"
    run_program(program, tmp_path)
    marks = marks_of(tmp_path)
    assert marks.moments["name"].tolist() == ["read a?b"]
    assert marks.phases["name"].tolist() == ["p?"]


def test_marks_of_another_host_are_placed_by_the_time_of_day(tmp_path: Path) -> None:
    process = {"event": "process", "host": "elsewhere", "pid": 1, "rank": 3, "python": "3.12.0"}
    times = {"time_ns": 2_500_000_000, "monotonic_ns": 77}
    lines = [process | times, {"event": "mark", "name": "x", "index": None, "id": 0, "thread": 1} | times]
    (tmp_path / "elsewhere-1-1.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    (moment,) = marks_of(tmp_path).moments.itertuples()
    assert (moment.time_s, moment.rank) == (1.5, 3)
