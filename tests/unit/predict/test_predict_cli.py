"""`clockwatt predict` and `clockwatt recommend` as they are typed: answers, files and messages."""

import gc
import json
import random
import re
import struct
import subprocess
import sys

import pytest

from clockwatt.cli import request_options
from clockwatt.cli.main import app
from clockwatt.errors import ClockwattError
from support import synthetic

NETWORK = ["net24", "--input", "8,3,64,64", "--precision", "tf32"]


@pytest.fixture
def ask(made, capsys):
    """Run a command; give its exit code, what it printed, and what is wrong."""

    def run(command, *options):
        folders = ["--predictors-dir", made.predictors]
        if "--catalogue-dir" not in options:
            folders += ["--catalogue-dir", made.catalogue]
        if command == "recommend":
            folders += ["--validation-dir", made.validation]
        with pytest.raises((SystemExit, ClockwattError)) as ended:
            app([command, *map(str, [*options, *folders])], prog_name="clockwatt")
        assert gc.isenabled()
        if isinstance(ended.value, ClockwattError):
            return 1, capsys.readouterr().out, str(ended.value)
        return ended.value.code, *capsys.readouterr()

    return run


@pytest.fixture
def answer(ask):
    """The answer to a question, read from JSON."""

    def run(*options):
        code, printed, said = ask(*options, "--json")
        assert (code, said) == (0, "")
        return json.loads(printed)

    return run


@pytest.fixture
def listed(tmp_path):
    """The calls of net24 in inference, its convolutions and the rest, as a file of operations."""
    conv = synthetic.operation_of("conv2d", [8, 24, 64, 64], 24, 1)
    relu = synthetic.operation_of("relu", [8, 24, 64, 64])
    path = tmp_path / "listed.jsonl"
    lines = [{"spec": json.loads(conv.to_json()), "count": 3}, {"spec": json.loads(relu.to_json())}]
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


def test_a_prediction_is_printed_and_given_as_json(ask, answer):
    code, printed, _ = ask("predict", *NETWORK, "--gpu", "a30", "--point", "sm1200")
    assert code == 0
    assert "VIRTUAL" in printed
    assert printed.startswith("net24 8×3×64×64, inference, TF32, virtual A30 at sm1200 (VIRTUAL GPU): ")
    assert " W, measured" in printed.splitlines()[0]
    assert "were measured on this GPU" not in printed
    verbose = ask("predict", *NETWORK, "--gpu", "a30", "--point", "sm1200", "--verbose")[1]
    assert re.search(r"(\d+) of \1 calls were measured on this GPU at this point\.\n", verbose)
    found = answer("predict", *NETWORK, "--gpu", "a30", "--point", "sm1200")
    low, high = found["intervals"]["energy_j"]
    assert low < found["expected"]["energy_j"] < high
    assert (found["point"], found["pass"], found["virtual"]) == ("sm1200", "inference", True)


def test_a_point_never_measured_is_said_to_be_so(ask, answer):
    assert not answer("predict", *NETWORK, "--gpu", "a30", "--point", "sm1050")["measured_point"]
    printed = ask("predict", *NETWORK, "--gpu", "a30", "--point", "sm1050")[1]
    assert "sm1050 was not measured: estimated from other clocks." in printed


def test_listed_operations_cost_what_their_counts_say(answer, listed):
    three = answer("predict", "--operations", listed, "--gpu", "a30", "--point", "sm900")
    assert three["network_id"] == "listed"
    assert three["expected"]["calls"] == 4
    assert three["interval_method"] == "operations"
    listed.write_text(listed.read_text().replace('"count": 3', '"count": 6'))
    six = answer("predict", "--operations", listed, "--gpu", "a30", "--point", "sm900")
    single = (six["expected"]["device_s"] - three["expected"]["device_s"]) / 3
    assert three["expected"]["device_s"] > 3 * single > 0
    best = answer("recommend", "--operations", listed, "--objective", "time")["best"]
    assert best["network_id"] == "listed"


def test_a_power_cap_is_kept_to(answer):
    free = answer("recommend", *NETWORK, "--objective", "time")
    powers = sorted(one["expected"]["power_w"] for one in free["candidates"])
    capped = answer("recommend", *NETWORK, "--objective", "time", "--power-cap", powers[1] + 0.01)
    assert capped["best"]["expected"]["power_w"] <= powers[1]
    assert capped["allowed"] == 2
    assert len(capped["candidates"]) == len(powers)


def test_a_slowdown_and_a_gpu_are_kept_to_and_points_are_added(answer):
    found = answer("recommend", *NETWORK, "--gpu", "a30", "--point", "sm1050", "--max-slowdown", "5%")
    assert {one["gpu"] for one in found["candidates"]} == {"a30"}
    assert "sm1050" in {one["point"] for one in found["candidates"]}
    fastest = min(one["expected"]["time_s"] for one in found["candidates"])
    assert found["best"]["expected"]["time_s"] <= 1.05 * fastest
    assert found["regret"]["objective"] == "energy"


def test_the_table_names_what_is_beyond_the_limits(ask):
    printed = " ".join(ask("recommend", *NETWORK, "--max-slowdown", "0")[1].split())
    assert "exceed the limits" in printed
    assert "over limit" in printed
    assert "Best: a30 at " in printed
    assert "(VIRTUAL GPUs)" in printed


def test_the_pareto_front_is_drawn(ask, tmp_path):
    paths = [tmp_path / "figures" / name for name in ("a.png", "b.png")]
    paths[0].parent.mkdir()
    for path in paths:
        assert ask("recommend", *NETWORK, "--pareto", path)[0] == 0
    content = paths[0].read_bytes()
    assert content.startswith(b"\x89PNG")
    assert min(struct.unpack(">II", content[16:24])) > 300
    assert content == paths[1].read_bytes()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["predict", *NETWORK, "--gpu", "h100"], ["--gpu h100", "there are predictors for a30, v100"]),
        (["predict", *NETWORK, "--gpu", "a30", "--config", "none.yaml"], ["--config is for measuring", "--measure-m"]),
        (["recommend", *NETWORK, "--store-dir", "store"], ["--store-dir is for measuring", "--measure-missing"]),
        (["recommend", *NETWORK, "--pareto", "/none/front.png"], ["--pareto /none/front.png", "no folder /none"]),
        (["predict", *NETWORK, "--gpu", "a30", "--point", "fast"], ["'fast' is no operating point"]),
        (["predict", *NETWORK, "--gpu", "a30", "--pass", "backward"], ["--pass backward", "inference or training"]),
        (["predict", "--gpu", "a30"], ["give a network and its --input"]),
        (["recommend", *NETWORK, "--precision", "fp8", "--precision", "tf32"], ["'fp8' is not supported"]),
        (
            ["predict", "net25", "--gpu", "a30"],
            ["net25: not among the measured networks (did you mean net", "give --input"],
        ),
        (["predict", "net24", "--input", "8,x", "--gpu", "a30"], ["--input '8,x'", "32,3,224,224"]),
        (["predict", *NETWORK, "--operations", "some.jsonl", "--gpu", "a30"], ["--operations replaces a network"]),
        (["predict", "--operations", "none.jsonl", "--gpu", "a30"], ["none.jsonl: cannot be read"]),
        (["recommend", *NETWORK, "--objective", "money"], ["--objective money", "time, energy or edp"]),
        (["recommend", *NETWORK, "--max-slowdown", "-3%"], ["--max-slowdown '-3%'", "write 10% or 0.1"]),
        (["recommend", *NETWORK, "--max-slowdown", "10"], ["--max-slowdown '10'", "would be 1000 %: write 10%"]),
        (["recommend", *NETWORK, "--max-slowdown", "nan"], ["--max-slowdown 'nan'", "write 10% or 0.1"]),
        (["recommend", *NETWORK, "--pareto", "front.pdf"], ["--pareto front.pdf", "ending in .png"]),
        (["predict", *NETWORK, "--gpu", "a30", "--catalogue-dir", "/nowhere"], ["/nowhere: holds no networks.parquet"]),
        (["recommend", *NETWORK, "--gpu", "h100"], ["--gpu h100", "there are predictors for a30, v100"]),
        (["recommend", *NETWORK, "--point", "sm"], ["'sm' is no operating point"]),
        (["recommend", *NETWORK, "--power-cap", "1"], ["the least mean power is", "W, on"]),
        (["predict", *NETWORK, "--gpu", "a30", "--point", "sm14400"], ["a30 cannot run at sm14400", "210 to 1440 MHz"]),
        (["predict", *NETWORK, "--gpu", "a30", "--point", "sm0"], ["a30 cannot run at sm0", "210 to 1440 MHz"]),
        (["predict", *NETWORK, "--gpu", "a30", "--point", "pl5"], ["a30 cannot run at pl5", "100 to 165 W"]),
        (
            ["predict", *NETWORK, "--gpu", "a30", "--relative-to", "a30@sm5000"],
            ["--relative-to a30@sm5000", "a30 cannot run at sm5000"],
        ),
        (
            ["predict", "net24", "--gpu", "a30", "--precision", "fp8"],
            ["'fp8' is not supported", "bf16-mixed or fp16-mixed", "append +channels_last"],
        ),
        (
            ["predict", *NETWORK, "--gpu", "a30", "--input-dtype", "int32"],
            ["--input-dtype int32: choose float or int64"],
        ),
        (["predict", *NETWORK, "--gpu", "a30", "--input-dtype", "int64"], ["give --input-below too"]),
        (
            ["predict", *NETWORK, "--gpu", "a30", "--input-dtype", "float", "--input-below", "9"],
            ["--input-below is for token ids"],
        ),
        (
            ["predict", *NETWORK, "--gpu", "a30", "--assume-branch", "yes"],
            ["--assume-branch yes: choose true or false"],
        ),
        (["predict", *NETWORK, "--gpu", "a30", "--cache-length", "9"], ["--cache-length is for decoders given as hf:"]),
        (
            ["predict", "net24", "--input", "9" * 20 + ",3", "--gpu", "a30"],
            ["input: has more elements than any memory"],
        ),
        (
            ["predict", "net24", "--input", "a=8,3", "--input", "a=4,3", "--gpu", "a30"],
            ["--input a=…: is given 2 times"],
        ),
        (["predict", "net24", "--input", "a=", "--gpu", "a30"], ["--input 'a='", "32,3,224,224"]),
        (["predict", "", "--gpu", "a30"], ["give a network and its --input"]),
        (["predict", *NETWORK, "--gpu", "a30", "--gpu", "v100"], ["--gpu: give one of a30, "]),
        (["predict", *NETWORK, "--gpu", "a30", "--request", '{"network": "net25"}'], ["leave --network out"]),
        (["layers", *NETWORK, "--gpu", "a30", "--csv", "/none/layers.csv"], ["--csv /none/layers.csv", "no folder"]),
    ],
)
def test_a_bad_question_is_one_message(ask, options, words):
    code, printed, said = ask(*options)
    assert (code, printed) == (1, "")
    assert "\n" not in said
    for word in words:
        assert word in said


def test_a_field_that_the_command_does_not_read_is_refused():
    with pytest.raises(ClockwattError, match="power_cap_w is no option of this command"):
        request_options._request({"network": None, "request": '{"network": "net25", "power_cap_w": 300}'})


def test_a_command_that_takes_long_says_that_it_works(ask, monkeypatch):
    monkeypatch.setattr(request_options, "_SILENCE_S", 0.0)
    assert "this can take a minute" in ask("recommend", *NETWORK)[2]
    assert ask("recommend", *NETWORK, "--json")[2] == ""


def test_a_single_host_is_no_range(ask):
    printed = " ".join(ask("predict", *NETWORK, "--gpu", "a30", "--point", "sm1200")[1].split())
    assert "Host-bound: the CPU launches kernels more slowly than the GPU runs them." in printed
    assert "To predict for your host, run `clockwatt calibrate --host NAME` on it, then add `--host NAME`." in printed


def test_where_no_law_leads_nothing_is_answered(ask):
    code, printed, said = ask("predict", *NETWORK, "--gpu", "a30", "--point", "sm1440-pl120")
    assert (code, printed) == (1, "")
    assert "a30: sm1440-pl120 was not measured. To estimate it, measure at least" in " ".join(said.split())
    assert "Choose a measured point, or measure at sm1440-pl120." in said


def test_limits_that_contradict_each_other_say_what_the_one_leaves(ask, answer):
    network = ["net32", "--input", "8,3,64,64", "--pass", "training", "--gpu", "a30", "--precision", "tf32"]
    found = answer("recommend", *network, "--objective", "time")["candidates"]
    fastest = min(found, key=lambda one: one["expected"]["time_s"])
    cap = fastest["expected"]["power_w"] - 1
    assert min(one["expected"]["power_w"] for one in found) < cap, "the cap alone could be kept to"
    limits = ["--max-slowdown", "0", "--power-cap", cap]
    code, _, said = ask("recommend", *network, *limits)
    assert code == 1
    least = f"the least mean power is {fastest['expected']['power_w']:.0f} W, on a30 at {fastest['point']}"
    assert f"among fast enough candidates, {least}. Raise --power-cap or --max-slowdown." in said


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("script_that_ends", "raise SystemExit(0)", ["'script_that_ends' cannot be imported (SystemExit: 0)"]),
        ("of_a_file.py", "", ["module 'of_a_file' has no callable 'build'"]),
        ("no_module", "def build(): return 3", ["returns an object of type int, not a torch.nn.Module"]),
    ],
)
def test_a_network_of_ones_own_that_is_none_is_one_message(ask, tmp_path, monkeypatch, name, content, words):
    (tmp_path / f"{name.removesuffix('.py')}.py").write_text(content)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    code, printed, said = ask("predict", f"{name}:build", "--input", "8,3", "--gpu", "a30", "--point", "sm900")
    assert (code, printed) == (1, "")
    for word in words:
        assert word in said


def test_a_network_of_a_file_is_found_by_its_path(ask, tmp_path, monkeypatch):
    (tmp_path / "nets").mkdir()
    (tmp_path / "nets" / "of_path.py").write_text("import torch\ndef build(): return torch.nn.ReLU()")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for path in ("nets/of_path.py", tmp_path / "nets" / "of_path.py"):
        code, _, said = ask("predict", f"{path}:build", "--input", "8,3", "--gpu", "a30", "--point", "sm900")
        assert code == 0, said


def test_a_file_named_as_another_module_is_refused(ask, tmp_path, monkeypatch):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "of_both.py").write_text("import torch\ndef build(): return torch.nn.ReLU()")
    (tmp_path / "two" / "random.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    line = ("--input", "8,3", "--gpu", "a30", "--point", "sm900")
    assert ask("predict", "one/of_both.py:build", *line)[0] == 0
    for name, of in (("of_both", tmp_path / "one" / "of_both.py"), ("random", random.__file__), ("sys", "of Python")):
        code, _, said = ask("predict", f"two/{name}.py:build", *line)
        assert code == 1
        assert f"another module is named {name!r} ({of}" in " ".join(said.split())


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"spec": {}}', ["listed.jsonl:1:"]),
        ('{"count": 2}', ["listed.jsonl:1: write"]),
        ("conv2d", ["listed.jsonl:1: not JSON"]),
        ("", ["listed.jsonl: holds no operation"]),
    ],
)
def test_a_bad_list_of_operations_names_its_line(ask, tmp_path, line, words):
    (tmp_path / "listed.jsonl").write_text(line)
    code, _, said = ask("predict", "--operations", tmp_path / "listed.jsonl", "--gpu", "a30")
    assert code == 1
    for word in words:
        assert word in said


def test_a_front_that_cannot_be_drawn_is_one_message(ask, tmp_path):
    (tmp_path / "file").write_text("no folder")
    code, printed, said = ask("recommend", *NETWORK, "--pareto", tmp_path / "file" / "front.png")
    assert (code, printed) == (1, "")
    assert "front.png" in said


_IMPORTED = """
import json, sys
from clockwatt.cli.main import app
for command in json.loads(sys.argv[1]):
    try:
        app(command, prog_name="clockwatt")
    except SystemExit as ended:
        heavy = {"torch", "sklearn", "scipy", "matplotlib", "xgboost"} & set(sys.modules)
        print(command[0], ended.code, *sorted(heavy), file=sys.stderr)
"""


def test_a_network_of_the_catalogue_is_answered_for_without_heavy_libraries(made):
    """But for torch, which records its memory."""
    folders = ["--predictors-dir", str(made.predictors), "--catalogue-dir", str(made.catalogue), "--json"]
    commands = [["predict", "--gpu", "a30", "--point", "sm900"], ["recommend"]]
    asked = json.dumps([[*command, *NETWORK, *folders] for command in commands])
    done = subprocess.run([sys.executable, "-c", _IMPORTED, asked], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "predict 0 torch\nrecommend 0 torch\n")
    first, end = json.JSONDecoder().raw_decode(done.stdout)
    assert first
    assert json.loads(done.stdout[end:])


def test_an_answer_with_torch_ends_without_a_word_beside_it(made, listed):
    arguments = ["predict", "--operations", listed, "--gpu", "a30", "--predictors-dir", made.predictors, "--json"]
    command = [sys.executable, "-m", "clockwatt", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    answer = json.loads(done.stdout)
    assert answer["point"] == "sm1440"
    assert "For default, this is the answer at the boost clock" in answer["warnings"][0]


def test_a_step_of_decoding_says_what_a_token_costs(ask, answer, tmp_path):
    config = tmp_path / "config.json"
    shape = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 64}
    config.write_text(json.dumps({"model_type": "llama", "architectures": ["LlamaForCausalLM"], **shape}))
    question = [f"hf:{config}", "--input", "4,1", "--input-dtype", "int64", "--input-below", "100",
                "--cache-length", "16", "--gpu", "a30", "--point", "sm900"]  # fmt: skip
    found = answer("predict", *question)
    assert (found["items"], found["unit"]) == (4, "tokens")
    assert found["items_per_joule"] == pytest.approx(4 / found["energy_j"])
    assert " tokens per joule." in ask("predict", *question)[1]
