"""Folders of a user who may write nowhere, or has no home."""

import multiprocessing
import os
import tempfile
from pathlib import Path

import pytest

from clockwatt.errors import OutputError, RequestError
from clockwatt.io.folders import cache_folder, is_readable, is_writable, temporary_folder
from clockwatt.predict.api import load
from clockwatt.predict.hosts import HostProfile
from clockwatt.workflow import doctor

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="to become another user takes root")
_USER = 54321
"""Has no entry in passwd."""


def _become_user():
    os.chdir("/")  # the test's folder is closed to others
    os.setuid(_USER)


def as_another_user(function, *arguments):
    """Call a function in a process of a user without rights."""
    with multiprocessing.get_context("fork").Pool(1, initializer=_become_user) as pool:
        return pool.apply(function, arguments)


@pytest.fixture(autouse=True)
def _imported(tmp_path, monkeypatch):
    """What other users may not read is imported: without a cache, the network is traced."""
    monkeypatch.setenv("CLOCKWATT_CACHE_DIR", str(tmp_path / "new"))
    load().predict("alexnet", (3, 3, 64, 64), gpu="h200")


def predicted_without_home():
    for name in ("HOME", "CLOCKWATT_CACHE_DIR", "XDG_CACHE_HOME", "XDG_DATA_HOME"):
        os.environ.pop(name, None)
    with pytest.raises(RequestError, match=r"or /nonexistent/.local/share/clockwatt/hosts .known: none"):
        HostProfile.read(Path("/absent"), "x")
    answer = load().predict("alexnet", (3, 3, 64, 64), gpu="h200")
    return cache_folder(), is_writable(cache_folder()), answer.time_s


def test_a_user_without_a_home_predicts():
    folder, writable, time_s = as_another_user(predicted_without_home)
    assert (str(folder), writable) == ("/nonexistent/.cache/clockwatt", False)
    assert time_s > 0


def seen_from_outside(folder):
    os.environ["CLOCKWATT_CACHE_DIR"] = str(folder / "cache")
    os.environ["XDG_DATA_HOME"] = str(folder)
    with pytest.raises(RequestError, match="no such profile"):
        HostProfile.read(Path("/absent"), "x")
    answer = load().predict("alexnet", (3, 3, 64, 64), gpu="h200")
    return is_readable(folder / "cache"), [one.text for one in doctor.examine() if one.topic == "cache"], answer.time_s


def test_a_folder_that_may_not_be_entered_is_no_cache(tmp_path):
    (tmp_path / "cache").mkdir()
    tmp_path.chmod(0o700)
    readable, (text,), time_s = as_another_user(seen_from_outside, tmp_path)
    assert not readable
    assert text == f"{tmp_path}/cache cannot be written: each prediction traces its network again"
    assert time_s > 0


def without_temporary_folder():
    tempfile.tempdir = None
    os.environ.update(dict.fromkeys(("TMPDIR", "TEMP", "TMP"), "/nonexistent"))
    os.chroot(Path(__file__).parent)  # where nothing can be written once rights are gone
    os.chdir("/")
    os.setuid(_USER)
    with pytest.raises(OutputError, match=r"^temporary files: no folder can be written. Set TMPDIR to one.$"):
        temporary_folder()
    return [(one.text, one.fix) for one in doctor._folders() if one.topic == "PyTorch"]


def test_without_a_temporary_folder_tracing_is_refused():
    with multiprocessing.get_context("fork").Pool(1) as pool:
        said = pool.apply(without_temporary_folder)
    assert said == [("cannot trace networks without a folder for temporary files", "Set TMPDIR to one.")]
