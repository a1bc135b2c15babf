"""Times on a GPU that was never measured, by a predictor of several GPU models that tells them by their specifications.

Of time alone: what a card draws is its own, and no specification tells it. Device time is that of the card; host time
is that of the machines that were measured, for a specification says nothing of the host that a card will stand in.
Virtual and measured GPUs have predictors of their own.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd

from clockwatt.errors import DataFileError
from clockwatt.gpu.specs import GpuSpec, find_spec
from clockwatt.io.files import write_text
from clockwatt.predict.crossval import ANY_CLASS
from clockwatt.predict.domain import Domain
from clockwatt.predict.features import OPERATION_CLASS, Setting, card_features, features_at
from clockwatt.predict.network import COST_COLUMNS, Composition
from clockwatt.predict.persist import load_predictor, save_predictor
from clockwatt.predict.pointcosts import PointCosts
from clockwatt.predict.predictors import TIMES, CostPredictor
from clockwatt.predict.unseendescription import DEVICE, HOST, OPERATIONS, UNSEEN_FILE, UnseenDescription

_SHOWN = {"sm_count": "SMs", "l2_mib": "MiB of L2", "bandwidth_gb_s": "GB/s", "boost_clock_mhz": "MHz"}


def unseen_dir(predictors_dir: Path, *, virtual: bool) -> Path:
    """Where the predictor for unseen GPUs lies; no label of a GPU has a hyphen."""
    return predictors_dir / ("unseen-virtual" if virtual else "unseen-measured")


@dataclass(frozen=True)
class TimePredictor:
    """Times of operations in one pass, on any GPU by its specifications.

    Attributes
    ----------
    forest
        Predicts `TIMES` from `features.features_at` and `features.card_features`.
    workless_host_s
        Operation class to host time of calls that do nothing on the device; `ANY_CLASS` for all of them.
    host
        Median costs of the hosts that were measured.
    """

    forest: CostPredictor
    workless_host_s: dict[str, float]
    host: PointCosts

    def times(self, operations: pd.DataFrame, features: pd.DataFrame, setting: Setting) -> pd.DataFrame:
        """Predict operations.

        Parameters
        ----------
        operations
            Unique operations of the pass, with `operation_id`, `operation_class` and `device_work`.
        features
            From `features.operation_features`, of those with device work.
        setting
            Where they run.

        Returns
        -------
        pandas.DataFrame
            `TIMES`, indexed by operation id in the order of `operations`; shape (operations, 3).
        """
        workless = operations[~operations["device_work"].to_numpy(bool)]
        of_any = self.workless_host_s.get(ANY_CLASS, 0.0)
        host = workless[OPERATION_CLASS].map(self.workless_host_s).fillna(of_any).to_numpy(float)
        columns = {"time_device_s": np.zeros(len(host)), "time_host_s": host, "time_eager_s": host}
        parts = [pd.DataFrame(columns, index=workless["operation_id"])]
        if len(features):
            parts.append(self.forest.predict(on_card(features_at(features, setting), setting.spec)))
        return pd.concat(parts)[list(TIMES)].reindex(operations["operation_id"])


class UnseenModel:
    """Predicts operations on GPUs that were never measured, from a folder that `clockwatt fit` wrote."""

    def __init__(self, folder: Path, description: UnseenDescription) -> None:
        self.folder = folder
        self.description = description

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Open a folder.

        Raises
        ------
        DataFileError
            If it has no description, or something else in its place.
        """
        path = folder / UNSEEN_FILE
        try:
            return cls(folder, UnseenDescription.from_json(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataFileError(
                f"{path}: not a description of a predictor ({error}). Run `clockwatt fit` with `fit.unseen_gpu` again."
            ) from error

    def predictor(self, pass_: str) -> TimePredictor:
        """The predictor of one pass; DataFileError if its file is missing or damaged."""
        known = self.description.passes[pass_]
        return TimePredictor(load_predictor(self._forest_path(pass_)), known.workless_host_s, known.host)

    def save_description(self) -> None:
        """Write the description, last: a folder without it is not complete."""
        write_text(self.description.to_json(), self.folder / UNSEEN_FILE)

    def save(self, pass_: str, predictor: TimePredictor, domain: Domain) -> None:
        """Write the predictor of one pass and what it learnt from."""
        save_predictor(predictor.forest, self._forest_path(pass_))
        domain.write(self._domain_path(pass_))

    def warnings(
        self, operations: pd.DataFrame, features: pd.DataFrame, pass_: str, setting: Setting, bound: str | None
    ) -> list[str]:
        """What the answer to a question rests on, and what of it lies outside of that: sentences for the user.

        Parameters
        ----------
        operations, features
            See `TimePredictor.times`.
        pass_, setting
            What is asked.
        bound
            Of a network, see `bound_by`; None for operations.

        Raises
        ------
        DataFileError
            If the folder lacks what was learnt from.
        """
        known = self.description
        basis = (
            f"{setting.spec.nvml_name} was never measured: its device time rests on {', '.join(known.models)}, its "
            f"host time on the machines of these. {_errors_said(known.passes[pass_].errors, bound)}"
        )
        said = [basis, *self._outside(setting)]
        if setting.tf32 not in known.tf32:
            said.append(f"Nothing was measured with TF32 {'on' if setting.tf32 else 'off'}.")
        if len(features):
            domain = Domain.read(self._domain_path(pass_))
            said += domain.warnings(features, operations.set_index("operation_id").loc[features.index])
        return said

    def _outside(self, setting: Setting) -> list[str]:
        """What of the card and its clock lies outside those learnt from, where trees see but the nearest."""
        cards = [find_spec(name) for name in self.description.gpus.values()]
        said = []
        for attribute, unit in _SHOWN.items():
            values = [getattr(card, attribute) for card in cards]
            if not min(values) <= getattr(setting.spec, attribute) <= max(values):
                said.append(f"{getattr(setting.spec, attribute):g} {unit} ({min(values):g} to {max(values):g})")
        sentences = [f"The card lies outside those learnt from: {', '.join(said)}."] if said else []
        lowest, highest = self.description.sm_clock_ratios
        ratio = setting.sm_clock_mhz / setting.spec.boost_clock_mhz
        if not lowest <= ratio <= highest:
            sentences.append(
                f"{setting.point} is {ratio:.0%} of the boost clock; {lowest:.0%} to {highest:.0%} of it were measured."
            )
        return sentences

    def _forest_path(self, pass_: str) -> Path:
        return self.folder / f"times-{pass_}.npz"

    def _domain_path(self, pass_: str) -> Path:
        return self.folder / f"domain-{pass_}.parquet"


def on_card(features: pd.DataFrame, spec: GpuSpec) -> pd.DataFrame:
    """Features of operations on one GPU, with those of the card."""
    return features.assign(**card_features(spec))


def cost_columns(times: pd.DataFrame) -> pd.DataFrame:
    """`network.COST_COLUMNS` of operations whose energy is not known: none is counted, see `without_energy`."""
    return times.assign(energy_dynamic_j=0.0, energy_j=np.nan)[COST_COLUMNS]


def without_energy(composition: Composition) -> Composition:
    """The composition of a network with nothing in place of the energy that was not predicted."""
    return replace(composition, energy_dynamic_j=None, energy_j=None, power_w=None, plain_energy_j=None)


def bound_by(composition: Composition) -> str:
    """What takes longer in a pass: `DEVICE` or `HOST`. Who asks of a network errs in the one or in the other."""
    return DEVICE if composition.device_s >= composition.host_s else HOST


def median_host(costs: list[PointCosts]) -> PointCosts:
    """Median of each cost over those that know it; no idle power, which is the card's."""
    values = {}
    for name in (entry.name for entry in fields(PointCosts) if entry.name != "power_idle_w"):
        known = [value for each in costs if (value := getattr(each, name)) is not None]
        values[name] = float(np.median(known)) if known else None
    return PointCosts(**values)


def _errors_said(errors: dict[str, dict[str, Any]], bound: str | None) -> str:
    """How far predictions of GPU models left out were off."""
    subjects = {OPERATIONS: "device time of operations", bound: f"time of networks that the {bound} bounds"}
    told = [
        f"{subject} by {errors[name]['median_ape']:.1%} in the median and {errors[name]['mape']:.1%} in the mean "
        f"(95th percentile {errors[name]['p95_ape']:.1%}, bias {errors[name]['bias']:+.1%})"
        for name, subject in subjects.items()
        if name in errors
    ]
    return f"Each of them predicted by the others was missed: {', '.join(told)}."
