"""Public architectures are traced: every module of torch.nn, and of timm and transformers a few of each kind.

`benchmarks/architectures.py` traces all of them.
"""

import json

import pytest
from public_architectures import TORCH_NN, TRANSFORMERS

from clockwatt import config
from clockwatt.config import NetworkConfig, TrainingConfig
from clockwatt.errors import NetworkError
from clockwatt.operations.catalogue import trace_rows

REFUSED = {
    "AdaptiveLogSoftmaxWithLoss": "nonzero depends on the values of data",
    "GaussianNLLLoss": "decides a branch by the values of data",
    "CrossMapLRN2d": "torch.Tensor.new is no public function",
}
"""Modules that depend on data, and one that PyTorch writes in a way of its first versions."""

WITHOUT_PARAMETERS = "its output depends on no parameter"


@pytest.mark.parametrize("pass_", config.PASSES)
@pytest.mark.parametrize("name", TORCH_NN)
def test_every_module_of_torch_is_traced(name, pass_):
    network = NetworkConfig(name=f"public_architectures:{name}", inputs=TORCH_NN[name][1])
    if name in REFUSED:
        with pytest.raises(NetworkError, match=REFUSED[name]):
            trace_rows(network, pass_, TrainingConfig())
        return
    try:
        assert trace_rows(network, pass_, TrainingConfig()).calls
    except NetworkError as error:
        if pass_ == "inference" or WITHOUT_PARAMETERS not in str(error):
            raise


@pytest.mark.parametrize("pass_", config.PASSES)
@pytest.mark.parametrize(
    "name", ["deberta", "longformer", "bloom", "qwen3_moe", "mamba", "t5", "switch_transformers", "wav2vec2", "clip"]
)
def test_models_of_transformers_are_traced_by_their_configuration(tmp_path, name, pass_):
    configuration, inputs = TRANSFORMERS[name]
    path = tmp_path / "config.json"
    path.write_text(json.dumps(configuration))
    network = NetworkConfig.model_validate({"name": f"hf:{path}", **inputs})
    traced = trace_rows(network, pass_, TrainingConfig())
    assert len(traced.calls) > 30
    routed = any("tokens spread evenly over 4 experts" in entry for entry in traced.network.assumed_branches)
    assert routed == (name in ("qwen3_moe", "switch_transformers"))


@pytest.mark.parametrize("name", ["test_resnet", "vitamin_small_224", "halonet26t"])
def test_models_of_timm_are_traced_at_their_own_size(name):
    network = NetworkConfig(name=f"timm:{name}", input=[2])
    assert network.input is not None
    assert len(network.input) == 4
    assert trace_rows(network, "inference", TrainingConfig()).calls
