"""`clockwatt preflight` of scripts, and training with the trainers of libraries."""

import json
import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest
import torch

import clockwatt
from clockwatt.cli.preflight_child import _is_of_the_script

pytestmark = pytest.mark.usefixtures("as_pytorch_starts")

OF_TRAINERS = {
    "transformers": """
import sys, torch
from transformers import BertConfig, BertForSequenceClassification, HfArgumentParser, Trainer, TrainingArguments
(settings,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
small = BertConfig(hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, vocab_size=100)
data = [{"input_ids": torch.randint(100, (16,)), "labels": torch.tensor(i % 2)} for i in range(64)]
Trainer(BertForSequenceClassification(small), settings, train_dataset=data, eval_dataset=data[:8]).train()
""",
    "lightning": """
import sys, torch, lightning
class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
    def training_step(self, batch, index):
        return torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])
    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())
module = Module()
if sys.argv[1] == "torch.compile":
    module = torch.compile(module)
elif sys.argv[1] == "inner":
    module.net = torch.compile(module.net)
elif sys.argv[1] == "Module.compile":
    module.compile()
data = torch.utils.data.TensorDataset(torch.randn(64, 64), torch.randint(4, (64,)))
trainer = lightning.Trainer(max_epochs=1, accelerator="gpu", logger=False, enable_checkpointing=False)
trainer.fit(module, torch.utils.data.DataLoader(data, batch_size=8))
""",
}


@pytest.mark.parametrize(
    ("trainer", "arguments", "mode", "message"),
    [
        ("transformers", "--torch_compile --torch_compile_mode reduce-overhead", "reduce-overhead", ""),
        ("transformers", "--save_strategy steps --save_steps 1 --eval_strategy steps --eval_steps 1", "", "Evaluation"),
        ("lightning", "inner", "compile", ""),
        ("lightning", "torch.compile", "compile", ""),
        ("lightning", "Module.compile", "", "not called as a module: that part is eager"),
    ],
)
def test_trainers_compile_as_on_a_gpu(
    trainer: str, arguments: str, mode: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(trainer)
    monkeypatch.setattr(sys, "argv", ["train.py", *arguments_of(trainer, f"{arguments} --max_steps 2", tmp_path)])
    with clockwatt.pretend(gpu="h200") as run:
        exec(OF_TRAINERS[trainer], {})
    assert run.answer.execution.partition("+")[2] == mode
    assert run.answer.input_shape[0] == 8
    assert message in " ".join(run.answer.warnings)
    assert not [*tmp_path.rglob("*.safetensors")]


def arguments_of(trainer: str, arguments: str, folder: Path) -> list[str]:
    of_transformers = ["--output_dir", str(folder / "output"), "--report_to", "none"]
    return arguments.split() + (of_transformers if trainer == "transformers" else [])


def test_the_guide_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page = Path(__file__).parents[3] / "docs" / "how-to" / "preflight.md"
    (example,) = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    exec(example, {})
    assert "bfloat16 autocast, H200" in capsys.readouterr().out


SCRIPT = """
import importlib.util
importlib.util.find_spec("torch")  # as transformers does: looks for it without importing it
import sys, torch
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(64, 32), torch.randint(4, (64,)))
data = DataLoader(data, batch_size=int(sys.argv[1]), num_workers=2)
model = torch.nn.Linear(32, 4).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(1000):
    for x, y in data:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x.cuda()), y.cuda())
        loss.backward()
        optimizer.step()
        print("loss", loss.item())
"""


def preflight(script: Path, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    script.write_text(text)
    command = [sys.executable, "-m", "clockwatt", "preflight", "--gpu", "h200", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "COLUMNS": "200"})


@pytest.mark.usefixtures("ready")
def test_preflight_stops_a_script_after_its_second_step(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    ended = preflight(script, SCRIPT, "--json", "--", sys.executable, str(script), "16")
    assert ended.returncode == 0, ended.stderr
    answer = json.loads(ended.stdout)
    assert answer["network"] == "train.py:Linear"
    assert answer["input_shape"] == [16, 32]
    assert answer["optimizer"]["optimizer"] == "adamw"
    assert ended.stderr.endswith("loss 1.0\n\n")


@pytest.mark.usefixtures("ready")
def test_preflight_passes_on_the_status_of_a_script_that_ends_by_itself(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    text = (
        "import torch\nm = torch.nn.Linear(8, 8, device='cuda')\nwith torch.no_grad():\n"
        "    m(torch.ones(2, 8, device='cuda'))\nraise SystemExit(5)\n"
    )
    ended = preflight(script, text, "--json", "--", sys.executable, str(script))
    assert ended.returncode == 5, ended.stderr
    assert json.loads(ended.stdout)["pass"] == "inference"


@pytest.mark.usefixtures("ready")
def test_preflight_names_the_line_of_a_script_that_needs_its_data(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    text = "import torch\nx = torch.randn(8, device='cuda')\nprint(x[x > 0])\n"
    ended = preflight(script, text, "--", sys.executable, str(script))
    assert ended.returncode == 1
    assert "train.py:3" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not ended.stdout


@pytest.mark.usefixtures("ready")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import torch\nimport absent_package\n", "fails by itself, on a GPU too .*absent_package.*train.py:2"),
        ("import torch\nassert torch.cuda.device_count() > 1\n", "fails without a GPU or real data .*train.py:2"),
        (
            "import threading, torch\nthread = threading.Thread(target=lambda: torch.ones(1).cuda())\nthread.start()\n",
            r"train.py: Thread-1 \(<lambda>\) uses the GPU. Train in the main thread",
        ),
        ("import absent_package\n", "status 1 before a step on the GPU could be predicted. See its message above"),
    ],
)
def test_preflight_says_what_is_at_fault(text: str, said: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    ended = preflight(script, text, "--", sys.executable, str(script))
    assert ended.returncode == 1
    assert re.search(said, ended.stderr.splitlines()[-1])
    assert "Traceback" in ended.stderr  # of the script, as ever


@pytest.mark.parametrize(
    ("text", "own"),
    [
        ("torch.nn.Liner(2, 2)", True),
        ("open('absent.txt')", True),
        ("torch.cuda.absent()", False),
        ("open('cuda.txt')", False),
    ],
)
def test_a_fault_is_of_the_script_where_no_gpu_would_help(text: str, own: bool) -> None:
    with pytest.raises((AttributeError, OSError)) as fault:
        exec(text, {"torch": torch})
    assert _is_of_the_script(fault.value) == own


@pytest.mark.usefixtures("ready")
def test_preflight_says_that_a_script_has_no_optimizer(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    text = """
import torch
model = torch.nn.Linear(8, 8).cuda()
for _ in range(3):
    model.zero_grad()
    model(torch.randn(4, 8).cuda()).sum().backward()
    for parameter in model.parameters():
        parameter.data.add_(parameter.grad, alpha=-0.1)
torch.save(model.state_dict(), "model.pt")
"""
    ended = preflight(script, text, "--", sys.executable, str(script))
    assert ended.returncode == 1
    assert "train.py: computes gradients, but ends before an optimizer makes a step" in ended.stderr
    assert not ended.stdout


STEP = """
import os, signal, sys, torch
model = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(model.parameters())
for number in range(9):
    model(torch.randn(4, 8).cuda()).sum().backward()
    if number == int(sys.argv[1]):
        END
    optimizer.step()
"""


@pytest.mark.usefixtures("ready")
@pytest.mark.parametrize(
    ("end", "steps", "status", "last"),
    [
        ("os._exit(3)", 1, 3, ""),
        ("sys.exit()", 0, 1, "error: train.py: computes gradients, but ends before an optimizer makes a step. Let it "),
        (
            "os._exit(0)",
            0,
            1,
            "error: train.py: computes gradients, but ends before an optimizer makes a step. Let it ",
        ),
        ("raise ValueError", 0, 1, "train.py:8). It computes gradients, but ends before an optimizer makes a step."),
        ("os.kill(os.getpid(), signal.SIGKILL)", 1, 1, "ended by SIGKILL before a step on the GPU could be"),
    ],
)
def test_preflight_of_a_script_that_ends_within_its_loop(
    end: str, steps: int, status: int, last: str, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    ended = preflight(script, STEP.replace("END", end), "--json", "--", sys.executable, str(script), str(steps))
    assert ended.returncode == status, ended.stderr
    if last:
        assert last in ended.stderr.splitlines()[-1]
    else:
        assert json.loads(ended.stdout)["pass"] == "training"


@pytest.mark.usefixtures("ready")
def test_preflight_of_a_script_without_a_gpu(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    ended = preflight(script, "print('nothing')\n", "--", sys.executable, str(script))
    assert ended.returncode == 1
    assert "before a step on the GPU could be predicted. Give a script that trains" in ended.stderr


def test_preflight_names_the_python_to_run_with(tmp_path: Path) -> None:
    venv.create(tmp_path / "other")
    python = tmp_path / "other" / "bin" / "python"
    script = tmp_path / "train.py"
    ended = preflight(script, "import torch\n", "--", str(python), str(script))
    assert ended.returncode == 1
    assert f"It ran with {python}, without the packages of clockwatt. Give {sys.executable} instead." in ended.stderr
