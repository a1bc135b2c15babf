"""Networks under `torch.autocast`: the casts that PyTorch makes, and what they change."""

import collections
import sys

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from clockwatt.config import NetworkConfig, TrainingConfig
from clockwatt.operations.constructors import constructor_of
from clockwatt.operations.networks import build_network
from clockwatt.operations.trace.autocast import _enabled
from clockwatt.operations.trace.trace import trace_network


def network(name, *shape, precision="bf16-mixed", **settings):
    return NetworkConfig(name=name, input=list(shape or (2, 3, 64, 64)), precision=precision, **settings)


def calls(traced, name, phase="forward"):
    """Dtypes of the first tensor and the result of each call of a class."""
    return [
        (call.operation.tensors[0].dtype, call.operation.out[0].dtype)
        for call in traced.calls
        if call.phase == phase and call.operation.operation_class == name
    ]


class Forward(nn.Module):
    def __init__(self, forward, **parts):
        super().__init__()
        self._forward = forward
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x):
        return self._forward(self, x)


@pytest.fixture
def traced(monkeypatch):
    """Traces a network of one's own."""

    def trace(forward, *shape, pass_="inference", precision="bf16-mixed", **parts):
        monkeypatch.setattr(sys.modules[__name__], "offered", lambda: Forward(forward, **parts), raising=False)
        of_network = network(f"{__name__}:offered", *(shape or (4, 64)), precision=precision)
        return trace_network(of_network, pass_, TrainingConfig())

    return trace


class SeenCasts(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.casts = collections.Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is torch.ops.aten._to_copy.default and kwargs.get("dtype") not in (None, args[0].dtype):
            self.casts[args[0].dtype, kwargs["dtype"], tuple(args[0].shape)] += 1
        return func(*args, **kwargs)


def casts_of_pytorch(of_network, dtype):
    """The casts of a forward pass on fake CUDA tensors under PyTorch's own autocast, with its cache of weights."""
    module = constructor_of(of_network)().eval()
    with FakeTensorMode(allow_non_fake_inputs=True):
        state = {name: torch.empty_like(one, device="cuda") for name, one in module.state_dict().items()}
        learnt = {name for name, _ in module.named_parameters()}
        state = {name: one.requires_grad_(name in learnt) for name, one in state.items()}
        x = torch.empty(of_network.input, device="cuda")
        with _enabled(dtype), SeenCasts() as seen:
            torch.set_autocast_cache_enabled(True)
            torch.func.functional_call(module, state, (x,))
        torch.clear_autocast_cache()
    return seen.casts


@pytest.mark.parametrize(
    ("name", "precision", "dtype"),
    [
        ("resnet18", "fp16-mixed", torch.float16),
        ("swin_t", "bf16-mixed", torch.bfloat16),
        ("convnext_tiny", "bf16-mixed", torch.bfloat16),
    ],
)
def test_the_casts_are_those_of_pytorch(name, precision, dtype):
    of_network = network(name, 2, 3, 224, 224, precision=precision)
    found = collections.Counter()
    for call in trace_network(of_network, "inference", TrainingConfig()).calls:
        if call.operation.operation_class == "to" and call.kind == "compute":
            (given,), (made,) = call.operation.tensors, call.operation.out
            found[getattr(torch, given.dtype), getattr(torch, made.dtype), given.shape] += 1
    assert found == casts_of_pytorch(of_network, dtype)


def test_convolutions_and_products_run_in_16_bits_and_norms_in_float32():
    training = trace_network(network("vit_b_16", 2, 3, 224, 224), "training", TrainingConfig())
    assert set(calls(training, "linear") + calls(training, "conv2d")) == {("bfloat16", "bfloat16")}
    assert set(calls(training, "layer_norm")) == {("float32", "float32")}
    assert calls(training, "cross_entropy", "loss") == [("float32", "float32")]
    (step,) = [call.operation for call in training.calls if call.operation.is_optimizer]
    assert {tensor.dtype for tensor in step.tensors} == {"float32"}
    weights = [call.operation for call in training.calls if call.operation.operation_class == "to"]
    assert any(one.tensors[0].parameter and one.has_backward for one in weights), "gradients are cast to float32"


def test_a_weight_is_cast_once_and_its_gradient_added_up_before_the_cast(traced):
    found = traced(lambda m, x: m.part(m.part(x)), pass_="training", part=nn.Linear(64, 64, bias=False))
    assert calls(found, "to") == [("float32", "bfloat16")] * 2
    assert calls(found, "add", "accumulation") == [("bfloat16", "bfloat16")]


def test_what_is_recomputed_for_the_backward_pass_is_cast_again(traced):
    def forward(module, x):
        return torch.utils.checkpoint.checkpoint(module.part, x, use_reentrant=False)

    found = traced(forward, pass_="training", part=nn.Linear(64, 64, bias=False))
    assert calls(found, "to") == [("float32", "bfloat16")] * 4


def test_softmax_of_float16_gives_float32_without_a_cast(traced):
    found = traced(lambda m, x: m.part(x).softmax(-1), precision="fp16-mixed", part=nn.Linear(64, 64))
    assert calls(found, "softmax") == [("float16", "float32")]


def test_a_recurrent_layer_is_cast_as_a_whole(traced):
    found = traced(lambda m, x: m.part(x)[0], 4, 7, 64, part=nn.LSTM(64, 32, batch_first=True))
    assert calls(found, "lstm") == [("bfloat16", "bfloat16")]


@pytest.mark.parametrize("precision", ["tf32", "bf16-mixed"])
def test_contexts_of_the_network_itself_are_followed(traced, precision):
    def forward(module, x):
        with torch.autocast("cuda", enabled=False):
            x = module.part(x.float())
        with torch.autocast("cuda", dtype=torch.float16), torch.autocast("cpu", dtype=torch.bfloat16):
            return module.part(x)

    assert calls(traced(forward, precision=precision, part=nn.Linear(64, 64)), "linear") == [
        ("float32", "float32"), ("float16", "float16"),
    ]  # fmt: skip


def test_fp16_scales_the_loss_and_unscales_the_gradients(traced):
    found = traced(lambda m, x: m.part(x), pass_="training", precision="fp16-mixed", part=nn.Linear(64, 64))
    (unscaling,) = [call.operation for call in found.calls if call.operation.function == "torch.Tensor.mul_"]
    assert unscaling.tensors[0].shape == (64 * 64 + 64,)
    assert found.assumed_branches == [": GradScaler unscales all gradients in one call and does not wait for the GPU"]
    bf16 = traced(lambda m, x: m.part(x), pass_="training", part=nn.Linear(64, 64))
    assert not bf16.assumed_branches


@pytest.mark.parametrize("precision", ["bf16-mixed", "fp16-mixed"])
def test_a_pass_is_measured_under_autocast(precision):
    of_network = network("squeezenet1_1", 1, 3, 32, 32, precision=precision)
    assert of_network.network_id == f"squeezenet1_1-1x3x32x32-{precision.replace('-', '_')}"
    built = build_network(of_network, "cpu", pass_="inference", training=TrainingConfig())
    assert built.call().dtype == getattr(torch, {"bf16-mixed": "bfloat16", "fp16-mixed": "float16"}[precision])
    build_network(of_network, "cpu", pass_="training", training=TrainingConfig()).call()
