"""`clockwatt record` on a disk that gets full: how the program ended is never lost with the record."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="mounts a tmpfs, which needs root"),
    pytest.mark.usefixtures("ready"),
]

FILL = """
import os, sys, time
time.sleep(0.5)
left = os.statvfs(sys.argv[1]).f_bavail * 4096 - int(sys.argv[2]) * 1024
open(sys.argv[1] + "/ballast", "wb").write(bytes(max(0, left)))
sys.exit(int(sys.argv[3]))
"""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1M", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", folder], check=True)


def recorded(disk: Path, *options: str, left_kib: int, status: int) -> list[str]:
    """What is said on standard error when a program leaves so much of the disk; the exit status is the program's."""
    done = subprocess.run(
        [sys.executable, "-m", "clockwatt", "record", "--idle-s", "0.3", "--gpu", "virtual:a30", *options,
         "--output", str(disk / "record"), "--",
         sys.executable, "-c", FILL, str(disk), str(left_kib), str(status)],
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr.splitlines()


@pytest.mark.parametrize("status", [0, 7])
@pytest.mark.parametrize("left_kib", [0, 24, 48])
def test_the_status_is_the_programs_and_one_line_tells_what_could_not_be_written(
    disk: Path, left_kib: int, status: int
) -> None:
    said = recorded(disk, left_kib=left_kib, status=status)
    (line,) = [line for line in said if "cannot be written (No space left on device)" in line]
    assert line.startswith(f"error: the program ended with status {status}, but {disk}/record/")
    assert f"clockwatt record --show --output {disk}/record" in line
    (disk / "ballast").unlink()
    shown = subprocess.run(
        [sys.executable, "-m", "clockwatt", "record", "--show", "--output", str(disk / "record")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert shown.returncode == 0, shown.stderr
    assert (disk / "record" / "figure.png").exists() or left_kib == 0  # nothing that was read could be kept


def test_a_series_ends_where_nothing_more_can_be_written(disk: Path) -> None:
    said = recorded(disk, "--repeat", "3", left_kib=0, status=7)
    assert "2 of 3 runs were not made" in said[-1]
