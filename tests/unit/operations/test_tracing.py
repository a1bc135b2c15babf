import collections
import functools
import itertools
import sys

import pytest
import torch
import torchvision
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence

from clockwatt.config import NetworkConfig, TrainingConfig
from clockwatt.errors import IndexBeyondEndError
from clockwatt.operations import numerics
from clockwatt.operations.networks import NetworkError
from clockwatt.operations.trace.memory import record_memory
from clockwatt.operations.trace.trace import trace_network
from clockwatt.operations.trace.tracer import UntraceableError
from clockwatt.schema.execution import FP32


def network(name, *shape, **settings):
    return NetworkConfig(name=name, input=list(shape or (2, 3, 64, 64)), **settings)


def trace(name, *shape, pass_="inference", **settings):
    return trace_network(network(name, *shape, **settings), pass_, TrainingConfig())


def names(traced, phase="forward"):
    return [call.operation.function for call in traced.calls if call.phase == phase]


class OwnError(Exception):
    pass


def own_fault(*given):
    raise OwnError("not today")


@pytest.fixture
def own(monkeypatch):
    """Makes a network of one's own of a module; gives its name."""

    def offer(module):
        monkeypatch.setattr(sys.modules[__name__], "offered", lambda: module, raising=False)
        return f"{__name__}:offered"

    return offer


class Forward(nn.Module):
    """A network whose forward is a function of the module and its input."""

    def __init__(self, forward, **parts):
        super().__init__()
        self._forward = forward
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x):
        return self._forward(self, x)


def test_a_residual_network_gives_its_calls_in_order():
    traced = trace("resnet18")
    assert names(traced)[:4] == [
        "torch.nn.functional.conv2d",
        "torch.nn.functional.batch_norm",
        "torch.nn.functional.relu",
        "torch.nn.functional.max_pool2d",
    ]
    assert collections.Counter(names(traced))["torch.Tensor.add_"] == 8
    assert len(traced.calls) == 69
    assert traced.module_calls == 76
    assert traced.backward_nodes == 0
    assert traced.parameters == 11_689_512
    assert traced.parameter_bytes == 4 * 11_689_512
    assert traced.calls[0].module_path == "conv1"
    assert traced.calls[-2].module_path == ""  # flatten stands in the network's own forward
    assert traced.calls[-1].module_path == "fc"
    assert not any(tensor.grad for call in traced.calls for tensor in call.operation.tensors)


def test_tensors_are_followed_from_call_to_call():
    calls = trace("resnet18").calls
    for before, after in itertools.pairwise(calls[:4]):
        assert before.tensors_out[0] in after.tensors_in
    made = {number for call in calls for number in call.tensors_out}
    residual = next(call for call in calls if call.operation.function == "torch.Tensor.add_")
    assert set(residual.tensors_in) <= made
    assert residual.tensors_out[0] == residual.tensors_in[0]  # in place


def test_a_training_pass_has_all_its_phases():
    traced = trace("resnet18", pass_="training")
    assert [call.phase for call in traced.calls] == sorted(
        (call.phase for call in traced.calls), key=["forward", "loss", "accumulation", "optimizer"].index
    )
    assert names(traced, "loss") == ["torch.nn.functional.cross_entropy", "torch.ones_like"]
    assert names(traced, "optimizer") == ["torch.optim.SGD"]
    assert len(names(traced, "accumulation")) == 8
    assert traced.backward_nodes > 100
    first, *_, last = traced.calls
    assert [tensor.grad for tensor in first.operation.tensors] == [False, True]  # no gradient of the image
    assert first.operation.grad_out == (first.operation.out[0].stride,)
    assert len(last.operation.tensors) == 62
    assert last.operation.kwargs == {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.0}


def test_running_statistics_are_positive_and_state():
    batch_norm = next(
        call for call in trace("resnet18").calls if call.operation.operation_class == "batch_norm"
    ).operation
    assert [tensor.parameter for tensor in batch_norm.tensors] == [False, True, True, True, True]
    assert [tensor.positive for tensor in batch_norm.tensors] == [False, False, True, False, False]


def test_attention_is_seen_through_the_composite_that_hides_it():
    traced = trace("vit_b_32", 2, 3, 224, 224)
    assert collections.Counter(names(traced))["torch.nn.functional.scaled_dot_product_attention"] == 12
    assert collections.Counter(names(traced))["torch.nn.functional.linear"] == 12 * 4 + 1
    attention = next(call for call in traced.calls if call.operation.operation_class == "scaled_dot_product_attention")
    assert attention.operation.out[0].stride == (50 * 768, 64, 768, 1)
    assert attention.module_path == "encoder.layers.encoder_layer_0.self_attention"


@pytest.mark.parametrize(("same", "linears"), [(True, 2), (False, 4)])
def test_which_arguments_are_one_tensor_decides_what_attention_calls(own, same, linears):
    part = nn.MultiheadAttention(8, 2, batch_first=True)
    traced = trace(
        own(Forward(lambda m, x: m.part(x, x if same else x.relu(), x if same else x.exp())[0], part=part)), 2, 5, 8
    )
    assert collections.Counter(names(traced))["torch.nn.functional.linear"] == linears


def test_layouts_survive_convolutions(own):
    convolution = nn.Conv2d(3, 4, 1)
    traced = trace(own(Forward(lambda m, x: m.part(x.to(memory_format=torch.channels_last)), part=convolution)))
    assert traced.calls[0].operation.kwargs == {"memory_format": {"memory_format": "channels_last"}}
    assert traced.calls[1].operation.out[0].stride == (64 * 64 * 4, 1, 64 * 4, 4)


def test_stochastic_depth_is_one_operation_whatever_its_probability():
    unique = {call.operation.to_json() for call in trace("efficientnet_b0", pass_="training").calls}
    assert sum("bernoulli_" in text for text in unique) == 1
    assert sum('"torch.Tensor.div_"' in text for text in unique) == 1


def test_indices_know_what_they_stay_below(own):
    part = nn.Embedding(7, 4)
    name = own(Forward(lambda m, x: m.part(x)[:, m.order, None], part=part, order=nn.Buffer(torch.tensor([1, 0]))))
    embedding, subscript = trace(name, 2, 3, input_dtype="int64", input_below=7).calls
    assert [tensor.below for tensor in embedding.operation.tensors] == [7, None]
    assert [tensor.below for tensor in subscript.operation.tensors] == [None, 3]


def test_views_of_one_storage_stay_views_of_one_storage(own):
    traced = trace(own(Forward(lambda m, x: torch.cat((x[:, 1:], x[:, :1]), 1))))
    cat = traced.calls[-1].operation
    assert [(tensor.storage, tensor.offset) for tensor in cat.tensors] == [(0, 64 * 64), (0, 0)]
    assert [call.kind for call in traced.calls] == ["view", "view", "compute"]


def test_a_tensor_used_by_n_calls_costs_n_less_one_additions(own):
    def forward(module, x):
        y = module.part(x)
        return y.exp() + y.sin() + y * y + module.part(x).cos()

    traced = trace(own(Forward(forward, part=nn.Linear(8, 8))), 4, 8, pass_="training")
    shapes = [call.operation.out[0].shape for call in traced.calls if call.phase == "accumulation"]
    # y goes to three calls; y * y adds its own two gradients itself; weight and bias are used twice
    assert shapes == [(4, 8), (4, 8), (8,), (8, 8)]


def test_heads_of_googlenet_are_all_learnt():
    traced = trace("googlenet", 2, 3, 96, 96, pass_="training")
    assert names(traced, "loss").count("torch.nn.functional.cross_entropy") == 3
    assert "aux1.fc2" in {call.module_path for call in traced.calls}


def test_calls_without_gradients_have_no_backward_pass(own):
    def forward(module, x):
        y = module.part(x)
        with torch.no_grad():
            scale = y.abs().amax()
        return y / scale

    traced = trace(own(Forward(forward, part=nn.Linear(8, 8))), 4, 8, pass_="training")
    absolute = next(call.operation for call in traced.calls if call.operation.operation_class == "abs")
    assert absolute.no_grad
    assert not absolute.has_backward
    assert not absolute.out[0].grad


def test_new_tensors_are_made_where_the_operation_is_built(own):
    traced = trace(own(Forward(lambda m, x: x + torch.arange(64, dtype=x.dtype))))
    assert traced.calls[0].operation.kwargs == {"device": {"device": "@"}, "dtype": {"dtype": "float32"}}


def test_tracing_is_the_same_twice_and_leaves_no_trace():
    state = torch.random.get_rng_state()
    first, second = (trace("mobilenet_v3_small", pass_="training") for _ in range(2))
    assert [call.operation for call in first.calls] == [call.operation for call in second.calls]
    assert first == second
    assert torch.equal(state, torch.random.get_rng_state())
    assert not nn.Linear(2, 2).weight.is_meta
    assert not torch.overrides._get_current_function_mode_stack()


def test_dtype_goes_through_to_the_operations():
    dtypes = {tensor.dtype for call in trace("resnet18", dtype="bfloat16").calls for tensor in call.operation.tensors}
    assert dtypes == {"bfloat16"}


@pytest.mark.parametrize("name", ["maxvit_t", "inception_v3", "regnet_x_400mf", "swin_v2_t", "shufflenet_v2_x1_0"])
@pytest.mark.parametrize("pass_", ["inference", "training"])
def test_networks_that_are_known_to_be_hard_trace(name, pass_):
    size = 299 if name == "inception_v3" else 224
    assert trace(name, 2, 3, size, size, pass_=pass_).calls


def branching(module, x):
    return module.part(x) if x.sum() > 0 else x


def reading(module, x):
    return x * module.part(x).mean().item()


def selecting(module, x):
    return module.part(x)[x > 0]


def given_packed(module, x):
    lengths = torch.tensor([3, 2, 1], device="cpu")
    return module.recurrent(PackedSequence(x.flatten(1)[:, :6], lengths))[0].data


def listing(module, x):
    return x[: int(module.part(x).argmax())]


def recursing(module, x):
    return recursing(module, x)


HERE = r"\(\S*/unit/operations/test_tracing\.py:\d+, the network itself\)\."


@pytest.mark.parametrize(
    ("forward", "message"),
    [
        (
            branching,
            rf"torch\.Tensor\.__bool__ decides a branch by the values of data {HERE} Give .*data_dependent_branch",
        ),
        (reading, rf"torch\.Tensor\.item depends on the values of data, .* {HERE} Give the part"),
        (selecting, rf"torch\.Tensor\.__getitem__ depends on the values of data, .* {HERE} Give the part"),
        (listing, rf"torch\.Tensor\.__int__ depends on the values of data, .* {HERE} Give the part"),
        (lambda m, x: m.part(x).reshape(-1, 7), rf"torch\.Tensor\.reshape fails .* {HERE} Check .*\[2, 3, 64, 64\]\.$"),
        (
            lambda m, x: torch.ops.torchvision.nms(x[0, 0, :, :4], x[0, 0, 0], 0.5),
            rf"nms has no implementation without data {HERE} Give",
        ),
        (
            lambda m, x: torch._assert(x.shape[1] == 7, "no"),
            rf"torch\._assert fails \(AssertionError: no\) {HERE} Check",
        ),
        (lambda m, x: {}["key"], rf"its forward pass fails \(KeyError: 'key'\) {HERE} Correct its forward"),
        (
            given_packed,
            r"packs sequences, or takes packed ones \(.*module 'recurrent'\)\. Give its recurrent layers padded",
        ),
        (lambda m, x: pack_padded_sequence(x[0], [64] * 3), rf"packs sequences, or takes packed ones {HERE}"),
        (
            lambda m, x: pack_padded_sequence(x[0], torch.tensor([64] * 3), enforce_sorted=False),
            rf"packs sequences, or takes packed ones {HERE}",
        ),
        (lambda m, x: pack_sequence([x[0], x[0]]), rf"packs sequences, or takes packed ones {HERE}"),
        (own_fault, rf"offered: its forward pass fails \(OwnError: not today\) {HERE} Check that"),
        (recursing, rf"its forward pass calls itself without end {HERE} Correct its forward"),
        (lambda m, x: m.part(x.cuda()), rf"torch\.Tensor\.cuda asks for a GPU .* {HERE} Make tensors on the device"),
        (lambda m, x: m.part(x.cpu()), rf"torch\.Tensor\.cpu copies data to the CPU {HERE} Leave the copy out"),
        (lambda m, x: x.numpy(), rf"torch\.Tensor\.numpy copies data to the CPU {HERE}"),
        (
            lambda m, x: m.part(x) + torch.ones(64, device="cpu"),
            rf"mixes tensors on the CPU with those of the network .* {HERE} Make all on one device",
        ),
        (lambda m, x: None, r"its forward returns NoneType, not a tensor"),
        (
            lambda m, x: torch.autograd.grad(m.part(x).sum(), x)[0],
            rf"torch\.autograd\.grad computes gradients, .* {HERE} Predict training .* of the module that it",
        ),
        (lambda m, x: m.part(x).sum().backward(), rf"torch\.Tensor\.backward computes gradients, .* {HERE}"),
        (lambda m, x: torch.func.vmap(m.part)(x), rf"uses torch\.func, .* {HERE} Write it for the whole batch\.$"),
        (lambda m, x: torch.func.jacrev(m.part)(x), rf"uses torch\.func, .* {HERE} Write it for"),
        (
            lambda m, x: torch.compile(m.part, backend="eager")(x),
            rf"calls a function compiled by torch\.compile {HERE}",
        ),
    ],
)
def test_what_cannot_be_traced_is_refused_by_name(own, forward, message):
    with pytest.raises(UntraceableError, match=message):
        trace(own(Forward(forward, part=nn.Linear(64, 64), recurrent=nn.GRU(6, 5))))


def test_a_backward_pass_that_raises_what_only_the_network_knows_is_refused_by_name(own):
    def forward(module, x):
        out = module.part(x)
        out.register_hook(own_fault)
        return out

    with pytest.raises(
        UntraceableError, match=r"offered: its backward pass fails \(OwnError: not today\) \(.*test_tracing"
    ):
        trace(own(Forward(forward, part=nn.Linear(64, 64))), 2, 64, pass_="training")


@pytest.mark.parametrize(
    "forward", [lambda m, x: m.words(x), lambda m, x: m.words(x.view(-1, 2)), lambda m, x: m.words(x[:, :3])]
)
def test_token_ids_above_the_vocabulary_are_refused(own, forward):
    ids = {"input_dtype": "int64", "input_below": 50}
    trace(own(Forward(forward, words=nn.Embedding(50, 4))), 2, 8, **ids)
    with pytest.raises(
        UntraceableError,
        match=r"token ids below 50, but has 49 rows \(.*module 'words'\)\. Give .*--input SHAPE:int64:49",
    ):
        trace(own(Forward(forward, words=nn.Embedding(49, 4))), 2, 8, **ids)


def test_token_ids_that_a_network_makes_smaller_itself_may_be_large(own):
    trace(own(Forward(lambda m, x: m.words(x % 49), words=nn.Embedding(49, 4))), 2, 8, input_dtype="int64",
          input_below=50)  # fmt: skip


def positions(module, x):
    return module.words(torch.arange(x.shape[1], device=x.device))


@pytest.mark.parametrize(
    ("forward", "index"),
    [
        (positions, 49),
        (lambda m, x: m.words.weight[torch.arange(x.shape[1], device=x.device)[None]], 49),
        (lambda m, x: m.words.weight.index_select(0, torch.arange(x.shape[1], device=x.device) + 3), 52),
    ],
)
def test_positions_beyond_the_end_of_a_table_are_refused(own, forward, index):
    name = own(Forward(forward, words=nn.Embedding(index, 4)))
    trace(name, 2, 49)
    with pytest.raises(
        IndexBeyondEndError, match=rf"reads index {index} of a dimension of size {index} \(.*\)\. Give a shorter input"
    ):
        trace(name, 2, 50)


def test_assumed_indices_and_labels_that_a_loss_ignores_may_be_large(own):
    def forward(module, x):
        labels = torch.full(x.shape[:1], 255, device=x.device)
        return module.words.weight[x.argmax(1)], nn.functional.cross_entropy(x, labels, ignore_index=255)

    trace(own(Forward(forward, words=nn.Embedding(5, 4))), 2, 50)


@pytest.mark.parametrize(
    ("part", "shape"),
    [(nn.Linear(4, 4), (2, 4)), (nn.Conv2d(3, 4, 3), (2, 3, 8, 8)), (nn.ConvTranspose1d(3, 4, 3), (2, 3, 8))],
)
def test_products_of_several_dtypes_are_refused(own, part, shape):
    name = own(Forward(lambda m, x: m.part(x), part=part))
    trace(name, *shape)
    with pytest.raises(
        UntraceableError, match=r"several dtypes, int64 and float32 \(.*module 'part'\)\. Give the input"
    ):
        trace(name, *shape, input_dtype="int64", input_below=9)


def test_a_network_without_parameters_has_no_training_pass(own):
    name = own(Forward(lambda m, x: x.relu()))
    assert names(trace(name)) == ["torch.Tensor.relu"]
    with pytest.raises(NetworkError, match="its output depends on no parameter"):
        trace(name, pass_="training")


def test_the_module_that_makes_the_call_is_named(own):
    inner = Forward(branching, part=nn.Identity())
    with pytest.raises(UntraceableError, match=r"decides a branch .*, module 'blocks\.1'\)"):
        trace(own(Forward(lambda m, x: m.blocks(x), blocks=nn.Sequential(nn.ReLU(), inner))))


def test_an_input_of_the_wrong_shape_is_refused():
    with pytest.raises(
        UntraceableError, match=r"conv2d fails \(.*\) \(torchvision/models/resnet\.py:\d+, module 'conv1'\)\. Check"
    ):
        trace("resnet18", 2, 4, 64, 64)


@pytest.mark.parametrize(("assumed", "calls"), [("true", ["linear"]), ("false", ["relu"])])
def test_a_branch_may_be_assumed_and_is_recorded(own, assumed, calls):
    inner = Forward(lambda m, x: m.part(x) if x.sum() > 0 else x.relu(), part=nn.Linear(64, 64))
    traced = trace(own(Forward(lambda m, x: m.inner(x), inner=inner)), data_dependent_branch=assumed)
    assert [call.operation.operation_class for call in traced.calls if call.phase == "forward"][-1:] == calls
    assert traced.assumed_branches == [f"inner: {assumed}"]


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpointed_part_runs_without_gradients_and_again_with_them(own, reentrant):
    def forward(module, x):
        return torch.utils.checkpoint.checkpoint(module.part, module.first(x), use_reentrant=reentrant)

    name = own(Forward(forward, first=nn.Linear(64, 64), part=nn.Linear(64, 64)))
    linear = [call for call in trace(name, pass_="training").calls if call.operation.operation_class == "linear"]
    assert [(call.module_path, call.operation.no_grad, call.operation.has_backward) for call in linear] == [
        ("first", False, True), ("part", True, False), ("part", False, True),
    ]  # fmt: skip
    assert names(trace(name)).count("torch.nn.functional.linear") == 2


def test_kernels_that_a_network_excludes_are_noted(own):
    def attention(module, x):
        return nn.functional.scaled_dot_product_attention(x, x, x)

    def by_math(module, x):
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            return attention(module, x)

    assert trace(own(Forward(attention))).assumed_branches == []
    (noted,) = trace(own(Forward(by_math))).assumed_branches
    assert noted == ": attention takes the kernel that PyTorch chooses where all are allowed"


def test_selective_checkpointing_is_refused(own):
    def forward(module, x):
        settings = {"use_reentrant": False, "context_fn": lambda: (torch.no_grad(), torch.no_grad())}
        return torch.utils.checkpoint.checkpoint(module.part, x, **settings)

    with pytest.raises(UntraceableError, match="uses selective activation checkpointing"):
        trace(own(Forward(forward, part=nn.Linear(64, 64))), pass_="training")


def test_hooks_on_saved_tensors_are_refused_by_name(own):
    def forward(module, x):
        with torch.autograd.graph.save_on_cpu():
            return module.part(x)

    with pytest.raises(UntraceableError, match="uses hooks on saved tensors, which"):
        trace(own(Forward(forward, part=nn.Linear(64, 64))), pass_="training")


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


def test_the_backward_pass_of_a_custom_autograd_function_is_traced(own):
    name = own(Forward(lambda m, x: Doubled.apply(m.part(x)), part=nn.Linear(64, 64)))
    assert names(trace(name)) == ["torch.nn.functional.linear", "torch.Tensor.mul"]
    traced = trace(name, pass_="training")
    assert names(traced) == ["torch.nn.functional.linear", "torch.Tensor.mul"]
    (back,) = [call.operation for call in traced.calls if call.phase == "accumulation"]
    assert (back.function, back.has_backward) == ("torch.Tensor.mul", False)


class LightningModule(nn.Module):
    pass


@pytest.mark.parametrize(
    ("wrapped", "message"),
    [
        (lambda: nn.DataParallel(nn.Linear(64, 64)), "it is DataParallel, which runs on several GPUs"),
        (lambda: nn.Sequential(nn.DataParallel(nn.Linear(64, 64))), "module '0' is DataParallel"),
        (lambda: torch.compile(nn.Linear(64, 64)), r"it is compiled by torch\.compile"),
        (LightningModule, "it is a LightningModule of test_tracing, whose training_step"),
    ],
)
def test_what_runs_otherwise_than_its_forward_says_is_refused_by_name(own, wrapped, message):
    with pytest.raises(UntraceableError, match=message):
        trace(own(wrapped()), 2, 64, pass_="training")


def test_a_sparse_buffer_is_refused_by_name(own):
    part = nn.Linear(64, 64)
    part.register_buffer("edges", torch.eye(64).to_sparse())
    with pytest.raises(NetworkError, match="buffer 'edges' is sparse"):
        trace(own(part), 2, 64)


def test_an_operator_outside_of_pytorch_is_refused(own):
    def forward(module, x):
        boxes = torch.zeros(1, 5, dtype=x.dtype, device=x.device)
        return torchvision.ops.roi_align(x, boxes, 2)

    with pytest.raises(UntraceableError, match="roi_align"):
        trace(own(Forward(forward)))


class Repeated(nn.Module):
    """Applies a layer as often as a buffer says."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.register_buffer("count", torch.tensor(3))

    def forward(self, x):
        for _ in range(int(self.count)):
            x = self.layer(x)
        return x


cached = functools.cache(Repeated)


def test_a_module_that_outlives_a_trace_is_traced_again(tmp_path, monkeypatch):
    tmp_path.joinpath("built_at_import.py").write_text(
        f"import {__name__} as tests\nNETWORK = tests.Repeated()\ndef network(): return NETWORK\n"
    )
    monkeypatch.chdir(tmp_path)
    for name in (f"{__name__}:cached", "built_at_import:network", "built_at_import:NETWORK"):
        for precision in ("bf16+channels_last", "fp32"):
            traced = trace(name, 4, 8, precision=[precision])
            assert names(traced) == ["torch.nn.functional.linear"] * 3
            assert traced.calls[0].operation.tensors[0].dtype == ("bfloat16" if "bf16" in precision else "float32")


def test_tracing_leaves_the_switches_of_pytorch_as_they_were():
    before = numerics.apply(FP32)
    trace("resnet18")
    record_memory(network("resnet18"), "inference", TrainingConfig())
    assert numerics.settings() == before


def test_tracing_does_not_change_a_module_in_memory(own):
    module = Repeated()
    before = {name: (id(tensor), tensor.clone()) for name, tensor in module.state_dict(keep_vars=True).items()}
    assert len(names(trace(own(module), 4, 8, precision=["bf16"], pass_="training"))) == 3
    for name, tensor in module.state_dict(keep_vars=True).items():
        assert id(tensor) == before[name][0]
        assert torch.equal(tensor, before[name][1])
