"""Settings of a call that decide which kernels run."""

import pandas as pd
import pytest

from clockwatt.config import OperatingPoint
from clockwatt.gpu.specs import find_spec
from clockwatt.operations.spec.operation import Operation, OutputSpec, TensorSpec
from clockwatt.predict.features import (
    CATALOGUE_COLUMNS,
    CHANNEL_STEP_S,
    RECURRENT_STEP_S,
    ROOFLINE_TIME,
    Setting,
    features_at,
    operation_features,
    serial_time_s,
    setting_numbers,
)
from clockwatt.schema.execution import TF32
from support import synthetic


def contiguous(*shape, dtype="float32"):
    strides = [1]
    for size in reversed(shape[1:]):
        strides.insert(0, strides[0] * size)
    return TensorSpec(shape, dtype, tuple(strides))


def lstm(steps, layers=2, *, batch_first=True, both=False, dtype="float32"):
    shape = (4, steps, 16) if batch_first else (steps, 4, 16)
    state = contiguous(layers * (2 if both else 1), 4, 32, dtype=dtype)
    weights = [contiguous(128, 16, dtype=dtype), contiguous(128, 32, dtype=dtype)]
    tensors = (contiguous(*shape, dtype=dtype), state, state, *weights)
    states = {"tuple": [{"tensor": 1}, {"tensor": 2}]}
    arguments = ({"tensor": 0}, states, [{"tensor": 3}, {"tensor": 4}], True, layers, 0.0, False, both, batch_first)
    out = OutputSpec((*shape[:2], 32), dtype, (steps * 32, 32, 1))
    return Operation("torch.lstm", arguments, {}, tensors, (out,))


@pytest.mark.parametrize("batch_first", [True, False])
def test_steps_of_all_layers_follow_one_another(batch_first):
    operation = lstm(100, batch_first=batch_first)
    assert serial_time_s(operation) == pytest.approx(200 * RECURRENT_STEP_S)
    numbers = setting_numbers(operation)
    assert 2 ** numbers["log_serial_steps"] - 1 == pytest.approx(200)
    assert 2 ** numbers["log_step_rows"] - 1 == pytest.approx(4)
    assert 2 ** numbers["log_hidden"] - 1 == pytest.approx(32)
    both = setting_numbers(lstm(100, both=True))
    assert 2 ** both["log_step_rows"] - 1 == pytest.approx(8)


def interpolation(mode, stride=None, dtype="float32", *, grad=False):
    given = TensorSpec((2, 50, 8, 8), dtype, stride or (3200, 64, 8, 1), grad=grad)
    out = OutputSpec((2, 50, 16, 16), "float32", (12800, 256, 16, 1))
    settings = {"mode": mode, "align_corners": True, "antialias": False, "size": {"tuple": [16, 16]}}
    return Operation("torch.nn.functional.interpolate", ({"tensor": 0},), settings, (given,), (out,))


def test_an_interpolation_goes_through_its_channels_one_by_one():
    assert serial_time_s(interpolation("bilinear")) == pytest.approx(100 * CHANNEL_STEP_S)
    assert serial_time_s(interpolation("nearest")) == 0.0
    assert serial_time_s(interpolation("bilinear", stride=(3200, 1, 400, 50))) == 0.0
    assert serial_time_s(synthetic.operation_of("relu", [8, 16, 32, 32])) == 0.0
    forward = serial_time_s(interpolation("bilinear"))
    single, half = (serial_time_s(interpolation("bilinear", dtype=one, grad=True)) for one in ("float32", "bfloat16"))
    # gradients of 25,600 pixels, four of which meet in one; in half precision adding is compare and swap
    assert half - forward == pytest.approx(25600 * 1e-10 * (1 + 4 / 64))
    assert single - forward == pytest.approx((half - forward) / 5)
    assert serial_time_s(interpolation("nearest", dtype="bfloat16", grad=True)) == 0.0
    ways = {setting_numbers(interpolation(mode))["interpolation"] for mode in ("nearest", "bilinear", "bicubic")}
    assert len(ways) == 3
    assert setting_numbers(interpolation("bilinear"))["aligned_corners"] == 1.0


def test_attention_with_a_mask_or_causal_is_told_from_full():
    tensor = contiguous(2, 4, 16, 8, dtype="bfloat16")
    out = OutputSpec(tensor.shape, "bfloat16", tensor.stride)
    name, given = "torch.nn.functional.scaled_dot_product_attention", ({"tensor": 0}, {"tensor": 1}, {"tensor": 2})
    full, causal = (
        setting_numbers(Operation(name, given, {"attn_mask": None, "is_causal": flag}, (tensor,) * 3, (out,)))
        for flag in (False, True)
    )
    masked = setting_numbers(Operation(name, given, {"attn_mask": {"tensor": 3}}, (tensor,) * 4, (out,)))
    assert [one["causal"] for one in (full, causal, masked)] == [0.0, 1.0, 0.0]
    assert [one["masked"] for one in (full, causal, masked)] == [0.0, 0.0, 1.0]
    assert full["log_element_bytes"] == 1.0
    assert full["bfloat16"] == 1.0


def test_the_roofline_of_a_recurrent_layer_knows_matrix_units_and_steps():
    rows = [
        ("lstm", operation.tensors[0].dtype, operation.to_json(), 1e12, 0, 0, 0)
        for operation in (lstm(100), lstm(100, dtype="bfloat16"), lstm(1000))
    ]
    ids = ["float32", "bfloat16", "long"]
    frame = pd.DataFrame([(name, *row) for name, row in zip(ids, rows, strict=True)], columns=CATALOGUE_COLUMNS)
    features = operation_features(frame)
    spec = find_spec("NVIDIA H200")
    at_boost, at_half = (
        features_at(features, Setting(spec, OperatingPoint(sm_clock_mhz=clock), execution=TF32))[ROOFLINE_TIME]
        for clock in (spec.boost_clock_mhz, spec.boost_clock_mhz // 2)
    )
    assert at_boost["float32"] == pytest.approx(1e12 / spec.tf32_flops + 200 * RECURRENT_STEP_S)
    assert at_boost["bfloat16"] == pytest.approx(1e12 / spec.bf16_flops + 200 * RECURRENT_STEP_S)
    assert at_boost["long"] - at_boost["float32"] == pytest.approx(1800 * RECURRENT_STEP_S)
    assert at_half["long"] == pytest.approx(2 * at_boost["long"], rel=1e-3)
