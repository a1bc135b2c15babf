"""What `clockwatt plan` and `clockwatt status` say, before and after measuring."""

import json
from pathlib import Path

import pytest

from clockwatt import config
from clockwatt.cli.main import app
from clockwatt.config import CampaignConfig, OperatingPoint
from clockwatt.measure.session import measure_shard
from clockwatt.measure.tasks import Shard
from clockwatt.operations.catalogue import write_catalogue as write_catalogue_of
from clockwatt.schema import layout
from clockwatt.studies.power.measure import measure_study
from clockwatt.workflow.plan import JOB_START_S, Plan, catalogue_for, make_plan, show_plan
from clockwatt.workflow.plan_studies import plan_studies, show_studies
from clockwatt.workflow.status import campaign_status, show_status
from support.handmade import operation, write_catalogue

pytestmark = pytest.mark.usefixtures("ready")  # tracing is a process of its own


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
    for networks, path in (False, layout.operations_file), (True, layout.networks_file):
        measure_shard(
            config_, label="a30", point=OperatingPoint.parse(point), shard=Shard(1, 1, networks),
            catalogue_dir=catalogue, store_dir=catalogue / "store",
            output=catalogue / "measurements" / path("a30", point, 1),
        )  # fmt: skip


def plan_of(config_: CampaignConfig, catalogue: Path, folder: Path | None = None) -> Plan:
    folder = folder or catalogue
    return make_plan(config_, catalogue, folder / "store", folder / "measurements")


def test_jobs_rows_and_files_are_those_that_will_be(catalogue: Path) -> None:
    plan = plan_of(campaign(shards=3, network_shards=2), catalogue)
    (gpu,) = plan.gpus
    assert (plan.operations, plan.networks) == (10, 2)
    assert gpu.points == 2
    assert gpu.jobs == 2 * (1 + 3 + 2)
    assert gpu.measurements == 2 * (10 + 2)
    assert gpu.finished == 0
    assert 0 < gpu.gpu_hours < 1
    assert gpu.bytes > 0


def test_what_the_store_holds_costs_nothing(catalogue: Path) -> None:
    before = plan_of(campaign(), catalogue).gpus[0]
    measure(campaign(), catalogue)
    after = plan_of(campaign(), catalogue).gpus[0]
    assert after.finished == 12
    assert after.gpu_hours < before.gpu_hours
    assert (before.jobs, after.jobs) == (2 * 3, 1 + 3)  # calibrated was nothing yet


def test_of_a_finished_campaign_nothing_is_left(catalogue: Path) -> None:
    begun = plan_of(campaign(), catalogue).gpus[0]
    for point in ("default", "sm900"):
        measure(campaign(), catalogue, point)
        (catalogue / "measurements" / layout.calibration_file("a30", point)).touch()
    (gpu,) = plan_of(campaign(), catalogue).gpus
    assert (gpu.jobs, gpu.gpu_hours) == (0, 0)
    assert (gpu.measurements, gpu.finished, gpu.files, gpu.bytes) == (24, 24, begun.files, begun.bytes)


def test_a_finished_campaign_that_is_cut_into_other_shards_has_jobs_left_that_measure_nothing(catalogue: Path) -> None:
    measure(campaign(), catalogue)
    measure(campaign(), catalogue, "sm900")
    cut = plan_of(campaign(shards=3), catalogue).gpus[0]
    assert cut.jobs == 2 * (1 + 2)
    assert cut.finished == 24


def test_an_operation_more_is_one_shard_more_to_do(catalogue: Path) -> None:
    measure(campaign(), catalogue)
    (catalogue / "measurements" / layout.calibration_file("a30", "default")).touch()
    at_900 = 3
    write_catalogue(
        catalogue, [operation(10**n, pass_=pass_) for pass_ in ("inference", "training") for n in range(2, 8)]
    )
    (gpu,) = plan_of(campaign(), catalogue).gpus
    assert gpu.jobs == 1 + at_900


def test_repetitions_and_tf32_multiply_rows(catalogue: Path) -> None:
    both = campaign(gpus={"a30": {"device": "virtual:a30", "tf32": [True, False]}}, measurement={"repetitions": 3})
    assert plan_of(both, catalogue).gpus[0].measurements == 2 * 3 * 12


def test_one_pass_counts_only_its_operations(catalogue: Path) -> None:
    plan = plan_of(campaign(passes=["inference"]), catalogue)
    assert (plan.operations, plan.networks) == (5, 1)


def test_shards_of_about_an_hour_are_recommended(tmp_path: Path) -> None:
    write_catalogue(tmp_path, [operation(n) for n in range(1, 5001)])
    plan = plan_of(campaign(passes=["inference"]), tmp_path)
    assert plan.recommended_shards == pytest.approx(5000 * 1.75 / 3600, abs=1)


def test_few_operations_in_many_shards_take_less_than_an_hour(catalogue: Path, capsys: pytest.CaptureFixture) -> None:
    show_plan(plan_of(campaign(shards=4), catalogue))
    assert "With the key `shards: 1`, a job would take about an hour or less (now: 4)." in capsys.readouterr().out


def test_a_catalogue_that_lacks_a_network_is_not_used(catalogue: Path) -> None:
    with catalogue_for(campaign(), catalogue) as used:
        assert used == catalogue
    more = campaign(networks=[{"name": "resnet18", "input": [1, 3, 64, 64]}], passes=["inference"])
    with catalogue_for(more, catalogue) as used:
        assert used != catalogue
        assert plan_of(more, used, catalogue).networks == 1
    assert not used.exists()


SQUEEZENET = {"name": "squeezenet1_1", "input": [1, 3, 64, 64]}


@pytest.mark.parametrize(
    "changes",
    [
        {"networks": [SQUEEZENET, {"name": "alexnet", "input": [1, 3, 64, 64]}]},
        {"networks": [SQUEEZENET | {"sample": 0.5}]},
        {"passes": ["inference", "training"]},
    ],
)
def test_a_catalogue_of_another_campaign_is_not_counted(tmp_path: Path, changes: dict[str, object]) -> None:
    traced = campaign(networks=[SQUEEZENET], passes=["inference"])
    write_catalogue_of(traced, tmp_path)
    with catalogue_for(traced, tmp_path) as used:
        assert used == tmp_path
        (before, _) = campaign_status(traced, used, tmp_path / "store")
    changed = campaign(**{"networks": [SQUEEZENET], "passes": ["inference"]} | changes)
    with catalogue_for(changed, tmp_path) as used:
        assert used != tmp_path
        (after, _) = campaign_status(changed, used, tmp_path / "store")
    assert (after.wanted > before.wanted) == ("sample" not in str(changes))


def test_status_as_it_is_typed_knows_networks_that_were_added(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    content = {"campaign": "test", "gpus": {"a30": {"device": "virtual:a30"}}, "passes": ["inference"]}
    write_catalogue_of(config.parse(content | {"networks": [SQUEEZENET]}), tmp_path)
    added = {"networks": [SQUEEZENET, {"name": "alexnet", "input": [1, 3, 64, 64]}]}
    (tmp_path / "config.yaml").write_text(json.dumps(content | added))
    options = ["--config", tmp_path / "config.yaml", "--catalogue-dir", tmp_path, "--store-dir", tmp_path / "store"]
    with pytest.raises(SystemExit):
        app(["status", *map(str, options)], prog_name="clockwatt")
    shown = capsys.readouterr()
    assert "not of this campaign's networks" in shown.err
    write_catalogue_of(config.parse(content | added), tmp_path / "of all")
    (wanted,) = campaign_status(config.parse(content | added), tmp_path / "of all", tmp_path / "store")
    assert str(wanted.wanted) in shown.out


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
    show_plan(plan_of(two, catalogue))
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("a30", "v100", "all", "10 operations and 2 networks"))


STUDIES = {
    "power": {
        "gpus": {"a30": {"power_limits_w": [120, 165]}}, "networks": ["dense_512"], "repetitions": 2, "epochs": 1,
        "examples": {"dense_512": 1280},
    },
    "workloads": {"workloads": ["fft", "sepia"], "seconds": 30, "idle_s": 6},
}  # fmt: skip


def test_jobs_and_programs_of_studies_are_counted_until_they_are_done(tmp_path: Path, capsys) -> None:
    asked = campaign(studies=STUDIES, results_dir=str(tmp_path))
    power, workloads = plan_studies(asked)
    assert (power.study, power.label, power.programs, power.finished, power.jobs) == ("study_power", "a30", 4, 0, 2)
    assert power.gpu_hours is None  # nobody knows how long a training takes
    assert (workloads.programs, workloads.finished, workloads.jobs) == (2, 0, 2)
    assert workloads.gpu_hours == pytest.approx((2 * 36 + JOB_START_S) / 3600)
    show_studies([power, workloads])
    shown = " ".join(capsys.readouterr().out.split())
    assert "study_workloads" in shown
    assert "unknown until a first program has finished" in shown

    measure_study(asked, "a30", tmp_path / "studies" / "power" / "a30")
    power, _ = plan_studies(asked)
    assert (power.programs, power.finished, power.jobs, power.gpu_hours) == (4, 4, 1, 0.0)  # the figure is left
    more = STUDIES | {"power": STUDIES["power"] | {"repetitions": 3}}
    power, _ = plan_studies(campaign(studies=more, results_dir=str(tmp_path)))
    assert (power.programs, power.finished) == (6, 4)
    assert 0 < power.gpu_hours < 1


def test_a_campaign_without_studies_says_nothing_of_them(capsys) -> None:
    show_studies(plan_studies(campaign()))
    assert capsys.readouterr().out == ""
