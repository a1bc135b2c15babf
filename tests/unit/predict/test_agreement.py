"""All questions about eight shipped networks: all commands, the page, JSON and Python give the same answer."""

import json
import random
from dataclasses import replace

import pyarrow as pa
import pytest
from typer.main import get_command

from clockwatt.cli.main import app
from clockwatt.errors import ClockwattError
from clockwatt.io import files
from clockwatt.page.answers import answer_all
from clockwatt.predict import api
from clockwatt.predict.description import shipped_catalogue
from clockwatt.predict.gpu_predictor import BulkPredictor
from clockwatt.predict.request import Request
from clockwatt.schema import layout
from clockwatt.schema.execution import of_variant
from clockwatt.schema.records import NETWORK_SCHEMA

NETWORKS = 8
OF_DEFAULT_PRECISION = "vit_b_16-32x3x224x224-float32"
_LAST_BIT = 1e-6


def _typed(shape):
    return ",".join(map(str, shape))


@pytest.fixture(scope="module")
def networks():
    """Name, shape, dtype, id and pass of shipped networks, drawn among those whose one input is given by its shape."""
    table: pa.Table = files.read_table(shipped_catalogue() / layout.NETWORKS_FILE, NETWORK_SCHEMA)
    rows = table.to_pylist()
    named = [row for row in rows if "=" not in row["network_id"] and "-behind" not in row["network_id"]]
    random.Random(0).shuffle(named)
    named.sort(key=lambda row: row["network_id"] != OF_DEFAULT_PRECISION)  # its test needs it
    drawn = named[:NETWORKS]
    return [(row["network"], tuple(row["input_shape"]), row["dtype"], row["network_id"], row["pass"]) for row in drawn]


@pytest.fixture(scope="module")
def predictors(networks):
    """Those that are shipped, which predict all operations of the networks at once."""
    loaded = api.load()
    traced = [
        loaded.traced(
            Request.of(network=name, inputs=(",".join(map(str, shape)),), precision=of_variant(dtype)[0]), pass_
        )
        for name, shape, dtype, _, pass_ in networks
    ]
    models = {gpu: BulkPredictor.of(model, traced, [*model.description.points]) for gpu, model in loaded.models.items()}
    return replace(loaded, models=models)


@pytest.fixture
def answers(predictors, monkeypatch, capsys):
    """What a command prints as JSON; the error where it has none."""
    monkeypatch.setattr(api, "load", lambda *_, **__: predictors)
    command = get_command(app)  # once: it takes as long as an answer

    def ask(*words):
        with pytest.raises((SystemExit, ClockwattError)) as ended:
            command([*map(str, words), "--json"], prog_name="clockwatt")
        return ended.value if isinstance(ended.value, ClockwattError) else json.loads(capsys.readouterr().out)

    return ask


def test_all_answers_agree(networks, predictors, answers):
    page = answer_all(predictors.models, shipped_catalogue(), {False: {one[3] for one in networks}, True: set()})
    shown = {
        (question.network_id, question.pass_, str(question.execution), page.gpus[int(row.gpu)]): row
        for row in page.candidates.itertuples()
        for question in [page.questions[int(row.question)]]
    }
    questions = [
        (one, gpu, precision)
        for one in networks
        for gpu, model in predictors.models.items()
        if one[-1] in model.description.passes
        for precision in of_variant(one[2])
    ]
    refused = 0
    for (name, shape, _, network_id, pass_), gpu, precision in questions:
        words = [name, "--input", _typed(shape), "--precision", precision, "--pass", pass_]
        predicted = answers("predict", *words, "--gpu", gpu)
        question = {"gpu": gpu, "training": pass_ == "training", "precision": precision}
        if isinstance(predicted, ClockwattError):
            refused += 1
            with pytest.raises(ClockwattError):
                predictors.predict(name, shape, **question)
            continue
        answer = predictors.predict(name, shape, **question)
        assert json.loads(json.dumps(answer.to_dict())) == predicted, network_id
        (overview,) = answers("show", *words, "--gpu", gpu)
        recommended = answers("recommend", *words, "--gpu", gpu)
        chosen = [] if isinstance(recommended, ClockwattError) else [recommended["best"], recommended["candidates"][0]]
        for other in (overview["gpus"][0]["points"][0], *chosen):
            for key in ("source", "sources", "expected", "intervals", "measured", "composed", "predicted", "warnings"):
                assert other[key] == predicted[key], (network_id, key)
        if not chosen:  # memory: a choice leaves the GPU out, an answer says so
            assert not predicted["memory"]["fits"]
            assert (network_id, pass_, str(precision), gpu) not in shown
            continue
        row = shown[network_id, pass_, str(precision), gpu]
        # of other operations beside them, sums of 32 bits end in another last bit
        assert row.time_s == pytest.approx(predicted["time_s"], rel=_LAST_BIT)
        assert row.energy_j == pytest.approx(predicted["energy_j"], rel=_LAST_BIT)
        assert row.power_w == pytest.approx(predicted["power_w"], rel=_LAST_BIT)
        frame = predictors.predict(name, shape, **question, points=["default"])
        assert frame.loc[0, "source"] == predicted["source"]
        assert frame.loc[0, "time_s"] == pytest.approx(predicted["time_s"], rel=_LAST_BIT)
        assert frame.loc[0, "energy_j"] == pytest.approx(predicted["energy_j"], rel=_LAST_BIT)
    assert refused < len(questions) / 4


def test_without_a_precision_all_answer_for_pytorchs_default(predictors, answers):
    words = ["vit_b_16", "--gpu", "h200"]
    predicted = answers("predict", *words)
    (shown, *_), recommended = answers("show", *words, "--pass", "inference"), answers("recommend", *words)
    answer = predictors.predict("vit_b_16", gpu="h200")
    for other in (shown["gpus"][0]["points"][0], recommended["best"], answer.to_dict()):
        assert (other["execution"], other["time_s"]) == ("tf32-conv", predicted["time_s"])
        assert other["in_tf32"] == predicted["in_tf32"]
    measured = answers("predict", *words, "--precision", "tf32")
    assert predicted["in_tf32"]["time_s"] == measured["measured"]["time_s"] < 0.5 * predicted["time_s"]
    assert measured["in_tf32"] is None
    products = answer.breakdown()[lambda rows: rows["operation_class"] == "linear"]
    without, of_tf32 = (
        predictors.predict("vit_b_16", gpu="h200", precision=one).breakdown().loc[products.index, "device_s"]
        for one in ("fp32", "tf32")
    )
    assert (products["device_s"] == without).all()
    assert (products["device_s"] > of_tf32).all()


def test_one_network_at_a_time_is_answered_as_all_at_once(networks, predictors):
    alone = api.load()
    for name, shape, dtype, _, pass_ in random.Random(1).sample(networks, 5):
        question = {"gpu": "h200", "training": pass_ == "training", "precision": of_variant(dtype)[0]}
        one, other = (each.predict(name, shape, **question) for each in (alone, predictors))
        assert one.source == other.source
        assert one.time_s == pytest.approx(other.time_s, rel=_LAST_BIT)
        assert one.energy_j == pytest.approx(other.energy_j, rel=_LAST_BIT)
