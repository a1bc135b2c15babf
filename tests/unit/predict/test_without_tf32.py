"""A GPU without TF32 runs all settings of float32 alike, and stands beside the TF32 of others."""

import pandas as pd
import pyarrow as pa
import pytest

from clockwatt.figures import load, style
from clockwatt.io import files
from clockwatt.predict.composition.networks import VALIDATION_SCHEMA
from clockwatt.predict.description import GpuDescription, known_settings
from clockwatt.schema import layout
from clockwatt.schema.execution import FP32, TF32, ExecutionSettings

TURING, AMPERE = "NVIDIA GeForce RTX 2080 Ti", "NVIDIA A30"


def described(gpu_name, *execution):
    return GpuDescription("gpu", gpu_name, True, [], list(execution), {}, "")


@pytest.mark.parametrize(
    ("gpu_name", "measured", "asked", "runs_as"),
    [
        (TURING, FP32, "tf32", "fp32"),
        (TURING, FP32, "tf32-conv+channels_last", "fp32+channels_last"),
        (TURING, FP32, "bf16-mixed", "bf16-mixed"),
        (TURING, TF32, "tf32", "tf32"),  # as older campaigns named it
        (AMPERE, FP32, "tf32", "tf32"),
    ],
)
def test_a_network_runs_in_float32_on_a_gpu_without_tf32(gpu_name, measured, asked, runs_as):
    assert described(gpu_name, measured).runs_as(ExecutionSettings(asked)) == runs_as


def test_float32_of_a_gpu_without_tf32_is_no_setting_that_others_are_asked_for():
    assert known_settings([described(AMPERE, TF32), described(TURING, FP32)]) == {TF32}
    assert known_settings([described(AMPERE, TF32, FP32), described(TURING, FP32)]) == {TF32, FP32}
    assert known_settings([described(TURING, FP32)]) == {FP32}


def test_figures_compare_float32_of_such_a_gpu_with_tf32(tmp_path):
    rows = [
        {
            "gpu": gpu,
            "gpu_name": name,
            "virtual": True,
            "point": "default",
            "execution": execution,
            "network_id": network,
        }
        for gpu, name, execution, network in (
            ("a30", AMPERE, "tf32", "both"),
            ("a30", AMPERE, "fp32", "both"),
            ("rtx2080ti", TURING, "fp32", "both"),
            ("rtx2080ti", TURING, "fp32", "alone"),
        )
    ]
    table = pd.DataFrame(rows).reindex(columns=VALIDATION_SCHEMA.names)
    files.write_table(
        pa.Table.from_pandas(table, VALIDATION_SCHEMA, preserve_index=False), tmp_path / layout.NETWORKS_FILE
    )
    found = load.compositions(tmp_path)
    assert found["compared"].tolist() == ["tf32", "fp32", "tf32", "fp32"]
    assert style.without_tf32(found) == "Without TF32, in float32: rtx2080ti."
