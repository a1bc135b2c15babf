"""What `clockwatt plan` and `clockwatt status` say, before and after measuring."""

from pathlib import Path

import pytest

from clockwatt import config
from clockwatt.config import CampaignConfig, OperatingPoint
from clockwatt.measure.session import measure_shard
from clockwatt.measure.tasks import Shard
from clockwatt.workflow.plan import catalogue_for, make_plan, show_plan
from clockwatt.workflow.status import campaign_status, show_status
from support.handmade import operation, write_catalogue


def campaign(**changes: object) -> CampaignConfig:
    base: dict[str, object] = {
        "campaign": "test",
        "gpus": {"a30": {"device": "virtual:a30", "clocks_mhz": ["default", 900]}},
        "networks": [{"name": "toy", "input": [8, 64]}],
    }
    return config.parse(base | changes)


@pytest.fixture
def catalogue(tmp_path: Path) -> Path:
    write_catalogue(
        tmp_path, [operation(10**n, pass_=pass_) for pass_ in ("inference", "training") for n in range(2, 7)]
    )
    return tmp_path


def measure(config_: CampaignConfig, catalogue: Path, point: str = "default") -> None:
    for networks in (False, True):
        measure_shard(
            config_, label="a30", point=OperatingPoint.parse(point), shard=Shard(1, 1, networks),
            catalogue_dir=catalogue, store_dir=catalogue / "store", output=catalogue / f"{networks}.parquet",
        )  # fmt: skip


def test_jobs_rows_and_files_are_those_that_will_be(catalogue: Path) -> None:
    plan = make_plan(campaign(shards=3, network_shards=2), catalogue, catalogue / "store")
    (gpu,) = plan.gpus
    assert (plan.operations, plan.networks) == (10, 2)
    assert gpu.points == 2
    assert gpu.jobs == 2 * (1 + 3 + 2)
    assert gpu.measurements == 2 * (10 + 2)
    assert gpu.finished == 0
    assert 0 < gpu.gpu_hours < 1
    assert gpu.bytes > 0


def test_what_the_store_holds_costs_nothing(catalogue: Path) -> None:
    before = make_plan(campaign(), catalogue, catalogue / "store").gpus[0]
    measure(campaign(), catalogue)
    after = make_plan(campaign(), catalogue, catalogue / "store").gpus[0]
    assert after.finished == 12
    assert after.gpu_hours < before.gpu_hours


def test_repetitions_and_tf32_multiply_rows(catalogue: Path) -> None:
    both = campaign(gpus={"a30": {"device": "virtual:a30", "tf32": [True, False]}}, measurement={"repetitions": 3})
    assert make_plan(both, catalogue, catalogue / "store").gpus[0].measurements == 2 * 3 * 12


def test_one_pass_counts_only_its_operations(catalogue: Path) -> None:
    plan = make_plan(campaign(passes=["inference"]), catalogue, catalogue / "store")
    assert (plan.operations, plan.networks) == (5, 1)


def test_shards_of_about_an_hour_are_recommended(tmp_path: Path) -> None:
    write_catalogue(tmp_path, [operation(n) for n in range(1, 5001)])
    plan = make_plan(campaign(passes=["inference"]), tmp_path, tmp_path / "store")
    assert plan.recommended_shards == pytest.approx(5000 * 1.75 / 3600, abs=1)


def test_a_catalogue_that_lacks_a_network_is_not_used(catalogue: Path) -> None:
    with catalogue_for(campaign(), catalogue) as used:
        assert used == catalogue
    more = campaign(networks=[{"name": "resnet18", "input": [1, 3, 64, 64]}], passes=["inference"])
    with catalogue_for(more, catalogue) as used:
        assert used != catalogue
        assert make_plan(more, used, catalogue / "store").networks == 1
    assert not used.exists()


def test_status_counts_what_is_finished(catalogue: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measure(campaign(), catalogue)
    default, sm900 = campaign_status(campaign(), catalogue, catalogue / "store")
    assert (default.wanted, default.finished.total()) == (12, 12)
    assert (str(sm900.point), sm900.finished.total()) == ("sm900", 0)
    show_status([default, sm900])
    shown = capsys.readouterr().out
    assert "default" in shown
    assert "12" in shown


def test_a_plan_is_shown_with_all_gpus(catalogue: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two = campaign(gpus={"a30": {"device": "virtual:a30"}, "v100": {"device": "virtual:v100"}})
    show_plan(make_plan(two, catalogue, catalogue / "store"))
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("a30", "v100", "all", "10 operations and 2 networks"))
