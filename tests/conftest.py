from __future__ import annotations

import atexit
import fcntl
import gc
import os
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest

from support import ready_clockwatt

if "PYTEST_XDIST_WORKER" in os.environ:
    atexit.register(os._exit, 0)  # the first, so it is called last: to free all of its objects would take seconds
# each process that runs tests shares its cores with others: threads of PyTorch and BLAS that wait for one another there
# take three times the processor time. Read when they are imported; jobs of a workflow get what their rules ask for.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# where an image has set it, each of the many Pythons that tests start compiles PyTorch anew
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# a million objects of libraries stay until the end: to look through them again and again takes a tenth of the time
gc.set_threshold(50_000)
# traces are kept from run to run, apart from those of the user, whose profiles of hosts answer nothing
os.environ.setdefault("CLOCKWATT_CACHE_DIR", str(Path(tempfile.gettempdir(), f"clockwatt-tests-{os.getuid()}")))
os.environ["XDG_DATA_HOME"] = str(Path(os.environ["CLOCKWATT_CACHE_DIR"], "data"))

PROCESSES_AT_MOST = 8
TURNS = pytest.StashKey[BinaryIO]()
"""A file whose bytes the processes of a run lock: 0 while one waits for its turn, 1 while one runs a test."""


@pytest.fixture
def ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands of clockwatt, and Pythons that are spawned, run in forks of one that has imported their libraries."""
    for name, value in ready_clockwatt.environment().items():
        monkeypatch.setenv(name, value)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="run the tests of CI_ALONE, too")
    parser.addoption("--slurm", action="store_true", help="run the tests that start a real Slurm (as root)")


def pytest_configure(config: pytest.Config) -> None:
    # under nohup, or in the background of a script, they are ignored, and by every process that a test starts
    for number, handler in ((signal.SIGHUP, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, handler)
    if config.getoption("--slurm"):  # a run that is ended leaves no daemons and no helper behind
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    config.option.loadscopereorder = False  # of pytest-xdist: files are dealt out in the order below
    if (worker := getattr(config, "workerinput", None)) is not None:
        config.stash[TURNS] = (Path(tempfile.gettempdir()) / f"clockwatt-tests-{worker['testrunuid']}").open("a+b")
    config.addinivalue_line("markers", "slurm: starts a real Slurm; runs with --slurm")
    config.addinivalue_line("markers", "undisturbed: needs a core of its own: other processes wait meanwhile")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return three for two cores, since tests wait; 0, this process alone, for one file and tests on one Slurm."""
    files = _files(config)
    if config.getoption("--slurm") or (len(files) == 1 == len(config.option.file_or_dir)):
        return 0
    return min(3 * len(os.sched_getaffinity(0)) // 2, PROCESSES_AT_MOST)


def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    if config.getoption("--all"):
        ready_clockwatt.share()


def _files(config: pytest.Config) -> list[str]:
    """Files that the command line names, without the tests in them."""
    return [name.partition("::")[0] for name in config.option.file_or_dir if ".py" in name]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Run a test that is marked `undisturbed` while the other processes wait."""
    turns = item.config.stash.get(TURNS, None)
    if turns is None:
        return (yield)
    kind = fcntl.LOCK_EX if item.get_closest_marker("undisturbed") else fcntl.LOCK_SH
    fcntl.lockf(turns, fcntl.LOCK_EX, 1, 0)  # while one waits to be alone, no other begins
    fcntl.lockf(turns, kind, 1, 1)
    fcntl.lockf(turns, fcntl.LOCK_UN, 1, 0)
    try:
        return (yield)
    finally:
        fcntl.lockf(turns, fcntl.LOCK_UN, 1, 1)


def pytest_collection_finish() -> None:
    """Leave what is there by now, a million objects of libraries, out of every collection of garbage from here on."""
    gc.collect()
    gc.freeze()


CI_ALONE = {
    "test_agreement.py", "test_bad_input.py", "test_batch_sizes.py", "test_browser.py", "test_build.py",
    "test_compiled_memory.py", "test_conditions.py", "test_design.py", "test_examples.py", "test_firefox.py",
    "test_fit_memory.py", "test_fresh_measure.py", "test_helper_program.py", "test_hooks.py", "test_installed.py",
    "test_links.py", "test_logger_process.py", "test_module_times.py", "test_neural_ensemble.py",
    "test_parallel_study.py", "test_perceptrons_judged.py", "test_plausible_sweeps.py", "test_power_analysis.py",
    "test_power_measure.py", "test_power_optimum.py", "test_preflight.py", "test_public_architectures.py",
    "test_ready_clockwatt.py", "test_record.py", "test_record_full_disk.py", "test_reference_data.py",
    "test_references.py", "test_relations.py", "test_rerun.py", "test_run_choice.py", "test_run_output.py",
    "test_sbatch_line.py", "test_shipped_predictors.py", "test_snapshot.py", "test_study_parallel.py",
    "test_study_survey.py", "test_survey.py", "test_thermal_influence.py", "test_thermal_network.py",
    "test_thermal_stage.py", "test_thermal_study.py", "test_timeline.py", "test_transformer_networks.py",
    "test_worker.py",
}  # fmt: skip
"""Files that take two thirds of the time, and run with --all, in CI, or where they are named."""

LONG = CI_ALONE | {
    "test_build_dataset.py", "test_callcost.py", "test_cli.py", "test_draw.py", "test_fit_validate.py", "test_plan.py",
    "test_predict_cli.py", "test_pretend.py", "test_session.py", "test_write.py",
}  # fmt: skip
"""Files that take 10 s or more, beside those of the workflow."""


def _is_long(path: Path) -> bool:
    return path.name in LONG or path.parent.name == "workflow"


def pytest_unconfigure(config: pytest.Config) -> None:
    # libraries complain of what is not freed at the end, but what pytest collects before is not among them
    atexit.register(gc.unfreeze)
    if (turns := config.stash.get(TURNS, None)) is not None:
        Path(turns.name).unlink(missing_ok=True)
        turns.close()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave tests of Slurm and files of CI_ALONE out unless they are asked for; what is named is collected anyhow."""
    if config.getoption("--slurm"):
        return None
    left_to_ci = not config.getoption("--all") and collection_path.name in CI_ALONE
    return left_to_ci or collection_path.name == "slurm" or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave tests of Slurm out unless they are asked for; asked for, they fail where Slurm cannot start.

    Files that take longest come first, then files of many tests: of files that are dealt out to processes, short ones
    are to be left for the end.
    """
    tests_of = Counter(item.path for item in items)
    items.sort(key=lambda item: (not _is_long(item.path), -tests_of[item.path], item.path))
    left_out = [item for item in items if item.get_closest_marker("slurm") and not config.getoption("--slurm")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
