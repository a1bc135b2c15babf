"""Odd questions from Python are answered, or refused for the reason that they are odd."""

import concurrent.futures
import copy
import functools
import pickle
import threading
from typing import ClassVar

import numpy
import pandas
import pytest
import torch

import clockwatt
from clockwatt.errors import ClockwattError
from clockwatt.predict.request import Request

X = torch.empty(4, 8)


class Sparse(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("links", torch.eye(8).to_sparse())

    def forward(self, x):
        return torch.sparse.mm(self.links, x.T)


class Endless(torch.nn.Module):
    def forward(self, x):
        return self.forward(x)


QUESTIONS = [
    ((torch.nn.Identity(), X), {}, "computes nothing on a GPU"),
    ((torch.nn.Identity, X), {}, "computes nothing on a GPU"),
    ((lambda x: x.view(-1).t(), X), {}, "computes nothing on a GPU"),
    ((lambda _x: 3, X), {}, "its forward returns int, not a tensor"),
    ((lambda x: (x + 1).cpu(), X), {}, "copies data to the CPU"),
    ((lambda x: x.cuda(), X), {}, "asks for a GPU"),
    ((lambda x: x * x.sum().item(), X), {}, "depends on the values of data"),
    ((lambda x: x if x.sum() > 0 else -x, X), {}, "assume_branch"),
    ((torch.nn.Linear(8, 8), X), {"operations": "x.jsonl"}, "operations replace a network"),
    ((lambda x: x / (1 // 0), X), {}, "modulo by zero.*Correct its forward"),
    ((torch.nn.Linear(9, 8), X), {}, r"takes an input of shape \[4, 8\]"),
    ((Endless(), X), {}, "calls itself without end"),
    ((Sparse(), X), {}, "buffer 'links' is sparse"),
    ((torch.nn.DataParallel(torch.nn.Linear(8, 8)), X), {}, "DataParallel"),
    ((torch.nn.Linear(8, 8),), {}, "give an example tensor or a shape"),
    ((torch.nn.Linear(8, 8).double(), X.double()), {}, "'float64' is not supported"),
    ((torch.relu, X), {"training": True}, "its output depends on no parameter"),
    ((torch.inference_mode()(torch.relu), X), {"training": True}, "is of torch.inference_mode, which has no gradients"),
    ((torch.relu, X), {"training": "yes"}, "training 'yes': give True or False"),
    (("resnet50",), {"input": 5}, "input 5: give a shape"),
    (("resnet50",), {"input": (-1, 3, 224, 224)}, "write the shape of the input, sizes from 1"),
    (("resnet5O",), {}, "did you mean resnet50"),
    (("resnet18",), {"input": (10**11, 3, 224, 224)}, "is larger than any memory. Give a smaller input"),
    ((torch.nn.Linear(8, 8), (10**15, 8)), {}, "network Linear: is larger than any memory. Give a smaller input"),
    ((torch.matmul, [(2**21, 2**21)] * 2), {}, "network matmul: is larger than any memory. Give a smaller input"),
    (("resnet50",), {"limits": clockwatt.Limits()}, "limits is for recommend only"),
    (("resnet50",), {"to": {"gpu": "h100"}}, "to is for compare only"),
    (("hf:llama.json",), {}, "such as 8,128"),
    (("resnet18",), {"input": "8,4:int64"}, "input_dtype: int64 needs input_below"),
    ((torch.nn.LazyLinear(8), X), {}, "has lazy modules. Call it once"),
    ((5,), {}, "network 5: give a name, a torch.nn.Module"),
    ((torch.nn.Embedding(9, 8), {"shape": (4, 8), "dytpe": "int64"}), {}, "did you mean 'dtype'.*here: shape, dtype"),
    (
        (torch.nn.Embedding(9, 8), torch.zeros(4, 8, dtype=torch.int16)),
        {},
        "int16 is not supported.*Convert it to .*int64",
    ),
    ((torch.relu, torch.zeros(4, 8).to(torch.float8_e5m2)), {}, "float8_e5m2 is not supported. Convert it to float32"),
    ((torch.nn.Linear(8, 8).to(torch.float8_e5m2), X), {}, "precision 'float8_e5m2' is not supported"),
    ((torch.relu, X.to_sparse()), {}, "torch.sparse_coo is not supported. Give a dense tensor"),
    ((torch.relu, torch.nested.nested_tensor([X, X])), {}, "nested tensors are not supported. Give a dense tensor"),
    ((torch.relu, numpy.array([None])), {}, "can't convert np.ndarray of type numpy.object_"),
    (("resnet18", {}), {}, "inputs {}: give a shape for each keyword, or leave inputs out"),
    (("resnet18", {2, 3}), {}, "input {2, 3}: give a shape, batch first"),
    (("resnet18",), {"training": True, "clip_norm": float("inf")}, "clip_norm inf: it must be a finite number"),
    (([{1: 2}],), {"gpu": None}, "{1: 2}: give each question of a list as a dict"),
    ((torch.nn.Linear(8, 8), X.byte()), {}, "tensors of several dtypes, uint8 and float32.*cast one of them"),
    (("resnet18", torch.zeros(2, 3, 64, 64, dtype=torch.uint8)), {}, "several dtypes, uint8 and float32"),
    ((None,), {}, "^give a network and its input, such as resnet50 and 32,3"),
    (("resnet50",), {"points": 5}, "points 5: give an operating point"),
    (("resnet50",), {"dtype": "bf16"}, "dtype is not known: write precision"),
    (("resnet50",), {"batch_size": 8}, "batch_size is not known: write batch"),
    (("resnet50",), {"depth": 1}, "depth is for layers only"),
    (("resnet50",), {"optimizer": "adamw"}, "optimizer is for training: give training=True too"),
    (("resnet50",), {"training": True, "accumulate": 1.5}, "accumulate 1.5: give a whole number"),
    (("resnet50",), {"training": True, "clip_norm": "x"}, "clip_norm 'x': give a number"),
    ((), {"operations": [5]}, r"operations \[5\]: give a path"),
    (("resnet50",), {"precision": 16}, "precision 16: give one name"),
    (("resnet50",), {"precision": "fp8"}, "Choose tf32-conv"),
    (("resnet50",), {"point": "fast"}, "is no operating point"),
    (("resnet50",), {"point": "sm9999"}, "has 345 to 1980 MHz"),
    (("resnet50",), {"batch": 8}, r"batch 8: give one or more sizes"),
    (("resnet50",), {"batch": []}, r"batch \[\]: give one or more sizes"),
    (("resnet50",), {"optimizer": "adamx", "training": True}, "optimizer adamx: unknown"),
    (("resnet50",), {"cache_length": 8, "training": True}, "cache_length is for decoders"),
    (("resnet50",), {"gpu": "h10O"}, "there are predictors for a30, .*; did you mean h100.* To add a GPU"),
    (("no.such:network",), {"input": (8, 3), "gpu": "a100"}, "there are predictors for a30, .*h100"),
    (("no.such:network",), {"input": (8, 3), "point": "sm9999"}, "has 345 to 1980 MHz"),
    (("no.such:network",), {"input": (8, 3), "host": "nowhere"}, "host nowhere: no such profile"),
    (("resnet50",), {"gpu": 5}, "gpu 5: give one as a string; several as gpus"),
    (("resnet50",), {"gpu": ["h100", "h200"]}, r"gpu \['h100', 'h200'\]: give one as a string; several as gpus"),
    (("resnet50",), {"model": "resnet50"}, "model is not known: write network"),
    (("resnet50",), {"training": True, "optimizer": torch.optim.SGD([X])}, r"optimizer SGD \(.*: give one name"),
    (("resnet50",), {"host": "nowhere"}, "host nowhere: no such profile"),
    (("resnet50",), {"foo": 1}, "unknown field foo"),
    (([1, 2],), {"gpu": None}, "1: give each question of a list as a dict"),
    (([{"network": "resnet50", "gpu": "h200"}],), {"gpu": None, "point": "sm900"}, "point cannot be given with a list"),
    (([{"network": "resnet5O", "gpu": "h200"}],), {"gpu": None}, "did you mean resnet50"),
    (([{"network": "resnet50"}],), {}, "gpu cannot be given with a list of questions"),
    (("resnet50",), {"gpus": ["h100"]}, "gpu and gpus.*give one of them"),
    (("resnet50",), {"training": True, "pass_": "inference"}, "training and pass_ contradict each other"),
    (("resnet50",), {"power_cap_w": 10.0}, "power_cap_w is for recommend only"),
    (("resnet50",), {"predictors_dir": "results"}, "predictors_dir is a folder: give it to `clockwatt.load`"),
    (("resnet50",), {"measure_missing": "20"}, "measure_missing is for measuring"),
    ((torch.jit.trace(torch.nn.Linear(8, 8), X, check_trace=False), X), {}, "is compiled by TorchScript"),
]


@pytest.mark.parametrize(("network", "more", "why"), QUESTIONS)
def test_an_odd_question_is_refused_for_its_cause(network, more, why):
    with pytest.raises(ClockwattError, match=why):
        clockwatt.predict(*network, **{"gpu": "h200"} | more)


IMAGES = (2, 3, 64, 64)


class Product(torch.nn.Module):
    def forward(self, x, y):
        return x @ y


@pytest.mark.parametrize(
    ("asked", "same"),
    [
        ((("resnet18", numpy.array(IMAGES)), {}), (("resnet18", IMAGES), {})),
        ((("resnet18", [torch.empty(IMAGES)]), {}), (("resnet18", IMAGES), {})),
        ((("resnet18", IMAGES), {"precision": torch.bfloat16}), (("resnet18", IMAGES), {"precision": "bf16"})),
        *(
            (
                (("resnet18", IMAGES), {"training": True, "optimizer": optimizer}),
                (("resnet18", IMAGES), {"training": True, "optimizer": "adamw"}),
            )
            for optimizer in (torch.optim.AdamW, "torch.optim.AdamW")
        ),
        (((torch.relu, numpy.zeros((4, 8), "float32")), {}), ((torch.relu, X), {})),
        (((torch.relu, numpy.array([4, 8])), {}), ((torch.relu, X), {})),
        (((f"{__name__}:Product", [(4, 8), X.T]), {}), ((f"{__name__}:Product", {"x": X, "y": X.T}), {})),
        (((Product(), [(4, 8), numpy.zeros((8, 4), "float32")]), {}), ((Product(), {"x": X, "y": X.T}), {})),
    ],
)
def test_what_is_usual_in_python_is_taken(asked, same):
    one, other = (clockwatt.predict(*given, gpu="h200", **more) for given, more in (asked, same))
    assert (one.time_s, one.execution, one.optimizer) == (other.time_s, other.execution, other.optimizer)


def test_choices_are_named_as_by_the_command():
    found = clockwatt.recommend(torch.relu, X, gpu="h200", point="default", precision=["tf32", "bf16"])
    assert {one.gpu for one in found.candidates} == {"h200"}
    assert {str(one.execution) for one in found.candidates} == {"tf32-conv", "tf32", "bf16"}
    dtypes = clockwatt.recommend(torch.relu, X, gpu="h200", precision=["tf32", torch.bfloat16])
    assert dtypes == found
    alone = clockwatt.recommend(torch.relu, X, gpu="h200", precisions=torch.bfloat16)
    assert {str(one.execution) for one in alone.candidates} == {"bf16"}
    slower, words = (clockwatt.recommend(torch.relu, X, gpu="h200", max_slowdown=most) for most in (0.1, "10%"))
    assert slower.best == words.best
    with pytest.raises(ClockwattError, match="max_slowdown '10': would be 1000 %: write 10%"):
        clockwatt.recommend(torch.relu, X, gpu="h200", max_slowdown="10")
    assert [gpu.gpu for gpu in clockwatt.show(torch.relu, X, gpu="h100").gpus] == ["h100"]
    of_one, of_several = (Request.of(counts=counts, links="x", pass_="training") for counts in (2, [2]))
    assert of_one == of_several


GLOBAL = torch.nn.Linear(8, 8)


def test_modules_that_a_function_uses_are_parts_of_it():
    net, scale = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()), 2.0

    def both(x, *, bias=1.0):
        return GLOBAL(net(x) * scale + bias)

    layers = clockwatt.layers(both, X, gpu="h200", training=True)
    assert layers.index.tolist() == ["net.0", "net.1", "", "GLOBAL", "(loss)", "(optimizer)"]
    assert {net[0].weight.device.type, GLOBAL.weight.device.type} == {"cpu"}
    whole = torch.nn.Sequential(net, GLOBAL)
    assert clockwatt.fit_memory(lambda x: whole(x), X, gpu="h200") == clockwatt.fit_memory(whole, X, gpu="h200")


class Holder:
    def __init__(self, net):
        self.net, self.again = net, self

    def step(self, x):
        return self.helper(x)

    def helper(self, x):
        return self.net(x)

    def __call__(self, x):
        return GLOBAL(self.net(x))


class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def encode(self, x):
        return self.layer(x)


def called(net, x):
    return net(x)


def of_file(x):
    return GLOBAL(x)


LAYER = torch.nn.Linear(8, 8)
LISTED, HOLDER = [LAYER, (LAYER,)], Holder(LAYER)
FUNCTIONS = [
    (lambda x: LISTED[0](x), "LISTED.0"),
    (lambda x: LISTED[1][0](x), "LISTED.0"),
    (lambda x: sum(part(x) for part in [LAYER]), "LAYER"),
    (lambda x: {"a": {"b": LAYER}}["a"]["b"](x), "LAYER"),
    (lambda x, parts={"a": {"b": LAYER}}: parts["a"]["b"](x), "parts.a.b"),
    (lambda x, *, net=LAYER: net(x), "net"),
    (lambda x: HOLDER.net(x), "HOLDER.net"),
    (lambda x: HOLDER.step(x), "HOLDER.net"),
    (HOLDER.step, "self.net"),
    (HOLDER, "self.net"),
    (Encoder().encode, "self.layer"),
    (functools.partial(called, LAYER), "0"),
    (functools.partial(lambda x, net: net(x), net=LAYER), "net"),
    (functools.partial(LAYER), "module"),
    (lambda x: of_file(x), "of_file.GLOBAL"),
    (torch.enable_grad()(lambda x: LAYER(x)), "func.LAYER"),
]


@pytest.mark.parametrize(("function", "path"), FUNCTIONS)
def test_modules_are_found_where_a_function_holds_them(function, path):
    before = [*map(id, (HOLDER.net, HOLDER.again, *LISTED))]
    layers = clockwatt.layers(function, X, gpu="h200")
    assert layers["memory_bytes"][path] >= 4 * (8 * 8 + 8)
    assert clockwatt.predict(function, X, gpu="h200", training=True).time_s > 0
    assert before == [*map(id, (HOLDER.net, HOLDER.again, *LISTED))]
    assert LAYER.weight.device.type == "cpu"


def test_a_module_is_not_a_part_of_a_function_that_names_an_attribute_like_it():
    variables = {"net": torch.nn.Linear(8, 8), "relu": torch.nn.Linear(8, 8), "half": torch.nn.Linear(8, 8)}
    function = eval("lambda x: half(net(x).relu())", variables)
    layers = clockwatt.layers(function, X, gpu="h200")
    assert layers.index.tolist() == ["net", "", "half"]


def test_a_function_that_names_a_variable_too_early_is_refused():
    def early(x):
        return late(x)

    with pytest.raises(ClockwattError, match="'late'"):
        clockwatt.predict(early, X, gpu="h200")
    late = torch.nn.Linear(8, 8)
    assert clockwatt.predict(early, X, gpu="h200").time_s > 0


def test_a_question_changes_no_buffers_of_a_module():
    network = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8))
    clockwatt.predict(network, X, gpu="h200", training=True)
    assert network[1].num_batches_tracked == 0


def test_answers_that_are_changed_change_no_others():
    first, second = (clockwatt.predict("resnet18", IMAGES, gpu="h200").memory for _ in range(2))
    expected = dict(second.parts), dict(second.modules)
    for changed in (first.parts, first.modules):
        changed.clear()
    third = clockwatt.predict("resnet18", IMAGES, gpu="h200").memory
    assert (second.parts, second.modules) == (third.parts, third.modules) == expected


def test_compiled_layers_with_a_frozen_weight_are_predicted():
    network = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
    question = {"gpu": "h200", "training": True, "precision": "tf32+compile"}
    whole = clockwatt.predict(network, X, **question)
    network[0].weight.requires_grad_(False)
    frozen = clockwatt.predict(network, X, **question)
    assert 0 < frozen.expected.device_s < whole.expected.device_s


def test_what_compare_layers_and_recommend_cannot_take_is_refused():
    predictors = clockwatt.load()
    for ask, why in (
        (lambda: predictors.compare("resnet18", gpu="h200", to="h100"), "differs in the second pass"),
        (lambda: predictors.compare("resnet18", gpu="h200"), "differs in the second pass"),
        (
            lambda: predictors.compare("resnet18", (8, 3, 224, 224), gpu="h200"),
            r"other \(8, .*give the input as inputs",
        ),
        (lambda: clockwatt.layers("resnet18", gpu="h200", depth=0), "depth 0: give a whole number"),
        (lambda: predictors.layers("resnet18", gpus=["h200"]), "gpus: layers takes one gpu"),
        (lambda: predictors.show("resnet18", batch=[8]), "batch is for predict only"),
        (lambda: predictors.compare("resnet18", gpu="h200", to={1: 1}), "differs in the second pass"),
        (
            lambda: predictors.recommend("resnet18", precision="tf32", precisions=["bf16"]),
            "precision and precisions: give one or the other",
        ),
        (
            lambda: predictors.recommend("resnet18", precision=["tf32"], precisions=["bf16"]),
            "precision and precisions: give one or the other",
        ),
        (lambda: predictors.show(gpu="h20"), "gpu h20: no predictors for this GPU.*did you mean h200"),
        (lambda: clockwatt.OperatingPoint.parse(5), "5 is no operating point"),
        (lambda: predictors.recommend("resnet18", precisions=5), "precisions 5: give a string, or several"),
        (lambda: predictors.recommend("resnet18", gpus="h200", power_cap_w=10.0), "Raise power_cap_w"),
        (lambda: clockwatt.load(__file__), "holds no predictors"),
        (lambda: clockwatt.load(5), "predictors_dir 5: give a folder"),
        (lambda: clockwatt.pretend("h200", precision="fp32"), "precision is not of pretend"),
        (lambda: clockwatt.load(validation_dir="nowhere"), "nowhere: holds no validation.json"),
    ):
        with pytest.raises(ClockwattError, match=why):
            ask()


@pytest.mark.parametrize(
    "more",
    [
        {"gpu": "NVIDIA H200"}, {"gpu": "H200"}, {"gpus": "h200"}, {"points": "default"},
        {"points": clockwatt.OperatingPoint()}, {"point": None}, {"batch": numpy.array([1, 2])},
        {"gpus": numpy.array(["h200", "h100"])}, {"gpus": pandas.Series(["h200"])}, {"gpus": (gpu for gpu in ["h200"])},
        {"points": numpy.array(["default", "default"])},
        {"batch": (size for size in (1, 2))},
    ],
)  # fmt: skip
def test_what_is_meant_is_understood(more):
    answer = clockwatt.predict("resnet18", input="32x3x224x224", **({} if "gpus" in more else {"gpu": "h200"}) | more)
    assert float(answer["time_s"].iloc[0] if hasattr(answer, "iloc") else answer.time_s) > 0


class Entries(torch.nn.Module):
    def forward(self, batch, states):
        return batch["x"] + batch["y"][0] + states[1]


def test_example_inputs_lie_in_dicts_and_lists():
    by_position = clockwatt.predict(Entries(), [{"x": X, "y": [X]}, (X, X)], gpu="h200")
    by_name = clockwatt.predict(Entries(), {"batch": {"x": X, "y": [(4, 8)]}, "states": [X, X]}, gpu="h200")
    assert by_position.time_s == by_name.time_s > 0
    only = clockwatt.predict(lambda batch: batch["x"] + batch["y"], [{"x": X, "y": X}], gpu="h200")
    assert 0 < only.time_s < by_name.time_s


def test_one_input_keeps_a_dtype_that_is_no_number_and_the_bound_of_an_embedding():
    masked = clockwatt.predict(lambda mask: torch.where(mask, 1.0, 0.0), X.bool(), gpu="h200")
    assert masked.breakdown()["operation_class"].tolist() == ["where"]
    ids = clockwatt.predict(torch.nn.Embedding(10, 8), {"shape": (4, 8), "dtype": torch.int64}, gpu="h200")
    assert ids.unit == "tokens"


class Typed(torch.nn.Module):
    """As BERT: more positions than tokens, and few types of tokens."""

    def __init__(self):
        super().__init__()
        self.tables = torch.nn.ModuleList([torch.nn.Embedding(rows, 8) for rows in (10, 32, 2)])

    def forward(self, input_ids, token_type_ids=None):
        places = torch.arange(input_ids.shape[1], device=input_ids.device)
        types = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        return sum(table(ids) for table, ids in zip(self.tables, (input_ids, places, types), strict=True))


def test_ids_of_int32_and_images_of_bytes_are_taken_as_they_are():
    table, ids = torch.nn.Embedding(10, 8), torch.randint(10, (4, 8), dtype=torch.int32)
    questions = [ids, ids.numpy(), {"shape": (4, 8), "dtype": "int32"}, {"shape": (4, 8), "dtype": torch.int32}]
    answers = [clockwatt.predict(table, inputs, gpu="h200") for inputs in questions]
    assert all(answer == answers[0] for answer in answers)
    assert (answers[0].unit, answers[0].items) == ("tokens", 32)
    named = clockwatt.predict(f"{__name__}:Typed", {"shape": (4, 8), "dtype": "int32", "below": 10}, gpu="h200")
    assert named.time_s == clockwatt.predict(Typed(), ids, gpu="h200").time_s
    scaled = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 8))
    images = torch.zeros(4, 3, 4, 4, dtype=torch.uint8)
    converted = clockwatt.predict(lambda x: scaled(x.float() / 255), images, gpu="h200")
    assert converted.breakdown()["operation_class"].tolist().count("float") == 1
    assert converted == clockwatt.predict(lambda x: scaled(x.float() / 255), images.numpy(), gpu="h200")


def test_token_ids_are_below_the_rows_of_their_embedding():
    ids = torch.randint(10, (4, 8))
    questions = [ids, ids.numpy(), {"input_ids": ids}, {"input_ids": (4, 8)}, {"shape": (4, 8), "dtype": "int64"}]
    for inputs in (*questions, {"input_ids": ids, "token_type_ids": ids % 2}):
        assert clockwatt.predict(Typed(), inputs, gpu="h200").unit == "tokens"


def test_example_tensors_are_cast_to_the_precision_as_the_weights_are():
    examples, shapes = (
        clockwatt.predict(torch.matmul, inputs, gpu="h200", precision="bf16").breakdown().index.tolist()
        for inputs in ([torch.zeros(8, 8)] * 2, [(8, 8)] * 2)
    )
    assert examples == shapes


def test_what_has_no_answer_in_a_list_is_said_in_its_row():
    questions = [{"network": torch.relu, "inputs": X, "gpu": "h200"}, {"network": "resnet5O", "gpu": "h200"}]
    frame = clockwatt.predict(questions)
    assert frame["time_s"].notna().tolist() == [True, False]
    assert "did you mean resnet50" in frame.loc[1, "error"]


def test_an_answer_is_shown_in_a_line():
    shown = repr(clockwatt.predict(torch.relu, X, gpu="h200"))
    assert shown.startswith("<Answer relu-4x8-float32, inference, tf32-conv, h200 at default: time_s=")
    assert shown.endswith(", predicted>")
    relu = "relu-4x8-float32, inference, tf32-conv"
    choice = clockwatt.recommend(torch.relu, X, gpus=["h100", "h200"])
    assert repr(choice) == f"<Recommendation of least energy, best of 2: {choice.best!r}>"
    points = clockwatt.show(torch.relu, X, gpus=["h200"])
    assert f"{points!r} {points.gpus}" == f"<Overview {relu}: 1 point of h200> (<OnGpu h200 at default>,)"
    assert repr(clockwatt.load()) == "<Predictors of a30, h100, h200, rtx2080ti>"


def ask_linear(width, ask=clockwatt.predict):
    return ask(torch.nn.Sequential(torch.nn.Linear(8, width), torch.nn.ReLU()), X, gpu="h200", training=True).time_s


def test_threads_may_ask_at_once():
    widths = range(8, 20)
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        assert list(threads.map(ask_linear, widths)) == [ask_linear(width) for width in widths]


class Held(torch.nn.Module):
    def forward(self, entered, leave):
        entered.set()
        leave.wait()


class Beside(torch.nn.Module):
    """Another thread builds a network within its constructor, and runs one within its forward pass."""

    devices: ClassVar[list[str]] = []

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)
        with concurrent.futures.ThreadPoolExecutor(1) as threads:
            self.devices.append(threads.submit(lambda: torch.nn.Linear(8, 8).weight.device.type).result())

    def forward(self, x):
        entered, leave = threading.Event(), threading.Event()
        thread = threading.Thread(target=Held(), args=(entered, leave))
        thread.start()
        entered.wait()
        self.layer.register_forward_pre_hook(lambda *_: leave.set() or thread.join())
        return self.layer(x)


def test_networks_of_other_threads_are_left_alone():
    assert clockwatt.layers(f"{__name__}:Beside", (4, 8), gpu="h200").index.tolist() == ["layer"]
    assert set(Beside.devices) == {"cpu"}


def test_nothing_is_traced_while_a_run_pretends():
    network = torch.nn.Linear(8, 8)
    with clockwatt.pretend(gpu="h200"), pytest.raises(ClockwattError, match=r"^clockwatt\.pretend runs in this"):
        clockwatt.predict(network, X, gpu="h200")
    assert clockwatt.predict(network, X, gpu="h200").time_s > 0


def test_inference_mode_is_no_obstacle():
    with torch.inference_mode():
        within = ask_linear(8)
    assert within == ask_linear(8)


def test_predictors_can_be_pickled():
    predictors = clockwatt.load()
    expected = ask_linear(8, predictors.predict)  # has read a predictor
    assert ask_linear(8, pickle.loads(pickle.dumps(predictors)).predict) == expected
    assert pickle.loads(pickle.dumps(clockwatt.predict)) is clockwatt.predict


def test_an_answer_can_be_pickled_and_copied():
    answer = clockwatt.predict(torch.nn.Linear(8, 8), X, gpu="h200", training=True)
    for other in (pickle.loads(pickle.dumps(answer)), copy.deepcopy(answer)):
        assert other == answer
        assert other.breakdown().equals(answer.breakdown())


def test_a_module_takes_the_fields_that_messages_name():
    branch = clockwatt.predict(lambda x: x if x.sum() > 0 else -x, X, gpu="h200", assume_branch=False)
    assert branch.warnings[0] == "Assumed while tracing: branches on data are taken as false (1 place)."
    for dtype in ("int64", torch.int64):
        ids = clockwatt.predict(torch.nn.Embedding(10, 8), (4, 8), gpu="h200", input_dtype=dtype, input_below=10)
        assert ids.unit == "tokens"


@pytest.mark.parametrize("precision", ["tf32", "tf32+compile"])
def test_token_ids_are_counted_where_their_embedding_is_fused(precision):
    network = torch.nn.Sequential(torch.nn.Embedding(10, 8), torch.nn.Linear(8, 4))
    ids = clockwatt.predict(network, (4, 8), gpu="h200", input_dtype="int64", input_below=10, precision=precision)
    assert (ids.items, ids.unit) == (32, "tokens")
    numbers = clockwatt.predict(torch.nn.Linear(8, 32), (4, 8), gpu="h200", precision=precision)
    assert (numbers.items, numbers.unit) == (4, "samples")


def test_what_a_network_prints_is_no_part_of_an_answer(capsys):
    assert clockwatt.predict(lambda x: print("shape", x.shape) or x.relu(), X, gpu="h200").time_s > 0
    assert capsys.readouterr().out == ""
