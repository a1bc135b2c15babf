import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from clockwatt import config
from clockwatt.config import CampaignConfig, OperatingPoint
from clockwatt.errors import ConfigError


def campaign(**changes: object) -> dict[str, object]:
    base: dict[str, object] = {
        "campaign": "demo",
        "gpus": {"a30": {"device": "NVIDIA A30", "clocks_mhz": [210, "default"]}},
        "networks": [{"name": "resnet18", "input": [32, 3, 224, 224]}],
    }
    return base | changes


def power(**changes: object) -> dict[str, object]:
    return campaign(studies={"power": {"gpus": {"a30": {"power_limits_w": [100, 130]}}} | changes})


def gpu(**changes: object) -> dict[str, object]:
    return campaign(gpus={"a30": {"device": "NVIDIA A30"} | changes})


@pytest.mark.parametrize(
    ("content", "key", "fix"),
    [
        (gpu(clocks_mhz=[210, "fast"]), "gpus.a30.clocks_mhz[1]", "'fast' is not a number of MHz"),
        (gpu(clocks_mhz=["1440 MHz"]), "gpus.a30.clocks_mhz[0]", "'1440 MHz' is not a number of MHz"),
        (gpu(power_limits_w=[-5]), "gpus.a30.power_limits_w[0]", "-5 is not a number of W"),
        (gpu(clocks_mhz=[900, 900]), "gpus.a30.clocks_mhz", "is given twice"),
        (gpu(clock_mhz=[900]), "gpus.a30.clock_mhz", "did you mean 'clocks_mhz'?"),
        (gpu(device=""), "gpus.a30.device", "is empty"),
        (gpu(control={"method": "none"}, clocks_mhz=[900]), "gpus.a30", "method none sets nothing"),
        (gpu(slurm={"gres": "gpu:1", "gpu": 1}), "gpus.a30.slurm", "not both"),
        (gpu(slurm={"gpu_model": "a30"}), "gpus.a30.slurm", "gpu_model needs gpu: 1"),
        (gpu(slurm={"runtime": "2h"}), "gpus.a30.slurm.runtime", "'2h' should be a valid integer"),
        (campaign(shard=3), "shard", "did you mean 'shards'?"),
        (campaign(shards=0), "shards", "0 should be greater than or equal to 1"),
        (campaign(reference=["a31"]), "reference", "no data called 'a31' is shipped; choose among a30, h100, h200"),
        (campaign(reference=["h200", "h200"]), "reference", "is given twice"),
        (campaign(passes=["forward"]), "passes[0]", "'inference' or 'training'"),
        (campaign(gpus={}), "gpus", "at least 1"),
        (campaign(results_dir="my results"), "results_dir", "as spaces and braces"),
        (campaign(results_dir=__file__), "results_dir", "is no folder: name another"),
        (campaign(results_dir="x" * 300), "results_dir", "File name too long"),
        (campaign(gpus={"a/30": {"device": "x"}}), "gpus", "label 'a/30'"),
        (campaign(gpus={"a" * 300: {"device": "x"}}), "gpus", "at most 64"),
        (campaign(networks=[{"name": "r", "input": [0]}]), "networks[0].input[0]", "greater than 0"),
        (campaign(networks=[{"name": "r", "input": [1]}] * 2), "networks", "r-1-float32 is given twice"),
        (campaign(networks=[{"name": "r", "input": [1], "input_dtype": "int64"}]), "networks[0]", "input_below"),
        (campaign(fit={"unseen_gpu": True}), "fit", "unseen_gpu is offered no more"),
        (campaign(studies={"powers": {}}), "studies.powers", "did you mean 'power'?"),
        (power(epoch=3), "studies.power.epoch", "did you mean 'epochs'?"),
        (power(gpus={}), "studies.power.gpus", "at least 1"),
        (power(gpus={"a30": {}}), "studies.power.gpus.a30", "has no operating point"),
        (
            power(gpus={"a30": {"power_limit_w": 1}}),
            "studies.power.gpus.a30.power_limit_w",
            "did you mean 'power_limits_w'",
        ),
        (
            power(gpus={"h100": {"clocks_mhz": 900}}),
            "studies",
            "power.gpus.h100: no GPU has this label; the campaign has a30",
        ),
        (
            power(networks=["resnet18"]),
            "studies.power.networks[0]",
            "should be 'ecg_resnet', 'ecg_cinc17', 'dense_512' or 'dense_16384'",
        ),
        (power(networks=["dense_512"] * 2), "studies.power.networks", "is given twice"),
        (
            power() | {"gpus": {"a30": {"device": "NVIDIA A30", "control": {"method": "none"}}}},
            "studies",
            "power.gpus.a30: control.method none sets nothing",
        ),
        (campaign(measurement={"window_min_s": 2, "window_max_s": 1}), "measurement", "below window_min_s"),
    ],
)
def test_an_error_names_the_file_the_key_and_the_fix(content: object, key: str, fix: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config.parse(content, source="config/config.yaml")
    assert str(caught.value).startswith(f"config/config.yaml: {key}: ")
    assert fix in str(caught.value)


def test_all_errors_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        config.parse({"campaign": "demo", "shards": 0})
    assert {"shards", "gpus", "networks"} <= {line.strip().split(":")[0] for line in str(caught.value).splitlines()}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[1, 2", r"line 1 is not valid YAML \(expected ',' or ']', but got '<stream end>'\)"),
        ("campaign: demo\n\tgpus: x", r"line 2 is not valid YAML \(found character '\\t'"),
        ("", "is not a mapping"),
        ("- a", "is not a mapping"),
    ],
)
def test_a_file_that_is_no_mapping_is_refused(tmp_path, text: str, why: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=rf"config\.yaml: {why}"):
        config.load(path)


def test_a_missing_file_is_named(tmp_path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yaml: no such file"):
        config.load(tmp_path / "nowhere.yaml")


def test_a_dump_reads_back_as_the_same_campaign() -> None:
    parsed = config.parse(gpu(clocks_mhz=["default", 900], tf32=[True, False]))
    assert config.parse(yaml.safe_load(config.dump(parsed))) == parsed


def test_points_are_all_combinations() -> None:
    parsed = config.parse(gpu(clocks_mhz=["default", 900], power_limits_w=[100, 150]))
    assert [str(point) for point in parsed.gpu("a30").points] == ["pl100", "pl150", "sm900-pl100", "sm900-pl150"]


def test_a_study_has_power_limits_and_clocks_beside_each_other_and_a_target() -> None:
    content = power(gpus={"a30": {"power_limits_w": ["default", 130], "clocks_mhz": [900, "default"]}})
    studies = config.parse(content).studies
    assert studies.power is not None
    assert [str(point) for point in studies.power.gpus["a30"].points] == ["default", "pl130", "sm900"]
    assert studies.configured == ["study_power"]
    assert config.parse(campaign()).studies.configured == []


def test_an_unknown_label_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="the campaign has a30"):
        config.parse(gpu()).gpu("v100")


settings = st.none() | st.integers(1, 100_000)


@given(settings, settings, settings)
def test_a_point_is_read_back_from_its_path(sm: int | None, memory: int | None, power: int | None) -> None:
    point = OperatingPoint(sm, memory, power)
    assert OperatingPoint.parse(str(point)) == point


@pytest.mark.parametrize("text", ["sm", "1440", "pl150-sm1440", "default-sm1", "sm1440-", ""])
def test_what_is_no_point_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="no operating point"):
        OperatingPoint.parse(text)


def test_every_key_is_described() -> None:
    def undescribed(model: type, prefix: str) -> list[str]:
        return [
            f"{prefix}{name}"
            for name, field in model.model_fields.items()
            if not field.description
            and name in ("device", "clocks_mhz", "shards", "gpus", "networks", "seed", "campaign")
        ]

    assert undescribed(CampaignConfig, "") == []


def test_quantities_are_time_or_time_and_energy_and_a_network_may_differ() -> None:
    base = {"campaign": "t", "gpus": {"a30": {"device": "virtual:a30"}}}
    networks = [{"name": "a", "input": [1, 2]}, {"name": "b", "input": [1, 2], "quantities": ["energy", "time"]}]
    campaign = config.parse({**base, "networks": networks, "quantities": "time"})
    first, second = campaign.networks
    assert campaign.quantities_of([first]) == ["time"]
    assert campaign.quantities_of([first, second]) == ["time", "energy"]
    assert campaign.quantities_of([]) == []
    for wrong in (["energy"], [], ["time", "time"]):
        with pytest.raises(ConfigError, match=r"quantities.*write \[time\] or \[time, energy\]"):
            config.parse({**base, "networks": networks, "quantities": wrong})


@pytest.mark.parametrize("key", ["workloads", "gpus"])
def test_an_empty_list_is_told_in_words(key: str) -> None:
    content = {
        "campaign": "x", "gpus": {"a30": {"device": "virtual:a30"}},
        "networks": [{"name": "resnet18", "input": [1, 3, 64, 64]}], "studies": {"workloads": {key: []}},
    }  # fmt: skip
    with pytest.raises(ConfigError, match=rf"studies\.workloads\.{key}: \[\] has too few entries: give at least 1"):
        config.parse(content)


def test_a_network_that_no_gpu_would_measure_is_refused():
    network = {"name": "toy", "input": [8, 64], "precision": ["fp32", "tf32-conv"]}
    content = {"campaign": "c", "gpus": {"a": {"device": "virtual:a30"}}, "networks": [network]}
    with pytest.raises(ConfigError, match=r"toy: no GPU measures fp32 or tf32-conv; add one to gpus\.a\.precision"):
        config.parse(content)
    assert config.parse(content | {"networks": [network | {"whole": False}]}).networks
    each = network | {"precision": ["tf32", "fp32+channels_last"]}  # which makes two networks of it
    with pytest.raises(ConfigError, match=r"toy: no GPU measures fp32\+channels_last; add one"):
        config.parse(content | {"networks": [each]})


def test_a_step_that_cannot_be_captured_is_refused() -> None:
    network = {"name": "toy", "input": [8, 64], "precision": "fp16-mixed+channels_last+cuda_graph"}
    content = {
        "campaign": "c",
        "gpus": {"a": {"device": "NVIDIA A30", "control": {"method": "none"}}},
        "networks": [network],
    }
    with pytest.raises(ConfigError, match=r"passes: toy: fp16-mixed\+cuda_graph cannot train, since GradScaler"):
        config.parse(content)
    assert config.parse(content | {"passes": ["inference"]}).networks
    assert config.parse(content | {"networks": [network | {"whole": False}]}).networks
