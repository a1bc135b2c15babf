"""The command line as a process: one message, a non-zero exit, no traceback."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
import yaml
from typer.core import TyperGroup
from typer.testing import CliRunner

from clockwatt.cli.main import app
from clockwatt.errors import ClockwattError
from support import ready_clockwatt
from support.handmade import operation, write_catalogue

CAMPAIGN = {
    "campaign": "test",
    "gpus": {"a30": {"device": "virtual:a30", "clocks_mhz": [900]}},
    "networks": [{"name": "toy", "input": [8, 64]}],
    "passes": ["inference"],
}


def clockwatt(*arguments: str | Path, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "clockwatt", *map(str, arguments)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | ready_clockwatt.environment() | environment,
        timeout=600,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(CAMPAIGN))
    write_catalogue(tmp_path / "catalogue", [operation(10**n) for n in range(2, 7)])
    return tmp_path


def measure_arguments(gpu: str = "a30", point: str = "sm900", **changes: str) -> list[str]:
    given = {"--config": "config.yaml", "--catalogue-dir": "catalogue", "--store-dir": "store", "--output": "1.parquet"}
    options = [word for pair in (given | changes).items() for word in pair]
    return ["measure", *options, "--gpu", gpu, "--point", point]


def measure(folder: Path, gpu: str = "a30", point: str = "sm900", **changes: str) -> subprocess.CompletedProcess[str]:
    return clockwatt(*measure_arguments(gpu, point, **changes), folder=folder)


def assert_told(done: subprocess.CompletedProcess[str], *words: str) -> None:
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    message = done.stderr.splitlines()[-1]
    assert message.startswith("error: ")
    for word in words:
        assert word in message


def test_a_shard_is_measured(folder: Path) -> None:
    done = measure(folder)
    assert done.returncode == 0, done.stderr
    assert (folder / "1.parquet").exists()
    assert (folder / "telemetry-1.parquet").exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"gpu": "v100"}, ["no GPU is labelled 'v100'", "a30"]),
        ({"point": "fast"}, ["'fast' is no operating point"]),
        ({"point": "sm1440"}, ["--point sm1440", "it has sm900", "gpus.a30.clocks_mhz"]),
        ({"--shard": "3/2"}, ["--shard '3/2'", "K/N"]),
        ({"--config": "none.yaml"}, ["none.yaml: no such file"]),
        ({"--catalogue-dir": "none"}, ["none/operations.parquet: no such file", "Run the stage"]),
    ],
)
def test_bad_input_is_one_message(folder: Path, changes: dict[str, str], words: list[str]) -> None:
    assert_told(measure(folder, **changes), *words)


def test_a_damaged_catalogue_is_one_message(folder: Path) -> None:
    (folder / "catalogue" / "operations.parquet").write_bytes(b"PAR1")
    assert_told(measure(folder), "operations.parquet: not a readable Parquet file")


def test_a_foreign_file_is_one_message(folder: Path) -> None:
    (folder / "catalogue" / "operations.parquet").write_bytes((folder / "catalogue" / "calls.parquet").read_bytes())
    assert_told(measure(folder), "holds no operation rows")


def test_no_gpu_is_one_message(folder: Path) -> None:
    real = CAMPAIGN | {"gpus": {"a30": {"device": "NVIDIA A30", "clocks_mhz": "default"}}}
    (folder / "config.yaml").write_text(yaml.safe_dump(real))
    assert_told(measure(folder, point="default"), "NVIDIA")


def test_a_clock_that_the_gpu_lacks_is_one_message(folder: Path) -> None:
    odd = CAMPAIGN | {"gpus": {"a30": {"device": "virtual:a30", "clocks_mhz": [901]}}}
    (folder / "config.yaml").write_text(yaml.safe_dump(odd))
    assert_told(measure(folder, point="sm901"), "901 MHz is not supported", "900")


def test_an_unwritable_result_is_one_message(folder: Path) -> None:
    (folder / "blocked").write_text("a file, not a folder")
    assert_told(measure(folder, **{"--output": "blocked/1.parquet"}), "blocked/telemetry-1.parquet: cannot be written")
    assert (folder / "store" / "a30" / "sm900" / "rows").is_dir()  # what was measured is kept
    again = measure(folder)
    assert "5 of 5 already measured" in again.stderr


@pytest.mark.usefixtures("ready")
def test_a_terminated_shard_keeps_what_it_finished(folder: Path) -> None:
    write_catalogue(folder / "catalogue", [operation(1000 + n) for n in range(3000)])
    process = subprocess.Popen(
        [sys.executable, "-m", "clockwatt", *measure_arguments()], cwd=folder, stderr=subprocess.PIPE, text=True
    )
    rows = folder / "store" / "a30" / "sm900" / "rows"
    while process.poll() is None and not list(rows.glob("*.parquet")):
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=600)
    assert process.returncode == 128 + signal.SIGTERM
    assert "Traceback" not in said
    assert not (folder / "1.parquet").exists()
    assert len(list(rows.glob("*.parquet"))) == 1  # merged on the way out


def test_help_says_what_each_command_is_for(folder: Path) -> None:
    shown = clockwatt("--help", folder=folder, COLUMNS="120").stdout
    for command in (
        "doctor",
        "plan",
        "catalogue",
        "calibrate",
        "measure",
        "dataset",
        "fit",
        "figures",
        "predict",
        "recommend",
    ):
        assert command in shown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("resnet50 --precision tf32 --gpu h200 --precision bf16", "--precision: is given 2 times. Give it once."),
        ("resnet50 --gpu h200 --training", "--training: no such option. Give --pass training."),
        ("resnet50 --dtype=bf16", "--dtype=bf16: no such option. Give --precision."),
    ],
)
def test_options_given_twice_or_by_another_name_are_refused(words: str, message: str) -> None:
    predict = typer.main.get_command(app).commands["predict"]
    with pytest.raises(ClockwattError, match=re.escape(message)):
        predict.make_context("predict", words.split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("predct", "no such command 'predct'. Did you mean 'predict'? See `clockwatt --help`."),
        ("plan --confg x", "no such option: --confg. Did you mean --config? See `clockwatt plan --help`."),
        ("plan --config", "option '--config' requires an argument."),
        ("thermal fit x", "missing option '--output'. See `clockwatt thermal fit --help`."),
    ],
)
def test_wrong_usage_is_one_message(words: str, message: str, tmp_path: Path) -> None:
    done = clockwatt(*words.split(), folder=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"error: {message}\n")


def test_a_removed_working_directory_is_one_message(tmp_path: Path) -> None:
    code = "import os; os.rmdir(os.getcwd()); from clockwatt.cli.main import main; main()"
    folder = tmp_path / "removed"
    folder.mkdir()
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "error: the working directory was removed. Change to another one.\n")


def test_an_interrupted_command_says_so(tmp_path: Path) -> None:
    (tmp_path / "endless.py").write_text("import time\n\n\ndef network():\n    time.sleep(600)\n")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a child inherits that it is ignored
    with subprocess.Popen(
        [sys.executable, "-m", "clockwatt", "predict", "endless:network", "--input", "1,16", "--gpu", "h200"],
        cwd=tmp_path, stderr=subprocess.PIPE, text=True,
        env=os.environ | ready_clockwatt.environment() | {"CLOCKWATT_CACHE_DIR": str(tmp_path)},
    ) as process:  # fmt: skip
        signal.signal(signal.SIGINT, before)
        assert process.stderr is not None
        assert process.stderr.readline().startswith("Loading predictors")
        process.send_signal(signal.SIGINT)
        assert process.stderr.read().splitlines()[-1].startswith("error: interrupted. ")
    assert process.returncode == 130


def _commands(group: TyperGroup, context: typer.Context) -> Iterator[typer.Context]:
    for name, command in group.commands.items():
        inner = typer.Context(command, parent=context, info_name=name)
        yield inner
        if isinstance(command, TyperGroup):
            yield from _commands(command, inner)


def test_examples_in_the_help_of_each_command_are_its_own_and_can_be_parsed() -> None:
    root = typer.main.get_command(app)
    assert isinstance(root, TyperGroup)
    for context in _commands(root, typer.Context(root, info_name="clockwatt")):
        title, *examples = (context.command.epilog or "").split("\n\n")
        assert title == "Examples:", context.command_path
        assert examples, context.command_path
        for example in examples:
            assert example.strip().startswith(context.command_path)
            if not isinstance(context.command, TyperGroup):
                words = shlex.split(example)[len(context.command_path.split()) :]
                context.command.make_context(context.info_name, words, parent=context.parent)


def test_the_help_of_each_command_is_one_screen_with_a_line_for_each_example(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    root = typer.main.get_command(app)
    for context in (typer.Context(root, info_name="clockwatt"), *_commands(root, typer.Context(root))):
        lines = re.sub(r"\x1b\[\d*m", "", context.command.get_help(context)).splitlines()
        assert len(lines) <= 50, context.command_path
        assert max(map(len, lines)) <= 80, context.command_path
        assert context.parent is None or "Examples:" in lines, context.command_path


def test_help_texts_are_a_line_of_at_most_twelve_words() -> None:
    root = typer.main.get_command(app)
    for context in _commands(root, typer.Context(root, info_name="clockwatt")):
        assert "\n" not in (context.command.help or ""), context.command_path
        for parameter in context.command.params:
            assert len((parameter.help or "").split()) <= 12, f"{context.command_path} {parameter.name}"


def test_a_shipped_network_that_fails_names_no_line_of_the_command_line():
    network = "clockwatt.operations.stacks:conv_2_linear_2"
    result = CliRunner().invoke(app, ["predict", network, "--input", "4,8", "--gpu", "h100"])
    assert "(module '0'). Check that it takes an input of shape [4, 8]." in str(result.exception) + result.output
