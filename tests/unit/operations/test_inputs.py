"""Networks with several inputs, of transformers by configuration, of timm, and steps of decoding."""

import json
import sys

import huggingface_hub
import pytest
import torch

from clockwatt.config import NetworkConfig, TrainingConfig
from clockwatt.errors import NetworkError
from clockwatt.operations.cost import cost
from clockwatt.operations.networks import build_network, construct, example_inputs
from clockwatt.operations.trace.trace import trace_network
from clockwatt.operations.trace.tracer import UntraceableError

CPU = torch.device("cpu")
ATTENTION = "scaled_dot_product_attention"
TINY = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 50}
BERT = {"model_type": "bert", "architectures": ["BertForMaskedLM"], **TINY}
LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_key_value_heads": 2, **TINY}


def model(tmp_path, config, **settings):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    return NetworkConfig(name=f"hf:{path}", **settings)


def masked(tmp_path, **settings):
    ids = {"shape": [3, 16], "dtype": "int64", "below": 50}
    mask = {"shape": [3, 16], "dtype": "int64", "below": 2, "values": "lengths"}
    return model(tmp_path, BERT, inputs={"input_ids": ids, "attention_mask": mask}, **settings)


def operations(network, pass_="inference"):
    return [call.operation for call in trace_network(network, pass_, TrainingConfig()).calls]


def test_a_mask_has_ones_up_to_a_length_of_each_row_and_zeros_behind(tmp_path):
    _, given = example_inputs(masked(tmp_path), CPU, 0)
    mask = given["attention_mask"]
    assert mask.dtype == torch.int64
    assert (mask.sum(dim=1) > 8).all()
    assert (mask[:, :-1] >= mask[:, 1:]).all()
    assert set(given["input_ids"].unique().tolist()) <= set(range(50))


def test_a_branch_on_a_mask_goes_where_its_lengths_lead(tmp_path):
    trace = trace_network(masked(tmp_path), "inference", TrainingConfig())
    assert trace.assumed_branches == []
    attention = [call.operation for call in trace.calls if call.operation.operation_class == ATTENTION]
    assert len(attention) == 2
    assert all(isinstance(operation.kwargs["attn_mask"], dict) for operation in attention)


@pytest.mark.parametrize("pass_", ["inference", "training"])
def test_without_a_mask_no_branch_is_met_and_the_same_network_runs(tmp_path, pass_):
    network = model(tmp_path, BERT, input=[2, 8], input_dtype="int64", input_below=50)
    attention = [operation for operation in operations(network, pass_) if operation.operation_class == ATTENTION]
    assert all(operation.kwargs["attn_mask"] is None for operation in attention)
    build_network(network, "cpu", pass_=pass_, training=TrainingConfig()).call()


def test_a_step_of_decoding_reads_what_is_kept_and_leaves_it_as_it_is(tmp_path):
    network = model(tmp_path, LLAMA, input=[3, 1], input_dtype="int64", input_below=50, cache_length=20)
    assert "-behind20-" in network.network_id
    keys = [one for one in operations(network) if one.operation_class == "cat" and one.out[0].shape == (3, 2, 21, 8)]
    assert len(keys) == 2 * 2  # keys and values of each layer
    built = build_network(network, "cpu", pass_="inference", training=TrainingConfig())
    before = built.module.get_buffer("keys_0").clone()
    first, second = built.call(), built.call()
    assert first.shape == (3, 1, 50)
    assert torch.equal(first, second)
    assert torch.equal(built.module.get_buffer("keys_0"), before)
    assert before.std() > 0.5


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("head", ["LlamaForCausalLM", "Qwen2ForCausalLM", "GPT2LMHeadModel"])
def test_decoders_are_given_what_is_kept_as_their_library_names_it(tmp_path, head):
    config = TINY | {"architectures": [head], "model_type": head.split("For")[0].removesuffix("LMHeadModel").lower()}
    network = model(tmp_path, config, input=[3, 1], input_dtype="int64", input_below=50, cache_length=20)
    assert any(one.operation_class == "cat" and one.out[0].shape[2] == 21 for one in operations(network))


@pytest.mark.parametrize("head", ["BertForMaskedLM", "BertLMHeadModel"])
def test_an_encoder_makes_no_step_of_decoding(tmp_path, head):
    config = BERT | {"architectures": [head]}
    network = model(tmp_path, config, input=[3, 1], input_dtype="int64", input_below=50, cache_length=20)
    with pytest.raises(NetworkError, match=rf"{head} is no decoder, .*Leave out cache_length \(--cache-length\)"):
        construct(network, training=False)


@pytest.mark.parametrize(
    ("config", "message"),
    [("{", "not readable as JSON"), ('{"vocab_size": 3}', "model_type"),
     (json.dumps(BERT | {"architectures": ["Nonsense"]}), "has no model Nonsense"),
     (json.dumps(BERT | {"architectures": ["pipeline"]}), "has no model pipeline"),
     (json.dumps(BERT | {"architectures": ["AutoModelForMaskedLM"]}), "has no model Auto"),
     ('{"model_type": "berd"}', "has no `model_type` berd; did you mean bert"),
     ('{"model_type": "bert", "hidden_size": "many"}', "refuses the configuration .*'hidden_size' expected int")],
)  # fmt: skip
def test_what_is_no_configuration_is_refused(tmp_path, config, message):
    path = tmp_path / "config.json"
    path.write_text(config)
    with pytest.raises(NetworkError, match=message):
        construct(NetworkConfig(name=f"hf:{path}", input=[1, 4]), training=False)


def test_token_ids_given_as_floats_are_told_how_to_be_typed():
    name = "clockwatt.operations.transformer_networks:gpt2"
    with pytest.raises(UntraceableError, match=r"takes token ids: .*--input 1,4:int64:50257"):
        operations(NetworkConfig(name=name, input=[1, 4]))


class Nested(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.part = torch.nn.Linear(8, 8)

    def forward(self, x, images, *, batch):
        return self.part(x) + self.part(images[0]) + images[1] + self.part(batch["image"]) * batch["mask"][0]


@pytest.mark.parametrize("pass_", ["inference", "training"])
def test_inputs_may_be_positions_and_entries_of_lists_and_dictionaries(pass_):
    shape = {"shape": [4, 8]}
    inputs = {"0": shape, "1.0": shape, "1.1": shape, "batch.image": shape, "batch.mask.0": shape}
    network = NetworkConfig(name=f"{__name__}:Nested", inputs=inputs)
    linear = [one for one in operations(network, pass_) if one.operation_class == "linear"]
    assert [one.tensors[0].shape for one in linear] == [(4, 8)] * 3
    build_network(network, "cpu", pass_=pass_, training=TrainingConfig()).call()


def test_a_lazy_module_gets_its_shapes_from_the_input():
    network = NetworkConfig(name="public_architectures:LazyLinear", inputs={"0": {"shape": [4, 8]}})
    assert [one.tensors[1].shape for one in operations(network) if one.operation_class == "linear"] == [(5, 8)]
    build_network(network, "cpu", pass_="training", training=TrainingConfig()).call()


def test_the_weights_of_a_backbone_that_a_configuration_names_are_not_fetched(tmp_path):
    backbone = {"backbone": "microsoft/resnet-50", "use_pretrained_backbone": True, "use_timm_backbone": False}
    network = model(tmp_path, {"model_type": "detr", "architectures": ["DetrModel"], **backbone}, input=[1, 3, 64, 64])
    with pytest.raises(NetworkError, match=r"its constructor fails .*"):
        construct(network, training=False)
    assert huggingface_hub.constants.HF_HUB_OFFLINE


def test_models_of_timm_are_found_by_name():
    assert operations(NetworkConfig(name="timm:test_resnet", input=[1, 3, 64, 64]))[0].operation_class == "conv2d"
    with pytest.raises(NetworkError, match=r"did you mean .*resnet18"):
        construct(NetworkConfig(name="timm:resnet81", input=[1, 3, 64, 64]), training=False)


def test_segmentation_and_video_networks_of_torchvision_are_built_without_downloads(monkeypatch):
    monkeypatch.setattr(torch.hub, "load_state_dict_from_url", None)
    assert operations(NetworkConfig(name="lraspp_mobilenet_v3_large", input=[1, 3, 64, 64]))
    classes = {one.operation_class for one in operations(NetworkConfig(name="r3d_18", input=[1, 3, 4, 32, 32]))}
    assert "conv3d" in classes


@pytest.mark.parametrize("both", [False, True])
def test_a_recurrent_layer_is_one_operation_of_the_shapes_it_has_on_a_processor(both, monkeypatch, tmp_path):
    (tmp_path / "recurrent_of_ones_own.py").write_text(
        "from torch import nn\n\n"
        "class Layer(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        f"        self.layer = nn.LSTM(5, 7, 2, batch_first=True, bidirectional={both})\n\n"
        "    def forward(self, x):\n"
        "        return self.layer(x)[0]\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "recurrent_of_ones_own", raising=False)
    network = NetworkConfig(name="recurrent_of_ones_own:Layer", input=[3, 11, 5])
    trace = trace_network(network, "training", TrainingConfig())
    (layer,) = [call.operation for call in trace.calls if call.operation.operation_class == "lstm"]
    real = torch.nn.LSTM(5, 7, 2, batch_first=True, bidirectional=both)(torch.randn(3, 11, 5))
    assert [output.shape for output in layer.out] == [tuple(real[0].shape), *(tuple(state.shape) for state in real[1])]
    assert layer.grad_out[0] is not None
    assert trace.backward_nodes < 40
    weights = sum(tensor.elements for tensor in layer.tensors[1:] if len(tensor.shape) == 2)
    assert cost(layer, "inference").flops >= 2 * 33 * weights
    assert cost(layer, "training").flops > 3 * 2 * 33 * weights
