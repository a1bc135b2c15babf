"""What a library knows of a network's inputs need not be given."""

import json

import pytest

from clockwatt.config import NetworkConfig
from clockwatt.predict.request import Request

TEXT = {"model_type": "llama", "vocab_size": 128256}
IDS = {"dtype": "int64", "below": 512}


def network(tmp_path, configuration, **given):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(configuration))
    return NetworkConfig.model_validate({"name": f"hf:{path}", **given})


def test_a_configuration_knows_its_vocabulary_and_dtype(tmp_path):
    found = network(tmp_path, TEXT | {"torch_dtype": "bfloat16"}, input=[1, 2048])
    assert (found.input_dtype, found.input_below, found.dtype) == ("int64", 128256, "bfloat16")
    same = network(tmp_path, TEXT, input=[1, 2048], input_dtype="int64", input_below=128256)
    assert network(tmp_path, TEXT, input=[1, 2048]) == same


def test_what_is_given_is_taken(tmp_path):
    found = network(tmp_path, TEXT | {"dtype": "bfloat16"}, input=[1, 8], dtype="float16", input_dtype="int64",
                    input_below=7)  # fmt: skip
    assert (found.dtype, found.input_below) == ("float16", 7)
    inputs = {"input_ids": {"shape": [1, 8], "dtype": "int64", "below": 7}}
    assert list(network(tmp_path, TEXT, inputs=inputs).by_keyword) == ["input_ids"]


def test_the_vocabulary_may_stand_in_the_part_for_text(tmp_path):
    found = network(tmp_path, {"model_type": "gemma3", "text_config": {"vocab_size": 99}}, input=[1, 8])
    assert found.input_below == 99


@pytest.mark.parametrize(
    ("more", "shape", "expected"),
    [
        ({}, [2, 32], {"input_ids": {"shape": [2, 32], **IDS}, "decoder_input_ids": {"shape": [2, 32], **IDS}}),
        ({"max_target_positions": 448, "num_mel_bins": 80}, [2, 80, 3000],
         {"input_features": {"shape": [2, 80, 3000]}, "decoder_input_ids": {"shape": [2, 448], **IDS}}),
    ],
)  # fmt: skip
def test_a_decoder_behind_an_encoder_gets_ids_too(tmp_path, more, shape, expected):
    configuration = {"model_type": "t5", "vocab_size": 512, "is_encoder_decoder": True, **more}
    found = network(tmp_path, configuration, input=shape)
    assert found.inputs == NetworkConfig(name="other", inputs=expected).inputs


@pytest.mark.parametrize(
    ("configuration", "shape"),
    [
        ({"model_type": "vit"}, [2, 3, 224, 224]),
        ({"model_type": "wav2vec2", "vocab_size": 32, "conv_dim": [8]}, [2, 8000]),
    ],
)
def test_images_and_sound_are_no_ids(tmp_path, configuration, shape):
    found = network(tmp_path, configuration, input=shape)
    assert (found.input, found.input_dtype) == (shape, "float")


def test_a_model_of_timm_knows_its_image():
    assert NetworkConfig(name="timm:resnet18", input=[8]).input == [8, 3, 224, 224]
    assert NetworkConfig(name="timm:crossvit_tiny_240", input=[8]).input == [8, 3, 240, 240]
    assert NetworkConfig(name="timm:resnet18", input=[8, 3, 64, 64]).input == [8, 3, 64, 64]


@pytest.mark.parametrize("name", ["images.", "a-b", "", ".0"])
def test_an_input_is_named_by_keyword_position_or_entry(name):
    with pytest.raises(ValueError, match="is no keyword, position, or entry"):
        NetworkConfig(name="mine:build", inputs={name: {"shape": [1]}})


def test_a_question_without_a_precision_is_for_the_dtype_of_the_configuration(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "llama", "vocab_size": 1000, "torch_dtype": "bfloat16"}))
    asked = {"network": f"hf:{path}", "inputs": ("1,128",)}
    for precision, expected in ((None, "bf16"), ("tf32", "tf32"), ("bf16-mixed", "bf16-mixed")):
        request = Request.of(**asked, precision=precision)
        network = request.network_config(tmp_path)
        assert request.execution(network.variant) == network.execution[0] == expected
