"""Times of modules in traces: of PyTorch's profiler on the CPU, and with kernels whose backward has its own thread."""

import gzip
import json
from pathlib import Path

import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

import clockwatt
from clockwatt.cli.app import app
from clockwatt.config import NetworkConfig
from clockwatt.errors import DataFileError
from clockwatt.operations.trace.trace import called_modules
from clockwatt.predict.module_times import module_times


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.small = torch.nn.Linear(1024, 8)  # runs last
        self.block = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.small(self.block(x) + 1)


MODULES = [
    ("", "Net"), ("block", "Sequential"), ("block.0", "Linear"), ("block.1", "ReLU"), ("small", "Linear"),
]  # fmt: skip


def profiled(path: Path, network: torch.nn.Module, x: torch.Tensor, *, with_stack: bool = True) -> Path:
    """Write the trace of two training steps."""
    optimizer = torch.optim.AdamW(network.parameters())
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], with_stack=with_stack) as profiler:
        for _ in range(2):
            optimizer.zero_grad()
            network(x).square().mean().backward()
            optimizer.step()
    profiler.export_chrome_trace(str(path))
    return path


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return profiled(tmp_path_factory.mktemp("trace") / "trace.json.gz", Net(), torch.randn(512, 1024))


def test_times_of_the_cpu_belong_to_the_modules_that_take_them(trace: Path) -> None:
    times = module_times(trace, MODULES)
    assert (times.passes, times.on_device) == (2, False)
    assert {"", "block.0", "block.1", "small", "(loss)", "(optimizer)"} <= set(times.seconds.index)
    assert times.seconds["block.0"] > 3 * times.seconds["small"]  # forward and backward: of 128 times the FLOPs
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    forward_us = sum(one["dur"] for one in events if one["name"] == "nn.Module: Linear_0")
    assert 2e6 * times.seconds["block.0"] > forward_us


def test_kernels_belong_to_the_module_of_their_launch_and_of_their_forward_operation(tmp_path: Path) -> None:
    def event(name: str, cat: str, tid: int, ts: float, dur: float, **args: int) -> dict[str, object]:
        return {"ph": "X", "name": name, "cat": cat, "pid": 1, "tid": tid, "ts": ts, "dur": dur, "args": args}

    events = [
        *(event(f"nn.Module: {name}", "python_function", 1, ts, dur) for name, ts, dur in [
            ("Net_0", 0, 100), ("Sequential_0", 1, 50), ("Linear_0", 2, 20), ("ReLU_0", 30, 10), ("Linear_1", 60, 30),
        ]),
        event("aten::addmm", "cpu_op", 1, 3, 10, **{"Sequence number": 7, "Fwd thread id": 0}),
        event("aten::addmm", "cpu_op", 1, 61, 10, **{"Sequence number": 9, "Fwd thread id": 0}),
        event("aten::mean", "cpu_op", 1, 110, 10, **{"Sequence number": 10, "Fwd thread id": 0}),
        *(event(f"autograd::engine::evaluate_function: {name}", "cpu_op", 2, ts, 10,
                **{"Sequence number": number, "Fwd thread id": 1})
          for name, ts, number in [("MeanBackward0", 200, 10), ("AddmmBackward0", 220, 9), ("AddmmBackward0", 240, 7)]),
        event("Optimizer.step#SGD.step", "user_annotation", 1, 300, 50),
    ]  # fmt: skip
    launched = [(1, 4, 10), (1, 31, 20), (1, 62, 30), (1, 111, 40), (2, 201, 50), (2, 221, 60), (2, 241, 70),
                (1, 301, 80), (1, 400, 90)]  # fmt: skip
    for number, (thread, ts, took) in enumerate(launched):
        events.append(event("cudaLaunchKernel", "cuda_runtime", thread, ts, 1, correlation=number))
        events.append(event("kernel", "kernel", 7, 1000 + 100 * number, took, correlation=number))
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events, "baseTimeNanoseconds": 1}))
    times = module_times(path, MODULES)
    assert times.on_device
    expected = {"block.0": 80, "block.1": 20, "small": 90, "(loss)": 90, "(optimizer)": 80, "(other)": 90}
    assert {name: round(1e6 * took) for name, took in times.seconds.items()} == expected


def test_a_trace_without_modules_or_of_another_network_is_refused(trace: Path, tmp_path: Path) -> None:
    plain = profiled(tmp_path / "plain.json", Net(), torch.randn(2, 1024), with_stack=False)
    with pytest.raises(DataFileError, match=r"names no modules.*with_stack=True"):
        module_times(plain, MODULES)
    with pytest.raises(DataFileError, match=r"no call of ResNet\. Give the network of the trace"):
        module_times(trace, [("", "ResNet")])
    with pytest.raises(DataFileError, match="2 modules of Linear, the network 1"):
        module_times(trace, MODULES[:-1])
    broken = tmp_path / "broken.json"
    broken.write_text('{"traceEvents": [')
    with pytest.raises(DataFileError, match="cannot be read as a trace"):
        module_times(broken, MODULES)


def test_modules_are_in_the_order_of_their_first_calls() -> None:
    network = NetworkConfig(name="resnet18", input=[1, 3, 64, 64])
    modules = called_modules(network, "inference")
    assert modules[:3] == [("", "ResNet"), ("conv1", "Conv2d"), ("bn1", "BatchNorm2d")]
    places = [path for path, _ in modules]
    assert places.index("layer2.0.bn2") < places.index("layer2.0.downsample")  # which is registered after relu


def test_layers_shows_times_of_a_trace_beside_the_predicted(tmp_path: Path) -> None:
    import torchvision

    network, x = torchvision.models.alexnet(), torch.randn(2, 3, 64, 64)
    trace = profiled(tmp_path / "trace.json", network, x)
    table = tmp_path / "layers.csv"
    command = ["layers", "alexnet", "--input", "2,3,64,64", "--gpu", "h200", "--pass", "training", "--depth", "1"]
    ended = CliRunner().invoke(app, [*command, "--trace", str(trace), "--csv", str(table)])
    assert ended.exit_code == 0, ended.output
    assert "mean of 2 passes" in ended.output
    assert "no kernels of a GPU" in ended.output
    rows = {line.split(",")[0]: line.split(",")[-1] for line in table.read_text().splitlines()}
    assert rows.pop("module") == "measured_device_s"
    assert {"features", "classifier", "(loss)", "(optimizer)"} <= rows.keys()
    assert float(rows["classifier"]) > 0
    in_python = clockwatt.layers(network, x, gpu="h200", training=True, depth=1, trace=trace)
    assert in_python.to_csv() == table.read_text()
    as_json = CliRunner().invoke(app, [*command, "--trace", str(trace), "--json"])
    printed = pd.DataFrame(json.loads(as_json.stdout)).set_index("module")
    pd.testing.assert_frame_equal(printed, in_python, check_exact=True)
