"""Times on GPUs that were never measured: fitted to several models, judged on each left out, and asked for."""

import dataclasses
import filecmp
import json
import shutil
import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from clockwatt.cli.main import app
from clockwatt.dataset.build import build_dataset
from clockwatt.errors import ClockwattError
from clockwatt.io import files
from clockwatt.predict.domain import DOMAIN_SCHEMA, Domain
from clockwatt.predict.fit import fit
from clockwatt.predict.pointcosts import PointCosts
from clockwatt.predict.pool import LEFT_OUT_SCHEMA, leave_models_out, read_card
from clockwatt.predict.predictors import TIMES
from clockwatt.predict.unseen import UnseenModel, median_host, unseen_dir
from clockwatt.predict.unseenfit import fit_unseen
from clockwatt.predict.wholes import Catalogue
from clockwatt.schema import layout, records, tables
from support import synthetic

MODELS = ["a100", "l40s", "rtx2080ti", "v100"]
NETWORK = ["net16", "--input", "8,3,64,64"]
FITTED = {"predictors": ["roofline"], "folds": 2, "trees": 8, "unseen_gpu": True}


def measured(folder, models, **changes):
    """A synthetic campaign on some virtual GPU models as a dataset; the first model has two labels."""
    gpus = {name: {"device": f"virtual:{name}", "clocks_mhz": [900, 1200]} for name in models}
    gpus["other"] = gpus[models[0]]
    made = synthetic.write_campaign(folder, synthetic.campaign(networks=2, gpus=gpus, fit=FITTED, **changes))
    build_dataset(made.config, made.measurements, made.catalogue, made.dataset)
    return made


@pytest.fixture(scope="module")
def pooled(tmp_path_factory):
    made = measured(tmp_path_factory.mktemp("pooled"), MODELS)
    fit(made.config, made.dataset, made.catalogue, made.predictors)
    return made


@pytest.fixture(scope="module")
def cards(pooled):
    return [read_card(pooled.dataset, gpu, pooled.config.passes) for gpu in [*MODELS, "other"]]


@pytest.fixture
def ask(pooled, capsys):
    """Ask for a prediction; give what it printed, or what is wrong."""

    def run(*options, predictors=pooled.predictors):
        folders = ["--predictors-dir", predictors, "--catalogue-dir", pooled.catalogue]
        with pytest.raises((SystemExit, ClockwattError)) as ended:
            app(["predict", *map(str, [*options, *folders])], prog_name="clockwatt")
        if isinstance(ended.value, ClockwattError):
            return str(ended.value)
        assert ended.value.code == 0
        return capsys.readouterr().out

    return run


def left_out(cards, catalogue):
    """Predictions of operations and of networks on all models, each by the others."""
    parts = zip(*leave_models_out(cards, "inference", catalogue, trees=8, seed=0), strict=True)
    return tuple(pd.concat(part, ignore_index=True) for part in parts)


def slowed(card, factor):
    """The same card with all its times longer."""
    problems = {
        pass_: dataclasses.replace(
            problem, targets=problem.targets.assign(**{n: problem.targets[n] * factor for n in TIMES})
        )
        for pass_, problem in card.problems.items()
    }
    return dataclasses.replace(card, problems=problems)


def test_what_a_model_was_measured_at_does_not_change_its_own_prediction(pooled, cards):
    catalogue = Catalogue.read(pooled.catalogue)
    one = [slowed(card, 10) if card.spec.name == "A100" else card for card in cards]
    (before, networks_before), (after, networks_after) = (left_out(some, catalogue) for some in (cards, one))
    predicted = [f"predicted_{name}" for name in TIMES]
    own = before["model"] == "A100"
    assert set(before.loc[own, "gpu"]) == {"a100", "other"}
    pd.testing.assert_frame_equal(before.loc[own, predicted], after.loc[own, predicted])
    assert (after.loc[~own, "predicted_time_device_s"] > before.loc[~own, "predicted_time_device_s"]).mean() > 0.5
    own = networks_before["model"] == "A100"
    assert networks_before.loc[own, "time_s"].tolist() == networks_after.loc[own, "time_s"].tolist()


def test_models_alike_are_told_from_each_other(pooled):
    """The synthetic GPUs all reach the same shares of their peaks and bandwidths."""
    report = synthetic.read_json(pooled.predictors / "metrics.json")["unseen_gpu"]
    assert list(report) == ["virtual"]
    assert report["virtual"]["models"] == ["A100", "L40S", "RTX 2080 Ti", "V100"]
    for of_pass in report["virtual"]["passes"].values():
        for errors in of_pass["models"]["time_device_s"].values():
            assert 0.001 < errors["median_ape"] < 0.2
        for judged in of_pass["networks"].values():
            assert judged["all"]["mape"] < 0.15
            assert judged["interval"]["lower"] < 1 < judged["interval"]["upper"]
        assert of_pass["intervals"]["time_device_s"]["left_out_coverage"] > 0.7


def test_what_is_stated_is_what_the_rows_say(pooled):
    folder = unseen_dir(pooled.predictors, virtual=True)
    rows = files.read_table(folder / "left-out.parquet", LEFT_OUT_SCHEMA).to_pandas()
    for pass_, known in UnseenModel.load(folder).description.passes.items():
        own = rows[rows["pass"] == pass_]
        errors = (own["predicted_time_device_s"] / own["time_device_s"] - 1).abs()
        assert known.errors["operations"]["rows"] == len(own) > 0
        assert known.errors["operations"]["median_ape"] == pytest.approx(errors.median())
        interval = known.intervals["time_device_s"][""]
        errors = np.log(own["time_device_s"] / own["predicted_time_device_s"]).abs()
        held = (errors <= np.log(interval.upper) + 1e-9).groupby(own["model"]).mean()
        assert interval.groups == len(held) == 4
        assert held.min() == pytest.approx(0.9, abs=0.02)  # the worst model decides


def test_an_answer_is_of_time_alone_and_says_what_it_rests_on(pooled, ask):
    found = json.loads(ask(*NETWORK, "--gpu", "virtual:h100", "--point", "sm1200", "--json"))
    expected = found["expected"]
    assert [expected[name] for name in ("energy_j", "energy_dynamic_j", "power_w", "plain_energy_j")] == [None] * 4
    assert list(found["intervals"]) == ["time_s"]
    low, high = found["intervals"]["time_s"]
    assert low < expected["time_s"] < high
    assert (found["measured_gpu"], found["virtual"], found["interval_gpus"]) == (False, True, 4)
    assert found["interval_method"] == "worst_gpu"
    stated = UnseenModel.load(unseen_dir(pooled.predictors, virtual=True)).description.passes["inference"].errors
    bound = "device" if expected["device_s"] >= expected["host_s"] else "host"
    for name in ("operations", bound):
        assert f"{stated[name]['median_ape']:.1%} in the median" in found["warnings"][0]
    assert "A100, L40S, RTX 2080 Ti, V100" in found["warnings"][0]
    assert "3350 GB/s (616 to 2039)" in found["warnings"][1]
    printed = ask(*NETWORK, "--gpu", "virtual:h100", "--point", "sm1200")
    assert printed.count("not offered") == 2
    assert "VIRTUAL" in printed
    assert "law of the clock" not in printed


def test_an_answer_is_near_what_the_card_shows_when_it_is_measured(ask, tmp_path):
    gpus = {"a30": {"device": "virtual:a30", "clocks_mhz": [1200]}}
    later = synthetic.write_campaign(tmp_path, synthetic.campaign(networks=1, gpus=gpus), seed=1)
    path = later.measurements / layout.networks_file("a30", "sm1200", 1)
    shown = {row["pass"]: row["time_eager_s"] for row in files.read_table(path, records.MEASUREMENT_SCHEMA).to_pylist()}
    for pass_ in ("inference", "training"):
        found = json.loads(ask(*NETWORK, "--gpu", "virtual:a30", "--point", "sm1200", "--pass", pass_, "--json"))
        assert found["expected"]["time_s"] == pytest.approx(shown[pass_], rel=0.12)


def test_operations_from_a_list_have_the_interval_of_their_classes(ask, tmp_path):
    conv = synthetic.operation_of("conv2d", [8, 24, 64, 64], 24, 1)
    (tmp_path / "listed.jsonl").write_text(json.dumps({"spec": json.loads(conv.to_json()), "count": 500}))
    found = json.loads(ask("--operations", tmp_path / "listed.jsonl", "--gpu", "virtual:h100", "--json"))
    assert found["interval_method"] == "operations_gpus"
    low, high = found["intervals"]["time_s"]
    assert low < found["expected"]["time_s"] < high
    assert "networks" not in found["warnings"][0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--gpu", "gtx"], ["--gpu gtx", "a100, l40s", "no specifications", "resources/gpus.yaml"]),
        (["--gpu", "NVIDIA H100 80GB HBM3"], ["none from measured GPUs", "fit.unseen_gpu: true", "virtual:"]),
        (["--gpu", "virtual:a100"], ["was measured", "--gpu a100"]),
        (["--gpu", "virtual:h100", "--point", "sm1201"], ["--point sm1201", "1200 and 1215"]),
        (["--gpu", "virtual:h100", "--point", "pl10"], ["--point pl10", "power limit 10 W"]),
        (["--gpu", "virtual:h100", "--point", "sm1200-mem3"], ["memory clock 3 MHz"]),
        (["--gpu", "virtual:h100", "--point", "fast"], ["'fast' is no operating point"]),
    ],
)
def test_what_cannot_be_answered_is_one_message(ask, options, words):
    said = ask(*NETWORK, *options)
    assert "\n" not in said
    for word in words:
        assert word in said


def test_a_gpu_that_was_measured_is_named_by_its_label_even_without_the_predictor(pooled, ask, tmp_path):
    shutil.copytree(pooled.predictors / "l40s", tmp_path / "mine")
    assert "was measured. Ask for it by its label: --gpu mine." in ask(
        *NETWORK, "--gpu", "virtual:L40S", predictors=tmp_path
    )
    assert "fit.unseen_gpu: true" in ask(*NETWORK, "--gpu", "virtual:h100", predictors=tmp_path)
    assert "none from measured GPUs" in ask(*NETWORK, "--gpu", "NVIDIA L40S", predictors=tmp_path)


def test_a_pass_that_nobody_measured_and_a_damaged_file_are_one_message(pooled, ask, tmp_path):
    predictors = tmp_path / "predictors"
    shutil.copytree(pooled.predictors, predictors)
    path = unseen_dir(predictors, virtual=True) / "unseen.json"
    content = json.loads(path.read_text())
    del content["passes"]["training"]
    path.write_text(json.dumps(content))
    said = ask(*NETWORK, "--gpu", "virtual:h100", "--pass", "training", predictors=predictors)
    assert "nothing was fitted for training (inference was)" in said
    path.write_text("{}")
    said = ask(*NETWORK, "--gpu", "virtual:h100", predictors=predictors)
    assert "unseen.json: not a description of a predictor" in said


@pytest.mark.parametrize("kept", [[], ["v100", "l40s"]])
def test_with_too_few_networks_measured_whole_operations_give_the_interval(pooled, ask, tmp_path, kept):
    for name in ("dataset", "predictors"):
        shutil.copytree(pooled.root / name, tmp_path / name)
    path = tmp_path / "dataset" / tables.NETWORKS_FILE
    whole = files.read_table(path, tables.NETWORKS_SCHEMA)
    files.write_table(whole.filter(pc.is_in(whole["gpu"], pa.array(kept, pa.string()))), path)
    fit_unseen(pooled.config, tmp_path / "dataset", Catalogue.read(pooled.catalogue), tmp_path / "predictors")
    found = json.loads(ask(*NETWORK, "--gpu", "virtual:h100", "--json", predictors=tmp_path / "predictors"))
    assert (found["interval_method"], found["interval_gpus"]) == ("operations_gpus", 4)
    card = (unseen_dir(tmp_path / "predictors", virtual=True) / "model-card.md").read_text()
    assert "Too few GPU models had networks measured whole." in card


def test_recommendations_are_among_what_was_measured(pooled, capsys):
    folders = ["--predictors-dir", pooled.predictors, "--catalogue-dir", pooled.catalogue]
    with pytest.raises(SystemExit):
        app(["recommend", *NETWORK, "--json", *map(str, folders)], prog_name="clockwatt")
    answer = json.loads(capsys.readouterr().out)
    assert {one["gpu"] for one in answer["candidates"]} == {*MODELS, "other"}


def test_the_card_says_what_it_is_about(pooled):
    card = (unseen_dir(pooled.predictors, virtual=True) / "model-card.md").read_text()
    assert "Virtual" in card
    assert "power and energy are not offered" in card
    for name in ("A100", "L40S", "RTX 2080 Ti", "V100", "conv2d"):
        assert f"\n| {name} |" in card


def test_the_same_data_give_the_same_bytes(pooled, tmp_path):
    fit_unseen(pooled.config, pooled.dataset, Catalogue.read(pooled.catalogue), tmp_path)
    first, again = (unseen_dir(folder, virtual=True) for folder in (pooled.predictors, tmp_path))
    names = sorted(path.name for path in first.iterdir())
    assert len(names) == 7
    assert filecmp.cmpfiles(first, again, names, shallow=False) == (names, [], [])


def test_where_it_is_not_wanted_or_not_possible_nothing_is_left_of_it(tmp_path, capsys):
    made = measured(tmp_path / "two", MODELS[:2], passes=["inference"])
    stale = unseen_dir(made.predictors, virtual=True) / "unseen.json"
    for wanted in (True, False):
        files.write_text("{}", stale)
        settings = made.config.fit.model_copy(update={"unseen_gpu": wanted})
        fit(made.config.model_copy(update={"fit": settings}), made.dataset, made.catalogue, made.predictors)
        assert not stale.exists()
        assert "unseen_gpu" not in synthetic.read_json(made.predictors / "metrics.json")
        assert (made.predictors / "a100" / "description.json").exists()
        said = [line for line in capsys.readouterr().err.splitlines() if "unseen_gpu" in line]
        assert len(said) == wanted
        assert all("a100 (virtual A100), l40s (virtual L40S), other (virtual A100)" in line for line in said)


def test_gpus_without_a_row_to_learn_from_do_not_count(pooled, tmp_path, capsys):
    shutil.copytree(pooled.dataset, tmp_path / "dataset")
    path = tmp_path / "dataset" / tables.OPERATIONS_FILE
    rows = files.read_table(path, tables.OPERATIONS_SCHEMA)
    failed = pc.is_in(rows["gpu"], pa.array(["v100", "l40s"]))
    status = pc.if_else(failed, "error", rows["status"])
    files.write_table(rows.set_column(rows.column_names.index("status"), "status", status), path)
    assert fit_unseen(pooled.config, tmp_path / "dataset", Catalogue.read(pooled.catalogue), tmp_path) == {}
    assert (
        "there are a100 (virtual A100), other (virtual A100), rtx2080ti (virtual RTX 2080 Ti)."
        in capsys.readouterr().err
    )


def test_a_network_of_the_catalogue_is_answered_for_without_heavy_libraries(pooled):
    program = (
        "import sys; from clockwatt.cli.main import app; sys.argv[0] = 'clockwatt'; code = 1\n"
        "try: app()\n"
        "except SystemExit as ended: code = ended.code\n"
        "print(sorted({'torch', 'sklearn', 'scipy', 'matplotlib'} & set(sys.modules)), file=sys.stderr); sys.exit(code)"
    )
    folders = ["--predictors-dir", pooled.predictors, "--catalogue-dir", pooled.catalogue]
    command = [
        sys.executable,
        "-c",
        program,
        "predict",
        *NETWORK,
        "--gpu",
        "virtual:h100",
        "--json",
        *map(str, folders),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "[]\n")
    assert json.loads(done.stdout)["gpu_name"] == "NVIDIA H100 80GB HBM3"


def test_hosts_are_taken_in_the_middle_and_idle_power_not_at_all():
    costs = [PointCosts(power_idle_w=30, per_backward_call_s=value) for value in (1e-6, 2e-6, 9e-6)]
    assert median_host([*costs, PointCosts()]) == PointCosts(per_backward_call_s=2e-6)


def test_domains_of_several_gpus_are_one():
    def domain(flops, limit):
        rows = [("conv2d", "float32", value, 20.0, f"conv2d {value}", limit) for value in flops]
        return Domain(pd.DataFrame(rows, columns=DOMAIN_SCHEMA.names))

    both = Domain.union([domain([20.0, 24.0], 4.0), domain([24.0, 30.0], 6.0)]).measured
    assert both["log_flops"].tolist() == [20.0, 24.0, 30.0]
    assert both["limit"].tolist() == [6.0] * 3
