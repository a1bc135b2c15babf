"""The workloads compute what they say: against formulas, NumPy and SciPy, at a size for a laptop's processor."""

import contextlib
import importlib
import itertools
import json
import os
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from scipy import cluster, signal, stats

import clockwatt
from clockwatt.config import ORIGINAL_WORKLOADS, POWER_NETWORKS, WORKLOADS, StudiesConfig
from clockwatt.errors import ConfigError
from clockwatt.studies.workloads import (
    black_scholes,
    black_scholes_original,
    distance,
    distance_original,
    fft,
    fine_tuning_original,
    kmeans,
    matmul,
    monte_carlo,
    question_answering,
    sepia,
    spectrogram,
    word_pieces,
)
from clockwatt.studies.workloads.encoder import PADDING, Encoder
from clockwatt.studies.workloads.names import command_of
from clockwatt.studies.workloads.session import Session, main
from clockwatt.telemetry.recording.layout import Run
from clockwatt.telemetry.recording.marks import read_marks

CPU = torch.device("cpu")
RNG = np.random.default_rng(0)
TINY = {
    "matmul": ["--size", "16", "--products", "2"],
    "question_answering": ["--scale", "0.0005", "--batch", "2"],
    "fine_tuning": ["--scale", "0.001", "--batch", "8", "--epochs", "1"],
    "classifier": ["--images", "16"],
    "black_scholes": ["--options", "100", "--iterations", "3"],
    "monte_carlo": ["--iterations", "20", "--paths", "500"],
    "distance": ["--rows", "10", "--iterations", "3"],
    "kmeans": ["--points", "50", "--clusters", "4", "--iterations", "3"],
    "fft": ["--signals", "2", "--samples", "64", "--iterations", "3"],
    "spectrogram": ["--sounds", "2", "--samples", "256", "--window", "32", "--iterations", "3"],
    "sepia": ["--pictures", "2", "--height", "4", "--width", "5", "--iterations", "3"],
    "question_answering_original": ["--scale", "0.01"],
    "fine_tuning_original": ["--scale", "0.0001", "--batch", "4"],
    "classifier_original": ["--images", "16", "--test-images", "8", "--epochs", "1"],
    "black_scholes_original": ["--options", "20"],
    "distance_original": ["--size", "10", "--iterations", "3"],
}


def workload(name):
    return importlib.import_module(f"clockwatt.studies.workloads.{name}").WORKLOAD


def ran(name, capsys, *options):
    assert main(workload(name), ["--device", "cpu", *options]) == 0
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def closed_form(spot, strike, years, volatility, rate):
    """Black and Scholes (1973), put by its own formula rather than by parity."""
    upper = (np.log(spot / strike) + (rate + volatility**2 / 2) * years) / (volatility * np.sqrt(years))
    lower = upper - volatility * np.sqrt(years)
    discounted = strike * np.exp(-rate * years)
    call = spot * stats.norm.cdf(upper) - discounted * stats.norm.cdf(lower)
    return call, discounted * stats.norm.cdf(-lower) - spot * stats.norm.cdf(-upper), upper, lower


@pytest.mark.parametrize("name", [*WORKLOADS, *ORIGINAL_WORKLOADS])
def test_every_workload_runs_at_a_tiny_size_says_what_it_did_and_with_its_seed_does_it_again(name, capsys):
    options = [*TINY[name], "--cycles", "1", "--seed", "5"]
    told = ran(name, capsys, *options)
    assert (told["workload"], told["device"], told["data"]) == (name, "cpu", "made")
    assert told["steps"] >= 1
    assert told["found"]
    assert all(np.isfinite(value) for value in told["found"].values())
    assert ran(name, capsys, *options)["found"] == told["found"]


def test_the_sizes_of_the_study_are_the_defaults():
    sizes = {name: {size.name: size.value for size in workload(name).sizes} for name in WORKLOADS}
    assert sizes["matmul"] == {"size": 10_000, "products": 20}
    assert (workload("matmul").cycles, workload("matmul").rest_to_c) == (3, 30)
    assert (sizes["fine_tuning"]["batch"], sizes["fine_tuning"]["tokens"]) == (16, 512)
    assert (sizes["classifier"]["batch"], sizes["classifier"]["epochs"]) == (4, 2)
    assert sizes["monte_carlo"]["iterations"] == 50_000
    original = {name: {size.name: size.value for size in workload(name).sizes} for name in ORIGINAL_WORKLOADS}
    assert original["black_scholes_original"] == {"options": 50_000}
    assert original["distance_original"]["size"] == 10_000
    tuned = original["fine_tuning_original"]
    assert (tuned["batch"], tuned["tokens"], tuned["epochs"], tuned["layers"]) == (16, 512, 1, 6)
    bert = sizes["question_answering"]
    assert (bert["hidden"], bert["layers"], bert["vocabulary"]) == (768, 12, 30_522)


def test_black_scholes_is_the_closed_form_and_keeps_parity():
    given = {name: RNG.uniform(*ends, 1000) for name, ends in black_scholes.ARRAYS.items()}
    priced = black_scholes.prices(**{name: torch.tensor(values) for name, values in given.items()})
    call, put, _, _ = closed_form(**given, rate=black_scholes.RATE)
    np.testing.assert_allclose(priced.call, call, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(priced.put, put, rtol=1e-9, atol=1e-12)


def test_monte_carlo_gives_price_and_gradients_of_the_closed_form_within_its_error(capsys):
    found = ran("monte_carlo", capsys, "--iterations", "400", "--paths", "2000")["found"]
    option = monte_carlo.Option()
    call, _, upper, lower = closed_form(*option)
    assert abs(found["price"] - call) < 4 * found["standard_error"] < 0.1
    # gradients of single paths deviate by less than 1, 100 and 100: 4 standard errors of 800,000
    assert found["delta"] == pytest.approx(stats.norm.cdf(upper), abs=4 / 800_000**0.5)
    assert found["vega"] == pytest.approx(option.spot * stats.norm.pdf(upper), abs=400 / 800_000**0.5)
    rho = option.strike * option.years * np.exp(-option.rate) * stats.norm.cdf(lower)
    assert found["rho"] == pytest.approx(rho, abs=400 / 800_000**0.5)


def test_standard_error_of_monte_carlo_is_that_of_its_iterations():
    draws = torch.randn(50, 1000, generator=torch.Generator().manual_seed(1))
    of_each = torch.stack([monte_carlo.priced(monte_carlo.Option(), one) for one in draws])[:, 0].double()
    session = Session(monte_carlo.WORKLOAD, {"iterations": 50, "paths": 1000, "cycles": 1}, CPU, seed=3)
    found = session.run()
    assert found["standard_error"] == pytest.approx(float(of_each.std() / 50**0.5), rel=0.5)


def test_distances_of_rows_are_norms_of_differences():
    left, right = RNG.normal(size=(2, 20, 7))
    found = distance.row_distances(torch.tensor(left), torch.tensor(right))
    np.testing.assert_allclose(found, np.linalg.norm(left - right, axis=1))


def test_kmeans_ends_where_that_of_scipy_ends():
    points = np.concatenate([RNG.normal(at, 0.5, (40, 3)) for at in (-3, 0, 3)])
    *_, centres = kmeans.iterations(torch.tensor(points), torch.tensor(points[[0, 45, 90]]), 10)
    expected, labels = cluster.vq.kmeans2(points, points[[0, 45, 90]], iter=10, minit="matrix")
    np.testing.assert_allclose(centres, expected)
    np.testing.assert_array_equal(kmeans.assigned(torch.tensor(points), centres), labels)


def test_a_cluster_without_points_stays_where_it_is():
    points, centres = torch.tensor([[0.0], [1.0]]), torch.tensor([[0.5], [100.0]])
    assert kmeans.moved(points, centres, kmeans.assigned(points, centres)).tolist() == [[0.5], [100.0]]


def test_fft_is_that_of_numpy_and_comes_back():
    signals = RNG.normal(size=(3, 101))
    found = fft.spectrum(torch.tensor(signals))
    np.testing.assert_allclose(found, np.fft.rfft(signals), atol=1e-12)
    np.testing.assert_allclose(fft.signal_of(found, 101), signals, atol=1e-12)


def test_spectrogram_is_that_of_scipy():
    sounds = RNG.normal(size=(2, 400))
    weights = signal.windows.hann(64, sym=False)
    frames = np.lib.stride_tricks.sliding_window_view(sounds, 64, axis=1)[:, ::16]
    expected = np.abs(np.fft.rfft(frames * weights)).swapaxes(1, 2) ** 2
    np.testing.assert_allclose(spectrogram.spectrogram(torch.tensor(sounds), 64, 16), expected, rtol=1e-9)


def test_sepia_is_its_formula_and_stays_within_bytes():
    pictures = RNG.integers(0, 256, (2, 3, 4, 5), dtype=np.uint8)
    red, green, blue = pictures.astype(float).swapaxes(0, 1)
    by_hand = np.stack([
        0.393 * red + 0.769 * green + 0.189 * blue,
        0.349 * red + 0.686 * green + 0.168 * blue,
        0.272 * red + 0.534 * green + 0.131 * blue,
    ], axis=1)  # fmt: skip
    tinted = sepia.sepia(torch.tensor(pictures))
    assert tinted.dtype == torch.uint8
    np.testing.assert_allclose(tinted, np.minimum(255, by_hand), atol=0.5001)
    assert sepia.sepia(torch.full((1, 3, 1, 1), 255, dtype=torch.uint8)).flatten().tolist() == [255, 255, 239]


def test_gradients_of_single_options_are_those_of_the_closed_form():
    given = {name: RNG.uniform(*ends, 5) for name, ends in black_scholes.ARRAYS.items()}
    call, _, upper, _ = closed_form(**given, rate=black_scholes.RATE)
    for place, option in enumerate(zip(*given.values(), strict=True)):
        price, gradients = black_scholes_original.price_and_gradients(*map(float, option), CPU)
        assert price == pytest.approx(call[place], rel=1e-3, abs=1e-4)
        assert gradients[0] == pytest.approx(stats.norm.cdf(upper[place]), abs=1e-4)
        assert len(gradients) == 5


def test_each_step_of_the_original_distance_has_matrices_of_its_own():
    session = Session(distance_original.WORKLOAD, {"size": 5, "iterations": 2, "cycles": 1}, CPU)
    once = Session(distance_original.WORKLOAD, {"size": 5, "iterations": 1, "cycles": 1}, CPU)
    assert session.run() != once.run()


def test_answers_lie_within_their_text_and_their_loss_is_lowest_where_scores_point_at_them(capsys):
    sizes = {"texts": 40, "tokens": 32, "vocabulary": 100}
    session = Session(fine_tuning_original.WORKLOAD, sizes, CPU)
    tokens = fine_tuning_original._padded_texts(session)
    ends = fine_tuning_original._answers(session, tokens)
    assert bool((ends[:, 0] <= ends[:, 1]).all())
    assert bool((tokens.gather(1, ends) != PADDING).all())
    right = tuple(10 * torch.nn.functional.one_hot(each, 32).float() for each in ends.T)
    assert fine_tuning_original.answer_loss(right, ends) < 0.01 < fine_tuning_original.answer_loss(right[::-1], ends)


def test_the_original_classifier_learns_in_training_and_is_tested_on_other_images(tmp_path, capsys):
    for images, labels, count in (("images", "labels", 64), ("test_images", "test_labels", 16)):
        classes = RNG.integers(0, 2, count)
        pictures = np.where(classes[:, None, None, None], 220, 30).astype(np.uint8) * np.ones((1, 3, 32, 32), np.uint8)
        np.save(tmp_path / f"{images}.npy", pictures)
        np.save(tmp_path / f"{labels}.npy", classes)
    options = ["--data", str(tmp_path), "--classes", "2", "--workers", "0"]
    assert ran("classifier_original", capsys, *options, "--epochs", "20")["found"]["accuracy"] == 1.0


def test_pieces_of_words_come_back_as_their_text():
    pieces = word_pieces.WordPieces(["What a card takes, it gives!"], longest=4)
    assert pieces.split("It takes a cards") == ["it", "take", "##s", "a", "card", "##s"]
    ids = pieces.encode("what?", "a card takes")
    assert pieces.tokens[ids[0]] == "[CLS]"
    assert [pieces.tokens[number] for number in ids].count("[SEP]") == 2
    assert pieces.decode(ids) == "what a card takes"  # of an unknown sign nothing comes back
    assert pieces.decode([len(pieces)]) == ""


def test_a_wrong_product_has_a_residual():
    left, right = torch.tensor(RNG.normal(size=(2, 9, 9)))
    assert matmul.relative_residual(left, right, torch.tensor(left.numpy() @ right.numpy())) < 1e-12
    assert matmul.relative_residual(left, right, left @ right + 0.1) > 1e-3


def test_best_spans_are_those_of_a_search_of_all():
    first, last = torch.tensor(RNG.normal(size=(2, 4, 9)))
    for row, (begin, end) in enumerate(question_answering.best_spans(first, last, 3).tolist()):
        sums = {(i, j): float(first[row, i] + last[row, j]) for i in range(9) for j in range(i, min(9, i + 3))}
        assert max(sums, key=sums.get) == (begin, end)


def test_padding_changes_nothing_before_it():
    model = Encoder(vocabulary=50, positions=16, hidden=64, layers=2).eval()
    tokens = torch.arange(1, 9)[None]
    padded = torch.cat((tokens, torch.full((1, 4), PADDING)), 1)
    with torch.no_grad():
        torch.testing.assert_close(model(padded)[:, :8], model(tokens), atol=1e-5, rtol=1e-5)


def test_training_learns_what_the_user_gives(tmp_path, capsys):
    labels = RNG.integers(0, 2, 64)
    images = np.where(labels[:, None, None, None], 220, 30).astype(np.uint8) * np.ones((1, 3, 32, 32), np.uint8)
    np.save(tmp_path / "images.npy", images)
    np.save(tmp_path / "labels.npy", labels)
    told = ran("classifier", capsys, "--data", str(tmp_path), "--epochs", "8", "--classes", "2")
    assert told["data"] == str(tmp_path)
    assert told["sizes"]["images"] == 64
    assert told["found"]["loss_of_last_tenth"] < 0.8 * told["found"]["loss_of_first_tenth"]


def test_seconds_cut_a_cycle_short_and_go_beyond_it(capsys):
    most = 10_000_000
    assert ran("distance", capsys, "--rows", "10", "--seconds", "0.05", "--iterations", f"{most}")["steps"] < most
    looks = itertools.count()
    once = {"rows": 10, "columns": 3, "iterations": 1, "cycles": 1}
    session = Session(workload("distance"), once, CPU, seconds=50.0, now_s=lambda: float(next(looks)))
    session.run()
    assert session.steps_done > 1


@pytest.mark.parametrize("count", [0, 1, 2, 3, 50])
def test_every_item_is_a_step_whatever_the_blocks(count):
    session = Session(workload("distance"), {"rows": 1, "columns": 1, "iterations": 1, "cycles": 1}, CPU)
    assert list(session.steps(range(count))) == list(range(count))
    assert session.steps_done == count


def test_blocks_grow_until_they_take_a_tenth_of_a_second(monkeypatch):
    now_s = 0.0
    one = {"rows": 1, "columns": 1, "iterations": 1, "cycles": 1}
    session = Session(workload("distance"), one, CPU, now_s=lambda: now_s)
    firsts = []

    def phase(name, index):
        firsts.append((name, index))
        return contextlib.nullcontext()

    monkeypatch.setattr(clockwatt, "phase", phase)
    for _ in session.steps(range(12), "product"):
        now_s += 0.06
    assert firsts == [("product", first) for first in (0, 1, 3, 5, 7, 9, 11)]


def test_a_scale_changes_what_is_scaled_alone():
    sizes = {size.name: size.at(0.001) for size in workload("fine_tuning").sizes}
    assert sizes == {
        "texts": 25, "epochs": 3, "tokens": 8, "batch": 16, "classes": 2, "vocabulary": 100, "hidden": 64, "layers": 1
    }  # fmt: skip


BAD_DATA = {
    "no folder": (None, "no such folder"),
    "no file": ({}, "points.npy: no such file. It must be floating point (points, columns)"),
    "text": ({"points": np.array(["a"])}, "holds <U1 (1)"),
    "pickled": ({"points": np.array([{}], dtype=object)}, "not an array of NumPy"),
    "shape": ({"points": np.ones(5)}, "holds float64 (5). It must be floating point (points, columns)"),
    "empty": ({"points": np.ones((0, 3))}, "points.npy: is empty"),
    "not finite": ({"points": np.full((5, 2), np.nan)}, "not finite"),
}


@pytest.mark.parametrize("case", BAD_DATA)
def test_bad_data_get_one_clear_line(case, tmp_path, capsys):
    arrays, message = BAD_DATA[case]
    folder = tmp_path / "missing" if arrays is None else tmp_path
    for name, values in (arrays or {}).items():
        np.save(tmp_path / f"{name}.npy", values)
    assert main(workload("kmeans"), ["--device", "cpu", "--data", str(folder)]) == 1
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


def test_indices_must_be_below_what_they_index(tmp_path, capsys):
    np.save(tmp_path / "images.npy", np.zeros((4, 3, 32, 32), np.uint8))
    np.save(tmp_path / "labels.npy", np.array([0, 1, 2, 10]))
    assert main(workload("classifier"), ["--device", "cpu", "--data", str(tmp_path)]) == 1
    assert "holds 10, but indices must be below classes, which is 10" in capsys.readouterr().err


def test_arrays_must_fit_each_other(tmp_path, capsys):
    np.save(tmp_path / "left.npy", np.zeros((4, 3)))
    np.save(tmp_path / "right.npy", np.zeros((5, 3)))
    assert main(workload("distance"), ["--device", "cpu", "--data", str(tmp_path)]) == 1
    assert "right.npy: 5 rows, but another file has 4" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--size", "0"], "--size: size is 0, but must be at least 8"),
        (["--scale", "-1"], "'-1' is no number above 0"),
        (["--scale", "1e9"], "'1e9' is above 1,000"),
        (["--size", "100000000"], "too little memory for these sizes: give a smaller --scale"),
        (["--seconds", "nan"], "'nan' is no number above 0"),
        (["--device", "tpu"], "invalid choice"),
    ],
)
def test_bad_options_get_one_clear_line(options, message, capsys):
    try:
        status = main(workload("matmul"), options)
    except SystemExit as ended:
        status = ended.code
    assert status
    assert message in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_told(capsys):
    assert main(workload("fft"), ["--device", "cuda"]) == 1
    assert "--device cuda: PyTorch finds no GPU here" in capsys.readouterr().err


@pytest.mark.usefixtures("ready")
def test_a_script_runs_alone_and_is_recorded_with_its_phases_and_data(tmp_path):
    command = [sys.executable, "-m", "clockwatt.studies.workloads.distance", "--device", "cpu", *TINY["distance"]]
    record = [sys.executable, "-m", "clockwatt", "record", "--idle-s", "0.3", "--output", str(tmp_path / "r"), "--json"]
    done = subprocess.run([*record, "--", *command], capture_output=True, text=True, timeout=600, check=True)
    summary = json.loads(done.stdout.splitlines()[-1])
    (run,) = summary["runs"]
    phases = {phase["name"]: phase["count"] for phase in run["phases"]}
    assert phases.pop("steps") in (2, 3)  # of three; the first one may take a block's time
    assert phases == {"cycle": 1, "make data": 2, "copy": 1}
    assert any("distance on cpu: data of the study's shapes was made; rows 10" in note for note in run["notes"])


@pytest.mark.usefixtures("ready")
def test_networks_of_the_study_of_power_limits_may_be_named_too(tmp_path):
    study = StudiesConfig(workloads={"workloads": ["fft", "dense_512"], "seconds": 1}).study_workloads()
    command = command_of("dense_512", study, seed=3, virtual=True)
    assert command[1:3] == ["-m", "clockwatt.studies.power.dense_512"]
    assert command_of("fft", study, seed=3, virtual=True)[2] == "clockwatt.studies.workloads.fft"
    began_s = time.monotonic()
    done = subprocess.run(
        command, env={**os.environ, "CLOCKWATT_MARKS": str(tmp_path)}, capture_output=True, text=True, check=True
    )
    assert time.monotonic() - began_s > 1
    assert "600 examples an epoch" in done.stdout
    marks = read_marks(tmp_path, Run(number=1, start_us=0, start_ns=0), os.uname().nodename, 1e9)
    assert marks.notes == ["dense_512 on cpu: data was made; examples 600, batch 2"]
    (training,) = marks.phases[marks.phases["name"] == "training"].itertuples()
    assert 0.9 < training.end_s - training.start_s < 30  # 60 s are the default; a busy machine takes a few
    assert (marks.phases["name"] == "epoch").sum() >= 1
    assert set(WORKLOADS).isdisjoint(POWER_NETWORKS)


def test_a_target_of_a_study_that_is_not_configured_is_told_before_anything_runs():
    words = ["snakemake", "--cores", "1", "study_workloads"]
    StudiesConfig().check_targets(["snakemake", "study", "all"])
    StudiesConfig(workloads={}).check_targets(words)
    with pytest.raises(ConfigError, match=r"studies.workloads: is not in the campaign"):
        StudiesConfig().check_targets(words)
