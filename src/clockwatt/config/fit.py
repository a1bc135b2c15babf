"""How predictors are fitted."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from clockwatt.config.model import Model


class FitConfig(Model):
    """Which predictors are fitted and how they are validated."""

    predictors: list[Literal["roofline", "forest", "xgboost", "baseline"]] = Field(
        ["roofline"],
        min_length=1,
        description="roofline: ExtraTrees on the ratio to a roofline; forest: the thesis's random forest; "
        "xgboost: boosting on the same ratio, needs `pip install 'clockwatt[xgboost]'`; "
        "baseline: one ratio for each operation class, to compare with; "
        "the first is used for predictions",
    )
    folds: int = Field(15, ge=2, le=100, description="folds of the grouped cross-validation")
    trees: int = Field(50, ge=1, le=5000, description="trees of a forest; of xgboost, for each target")
    leaf: int = Field(
        1,
        ge=1,
        le=1000,
        description="fewest rows in a leaf of the trees of roofline and forest; with 2, files are half as large, and "
        "predictions of power a little worse",
    )
    mlps: int = Field(
        0,
        ge=0,
        le=16,
        description="number of MLPs that predict device time together with roofline's forest; used from 5,000 rows on "
        "(rows of all clocks, and of other GPUs). 2 MLPs reduce the large errors of convolutions by a third, and need "
        "some minutes to fit",
    )
    transfer: bool = Field(
        True,
        description="whether predictors also train on operations that only another GPU measured",
    )

    @model_validator(mode="before")
    @classmethod
    def _no_gpu_is_predicted_unmeasured(cls, content: Any) -> Any:
        """`unseen_gpu: false`, which older files say, asks for nothing; `true` for what there is no more."""
        if not isinstance(content, dict) or "unseen_gpu" not in content:
            return content
        if content["unseen_gpu"] is not False:
            raise ValueError(
                "unseen_gpu is offered no more: specifications alone say too little about a GPU that was never "
                "measured. Remove the key, and measure the GPU"
            )
        return {key: value for key, value in content.items() if key != "unseen_gpu"}
