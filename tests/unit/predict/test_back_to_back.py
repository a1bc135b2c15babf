"""A GPU of which back-to-back times alone are known: from a table of others to every answer."""

import json
import shlex

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from clockwatt.cli.main import app
from clockwatt.config import NetworkConfig
from clockwatt.page.answers import Answers
from clockwatt.page.trust import class_rows, held_out_points
from clockwatt.predict.answerer import predict_network
from clockwatt.predict.description import NotPredictableError
from clockwatt.predict.gpu_predictor import load_models
from clockwatt.predict.hosts import HostProfile
from clockwatt.predict.measured_costs import MeasuredOperations
from clockwatt.predict.models.training_data import DEVICE_AND_HOST
from clockwatt.predict.recommend import recommend
from clockwatt.predict.tracing import NetworkTracer, training_of
from clockwatt.schema.execution import TF32
from support import small_networks

NETWORK = NetworkConfig(name="support.small_networks:printed", input=[4, 8, 16, 16])
LEFT_OUT = "SiLU()"


def run(*words):
    done = CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "200"})
    assert done.exit_code == 0, (done.output, done.exception)
    return done.stdout


def table(channels=(4, 8, 16, 32, 64), *, power=True):
    """A row for each module of a network, at the shape that it has there, and of simple ones at several sizes."""
    rows, x = [], torch.zeros(4, 8, 16, 16)
    for module in small_networks.printed_modules():
        rows.append((repr(module), tuple(x.shape)))
        x = module(x).detach()
    rows += [(name, (4, size, 32, 32)) for size in channels for name in ("ReLU()", LEFT_OUT, "Sigmoid()", "GELU()")]
    shown = [
        {"operation": name, "input_shape": "x".join(map(str, shape)), "pass": "inference", "tf32": True,
         "time_eager_s": 5e-6 + 1e-10 * np.prod(shape), "power_w": 60.0 + np.log(np.prod(shape))}
        for name, shape in rows if not (name == LEFT_OUT and shape[2] == 16)
    ]  # fmt: skip
    return pd.DataFrame(shown) if power else pd.DataFrame(shown).drop(columns="power_w")


def fitted(folder, rows):
    """The table imported and fitted, and what the commands said."""
    path = folder / "others.csv"
    rows.to_csv(path, index=False)
    said = run("import", path, "--gpu", "a30", "--device", "NVIDIA A30", "--output-dir", folder / "a30")
    command = next(line for line in said.splitlines() if line.strip().startswith("clockwatt fit"))
    run(*shlex.split(command)[1:])
    return said


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("back-to-back")
    return folder / "a30", fitted(folder, table())


def asked(folder):
    predictors = folder / "predictors"
    traced = NetworkTracer(folder / "catalogue", training_of(predictors)).trace(NETWORK, "inference")
    return load_models(predictors)["a30"], traced


def test_what_is_imported_says_what_it_is_good_for(made):
    assert "43 measurements have back-to-back times alone" in made[1]
    operations = pd.read_parquet(made[0] / "dataset/operations.parquet")
    reasons = operations.groupby("excluded")["operation_class"].agg(set)
    assert set(reasons.index) == {"times back to back alone", "no device work"}
    assert reasons["no device work"] == {"dropout"}


def test_a_pass_is_the_sum_of_its_calls(made):
    said = json.loads(
        run("predict", NETWORK.name, "--input", "4,8,16,16", "--pass", "inference", "--gpu", "a30",
            "--precision", "tf32", "--predictors-dir", made[0] / "predictors", "--json")
    )  # fmt: skip
    model, traced = asked(made[0])
    costs = model.predict(traced.operations, "inference", "default", execution=TF32).loc[traced.calls["operation_id"]]
    seconds, watts = costs["time_eager_corrected_s"].to_numpy(), costs["power_corrected_w"].to_numpy()
    expected = said["expected"]
    assert expected["time_s"] == pytest.approx(seconds.sum())
    assert expected["energy_j"] == pytest.approx((seconds * watts).sum())
    assert expected["power_w"] == pytest.approx(expected["energy_j"] / expected["time_s"])
    assert [expected[name] for name in ("device_s", "host_s", "latency_s")] == [None] * 3
    assert said["host"] is None
    assert any("back-to-back times alone were measured, and a pass is their sum" in one for one in said["warnings"])
    classes = traced.operations.set_index("operation_id")["operation_class"]
    (activation,) = costs.loc[classes[classes == "silu"].index, "time_eager_corrected_s"]
    assert not costs["measured"].all()  # of one class the size that the network has was left out of the table
    assert activation == pytest.approx(5e-6 + 1e-10 * 4 * 8 * 16 * 16, rel=0.2)
    for name in ("time_s", "energy_j", "power_w"):
        low, high = said["intervals"][name]
        assert low < expected[name] < high


def test_people_are_told_that_device_and_host_were_not_told_apart(made):
    said = run(
        "predict", NETWORK.name, "--input", "4,8,16,16", "--pass", "inference", "--gpu", "a30",
        "--predictors-dir", made[0] / "predictors",
    )  # fmt: skip
    assert "time and energy are too low if the pass is host-bound" in " ".join(said.split())
    assert "device  " not in said
    card = (made[0] / "predictors/a30/model-card.md").read_text()
    assert "no device and host time is answered, since back-to-back times alone were measured" in card
    assert "| back-to-back time of an operation |" in card
    assert "| device time of an operation |" not in card
    assert "back-to-back time: MAPE" in (made[0] / "predictors/a30/model-card-details.md").read_text()


def test_the_choice_between_points_takes_such_a_gpu(made):
    model, traced = asked(made[0])
    for objective in ("time", "energy"):
        found = recommend({"a30": model}, traced, objective=objective)
        assert found.best.expected == predict_network(model, traced, "default").expected


def test_the_page_shows_how_far_off_back_to_back_times_are(made):
    predictors = made[0] / "predictors"
    points = held_out_points(predictors, "roofline", {})
    assert points[["time", "predicted_time"]].notna().all(axis=None)
    rows = class_rows(predictors, "roofline", Answers([], pd.DataFrame(), ["a30"]), {})
    assert sum(row["rows"] for row in rows if row["quantity"] == "time") == 42, "all but dropout, which does nothing"


def test_what_needs_device_or_host_time_is_refused(made):
    model, traced = asked(made[0])
    measured = model.with_measured(MeasuredOperations("default", TF32, {}, {}))
    with pytest.raises(NotPredictableError, match="new device times cannot be combined"):
        measured.costs(traced.operations, "inference", execution=TF32)
    profile = HostProfile("box", "box", None, "a30", "default", True, False, None, 0, 1.0, [])
    with pytest.raises(NotPredictableError, match="host box: a30: back-to-back times alone"):
        predict_network(model, traced, "default", host=profile)
    with pytest.raises(NotPredictableError, match=r"no GPU to choose from\. a30: back-to-back times alone"):
        recommend({"a30": model}, traced, objective="time", host=profile)


def test_without_power_there_is_no_energy(tmp_path):
    fitted(tmp_path, table(power=False))
    model, traced = asked(tmp_path / "a30")
    assert list(model.description.passes["inference"].lacks) == [DEVICE_AND_HOST, "energy"]
    found = predict_network(model, traced, "default")
    assert found.expected.energy_j is None
    assert list(found.intervals) == ["time_s"]


def test_rows_of_both_kinds_are_learnt_by_device_and_host(tmp_path):
    rows = table()
    apart = rows.index >= 14  # the others have back-to-back times alone
    rows.loc[apart, ["time_device_s", "time_host_s"]] = [4e-6, 3e-6]
    said = fitted(tmp_path, rows)
    assert "back-to-back times alone" not in said
    operations = pd.read_parquet(tmp_path / "a30/dataset/operations.parquet")
    assert (operations["excluded"] == "times back to back alone").sum() == 14
    model, _ = asked(tmp_path / "a30")
    assert not model.description.passes["inference"].summed
