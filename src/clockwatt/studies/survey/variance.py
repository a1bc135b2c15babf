"""Split the variance of a quantity between cards into nested levels, and find outliers among cards.

A linear mixed model of the log: position in the session and temperature within a card are fixed; each level, such as
card and session, is random. It is fitted by restricted maximum likelihood, and intervals are those of the profile
likelihood, which hold a variance of 0 where the data allow it.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import linalg, optimize, stats

from clockwatt.studies.survey.observations import last_shared_position

POSITION, REST = "position", "rest"
COVERAGE = 0.95
_FEWEST_HOSTS = 3
_DAY_US = 86_400_000_000
_FALSE_DISCOVERIES = 0.05
_NULL_FLEETS = 2000
_LEAST, _MOST = np.log(1e-5), np.log(1.0)
"""Bounds of the log of a standard deviation; below the lower one it counts as 0."""

Vector = NDArray[np.float64]
Groups = NDArray[np.integer]


@dataclass(frozen=True)
class MixedModel:
    """Observations of one quantity, and the groups of each level that they belong to.

    Attributes
    ----------
    logs
        Less their mean, shape (n,).
    fixed
        Columns of fixed effects, shape (n, p).
    groups
        For each level, from the outermost to the innermost, the number of each observation's group, shape (n,). Each
        group lies within one group of the level before; the last level is `REST`.
    """

    logs: Vector
    fixed: Vector
    groups: dict[str, Groups]

    @classmethod
    def of(cls, rows: pd.DataFrame, levels: Sequence[str]) -> MixedModel:
        """Make the model of one quantity.

        Parameters
        ----------
        rows
            As `observations` returns them, of one quantity; rows without a temperature are left out.
        levels
            Columns of `rows` that name the groups, from the outermost to the innermost; `card` among them.
        """
        rows = rows.dropna(subset=["log", "temperature_c"])
        positions = pd.get_dummies(rows["position"].clip(upper=last_shared_position(rows) + 1), dtype=float)
        warmer = rows["temperature_c"] - rows.groupby("card")["temperature_c"].transform("mean")
        fixed = positions.to_numpy()
        if np.linalg.matrix_rank(np.column_stack([fixed, warmer])) > fixed.shape[1]:
            fixed = np.column_stack([fixed, warmer])
        groups = {level: rows.groupby(list(levels[: number + 1])).ngroup() for number, level in enumerate(levels)}
        logs = (rows["log"] - rows["log"].mean()).to_numpy(float)
        own = {level: numbers.to_numpy(np.intp) for level, numbers in groups.items()}
        return cls(logs, fixed, own | {REST: np.arange(len(rows))})

    @functools.cached_property
    def _parents(self) -> list[Groups]:
        """For each level but the last, the group that each group of the next level lies in."""
        first = [np.unique(groups, return_index=True)[1] for groups in self.groups.values()]
        return [groups[inner] for groups, inner in zip(list(self.groups.values())[:-1], first[1:], strict=True)]

    def deviance(self, log_deviations: Vector) -> float:
        """Return −2 × the restricted log likelihood, up to a constant, at log standard deviations of the levels.

        Each level adds one effect for each group to the covariance of what the group holds, so its inverse follows
        from sums over groups, from the innermost level outwards.
        """
        *outer, rest = np.exp(2 * log_deviations)
        values = np.column_stack([self.fixed, self.logs])
        weights, sums = np.full(len(values), 1 / rest), values / rest
        products, log_determinant = values.T @ sums, len(values) * np.log(rest)
        for parents, variance in zip(reversed(self._parents), reversed(outer), strict=True):
            weights = np.bincount(parents, weights)
            sums = np.column_stack([np.bincount(parents, column) for column in sums.T])
            shrinkage = 1 / (1 + variance * weights)
            products -= (sums.T * (variance * shrinkage)) @ sums
            log_determinant -= np.log(shrinkage).sum()
            weights, sums = weights * shrinkage, sums * shrinkage[:, None]
        of_fixed, of_logs = products[:-1, :-1], products[:-1, -1]
        residual = products[-1, -1] - of_logs @ np.linalg.solve(of_fixed, of_logs)
        return float(log_determinant + np.linalg.slogdet(of_fixed)[1] + residual)

    def best(self, held: str | None = None, at: float = 0.0, start: Vector | None = None) -> tuple[float, Vector]:
        """Return the least deviance and its log deviations.

        Parameters
        ----------
        held, at
            A level whose log deviation is held at `at`; None for no level.
        start
            Log deviations to begin with, of shape (levels,); else several are tried.
        """
        free = [number for number, level in enumerate(self.groups) if level != held]
        high = np.full(len(self.groups), np.log(self.logs.std() + 1e-6) - 0.7)
        starts = [high, high - 2.0 * np.arange(len(high)), self._moments()] if start is None else [start]

        def filled(values: Vector) -> Vector:
            logs = np.full(len(self.groups), at)
            logs[free] = values
            return logs

        fits = [
            optimize.minimize(
                lambda values: self.deviance(filled(values)), np.clip(begin[free], _LEAST + 0.5, _MOST - 0.5),
                method="L-BFGS-B", bounds=[(_LEAST, _MOST)] * len(free),
            )
            for begin in starts
        ]  # fmt: skip
        fit = min(fits, key=lambda found: float(found.fun))
        return float(fit.fun), filled(fit.x)

    def _moments(self) -> Vector:
        """Return log deviations of the groups' means within each level, from those of the level around it."""
        outer, logs = np.full(len(self.logs), self.logs.mean()), []
        for groups in self.groups.values():
            means = (np.bincount(groups, self.logs) / np.bincount(groups))[groups]
            logs.append(np.log(max((means - outer).std(), 1e-12)))
            outer = means
        return np.array(logs)


class CrossedModel(MixedModel):
    """A mixed model of some hundred observations whose groups need not lie within one another."""

    @classmethod
    def of_places(cls, rows: pd.DataFrame, positions: pd.Series) -> CrossedModel | None:
        """Make the model of the cards' means by host and position in the node.

        Parameters
        ----------
        rows
            As `observations` returns them, of one quantity.
        positions
            Index of each card in its node, by card.

        Returns
        -------
        CrossedModel or None
            None with fewer than 3 hosts, or fewer than 2 positions that 3 hosts have.
        """
        cards = rows.groupby("card").agg(log=("log", "mean"), host=("host", "first"))
        cards = cards.assign(position=positions.reindex(cards.index)).dropna()
        hosts = cards.groupby("position")["host"].nunique()
        if cards["host"].nunique() < _FEWEST_HOSTS or (hosts >= _FEWEST_HOSTS).sum() < 2:
            return None
        logs = (cards["log"] - cards["log"].mean()).to_numpy(float)
        groups: dict[str, Groups] = {level: pd.factorize(cards[level])[0] for level in ("host", POSITION)}
        return cls(logs, np.ones((len(cards), 1)), groups | {REST: np.arange(len(cards))})

    def deviance(self, log_deviations: Vector) -> float:
        """See `MixedModel.deviance`; by the whole covariance matrix."""
        covariance = sum(
            variance * (groups[:, None] == groups)
            for variance, groups in zip(np.exp(2 * log_deviations), self.groups.values(), strict=True)
        )
        factor = linalg.cho_factor(covariance, lower=True)
        of_fixed = self.fixed.T @ linalg.cho_solve(factor, self.fixed)
        weighted = linalg.cho_solve(factor, self.logs)
        of_logs = self.fixed.T @ weighted
        residual = self.logs @ weighted - of_logs @ np.linalg.solve(of_fixed, of_logs)
        return float(2 * np.log(np.diag(factor[0])).sum() + np.linalg.slogdet(of_fixed)[1] + residual)


def split(model: MixedModel, levels: Collection[str] | None = None) -> pd.DataFrame:
    """Return the standard deviation of each level, relative, with its 95 % interval by profile likelihood.

    Parameters
    ----------
    model
        The model.
    levels
        Levels to return; None for all.

    Returns
    -------
    pandas.DataFrame
        Indexed by level: `deviation`, `low`, `high`.
    """
    least, logs = model.best()
    limit = float(stats.chi2.ppf(COVERAGE, 1))
    rows = {}
    for number, level in enumerate(model.groups):
        if levels is not None and level not in levels:
            continue

        def above(at: float, level: str = level) -> float:
            return model.best(level, at, logs)[0] - least - limit

        best = logs[number]
        low = 0.0 if above(_LEAST) < 0 else np.exp(optimize.brentq(above, _LEAST, best, xtol=0.01))
        high = np.exp(optimize.brentq(above, best, _MOST, xtol=0.01)) if above(_MOST) > 0 else np.inf
        rows[level] = {"deviation": np.exp(best) if best > _LEAST + 0.1 else 0.0, "low": low, "high": high}
    return pd.DataFrame(rows).T


def words(part: pd.Series) -> str:
    """Return a row of `split` in words: `0.24 (0.17–0.34) %`."""
    return f"{100 * part['deviation']:.2f} ({100 * part['low']:.2f}–{100 * part['high']:.2f}) %"


def levels_of(rows: pd.DataFrame) -> tuple[list[str], list[str]]:
    """Return the levels that observations of one quantity can be split into, and sentences on what they cannot.

    Parameters
    ----------
    rows
        As `observations` returns them.
    """
    levels, limits = ["card", "session"], []
    of_card = rows.assign(day=rows["started_us"] // _DAY_US).groupby("card")[["session", "day"]].nunique()
    cards_of_host = rows.groupby("host")["card"].nunique()
    if len(cards_of_host) >= _FEWEST_HOSTS and (cards_of_host > 1).any():
        levels.insert(0, "host")
    else:
        limits.append(f"Not separated: card and node. {_FEWEST_HOSTS} nodes with several cards are needed.")
    once = int((of_card["session"] == 1).sum())
    if once == len(of_card):
        levels.remove("session")
    one_day = int((of_card["day"] == 1).sum())
    for what, fewest in (("in one session", once), ("on one day", one_day)):
        if fewest:
            how, shares = "Not" if fewest == len(of_card) else "Poorly", f"{fewest} of {len(of_card)} cards"
            limits.append(f"{how} separated: card and {what.split()[-1]}. {shares} were measured {what} only.")
    return levels, limits


def spread(rows: pd.DataFrame) -> float:
    """Return (max − min) / median over the cards' medians of one quantity."""
    cards = np.exp(rows.groupby("card")["log"].median())
    return float((cards.max() - cards.min()) / cards.median())


def outliers(rows: pd.DataFrame, within: str | None = None) -> pd.DataFrame:
    """Compare each card with the median card in one quantity.

    Its distance is stated in units of the median distance, so that outliers do not hide one another. Fleets of equal
    size without outliers, drawn from a normal distribution, show how often a distance occurs.

    Parameters
    ----------
    rows
        As `observations` returns them, of one quantity.
    within
        A column such as `host`, to compare with the median card of the same host; None for all cards.

    Returns
    -------
    pandas.DataFrame
        Indexed by card: `difference` from the median card, relative; `p_value`, two-sided; `outlier` with false
        discoveries held to 5 % (Benjamini–Hochberg).
    """
    cards = rows.groupby("card")["log"].mean()
    groups = np.zeros(len(cards), int) if within is None else pd.factorize(rows.groupby("card")[within].first())[0]
    differences, own = _distances(cards.to_numpy(float)[None, :], groups)
    null = _null_distances(tuple(groups.tolist()))
    p_values = (1 + null.size - np.searchsorted(null, own[0])) / (1 + null.size)
    return pd.DataFrame(
        {
            "difference": np.expm1(differences[0]),
            "p_value": p_values,
            "outlier": stats.false_discovery_control(p_values) <= _FALSE_DISCOVERIES,
        },
        index=cards.index,
    )


def _distances(logs: Vector, groups: Groups) -> tuple[Vector, Vector]:
    """Return differences of fleets of shape (n, cards) from the median of each group, and them in median distances."""
    several = np.bincount(groups)[groups] > 1
    differences = logs.copy()
    for group in np.unique(groups):
        differences[:, groups == group] -= np.median(logs[:, groups == group], axis=1, keepdims=True)
    return differences, np.abs(differences) / np.median(np.abs(differences[:, several]), axis=1, keepdims=True)


@functools.lru_cache(maxsize=16)
def _null_distances(groups: tuple[int, ...]) -> Vector:
    """Return the sorted distances of all cards of fleets without outliers."""
    fleets = np.random.default_rng(0).normal(size=(_NULL_FLEETS, len(groups)))
    return np.sort(_distances(fleets, np.array(groups))[1], axis=None)
