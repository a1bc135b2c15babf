from typing import Any

import pytest

from clockwatt.config import CampaignConfig, parse
from clockwatt.errors import ConfigError
from clockwatt.workflow import settings

CAMPAIGN: dict[str, Any] = {
    "campaign": "test",
    "gpus": {"a30": {"device": "virtual:a30", "clocks_mhz": [900]}, "other": {"device": "virtual:a30"}},
    "networks": [{"name": "resnet18", "input": [1, 3, 64, 64]}],
}


def campaign(**changes: Any) -> CampaignConfig:
    return parse(CAMPAIGN | changes)


def with_gpu(**changes: Any) -> CampaignConfig:
    return campaign(gpus={**CAMPAIGN["gpus"], "a30": CAMPAIGN["gpus"]["a30"] | changes})


def of_measuring(campaign: CampaignConfig) -> dict[str, Any]:
    return settings.measurement_settings(campaign, "a30", "1/1")


@pytest.mark.parametrize(
    "changed",
    [
        with_gpu(slurm={"runtime": 600, "partition": "long"}),
        with_gpu(clocks_mhz=[900, 1200]),
        campaign(shards=1, network_shards=4),
        campaign(networks=[{"name": "resnet50", "input": [1, 3, 64, 64]}]),
        campaign(fit={"folds": 3}),
        campaign(campaign="renamed"),
        campaign(gpus={"a30": CAMPAIGN["gpus"]["a30"]}),
    ],
)
def test_measuring_does_not_depend_on(changed):
    assert of_measuring(changed) == of_measuring(campaign())


@pytest.mark.parametrize(
    "changed",
    [
        with_gpu(device="virtual:v100"),
        with_gpu(tf32=[True, False]),
        with_gpu(control={"on_mismatch": "error"}),
        campaign(seed=1),
        campaign(measurement={"precision": 0.01}),
        campaign(telemetry={"fast_period_s": 0.2}),
    ],
)
def test_measuring_depends_on(changed):
    assert of_measuring(changed) != of_measuring(campaign())


def test_measuring_depends_on_the_shard():
    assert settings.measurement_settings(campaign(), "a30", "1/2") != of_measuring(campaign())


@pytest.mark.parametrize(
    "changed",
    [
        campaign(networks=[{"name": "resnet50", "input": [1, 3, 64, 64]}]),
        campaign(passes=["inference"]),
        campaign(training={"optimizer": "adam"}),
    ],
)
def test_catalogue_depends_on(changed):
    assert settings.catalogue_settings(changed) != settings.catalogue_settings(campaign())


def test_catalogue_does_not_depend_on_gpus():
    assert settings.catalogue_settings(with_gpu(clocks_mhz=[300])) == settings.catalogue_settings(campaign())


def test_dataset_depends_on_points_but_not_on_slurm():
    before = settings.dataset_settings(campaign())
    assert settings.dataset_settings(with_gpu(clocks_mhz=[300])) != before
    assert settings.dataset_settings(campaign(reference=["h200"])) != before
    assert settings.dataset_settings(with_gpu(slurm={"mem_mb": 1000})) == before


def test_fit_depends_on_its_block_and_the_seed():
    keys = ("campaign", "seed", "passes", "fit")
    before = settings.part(campaign(), *keys)
    assert settings.part(campaign(fit={"trees": 10}), *keys) != before
    assert settings.part(campaign(seed=1), *keys) != before
    assert settings.part(with_gpu(clocks_mhz=[300]), *keys) == before


def test_slurm_resources_are_those_that_the_workflow_names():
    resources = settings.slurm_resources(campaign().gpu("a30"), attempt=1)
    assert tuple(resources) == settings.SLURM_RESOURCES


def test_run_time_grows_with_the_attempt():
    gpu = with_gpu(slurm={"runtime": 90}).gpu("a30")
    assert [settings.slurm_resources(gpu, attempt)["runtime"] for attempt in (1, 2, 3)] == [90, 180, 270]


@pytest.mark.parametrize(
    ("slurm", "extra"),
    [
        ({}, None),
        ({"nodelist": "gpu[01-02]"}, "--nodelist=gpu[01-02]"),
        ({"extra": "--exclude=gpu07"}, "--exclude=gpu07"),
        ({"nodelist": "gpu01", "extra": "--exclusive"}, "--nodelist=gpu01 --exclusive"),
    ],
)
def test_nodes_and_further_options_become_slurm_extra(slurm, extra):
    gpu = with_gpu(slurm=slurm).gpu("a30")
    assert settings.slurm_resources(gpu, attempt=1)["slurm_extra"] == extra


@pytest.mark.parametrize(("option", "key"), [("--qos=high", "qos"), ("--mem 4000", "mem_mb"), ("-p long", "partition")])
def test_an_option_with_a_key_of_its_own_is_refused(option, key):
    with pytest.raises(ConfigError, match=rf"gpus.a30.slurm.extra: .* write {key} instead"):
        with_gpu(slurm={"extra": option})


def test_the_seed_shuffles_the_order_of_operating_points() -> None:
    jobs = [("measure", "a30", f"sm{clock}", "1") for clock in range(210, 1440, 15)]

    def order(seed: int) -> list[tuple[str, ...]]:
        return sorted(jobs, key=lambda job: settings.measuring_priority(campaign(seed=seed), *job))

    assert order(0) == order(0)
    assert order(0) != order(1)
    assert order(0) not in (jobs, jobs[::-1])


@pytest.mark.parametrize(
    ("slurm", "asked"), [({"gres": "gpu:a30:1"}, {"gres": "gpu:a30:4", "gpu": None}), ({"gpu": 1}, {"gpu": 4})]
)
def test_a_job_on_several_gpus_asks_for_cores_and_memory_for_each(slurm, asked):
    several = with_gpu(count=4, slurm={"cpus_per_task": 3, "mem_mb": 5000} | slurm)
    resources = settings.slurm_resources(settings.several(several.gpus["a30"]), 1)
    expected = {"cpus_per_task": 12, "mem_mb": 20000} | asked
    assert {name: resources[name] for name in expected} == expected
    assert settings.slurm_resources(several.gpus["a30"], 1)["cpus_per_task"] == 3
    assert of_measuring(several) == of_measuring(campaign())
    assert settings.dataset_settings(several) == settings.dataset_settings(campaign())
