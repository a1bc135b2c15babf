"""A campaign run undisturbed, and on a real local Slurm with faults: the two datasets must be equal."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from disturbed import DISK, TARGETS, Disturbed
from harness import SlurmCluster

import standin_nvml
from standin_nvml import StandInNvml
from support.logged_bench import FOLDER
from support.workdir import KEY, REPOSITORY, Workdir

MEASURED = ("time_host_s", "time_device_s", "power_w", "energy_dynamic_j")
CORRECTED = ("time_host_corrected_s", "time_device_corrected_s", "power_corrected_w", "energy_dynamic_corrected_j")
EQUAL = 1e-9
AGAIN_AFTER_S = 0.2
TOLERANCE = 0.05
"""Relative to each value, and for dynamic energy to all that the GPU draws: a session that goes on begins with a colder
card, whose leakage is less."""


@dataclass
class Outcome:
    """Of a disturbed campaign whose dataset equals the undisturbed one after each round."""

    rows: int
    rounds: int = 0
    made: Counter[str] = field(default_factory=Counter)
    starts: int = 0
    disturbed_s: float = 0
    finishing_s: float = 0
    apart: dict[str, float] = field(default_factory=dict)
    """Largest difference of each measured and corrected column, see `TOLERANCE`."""


def disturb(
    root: Path, cluster: SlurmCluster, campaign: Mapping[str, Any], rounds: Sequence[Sequence[str]],
    rng: random.Random, pause_s: float, *, traced: bool = False,
) -> Iterator[Outcome]:  # fmt: skip
    """Run a campaign undisturbed, and on Slurm with faults; after each round of them it runs to its end.

    Parameters
    ----------
    root
        Folder for both, which the daemons of Slurm can look into.
    cluster
        The Slurm.
    campaign
        See `Disturbed`.
    rounds
        Of `FAULTS`, in order; one that finds nothing to disturb comes last.
    rng, pause_s
        What decides how long the pauses between two are, and their mean.
    traced
        Whether the catalogue is made before, and not under faults.

    Yields
    ------
    Outcome
        After each round, what was done until then, and for how long.

    Raises
    ------
    AssertionError
        If after a round the two datasets are not equal.
    """
    alone, loggers = Workdir(root / "undisturbed"), root / "loggers"
    for folder in (loggers, alone.path, root / "disturbed"):
        folder.mkdir()
    alone.configure(campaign)
    alone.run(*TARGETS)
    undisturbed = dataset(alone)
    print(f"undisturbed: {len(undisturbed)} rows", flush=True)
    nvml = StandInNvml(standin_nvml.build(root), root / "nvml")
    nvml.install("NVIDIA A30")
    workdir = Workdir(root / "disturbed", cluster.environment | nvml.environ | logged(loggers))
    outcome = Outcome(len(undisturbed))
    with file_system(workdir.path / "results"):
        if traced:
            shutil.copytree(alone.path / "results/catalogue", workdir.path / "results/catalogue")
        disturbed = Disturbed(cluster, workdir, campaign, loggers, rng)
        for faults in rounds:
            began = time.monotonic()
            make(disturbed, faults, rng, pause_s, outcome.made)
            between = time.monotonic()
            disturbed.finish()
            outcome.disturbed_s += between - began
            outcome.finishing_s += time.monotonic() - between
            outcome.starts = disturbed.starts
            for name, value in compare(dataset(workdir), undisturbed).items():
                outcome.apart[name] = max(value, outcome.apart.get(name, 0))
            outcome.rounds += 1
            print(outcome, flush=True)
            yield outcome
        shutil.copytree(workdir.path / "results", root / "results")


def make(disturbed: Disturbed, faults: Sequence[str], rng: random.Random, pause_s: float, made: Counter[str]) -> None:
    """Make faults while the campaign runs, anew once it has ended, and count those that found something to disturb."""
    waiting = [*faults]
    while waiting:
        disturbed.run()
        disturbed.resume()
        fault = waiting.pop(0)
        if getattr(disturbed, fault)():
            made[fault] += 1
            print(f"{time.strftime('%X')}: {fault}", flush=True)
            time.sleep(rng.expovariate(1 / pause_s))
        else:
            waiting.append(fault)
            disturbed.start_over()
            time.sleep(AGAIN_AFTER_S)


def logged(loggers: Path) -> dict[str, str]:
    """What has the jobs' virtual GPUs read by a logger process too."""
    paths = (REPOSITORY / "tests" / "support" / "in_jobs", REPOSITORY / "tests")
    return {"PYTHONPATH": os.pathsep.join(map(str, paths)), FOLDER: str(loggers)}


def dataset(workdir: Workdir) -> pd.DataFrame:
    """Rows of the dataset, operations and networks."""
    folder = workdir.path / "results" / "dataset"
    return pd.concat(
        [pq.read_table(folder / name).to_pandas() for name in ("operations.parquet", "networks.parquet")],
        ignore_index=True,
    )


def compare(disturbed: pd.DataFrame, undisturbed: pd.DataFrame) -> dict[str, float]:
    """Compare the datasets of two runs and return the largest relative difference of each column.

    Raises
    ------
    AssertionError
        If rows, their status, why they are excluded or values differ.
    """
    key = ["gpu", "point", *KEY]
    told = [*key, "status", "excluded"]
    counts = [Counter(map(tuple, rows[told].astype(str).to_numpy())) for rows in (disturbed, undisturbed)]
    assert counts[0] == counts[1], f"rows differ: {list((counts[0] - counts[1]) + (counts[1] - counts[0]))[:5]}"
    assert max(counts[0].values()) == 1
    both = disturbed.merge(undisturbed, on=key, suffixes=("", "_undisturbed"), validate="one_to_one")
    apart = {}
    for name in (*MEASURED, *CORRECTED):
        mine, theirs = both[name].to_numpy(float), both[f"{name}_undisturbed"].to_numpy(float)
        assert (np.isnan(mine) == np.isnan(theirs)).all(), f"{name}: null in one run alone"
        whole_j = both["power_w_undisturbed"] * both["time_eager_s_undisturbed"]
        scale = (whole_j if "energy" in name else both[f"{name}_undisturbed"]).to_numpy(float)
        some = theirs > 0
        away = np.abs(mine - theirs)[some] / scale[some]
        apart[name] = float(np.nanmax(away))
        print(f"{name}: {(away > EQUAL).sum()} of {len(both)} rows not equal, at most {apart[name]:.2%} apart")
        beyond = both[some][away > TOLERANCE]
        assert beyond.empty, f"{name}: {beyond[key].to_dict('records')}"
    return apart


@contextlib.contextmanager
def file_system(path: Path) -> Iterator[None]:
    """A file system of its own at `path`; what it held when something failed is kept beside it."""
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(path)], check=True)
    try:
        yield
    except BaseException:
        shutil.copytree(path, path.with_name(f"{path.name}-as-left"))
        raise
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)
