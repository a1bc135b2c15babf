"""Execution settings: one value with one text, and files from before there was one."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clockwatt import config
from clockwatt.errors import ClockwattError, ConfigError
from clockwatt.io import files
from clockwatt.schema.execution import (
    DEFAULT,
    FP32,
    PRECISIONS,
    TF32,
    ExecutionSettings,
    Precision,
    all_settings,
    execution_of_json,
    of_variant,
)
from clockwatt.schema.records import MEASUREMENT_SCHEMA, NETWORK_SCHEMA, OPERATION_SCHEMA

GPU = {"device": "virtual:a30"}
NETWORK = {"name": "toy", "input": [8, 64]}


@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_text_is_read_back_as_the_same_settings(precision):
    settings = ExecutionSettings(precision)
    assert ExecutionSettings(str(settings)) == settings == precision
    assert execution_of_json(json.loads(json.dumps({"execution": settings}))) == [settings]
    assert settings.parts == {
        "precision": precision, "memory_format": "contiguous", "mode": "eager", "checkpointing": "none",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("bfloat16", "bf16"),
        ("16-true", "fp16"),
        ("eager+contiguous+fp32", "fp32"),
        ("tf32+none", "tf32"),
        ("channels_last+bf16-mixed", "bf16-mixed+channels_last"),
    ],
)
def test_what_is_at_its_default_is_left_out_of_the_text(text, canonical):
    assert ExecutionSettings(text) == canonical


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fp8", "'fp8' is not supported. Choose tf32-conv"),
        ("bf16+max-autotune", "'max-autotune' is not supported"),
        ("tf32+compile+cuda_graph", "compile and cuda_graph are both a mode"),
        ("tf32+fp32", "tf32 and fp32 are both a precision"),
        ("eager", "eager is a mode, and names no precision. Choose tf32-conv, tf32, fp32, "),
        ("tf32+checkpointing", "a network does its own checkpointing"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(text, message):
    with pytest.raises(ClockwattError, match=message):
        ExecutionSettings(text)


@pytest.mark.parametrize("matrix_tf32", [False, True])
@pytest.mark.parametrize("cudnn_tf32", [False, True])
def test_all_settings_that_operations_need_are_measured(monkeypatch, matrix_tf32, cudnn_tf32):
    monkeypatch.setitem(PRECISIONS, "fp32", Precision("float32", matrix_tf32, cudnn_tf32, "a new precision"))
    needed = {FP32.of_operation(name, "float32") for name in ("linear", "conv2d", "relu")}
    assert set(FP32.of_operations) == needed


def test_operations_of_16_bits_are_looked_up_where_the_gpu_was_measured():
    bf16, linear = ExecutionSettings("bf16"), ("linear", "bfloat16")
    assert bf16.of_operation(*linear) == bf16.of_operation(*linear, [FP32, TF32]) == TF32
    assert bf16.of_operation(*linear, [FP32]) == FP32
    assert FP32.of_operation(*linear, [TF32]) == FP32


@pytest.mark.parametrize(
    ("operation", "measured", "expected"),
    [
        (("linear", "float32"), [FP32, TF32], FP32),
        (("linear", "float32"), [TF32], FP32),
        (("conv2d", "float32"), [FP32, TF32], TF32),
        (("lstm", "float32"), [FP32], TF32),
        (("linear", "bfloat16"), [FP32, TF32], TF32),
        (("relu", "float32"), [FP32], FP32),
    ],
)
def test_pytorchs_default_takes_convolutions_in_tf32_and_products_without(operation, measured, expected):
    assert DEFAULT.of_operation(*operation, measured) == expected


def test_a_gpu_measures_each_operation_of_pytorchs_default_once():
    network = NETWORK | {"precision": ["tf32-conv", "tf32"]}
    gpu = campaign({"precision": "tf32-conv"}, network).gpu("a30")
    assert gpu.execution == [TF32, FP32]
    assert gpu.execution_of(None, ("conv2d", "float32")) == [TF32]
    assert gpu.execution_of(["tf32-conv"], ("linear", "float32")) == [FP32]
    assert gpu.execution_of(["tf32"], ("linear", "float32")) == []
    assert gpu.execution_of(["tf32-conv", "tf32"]) == ["tf32-conv"]
    only_tf32 = campaign({"precision": "tf32"}, NETWORK).gpu("a30")
    assert only_tf32.execution_of(["tf32-conv"]) == []
    assert only_tf32.execution_of(["tf32-conv"], ("relu", "float32")) == [TF32]


def campaign(gpu, *networks):
    return config.parse({"campaign": "test", "gpus": {"a30": GPU | gpu}, "networks": [*networks]})


@pytest.mark.parametrize(
    ("former", "present"),
    [
        ({"tf32": True}, {"precision": "tf32"}),
        ({"tf32": [True, False]}, {"precision": ["tf32", "fp32"]}),
        ({"dtype": "bfloat16"}, {"precision": "bf16"}),
        ({"dtype": "float16", "tf32": [True]}, {"precision": "fp16"}),
        ({"dtype": "float32"}, {}),
    ],
)
def test_former_keys_of_a_campaign_are_read(former, present):
    assert campaign({}, NETWORK | former) == campaign({}, NETWORK | present)
    if "dtype" not in former:
        assert campaign(former, NETWORK) == campaign(present, NETWORK)


def test_autocast_makes_other_calls_and_so_another_network():
    networks = campaign(
        {"precision": ["tf32", "fp32"]}, NETWORK | {"precision": ["bf16-mixed", "fp32", "tf32-conv"]}
    ).networks
    assert [(one.network_id, one.precision, one.dtype) for one in networks] == [
        ("toy-8x64-bf16_mixed", ["bf16-mixed"], "float32"), ("toy-8x64-float32", ["fp32", "tf32-conv"], "float32"),
    ]  # fmt: skip
    assert of_variant("bf16_mixed") == ["bf16-mixed"]
    assert of_variant("float32") == ["tf32-conv", "tf32", "fp32"]
    assert of_variant("float32+channels_last") == [
        "tf32-conv+channels_last",
        "tf32+channels_last",
        "fp32+channels_last",
    ]
    (last,) = campaign({}, NETWORK | {"precision": "fp16-mixed+channels_last"}).networks
    assert last.network_id == "toy-8x64-fp16_mixed+channels_last"
    gpu = campaign({"precision": "tf32"}, NETWORK).gpu("a30")
    assert gpu.execution_of(["tf32+channels_last", "fp32+channels_last"]) == ["tf32+channels_last"]
    assert gpu.execution_of(["tf32+channels_last"], ("conv2d", "float32")) == [TF32]
    assert gpu.execution_of(["bf16-mixed"]) == ["bf16-mixed"]
    assert gpu.execution_of(["bf16-mixed"], ("linear", "bfloat16")) == [TF32]
    assert gpu.execution_of(["bf16-mixed"], ("to", "float32")) == [TF32]


def test_former_keys_beside_the_present_one_are_refused():
    with pytest.raises(ConfigError, match="dtype and tf32 are former names of precision: give precision alone"):
        campaign({}, NETWORK | {"tf32": True, "precision": "fp32"})


def test_a_network_in_precisions_of_two_dtypes_is_two_networks():
    networks = campaign({}, NETWORK | {"precision": ["bf16", "tf32"]}).networks
    assert [(one.network_id, one.precision) for one in networks] == [
        ("toy-8x64-bfloat16", ["bf16"]), ("toy-8x64-float32", ["tf32"]),
    ]  # fmt: skip
    with pytest.raises(ConfigError, match="toy-8x64-bfloat16 is given twice"):
        campaign({}, NETWORK | {"precision": ["bf16", "tf32"]}, NETWORK | {"precision": "bf16"})


def test_what_a_gpu_measures_of_what_networks_want():
    gpu = campaign({"precision": "fp32"}, NETWORK).gpu("a30")
    assert gpu.execution_of(["bf16", "tf32"]) == ["bf16"]
    assert gpu.execution_of(["bf16", "tf32"], ("linear", "bfloat16")) == ["fp32"]
    assert gpu.execution_of(None, ("linear", "bfloat16")) == ["fp32"]
    assert gpu.execution_of([], ("linear", "bfloat16")) == []


def former_file(path, schema, rows):
    """A file of version 2 with these rows: required columns that they lack are empty."""
    empty = {pa.string(): "", pa.int64(): 0, pa.bool_(): False}
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    for field in schema:
        if not field.nullable and field.name not in (*columns, "execution"):
            columns[field.name] = pa.array([empty.get(field.type, [])] * len(rows), field.type)
    metadata = {"kind": (schema.metadata or {})[b"kind"].decode(), "schema_version": "2"}
    pq.write_table(pa.table(columns).replace_schema_metadata(metadata), path)
    return path


def test_measurements_with_a_column_tf32_are_read(tmp_path):
    rows = [
        {"subject_id": "0123", "tf32": True},
        {"subject_id": "0123", "tf32": False},
        {"subject_id": "toy-8x64-float32", "tf32": False},
        {"subject_id": "toy-8x64-bfloat16", "tf32": True},
        {"subject_id": "toy-8x64-float16", "tf32": False},
    ]
    path = former_file(tmp_path / "1.parquet", MEASUREMENT_SCHEMA, rows)
    expected = ["tf32", "fp32", "fp32", "bf16", "fp16"]
    assert files.read_table(path, MEASUREMENT_SCHEMA)["execution"].to_pylist() == expected
    assert files.read_table(path, MEASUREMENT_SCHEMA, ["execution"]).to_pydict() == {"execution": expected}
    (batch,) = files.read_batches(path, MEASUREMENT_SCHEMA, ["execution", "kind"])
    assert batch["execution"].to_pylist() == expected


def test_catalogues_with_a_column_measured_tf32_are_read(tmp_path):
    networks = [
        {"network_id": "toy-8x64-float32", "measured_tf32": [False, True]},
        {"network_id": "toy-8x64-bfloat16", "measured_tf32": [False, True]},
        {"network_id": "toy-8x32-bfloat16", "measured_tf32": []},
    ]
    path = former_file(tmp_path / "networks.parquet", NETWORK_SCHEMA, networks)
    read = files.read_table(path, NETWORK_SCHEMA)["measured_execution"].to_pylist()
    assert read == [["fp32", "tf32"], ["bf16"], []]
    operations = [{"operation_id": "a", "measured_tf32": [True]}, {"operation_id": "b", "measured_tf32": None}]
    path = former_file(tmp_path / "operations.parquet", OPERATION_SCHEMA, operations)
    assert files.read_table(path, OPERATION_SCHEMA)["measured_execution"].to_pylist() == [["tf32"], None]


def test_all_settings_have_modes_and_layouts_where_they_can_be_chosen():
    of_text = [str(one) for one in all_settings(training=True, images=False)]
    assert {"tf32", "bf16-mixed+compile", "tf32+cuda_graph"} <= set(of_text)
    assert not [one for one in of_text if "channels_last" in one or one.split("+")[0] == "fp16"]
    assert "fp16-mixed+compile" in of_text
    assert "fp16-mixed+cuda_graph" not in of_text
    of_images = {str(one) for one in all_settings(training=False, images=True)}
    assert {"fp16+channels_last+cuda_graph", "fp16+compile"} <= of_images
    assert "fp16+channels_last+compile" not in of_images  # TorchInductor chooses the layout
