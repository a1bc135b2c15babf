"""Every example of the README, the tutorials and the how-to guides.

Commands run in a copy of the small campaign's folder. `snakemake` makes a dry run, since that campaign has run already.
What needs a GPU, Slurm or an empty machine is checked against the options that there are.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import typer
import yaml
from virtual_records import write_virtual_record

from clockwatt import config
from clockwatt.cli.main import app
from clockwatt.config import ControlConfig
from support import ready_snakemake
from support.workdir import REPOSITORY, SMALL

PAGES = sorted([REPOSITORY / "README.md", *(REPOSITORY / "docs").glob("tutorials/*.md"),
                *(REPOSITORY / "docs").glob("how-to/*.md")])  # fmt: skip
BLOCK = re.compile(r"(?:<!-- test: (?P<how>[\w ]+) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)```", re.DOTALL)
OUTPUT = re.compile(r"<!-- (?:output|first line) of: (?P<command>[^\n]*) -->\n```text\n(?P<first>[^\n]*)")
STARTS_PROGRAMS = {"record", "preflight"}
OPTIONS_ALONE = {"gpu", "slurm", "options"}
NOT_RUN = "not run"
TRAIN = """
import sys, time
if "--batch-size" in sys.argv:
    import torch
    model = torch.nn.Linear(8, 2).to("cuda")
    optimizer = torch.optim.SGD(model.parameters())
    for _ in range(2):
        model(torch.randn(int(sys.argv[-1]), 8, device="cuda")).mean().backward()
        optimizer.step()
time.sleep(0.6)
"""


@dataclass
class Shell:
    """Runs the commands of a page, each in the folder that the one before has left."""

    folder: Path
    finished: Path
    printed: dict[str, str] = field(default_factory=dict)

    def run(self, line: str) -> None:
        words = shlex.split(line, comments=True)
        if words[0] == "cd":
            self.folder /= words[1]
            return
        if words[0] == "snakemake":
            arguments = [*words[1:], *([] if "--dry-run" in words else ["--dry-run"])]
            ended = ready_snakemake.run(arguments, cwd=self.folder, environment=os.environ)
            status, printed = ended.returncode, ended.stdout
        else:
            assert words[0] == "clockwatt", f"no rule for {line!r}"
            expanded = [part for word in words[1:] for part in self.expanded(word)]
            status, printed = (started if words[1] in STARTS_PROGRAMS else called)(expanded, self.folder)
        assert status in ({0, 1} if words[:2] == ["clockwatt", "doctor"] else {0}), printed
        self.printed[line] = printed
        if words[:2] == ["clockwatt", "init"]:
            shutil.copytree(self.finished / "results", self.folder / words[2] / "results", copy_function=shutil.copy2)

    def expanded(self, word: str) -> list[str]:
        return (
            [str(path.relative_to(self.folder)) for path in sorted(self.folder.glob(word))] if "*" in word else [word]
        )

    def configure(self, text: str) -> None:
        """Check a piece of YAML, and let what follows use it where it is a campaign or a study."""
        block = yaml.safe_load(text)
        if profile := [key for key in block if key.startswith("slurm-")]:
            assert set(profile) <= yaml.safe_load((REPOSITORY / "profiles/slurm/config.yaml").read_text()).keys()
            return
        campaign = block if "campaign" in block else SMALL | block
        config.parse(campaign)
        if "campaign" in block or "studies" in block:
            (self.folder / "config/config.yaml").write_text(yaml.safe_dump(campaign))


def started(arguments: list[str], folder: Path) -> tuple[int, str]:
    """Status and output of clockwatt as a process."""
    ended = subprocess.run(
        [sys.executable, "-m", "clockwatt", *arguments], cwd=folder, text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    return ended.returncode, ended.stdout


def called(arguments: list[str], folder: Path) -> tuple[int, str]:
    """The same of clockwatt in this process, which has imported its libraries."""
    printed = io.StringIO()
    said = contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed)
    with contextlib.chdir(folder), said[0], said[1], pytest.raises(SystemExit) as ended:
        app(arguments, prog_name="clockwatt")
    return int(ended.value.code or 0), printed.getvalue()


def check_options(line: str) -> None:
    """Fail where a command or one of its options is not there."""
    command, words = typer.main.get_command(app), shlex.split(line, comments=True)
    if words[0] != "clockwatt":
        return
    words = words[1 : words.index("--")] if "--" in words else words[1:]
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]
    options = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    assert {word for word in words if word.startswith("--")} <= options, line


@pytest.fixture
def shell(finished, ready, monkeypatch):
    monkeypatch.chdir(finished.path)
    monkeypatch.syspath_prepend(finished.path)
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    # a helper that tests beside these have installed on this machine asks their Slurm, which takes seconds
    monkeypatch.setattr("clockwatt.control.helper.ControlConfig", lambda: ControlConfig(helper="/no/helper"))
    for name in ("config", "profiles"):
        shutil.copytree(REPOSITORY / name, finished.path / name)
    (finished.path / "config/config.yaml").write_text(yaml.safe_dump(SMALL))
    (finished.path / "slurm").symlink_to("profiles/slurm")
    for name in ("Snakefile", "workflow"):
        (finished.path / name).symlink_to(REPOSITORY / name)
    (finished.path / "train.py").write_text(TRAIN)
    return Shell(finished.path, finished.path)


def test_the_campaign_of_the_tutorial_is_the_one_that_is_shared():
    blocks = BLOCK.finditer((REPOSITORY / "docs/tutorials/laptop.md").read_text(encoding="utf-8"))
    (campaign,) = (yaml.safe_load(block["text"]) for block in blocks if block["language"] == "yaml")
    assert campaign == SMALL


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_examples_run(page, shell, capsys):
    if page.stem == "forecast-temperature":
        for name, pattern in (("training", "steady"), ("epochs", "epochs")):
            folder = shell.folder / "records" / name
            write_virtual_record(folder, model="a30", pattern=pattern, runs=2, duration_s=80, cards=(0, 1))
    names: dict[str, object] = {}
    not_run: set[str] = set()
    for block in BLOCK.finditer(page.read_text(encoding="utf-8")):
        language, text = block["language"], block["text"]
        if language == "bash":
            for line in text.splitlines():
                if block["how"] in OPTIONS_ALONE:
                    check_options(line)
                    not_run.add(line)
                elif block["how"] != NOT_RUN and "uv sync" not in line:
                    shell.run(line)
        elif language == "yaml":
            shell.configure(text)
        elif language == "csv":
            (shell.folder / "thesis.csv").write_text(text)
        elif language == "python" and (block["how"] or "").startswith("file "):
            (shell.folder / f"{block['how'].removeprefix('file ')}.py").write_text(text)
        elif language == "python":
            exec(compile(text, page.name, "exec"), names)
    for shown in OUTPUT.finditer(page.read_text(encoding="utf-8")):
        if shown["command"] not in not_run:
            assert shown["first"] in shell.printed[shown["command"]], "run python tools/example_outputs.py"
    if page.stem == "predict-from-python":
        assert names["answer"].source == "measured"
        assert len(names["frame"]) == 12
        assert names["estimate"].time_s > 0
        assert names["choice"].best.energy_j > 0
        assert names["compared"].relative_to.power_ratio > 1
        assert "gpu a31" in capsys.readouterr().out
