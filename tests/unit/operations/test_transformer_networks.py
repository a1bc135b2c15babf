import functools
import sys

import pytest
import torch
from rebuild import mismatches

from clockwatt.config import PASSES, NetworkConfig, TrainingConfig
from clockwatt.operations.networks import NetworkError, build_network
from clockwatt.operations.trace.trace import trace_network

MODULE = "clockwatt.operations.transformer_networks"
VOCABULARY = {
    "bert_base": 30522, "bert_large": 30522, "gpt2": 50257, "gpt2_medium": 50257, "llama": 32000, "llama3_1b": 128256,
}  # fmt: skip
PARAMETERS = {
    "bert_base": 109_514_298, "bert_large": 335_174_458, "gpt2": 124_439_808, "gpt2_medium": 354_823_168,
    "llama": 1_100_048_384, "llama3_1b": 1_498_482_688,
}  # fmt: skip
LAYERS = {"bert_base": 12, "bert_large": 24, "gpt2": 12, "gpt2_medium": 24, "llama": 22, "llama3_1b": 16}
ATTENTION = "torch.nn.functional.scaled_dot_product_attention"


def network(name: str, dtype: str = "float32", length: int = 8) -> NetworkConfig:
    return NetworkConfig(
        name=f"{MODULE}:{name}", input=[2, length], dtype=dtype, input_dtype="int64", input_below=VOCABULARY[name]
    )


@functools.cache
def traced(name: str, pass_: str):
    return trace_network(network(name), pass_, TrainingConfig())


@pytest.mark.parametrize(
    ("name", "pass_"),
    [*((name, "inference") for name in VOCABULARY), *((name, "training") for name in ("bert_base", "gpt2", "llama"))],
)
def test_traces_without_branches_on_data(name, pass_):
    trace = traced(name, pass_)
    functions = [call.operation.function for call in trace.calls]
    assert trace.parameters == PARAMETERS[name]
    assert functions.count(ATTENTION) == LAYERS[name]
    assert trace.assumed_branches == []


def test_decoders_attend_to_the_past_only():
    for name, causal in (("bert_base", False), ("gpt2", True), ("llama", True)):
        (spec,) = {
            call.operation.to_json() for call in traced(name, "inference").calls if call.operation.function == ATTENTION
        }
        assert f'"is_causal":{str(causal).lower()}' in spec.replace(" ", "")


@pytest.mark.parametrize("pass_", PASSES)
def test_grouped_queries_in_half_precision_are_laid_out_as_flash_attention_does(pass_):
    calls = trace_network(network("llama", "bfloat16"), pass_, TrainingConfig()).calls
    around = {ATTENTION, "torch.Tensor.transpose", "torch.Tensor.reshape", "torch.Tensor.contiguous"}
    operations = {call.operation.operation_id: call.operation for call in calls if call.operation.function in around}
    assert [found for operation in operations.values() for found in mismatches(operation, pass_)] == []


def test_a_training_pass_runs():
    built = build_network(network("gpt2"), "cpu", pass_="training", training=TrainingConfig())
    head = built.module.get_parameter("model.transformer.wte.weight")
    built.call()
    assert head.grad is not None
    assert head.grad.any()
    assert head.grad.isfinite().all()


class Wrapped(torch.nn.Module):
    """A model of the library as users wrap it: with a cache, and with the library's own masks."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids):
        return self.model(ids).logits


SMALL = {"vocab_size": 100, "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2}
GATED = SMALL | {"intermediate_size": 64, "num_key_value_heads": 2}
LIBRARY = [
    ("GPT2LMHeadModel", "GPT2Config", SMALL, 0),
    ("LlamaForCausalLM", "LlamaConfig", GATED, 0),
    ("MixtralForCausalLM", "MixtralConfig", GATED | {"num_local_experts": 4}, 2),
    ("MixtralForCausalLM", "MixtralConfig", GATED | {"num_local_experts": 4, "experts_implementation": "eager"}, 2),
]


@pytest.mark.parametrize("pass_", PASSES)
@pytest.mark.parametrize(("model", "configuration", "settings", "routed"), LIBRARY)
def test_models_of_the_library_are_traced_in_a_module_of_ones_own(
    monkeypatch, model, configuration, settings, routed, pass_
):
    def construct():
        import transformers  # takes a second of each process that collects

        return Wrapped(getattr(transformers, model)(getattr(transformers, configuration)(**settings)))

    monkeypatch.setattr(sys.modules[__name__], "offered", construct, raising=False)
    given = NetworkConfig(name=f"{__name__}:offered", input=[2, 16], input_dtype="int64", input_below=100)
    trace = trace_network(given, pass_, TrainingConfig())
    assert [call.operation.function for call in trace.calls].count(ATTENTION) == 2
    assert trace.assumed_branches == [
        f"model.model.layers.{layer}.mlp.experts: tokens spread evenly over 4 experts" for layer in range(routed)
    ]


def test_without_the_library_one_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(NetworkError, match=r"clockwatt\[transformers\]"):
        trace_network(network("gpt2"), "inference", TrainingConfig())
