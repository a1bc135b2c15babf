"""A pass relative to that on a standard GPU: ratios by hand, their intervals by simulation, and what is typed."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

import clockwatt
from clockwatt.cli.main import app
from clockwatt.cli.printing import ratio
from clockwatt.errors import ClockwattError
from clockwatt.predict.answer import Relative

NETWORK = ("net24", "--input", "8,3,64,64", "--precision", "tf32")


@pytest.fixture(scope="module")
def predictors(made):
    return clockwatt.load(made.predictors, catalogue_dir=made.catalogue, validation_dir=made.validation)


@pytest.fixture
def ask(made, capsys):
    def run(command, *options):
        folders = ["--predictors-dir", made.predictors, "--catalogue-dir", made.catalogue]
        with pytest.raises((SystemExit, ClockwattError)) as ended:
            app([command, *map(str, [*options, *folders])], prog_name="clockwatt")
        if isinstance(ended.value, ClockwattError):
            return str(ended.value)
        return capsys.readouterr().out

    return run


def predicted(predictors, point, **more):
    return predictors.predict("net24", input=(8, 3, 64, 64), gpu="a30", point=point, **more)


def test_ratios_are_quotients_of_the_two_answers(predictors):
    own, standard = predicted(predictors, "sm900"), predicted(predictors, "sm1440")
    found = predicted(predictors, "sm900", relative_to="a30@sm1440").relative_to
    assert (found.gpu, found.point, found.virtual, found.mixed) == ("a30", "sm1440", True, False)
    assert found.time_ratio == own.expected.time_s / standard.expected.time_s
    assert found.energy_ratio == own.expected.energy_j / standard.expected.energy_j
    assert found.power_ratio == own.expected.power_w / standard.expected.power_w < 1
    assert own.relative_to is None


def test_a_pass_is_to_itself_as_one_without_doubt(predictors):
    found = predicted(predictors, "sm900", relative_to="a30@sm900").relative_to
    assert (found.time_ratio, found.power_ratio, found.energy_ratio) == (1, 1, 1)
    assert set(found.intervals.values()) == {(1.0, 1.0)}


def test_only_a_pass_and_itself_are_equal_without_doubt(predictors):
    own = predicted(predictors, "sm900")
    low, high = own.compared_with(replace(own, network_id="another")).relative_to.intervals["time_ratio"]
    assert low < 1 < high


def test_errors_of_shared_operations_cancel(predictors):
    one = replace(predicted(predictors, "sm900"), sources={})  # as if it was not measured whole
    costs = one.detail.costs
    changed = replace(costs, mean=costs.mean * np.where(np.arange(len(costs.mean)) == 0, 1.1, 1.0)[:, None])
    other = replace(one, network_id="another", detail=replace(one.detail, costs=changed))
    assert (
        0 < one.detail.shared(other.detail, host=False) < one.detail.shared(one.detail, host=False) == pytest.approx(1)
    )
    relative = other.compared_with(one).relative_to
    independent = replace(other, detail=None).compared_with(one).relative_to
    for name in ("time_ratio", "energy_ratio"):
        low, high = relative.intervals[name]
        assert independent.intervals[name][0] < low < 1 < high < independent.intervals[name][1]


def test_intervals_hold_nine_in_ten_quotients_of_independent_errors(predictors):
    own, standard = predicted(predictors, "sm900"), predicted(predictors, "sm1440")
    rng, half = np.random.default_rng(0), 1.6448536  # of a normal distribution, for nine in ten
    # both as if errors of their logarithms were normal, by 5 % and 12 %
    widths = {"own": 0.05, "standard": 0.12}
    ends = {
        name: {"time_s": tuple(one.expected.time_s * np.exp(sign * half * widths[name]) for sign in (-1, 1))}
        for name, one in (("own", own), ("standard", standard))
    }
    found = replace(own, intervals=ends["own"]).compared_with(replace(standard, intervals=ends["standard"])).relative_to
    errors = rng.normal(0, list(widths.values()), (100_000, 2))
    ratios = own.expected.time_s / standard.expected.time_s * np.exp(errors[:, 0] - errors[:, 1])
    low, high = found.intervals["time_ratio"]
    assert np.mean((ratios > low) & (ratios < high)) == pytest.approx(0.9, abs=0.005)
    assert set(found.intervals) == {"time_ratio"}


def test_what_is_unknown_has_no_ratio(predictors):
    own, standard = predicted(predictors, "sm900"), predicted(predictors, "sm1440")
    unknown = replace(standard, expected=replace(standard.expected, energy_j=None, power_w=None))
    found = own.compared_with(unknown).relative_to
    assert (found.energy_ratio, found.power_ratio) == (None, None)
    assert "energy_ratio" not in found.intervals


def test_a_virtual_and_a_measured_gpu_are_distinguished(predictors):
    own, standard = predicted(predictors, "sm900"), replace(predicted(predictors, "sm1440"), virtual=False)
    assert own.compared_with(standard).relative_to.mixed


def test_a_choice_is_relative_in_all_its_candidates_and_names_the_best_platform(predictors):
    choice = predictors.recommend("net24", input=(8, 3, 64, 64), relative_to="a30@sm1440")
    assert choice.best is choice.candidates[0]
    assert all(candidate.relative_to.point == "sm1440" for candidate in choice.candidates)
    assert [one.gpu for one in choice.platforms] == list(dict.fromkeys(one.gpu for one in choice.candidates))
    assert choice.platforms[0] is choice.best
    assert choice.times_the_best(choice.best) == 1
    assert choice.to_dict()["platforms"][0] == {
        "gpu": choice.best.gpu, "gpu_name": choice.best.gpu_name, "point": choice.best.point, "execution": "tf32"
    }  # fmt: skip


def test_of_several_gpus_the_best_platform_is_said(predictors, capsys):
    from clockwatt.cli.printing import print_recommendation

    choice = predictors.recommend("net24", input=(8, 3, 64, 64))
    other = replace(choice.candidates[-1], gpu="b30")
    print_recommendation(replace(choice, candidates=[*choice.candidates[:-1], other]), {}, verbose=True)
    said = " ".join(capsys.readouterr().out.split())
    assert f"Best: {choice.best.gpu} at {choice.best.point}." in said
    assert f"Best of b30: b30 at {other.point}, {choice.times_the_best(other):.2f} × the energy." in said


def test_a_long_name_is_not_broken_where_a_terminal_is_narrow(predictors, capsys, monkeypatch):
    from clockwatt.cli.printing import print_recommendation

    monkeypatch.setenv("COLUMNS", "20")
    choice = predictors.recommend("net24", input=(8, 3, 64, 64), precision="tf32")
    print_recommendation(choice, {}, verbose=False)
    assert "net24 8×3×64×64, inference, TF32: least energy" in capsys.readouterr().out


def test_what_is_typed_is_printed_and_given_as_json(ask):
    asked = ("predict", *NETWORK, "--gpu", "a30", "--point", "sm900", "--relative-to", "a30@sm1440")
    lines = ask(*asked).splitlines()
    assert [line for line in lines if "relative to" in line]
    assert not [line for line in lines if "relative to" in line and "Warning:" in line]
    printed = " ".join(" ".join(lines).split())
    assert "relative to a30 (VIRTUAL GPU) at sm1440." in printed
    told = json.loads(ask(*asked, "--json"))["relative_to"]
    assert f"time × {told['time_ratio']:.2f} (" in printed
    low, high = told["intervals"]["energy_ratio"]
    assert low < told["energy_ratio"] < high


def test_two_versions_are_printed_side_by_side(ask):
    asked = ("compare", *NETWORK, "--gpu", "a30", "--point", "sm1440")
    printed = ask(*asked, "--to-point", "sm900")
    assert [line.split()[-1] for line in printed.splitlines() if line.startswith(("time", "power"))] == [
        "undecided",
        "less",
    ]
    assert ask(*asked, "--to-point", "sm1440").count("the same") == 3
    assert ask(*asked, "--to-gpu", "b30").startswith("--to-gpu b30: no predictors")
    assert ask(*asked).startswith("nothing to compare with: give a second network, --to-gpu")


@pytest.mark.parametrize(
    ("networks", "verdict"),
    [(("vgg16", "resnet50"), "less"), (("resnet50", "vgg16"), "more"), (("vgg16", "vgg19"), "undecided")],
)
def test_the_verdict_on_memory_of_unequal_networks_is_that_of_their_intervals(capsys, networks, verdict):
    with pytest.raises(SystemExit):
        app(["compare", *networks, "--input", "32,3,224,224", "--gpu", "h200"], prog_name="clockwatt")
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("memory")]
    assert line.split()[-1] == verdict


def test_without_a_standard_the_answer_says_nothing_of_one(ask):
    assert "relative_to" not in json.loads(ask("predict", *NETWORK, "--gpu", "a30", "--json"))
    assert "relative" not in ask("predict", *NETWORK, "--gpu", "a30")


def test_a_table_of_choices_has_uncut_ratios(ask):
    printed = ask("recommend", *NETWORK, "--relative-to", "a30@sm1440")
    assert "(1.00–1.00)" in printed
    assert max(map(len, printed.splitlines()[1:3])) <= 80
    assert "×: relative to a30 (VIRTUAL" in printed


def test_an_overview_has_ratios_at_every_point(made, capsys, tmp_path):
    for name, folder in (("predictors", made.predictors), ("validation", made.validation)):
        (tmp_path / name).symlink_to(folder)
    (tmp_path / "dataset").mkdir()
    (tmp_path / "dataset" / "catalogue").symlink_to(made.catalogue)
    asked = ["show", "net24", "--pass", "inference", "--gpu", "a30", "--relative-to", "a30@sm1440"]
    with pytest.raises(SystemExit):
        app([*asked, "--results", str(tmp_path)], prog_name="clockwatt")
    printed = capsys.readouterr().out
    assert re.search(r"^ +× +1\.00 \(1\.00–1\.00\) ", printed, re.MULTILINE)
    assert "×: relative to a30 (VIRTUAL GPU) at sm1440." in printed
    with pytest.raises(SystemExit):
        app([*asked, "--results", str(tmp_path), "--json"], prog_name="clockwatt")
    (gpu,) = json.loads(capsys.readouterr().out)[0]["gpus"]
    assert all(point["relative_to"]["time_ratio"] > 0.9 for point in gpu["points"])


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("h300", "--relative-to h300: no predictors for this GPU; there are predictors for a30"),
        ("a3O@sm900", "--relative-to a3O@sm900: no predictors for this GPU; there are predictors for a30"),
        ("a30@sm", "--relative-to a30@sm: 'sm' is no operating point"),
        ("a30@", "--relative-to a30@: '' is no operating point"),
    ],
)
def test_an_unknown_standard_gets_one_clear_line(ask, named, message):
    said = ask("predict", *NETWORK, "--gpu", "a30", "--relative-to", named)
    assert said.startswith(message)
    assert "\n" not in said


def test_show_without_a_network_is_relative_to_nothing(capsys):
    with pytest.raises(ClockwattError, match="--relative-to needs a network"):
        app(["show", "--relative-to", "h200"], prog_name="clockwatt")


def test_what_the_standard_cannot_be_trusted_for_is_said_beside_its_ratios(ask):
    asked = ("predict", *NETWORK, "--gpu", "a30", "--point", "sm900", "--relative-to", "a30@sm210")
    assert ask(*asked).count("Warning: sm210 lies outside the measured clocks") == 1
    (warning,) = json.loads(ask(*asked, "--json"))["relative_to"]["warnings"]
    assert "outside the measured clocks" in warning


def test_small_ratios_keep_two_digits_and_an_end_near_one_a_third():
    ends = {"time_ratio": (0.0015, 0.2), "power_ratio": (0.93, 1.003)}
    none = Relative("a", "A", "default", False, False, 0.00234, 0.96, 1.5, ends)
    assert ratio(none, "power_w") == "0.96 (0.93–1.003)"
    assert ratio(none, "time_s") == "0.0023 (0.0015–0.20)"
    assert ratio(none, "energy_j") == "1.50"
