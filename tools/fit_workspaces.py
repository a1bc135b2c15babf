"""Fit what CUDA kernels allocate themselves, from the peak memory of measured operations and convolutions.

Convolutions with channels last were measured by `benchmarks/workspaces.py`.

python tools/fit_workspaces.py        # writes resources/memory/workspaces.npz
"""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import nnls
from sklearn.ensemble import RandomForestRegressor

from clockwatt.io import files
from clockwatt.predict.memory import (
    BACKWARD,
    FORWARD,
    OFFSET,
    convolution_bytes,
    convolution_features,
    recurrent_terms,
    rounded,
)
from clockwatt.predict.models.trees import Trees, shortened
from clockwatt.schema.execution import ExecutionSettings
from clockwatt.schema.records import MEASUREMENT_SCHEMA

ROOT = Path(__file__).parents[1]
RESIDENT = 65 * 2**20
"""Alive in every measurement: the workspaces of cuBLAS of two threads, and the bench's own tensor."""
COLUMNS = ["subject_id", "pass", "execution", "status", "instances", "memory_peak_bytes"]
_TREES, _MOST_RATIO = 15, 50.0  # an odd number: the median is a value that was seen
_DTYPES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "bool": 1}


def measured() -> pd.DataFrame:
    """Return operations of convolutions and recurrent layers with their peak memory."""
    tables = []
    for folder in sorted((ROOT / "resources/reference").iterdir()):
        for path in folder.glob("measurements/*/default/1.parquet"):
            rows = files.read_table(path, MEASUREMENT_SCHEMA, columns=COLUMNS).to_pandas()
            rows["tf32"] = [ExecutionSettings(one).cudnn_tf32 for one in rows["execution"]]
            known = pd.read_parquet(
                folder / "catalogue/operations.parquet", columns=["operation_id", "pass", "operation_class", "spec"]
            )
            joined = rows.rename(columns={"subject_id": "operation_id"}).merge(known, on=["operation_id", "pass"])
            tables.append(joined[(joined["status"] == "ok") & joined["memory_peak_bytes"].notna()])
    table = pd.concat(tables)
    wanted = table["operation_class"].str.startswith("conv") | table["operation_class"].isin(["lstm", "gru"])
    return table[wanted & (table["operation_class"] != "conv_tbc")].drop_duplicates(["operation_id", "pass", "tf32"])


def channels_last() -> pd.DataFrame:
    """Return convolutions with channels last, what each allocates beyond its tensors, and whether TF32 was allowed."""
    paths = sorted((ROOT / "benchmarks").glob("workspaces-*.parquet"))
    return pd.concat(map(pd.read_parquet, paths)).drop_duplicates(["call", "tf32"])


def _bytes(entry: dict[str, Any]) -> int:
    return rounded(math.prod(entry["shape"]) * _DTYPES[entry["dtype"]])


def beyond_tensors(row: dict[str, Any], spec: dict[str, Any]) -> int:
    """Return the bytes of a measurement's peak beyond arguments, outputs and gradients."""
    tensors, outputs, learns = spec["tensors"], spec["out"], row["pass"] == "training"
    given = sum(_bytes(one) * (row["instances"] if one.get("parameter") else 1) for one in tensors)
    result = sum(_bytes(one) for one in outputs)
    if learns:
        arriving = spec.get("grad_out") or []
        given += sum(_bytes(one) for one, stride in zip(outputs, arriving, strict=False) if stride is not None)
        result += sum(_bytes(one) for one in tensors if one.get("grad"))
    return max(0, int(row["memory_peak_bytes"]) - RESIDENT - given - result)


def convolution(row: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any] | None:
    """Describe a convolution as the trace does; None for one with padding by name."""
    x, weight, y = spec["tensors"][0], spec["tensors"][1], spec["out"][0]
    transposed = "transpose" in spec["fn"]
    names = ("stride", "padding", *(("output_padding", "groups", "dilation") if transposed else ("dilation", "groups")))
    defaults = {"stride": 1, "padding": 0, "output_padding": 0, "groups": 1, "dilation": 1}
    given = defaults | dict(zip(names, spec["args"][3:], strict=False)) | {
        name: value for name, value in (spec.get("kwargs") or {}).items() if name in names
    }  # fmt: skip
    dims = len(weight["shape"]) - 2
    if isinstance(given["padding"], str) or len(x["shape"]) != dims + 2:
        return None

    def sized(value: Any) -> list[int]:
        entries = next(iter(value.values())) if isinstance(value, dict) else value
        return [entries] * dims if isinstance(entries, int) else (list(entries) * dims)[:dims]

    stride = x.get("stride")
    return {
        "dtype": x["dtype"], "x": x["shape"], "weight": weight["shape"], "y": y["shape"], "transposed": transposed,
        "groups": given["groups"], **{name: sized(given[name]) for name in ("stride", "padding", "dilation")},
        "channels_last": bool(stride) and stride[1] == 1 < x["shape"][1],
        "gradients": [x.get("grad", False), weight.get("grad", False)] if row["pass"] == "training" else None,
    }  # fmt: skip


def recurrent(spec: dict[str, Any]) -> dict[str, Any]:
    """Describe a recurrent layer as the trace does."""
    tensors, x = spec["tensors"], spec["tensors"][0]["shape"]
    *_, both, batch_first = (one for one in spec["args"] if isinstance(one, bool))
    batch, length = x[:2] if batch_first else (x[1], x[0])
    return {
        "dtype": tensors[0]["dtype"], "batch": batch, "length": length, "input": x[-1],
        "layers": next(one for one in spec["args"] if type(one) is int), "bidirectional": both,
        "batch_first": batch_first, "output": spec["out"][0]["shape"][-1],
        "weight": sum(math.prod(one["shape"]) for one in tensors if one.get("parameter")),
    }  # fmt: skip


def forest(calls: list[dict[str, Any]], tf32: list[bool], sizes: list[int]) -> Trees:
    """Fit the logarithm of a workspace relative to the tensors of its convolution."""
    matrix = np.array([convolution_features(call, tf32=one) for call, one in zip(calls, tf32, strict=True)], np.float32)
    ratio = np.array(sizes) / [convolution_bytes(call) for call in calls]
    fitted = RandomForestRegressor(_TREES, max_features=0.5, min_samples_leaf=1, random_state=0, n_jobs=2)
    fitted.fit(matrix, np.log(np.minimum(ratio, _MOST_RATIO) + OFFSET).round(2))
    return shortened(Trees.from_forest(fitted), matrix)


def main() -> None:
    """Fit and write."""
    found: dict[str, tuple[list[Any], list[bool], list[int]]] = {one: ([], [], []) for one in (FORWARD, BACKWARD)}
    layers: dict[tuple[str, str], tuple[list[Any], list[int]]] = {}
    for row in measured().to_dict("records"):
        spec = json.loads(row["spec"])
        if row["operation_class"] in ("lstm", "gru"):
            terms, sizes = layers.setdefault((row["operation_class"], row["pass"]), ([], []))
            terms.append(recurrent_terms(recurrent(spec)))
            sizes.append(beyond_tensors(row, spec))
        elif (call := convolution(row, spec)) is not None:
            calls, tf32, sizes = found[FORWARD if call["gradients"] is None else BACKWARD]
            calls.append(call)
            tf32.append(bool(row["tf32"]))
            sizes.append(beyond_tensors(row, spec))
    for row in channels_last().to_dict("records"):
        call = json.loads(row["call"])
        for values, value in zip(found[FORWARD if call["gradients"] is None else BACKWARD],
                                 (call, row["tf32"], row["bytes"]), strict=True):  # fmt: skip
            values.append(value)
    arrays: dict[str, Any] = {}
    for direction, (calls, tf32, sizes) in found.items():
        trees = forest(calls, tf32, sizes)
        arrays |= {f"{direction}_{name}": array for name, array in trees.arrays().items()}
        print(direction, len(calls), "convolutions,", len(trees.feature), "nodes")
    arrays["features"] = np.array(len(convolution_features(found[FORWARD][0][0], tf32=True)))
    coefficients = {}
    for kind in ("lstm", "gru"):
        fitted = {}
        for pass_ in ("inference", "training"):
            terms, sizes = (np.array(one, dtype=float) for one in layers[kind, pass_])
            weight = 1 / (sizes + 2**20)
            fitted[pass_] = nnls(terms * weight[:, None], sizes * weight)[0]
            error = np.abs(terms @ fitted[pass_] - sizes) * weight
            print(
                kind, pass_, len(sizes), fitted[pass_].round(2), "median and 90th error", np.quantile(error, [0.5, 0.9])
            )
        coefficients[f"{kind} workspace"] = fitted["inference"].tolist()
        coefficients[f"{kind} reserve"] = np.maximum(fitted["training"] - fitted["inference"], 0).tolist()
    coefficients |= {f"rnn {part}": coefficients[f"gru {part}"] for part in ("workspace", "reserve")}
    arrays["recurrent"] = np.frombuffer(json.dumps(coefficients, sort_keys=True).encode(), dtype=np.uint8)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    path = ROOT / "resources/memory/workspaces.npz"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(buffer.getvalue())
    print(f"{path}: {len(buffer.getvalue()) / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
