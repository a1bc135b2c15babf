"""The file of held-out predictions of operations, apart from what writes it: readers need none of what fitting does."""

from __future__ import annotations

import pyarrow as pa

from clockwatt.predict.models.predictors import TARGETS
from clockwatt.schema.costs import BY_CORRECTED

CROSSVAL_FILE = "crossval.parquet"

CROSSVAL_SCHEMA = pa.schema(
    [
        pa.field("gpu", pa.string()),
        pa.field("virtual", pa.bool_()),
        pa.field("predictor", pa.string()),
        pa.field("pass", pa.string()),
        pa.field("point", pa.string()),
        pa.field("tf32", pa.bool_()),
        pa.field("operation_id", pa.string()),
        pa.field("operation_class", pa.string()),
        pa.field("fold", pa.int64()),
        pa.field("learnt", pa.bool_()),  # False: predicted, but excluded from fitting and from the metrics
        *(pa.field(name, pa.float64()) for name in TARGETS),
        *(pa.field(BY_CORRECTED[name].predicted, pa.float64()) for name in TARGETS),
    ],
    metadata={"kind": "cross-validation"},
)
"""Each measured operation with the prediction of a predictor that never saw its group."""
