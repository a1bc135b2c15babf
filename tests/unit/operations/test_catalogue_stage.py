import json
import subprocess
import sys

import pytest
import torch

from clockwatt import config
from clockwatt.config import NetworkConfig, TrainingConfig
from clockwatt.io import files
from clockwatt.operations import numerics
from clockwatt.operations.catalogue import trace_rows, write_catalogue
from clockwatt.operations.networks import NetworkError
from clockwatt.operations.spec.operation import Operation
from clockwatt.schema.execution import FP32, TF32
from clockwatt.schema.records import CALL_SCHEMA, NETWORK_SCHEMA, OPERATION_SCHEMA


@pytest.mark.parametrize("name", ["torch.nn:Identity", "torch.nn:Flatten"])
def test_a_network_that_computes_nothing_is_refused_by_name(name):
    with pytest.raises(NetworkError, match=rf"network {name}: computes nothing on a GPU"):
        trace_rows(NetworkConfig(name=name, input=[2, 8]), "inference", TrainingConfig())


def campaign(*networks, **settings):
    content = {"campaign": "test", "gpus": {"a30": {"device": "virtual:a30"}}, "networks": list(networks), **settings}
    return config.parse(content)


RESNET = {"name": "resnet18", "input": [2, 3, 64, 64]}
SQUEEZENET = {"name": "squeezenet1_1", "input": [2, 3, 64, 64]}


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory):
    folder = tmp_path_factory.mktemp("catalogue")
    write_catalogue(campaign(RESNET, SQUEEZENET), folder)
    return folder


def tables(folder):
    return tuple(
        files.read_table(folder / f"{name}.parquet", schema).to_pandas()
        for name, schema in (("operations", OPERATION_SCHEMA), ("calls", CALL_SCHEMA), ("networks", NETWORK_SCHEMA))
    )


def test_every_call_has_its_operation(catalogue):
    operations, calls, networks = tables(catalogue)
    assert not operations.duplicated(["operation_id", "pass"]).any()
    joined = calls.merge(operations, on=["operation_id", "pass"], how="left")
    assert joined["spec"].notna().all()
    assert len(networks) == 4
    for row in networks.itertuples():
        mine = calls[(calls["network_id"] == row.network_id) & (calls["pass"] == row[5])]
        assert len(mine) == row.calls
        assert list(mine["position"]) == list(range(row.calls))


def test_specs_are_canonical_and_are_the_ids(catalogue):
    operations, _, _ = tables(catalogue)
    for row in operations.itertuples():
        operation = Operation.from_json(row.spec)
        assert operation.operation_id == row.operation_id
        assert operation.to_json() == row.spec
        assert operation.operation_class == row.operation_class


def test_kinds_say_what_runs(catalogue):
    operations, _, networks = tables(catalogue)
    assert set(operations["kind"]) == {"compute", "view", "identity", "random", "loss", "accumulation", "optimizer"}
    idle = operations[~operations["device_work"]]
    assert (idle[["flops", "bytes_read", "bytes_written"]] == 0).all().all()
    assert set(operations[operations["kind"] == "identity"]["function"]) == {"torch.nn.functional.dropout"}
    optimizer = json.loads(networks[networks["pass"] == "training"]["optimizer"].iloc[0])
    assert optimizer == {"optimizer": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 0.0}
    assert networks[networks["pass"] == "inference"]["optimizer"].isna().all()


def test_a_catalogue_is_the_same_twice(catalogue, tmp_path):
    write_catalogue(campaign(RESNET, SQUEEZENET), tmp_path)
    for name in ("operations", "calls", "networks"):
        assert (tmp_path / f"{name}.parquet").read_bytes() == (catalogue / f"{name}.parquet").read_bytes()


def test_a_network_that_fails_leaves_nothing(tmp_path):
    with pytest.raises(NetworkError, match="resnet81"):
        write_catalogue(campaign(SQUEEZENET, {"name": "resnet81", "input": [2, 3, 64, 64]}), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_only_the_configured_passes_are_traced(tmp_path):
    write_catalogue(campaign(SQUEEZENET, passes=["inference"]), tmp_path)
    operations, calls, networks = tables(tmp_path)
    assert {*operations["pass"], *calls["pass"], *networks["pass"]} == {"inference"}


def test_switches_are_set_and_told():
    assert numerics.apply(FP32)["cuda_matmul_fp32_precision"] == "ieee"
    settings = numerics.apply(TF32)
    assert settings == numerics.settings()
    assert settings["cuda_matmul_fp32_precision"] == settings["cudnn_conv_fp32_precision"] == "tf32"
    assert not settings["mha_fastpath"]
    assert not torch.backends.cudnn.benchmark


def test_a_sample_grows_with_its_share_and_leaves_out_nothing_another_network_needs(tmp_path):
    settings = {}
    for share in (0.0, 0.3, 0.6):
        folder = tmp_path / str(share)
        write_catalogue(campaign(RESNET | {"sample": share}, SQUEEZENET), folder)
        operations, calls, _ = tables(folder)
        wanted = {
            (row["operation_id"], row["pass"]) for _, row in operations.iterrows() if len(row["measured_execution"])
        }
        settings[share] = wanted
        of_squeezenet = calls[calls["network_id"].str.startswith("squeezenet")]
        assert set(zip(of_squeezenet["operation_id"], of_squeezenet["pass"], strict=True)) <= wanted
    assert settings[0.0] < settings[0.3] < settings[0.6]


def test_a_network_that_stands_twice_is_traced_once_and_measured_under_each_setting(tmp_path):
    entries = [
        RESNET | {"precision": "tf32"},
        RESNET | {"precision": "fp32", "sample": 0.3, "whole": False},
    ]
    write_catalogue(campaign(*entries), tmp_path)
    operations, _, networks = tables(tmp_path)
    counts = operations["measured_execution"].map(tuple).value_counts()
    assert set(counts.index) == {("tf32",), ("fp32", "tf32")}
    assert 0.1 < counts[("fp32", "tf32")] / len(operations) < 0.5
    assert networks["measured_execution"].map(tuple).tolist() == [("tf32",), ("tf32",)]


GROUPED = """
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.twice = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 1, groups=2)
        self.depthwise, self.last = nn.Conv2d(8, 8, 3, groups=8), nn.Conv2d(8, 16, 3, groups=4)
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        x = self.last(self.depthwise(self.twice(self.twice(self.first(x)))))
        return self.head(x.mean((2, 3)))
"""


def test_grouped_convolutions_are_counted_by_their_calls_in_each_pass(tmp_path, monkeypatch):
    (tmp_path / "own_grouped.py").write_text(GROUPED)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    write_catalogue(campaign({"name": "own_grouped:Net", "input": [2, 3, 16, 16]}), tmp_path / "out")
    _, _, networks = tables(tmp_path / "out")
    assert dict(zip(networks["pass"], networks["grouped_convolutions"], strict=True)) == {"inference": 3, "training": 3}


def test_networks_without_grouped_convolutions_say_so(catalogue):
    _, _, networks = tables(catalogue)
    assert (networks["grouped_convolutions"] == 0).all()


ENDING = """
import os, signal, sys, torch

class Crashes(torch.nn.Linear):
    def forward(self, x):
        os.kill(os.getpid(), signal.SIGSEGV)

class Exits(torch.nn.Linear):
    def forward(self, x):
        sys.exit(3)

def crashes():
    return Crashes(8, 8)

def exits():
    return Exits(8, 8)
"""


@pytest.mark.usefixtures("ready")
def test_networks_that_end_the_tracer_are_named_in_one_message(tmp_path):
    (tmp_path / "ending.py").write_text(ENDING)
    names = ("ending:crashes", "resnet19", "ending:exits")
    networks = [{"name": name, "input": [2, 8]} for name in names]
    (tmp_path / "config.yaml").write_text(json.dumps(campaign(*networks).model_dump(mode="json")))
    command = [sys.executable, "-m", "clockwatt", "catalogue", "--config", "config.yaml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    (message,) = (line for line in done.stderr.splitlines() if line.startswith("error: "))
    assert done.returncode == 1
    assert "network ending:crashes-2x8-float32: ends the process that traces it (signal SIGSEGV)" in message
    assert "network 'resnet19' is no" in message
    assert "network ending:exits: its code calls exit(3)" in message
    assert "Traceback" not in done.stderr
