import pytest

from clockwatt.config import NetworkConfig, TrainingConfig
from clockwatt.operations.cost import cost
from clockwatt.operations.spec.operation import Operation, OutputSpec, TensorSpec
from clockwatt.operations.trace.trace import trace_network

F32 = 4


def operation(function, *tensors, out, args=(), kwargs=None, grad_out=True, mutates=()):
    grads = any(tensor.grad for tensor in tensors)
    result = OutputSpec(out, "float32", TensorSpec.dense(out).stride, grad=grads)
    given = (*({"tensor": number} for number in range(len(tensors))), *args)
    strides = (result.stride,) if grads and grad_out else ()
    return Operation(function, given, kwargs or {}, tensors, (result,), strides, mutates)


def dense(*shape, **flags):
    return TensorSpec.dense(shape, **flags)


def convolution(groups, *, grad=False, input_grad=False):
    x, weight = dense(2, 8, 10, 10, grad=input_grad), dense(16, 8 // groups, 3, 3, grad=grad, parameter=True)
    return operation("torch.nn.functional.conv2d", x, weight, out=(2, 16, 8, 8), args=(None, 1, 0, 1, groups))


@pytest.mark.parametrize("groups", [1, 2, 8])
def test_convolutions_count_two_for_a_multiply_add(groups):
    forward = 2 * (2 * 16 * 8 * 8) * (8 // groups) * 9
    assert cost(convolution(groups), "inference").flops == forward
    first = cost(convolution(groups, grad=True), "training")
    assert first.flops == 2 * forward  # no gradient of the input
    assert first.flops_source == "flop_counter"
    assert cost(convolution(groups, grad=True, input_grad=True), "training").flops == 3 * forward


def test_linear_and_attention_are_counted_by_pytorch():
    linear = operation("torch.nn.functional.linear", dense(32, 100, grad=True), dense(10, 100, grad=True), out=(32, 10))
    assert cost(linear, "inference").flops == 2 * 32 * 10 * 100
    assert cost(linear, "training").flops == 3 * 2 * 32 * 10 * 100
    heads = [dense(2, 4, 50, 16) for _ in range(3)]
    attention = operation("torch.nn.functional.scaled_dot_product_attention", *heads, out=(2, 4, 50, 16))
    assert cost(attention, "inference").flops == 2 * (2 * 2 * 4 * 50 * 50 * 16)
    assert not cost(attention, "inference").random


def test_a_bilinear_layer_and_its_gradients_multiply_all_pairs_of_features():
    tensors = dense(8, 64, grad=True), dense(8, 48, grad=True), dense(32, 64, 48, grad=True)
    bilinear = operation("torch.nn.functional.bilinear", *tensors, out=(8, 32))
    assert cost(bilinear, "inference").flops == 2 * 8 * 64 * 48 * 32
    assert cost(bilinear, "training").flops == 4 * 2 * 8 * 64 * 48 * 32


def test_traffic_is_each_tensor_once():
    linear = operation("torch.nn.functional.linear", dense(32, 100, grad=True), dense(10, 100, grad=True), out=(32, 10))
    given, out = F32 * (32 * 100 + 10 * 100), F32 * 32 * 10
    inference, training = cost(linear, "inference"), cost(linear, "training")
    assert (inference.bytes_read, inference.bytes_written) == (given, out)
    assert (training.bytes_read, training.bytes_written) == (given + out, out + given)


def test_elementwise_work_is_counted_by_formula():
    relu = operation("torch.nn.functional.relu", dense(4, 8, grad=True), out=(4, 8))
    assert cost(relu, "inference").flops == 32
    assert cost(relu, "training").flops == 64
    assert cost(relu, "training").flops_source == "formula"
    pool = operation("torch.nn.functional.avg_pool2d", dense(1, 2, 8, 8), out=(1, 2, 4, 4), args=({"tuple": [2, 2]},))
    assert cost(pool, "inference").flops == 1 * 2 * 4 * 4 * 4


def test_moving_data_is_no_arithmetic():
    cat = Operation(
        "torch.cat",
        ([{"tensor": 0}, {"tensor": 1}],),
        {},
        (dense(2, 3), dense(2, 3)),
        (OutputSpec((4, 3), "float32", (3, 1)),),
    )
    found = cost(cat, "inference")
    assert (found.flops, found.flops_source) == (0, "none")
    assert found.device_work
    assert found.bytes_read == found.bytes_written == F32 * 12


def test_views_cost_nothing_but_their_gradients_may():
    chunk = Operation(
        "torch.Tensor.__getitem__",
        ({"tensor": 0}, {"slice": [0, 2, None]}),
        {},
        (dense(8, 100, grad=True),),
        (OutputSpec((2, 100), "float32", (100, 1), grad=True),),
        ((100, 1),),
    )
    nothing = cost(chunk, "inference")
    assert (nothing.device_work, nothing.bytes_read, nothing.bytes_written) == (False, 0, 0)
    backward = cost(chunk, "training")
    assert backward.device_work
    assert (backward.bytes_read, backward.bytes_written) == (F32 * 200, F32 * 800)


def test_a_gather_reads_what_it_gives():
    indices = TensorSpec((10,), "int64", (1,), below=50_000)
    embedding = operation("torch.nn.functional.embedding", indices, dense(50_000, 64), out=(10, 64))
    assert cost(embedding, "inference").bytes_read < 10 * 8 + 2 * F32 * 640


def test_a_bag_reads_the_rows_that_it_takes():
    indices, table = TensorSpec.dense((32, 5), "int64"), dense(1000, 64, parameter=True)
    found = cost(operation("torch.nn.functional.embedding_bag", indices, table, out=(32, 64)), "inference")
    assert (found.flops, found.bytes_read) == (32 * 5 * 64, 32 * 5 * 8 + 32 * 5 * 64 * F32)


def test_a_fourier_transform_takes_five_n_log_n_and_half_of_it_if_real():
    real, spectrum = dense(8, 64), OutputSpec((8, 33), "complex64", (33, 1), grad=False)
    half = Operation("torch.fft.rfft", ({"tensor": 0},), {}, (real,), (spectrum,), (), ())
    assert cost(half, "inference").flops == 2.5 * 8 * 64 * 6
    given, whole = TensorSpec.dense((8, 64), "complex64"), OutputSpec((8, 64), "complex64", (64, 1), grad=False)
    assert cost(Operation("torch.fft.fft", ({"tensor": 0},), {}, (given,), (whole,), (), ()), "inference").flops == (
        5 * 8 * 64 * 6
    )


def test_what_overwrites_reads_nothing():
    zero = operation("torch.Tensor.zero_", dense(100), out=(100,), mutates=(0,))
    assert cost(zero, "inference").bytes_read == 0
    assert cost(zero, "inference").bytes_written == F32 * 100


def test_dropout_is_random_in_training_and_nothing_in_inference():
    dropout = operation("torch.nn.functional.dropout", dense(100), out=(100,), args=(0.5, True))
    assert cost(dropout, "training").random
    identity = operation("torch.nn.functional.dropout", dense(100), out=(100,), args=(0.5, False))
    assert not cost(identity, "inference").device_work


@pytest.mark.parametrize(
    ("settings", "flops", "read", "written"),
    [
        ({"optimizer": "sgd"}, 4, 3, 2),
        ({"optimizer": "sgd", "momentum": 0.0}, 2, 2, 1),
        ({"optimizer": "sgd", "weight_decay": 1e-4}, 6, 3, 2),
        ({"optimizer": "adam"}, 13, 4, 3),
    ],
)
def test_a_step_costs_its_parameters(settings, flops, read, written):
    network = NetworkConfig(name="squeezenet1_1", input=[2, 3, 64, 64])
    trace = trace_network(network, "training", TrainingConfig(**settings))
    found = cost(trace.calls[-1].operation, "training")
    assert found.flops == flops * trace.parameters
    assert found.bytes_read == read * trace.parameter_bytes
    assert found.bytes_written == written * trace.parameter_bytes


@pytest.mark.parametrize(
    ("name", "gigaflops"), [("resnet18", 3.63), ("resnet50", 8.18), ("mobilenet_v2", 0.60), ("vit_b_32", 8.82)]
)
def test_matrix_flops_of_a_network_are_the_published_ones(name, gigaflops):
    """Twice the multiply-adds that torchvision publishes, for one image."""
    calls = trace_network(NetworkConfig(name=name, input=[1, 3, 224, 224]), "inference", TrainingConfig()).calls
    counted = [cost(call.operation, "inference") for call in calls]
    total = sum(found.flops for found in counted if found.flops_source == "flop_counter")
    assert total / 1e9 == pytest.approx(gigaflops, rel=0.01)
