"""Every question that a reader may ask of the page, answered by what `clockwatt recommend` answers with.

The page chooses among candidates in the reader's browser. What it chooses from, and in which order, is made here by the
functions that the command calls, so that both choose alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from clockwatt.config import reference_point
from clockwatt.errors import ClockwattError
from clockwatt.io import files
from clockwatt.predict.answer import Answer
from clockwatt.predict.answerer import check_fits, predict_points
from clockwatt.predict.composition.networks import Catalogue
from clockwatt.predict.description import NotPredictableError, known_settings
from clockwatt.predict.features import operation_features, settings_of
from clockwatt.predict.gpu_predictor import BulkPredictor, GpuPredictor
from clockwatt.predict.models.predictors import TARGETS
from clockwatt.predict.tracing import TracedNetwork
from clockwatt.schema import layout
from clockwatt.schema.execution import ExecutionSettings, of_variant
from clockwatt.schema.records import CALL_SCHEMA, FORWARD

COLUMNS = (
    *("question", "gpu", "point", "measured_point", "time_s", "energy_j", "power_w"),
    *("time_low_s", "time_high_s", "energy_low_j", "energy_high_j", "measured_share"),
    *("told_for_host", "host_paced"),
)
"""Columns of the candidates: see `Answers`."""


@dataclass(frozen=True)
class Question:
    """A pass of a network under execution settings."""

    network_id: str
    pass_: str
    execution: ExecutionSettings


@dataclass
class Answers:
    """Candidates of every question.

    Attributes
    ----------
    questions
        In the order of the campaign's networks.
    candidates
        `COLUMNS`, a row for each question, GPU and operating point: `question` and `gpu` are numbers of `questions` and
        `gpus`, `measured_share` is the share of the calls that were measured there, `told_for_host` whether the host
        time is predicted, and `host_paced` whether the pass is host-bound. The rows are in the order of `recommend`;
        unknown values are NaN.
    gpus
        Labels in that order.
    warnings
        Question and GPU, by number, to the reason why the answer is less reliable than usual.
    without_room
        Questions and GPUs, by number, where the pass does not fit into memory.
    parts
        Network id and pass to the parts that share its energy.
    shares
        Question and GPU to the share of each part in the energy at the GPU's reference point.
    """

    questions: list[Question]
    candidates: pd.DataFrame
    gpus: list[str]
    warnings: dict[tuple[int, int], list[str]] = field(default_factory=dict)
    without_room: list[tuple[int, int]] = field(default_factory=list)
    parts: dict[tuple[str, str], Parts] = field(default_factory=dict)
    shares: dict[tuple[int, int], Shares] = field(default_factory=dict)


def answer_all(models: Mapping[str, GpuPredictor], catalogue_dir: Path, asked: Mapping[bool, Set[str]]) -> Answers:
    """Predict networks of a catalogue in each of their passes, on every GPU, at every operating point measured.

    Parameters
    ----------
    models
        From `gpu_predictor.load_models`.
    catalogue_dir
        The catalogue of the dataset.
    asked
        Ids of the networks to predict on virtual GPUs (True) and measured ones (False).

    Raises
    ------
    DataFileError
        If the catalogue or a predictor is missing or damaged.
    """
    settings = _settings(models)
    ids: frozenset[str] = frozenset().union(*asked.values())
    networks = _Networks.read(catalogue_dir, ids)
    bulk = [BulkPredictor(model, networks.operations, networks.features) for model in models.values()]
    answers = Answers([], pd.DataFrame(), list(models))
    rows: list[tuple[float, ...]] = []
    for traced in networks.traced(ids):
        parts = Parts.of(traced)
        fitting = _with_room(traced, bulk)
        able = [
            traced.network.pass_ in model.description.passes
            and traced.network.network_id in asked[model.description.virtual]
            for model in bulk
        ]
        for execution in of_variant(traced.network.dtype):
            number = len(answers.questions)
            found = []
            for gpu, model in enumerate(bulk):
                known = settings[model.description.virtual]
                if not able[gpu] or not known.issuperset(settings_of(traced.operations, execution, known)):
                    continue
                if model.description.gpu_name not in fitting:
                    answers.without_room.append((number, gpu))
                    continue
                points = list(model.description.points)
                try:
                    predictions = predict_points(model, traced, points, execution=execution)
                except NotPredictableError:
                    continue  # an operation without any bound on its cost
                if predictions and predictions[0].warnings:  # the same at all points that were measured
                    answers.warnings[number, gpu] = list(predictions[0].warnings)
                found += [(number, gpu, points.index(one.point), *_numbers(one)) for one in predictions]
                reference = reference_point(model.description.points)
                of_reference = next((one for one in predictions if one.point == reference), None)
                if of_reference is not None:
                    answers.shares[number, gpu] = shares_of(model, traced, parts, of_reference)
            if found:
                answers.questions.append(Question(traced.network.network_id, traced.network.pass_, execution))
                answers.parts[traced.network.network_id, traced.network.pass_] = parts
                rows += found
    answers.candidates = pd.DataFrame(rows, columns=list(COLUMNS))
    return answers


def _settings(models: Mapping[str, GpuPredictor]) -> dict[bool, set[ExecutionSettings]]:
    """Settings of operations that may be asked for, of measured GPUs and of virtual ones: what one of them had."""
    descriptions = [model.description for model in models.values()]
    return {virtual: known_settings(one for one in descriptions if one.virtual == virtual) for virtual in (False, True)}


def _with_room(traced: TracedNetwork, models: Sequence[GpuPredictor]) -> set[str]:
    """Return the GPUs whose memory a pass fits into; `recommend` raises an error if there is none."""
    try:
        return check_fits(traced, [model.description.gpu_name for model in models])
    except ClockwattError:
        return set()


def _numbers(prediction: Answer) -> tuple[float, ...]:
    expected, none = prediction.expected, (np.nan, np.nan)
    return (
        float(prediction.measured_point), expected.time_s, _known(expected.energy_j), _known(expected.power_w),
        *prediction.intervals.get("time_s", none), *prediction.intervals.get("energy_j", none),
        prediction.measured_calls / max(expected.calls, 1),
        float(prediction.host is not None), float(prediction.host is not None and prediction.host.paced_by == "host"),
    )  # fmt: skip


def _known(value: float | None) -> float:
    return np.nan if value is None else value


@dataclass(frozen=True)
class _Networks:
    """The networks of a catalogue, with what is computed once for all of them.

    Attributes
    ----------
    catalogue
        Whose calls have a `module_path`.
    operations
        Pass to the operations that the networks to predict call in it.
    features
        Pass to features of those with device work.
    """

    catalogue: Catalogue
    operations: dict[str, pd.DataFrame]
    features: dict[str, pd.DataFrame]

    @classmethod
    def read(cls, folder: Path, asked: Set[str]) -> _Networks:
        catalogue = Catalogue.read(folder)
        columns = ["network_id", "pass", "position", "module_path"]
        paths = files.read_table(folder / layout.CALLS_FILE, CALL_SCHEMA, columns).to_pandas()
        for key, own in paths.sort_values("position").groupby(["network_id", "pass"]):
            calls = catalogue.calls[str(key[0]), str(key[1])]
            catalogue.calls[str(key[0]), str(key[1])] = calls.assign(module_path=own["module_path"].to_numpy(object))
        operations, features = {}, {}
        for pass_, rows in catalogue.operations.groupby("pass"):
            called = [
                calls["operation_id"] for key, calls in catalogue.calls.items() if key[0] in asked and key[1] == pass_
            ]
            own = rows[rows["operation_id"].isin(frozenset().union(*called))].reset_index(drop=True)
            if own.empty:
                continue
            operations[str(pass_)] = own
            features[str(pass_)] = operation_features(own[own["device_work"].astype(bool)])
        return cls(catalogue, operations, features)

    def traced(self, asked: Set[str]) -> Iterator[TracedNetwork]:
        """Yield each network to predict in each of its passes, as from `questions.traced_network`."""
        ids = {pass_: pd.Index(rows["operation_id"]) for pass_, rows in self.operations.items()}
        for key, network in self.catalogue.networks.items():
            calls = self.catalogue.calls.get(key)
            if calls is not None and key[0] in asked and key[1] in ids:
                positions = np.unique(ids[key[1]].get_indexer(pd.Index(calls["operation_id"])))
                own = self.operations[key[1]].iloc[positions[positions >= 0]].reset_index(drop=True)
                works = own.loc[own["device_work"].astype(bool), "operation_id"]
                yield TracedNetwork(network, calls, own, known_features=self.features[key[1]].loc[works])


_LEVELS = 2
"""Levels of modules that are shown."""
_DYNAMIC = TARGETS.index("energy_dynamic_corrected_j")
_PHASES = {"loss": "loss", "accumulation": "sums of gradients", "optimizer": "optimizer step"}


@dataclass(frozen=True)
class Parts:
    """The parts of a pass, in the order in which they first run, alike on every GPU.

    Attributes
    ----------
    modules
        The module that calls: a path of at most two levels, or what the optimizer and such do.
    operation_ids
        What it calls, each once.
    calls
        How often.
    positions
        The positions of the operations among those of the pass; shape (parts,).
    """

    modules: list[str]
    operation_ids: list[str]
    calls: list[int]
    positions: NDArray[np.intp]

    @classmethod
    def of(cls, traced: TracedNetwork) -> Parts:
        """Return the parts of a pass, without calls that have no work on the device."""
        operations = traced.operations
        works = set(operations["operation_id"].to_numpy(object)[operations["device_work"].to_numpy(bool)])
        columns = (traced.calls[name].to_numpy(object) for name in ("module_path", "phase", "operation_id"))
        counts: dict[tuple[str, str], int] = {}
        for path, phase, operation_id in zip(*columns, strict=True):
            if operation_id in works:
                module = ".".join((path or "").split(".")[:_LEVELS]) if phase == FORWARD else _PHASES[phase]
                counts[module, operation_id] = counts.get((module, operation_id), 0) + 1
        ids = [operation_id for _, operation_id in counts]
        positions = pd.Index(operations["operation_id"]).get_indexer(pd.Index(ids, dtype=object))
        return cls([module for module, _ in counts], ids, list(counts.values()), positions)


@dataclass(frozen=True)
class Shares:
    """Shares of a pass's energy; what is left to one is idle power over the pass.

    Attributes
    ----------
    point
        Operating point that they hold for.
    share
        Of each part; shape (parts,).
    measured
        Whether its operation was measured there, else predicted; shape (parts,).
    """

    point: str
    share: NDArray[np.float64]
    measured: NDArray[np.bool_]


def shares_of(model: GpuPredictor, traced: TracedNetwork, parts: Parts, prediction: Answer) -> Shares:
    """Return the shares of the parts of a pass on one GPU at the operating point of a prediction.

    What the calls cost by themselves is scaled to what they cost together, gaps and power limit included.
    """
    source = model.costs(traced.operations, prediction.pass_, execution=prediction.execution, features=traced.features)
    costs = source.at([prediction.point])[prediction.point]
    energy_j = costs.mean[parts.positions, _DYNAMIC] * np.array(parts.calls, dtype=float)
    expected, modelled_j = prediction.expected, prediction.modelled.energy_j
    share = np.full(len(parts.calls), np.nan)
    total_j = float(np.nansum(energy_j))
    if modelled_j and expected.energy_dynamic_j is not None and total_j > 0:
        share = energy_j / total_j * (expected.energy_dynamic_j / modelled_j)
    return Shares(prediction.point, share, costs.measured[parts.positions])
