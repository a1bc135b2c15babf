"""The fresh set: what it holds, that nothing is learnt from it, and that it is scored."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from clockwatt.config import NetworkConfig

ROOT = Path(__file__).parents[3]
FRESH = ROOT / "benchmarks" / "fresh"
PASSES = json.loads((FRESH / "passes.json").read_text())
IDS = [NetworkConfig.model_validate(one["network"]).network_id for one in PASSES]


def test_each_day_has_220_passes_and_shares_half_of_them():
    days = [{place for place, one in enumerate(PASSES) if day in one["days"]} for day in (1, 2)]
    assert all(len(day) >= 220 for day in days)
    assert len(days[0] & days[1]) >= max(map(len, days)) / 2


def test_no_shipped_network_is_among_them():
    for path in (ROOT / "resources" / "reference").glob("*/catalogue/networks.parquet"):
        shipped = set(pd.read_parquet(path, columns=["network_id"])["network_id"])
        assert not shipped.intersection(IDS), path


def test_what_is_learnt_reads_nothing_of_it():
    learning = [*(ROOT / "src").rglob("*.py"), *(ROOT / "workflow").rglob("*.smk"), ROOT / "Snakefile"]
    assert len(learning) > 100
    named = [path for path in learning if re.search(r"benchmarks[./]fresh", path.read_text(encoding="utf-8"))]
    assert named == []
    shipped = (ROOT / "resources" / "reference").glob("*/config.yaml")
    assert not any("benchmarks" in path.read_text(encoding="utf-8") for path in shipped)


def test_every_pass_has_a_trace_and_its_configuration():
    traced = pd.read_parquet(FRESH / "catalogue" / "networks.parquet")
    pairs = set(zip(traced["network_id"], traced["pass"], strict=True))
    assert {(one, entry["pass"]) for one, entry in zip(IDS, PASSES, strict=True)} == pairs
    named = {one["network"]["name"].removeprefix("hf:") for one in PASSES if one["network"]["name"].startswith("hf:")}
    assert {path.relative_to(ROOT).as_posix() for path in (FRESH / "configs").glob("*.json")} == named


@pytest.fixture
def score(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    from benchmarks.fresh import score

    return score


def test_coverage_has_an_exact_interval(score):
    low, high = score.clopper_pearson(45, 50)
    assert low == pytest.approx(0.7819, abs=1e-3)
    assert high == pytest.approx(0.9667, abs=1e-3)
    assert score.clopper_pearson(0, 10)[0] == 0.0
    assert score.clopper_pearson(10, 10)[1] == 1.0


def test_device_time_of_unqueueable_passes_is_that_of_their_kernels_and_the_gaps_between(score, tmp_path):
    columns = ["kind", "status", "pass", "time_device_s", "kernels", "kernels_s", "device_method"]
    rows = [
        ("network", "ok", "training", 1.1e-3, 100, 1e-3, "queued"),
        ("network", "ok", "training", None, 5000, 9e-3, None),
        ("network", "ok", "inference", None, 10, 1e-3, None),
        ("network", "failed", "training", None, None, None, None),
        ("anchor", "ok", "inference", 1e-3, None, None, None),
    ]
    path = tmp_path / "rows.parquet"
    pd.DataFrame(rows, columns=columns).to_parquet(path)
    found = score.measured([path])
    assert found["device_s"].tolist()[:2] == pytest.approx([1.1e-3, 9e-3 + 5000 * 1e-6])
    assert found["device_s"].isna().tolist() == [False, False, True]
    assert found["device_method"].tolist()[1] == "profiler"


def test_a_host_is_told_from_its_passes(score):
    random = np.random.default_rng(0)
    stated_s = random.uniform(1e-3, 1e-2, 40)
    passes = pd.DataFrame({"stated_s": stated_s, "seen_s": 1.8 * stated_s})
    told = score.hosts._told(passes, "one")
    assert (told.overall, told.low, told.high) == pytest.approx((1.8, 1.0, 1.0))
    noisy = passes.assign(seen_s=passes["seen_s"] * random.uniform(0.7, 1.4, 40))
    assert score.hosts._told(noisy, "one").high > 1.15
    assert score.hosts._told(passes.iloc[:5], "one") is None


def test_a_network_tells_no_host_of_its_own(score):
    half = score.hosts.half_of
    assert half("resnet18-1x3x224x224-float32") == half("resnet18-8x3x96x96-bfloat16")
    assert {half(one) for one in IDS} == {0, 1}
