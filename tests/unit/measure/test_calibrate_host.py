"""`clockwatt calibrate --host` and `--links` without a campaign, as after `pip install clockwatt`."""

import functools
import math
import os
from unittest import mock

import pytest
from typer.testing import CliRunner

from clockwatt.cli.main import app
from clockwatt.config import NetworkConfig
from clockwatt.errors import ClockwattError, OutputError
from clockwatt.gpu.interface import GpuNotFoundError
from clockwatt.measure.calibrate import host as stage
from clockwatt.predict.hosts import HostProfile

NETWORKS = [
    NetworkConfig(name=f"support.small_networks:{name}", input=[8, 16])
    for name in ("deep", "wide", "normalised", "Functional")
]


def run(*words):
    result = CliRunner().invoke(app, ["calibrate", *map(str, words)])
    if isinstance(result.exception, ClockwattError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def test_a_profile_without_a_campaign_is_found_from_every_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(stage, "SECONDS", math.inf)
    monkeypatch.setattr(stage, "measure_host", functools.partial(stage.measure_host, networks=NETWORKS))
    assert "host node7 (VIRTUAL GPU): measured in" in run("--host", "node7", "--gpu", "virtual:a30")
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    read = HostProfile.read(tmp_path / "elsewhere", "node7")
    assert read.name == "node7"
    assert read.operations
    with pytest.raises(ClockwattError, match=r"known: node7.*`clockwatt calibrate --host node8`"):
        HostProfile.read(tmp_path / "elsewhere", "node8")


def test_a_folder_that_cannot_be_written_is_named_before_anything_is_measured(tmp_path, monkeypatch):
    (tmp_path / "data").write_text("a file, not a folder")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    with pytest.raises(OutputError, match=r"node7.json: cannot be written. Set XDG_DATA_HOME"):
        run("--host", "node7", "--gpu", "virtual:a30")
    with pytest.raises(OutputError, match=r"node7.json: cannot be written. Give another --predictors-dir"):
        run("--host", "node7", "--gpu", "virtual:a30", "--predictors-dir", tmp_path / "data")


def test_links_need_no_campaign(ready, tmp_path):
    run("--links", tmp_path / "links.json", "--gpu", "virtual:a30", "--gpus", 2)
    assert (tmp_path / "links.json").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "calibrate needs --host NAME, or --links FILE"),
        (["--catalogue-dir", "c", "--output", "o.json"], "Give --config FILE and --gpu LABEL"),
        (["--host", "n", "--point", "sm900", "--gpu", "virtual:a30"], "--point sm900 needs the campaign"),
        (["--host", "n", "--config", "c.yaml"], "Give --gpu LABEL too"),
        (["--host", "n", "--output", "o.json"], "--host needs no --catalogue-dir and no --output"),
        (["--links", "l.json", "--host", "n"], "no --host. Leave them out"),
        (["--host", "n", "--gpu", "virtual:a31"], "no specifications of this GPU"),
    ],
)
def test_what_does_not_go_together_is_refused(words, message):
    with pytest.raises(ClockwattError, match=message):
        run(*words)


def campaign_with(visible, gpu):
    with mock.patch.dict(os.environ, {"CUDA_VISIBLE_DEVICES": visible}):
        return stage.campaign_here(gpu)


def test_the_gpu_is_recognised_by_its_product_name(nvml, in_worker):
    campaign, label = in_worker(campaign_with, nvml.uuid(2), None)
    assert (label, campaign.gpu(label).device) == ("rtx2080ti", "NVIDIA GeForce RTX 2080 Ti")
    assert in_worker(campaign_with, nvml.uuid(2), "RTX 2080 Ti")[1] == "rtx2080ti"
    with pytest.raises(GpuNotFoundError, match=r"--gpu h100: this machine has NVIDIA GeForce RTX 2080 Ti. Leave"):
        in_worker(campaign_with, nvml.uuid(2), "h100")
