import sys

import pytest
import torch
import torchvision

from clockwatt.config import NetworkConfig, TrainingConfig
from clockwatt.operations.known_values import KnownValues
from clockwatt.operations.networks import (
    Loss,
    NetworkError,
    build_network,
    construct,
    example_inputs,
    with_dtype,
    without_memory,
)

CPU = torch.device("cpu")


def network(name="resnet18", shape=(2, 3, 64, 64), **settings):
    return NetworkConfig(name=name, input=list(shape), **settings)


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Writes a module into the working directory; gives the name of a network in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    count = iter(range(100))

    def write(body, attribute="build"):
        module = f"own_{tmp_path.name}_{next(count)}"
        (tmp_path / f"{module}.py").write_text("import torch\nfrom torch import nn\n" + body)
        return f"{module}:{attribute}"

    return write


def test_all_classification_networks_of_torchvision_have_names():
    assert len(torchvision.models.list_models(module=torchvision.models)) >= 80


def test_an_unknown_network_is_refused_with_close_names():
    with pytest.raises(
        NetworkError,
        match=r"'resnet81' is no classification, segmentation or video network of torchvision; did you mean resnet18",
    ):
        construct(network("resnet81"), training=False)


def test_a_module_of_ones_own_is_found_in_the_working_directory(own):
    module = construct(network(own("def build():\n    return nn.Linear(2, 3)\n")), training=False)
    assert module.weight.shape == (3, 2)
    assert not module.training


@pytest.mark.parametrize(
    ("body", "attribute", "message"),
    [
        ("import nonsense_that_is_not_there\n", "build", "cannot be imported .ModuleNotFoundError: No module named"),
        ("def build(:\n", "build", "cannot be imported .SyntaxError"),
        ("def build_it():\n    return None\n", "build", "has no callable 'build'; did you mean build_it"),
        ("def build():\n    return 3\n", "build", r"of type int, not a torch.nn.Module\. Return the module\."),
        ("def other():\n    return 3\n", "build", r"no callable 'build'\. Give a function or class of it that returns"),
        ("def build():\n    raise KeyError('width')\n", "build", "its constructor fails .KeyError: 'width'"),
        (
            "class Own(Exception): pass\ndef build():\n    raise Own('not today')\n",
            "build",
            "constructor fails .Own: not today",
        ),
        ("class Own(Exception): pass\nraise Own('not today')\n", "build", "cannot be imported .Own: not today"),
        (
            "class Own(Exception): pass\nclass build(nn.Module):\n    def train(self, _): raise Own('not today')\n",
            "build",
            "constructor fails .Own: not today",
        ),
        ("def build(depth):\n    return nn.Identity()\n", "build", "its constructor fails .TypeError"),
    ],
)
def test_a_module_that_cannot_be_used_is_refused(own, body, attribute, message):
    with pytest.raises(NetworkError, match=message):
        construct(network(own(body, attribute)), training=False)


def test_a_module_that_is_not_there_is_refused():
    with pytest.raises(NetworkError, match=r"module 'no_such_package\.models' cannot be imported"):
        construct(network("no_such_package.models:build"), training=False)


def test_building_without_memory_allocates_no_weight():
    with without_memory(KnownValues()):
        module = construct(network("vit_h_14"), training=True)
    assert all(tensor.is_meta for tensor in (*module.parameters(), *module.buffers()))
    assert sum(parameter.numel() for parameter in module.parameters()) == 632_045_800
    assert all(parameter.requires_grad for parameter in module.parameters())


def test_only_what_is_built_within_is_without_memory():
    with without_memory(KnownValues()):
        pass
    assert not next(construct(network(), training=False).parameters()).is_meta


def test_dtype_is_a_cast_of_the_whole_network():
    module = construct(network(dtype="bfloat16"), training=False)
    assert {parameter.dtype for parameter in module.parameters()} == {torch.bfloat16}
    assert example_inputs(network(dtype="bfloat16"), CPU, 0)[0][0].dtype == torch.bfloat16


def test_a_cast_leaves_complex_parameters_complex():
    module = torch.nn.Module()
    module.weight, module.modes = (
        torch.nn.Parameter(torch.ones(2, dtype=dtype)) for dtype in (torch.float32, torch.cfloat)
    )
    cast = with_dtype(module, torch.bfloat16)
    assert (cast.weight.dtype, cast.modes.dtype) == (torch.bfloat16, torch.cfloat)


def test_indices_stay_below_their_bound():
    (indices,), _ = example_inputs(network(shape=(4, 100), input_dtype="int64", input_below=7), CPU, 0)
    assert indices.dtype == torch.int64
    assert set(indices.unique().tolist()) == set(range(7))


def test_an_inference_pass_changes_nothing():
    built = build_network(network(), "cpu", pass_="inference", training=TrainingConfig())
    with torch.inference_mode():
        first, second = built.call(), built.call()
    assert first.shape == (2, 1000)
    assert torch.equal(first, second)
    assert built.parameter_bytes > 4 * 11_689_512


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_a_training_pass_does_all_the_work_and_leaves_the_parameters_as_they_are(optimizer):
    training = TrainingConfig(optimizer=optimizer, learning_rate=0.01)
    built = build_network(network(), "cpu", pass_="training", training=training)
    before = [parameter.detach().clone() for parameter in built.module.parameters()]
    built.call()
    gradients = [parameter.grad for parameter in built.module.parameters()]
    assert all(gradient is not None and gradient.isfinite().all() for gradient in gradients)
    assert sum(bool(gradient.any()) for gradient in gradients) >= len(gradients) - 1
    assert len(built.optimizer.state) == len(before)
    built.call()
    assert all(torch.equal(b, p) for b, p in zip(before, built.module.parameters(), strict=True))
    assert all(p.grad is not first for first, p in zip(gradients, built.module.parameters(), strict=True))


def test_class_scores_of_several_heads_are_summed():
    loss = Loss(network(shape=(4, 3)), CPU, 0)
    scores, auxiliary = torch.randn(4, 10), torch.randn(4, 10)
    both = loss((scores, auxiliary))
    alone = Loss(network(shape=(4, 3)), CPU, 0)
    assert torch.allclose(both, alone(scores) + alone(auxiliary))


def test_scores_of_the_next_index_are_compared_at_every_position():
    loss = Loss(network(shape=(2, 5), input_dtype="int64", input_below=11), CPU, 0)
    uniform = torch.zeros(2, 5, 11)
    assert torch.isclose(loss({"logits": uniform}), torch.tensor(11.0).log())


def test_anything_else_is_averaged():
    loss = Loss(network(shape=(2, 5)), CPU, 0)
    hidden, pooled = torch.full((2, 5, 8), 2.0), torch.full((2, 8), 3.0)
    assert (
        loss({"last_hidden_state": hidden, "pooler_output": pooled, "indices": torch.ones(2, dtype=torch.int64)}) == 5.0
    )


def test_no_output_to_learn_from_is_refused():
    with pytest.raises(NetworkError, match="no floating-point tensor"):
        Loss(network(), CPU, 0)({"indices": torch.ones(2, dtype=torch.int64)})
