"""Compare one card with other cards of its model: slower, or of higher power, by how much, and how certain that is.

Only measurements at positions in the session that most sessions share are compared. The others' means scatter around
their mean with a standard deviation that holds card, session and temperature. A card is an outlier if it is so far
above their mean that few cards of the same fleet would be.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy import stats

from clockwatt.config import FEWEST_CARDS
from clockwatt.dataset.flagging import SLOWED_BY
from clockwatt.errors import ClockwattError
from clockwatt.studies.survey.observations import COMPARED, last_shared_position
from clockwatt.studies.survey.variance import COVERAGE, outliers

FALSE_ALARMS = 0.01
"""Largest share of cards of the same fleet that any quantity may call an outlier."""
NOTABLE = 0.01
"""Smallest relative difference of an outlier."""


def fleet_summary(fleet: pd.DataFrame) -> pd.DataFrame:
    """Summarise the cards to compare with, without outliers above them, which would hide others.

    Parameters
    ----------
    fleet
        As `observations` returns it.

    Returns
    -------
    pandas.DataFrame
        Indexed by quantity. `cards`: their number. `mean`, `deviation`: of the log of a card in one session.
        `session_variance`, `rest_variance`: of the log, within a card and within a session. `temperature_c`: mean of
        the cards. `per_degree`: relative change per K at one position in the session, NaN where no temperature changed.
        `last_position`: measurements up to it are compared.

    Raises
    ------
    ClockwattError
        If a quantity has fewer than 4 cards.
    """
    fewest = fleet.groupby("quantity")["card"].nunique().reindex(list(COMPARED), fill_value=0).min()
    if fewest < FEWEST_CARDS:
        raise ClockwattError(
            f"{fewest} cards of this model are known, {FEWEST_CARDS} are needed. Give --fleet with measurements of "
            "more cards, such as files of `clockwatt card --output`."
        )
    return pd.DataFrame({name: _summary(fleet[fleet["quantity"] == name]) for name in COMPARED}).T


def _summary(rows: pd.DataFrame) -> dict[str, float]:
    last = last_shared_position(rows)
    shared = rows[rows["position"] <= last]
    found = outliers(shared)
    fleet = shared[~shared["card"].isin(found.index[found["outlier"] & (found["difference"] > 0)])]
    sessions = fleet.groupby(["card", "session"])[["log", "temperature_c"]].mean()
    cards = sessions.groupby("card").mean()
    count, repeated = len(cards), sessions.groupby("card").size()
    rest = ((fleet["log"] - fleet.groupby("session")["log"].transform("mean")) ** 2).sum() / max(
        1, len(fleet) - len(sessions)
    )
    of_sessions = sessions["log"] - sessions.groupby("card")["log"].transform("mean")
    rows_each = len(fleet) / max(1, len(sessions))
    session = max(0.0, (of_sessions**2).sum() / max(1, len(sessions) - count) - rest / rows_each)
    return {
        "cards": count,
        "mean": cards["log"].mean(),
        "deviation": (cards["log"].var() + session * (1 - (1 / repeated).mean())) ** 0.5,
        "session_variance": session,
        "rest_variance": rest,
        "temperature_c": cards["temperature_c"].mean(),
        "per_degree": _per_degree(rows.assign(position=rows["position"].clip(upper=last + 1))),
        "last_position": last,
    }


def _per_degree(rows: pd.DataFrame) -> float:
    """Return the change of the log per K, with a mean of each session and of each position removed."""
    rows = rows.dropna(subset=["log", "temperature_c"])
    positions = pd.get_dummies(rows["position"], dtype=float)
    columns = pd.concat([rows[["log", "temperature_c"]], positions], axis=1)
    within = (columns - columns.groupby(rows["session"]).transform("mean")).to_numpy(float)
    logs, fixed = within[:, 0], within[:, 1:]
    if np.linalg.matrix_rank(fixed) == np.linalg.matrix_rank(fixed[:, 1:]):
        return np.nan
    return float(np.linalg.lstsq(fixed, logs, rcond=None)[0][0])


def compare(card: pd.DataFrame, summary: pd.DataFrame) -> pd.DataFrame:
    """Compare a card with the others.

    Parameters
    ----------
    card
        Observations of one card in one session.
    summary
        As `fleet_summary` returns it, of other cards.

    Returns
    -------
    pandas.DataFrame
        Indexed by quantity. `difference` from the mean card, relative, and its 95 % interval `low` to `high`.
        `from_temperature`: part of it that its temperature explains, NaN if unknown. `smallest_outlier`: smallest
        difference of an outlier, so that 1 % of the cards of a fleet at most are outliers in any quantity (t-test,
        Bonferroni). `outlier`: whether it is one. `temperature_c` and `fleet_temperature_c`.
    """
    card = card[card["position"] <= card["quantity"].map(summary["last_position"])]
    own = card.groupby("quantity")[["log", "temperature_c"]].mean().reindex(summary.index)
    rows = card.groupby("quantity").size().reindex(summary.index)
    difference = own["log"] - summary["mean"]
    freedom = summary["cards"] - 1
    fleet_error = summary["deviation"] ** 2 / summary["cards"]
    own_error = summary["session_variance"] + summary["rest_variance"] / rows
    half_width = stats.t.ppf(0.5 + COVERAGE / 2, freedom) * (own_error + fleet_error) ** 0.5
    # the means of a few cards may lie closer together than the error of each allows
    scatter = (np.maximum(summary["deviation"] ** 2, own_error) + fleet_error) ** 0.5
    smallest = np.maximum(np.log1p(NOTABLE), stats.t.isf(FALSE_ALARMS / len(summary), freedom) * scatter)
    return pd.DataFrame(
        {
            "difference": np.expm1(difference),
            "low": np.expm1(difference - half_width),
            "high": np.expm1(difference + half_width),
            "from_temperature": np.expm1(summary["per_degree"] * (own["temperature_c"] - summary["temperature_c"])),
            "smallest_outlier": np.expm1(smallest),
            "outlier": difference > smallest,
            "temperature_c": own["temperature_c"],
            "fleet_temperature_c": summary["temperature_c"],
        },
        index=summary.index,
    )


def throttling(rows: pd.DataFrame) -> list[str]:
    """Return the reasons by which temperature or the board slowed a card, of its measurements."""
    seen = {str(reason) for reasons in rows["throttle_reasons"] if reasons is not None for reason in reasons}
    return sorted(seen & SLOWED_BY)


def verdict(compared: pd.DataFrame, throttled: Sequence[str]) -> str | None:
    """Return what is wrong with the card in words; None if it is no outlier and was not throttled."""
    found = []
    for word in ("slower", "draws more power"):
        names = [name for name, row in compared.iterrows() if row["outlier"] and COMPARED[str(name)].worse == word]
        if names:
            name = compared.loc[names, "difference"].idxmax()
            percent = 100 * compared.loc[name, ["difference", "low", "high"]].astype(float)
            found.append(
                f"{word} by {percent['difference']:.1f} % ({percent['low']:.1f} to {percent['high']:.1f}), {name}"
            )
    if throttled:
        found.append(f"throttled ({', '.join(throttled)})")
    return "; ".join(found) or None
