"""How predictors are fitted."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from clockwatt.config.model import Model


class FitConfig(Model):
    """Which predictors are fitted and how they are validated."""

    predictors: list[Literal["roofline", "forest", "xgboost", "baseline"]] = Field(
        ["roofline", "forest"],
        min_length=1,
        description="roofline: ExtraTrees on the ratio to a roofline; forest: the thesis's random forest; "
        "xgboost: boosting on the same ratio, needs `pip install 'clockwatt[xgboost]'`; "
        "baseline: one ratio for each operation class, to compare with; "
        "the first is used for predictions",
    )
    folds: int = Field(15, ge=2, le=100, description="of the grouped cross-validation")
    trees: int = Field(100, ge=1, le=5000, description="per forest; of xgboost, per target")
    unseen_gpu: bool = Field(
        False,
        description="also fit a predictor of time, and of time alone, for GPUs that were never measured, from their "
        "specifications; takes three GPU models, measured ones or virtual ones, which are never mixed; its error is "
        "that of GPU models left out in turn",
    )
