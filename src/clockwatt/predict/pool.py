"""Several GPU models in one predictor of time, and each of them predicted by the others.

A GPU that was never measured differs from those that were as much as these do from each other. So what is stated of
its error comes from leaving whole models out, never single operations or clocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pyarrow as pa

from clockwatt.config import OperatingPoint
from clockwatt.gpu.specs import GpuSpec, find_spec
from clockwatt.predict.features import OPERATION_CLASS, Setting, operation_features
from clockwatt.predict.network import compose
from clockwatt.predict.pointcosts import PointCosts, read_point_costs
from clockwatt.predict.predictors import TIMES, RooflinePredictor
from clockwatt.predict.problem import Problem, make_problem, workless_host_s
from clockwatt.predict.samples import read_samples
from clockwatt.predict.unseen import TimePredictor, bound_by, cost_columns, median_host, on_card
from clockwatt.predict.wholes import Catalogue, whole_networks

LEFT_OUT_SCHEMA = pa.schema(
    [
        pa.field("gpu", pa.string()),
        pa.field("model", pa.string()),
        pa.field("pass", pa.string()),
        pa.field("point", pa.string()),
        pa.field("tf32", pa.bool_()),
        pa.field("operation_id", pa.string()),
        pa.field("operation_class", pa.string()),
        *(pa.field(name, pa.float64()) for name in TIMES),
        *(pa.field(f"predicted_{name}", pa.float64()) for name in TIMES),
    ],
    metadata={"kind": "GPU models left out"},
)
"""Each operation learnt from, with its prediction by the other GPU models."""

NETWORK_COLUMNS = ["gpu", "model", "network_id", "point", "tf32", "bound", "measured_time_s", "time_s"]
"""Each network measured whole, with what bounds it and its time, composed from predictions by the other GPU models."""


@dataclass(frozen=True)
class Card:
    """What was measured on one GPU.

    Attributes
    ----------
    gpu, gpu_name
        Its label and its NVML name.
    spec
        Its specifications.
    virtual
        Whether it is modelled.
    tf32
        Settings that were measured.
    problems
        Pass to what is to be learnt there.
    workless_host_s
        Pass to operation class to host time of calls without device work.
    host
        Its calibrated costs, median over the operating points.
    whole
        Networks measured whole, see `wholes.whole_networks`.
    """

    gpu: str
    gpu_name: str
    spec: GpuSpec
    virtual: bool
    tf32: frozenset[bool]
    problems: dict[str, Problem]
    workless_host_s: dict[str, dict[str, float]]
    host: PointCosts
    whole: pd.DataFrame

    def sm_clock_ratios(self) -> set[float]:
        """SM clocks learnt from, relative to the boost clock."""
        points = {str(point) for problem in self.problems.values() for point in problem.cells["point"]}
        settings = [Setting(self.spec, OperatingPoint.parse(point), tf32=True) for point in points]
        return {setting.sm_clock_mhz / self.spec.boost_clock_mhz for setting in settings}


def read_card(dataset_dir: Path, gpu: str, passes: Sequence[str]) -> Card:
    """Read what was measured on one GPU.

    Raises
    ------
    DataFileError
        If the dataset is damaged.
    """
    samples = read_samples(dataset_dir, gpu)
    spec = find_spec(samples.gpu_name)
    costs = read_point_costs(dataset_dir, gpu)
    problems = {pass_: make_problem(samples, pass_, spec) for pass_ in passes}
    return Card(
        gpu=gpu,
        gpu_name=samples.gpu_name,
        spec=spec,
        virtual=samples.virtual,
        tf32=frozenset(bool(value) for value in samples.rows["tf32"]),
        problems={pass_: problem for pass_, problem in problems.items() if problem is not None},
        workless_host_s={pass_: workless_host_s(samples, pass_, costs) for pass_ in passes},
        host=median_host(list(costs.values())),
        whole=whole_networks(dataset_dir, gpu)[0],
    )


def models_of(cards: Sequence[Card]) -> list[str]:
    """Names of their GPU models, sorted; several cards may be of one model."""
    return sorted({card.spec.name for card in cards})


def time_predictor(cards: Sequence[Card], pass_: str, *, trees: int, seed: int) -> TimePredictor:
    """Fit a predictor of one pass to several GPUs that have measurements of it."""
    problems = [(card.problems[pass_], card.spec) for card in cards]
    features = [on_card(problem.features[problem.learnt], spec) for problem, spec in problems]
    targets = [problem.targets.loc[problem.learnt, list(TIMES)] for problem, _ in problems]
    forest = RooflinePredictor(trees=trees, seed=seed)
    forest.fit(pd.concat(features, ignore_index=True), pd.concat(targets, ignore_index=True))
    workless = pd.DataFrame([card.workless_host_s[pass_] for card in cards]).median()
    return TimePredictor(
        forest=forest,
        workless_host_s={str(name): float(value) for name, value in workless.items()},
        host=median_host([card.host for card in cards]),
    )


def leave_models_out(
    cards: Sequence[Card], pass_: str, catalogue: Catalogue, *, trees: int, seed: int
) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
    """Predict each GPU model by a predictor fitted to the others.

    Parameters
    ----------
    cards
        GPUs with measurements of the pass; all of one model are left out together.
    pass_
        The pass.
    catalogue
        What the networks call that were measured whole.
    trees, seed
        Of the forests.

    Yields
    ------
    operations
        Every row that may be learnt from, with the columns of `LEFT_OUT_SCHEMA`.
    networks
        Every network measured whole, with `NETWORK_COLUMNS`.
    """
    for model in models_of(cards):
        others = [card for card in cards if card.spec.name != model]
        predictor = time_predictor(others, pass_, trees=trees, seed=seed)
        held = [card for card in cards if card.spec.name == model]
        yield (
            pd.concat([_operations(card, pass_, predictor) for card in held], ignore_index=True),
            pd.concat([_networks(card, pass_, predictor, catalogue) for card in held], ignore_index=True),
        )


def _operations(card: Card, pass_: str, predictor: TimePredictor) -> pd.DataFrame:
    problem = card.problems[pass_]
    rows = problem.cells[problem.learnt]
    features = problem.features[problem.learnt]
    predictions = predictor.forest.predict(on_card(features, card.spec))
    columns = {
        "gpu": card.gpu,
        "model": card.spec.name,
        "pass": pass_,
        **{name: rows[name] for name in ("point", "tf32", "operation_id")},
        OPERATION_CLASS: features[OPERATION_CLASS],
        **{name: problem.targets.loc[problem.learnt, name] for name in TIMES},
        **{f"predicted_{name}": predictions[name] for name in TIMES},
    }
    return pd.DataFrame(columns, index=rows.index)


def _networks(card: Card, pass_: str, predictor: TimePredictor, catalogue: Catalogue) -> pd.DataFrame:
    ids = card.whole["subject_id"].map(lambda identity: (identity, pass_) in catalogue.calls).astype(bool)
    whole = card.whole[ids & card.whole["repeatable"] & (card.whole["pass"] == pass_)]
    if whole.empty:
        return pd.DataFrame(columns=NETWORK_COLUMNS)
    called = set(catalogue.called_by(whole, pass_)["operation_id"])
    operations = catalogue.operations
    operations = operations[(operations["pass"] == pass_) & operations["operation_id"].isin(called)]
    features = operation_features(operations[operations["device_work"].astype(bool)])
    rows = []
    for (point, tf32), group in whole.groupby(["point", "tf32"]):
        setting = Setting(card.spec, OperatingPoint.parse(str(point)), bool(tf32))
        costs = cost_columns(predictor.times(operations, features, setting))
        for identity, measured_s in group[["subject_id", "time_eager_s"]].itertuples(index=False):
            key = (str(identity), pass_)
            composed = compose(catalogue.calls[key], catalogue.networks[key], costs, predictor.host)
            if composed.complete:
                bound = bound_by(composed)
                rows.append((card.gpu, card.spec.name, key[0], point, tf32, bound, measured_s, composed.time_s))
    return pd.DataFrame(rows, columns=NETWORK_COLUMNS)
