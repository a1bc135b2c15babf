"""Classes of operations that were never measured get no number, or an interval as wide as ignorance."""

import pytest
import torch
from torch.nn.utils import skip_init

import clockwatt
from clockwatt.errors import RequestError


@pytest.mark.parametrize(
    ("compute", "shape"),
    [(torch.linalg.svd, (4096, 4096)), (torch.linalg.inv, (128, 128)), (lambda x: x.sort()[0], (100_000, 512))],
)
def test_what_takes_many_passes_over_its_tensors_gets_no_number(compute, shape):
    with pytest.raises(RequestError, match=r"was never measured on h200.*measure_missing 20"):
        clockwatt.predict(compute, torch.empty(shape), gpu="h200")


@pytest.mark.parametrize("compute", [lambda x: x.cummin(1)[0], lambda x: x.cumprod(1), lambda x: x.logcumsumexp(1)])
def test_another_class_has_an_interval_as_wide_as_ignorance(compute):
    answer = clockwatt.predict(compute, torch.empty(100_000, 512), gpu="h200")
    low, high = answer.intervals["device_s"]
    assert low < answer.expected.device_s / 6
    assert high > answer.expected.device_s * 6
    assert answer.intervals["power_w"][1] <= 700


class Routed(torch.nn.Module):
    """A sort of few numbers in a pass that takes much longer."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(*(skip_init(torch.nn.Linear, 8192, 8192) for _ in range(8)))

    def forward(self, x):
        return self.layers(x) * x[:, :8].topk(2)[0].sum()


def test_a_small_one_is_no_reason_to_refuse():
    answer = clockwatt.predict(Routed(), torch.empty(4096, 8192), gpu="h200", precision="fp32")
    assert not [warning for warning in answer.warnings if "topk" in warning]


def test_the_command_names_its_option():
    with pytest.raises(RequestError) as refused:
        clockwatt.predict(torch.argsort, torch.empty(4096, 512), gpu="h200")
    assert "--measure-missing 20" in refused.value.as_options()
