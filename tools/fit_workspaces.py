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
from numpy.typing import NDArray
from scipy.optimize import nnls
from sklearn.ensemble import RandomForestRegressor

from clockwatt.io import files
from clockwatt.predict.memory import (
    BACKWARD,
    FORWARD,
    LEAST_BYTES,
    OFFSET,
    RESERVE,
    convolution_bytes,
    convolution_features,
    recurrent_features,
    recurrent_terms,
    rounded,
)
from clockwatt.predict.models.trees import Trees, shortened
from clockwatt.schema.execution import ExecutionSettings
from clockwatt.schema.records import MEASUREMENT_SCHEMA, WORKSPACE

ROOT = Path(__file__).parents[1]
RESIDENT = 65 * 2**20
"""Alive in every measurement: the workspaces of cuBLAS of two threads, and the bench's own tensor."""
COLUMNS = ["subject_id", "pass", "execution", "status", "instances", "memory_peak_bytes"]
_TREES, _MOST_RATIO = 31, 50.0  # an odd number: the median is a value that was seen
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


def recurrent(kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Describe a recurrent layer as the trace does."""
    tensors, x = spec["tensors"], spec["tensors"][0]["shape"]
    *_, both, batch_first = (one for one in spec["args"] if isinstance(one, bool))
    batch, length = x[:2] if batch_first else (x[1], x[0])
    return {
        "kind": kind, "dtype": tensors[0]["dtype"], "batch": batch, "length": length, "input": x[-1],
        "layers": next(one for one in spec["args"] if type(one) is int), "bidirectional": both,
        "batch_first": batch_first, "output": spec["out"][0]["shape"][-1],
        "weight": sum(math.prod(one["shape"]) for one in tensors if one.get("parameter")),
    }  # fmt: skip


def forest(features: list[list[float]], values: NDArray[np.float64]) -> Trees:
    """Fit trees whose median is a value that was seen, rounded to hundredths."""
    matrix = np.array(features, np.float32)
    fitted = RandomForestRegressor(_TREES, max_features=0.5, min_samples_leaf=1, random_state=0, n_jobs=2)
    return shortened(Trees.from_forest(fitted.fit(matrix, values.round(2))), matrix)


def of_convolutions(rows: list[dict[str, Any]]) -> tuple[list[list[float]], Trees]:
    """Return features, and trees of the logarithm of workspaces relative to the tensors of their convolutions."""
    features = [convolution_features(row["call"], tf32=row["tf32"]) for row in rows]
    ratios = np.array([row["bytes"] / convolution_bytes(row["call"]) for row in rows])
    return features, forest(features, np.log(np.minimum(ratios, _MOST_RATIO) + OFFSET))


def of_recurrent_layers(rows: list[dict[str, Any]]) -> tuple[dict[str, list[float]], list[list[float]], Trees]:
    """Return coefficients by kind and part; features, and trees of the logarithm of what they leave of workspaces."""
    coefficients, features, left = {}, [], []
    for kind in ("lstm", "gru"):
        fitted = {}
        for pass_ in ("inference", "training"):
            chosen = [row for row in rows if (row["call"]["kind"], row["pass"]) == (kind, pass_)]
            terms = np.array([recurrent_terms(row["call"]) for row in chosen])
            sizes = np.array([row["bytes"] for row in chosen], dtype=float) + LEAST_BYTES
            fitted[pass_] = nnls(terms / sizes[:, None], (sizes - LEAST_BYTES) / sizes)[0]
            if pass_ == "inference":
                features += [recurrent_features(row["call"], tf32=row["tf32"]) for row in chosen]
                left.append(np.log(sizes / (terms @ fitted[pass_] + LEAST_BYTES)))
        coefficients[f"{kind} {WORKSPACE}"] = fitted["inference"].tolist()
        coefficients[f"{kind} {RESERVE}"] = np.maximum(fitted["training"] - fitted["inference"], 0).tolist()
    coefficients |= {f"rnn {part}": coefficients[f"gru {part}"] for part in (WORKSPACE, RESERVE)}
    return coefficients, features, forest(features, np.concatenate(left))


def main() -> None:
    """Fit and write."""
    convolutions = [{**row, "call": json.loads(row["call"])} for row in channels_last().to_dict("records")]
    layers = []
    for row in measured().to_dict("records"):
        spec = json.loads(row["spec"])
        of_layer = row["operation_class"] in ("lstm", "gru")
        call = recurrent(row["operation_class"], spec) if of_layer else convolution(row, spec)
        if call is not None:
            found = {"call": call, "pass": row["pass"], "tf32": bool(row["tf32"]), "bytes": beyond_tensors(row, spec)}
            (layers if of_layer else convolutions).append(found)
    arrays: dict[str, Any] = {}
    coefficients, features, trees = of_recurrent_layers(layers)
    described = {"coefficients": coefficients, "features": {}}
    forests = {"recurrent": (features, trees)}
    for direction in (FORWARD, BACKWARD):
        chosen = [row for row in convolutions if (row["call"]["gradients"] is None) == (direction == FORWARD)]
        forests[direction] = of_convolutions(chosen)
    for name, (rows, fitted) in forests.items():
        arrays |= {f"{name}/{array}": values for array, values in fitted.arrays().items()}
        described["features"][name] = len(rows[0])
        print(f"{name}: {len(rows)} rows, {len(fitted.feature)} nodes")
    arrays["described"] = np.frombuffer(json.dumps(described, sort_keys=True).encode(), dtype=np.uint8)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    path = ROOT / "resources/memory/workspaces.npz"
    path.write_bytes(buffer.getvalue())
    print(f"{path}: {len(buffer.getvalue()) / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
