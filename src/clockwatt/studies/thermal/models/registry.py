"""The models by name."""

from __future__ import annotations

from clockwatt.studies.thermal.models.base import Forecaster, Persistence
from clockwatt.studies.thermal.models.boosted import BoostedTrees
from clockwatt.studies.thermal.models.rc import RcNetworks
from clockwatt.studies.thermal.models.recurrent import Gru, Lstm
from clockwatt.studies.thermal.models.regression import Linear, Polynomial

MODELS: dict[str, type[Forecaster]] = {
    model.name: model for model in (Persistence, Linear, Polynomial, RcNetworks, BoostedTrees, Lstm, Gru)
}
WITHOUT_TORCH = tuple(name for name in MODELS if name not in ("lstm", "gru"))
