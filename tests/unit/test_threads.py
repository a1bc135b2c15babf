"""Threads that are asked for are those that are used."""

import os
import threading

import numpy as np
import pandas as pd
import pytest

from clockwatt.predict.models.predictors import TARGETS, ForestPredictor, XgboostPredictor
from clockwatt.threads import usable_threads

CORES = len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("asked", "threads"), [("1", 1), ("1,4", 1), ("100000", CORES), ("", CORES), ("0", CORES), ("many", CORES)]
)
def test_as_many_as_the_variable_of_openmp_says_and_never_more_than_cores(monkeypatch, asked, threads):
    monkeypatch.setenv("OMP_NUM_THREADS", asked)
    assert usable_threads() == threads


@pytest.mark.parametrize("kind", [ForestPredictor, XgboostPredictor])
@pytest.mark.parametrize("asked", [1, 2])
def test_a_fit_starts_as_many_threads_as_were_asked_for(monkeypatch, kind, asked):
    features = pd.DataFrame({"operation_class": "relu", "size": np.arange(1.0, 41.0), "roofline_time_s": 1e-6})
    features["power_limit_w"] = 300.0
    targets = pd.DataFrame({name: features["size"] * 1e-6 * factor for factor, name in enumerate(TARGETS, 1)})
    started, start = [], threading.Thread.start

    def counted(thread):
        started.append(thread)
        start(thread)

    monkeypatch.setenv("OMP_NUM_THREADS", str(asked))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(8))
    monkeypatch.setattr(threading.Thread, "start", counted)
    kind(trees=20).fit(features, targets)
    workers = {thread.name for thread in started}
    assert len(workers) <= 1 if asked == 1 else 2 <= len(workers) < 8
