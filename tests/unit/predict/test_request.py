"""What is typed of a network, and what is done about what does not fit."""

import json
import re
from pathlib import Path

import pytest
from public_architectures import TRANSFORMERS

import clockwatt
from clockwatt.config import TrainingConfig
from clockwatt.errors import ClockwattError, ConfigError, NetworkError
from clockwatt.io.resources import resource
from clockwatt.predict.answerer import check_fits
from clockwatt.predict.request import _TRAINING, Request
from clockwatt.predict.tracing import NetworkTracer, training_of

SHIPPED = resource("reference") / "h200" / "catalogue"
GPT2 = "clockwatt.operations.transformer_networks:gpt2"


def asked(name, *inputs, folder=None, **settings):
    return Request.of(network=name, inputs=inputs, **settings).network_config(folder or SHIPPED)


def test_every_field_is_read():
    folder = Path(clockwatt.__file__).parent
    read = "".join(path.read_text() for package in ("predict", "cli") for path in (folder / package).rglob("*.py"))
    fields = set(Request.model_fields) - set(_TRAINING)
    assert [name for name in fields if not re.search(rf"\.{name}\b", read)] == []


def test_inputs_are_given_by_keyword_with_their_dtypes():
    network = asked("a:b", "input_ids=8,128:int64:30522", "scale=8", assume_branch="false")
    assert network.by_keyword["input_ids"].below == 30522
    assert network.by_keyword["scale"].dtype == "float"
    assert network.data_dependent_branch == "false"
    assert network.network_id == "a:b-input_ids=8x128+scale=8-float32"


def test_inputs_may_be_positions_and_entries_of_lists_and_dictionaries():
    assert list(asked("a:b", "8,4", "8,6:int64:9").by_keyword) == ["0", "1"]
    assert list(asked("a:b", "0=8,4", "images.0=8,6", "batch.mask=8").by_keyword) == ["0", "images.0", "batch.mask"]


def test_a_configuration_of_transformers_takes_a_shape_alone_and_the_answer_says_what_was_assumed(tmp_path):
    configuration, _ = TRANSFORMERS["qwen3_moe"]
    (tmp_path / "config.json").write_text(json.dumps(configuration))
    network = asked(f"hf:{tmp_path}/config.json", "2,32")
    traced = NetworkTracer(tmp_path, TrainingConfig()).trace(network, "inference")
    assert traced.assumptions == ("Assumed while tracing: tokens spread evenly over 4 experts (2 places).",)


def test_a_network_of_the_campaign_takes_the_indices_it_takes_there_at_any_shape():
    network = asked("gpt2", "2,77")
    assert (network.name, network.input, network.input_below) == (GPT2, [2, 77], 50257)
    assert asked("resnet18", "2,3,64,64").input_below is None
    assert asked("a:b", "2,8", input_dtype="int64", input_below=9).input_below == 9
    assert asked("a:b", "2,8:int64:9") == asked("a:b", "2,8", input_dtype="int64", input_below=9)


def test_without_an_input_it_is_what_was_measured_first():
    assert asked("resnet50").network_id == "resnet50-32x3x224x224-float32"
    assert (asked("gpt2").input, asked("gpt2").input_below) == ([8, 256], 50257)
    assert asked("resnet152", "2,3,64,64").input == [2, 3, 64, 64]
    with pytest.raises(ClockwattError, match="resnet152: not among the measured networks"):
        asked("resnet152")


def test_what_a_campaign_does_not_know_is_looked_for_among_the_shipped(tmp_path):
    query = Request.of(network="bert_base")
    assert query.network_config(tmp_path, SHIPPED).network_id.endswith("bert_base-32x128-float32")
    with pytest.raises(ClockwattError, match="bert_base: not among the measured networks"):
        query.network_config(tmp_path)


@pytest.mark.parametrize(
    ("inputs", "settings", "message"),
    [
        (["8,x"], {}, "write the shape"),
        (["8,4", "x=8,2"], {}, r"NAME=\]SHAPE"),
        (["8,4", "8,2"], {"input_below": 4}, "go with one input"),
        (["ids=8,4:int64"], {}, "dtype: int64 needs below"),
        (["ids=8,4:int64:many"], {}, r"NAME=\]SHAPE"),
        (["ids=8,4"], {"input_below": 4}, "go with one input"),
        (["8,4"], {"input_dtype": "int64"}, "input_dtype int64: give input_below too"),
        (["8,4"], {"assume_branch": "perhaps"}, "assume_branch perhaps: choose true or false"),
        (["8,1"], {"cache_length": 9}, "cache_length is for decoders"),
    ],
)
def test_what_is_no_input_is_refused(inputs, settings, message):
    with pytest.raises(ClockwattError, match=message):
        asked("a:b", *inputs, **settings)


def test_a_key_that_stands_twice_is_refused():
    with pytest.raises(ClockwattError, match="gpus is given twice"):
        Request.from_json('{"gpus": ["a30"], "gpus": ["v100"]}')


def test_the_campaigns_training_step_is_that_of_questions(tmp_path):
    assert training_of(tmp_path) == TrainingConfig()
    adam = TrainingConfig(optimizer="adam", learning_rate=0.5)
    (tmp_path / "training.json").write_text(adam.model_dump_json())
    assert training_of(tmp_path) == adam
    (tmp_path / "training.json").write_text('{"optimizer": "newton"}')
    with pytest.raises(ClockwattError, match=r"training\.json"):
        training_of(tmp_path)


def test_a_fit_says_how_networks_were_trained(made):
    assert training_of(made.predictors) == made.config.training


def test_what_cannot_fit_is_refused_and_left_out():
    network = asked("vgg11", "32,3,224,224")
    traced = NetworkTracer(SHIPPED, TrainingConfig()).trace(network, "training")
    assert check_fits(traced, ["NVIDIA H200", "NVIDIA A30"]) == {"NVIDIA H200", "NVIDIA A30"}
    traced.network.parameter_bytes = 20 * 2**30
    assert check_fits(traced, ["NVIDIA H200", "NVIDIA A30"]) == {"NVIDIA H200"}
    traced.network.parameter_bytes *= 10
    with pytest.raises(ClockwattError, match="needs at least 600 GiB, more than the 140 GiB of NVIDIA H200"):
        check_fits(traced, ["NVIDIA H200", "NVIDIA A30"])


def test_more_token_ids_than_a_catalogued_network_has_words_are_traced_and_refused():
    assert NetworkTracer(SHIPPED, TrainingConfig()).trace(asked(GPT2, "8,256", input_below=50257), "inference")
    with pytest.raises(NetworkError, match=r"is given token ids below 50258, but has 50257 rows"):
        NetworkTracer(SHIPPED, TrainingConfig()).trace(asked(GPT2, "8,256", input_below=50258), "inference")
    with pytest.raises(ConfigError, match=r"input_below: 9223372036854775808 is more than indices of int64 can be"):
        asked("a:b", "8,256", input_below=2**63)


def test_a_network_of_timm_takes_the_size_that_timm_names(tmp_path):
    pytest.importorskip("timm")
    assert Request.of(network="timm:resnet10t").network_config(tmp_path).first_input.shape == [32, 3, 176, 176]
    with pytest.raises(NetworkError, match="timm has no such model; did you mean resnet10t"):
        Request.of(network="timm:resnet10x").network_config(tmp_path)
