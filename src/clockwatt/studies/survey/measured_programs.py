"""The programs that the survey measures once on each card: matrix products, a copy, and networks."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from clockwatt.config import NetworkConfig, SurveyStudyConfig
from clockwatt.measure.card import FLOP_PER_BYTE
from clockwatt.measure.reference_operations import matrix_product, memory_copy
from clockwatt.schema.records import OperationRow

GEMMS = {"SGEMM": "float32", "DGEMM": "float64", "bfloat16 GEMM": "bfloat16"}
_COPIED = 2**30
NETWORKS: dict[str, dict[str, Any]] = {
    "resnet50": {"name": "resnet50", "input": [64, 3, 224, 224]},
    "bert": {
        "name": "clockwatt.operations.transformer_networks:bert_base",
        "input": [16, 128], "input_dtype": "int64", "input_below": 30_000,
    },
    "dlrm": {
        "name": "clockwatt.studies.survey.programs:Dlrm",
        "input": [26, 16_384, 4], "input_dtype": "int64", "input_below": 250_000,
    },
}  # fmt: skip
PROGRAM_S = 4
"""About how long a program takes on a large card."""
PROGRAMS = b"programs"
"""Key of the metadata of `named`."""


def operations(study: SurveyStudyConfig) -> dict[str, OperationRow]:
    """Return the operations that the survey measures on each card, by name."""
    gemms = {
        f"{name} {size}": matrix_product(size, dtype)
        for name, dtype in GEMMS.items()
        for size in (study.gemm_sizes if "gemm" in study.programs else ())
    }
    return gemms | ({"copy": memory_copy(_COPIED)} if "copy" in study.programs else {})


def networks(study: SurveyStudyConfig) -> list[Mapping[str, Any]]:
    """Return the networks that the survey measures on each card, as entries of a campaign."""
    return [NETWORKS[name] for name in study.programs if name in NETWORKS]


def named(measurements: pa.Table, study: SurveyStudyConfig) -> pa.Table:
    """Return measurements of `measure_card` with name and FLOP per byte of each program in the metadata."""
    about = measurements.schema.metadata or {}
    of_subject = json.loads(about.get(FLOP_PER_BYTE, b"{}"))
    names = {row.operation_id: name for name, row in operations(study).items()} | {
        NetworkConfig.model_validate(entry).network_id: name
        for name, entry in NETWORKS.items()
        if name in study.programs
    }
    programs = {subject: [name, of_subject.get(subject, math.nan)] for subject, name in names.items()}
    return measurements.replace_schema_metadata(about | {PROGRAMS: json.dumps(programs).encode()})
