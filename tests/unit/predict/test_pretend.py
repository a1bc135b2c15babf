"""A step of the user's own on a GPU that this machine lacks: what is recorded, and what it costs."""

import functools
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import clockwatt
from clockwatt.errors import ClockwattError
from clockwatt.operations.trace.tracer import UntraceableError
from clockwatt.predict.answer import Answer
from clockwatt.schema.execution import DEFAULT

pytestmark = pytest.mark.usefixtures("as_pytorch_starts")


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(3, 32, 3), torch.nn.BatchNorm2d(32), torch.nn.ReLU(), torch.nn.Conv2d(32, 96, 3)
        )
        self.head = torch.nn.Linear(96, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(x).mean((2, 3)))


IMAGES, LABELS = torch.randn(16, 3, 64, 64), torch.randint(10, (16,))


def test_a_step_costs_what_predict_says() -> None:
    with clockwatt.pretend(gpu="h200") as run:
        model = Net().to("cuda")
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
        for x, y in DataLoader(TensorDataset(IMAGES, LABELS), batch_size=8, num_workers=2, pin_memory=True):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x.cuda()), y.to("cuda", non_blocking=True)).backward()
            optimizer.step()
    expected = clockwatt.predict(Net(), IMAGES[:8], gpu="h200", training=True, optimizer="adamw")
    answer = run.answer
    assert answer.expected.calls == expected.expected.calls
    assert answer.expected.device_s == pytest.approx(expected.expected.device_s, rel=0.01)
    assert answer.expected.host_s == pytest.approx(expected.expected.host_s, rel=0.02)
    assert answer.energy_j == pytest.approx(expected.energy_j, rel=0.02)
    assert answer.memory.allocated_bytes == pytest.approx(expected.memory.allocated_bytes, rel=0.02)
    assert answer.memory.fits
    assert (answer.items, answer.unit) == (8, "images")
    assert run.to_frame()["gpu"].tolist() == ["h200"]


def test_this_machine_seems_to_have_the_gpu_within() -> None:
    before = torch.cuda.is_available()
    with clockwatt.pretend(gpu="h200"):
        assert torch.cuda.is_available()
        assert torch.cuda.device_count() == 1
        assert "H200" in torch.cuda.get_device_name()
        torch.nn.Embedding(4, 2, padding_idx=0)  # fills a row in place
        x = torch.zeros(3, device="cuda")
        assert x.device == torch.device("cuda", 0)
        assert x.is_cuda
        assert not x.is_meta
        assert (x + 1).cpu().device.type == "cpu"
        assert torch.ones(3).pin_memory().device.type == "cpu"
        assert (torch.tensor([1, 2, 3]).cuda() * 2).tolist() == [2, 4, 6]
    assert torch.cuda.is_available() == before
    assert torch.zeros(3).device.type == "cpu"


def trained(step: Callable[[torch.nn.Module, torch.optim.Optimizer, torch.Tensor], None], steps: int = 2):
    with clockwatt.pretend(gpu="h200") as run:
        model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64)).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for _ in range(steps):
            step(model, optimizer, torch.randn(8, 64).cuda())
    return run


def test_loss_is_read_as_a_finite_number_and_the_line_is_named() -> None:
    losses = []

    def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> None:
        optimizer.zero_grad()
        loss = model(x).mean()
        loss.backward()
        losses.append(loss.item())
        optimizer.step()

    run = trained(step)
    assert losses == [1.0, 1.0]
    (warning,) = [text for text in run.answer.warnings if "are unknown without a GPU" in text]
    assert f"{Path(__file__).name}:" in warning


@pytest.mark.parametrize("learns", [False, True])
def test_autocast_that_begins_before_the_step_is_seen(learns: bool) -> None:
    with clockwatt.pretend(gpu="h200") as run:
        network = torch.nn.Linear(8, 8).cuda()
        optimizer = torch.optim.SGD(network.parameters())
        with torch.autocast("cuda", dtype=torch.bfloat16), torch.set_grad_enabled(learns):
            for _ in range(2):
                loss = network(torch.randn(4, 8, device="cuda")).sum()
                if learns:
                    loss.backward()
                    optimizer.step()
    assert (run.answer.pass_, str(run.answer.execution)) == ("training" if learns else "inference", "bf16-mixed")


def test_scaler_steps_and_autocast_is_seen() -> None:
    scaler = []

    def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> None:
        scaler[:] = scaler or [torch.amp.GradScaler("cuda")]
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(x).mean()
        scaler[0].scale(loss).backward()
        scaler[0].unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler[0].step(optimizer)
        scaler[0].update()

    run = trained(step)
    assert run.answer.execution == "fp16-mixed"
    functions = [call.operation.function for call in run.step.trace.calls]
    assert functions.count("torch.optim.SGD") == 1
    assert functions.count("torch.Tensor.mul_") == 2  # unscales, and clips
    assert any(call.operation.dtype == "float16" for call in run.step.trace.calls)


def test_accumulated_gradients_are_added_up() -> None:
    def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> None:
        optimizer.zero_grad()
        for part in x.chunk(2):
            model(part).mean().backward()
        optimizer.step()

    calls = trained(step).step.trace.calls
    assert sum(call.operation.function == "torch.nn.functional.linear" for call in calls) == 4
    assert sum(call.kind == "accumulation" for call in calls) == 4  # once for each parameter


@pytest.mark.parametrize("batches", [1, 3])
def test_all_batches_of_a_step_count(batches: int) -> None:
    def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> None:
        optimizer.zero_grad()
        for _ in range(batches):
            x, y = torch.randn(8, 64).cuda(), torch.randn(8, 64).cuda()
            ((model(x) - y).square().mean() + model(2 * x).mean()).backward()
        optimizer.step()

    answer = trained(step).answer
    assert (answer.items, answer.unit) == (8 * batches, "samples")
    assert answer.items_per_s == pytest.approx(8 * batches / answer.time_s)


@pytest.mark.parametrize("by", [torch.autograd.grad, torch.autograd.backward])
def test_backward_passes_through_a_retained_graph_are_left_out_with_a_warning(by: Callable[..., object]) -> None:
    def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> None:
        optimizer.zero_grad()
        loss = model(x.requires_grad_()).mean()
        by(loss, inputs=[x], retain_graph=True)
        loss.backward()
        optimizer.step()

    (warning,) = [text for text in trained(step).answer.warnings if "retained" in text]
    assert re.search(r"test_pretend.py:\d+: further backward passes", warning)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointed_layers_are_computed_again(reentrant: bool) -> None:
    def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> None:
        optimizer.zero_grad()
        x = torch.randn(8, 64, device="cuda", requires_grad=True)
        torch.utils.checkpoint.checkpoint(model, x, use_reentrant=reentrant).mean().backward()
        optimizer.step()

    run = trained(step)
    calls = run.step.trace.calls
    linears = [call.operation for call in calls if call.operation.function == "torch.nn.functional.linear"]
    assert [operation.has_backward for operation in linears] == [not reentrant] * 2 + [reentrant] * 2
    assert run.answer.time_s > 0


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_keep_the_tensors_of_one_layer_at_a_time(reentrant: bool) -> None:
    def peak(called: Callable[..., torch.Tensor]) -> int:
        layers = [torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.GELU()) for _ in range(6)]
        with clockwatt.pretend(gpu="h200") as run:
            model = torch.nn.ModuleList(layers).cuda()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(2):
                x = torch.randn(2**17, 64, device="cuda", requires_grad=True)
                for layer in model:
                    x = called(layer, x)
                x.mean().backward()
                optimizer.step()
        return run.answer.memory.parts["activations"] + run.answer.memory.parts["temporary"]

    checkpointed = functools.partial(torch.utils.checkpoint.checkpoint, use_reentrant=reentrant)
    assert peak(checkpointed) < 0.7 * peak(lambda layer, x: layer(x))


def test_gradients_without_an_optimizer_are_no_inference() -> None:
    with clockwatt.pretend(gpu="h200") as run:
        torch.nn.Linear(8, 8).cuda()(torch.randn(4, 8).cuda()).sum().backward()
    with pytest.raises(ClockwattError, match="computes gradients, but ends before"):
        _ = run.answer


def test_a_pass_without_an_optimizer_is_inference() -> None:
    with clockwatt.pretend(gpu="h200") as run, torch.inference_mode():
        model = Net().eval().cuda()
        model(IMAGES.cuda())
    expected = clockwatt.predict(Net().eval(), IMAGES, gpu="h200")
    assert run.answer.pass_ == "inference"
    assert run.answer.expected.device_s == pytest.approx(expected.expected.device_s, rel=0.01)


def compiled_step(
    wrapped: Callable[[torch.nn.Module], Callable[..., torch.Tensor]],
    steps: int = 2,
    net: torch.nn.Module | None = None,
):
    """Two training steps of `Net`, called as `wrapped` gives it."""
    with clockwatt.pretend(gpu="h200") as run:
        net = (net or Net()).cuda()
        model = wrapped(net)
        optimizer = torch.optim.AdamW(net.parameters(), weight_decay=0.0)
        for _ in range(steps):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(IMAGES.cuda()), LABELS.cuda()).backward()
            optimizer.step()
    return run


@functools.cache
def answer_of(wrapped: Callable[[torch.nn.Module], Callable[..., torch.Tensor]]) -> Answer:
    """The answer of such steps of a new network, which several tests read."""
    return compiled_step(wrapped).answer


def eager(net: torch.nn.Module) -> torch.nn.Module:
    return net


def in_graphs(net: torch.nn.Module) -> Callable[..., torch.Tensor]:
    return torch.compile(net, mode="reduce-overhead")


def module_compiled(net: torch.nn.Module) -> torch.nn.Module:
    net.compile()
    return net


@functools.cache
def predicted(mode: str) -> Answer:
    return clockwatt.predict(Net(), IMAGES, gpu="h200", training=True, optimizer="adamw", precision=f"{DEFAULT}+{mode}")


@pytest.mark.parametrize(
    ("wrapped", "mode"),
    [
        (eager, "eager"),
        (lambda net: torch.compile(net), "compile"),
        (in_graphs, "reduce-overhead"),
        (lambda net: torch.compile(net, options={"triton.cudagraphs": True}), "reduce-overhead"),
        (module_compiled, "compile"),
        (lambda net: torch.compile(lambda x: net(x)), "compile"),
        (lambda net: torch.compile()(net), "compile"),
    ],
)
def test_a_compiled_step_costs_what_predict_says(wrapped, mode: str) -> None:
    answer, expected = answer_of(wrapped), predicted(mode)
    assert answer.execution == expected.execution
    for quantity in ("calls", "time_s", "device_s", "host_s", "energy_j"):
        assert getattr(answer.expected, quantity) == getattr(expected.expected, quantity)


def test_what_is_compiled_within_a_step_is_a_part_of_it() -> None:
    def layers_alone(net: torch.nn.Module) -> torch.nn.Module:
        net.layers = torch.compile(net.layers)
        return net

    alone, whole, without = (answer_of(wrapped).expected for wrapped in (layers_alone, module_compiled, eager))
    assert whole.device_s < alone.device_s < without.device_s


def test_a_network_compiled_before_the_context_is_followed() -> None:
    net = Net()
    before = torch.compile(net, mode="reduce-overhead")
    answer = compiled_step(lambda _: before.cuda(), net=net).answer
    assert answer.execution.endswith("+reduce-overhead")
    assert answer.time_s == pytest.approx(answer_of(in_graphs).time_s, rel=0.01)  # of one more module


def test_what_of_compiling_is_not_followed_is_named_with_its_line() -> None:
    def reads_a_value(net: torch.nn.Module) -> Callable[..., torch.Tensor]:
        return torch.compile(lambda x: net(x) * net(x).sum().item())

    def calls_forward(net: torch.nn.Module) -> Callable[..., torch.Tensor]:
        return torch.compile(net).forward

    def another_backend(net: torch.nn.Module) -> Callable[..., torch.Tensor]:
        return torch.compile(net, backend="aot_eager")

    here = rf"{Path(__file__).name}:\d+"
    for wrapped, text in [
        (reads_a_value, rf"A compiled graph breaks at .*{here}"),
        (calls_forward, rf"{here}: what torch.compile compiles is not called as a module"),
        (another_backend, rf"{here}: torch.compile\(backend='aot_eager'\) is left out"),
    ]:
        assert any(re.search(text, warning) for warning in compiled_step(wrapped).answer.warnings)
    assert any("from the second step on" in text for text in compiled_step(module_compiled, steps=1).answer.warnings)


def test_work_of_some_steps_is_told_from_the_step(tmp_path: Path) -> None:
    kept = tmp_path / "model.pt"
    kept.write_bytes(b"trained")
    average = torch.nn.Linear(64, 64)

    def with_evaluation(model: torch.nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> None:
        step(model, optimizer, x)
        model.eval()
        with torch.no_grad():
            torch.nn.functional.mse_loss(model(torch.randn(256, 64).cuda()), torch.zeros(256, 64).cuda()).item()
        model.train()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, kept)

    def with_average(model: torch.nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> None:
        step(model, optimizer, x)
        average.cuda()
        with torch.no_grad():
            average.weight.mul_(0.9).add_(model[0].weight, alpha=0.1)

    def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> None:
        optimizer.zero_grad()
        model(x).mean().backward()
        optimizer.step()

    plain, evaluated, averaged = (trained(each) for each in (step, with_evaluation, with_average))
    assert evaluated.answer.expected.device_s == pytest.approx(plain.answer.expected.device_s)
    assert any(re.search(r"Evaluation .* left out: .*\(1×\)", text) for text in evaluated.answer.warnings)
    assert kept.read_bytes() == b"trained"
    assert len(averaged.step.trace.calls) == len(plain.step.trace.calls) + 2
    assert any(re.search(r"between two steps: .*:\d+ \(2×\)", text) for text in averaged.answer.warnings)
    assert not any("between two steps" in text for text in plain.answer.warnings)
    assert [run.step.input_shape for run in (plain, evaluated, averaged)] == [[8, 64]] * 3


def test_the_input_is_what_the_network_is_given() -> None:
    class Named(torch.nn.Linear):
        def forward(self, *, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.cross_entropy(super().forward(x), labels)

    def input_of(model: torch.nn.Module, *given: torch.Tensor, **named: torch.Tensor) -> list[int]:
        with clockwatt.pretend(gpu="h200") as run:
            model.cuda()
            optimizer = torch.optim.SGD(model.parameters())
            uploaded = {name: value.cuda() for name, value in named.items()}
            for value in uploaded.values():
                value.ne(0).sum()  # as trainers count labels
            model(*(value.cuda() for value in given), **uploaded).mean().backward()
            optimizer.step()
        return run.step.input_shape

    with_norm = torch.nn.Sequential(torch.nn.utils.spectral_norm(torch.nn.Conv2d(3, 8, 4)))
    assert input_of(with_norm, torch.randn(5, 3, 16, 16)) == [5, 3, 16, 16]
    labels = torch.zeros(8, dtype=torch.int64)
    assert input_of(Named(64, 4), labels=labels, x=torch.randn(8, 64)) == [8, 64]


def test_one_run_at_a_time_pretends() -> None:
    def learn() -> None:
        model = torch.nn.Linear(8, 8).to("cuda")
        optimizer = torch.optim.SGD(model.parameters())
        model(torch.randn(4, 8, device="cuda")).sum().backward()
        optimizer.step()

    with clockwatt.pretend(gpu="h200") as run:
        learn()
        message = "^test_pretend.py: clockwatt.pretend runs already in this process. End its context before the next"
        with pytest.raises(ClockwattError, match=message), clockwatt.pretend(gpu="h100"):
            pass
        learn()
    with clockwatt.pretend(gpu="h100") as after:
        learn()
    assert (run.answer.gpu, after.answer.gpu) == ("h200", "h100")
    assert not torch.cuda.is_available()


def test_what_cannot_be_followed_is_named_with_its_line() -> None:
    with clockwatt.pretend(gpu="h200"):
        x = torch.randn(8, device="cuda")
        chosen = x > 0
        with pytest.raises(UntraceableError, match=rf"{Path(__file__).name}:\d+"):
            x[chosen]


def test_training_on_the_cpu_and_nothing_at_all_are_refused() -> None:
    with clockwatt.pretend(gpu="h200"):
        model = torch.nn.Linear(2, 2).to("cpu")
        model(torch.zeros(2, 2)).sum().backward()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with pytest.raises(ClockwattError, match="trains on the CPU"):
            optimizer.step()
    with clockwatt.pretend(gpu="h200") as run:
        pass
    with pytest.raises(ClockwattError, match="ran no network on the GPU"):
        run.report()


@pytest.mark.parametrize(
    "call",
    [
        lambda: torch.nn.Linear(8, 8)(torch.zeros(2, 8, device="cuda")),
        lambda: torch.nn.Sequential(torch.nn.Linear(8, 8).cuda(), torch.nn.Linear(8, 8))(torch.zeros(2, 8).cuda()),
        lambda: torch.nn.Embedding(8, 8).cuda()(torch.zeros(2, dtype=torch.int64)),
        lambda: torch.nn.Conv2d(3, 8, 3).cuda()(torch.zeros(1, 3, 8, 8)),
        lambda: torch.zeros(8)[torch.zeros(2, dtype=torch.int64, device="cuda")],
    ],
)
def test_tensors_on_the_cpu_and_on_the_gpu_are_not_computed_with_at_once(call: Callable[[], object]) -> None:
    with clockwatt.pretend(gpu="h200"), pytest.raises(UntraceableError, match=rf"mixes .*{Path(__file__).name}:\d+"):
        call()


def test_modules_are_on_the_cpu_until_they_are_moved() -> None:
    with clockwatt.pretend(gpu="h200"):
        first, last = torch.nn.Embedding(9, 4), torch.nn.Linear(4, 9, bias=False)
        last.weight = first.weight
        model = torch.nn.Sequential(first, last)
        torch.nn.init.orthogonal_(first.weight)
        assert first.weight.device == model.to("cpu")(torch.zeros(1, dtype=torch.int64)).device == torch.device("cpu")
        model.to(torch.zeros(1, device="cuda"))
        assert last.weight is first.weight
        assert last.weight.is_cuda
        scores = model(torch.zeros(2, dtype=torch.int64, device="cuda")) * torch.tensor(0.5)
        assert scores[torch.tensor([0])].is_cuda
        assert torch.nn.LazyLinear(2).cuda()(scores).is_cuda
        lazy = torch.nn.LazyLinear(2)
        assert lazy(torch.zeros(2, 3)).device == torch.device("cpu")
        assert lazy.cuda()(torch.zeros(2, 3, device="cuda")).is_cuda
