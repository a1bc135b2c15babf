"""Words of an answer on a terminal: memory, whether it fits, and what TF32 saves."""

from dataclasses import replace

import pytest

import clockwatt
from clockwatt.cli.answer_text import columns, headline, print_answer
from clockwatt.cli.printing import binary, memory_words, print_recommendation, tf32_words
from clockwatt.predict.memory import PassMemory

GIB = 2**30


@pytest.fixture(scope="module")
def answer():
    return clockwatt.load().predict("alexnet", (4, 3, 224, 224), gpu="h200")


def words_of(allocated, low, high, reserved, **verdict):
    memory = PassMemory(
        *(int(size * GIB) for size in (allocated, low, high, reserved, reserved - 1, reserved + 2, 0.5)),
        {"activations": GIB}, 80 * GIB, **verdict,
    )  # fmt: skip
    return memory_words(memory, verbose=True)


@pytest.mark.parametrize(
    ("size", "shown"),
    [(0, "0 B"), (2560, "2.5 KiB"), (1023 * 2**20, "1,020 MiB"), (78 * GIB, "78 GiB"), (150 * GIB, "150 GiB")],
)
def test_sizes_have_three_digits_and_a_unit_that_suits_them(size, shown):
    assert binary(size) == shown


def test_an_interval_is_in_the_unit_of_its_size():
    assert binary(467 * 2**20, (453 * 2**20, 1100 * 2**20)) == "467 MiB (453–1,100)"


@pytest.mark.parametrize(
    ("sizes", "fits", "close", "verdict"),
    [
        ((20, 19, 22, 30), True, False, "30 GiB (29–32) reserved, of 80 GiB: fits."),
        ((78, 76, 84, 79), True, True, "79 GiB (78–81) reserved, of 80 GiB: probably fits."),
        ((82, 76, 84, 85), False, True, "85 GiB (84–87) reserved, of 80 GiB: probably does not fit."),
        ((90, 88, 95, 96), False, False, "96 GiB (95–98) reserved, of 80 GiB: does not fit."),
        (
            (70, 68, 76, 90),
            True,
            False,
            "90 GiB (89–92) reserved, of 80 GiB: fits, but PyTorch must free cached blocks, which takes time.",
        ),
    ],
)
def test_memory_fits_as_surely_as_its_interval(sizes, fits, close, verdict):
    assert verdict in words_of(*sizes, fits=fits, close=close)


def test_the_first_line_and_the_first_warning_report_what_does_not_fit():
    answer = clockwatt.load().predict("alexnet", (2**17, 3, 224, 224), gpu="h200", training=True)
    assert headline(answer).endswith("; does not fit")
    assert answer.warnings[0].startswith("Does not fit: the pass needs ")
    assert " GiB; h200 has " in answer.warnings[0]
    assert len(answer.warnings) > 1


def test_what_tf32_saves_is_compared_within_one_source():
    other = clockwatt.load().predict("alexnet", (256, 3, 224, 224), gpu="h200")
    assert other.in_tf32.source == other.source
    assert "less time" in tf32_words(other)
    in_tf32 = replace(other.in_tf32, source="measured", time_s=0.95 * other.time_s, energy_j=0.5 * other.energy_j)
    assert tf32_words(replace(other, in_tf32=in_tf32)).endswith(" J, measured; 50 % less energy.")
    in_tf32 = replace(in_tf32, energy_j=1.05 * other.energy_j)
    assert tf32_words(replace(other, in_tf32=in_tf32)).endswith(" J, measured.")
    in_tf32 = replace(in_tf32, source=other.source, time_s=other.time_s, energy_j=other.energy_j)
    assert tf32_words(replace(other, in_tf32=in_tf32)) is None


def test_the_prediction_without_its_network_is_shown_with_verbose(answer):
    validated = replace(answer, held_out=answer.modelled)
    assert "held out" not in columns(validated)
    assert "held out" in columns(validated, verbose=True)


def test_the_operations_that_cost_most_are_whole_on_80_columns(answer, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    print_answer(answer)
    table = capsys.readouterr().out.partition("operations that take most time")[2].splitlines()[2:7]
    assert [line.split()[-1] for line in table] == [
        "measured" if one else "predicted" for one in answer.breakdown().head(5)["measured"]
    ]


def test_that_no_call_was_measured_is_printed(answer, capsys):
    print_answer(replace(answer, measured_calls=0), verbose=True)
    told = f"\n0 of {answer.expected.calls} calls were measured on this GPU at this point; the others are predicted."
    assert told in capsys.readouterr().out


def test_a_frame_tells_precisions_apart():
    question = {"network": "alexnet", "inputs": (4, 3, 224, 224), "gpu": "h200"}
    questions = [{**question, "precision": precision} for precision in ("tf32", "fp32")]
    assert clockwatt.load().predict(questions)["execution"].tolist() == ["tf32", "fp32"]


def test_a_choice_among_gpus_names_the_gpu_of_its_memory_and_gpus_without_tf32(capsys):
    choice = clockwatt.load().recommend("alexnet", (4, 3, 224, 224), gpus=["h200", "rtx2080ti"])
    print_recommendation(choice, {}, verbose=False)
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("Memory on h200: ") for line in lines)
    assert "rtx2080ti has no TF32: it computes in float32." in lines
